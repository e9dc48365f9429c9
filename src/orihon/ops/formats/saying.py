"""The pieces that all readers of session files share: texts, pictures, times, and a reply that came in several records.

A reader is strict about nothing: what it does not understand is not shown to the model, and is kept in the rest.
"""

from __future__ import annotations

from collections import OrderedDict
from datetime import UTC, datetime
from typing import Any

import msgspec

from orihon.codec import clean_value
from orihon.errors import UsageError
from orihon.ops.formats.origin import At, Said
from orihon.records import Call, Message, Part, Role, Usage
from orihon.task.messages import message_of

REMEMBERED_CALLS = 1000

_WORDS = frozenset(("text", "input_text", "output_text"))


def saying(role: Role, content: str | list[Part], **fields: Any) -> Message:
    """A message that a store has still to number and count."""
    return Message(**{"seq": 0, "role": role, "content": content, "timestamp": "", "tokens": 0} | fields)


def content_of(value: Any) -> str | list[Part]:
    """Texts and pictures of a content in any of the shapes that providers use; one text alone is that text."""
    if isinstance(value, str):
        return value
    blocks = value if isinstance(value, list) else [value]
    parts = [part for block in blocks if (part := _part(block)) is not None]
    if len(parts) == 1 and parts[0].type == "text":
        return parts[0].text or ""
    return parts or ""


def _part(block: Any) -> Part | None:
    if isinstance(block, str):
        return Part(type="text", text=block)
    if not isinstance(block, dict) or not isinstance(block.get("type", ""), str):
        return None
    kind = kind_of(block)
    if kind in _WORDS or (not kind and isinstance(block.get("text"), str)):
        return Part(type="text", text=block["text"]) if isinstance(block.get("text"), str) else None
    if kind not in {"image", "image_url", "input_image"}:
        return None
    try:
        made = message_of("user", [block]).content
    except UsageError:
        return None
    return made[0] if isinstance(made[0], Part) else None


def call_of(id: Any, name: Any, arguments: Any) -> Call:
    """A call; arguments that are an object become compact JSON in the order of the file."""
    if not isinstance(arguments, str):
        arguments = msgspec.json.encode({} if arguments is None else clean_value(arguments)).decode()
    return Call(id=str(id or ""), name=str(name or "tool"), arguments=arguments)


def time_of(value: Any) -> str:
    """A time in the one form that is stored; empty when it is none."""
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            moment = datetime.fromtimestamp(value / 1000 if value > 1e11 else value, UTC)  # noqa: PLR2004 - milliseconds
        else:
            moment = datetime.fromisoformat(value)
            moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        return ""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")[:-6] + "Z"


def kind_of(value: Any) -> str:
    """The `type` of a record; empty when it has none, or one that is no text."""
    return text_in(value, "type")


def text_in(value: Any, *names: str) -> str:
    """The first of these fields that is a text with something in it."""
    found = (value.get(name) for name in names) if isinstance(value, dict) else ()
    return next((text for text in found if isinstance(text, str) and text), "")


class Names:
    """Which tool a result belongs to, and which call when it does not say; the newest calls are remembered."""

    def __init__(self) -> None:
        self._names: OrderedDict[str, str] = OrderedDict()
        self._made = 0

    def add(self, calls: list[Call]) -> list[Call]:
        """Remember these calls; one without an id gets one."""
        named = [call if call.id else msgspec.structs.replace(call, id=self._next()) for call in calls]
        for call in named:
            self._names[call.id] = call.name
            if len(self._names) > REMEMBERED_CALLS:
                self._names.popitem(last=False)
        return named

    def of(self, call_id: str) -> str | None:
        """The tool that was called so."""
        return self._names.get(call_id)

    def newest(self, name: str) -> str:
        """The id of the newest call of a tool."""
        return next((call_id for call_id, tool in reversed(self._names.items()) if name in {tool, ""}), "")

    def _next(self) -> str:
        self._made += 1
        return f"call_{self._made}"


class Reply:
    """What a model said at once, though the file says it in several records."""

    def __init__(self, id: str = "") -> None:
        self.id = id
        self.origin: list[tuple[At, Any]] = []
        self.parts: list[Part] = []
        self.calls: list[Call] = []
        self.model: str | None = None
        self.usage: Usage | None = None
        self.timestamp = ""

    def add(self, at: At, record: Any, *, timestamp: str = "") -> None:
        """One more record belongs to it."""
        self.origin.append((at, record))
        self.timestamp = self.timestamp or timestamp

    def text(self, text: Any) -> None:
        """Some more words."""
        if isinstance(text, str) and text:
            self.parts.append(Part(type="text", text=text))

    def said(self) -> Said:
        """The records and the message; a reply of nothing but thoughts is only kept."""
        if not self.parts and not self.calls:
            return Said(self.origin)
        content: str | list[Part] = list(self.parts)
        if len(self.parts) <= 1:
            content = self.parts[0].text or "" if self.parts else ""
        fields = {"tool_calls": self.calls, "model": self.model, "usage": self.usage, "timestamp": self.timestamp}
        return Said(self.origin, [saying("assistant", content, **fields)])
