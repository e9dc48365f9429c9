"""The one way in: whatever is stored was cleaned and masked here first.

Stores call this on every record before its first byte is written, so windows, summaries, handoffs, exports and
searches are made of masked text. Two things are not masked, on purpose: blobs of pictures, and checkpoints of files.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from orihon.codec import clean_text, clean_value
from orihon.records import Call, Event, Fold, Message, Metadata, Part, PlanEntry, Record, Summary, ToolCall
from orihon.secrets import KnownSecrets, mask, mask_value

R = TypeVar("R", bound=Record)

# the fields of each record that come from outside
_TEXTS: dict[type[Record], tuple[str, ...]] = {
    Fold: ("text",),
    Summary: ("summary",),
    ToolCall: ("error",),
}
_VALUES: dict[type[Record], tuple[str, ...]] = {
    Event: ("data",),
    Fold: ("arguments",),
    Metadata: ("config",),
    PlanEntry: ("data",),
    ToolCall: ("args", "result"),
}


def admit(record: R, known: KnownSecrets | None) -> R:
    """The record as it may be stored: the same object when there was nothing to mend or to hide."""
    changes = _admit_message(record, known) if isinstance(record, Message) else _admit_fields(record, known)
    if record.unknown:
        changes |= _changed(record, "unknown", mask_value(clean_value(record.unknown), known=known))
    return msgspec.structs.replace(record, **changes) if changes else record


def admit_text(text: str, known: KnownSecrets | None) -> str:
    """A text as it may be stored where no record holds it: in a blob."""
    return mask(clean_text(text), known=known)


def _admit_fields(record: Record, known: KnownSecrets | None) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    for name in _TEXTS.get(type(record), ()):
        if text := getattr(record, name):
            changes |= _changed(record, name, mask(clean_text(text), known=known))
    for name in _VALUES.get(type(record), ()):
        changes |= _changed(record, name, mask_value(clean_value(getattr(record, name)), known=known))
    return changes


def _admit_message(message: Message, known: KnownSecrets | None) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    content = message.content
    if isinstance(content, str):
        clean = clean_text(content)
        masked = mask(clean, known=known)
    else:
        clean = [_clean_part(part) for part in content]  # type: ignore[assignment]
        masked = [_mask_part(part, known) for part in clean]  # type: ignore[arg-type, assignment]
    if masked is not content and masked != content:
        changes = {"content": masked}
        changes |= {"cleaned": message.cleaned or clean != content, "masked": message.masked or masked != clean}
    if message.tool_calls:
        changes |= _changed(message, "tool_calls", [_admit_call(call, known) for call in message.tool_calls])
    if message.native is not None:
        items = clean_value(message.native.items)
        # a signature vouches for the very text, so what had to be masked goes whole
        changes |= {} if mask_value(items, known=known) == message.native.items else {"native": None}
    for name in ("tool_name", "tool_call_id", "key", "model"):
        if text := getattr(message, name):
            changes |= _changed(message, name, clean_text(text))
    return changes


def _clean_part(part: Part) -> Part:
    return part if part.text is None else _replaced(part, text=clean_text(part.text))


def _mask_part(part: Part, known: KnownSecrets | None) -> Part:
    names = ("text", "name", "url")
    return _replaced(part, **{name: mask(text, known=known) for name in names if (text := getattr(part, name))})


def _admit_call(call: Call, known: KnownSecrets | None) -> Call:
    arguments = clean_text(call.arguments)
    masked = mask(arguments, known=known)
    return _replaced(call, arguments=masked, masked=call.masked or masked != arguments, name=clean_text(call.name))


def _replaced(record: R, **fields: Any) -> R:
    changes = {name: value for name, value in fields.items() if value is not getattr(record, name)}
    return msgspec.structs.replace(record, **changes) if changes else record


def _changed(record: Record, name: str, value: Any) -> dict[str, Any]:
    return {name: value} if value != getattr(record, name) else {}
