"""What the parsers of session files share: texts, pictures, times, and replies that span several records.

A parser rejects nothing. What it does not understand is not shown to the model, but kept with the original record.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from orihon.codec import clean_value, format_time
from orihon.errors import UsageError
from orihon.records import Call, Message, Part, Role, Usage
from orihon.task.messages import message_of

REMEMBERED_CALLS = 1000
MILLISECONDS_FROM = 1e11  # a larger number is a time in milliseconds

_TEXT_TYPES = frozenset(("text", "input_text", "output_text"))
_IMAGE_TYPES = frozenset(("image", "image_url", "input_image"))

RecordPath = list[int | str]  # the keys and indexes that lead to a record inside a file


class Parsed(NamedTuple):
    """Records of a file and the messages that they become. Records without messages are only kept."""

    records: list[tuple[RecordPath, Any]]
    messages: Sequence[Message] = ()


def make_message(role: Role, content: str | list[Part], **fields: Any) -> Message:
    """Return a message without number and token count, which the store adds."""
    return Message(**{"seq": 0, "role": role, "content": content, "timestamp": "", "tokens": 0} | fields)


def parse_content(value: Any) -> str | list[Part]:
    """Return the texts and pictures of a content in any shape that providers use; a single text as a string."""
    if isinstance(value, str):
        return value
    blocks = value if isinstance(value, list) else [value]
    parts = [part for block in blocks if (part := _parse_part(block)) is not None]
    if len(parts) == 1 and parts[0].type == "text":
        return parts[0].text or ""
    return parts or ""


def _parse_part(block: Any) -> Part | None:
    if isinstance(block, str):
        return Part(type="text", text=block)
    if not isinstance(block, dict) or not isinstance(block.get("type", ""), str):
        return None
    block_type = record_type(block)
    if block_type in _TEXT_TYPES or (not block_type and isinstance(block.get("text"), str)):
        return Part(type="text", text=block["text"]) if isinstance(block.get("text"), str) else None
    if block_type not in _IMAGE_TYPES:
        return None
    try:
        part = message_of("user", [block]).content[0]
    except UsageError:
        return None
    return part if isinstance(part, Part) else None


def make_call(id: Any, name: Any, arguments: Any) -> Call:
    """Return a call. Arguments that are an object become compact JSON in the order of the file."""
    if not isinstance(arguments, str):
        arguments = msgspec.json.encode({} if arguments is None else clean_value(arguments)).decode()
    return Call(id=str(id or ""), name=str(name or "tool"), arguments=arguments)


def parse_time(value: Any) -> str:
    """Return a time in the stored form; empty if the value is not a time."""
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            moment = datetime.fromtimestamp(value / 1000 if value > MILLISECONDS_FROM else value, UTC)
        else:
            moment = datetime.fromisoformat(value)
            moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        return format_time(moment)
    except (TypeError, ValueError, OverflowError, OSError):
        return ""


def record_type(value: Any) -> str:
    """Return the `type` of a record; empty if it has none or it is not a string."""
    return first_text(value, "type")


def first_text(value: Any, *names: str) -> str:
    """Return the first of these fields that is a string and not empty."""
    texts = (value.get(name) for name in names) if isinstance(value, dict) else ()
    return next((text for text in texts if isinstance(text, str) and text), "")


class CallNames:
    """The newest calls, to find the tool of a result, and the call of a result that does not name one."""

    def __init__(self) -> None:
        self._names: OrderedDict[str, str] = OrderedDict()
        self._generated = 0

    def add(self, calls: list[Call]) -> list[Call]:
        """Remember calls. A call without an id gets one."""
        identified = [call if call.id else msgspec.structs.replace(call, id=self._next_id()) for call in calls]
        for call in identified:
            self._names[call.id] = call.name
            if len(self._names) > REMEMBERED_CALLS:
                self._names.popitem(last=False)
        return identified

    def tool_name(self, call_id: str) -> str | None:
        """Return the tool of a call."""
        return self._names.get(call_id)

    def newest_id(self, name: str) -> str:
        """Return the id of the newest call of a tool; of any tool if the name is empty."""
        return next((call_id for call_id, tool in reversed(self._names.items()) if name in {tool, ""}), "")

    def _next_id(self) -> str:
        self._generated += 1
        return f"call_{self._generated}"


class ReplyBuilder:
    """Collects the records of one reply of the model."""

    def __init__(self) -> None:
        self.id = ""
        self.records: list[tuple[RecordPath, Any]] = []
        self.parts: list[Part] = []
        self.calls: list[Call] = []
        self.model: str | None = None
        self.usage: Usage | None = None
        self.timestamp = ""

    def add_record(self, path: RecordPath, record: Any, *, timestamp: str = "") -> None:
        """Add a record."""
        self.records.append((path, record))
        self.timestamp = self.timestamp or timestamp

    def add_text(self, text: Any) -> None:
        """Add a text, if it is one."""
        if isinstance(text, str) and text:
            self.parts.append(Part(type="text", text=text))

    def build(self, names: CallNames) -> Parsed:
        """Return the records and their message. A reply without text and calls has no message."""
        if not self.parts and not self.calls:
            return Parsed(self.records)
        content: str | list[Part] = list(self.parts)
        if len(self.parts) <= 1:
            content = self.parts[0].text or "" if self.parts else ""
        message = make_message(
            "assistant",
            content,
            tool_calls=names.add(self.calls),
            model=self.model,
            usage=self.usage,
            timestamp=self.timestamp,
        )
        return Parsed(self.records, [message])
