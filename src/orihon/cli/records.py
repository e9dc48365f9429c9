"""Records of a task as lines for people: `[149] tool: github_create_commit -> Success`."""

from __future__ import annotations

import shutil
from typing import Any

import msgspec

from orihon import codec
from orihon.cli.output import say, say_json
from orihon.records import Event, Message, PlanEntry, Record, Summary, ToolCall
from orihon.terminal import collapse, escape, truncate

INDENT = "  "
ENOUGH = 2000  # characters of a text that one line can show


class Lines:
    """How records are printed."""

    def __init__(self, *, full: bool, as_json: bool = False) -> None:
        self.full, self.as_json = full, as_json
        self.width = shutil.get_terminal_size().columns

    def say(self, record: Record) -> None:
        """Print one record: as JSON, or for people."""
        if self.as_json:
            say_json(codec.encode(record))
        else:
            say(self.of(record))

    def of(self, record: Record) -> str:
        """One record: one line of the terminal's width, or all of it."""
        return self.indented(line_of(record))

    def indented(self, text: str) -> str:
        """A text under a heading."""
        if self.full:
            return "\n".join(INDENT + line for line in escape(text).splitlines() or [""])
        return truncate(INDENT + collapse(text[:ENOUGH]), self.width)


def line_of(record: Record) -> str:
    """What a record says, after its number."""
    match record:
        case Message():
            return f"[{record.seq}] {record.role}: {_said(record)}"
        case Summary():
            kind = "" if record.kind == "rolling" else f" ({record.kind})"
            return f"[{record.id}] seq {record.start_seq}-{record.end_seq}{kind}: {record.summary}"
        case ToolCall():
            result = record.error if record.status == "error" else _text(record.result)
            return f"[{record.seq}] {record.tool}({_text(record.args)}) {record.duration_ms:,} ms -> {result}"
        case Event():
            return f"[{record.id}] after {record.after}: {record.type} {_text(record.data)}"
        case PlanEntry():
            return f"[{record.id}] {record.type}: {_text(record.data)}"
    return codec.encode(record).decode()


def _said(message: Message) -> str:
    calls = " ".join(f"-> {call.name}({call.arguments})" for call in message.tool_calls)
    if message.role == "tool":
        failed = " (error)" if message.is_error else ""
        return f"{message.tool_name or 'tool'}{failed} -> {_words(message)}"
    return " ".join(filter(None, (_words(message), calls)))


def _words(message: Message) -> str:
    if isinstance(message.content, str):
        return message.content
    return " ".join(part.text or f"[{part.type} {part.name or part.media_type or ''}]" for part in message.content)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
