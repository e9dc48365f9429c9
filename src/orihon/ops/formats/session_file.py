"""Session files of other agents: how a file is read, and what the readers of all formats share.

A file is lines of JSON or one JSON document, read tolerantly and in bounded memory. A line that is not JSON (often the
last one, incomplete) is kept as text. A reader rejects nothing: what it does not understand is not shown to the model,
but kept with the original record.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from orihon.codec import clean_value, depth_fits, format_time
from orihon.coerce import decode_json
from orihon.errors import UsageError
from orihon.records import Call, Message, Part, Role, Usage
from orihon.stores.files import disk_errors
from orihon.task.messages import parse_message

MAX_LINE_BYTES = 64 * 1024 * 1024
MAX_DOCUMENT_BYTES = 256 * 1024 * 1024
OPENING_LINES = 50  # by which a format is recognised
REMEMBERED_CALLS = 1000
MILLISECONDS_FROM = 1e11  # a larger number is a time in milliseconds

_BOM = b"\xef\xbb\xbf"
_TEXT_TYPES = frozenset(("text", "input_text", "output_text"))
_IMAGE_TYPES = frozenset(("image", "image_url", "input_image"))

RecordPath = list[int | str]  # the keys and indexes that lead to a record inside a file


class SessionFile:
    """A file with the session of an agent."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with disk_errors(f"{path} cannot be read"):
            if not path.is_file():
                raise UsageError(f"{path} is not a file.", hint="Name the session file itself.")
            self.size = path.stat().st_size
        self.position = 0  # how many bytes `lines` or `document` has read

    @cached_property
    def sha256(self) -> str:
        """The checksum of the file."""
        with disk_errors(f"{self.path} cannot be read"), self.path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    @cached_property
    def opening(self) -> list[Any]:
        """The values of the first lines. A line that is not JSON is a string."""
        return [value for _, value in islice(self.lines(), OPENING_LINES)]

    @cached_property
    def is_document(self) -> bool:
        """Whether the file is one JSON value, on one line or on several."""
        return len(self.opening) == 1 or not all(isinstance(value, dict) for value in self.opening[:2])

    @cached_property
    def document(self) -> Any:
        """The value of the whole file; None if it is not a document."""
        if not self.is_document:
            return None
        if self.size > MAX_DOCUMENT_BYTES:
            sentence = f"{self.path} is one JSON document of {self.size:,} bytes; the limit is {MAX_DOCUMENT_BYTES:,}."
            raise UsageError(sentence, hint="Split it into smaller documents.")
        with disk_errors(f"{self.path} cannot be read"):
            value = parse_value(self.path.read_bytes())
            self.position = self.size
        return None if isinstance(value, str) else value

    def lines(self) -> Iterator[tuple[int, Any]]:
        """Yield the number (from 0) and the value of each line that is not blank."""
        with disk_errors(f"{self.path} cannot be read"), self.path.open("rb") as file:
            number = 0
            while line := file.readline(MAX_LINE_BYTES + 1):
                if len(line) > MAX_LINE_BYTES:
                    sentence = f"{self.path}, line {number + 1} is longer than {MAX_LINE_BYTES:,} bytes."
                    raise UsageError(sentence, hint="No session has such a line; check the file.")
                self.position = file.tell()
                if line.strip():
                    yield number, parse_value(line)
                number += 1


def parse_value(data: bytes) -> Any:
    """Return the value of a JSON text, or the text itself if it is not JSON or is nested too deeply to be stored."""
    data = data.removeprefix(_BOM)
    text = data.decode("utf-8", "replace").rstrip("\r\n")
    try:
        value = decode_json(data)
    except ValueError:
        try:
            value = json.loads(text, parse_constant=str)  # accepts NaN and lone surrogates
        except (ValueError, RecursionError):
            return text
    return value if depth_fits(value) else text


# readers


class Parsed(NamedTuple):
    """Records of a file and the messages that they become. Records without messages are only kept."""

    records: list[tuple[RecordPath, Any]]
    messages: Sequence[Message] = ()


