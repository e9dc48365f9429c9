"""`orihon show`: show one task, its records and its window."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext, suppress
from typing import Any

import click
import msgspec

from orihon import codec
from orihon.cli._command import StoreSession, language_option, store_command, uuid_argument
from orihon.cli._format import choose_language, format_duration, format_time
from orihon.cli._output import say, say_json, say_line
from orihon.errors import UsageError
from orihon.ops.listing import NEWEST, Overview, build_overview, follow_messages, load_full_text
from orihon.records import Event, Message, PlanEntry, Record, Summary, ToolCall
from orihon.task.reader import Reader
from orihon.task.window import Window
from orihon.terminal import Language, collapse, escape, truncate

LISTS: dict[str, Callable[[Reader], Iterator[Record]]] = {
    "summaries": Reader.summaries,
    "tools": Reader.tools,
    "events": Reader.events,
    "plan": Reader.plan,
}
INDENT = "  "
MAX_LINE_CHARS = 2000  # of a text that is cut to one line


@store_command(json="One object with the row and the overview; for a list, one record per line, as it is stored.")
@uuid_argument
@click.option("--messages", is_flag=True, help="The log, or a part of it.")
@click.option("--first", type=int, default=1, help="First message to show; -20 means the last 20.")
@click.option("--last", type=click.IntRange(1), help="Last message to show.")
@click.option("--summaries", is_flag=True, help="All summaries, including outdated ones.")
@click.option("--tools", is_flag=True, help="All tool calls.")
@click.option("--events", is_flag=True, help="All changes of what is visible.")
@click.option("--plan", is_flag=True, help="The history of the plans.")
@click.option("--window", is_flag=True, help="Exactly what the model would see now, with tokens by source.")
@click.option("--follow", is_flag=True, help="New messages as they arrive, until the task ends or Ctrl-C.")
@click.option("--full", is_flag=True, help="Complete texts instead of one line each.")
@language_option
def show(
    session: StoreSession,
    uuid: str,
    lang: str | None,
    *,
    messages: bool,
    first: int,
    last: int | None,
    window: bool,
    follow: bool,
    full: bool,
    **lists: bool,
) -> None:
    """Show a task: status, key, usage, last messages and summaries.

    A prefix of the id is enough. The task is not disturbed, and may be running.

    \b
    orihon show 550e8400
    orihon show 550e8400 --messages --first -50 --full
    orihon show 550e8400 --summaries --tools
    orihon show 550e8400 --window
    orihon show 550e8400 --follow
    orihon show 550e8400 --messages --json | jq -r 'select(.role == "assistant") | .content'
    """
    if first == 0:
        raise UsageError("There is no message 0.", hint="The first message is 1; -1 is the last one.")
    selected = [name for name in LISTS if lists[name]]
    with suppress(KeyboardInterrupt) if follow else nullcontext():  # Ctrl-C ends --follow
        reader = session.authorized.reader(uuid, *_list_parts(selected, messages=messages or follow, window=window))
        printer = RecordPrinter(reader, full=full, as_json=session.as_json)
        if messages:
            first = printer.print_list("Messages", reader.messages(first=first, last=last)) + 1
        elif not (window or selected):
            overview = build_overview(reader)
            if session.as_json:
                say_json(_overview_to_object(overview))
            else:
                say(_format_overview(overview, choose_language(lang), printer))
            first = overview.message_count + 1
        for name in selected:
            printer.print_list(name.capitalize(), LISTS[name](reader))
        if window:
            if session.as_json:
                say_json(_window_to_object(reader.window()))
            else:
                say(_format_window(reader.window(), printer))
        if follow:
            printer.print_records(follow_messages(session.authorized, reader.uuid, max(1, first)), flush=True)
            if not session.as_json:
                say_line(f"Status: {session.authorized.row(reader.uuid).status}")


def _list_parts(lists: list[str], *, messages: bool, window: bool) -> list[str]:
    """Return the parts of the task that are read, for the audit."""
    parts = [*["messages"] * messages, *lists, *["window"] * window]
    return ["row", *parts] if parts else ["row", "messages", "summaries"]


class RecordPrinter:
    """Prints records: as JSON, in full, or one line of the terminal each."""

    def __init__(self, reader: Reader, *, full: bool, as_json: bool) -> None:
        self.reader, self.full, self.as_json = reader, full, as_json
        self.width = shutil.get_terminal_size().columns

    def print_list(self, title: str, records: Iterable[Record]) -> int:
        """Print a list under its title. Return the number of the last message."""
        if not self.as_json:
            say_line(f"{title}:")
        return self.print_records(records)

    def print_records(self, records: Iterable[Record], *, flush: bool = False) -> int:
        """Print records as they are read. Return the number of the last message."""
        number = 0
        for record in records:
            number = getattr(record, "seq", 0)
            loaded = load_full_text(self.reader, record) if self.full else record
            if self.as_json:
                say_json(codec.encode(loaded))
            else:
                say(self.indent(format_record(loaded)))
            if flush:
                sys.stdout.flush()
        return number

    def indent(self, text: str) -> str:
        """Return a text below a heading: in full, or cut to one line."""
        if self.full:
            return "\n".join(INDENT + line for line in escape(text).splitlines() or [""])
        return truncate(INDENT + collapse(text[:MAX_LINE_CHARS]), self.width)


def format_record(record: Record) -> str:
    """Return a record as text: `[149] tool: github_create_commit -> Success`."""
    match record:
        case Message():
            return f"[{record.seq}] {record.role}: {_format_message(record)}"
        case Summary():
            kind = "" if record.kind == "rolling" else f" ({record.kind})"
            return f"[{record.id}] seq {record.start_seq}-{record.end_seq}{kind}: {record.summary}"
        case ToolCall():
            result = record.error if record.status == "error" else _to_text(record.result)
            return f"[{record.seq}] {record.tool}({_to_text(record.args)}) {record.duration_ms:,} ms -> {result}"
        case Event():
            return f"[{record.id}] after {record.after}: {record.type} {_to_text(record.data)}"
        case PlanEntry():
            return f"[{record.id}] {record.type}: {_to_text(record.data)}"
    return codec.encode(record).decode()


def _format_message(message: Message) -> str:
    if isinstance(message.content, str):
        text = message.content
    else:
        text = " ".join(part.text or f"[{part.type} {part.name or part.media_type or ''}]" for part in message.content)
    if message.role == "tool":
        return f"{message.tool_name or 'tool'}{' (error)' if message.is_error else ''} -> {text}"
    calls = " ".join(f"-> {call.name}({call.arguments})" for call in message.tool_calls)
    return " ".join(filter(None, (text, calls)))


def _to_text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _format_overview(overview: Overview, lang: Language, printer: RecordPrinter) -> str:
    row = overview.row
    fields = {
        "Task UUID": row.uuid,
        "Status": row.status,
        "Reason": row.reason,
        "Error": row.error_message,
        "Repository": overview.repository,
        "Task": overview.task,
        "Started": format_time(row.started_at),
        "Completed": format_time(row.completed_at),
        "Duration": format_duration(overview.seconds, lang),
    }
    limited = f" (showing last {NEWEST})" if overview.message_count > NEWEST else ""
    return "\n".join(
        (
            *(f"{name}: {collapse(value)}" for name, value in fields.items() if value),
            "",
            "Statistics:",
            f"  LLM calls: {row.llm_call_count:,}",
            f"  Tool calls: {row.tool_call_count:,}",
            f"  Total tokens: {row.total_tokens:,}",
            f"  Compressions: {row.compression_count:,}",
            "",
            f"Messages: {overview.message_count:,}{limited}",
            *(printer.indent(format_record(message)) for message in overview.messages),
            "",
            f"Summaries: {overview.summary_count:,}",
            *(printer.indent(format_record(summary)) for summary in overview.summaries),
        )
    )


def _overview_to_object(overview: Overview) -> dict[str, Any]:
    def encode(record: Record) -> msgspec.Raw:
        return msgspec.Raw(codec.encode(record))

    fields: dict[str, Any] = {name: getattr(overview, name) for name in overview.__struct_fields__}
    fields |= {name: [encode(record) for record in fields[name]] for name in ("messages", "summaries")}
    return fields | {"row": encode(overview.row)}


def _window_to_object(window: Window) -> dict[str, Any]:
    return msgspec.structs.asdict(window.report) | {"messages": window.openai(), "tools": window.tools()}


def _format_window(window: Window, printer: RecordPrinter) -> str:
    report = window.report
    hidden = f"{report.whole:,} whole, {report.folded:,} folded, {report.left_out:,} left out"
    return "\n".join(
        (
            f"Window: {report.tokens:,} of {report.limit:,} tokens ({hidden})",
            *(f"  {name}: {tokens:,}" for name, tokens in report.by_source.items()),
            *(f"  {reason}" for reason in report.reasons),
            "",
            *(printer.indent(format_record(message)) for message in window.messages),
        )
    )
