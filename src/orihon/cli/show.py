"""`orihon show`, `inherit` and `compact`: one task, its window, and what a new task would inherit."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any

import click
import msgspec

from orihon import codec
from orihon.cli._command import Session, language_option, store_command, uuid_argument
from orihon.cli._format import choose_language, format_duration, format_time
from orihon.cli._output import say, say_json, say_line, truncate
from orihon.errors import UsageError
from orihon.inheritance import Handoff, Search, make_handoff, max_block_tokens, search
from orihon.ops.listing import NEWEST, Overview, build_overview, follow_messages, load_full_text
from orihon.ops.progress import format_count
from orihon.records import Event, Message, PlanEntry, Record, Summary, ToolCall
from orihon.settings.schema import ContextInheritance, Settings
from orihon.stores.lookup import row_if_there
from orihon.task.reader import Reader
from orihon.task.window import Window
from orihon.task_key import TaskKey
from orihon.terminal import Language, collapse, escape
from orihon.tokens import counter

if TYPE_CHECKING:
    from orihon.ops.compact import Compacted

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
    session: Session,
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


@store_command(json="One object; `block` is null if nothing would be inherited.")
@click.argument("key", metavar="KEY")
@click.option(
    "--user", help="The user who would start the task. Runs of other users: see `context_inheritance.across_users`."
)
@click.option("--dry-run", is_flag=True, help="Has no effect: this command never changes anything.")
@click.option("--context-length", type=click.IntRange(1), help="Context length of the model, instead of the settings.")
def inherit(session: Session, key: str, user: str | None, *, dry_run: bool, context_length: int | None) -> None:
    """Show what a new task with this key would inherit, and why other runs are skipped. Nothing is changed.

    \b
    orihon inherit github/acme/shop/issue/27
    orihon inherit github/acme/shop/issue/27 --context-length 32768
    orihon inherit local/notes --user alice --store sqlite:///contexts.db
    orihon inherit github/acme/shop/issue/27 --json | jq -r '.skipped[] | .uuid + " " + .reason'
    """
    del dry_run
    task_key = TaskKey.parse(key)
    settings, authorized = session.settings, session.authorized
    length = context_length or settings.llm.chosen.context_length
    visible, user = _restrict_to_visible(session, user)
    result = search(authorized.store, task_key, settings=visible, user=user, now=codec.now())
    scope = authorized.principal.scope
    known = (run for run in result.skipped if row_if_there(authorized.store, run.uuid, user=scope) is not None)
    result = msgspec.structs.replace(result, skipped=tuple(known))
    authorized.record_access("inheritance", ["summary"], key=str(task_key))
    handoff = make_handoff(
        authorized.store,
        result,
        settings=visible,
        counter=counter(settings.window.tokens),
        context_length=length,
        language=settings.window.language,
    )
    if session.as_json:
        say_json(_to_object(task_key, result, handoff, max_block_tokens(settings.context_inheritance, length)))
        return
    _print_result(task_key, result, handoff, settings)
    if not authorized.principal.admin and settings.context_inheritance.across_users:
        say_line("A new task may also inherit from a run of another user, which is not shown here.")


def _restrict_to_visible(session: Session, user: str | None) -> tuple[ContextInheritance, str | None]:
    """Restrict the search to runs that the caller may see. A new task may inherit from others as well."""
    settings, principal = session.settings.context_inheritance, session.authorized.principal
    if principal.admin:
        return settings, user
    return msgspec.structs.replace(settings, across_users=False), principal.user


def _to_object(key: TaskKey, result: Search, handoff: Handoff | None, max_tokens: int) -> dict[str, Any]:
    return {
        "task_key": str(key),
        "source": handoff and handoff.uuid,
        "completed_at": handoff and handoff.completed_at,
        "tokens": handoff.tokens if handoff else 0,
        "max_tokens": max_tokens,
        "left_out": handoff.left_out if handoff else (),
        "block": handoff and handoff.text,
        "problem": result.problem,
        "skipped": result.skipped,
    }


def _print_result(key: TaskKey, result: Search, handoff: Handoff | None, settings: Settings) -> None:
    if handoff is not None:
        omitted = f", without {', '.join(handoff.left_out)}" if handoff.left_out else ""
        say_line(f"A new task with {key} would inherit from {handoff.uuid}, which ended {handoff.completed_at[:16]}Z.")
        say(f"{handoff.tokens:,} of {handoff.max_tokens:,} tokens{omitted}:\n\n{handoff.text}")
    else:
        say_line(f"A new task with {key} would inherit nothing: {_explain(result, settings)}")
    if result.skipped:
        say("\nSkipped:")
        for run in result.skipped:
            say_line(f"{run.uuid[:8]}  {run.status:9}  {(run.completed_at or '')[:16]:16}  {run.reason}")


def _explain(result: Search, settings: Settings) -> str:
    if not settings.context_inheritance.enabled:
        return "context_inheritance.enabled is off."
    if result.problem:
        return result.problem
    if result.previous is not None:
        return f"nothing of run {result.previous.short} fits into the tokens that are allowed."
    if result.skipped:
        return "none of its earlier runs can be used."
    return "it has no earlier run."


@store_command(json="One object; `messages` is 0 if there was nothing to summarise.")
@uuid_argument
@click.option("--focus", default="", metavar="TEXT", help="What the summary should concentrate on.")
def compact(session: Session, uuid: str, focus: str) -> None:
    """Summarise the older messages of a task now, which makes its window smaller.

    The model is `context_storage.summariser`, or else that of the task; where it cannot be reached, the summary is
    extracted from the messages. The newest messages stay, nothing is deleted, and the status of the task does not
    change. A task that is in use or has ended is refused.

    \b
    orihon compact 550e8400
    orihon compact 550e8400 --focus "the failing tests"
    orihon compact 550e8400 --json | jq .window_tokens_after
    """
    from orihon.ops.compact import compact as compact_task  # noqa: PLC0415 - it loads the agent

    session.emit(compact_task(session.authorized, session.settings, uuid, focus=focus), _print_compacted)


def _print_compacted(compacted: Compacted) -> None:
    for problem in compacted.problems:
        say_line(f"note     The model's summary was not used: {problem}", err=True)
    if not compacted.messages:
        say_line(f"There is nothing to gain; the window has {compacted.window_tokens_before:,} tokens.")
        return
    say(f"{compacted.summary}\n")
    say_line(
        f"{format_count(compacted.messages, 'message')}, {compacted.original_tokens:,} tokens, are summarised in "
        f"{compacted.summary_tokens:,} by {compacted.summariser}; the newest {compacted.kept:,} stay as they are. "
        f"The window had {compacted.window_tokens_before:,} tokens and has {compacted.window_tokens_after:,}: "
        f"{compacted.saved_tokens:,} are saved."
    )
