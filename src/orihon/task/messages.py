"""What a caller says, as a message: roles, contents and calls in the shapes that people write them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, cast, get_args

import msgspec

from orihon.codec import clean_text, clean_value
from orihon.errors import UsageError
from orihon.records import Call, Message, Part, Role, Usage

ROLES = get_args(Role)

_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+);base64,(.*)", re.DOTALL)


def message_of(
    role: str,
    content: Any,
    *,
    tool_calls: Iterable[Any] | None = None,
    tool_call_id: str | None = None,
    tool_name: str | None = None,
    is_error: bool = False,
    usage: Usage | dict[str, Any] | None = None,
    key: str | None = None,
) -> Message:
    """A message that a store has still to number, date and count."""
    if role not in ROLES:
        raise UsageError(f"A message cannot have the role {role!a}.", hint=f"Allowed are {', '.join(ROLES)}.")
    for name, text in (("tool_call_id", tool_call_id), ("tool_name", tool_name), ("key", key)):
        if text is not None and not isinstance(text, str):
            raise UsageError(f"{name} cannot be a {type(text).__name__}.", hint="Give a text.")
    calls = [call_of(call) for call in tool_calls or ()]
    if calls and role != "assistant":
        raise UsageError(f"A message of the {role} cannot call tools.", hint="Calls belong to the assistant.")
    return Message(
        seq=0,
        role=cast("Role", role),
        content=_content(content),
        tool_calls=calls,
        tool_call_id=tool_call_id,
        tool_name=tool_name,
        is_error=is_error,
        usage=_usage(usage),
        key=key,
        timestamp="",
        tokens=0,
    )


def call_of(call: Any) -> Call:
    """A call from one of ours, from `{"id", "name", "arguments"}`, or from OpenAI's shape."""
    if isinstance(call, Call):
        return call
    value = call.model_dump() if hasattr(call, "model_dump") else call
    inner = value.get("function", value) if isinstance(value, dict) else None
    if not isinstance(inner, dict) or not isinstance(inner.get("name"), str):
        hint = 'Write it as {"id": "call_1", "name": "read_file", "arguments": "{…}"}.'
        raise UsageError(f"This is not a tool call: {str(call)[:80]}.", hint=hint)
    arguments = inner.get("arguments")
    if not isinstance(arguments, str):
        arguments = msgspec.json.encode(clean_value(arguments if arguments is not None else {})).decode()
    return Call(id=str(value.get("id") or ""), name=inner["name"], arguments=arguments)


def with_ids(message: Message, seq: int) -> Message:
    """The message with an id of its own for every call, so that results find it; some providers give none."""
    calls: dict[str, Call] = {}
    for place, call in enumerate(message.tool_calls):
        own = clean_text(call.id)
        if not own.strip() or own in calls:
            own = f"call_{seq}_{place}"
        while own in calls:
            own += "x"
        calls[own] = msgspec.structs.replace(call, id=own)
    return msgspec.structs.replace(message, tool_calls=list(calls.values()))


def _content(content: Any) -> str | list[Part]:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list | tuple):
        return [_part(item) for item in content]
    hint = "Give a text, or a list of parts such as {'type': 'text', 'text': …}."
    raise UsageError(f"A message cannot hold a {type(content).__name__}.", hint=hint)


def _part(item: Any) -> Part:
    if isinstance(item, Part):
        return item
    if isinstance(item, str):
        return Part(type="text", text=item)
    if not isinstance(item, dict) or not isinstance(item.get("type"), str):
        hint = "A part is a text, or a dict with a `type`."
        raise UsageError(f"This is not a part of a message: {str(item)[:80]}.", hint=hint)
    if item["type"] in {"image_url", "input_image"}:
        return _picture(item.get("image_url"))
    given = item["source"] if isinstance(item.get("source"), dict) else item  # as Anthropic writes a picture
    known = {
        name: given[name] for name in ("text", "media_type", "name", "data", "url") if isinstance(given.get(name), str)
    }
    if not known:
        hint = "Give its `text`, or its `data` in base64 with a `media_type`, or a `url`."
        raise UsageError(f"A part of the type {item['type']!a} says nothing that could be kept.", hint=hint)
    is_text = item["type"] in {"input_text", "output_text"}
    return Part(type="text" if is_text else item["type"], **known)


def _picture(value: Any) -> Part:
    url = value.get("url", "") if isinstance(value, dict) else str(value or "")
    if not url:
        raise UsageError("The picture has no address.", hint='Give {"type": "image_url", "image_url": {"url": …}}.')
    inline = _DATA_URL.fullmatch(url)
    if inline:
        return Part(type="image", media_type=inline[1], data=inline[2])
    return Part(type="image", url=url)


def _usage(usage: Usage | dict[str, Any] | None) -> Usage | None:
    if usage is None or isinstance(usage, Usage):
        return usage
    try:
        return msgspec.convert(usage, Usage)
    except msgspec.ValidationError as error:
        names = ", ".join(name for name in Usage.__struct_fields__ if name != "unknown")
        raise UsageError(f"This is not a usage: {error}.", hint=f"Give {names}.") from error
