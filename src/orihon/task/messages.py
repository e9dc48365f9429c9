"""What a caller says, as a message: roles, contents and calls in the shapes that people write them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from typing import Any, cast, get_args

import msgspec

from orihon.codec import clean_text, clean_value, safe_str
from orihon.coerce import to_bool, to_list, to_mapping, to_optional_text, to_text
from orihon.embedded import split_data_url
from orihon.errors import UsageError
from orihon.ingest import mask_output
from orihon.parts import decode_text_part
from orihon.records import Call, Message, Part, PlanEntry, PlanKind, Role, Usage

ROLES = get_args(Role)

_PARTS = "Give a text, or a list of parts such as {'type': 'text', 'text': …}."


def parse_message(
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
    """Return a message that a store has still to number, date and count."""
    if type(role) is not str or role not in ROLES:
        role = to_text(role, "role", hint=f"Allowed are {', '.join(ROLES)}.")
    if role not in ROLES:
        raise UsageError(f"A message cannot have the role {role!a:.80}.", hint=f"Allowed are {', '.join(ROLES)}.")
    calls = [] if tool_calls is None else parse_calls(tool_calls)
    if calls and role != "assistant":
        raise UsageError(f"A message of the {role} cannot call tools.", hint="Calls belong to the assistant.")
    return Message(
        seq=0,
        role=cast("Role", role),
        content=_content(content),
        tool_calls=calls,
        tool_call_id=to_optional_text(tool_call_id, "tool_call_id"),
        tool_name=to_optional_text(tool_name, "tool_name"),
        is_error=to_bool(is_error, "is_error"),
        usage=None if usage is None else _usage(usage),
        key=to_optional_text(key, "key"),
        timestamp="",
        tokens=0,
    )


def parse_calls(calls: Iterable[Any]) -> list[Call]:
    """Return the calls of a message."""
    return [parse_call(call) for call in to_list(calls, "tool_calls", hint="Give a list of calls.")]


def parse_call(call: Any) -> Call:
    """Return a call from one of ours, from `{"id", "name", "arguments"}`, or from OpenAI's shape."""
    if isinstance(call, Call):
        return call
    hint = 'Write it as {"id": "call_1", "name": "read_file", "arguments": "{…}"}.'
    value = to_mapping(call) or {}
    inner = to_mapping(value.get("function", value)) or {}
    if "name" not in inner:
        raise UsageError(f"This is not a tool call: {mask_output(safe_str(call))[:80]}.", hint=hint)
    arguments = clean_value({} if inner.get("arguments") is None else inner["arguments"])
    if not isinstance(arguments, str):
        arguments = msgspec.json.encode(arguments).decode()
    own = clean_value(value.get("id") or "")
    return Call(
        id=own if isinstance(own, str) else str(own),
        name=to_text(inner["name"], "name", hint=hint),
        arguments=arguments,
    )


def with_ids(message: Message, seq: int, taken: Collection[str] = ()) -> Message:
    """Return the message with an id of its own for every call, so that results find it; some providers give none.

    `taken` are the ids of calls that still wait.
    """
    calls: dict[str, Call] = {}
    for place, call in enumerate(message.tool_calls):
        own = clean_text(call.id)
        if not own.strip() or own in calls or own in taken:
            own = f"call_{seq}_{place}"
        while own in calls or own in taken:
            own += "x"
        calls[own] = msgspec.structs.replace(call, id=own)
    return msgspec.structs.replace(message, tool_calls=list(calls.values()))


def parse_plan_entry(task_uuid: str, entry: Any) -> PlanEntry:
    """Return the entry of a plan that a store has still to number and date."""
    fields = to_mapping(entry) or {}
    kind, data = fields.get("type"), to_mapping(fields.get("data"))
    if not isinstance(kind, str) or kind not in get_args(PlanKind) or data is None:
        hint = (
            "Give `type` and `data`; orihon.planning.schema.make_entry makes them from a Plan, a Revision and the like."
        )
        raise UsageError(f"This is not an entry of a plan: {mask_output(safe_str(entry))!a:.80}.", hint=hint)
    return PlanEntry(id=0, type=cast("PlanKind", kind), task_uuid=task_uuid, data=data, timestamp="")


