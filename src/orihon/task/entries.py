"""Convert the messages of a provider's request to `Message`: the opposite of what `context.wire` renders.

One item of the list can become several messages (Anthropic's results and words of one user turn), and several items can
become one (the reasoning, words and calls of one reply in OpenAI's Responses). An entry holds both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from orihon.codec import clean_value
from orihon.coerce import to_json_value, to_list, to_mapping
from orihon.context.replies import parse_reply
from orihon.errors import UsageError
from orihon.records import Message, Raw
from orihon.task.messages import parse_message

Items = Sequence[Mapping[str, Any]]

SYSTEM = frozenset({"system", "developer"})
_OUTPUT = "_output"


class Entry(NamedTuple):
    """Items that belong together, by their number, and the messages that they are."""

    size: int
    messages: list[Message]


def read_entries(items: Items, api: str, *, model: str = "", raw: bool = False) -> Iterator[Entry]:
    """Yield the entries of a list in order. `model` is the one that made the reasoning in it.

    With `raw` the first message of an entry keeps its item, or the list of its items.
    """
    if api not in _READERS:
        raise UsageError(f"There is no API called {api!a:.40}.", hint=f"Use one of: {', '.join(_READERS)}.")
    entries = _READERS[api](items, model)
    return _with_raw(entries, items) if raw else entries


def _with_raw(entries: Iterator[Entry], items: Items) -> Iterator[Entry]:
    place = 0
    for size, (first, *others) in entries:
        own = to_json_value(items[place] if size == 1 else items[place : place + size], "The raw form of a message")
        yield Entry(size, [msgspec.structs.replace(first, raw=Raw(value=own)), *others])
        place += size


def to_items(messages: Any) -> list[Any]:
    """Return a list of messages as plain mappings; raise UsageError for anything else."""
    items = to_list(messages, "The messages", hint="Give the list that the provider gets.")
    return [item if type(item) is dict else _mapping(item) for item in items]


def _mapping(item: Any) -> dict[str, Any]:
    fields = to_mapping(item)
    if fields is None:
        raise UsageError(f"A message cannot be a {type(item).__name__}.", hint="Give a dict for each message.")
    return dict(fields)


# the formats


def _read_openai(items: Items, model: str) -> Iterator[Entry]:
    for item in items:
        role = item.get("role")
        if role == "assistant":
            reply = {"model": model, "choices": [{"message": item}]}
            yield Entry(1, [_unfinished(parse_reply(reply, "openai"))])
        elif role in {"tool", "function"}:
            yield Entry(1, [_result(item.get("tool_call_id"), item.get("content"), name=item.get("name"))])
        else:
            yield Entry(1, [_said(role, item.get("content"))])


def _read_responses(items: Items, model: str) -> Iterator[Entry]:
    reply: list[Mapping[str, Any]] = []
    for item in items:
        kind = item.get("type") or "message"
        is_reply = item.get("role", "assistant") == "assistant" and not kind.endswith(_OUTPUT)
        if reply and (not is_reply or _begins_reply(kind, reply)):
            yield _responses_reply(reply, model)
            reply = []
        if is_reply:
            reply.append({**item, "type": kind})
        elif kind.endswith(_OUTPUT):
            yield Entry(1, [_result(item.get("call_id"), item.get("output"))])
        else:
            yield Entry(1, [_said(item.get("role"), item.get("content"))])
    if reply:
        yield _responses_reply(reply, model)


def _begins_reply(kind: str, before: Items) -> bool:
    """Return whether an item begins another reply: words or reasoning after words or calls."""
    return kind in {"message", "reasoning"} and any(item["type"] != "reasoning" for item in before)


def _responses_reply(items: Items, model: str) -> Entry:
    return Entry(len(items), [_unfinished(parse_reply({"model": model, "output": list(items)}, "responses"))])


def _read_anthropic(items: Items, model: str) -> Iterator[Entry]:
    for item in items:
        role, content = item.get("role"), item.get("content")
        blocks = content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
        if role == "assistant":
            reply = {"type": "message", "model": model, "content": _without_marks(blocks)}
            yield Entry(1, [_unfinished(parse_reply(reply, "anthropic"))])
            continue
        results = [
            _result(block.get("tool_use_id"), block.get("content"), is_error=block.get("is_error"))
            for block in blocks
            if _is_result(block)
        ]
        words = [block for block in blocks if not _is_result(block)]
        yield Entry(1, [*results, _said(role, words)] if words or not results else results)


def _is_result(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") == "tool_result"


def _read_gemini(items: Items, model: str) -> Iterator[Entry]:
    for item in items:
        role, parts = item.get("role"), item.get("parts") or []
        if role == "model":
            reply = {"modelVersion": model, "candidates": [{"content": {"parts": parts}}]}
            yield Entry(1, [_unfinished(parse_reply(reply, "gemini"))])
            continue
        answers = [part["functionResponse"] for part in parts if "functionResponse" in part]
        results = [_result(answer.get("id"), answer.get("response"), name=answer.get("name")) for answer in answers]
        words = [_gemini_part(part) for part in parts if "functionResponse" not in part]
        yield Entry(1, [*results, _said(role, words)] if words or not results else results)


def _gemini_part(part: Mapping[str, Any]) -> Any:
    if "text" in part:
        return {"type": "text", "text": part["text"]}
    data = part.get("inlineData")
    if isinstance(data, dict) and isinstance(data.get("data"), str):
        kind = "image" if str(data.get("mimeType", "")).startswith("image/") else "file"
        return {"type": kind, "media_type": data.get("mimeType"), "data": data["data"]}
    return part


_READERS: dict[str, Callable[[Items, str], Iterator[Entry]]] = {
    "openai": _read_openai,
    "responses": _read_responses,
    "anthropic": _read_anthropic,
    "gemini": _read_gemini,
}


# messages


def _said(role: Any, content: Any) -> Message:
    return parse_message("system" if role in SYSTEM else "user" if role is None else role, _content(content))


def _result(call_id: Any, content: Any, *, name: Any = None, is_error: Any = False) -> Message:
    return parse_message(
        "tool", _content(content), tool_call_id=call_id or None, tool_name=name or None, is_error=bool(is_error)
    )


def _unfinished(message: Message) -> Message:
    """Return a reply of a list without fields that the list cannot tell: usage, and the model if none is named."""
    return msgspec.structs.replace(message, usage=None, model=message.model or None)


def _content(content: Any) -> Any:
    """Return a content as `parse_message` takes it. A part of an unknown form is kept as its JSON."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        return _json(content)
    parts = [_part(item) for item in content]
    if len(parts) == 1 and isinstance(parts[0], dict) and parts[0].get("type") in {"text", "input_text"}:
        return parts[0].get("text") or ""  # one text is the same in either form
    return parts


def _part(item: Any) -> Any:
    try:
        parse_message("user", [item])
    except UsageError:
        return _json(item)
    return item


def _json(value: Any) -> str:
    return msgspec.json.encode(clean_value(value)).decode()


def _without_marks(blocks: list[Any]) -> list[Any]:
    """Return blocks without their cache marks, which move from request to request."""
    return [
        {name: value for name, value in block.items() if name != "cache_control"} if isinstance(block, dict) else block
        for block in blocks
    ]
