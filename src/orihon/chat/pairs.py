"""A pair of the history as the conversation document writes it, and back.

    {"user": {"content": {"Prompt": {"prompt": "…"}}, "timestamp": "…"},
     "assistant": {"ToolUse": {"message_id": "m2", "content": "…", "tool_uses": [{"id", "name", "args", …}]}},
     "request_metadata": {…}}

A user's content is one of `Prompt`, `ToolUseResults` and `CancelledToolUses`, an assistant's one of `Response` and
`ToolUse`. What an older or another writer leaves out is taken as empty.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from orihon.chat.entries import HistoryEntry, Said
from orihon.coerce import decode_json
from orihon.errors import UsageError
from orihon.ingest import shown
from orihon.records import Call, Message, Part, Usage
from orihon.task.messages import message_of

Pair = dict[str, Any]


def pair_of(entry: HistoryEntry) -> Pair:
    """One entry."""
    pair: Pair = {"user": user_of(entry.user), "assistant": _assistant_of(entry.assistant)}
    return pair | ({"request_metadata": entry.request_metadata} if entry.request_metadata else {})


def user_of(said: Said) -> Pair:
    """The user's side of an entry, or what waits to be answered."""
    results = [_result_of(message) for message in said.results]
    newest = (*said.results, *said.prompts)[-1:]
    user: Pair = {"additional_context": "", "timestamp": newest[0].timestamp if newest else None}
    if said.is_cancelled:
        user["content"] = {"CancelledToolUses": {"prompt": said.prompt or None, "tool_use_results": results}}
    elif results:
        user["content"] = {"ToolUseResults": {"tool_use_results": results}}
        user["additional_context"] = said.prompt
    else:
        user["content"] = {"Prompt": {"prompt": said.prompt}}
    pictures = [part for message in said.prompts for part in _pictures(message)]
    return user | ({"images": pictures} if pictures else {})


def messages_of(pair: Any) -> Iterator[Message]:
    """The messages of an entry, to be appended; results first, then what the person said, then the answer."""
    if not isinstance(pair, Mapping) or not isinstance(pair.get("user"), Mapping):
        raise UsageError(f"This is not an entry of a conversation: {shown(str(pair))[:80]}.", hint=HINT)
    yield from said_in(pair["user"])
    yield _answer_in(pair.get("assistant"), pair.get("request_metadata"))


HINT = "An entry has `user` with a `content`, and `assistant` with a `Response` or a `ToolUse`."


def said_in(user: Mapping[str, Any]) -> Iterator[Message]:
    """The messages of the user's side."""
    kind, content = _only(user.get("content"))
    results = content.get("tool_use_results") or []
    for result in results if isinstance(results, list) else []:
        yield _result_in(result)
    prompt = "\n\n".join(
        text for text in (content.get("prompt"), user.get("additional_context")) if isinstance(text, str) and text
    )
    pictures = [Part(**picture) for picture in user.get("images") or () if _is_picture(picture)]
    if pictures:
        yield message_of("user", [Part(type="text", text=prompt), *pictures] if prompt else pictures)
    elif prompt:
        yield message_of("user", prompt)
    if kind not in {"Prompt", "ToolUseResults", "CancelledToolUses"}:
        raise UsageError(f"An entry's user cannot say {kind!a}.", hint=HINT)


def _assistant_of(message: Message) -> Pair:
    said: Pair = {"message_id": f"m{message.seq}", "content": message.text}
    if not message.tool_calls:
        return {"Response": said}
    return {"ToolUse": said | {"tool_uses": [_call_of(call) for call in message.tool_calls]}}


def _answer_in(assistant: Any, metadata: Any) -> Message:
    kind, said = _only(assistant)
    if kind not in {"Response", "ToolUse"}:
        raise UsageError(f"An entry's assistant cannot say {kind!a}.", hint=HINT)
    uses = said.get("tool_uses") or []
    calls = [_call_in(use) for use in uses if isinstance(use, Mapping)] if isinstance(uses, list) else []
    answer = message_of("assistant", str(said.get("content") or ""), tool_calls=calls, usage=_usage_in(metadata))
    model = metadata.get("model_id") if isinstance(metadata, Mapping) else None
    return msgspec.structs.replace(answer, model=str(model) if model else None)


def _usage_in(metadata: Any) -> Usage | None:
    names = [name for name in Usage.__struct_fields__ if name != "unknown"]
    counts = {name: metadata[name] for name in names if name in metadata} if isinstance(metadata, Mapping) else {}
    return Usage(**counts) if counts and all(isinstance(n, int) and n >= 0 for n in counts.values()) else None


def _call_of(call: Call) -> Pair:
    try:
        args = decode_json(call.arguments or "{}")
    except ValueError:
        args = call.arguments
    return {"id": call.id, "name": call.name, "orig_name": call.name, "args": args, "orig_args": args}


def _call_in(use: Mapping[str, Any]) -> Call:
    args = use.get("args")
    written = args if isinstance(args, str) else msgspec.json.encode({} if args is None else args).decode()
    return Call(id=str(use.get("id") or ""), name=str(use.get("orig_name") or use.get("name") or ""), arguments=written)


def _result_of(message: Message) -> Pair:
    texts = [message.content] if isinstance(message.content, str) else [part.text for part in message.content]
    return {
        "tool_use_id": message.tool_call_id,
        "content": [{"Text": text} for text in texts if text is not None],
        "status": "Error" if message.is_error else "Success",
    }


def _result_in(result: Any) -> Message:
    if not isinstance(result, Mapping):
        raise UsageError(f"This is not the result of a tool: {shown(str(result))[:80]}.", hint=HINT)
    texts, content = [], result.get("content") or []
    for block in content if isinstance(content, list) else [content]:
        kind, value = next(iter(block.items()), ("Text", "")) if isinstance(block, Mapping) else ("Text", block)
        texts.append(str(value) if kind == "Text" else msgspec.json.encode(value).decode())
    failed = str(result.get("status", "")).lower() == "error"
    return message_of("tool", "\n".join(texts), tool_call_id=str(result.get("tool_use_id") or ""), is_error=failed)


def _pictures(message: Message) -> Iterator[Pair]:
    for part in message.content if isinstance(message.content, list) else ():
        if part.type == "image":
            yield {"type": "image", "media_type": part.media_type, "data": part.data, "url": part.url}


def _is_picture(picture: Any) -> bool:
    known = {"type", "media_type", "data", "url"}
    return isinstance(picture, Mapping) and picture.get("type") == "image" and picture.keys() <= known


def _only(value: Any) -> tuple[str, Mapping[str, Any]]:
    """The one variant that a value is, and what it holds."""
    if not isinstance(value, Mapping) or len(value) != 1:
        raise UsageError(f"This cannot be read as a part of a conversation: {shown(str(value))[:80]}.", hint=HINT)
    ((kind, content),) = value.items()
    return str(kind), content if isinstance(content, Mapping) else {}