def _content(content: Any) -> str | list[Part]:
    if content is None:
        return ""
    if isinstance(content, str | Enum):
        return to_text(content, "content", hint=_PARTS)
    if isinstance(content, list | tuple):
        return [_part(item) for item in content]
    fields = None if isinstance(content, Part) else to_mapping(content)
    if isinstance(content, Part) or (fields is not None and "type" in fields):
        return [_part(content)]  # one part alone
    raise UsageError(f"A message cannot hold a {type(content).__name__}.", hint=_PARTS)


def _part(item: Any) -> Part:
    if isinstance(item, Part):
        return decode_text_part(item)
    if isinstance(item, str | Enum):
        return Part(type="text", text=to_text(item, "A part", hint=_PARTS))
    fields = to_mapping(item) or {}
    if not isinstance(fields.get("type"), str | Enum):
        hint = "A part is a text, or a dict with a `type`."
        raise UsageError(f"This is not a part of a message: {mask_output(safe_str(item))[:80]}.", hint=hint)
    kind = to_text(fields["type"], "type")
    if kind in {"image_url", "input_image"}:
        return _picture(fields.get("image_url"))
    # Anthropic puts a picture into its source, OpenAI a file into its file
    given = to_mapping(fields.get("source")) or to_mapping(fields.get("file")) or fields
    if isinstance(given.get("file_data"), str):
        return _file(given)
    texts = ("text", "media_type", "name", "data", "url")
    known: dict[str, Any] = {
        name: to_text(given[name], name) for name in texts if isinstance(given.get(name), str | Enum)
    }
    if not known:
        hint = "Give its `text`, or its `data` in base64 with a `media_type`, or a `url`."
        raise UsageError(f"A part of the type {kind!a:.80} says nothing that could be kept.", hint=hint)
    if given.get("type") == "text" and "data" in known and "text" not in known and given is not fields:
        known["text"] = known.pop("data")  # a document of Anthropic's that is plain text
    return decode_text_part(Part(type="text" if kind in {"input_text", "output_text"} else kind, **known))


def _file(fields: Mapping[str, Any]) -> Part:
    """Make a part of a file as OpenAI writes it: `filename`, and `file_data` in base64 or as a `data:` URL."""
    data = to_text(fields["file_data"], "file_data")
    name = to_optional_text(fields.get("filename"), "filename")
    inline = split_data_url(data)
    media_type = inline.media_type if inline else _media_type(name or "")
    return decode_text_part(Part(type="file", name=name, media_type=media_type, data=inline.data if inline else data))


def _media_type(name: str) -> str | None:
    import mimetypes  # noqa: PLC0415 - seldom needed, and it reads the tables of the system

    return mimetypes.guess_type(name)[0]


def _picture(value: Any) -> Part:
    hint = 'Give {"type": "image_url", "image_url": {"url": …}}.'
    fields = to_mapping(value)
    url = to_text((value if fields is None else fields.get("url")) or "", "The address of a picture", hint=hint)
    if not url:
        raise UsageError("The picture has no address.", hint=hint)
    inline = split_data_url(url)
    if inline:
        return Part(type="image", media_type=inline.media_type, data=inline.data)
    return Part(type="image", url=url)


def _usage(usage: Usage | dict[str, Any]) -> Usage:
    if isinstance(usage, Usage):
        return usage
    try:
        return msgspec.convert(clean_value(usage), Usage)
    except msgspec.ValidationError as error:
        names = ", ".join(name for name in Usage.__struct_fields__ if name != "unknown")
        raise UsageError(f"This is not a usage: {error}.", hint=f"Give {names}.") from error
