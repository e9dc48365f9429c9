"""`orihon show`: one task, as people read it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from typing import Any

import click
import msgspec

from orihon import codec
from orihon.cli.options import json_option, language_option, store_option, uuid_argument
from orihon.cli.output import say, say_json, say_line
from orihon.cli.people import duration, language, moment
from orihon.cli.records import Lines, line_of
from orihon.errors import UsageError
from orihon.ops.access import AuthorizedStore, open_authorized_store
from orihon.ops.listing import NEWEST, Overview, build_overview, follow_messages, load_full_text
from orihon.records import Record
from orihon.settings.load import load
from orihon.task.reader import Reader
from orihon.task.window import Window
from orihon.terminal import Language, collapse

LISTS: dict[str, Callable[[Reader], Iterator[Record]]] = {
    "summaries": Reader.summaries,
    "tools": Reader.tools,
    "events": Reader.events,
    "plan": Reader.plan,
}


@click.command()
@uuid_argument
@click.option("--messages", is_flag=True, help="The log, or a part of it.")
@click.option("--first", type=int, default=1, help="Begin with this message; -20 are the last 20.")
@click.option("--last", type=click.IntRange(1), help="End with this message.")
@click.option("--summaries", is_flag=True, help="Every summary, also those that no longer count.")
@click.option("--tools", is_flag=True, help="Every run of a tool.")
@click.option("--events", is_flag=True, help="Every change of what is visible.")
@click.option("--plan", is_flag=True, help="The history of its plans.")
@click.option("--window", is_flag=True, help="Exactly what the model would see now, with tokens by source.")
@click.option("--follow", "live", is_flag=True, help="New messages as they come, until the task ends or Ctrl-C.")
@click.option("--full", is_flag=True, help="Texts whole, not one line each.")
@store_option
@language_option
@json_option("One object: the row, and what is shown; of a list one record per line, as it is stored.")
def show(
    uuid: str,
    url: str | None,
    lang: str | None,
    *,
    messages: bool,
    first: int,
    last: int | None,
    window: bool,
    live: bool,
    full: bool,
    as_json: bool,
    **lists: bool,
) -> None:
    """Show a task: how it is, what it works on, what it used, its last messages, its summaries.

    The beginning of the UUID is enough. Looking disturbs nobody, and can be done while the task runs.

    \b
    orihon show 550e8400
    orihon show 550e8400 --messages --first -50 --full
    orihon show 550e8400 --summaries --tools
    orihon show 550e8400 --window
    orihon show 550e8400 --follow
    orihon show 550e8400 --messages --json | jq -r 'select(.role == "assistant") | .content'
    """
    if first == 0:
        raise UsageError("There is no message 0.", hint="The first one is 1; -1 is the last one.")
    # Ctrl-C is how somebody who follows has seen enough
    with (
        suppress(KeyboardInterrupt) if live else nullcontext(),
        open_authorized_store(load(), url, command="show") as authorized,
    ):
        chosen = [name for name in LISTS if lists[name]]
        reader = authorized.reader(uuid, *_read(chosen, messages=messages or live, window=window))
        lines = Lines(full=full, as_json=as_json)
        if not (messages or window or chosen):
            found = build_overview(reader)
            if as_json:
                say_json(_object(found))
            else:
                say(_text(found, language(lang), lines))
            first = found.message_count + 1
        elif messages:
            first = _list("Messages", reader, reader.messages(first=first, last=last), lines) + 1
        for name in chosen:
            _list(name.capitalize(), reader, LISTS[name](reader), lines)
        if window:
            if as_json:
                say_json(_window_object(reader.window()))
            else:
                say(_window_text(reader.window(), lines))
        if live:
            _follow(authorized, reader, max(1, first), lines)


def _read(lists: list[str], *, messages: bool, window: bool) -> list[str]:
    """What of the task is read, for the audit."""
    named = [*["messages"] * messages, *lists, *["window"] * window]
    return ["row", *named] if named else ["row", "messages", "summaries"]


def _list(title: str, reader: Reader, records: Iterator[Record], lines: Lines) -> int:
    """Print a list as it is read; the number of the last message."""
    number = 0
    if not lines.as_json:
        say_line(f"{title}:")
    for record in records:
        number = getattr(record, "seq", 0)
        lines.say(load_full_text(reader, record) if lines.full else record)
    return number


def _follow(authorized: AuthorizedStore, reader: Reader, first: int, lines: Lines) -> None:
    for message in follow_messages(authorized, reader.uuid, first):
        lines.say(load_full_text(reader, message) if lines.full else message)
        sys.stdout.flush()
    if not lines.as_json:
        say_line(f"Status: {authorized.row(reader.uuid).status}")


def _text(found: Overview, lang: Language, lines: Lines) -> str:
    row = found.row
    told = {
        "Task UUID": row.uuid,
        "Status": row.status,
        "Reason": row.reason,
        "Error": row.error_message,
        "Repository": found.repository,
        "Task": found.task,
        "Started": moment(row.started_at),
        "Completed": moment(row.completed_at),
        "Duration": duration(found.seconds, lang),
    }
    only = f" (showing last {NEWEST})" if found.message_count > NEWEST else ""
    return "\n".join(
        (
            *(f"{name}: {collapse(value)}" for name, value in told.items() if value),
            "",
            "Statistics:",
            f"  LLM calls: {row.llm_call_count:,}",
            f"  Tool calls: {row.tool_call_count:,}",
            f"  Total tokens: {row.total_tokens:,}",
            f"  Compressions: {row.compression_count:,}",
            "",
            f"Messages: {found.message_count:,}{only}",
            *map(lines.of, found.messages),
            "",
            f"Summaries: {found.summary_count:,}",
            *map(lines.of, found.summaries),
        )
    )


def _object(found: Overview) -> dict[str, Any]:
    def raw(record: Record) -> msgspec.Raw:
        return msgspec.Raw(codec.encode(record))

    fields: dict[str, Any] = {name: getattr(found, name) for name in found.__struct_fields__}
    fields |= {name: [raw(record) for record in fields[name]] for name in ("messages", "summaries")}
    return fields | {"row": raw(found.row)}


def _window_object(window: Window) -> dict[str, Any]:
    report = msgspec.structs.asdict(window.report)
    return report | {"messages": window.openai(), "tools": window.tools()}


def _window_text(window: Window, lines: Lines) -> str:
    report = window.report
    hidden = f"{report.whole:,} whole, {report.folded:,} folded, {report.left_out:,} left out"
    return "\n".join(
        (
            f"Window: {report.tokens:,} of {report.limit:,} tokens ({hidden})",
            *(f"  {name}: {tokens:,}" for name, tokens in report.by_source.items()),
            *(f"  {reason}" for reason in report.reasons),
            "",
            *(lines.indented(line_of(message)) for message in window.messages),
        )
    )