class SessionReader(ABC):
    """Reads one session of the files of one agent."""

    def __init__(self) -> None:
        self._tools: OrderedDict[str, str] = OrderedDict()  # of the newest calls, by their ids
        self._generated = 0

    @classmethod
    @abstractmethod
    def matches(cls, file: SessionFile) -> bool:
        """Return whether a file has this format."""

    @classmethod
    def sessions(cls, file: SessionFile) -> Iterator[Iterator[Parsed]]:
        """Yield each session of a file; most formats have one in a file."""
        yield cls().read(file)

    @abstractmethod
    def read(self, file: SessionFile) -> Iterator[Parsed]:
        """Yield the records of the session in order."""

    def add_calls(self, calls: list[Call]) -> list[Call]:
        """Remember calls, to find the tools of their results. A call without an id gets one."""
        identified = [call if call.id else msgspec.structs.replace(call, id=self._next_id()) for call in calls]
        for call in identified:
            self._tools[call.id] = call.name
            if len(self._tools) > REMEMBERED_CALLS:
                self._tools.popitem(last=False)
        return identified

    def _next_id(self) -> str:
        self._generated += 1
        return f"call_{self._generated}"

    def newest_call(self, tool: str) -> str:
        """Return the id of the newest call of a tool; of any tool if the name is empty."""
        return next((call_id for call_id, name in reversed(self._tools.items()) if tool in {name, ""}), "")

    def make_result(self, call_id: Any, content: Any, *, tool: str = "", is_error: bool = False, time: Any) -> Message:
        """Return the result of a call. `tool` names the tool of a call that is not known."""
        call_id = str(call_id or "")
        return make_message(
            "tool",
            parse_content(content or ""),
            tool_call_id=call_id or None,
            tool_name=self._tools.get(call_id) or tool or None,
            is_error=is_error,
            timestamp=parse_time(time),
        )


class Reply:
    """The records of one reply of the model."""

    def __init__(self, id: Any = None) -> None:
        self.id = id
        self.records: list[tuple[RecordPath, Any]] = []
        self.parts: list[Part] = []
        self.calls: list[Call] = []
        self.model: str | None = None
        self.usage: Usage | None = None

    def add_text(self, text: Any) -> None:
        """Add a text, if it is one."""
        if isinstance(text, str) and text:
            self.parts.append(Part(type="text", text=text))


class LineReader(SessionReader):
    """Reads lines of which several can make one reply."""

    def read(self, file: SessionFile) -> Iterator[Parsed]:
        reply = Reply()
        for number, record in file.lines():
            item = self.find_item(record)
            reply_id = None if item is None else self.find_reply(item)
            if item is not None and reply.records and (reply_id is None or reply_id != reply.id):
                yield self._build(reply)
                reply = Reply()
            if reply_id is not None:
                reply.id = reply_id
                reply.records.append(([number], record))
                self.add_to_reply(reply, item)
            else:
                yield Parsed([([number], record)], [] if item is None else self.parse_messages(record, item))
        if reply.records:
            yield self._build(reply)

    @abstractmethod
    def find_item(self, record: Any) -> Any:
        """Return the part of a record that belongs to the conversation; None if there is none."""

    @abstractmethod
    def find_reply(self, item: Any) -> Any:
        """Return what tells the reply of an item from others; None if the item is not part of a reply."""

    @abstractmethod
    def add_to_reply(self, reply: Reply, item: Any) -> None:
        """Add an item to the reply that it is part of."""

    @abstractmethod
    def parse_messages(self, record: dict[str, Any], item: Any) -> list[Message]:
        """Return the messages of an item that is not part of a reply."""

    def _build(self, reply: Reply) -> Parsed:
        """Return the records and their message. A reply without text and calls has no message."""
        if not reply.parts and not reply.calls:
            return Parsed(reply.records)
        times = (parse_time(record.get("timestamp")) for _, record in reply.records)
        content: str | list[Part] = list(reply.parts)
        if len(reply.parts) <= 1:
            content = reply.parts[0].text or "" if reply.parts else ""
        fields = {"model": reply.model, "usage": reply.usage, "timestamp": next(filter(None, times), "")}
        return Parsed(
            reply.records, [make_message("assistant", content, tool_calls=self.add_calls(reply.calls), **fields)]
        )


# values in records


def make_message(role: Role, content: str | list[Part], **fields: Any) -> Message:
    """Return a message without number and token count, which the store adds."""
    return Message(**{"seq": 0, "role": role, "content": content, "timestamp": "", "tokens": 0} | fields)


def make_call(id: Any, name: Any, arguments: Any) -> Call:
    """Return a call. Arguments that are an object become compact JSON in the order of the file."""
    if not isinstance(arguments, str):
        arguments = msgspec.json.encode({} if arguments is None else clean_value(arguments)).decode()
    return Call(id=str(id or ""), name=str(name or "tool"), arguments=arguments)


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
        part = parse_message("user", [block]).content[0]
    except UsageError:
        return None
    return part if isinstance(part, Part) else None


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


def get_dict(value: Any, name: str) -> dict[str, Any]:
    """Return a field of a record that is an object, else an empty one."""
    inner = value.get(name) if isinstance(value, dict) else None
    return inner if isinstance(inner, dict) else {}
