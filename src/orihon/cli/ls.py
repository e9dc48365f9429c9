"""`orihon ls` and `orihon stats`: list the tasks of a store, and count them."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING, Any, get_args

import click
import msgspec

from orihon.cli._command import StoreSession, filter_options, language_option, store_command
from orihon.cli._format import NONE, choose_language, format_duration, format_size, format_time
from orihon.cli._output import Styled, say, say_json, say_line
from orihon.errors import UsageError
from orihon.ops.listing import TaskListing, TaskPage, list_tasks
from orihon.ops.progress import format_count
from orihon.stores.base import Order, Query
from orihon.task.lifecycle import INTERRUPTED
from orihon.terminal import Language, collapse, measure_width, pad, truncate

if TYPE_CHECKING:
    from orihon.ops.stats import Measure, Statistics

HEADINGS = ("TASK", "STATUS", "KEY", "USER", "WHEN", "DURATION", "CALLS", "TOKENS")
NUMBERS = {"DURATION", "CALLS", "TOKENS"}
SHRINKING = HEADINGS.index("KEY")
MIN_WIDTH = 12  # of the column that shrinks
COLOURS = {"running": "green", "paused": "yellow", "failed": "red", "pending": "cyan"}

TITLE = "Context Storage Statistics"
MAX_USERS, MAX_TASKS = 10, 10
MAX_DAYS = 60  # in the line of bars
BAR_WIDTH = 20
BARS = "▁▂▃▄▅▆▇█"
MEASURES = {
    "failure_rate": "Failure rate",
    "summary_success": "Summary success",
    "compression_ratio": "Compression ratio",
    "bytes_per_month": "Disk per month",
    "duration_growth": "Duration, last 30 days against the 30 before",
    "memory_saved": "Memory saved",
}


@store_command(json='{"tasks": [...], "offset", "has_more"}')
@filter_options
@click.option("--retryable", is_flag=True, help="Only failed tasks that `orihon resume` can continue.")
@click.option("--kept", is_flag=True, help="Only tasks that are kept.")
@click.option("--sort", type=click.Choice(get_args(Order)), default="created", show_default=True, help="Largest first.")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="Tasks per page.")
@click.option("--page", type=click.IntRange(1), default=1, show_default=True, help="Page to show.")
@language_option
def ls(
    session: StoreSession,
    lang: str | None,
    *,
    sort: Order,
    limit: int,
    page: int,
    retryable: bool,
    kept: bool,
    **filters: Any,
) -> None:
    """List tasks, newest first, with key, status, user, time, duration and usage.

    \b
    orihon ls
    orihon ls --status failed --status stopped --from 2024-01-01
    orihon ls --user alice --sort tokens --limit 5
    orihon ls --key github/acme/shop/issue/27
    orihon ls --status failed --retryable
    orihon ls --page 2 --json | jq -r '.tasks[].uuid'
    """
    if retryable:
        if set(filters["status"]) - {"failed"}:
            raise UsageError("--retryable selects failed tasks only.", hint="Leave out the other --status.")
        filters |= {"status": ("failed",), "reason": INTERRUPTED}
    query = Query(kept=kept or None, order=sort, limit=limit, offset=(page - 1) * limit, **filters)
    tasks = list_tasks(session.authorized, query)
    if session.as_json:
        say_json(tasks)
        return
    _print_table(tasks, choose_language(lang))
    if tasks.has_more:
        say_line(f"More: `orihon ls --page {page + 1}`, with the same options.", err=True)
    elif not tasks.tasks:
        say_line("There is no such task." if tasks.offset == 0 else "There are no more tasks.", err=True)


def _print_table(page: TaskPage, lang: Language) -> None:
    """Print a table that fits the terminal."""
    if not page.tasks:
        return
    table = [HEADINGS, *(_list_cells(task, lang) for task in page.tasks)]
    widths = [max(map(measure_width, column)) for column in zip(*table, strict=True)]
    if sys.stdout.isatty():
        excess = sum(widths) + 2 * (len(widths) - 1) - shutil.get_terminal_size().columns
        widths[SHRINKING] = max(MIN_WIDTH, widths[SHRINKING] - max(0, excess))
    for number, line in enumerate(table):
        cells = [
            pad(truncate(cell, width), width, right=heading in NUMBERS)
            for heading, cell, width in zip(HEADINGS, line, widths, strict=True)
        ]
        uuid, status, *others = cells
        colour = COLOURS.get(line[1]) if number else None
        say_line(f"{uuid}  ", Styled(status, colour), f"  {'  '.join(others)}".rstrip())


def _list_cells(task: TaskListing, lang: Language) -> tuple[str, ...]:
    return (
        task.uuid[:8],
        task.status,
        collapse(task.task_key),
        collapse(task.user or NONE),
        format_time(task.created_at, seconds=False),
        format_duration(task.seconds, lang),
        f"{task.llm_calls:,}",
        f"{task.tokens:,}",
    )


@store_command(json="One object; `measures` has each figure with its target.")
@click.option("--summary", is_flag=True, help="Only the figures, even with a filter.")
@filter_options
@click.option("--disk", is_flag=True, help="Measure the files on disk instead of adding up the sizes of the records.")
@language_option
def stats(session: StoreSession, lang: str | None, *, summary: bool, disk: bool, **filters: Any) -> None:
    """Count tasks, disk, tokens and time, in total and by user, and compare them with their targets.

    With a filter, the newest of the selected tasks are listed as well.

    \b
    orihon stats --summary
    orihon stats --user alice
    orihon stats --from 2024-01-01 --to 2024-01-31
    orihon stats --status failed
    orihon stats --summary --disk
    orihon stats --json | jq '.measures[] | select(.is_met == false)'
    """
    from orihon.ops.stats import compute_statistics, measure_disk  # noqa: PLC0415 - `ls` does not need it

    query = Query(**filters)
    statistics = compute_statistics(session.authorized, query)
    if disk:
        on_progress = session.progress.show_counts("{tasks:,} tasks, {size}")
        usage = measure_disk(session.authorized, query, on_progress=on_progress)
        statistics = msgspec.structs.replace(
            statistics,
            active_bytes=usage.active_bytes,
            ended_bytes=usage.ended_bytes,
            ended_packed_bytes=usage.ended_bytes,
        )
    session.emit(statistics, lambda statistics: _print_statistics(statistics, choose_language(lang)))
    if not session.as_json and not summary and query != Query():
        newest = list_tasks(session.authorized, msgspec.structs.replace(query, limit=MAX_TASKS))
        say("\nTasks:")
        _print_table(newest, choose_language(lang))


def _print_statistics(statistics: Statistics, lang: Language) -> None:
    packed = statistics.ended_packed_bytes
    after = f" ({format_size(packed)} after compression)" if packed != statistics.ended_bytes else ""
    say(f"{TITLE}\n{'=' * len(TITLE)}\n")
    say_line(f"Total contexts: {statistics.tasks:,}")
    for name, count in ({"running": 0, "completed": 0} | statistics.by_status).items():
        say_line(f"  - {name.capitalize()}: {count:,}")
    say(f"\nDisk usage:\n  - Running: {format_size(statistics.active_bytes)}")
    say_line(f"  - Completed: {format_size(statistics.ended_bytes)}{after}")
    say("\nAverage per task:")
    say_line(f"  - Messages: {_format_number(statistics.average_messages)}")
    say_line(f"  - Tokens: {_format_number(statistics.average_tokens)}")
    say_line(f"  - Duration: {format_duration(statistics.average_seconds, lang)}")
    say_line(f"  - Compressions: {_format_number(statistics.average_compressions, '.1f')}")
    _print_users(statistics, lang)
    say("\nTargets:")
    for measure in statistics.measures:
        say_line(*_format_measure(measure))
    _print_days(statistics.days)


def _print_users(statistics: Statistics, lang: Language) -> None:
    say("\nBy user:")
    users, others = statistics.users[:MAX_USERS], statistics.users[MAX_USERS:]
    width = max((measure_width(collapse(user.user)) for user in users), default=0)
    for user in users:
        name = truncate(collapse(user.user) or "(nobody)", 40)
        if sys.stdout.isatty():
            name = f"{pad(name, width)}: {'█' * round(user.share * BAR_WIDTH):{BAR_WIDTH}} "
        else:
            name += ":"
        usage = f"{user.tokens:,} tokens, {format_duration(user.average_seconds, lang)} each"
        say_line(f"  - {name} {format_count(user.tasks, 'task')} ({user.share:.0%}), {usage}")
    if others:
        tasks = sum(user.tasks for user in others)
        say_line(f"  - {format_count(len(others), 'other')}: {format_count(tasks, 'task')}")


def _format_measure(measure: Measure) -> tuple[str | Styled, ...]:
    if measure.name == "memory_saved":
        value = "measured in docs/benchmarks.md"
    elif measure.value is None:
        value = NONE
    elif measure.name == "bytes_per_month":
        value = format_size(measure.value)
    else:
        value = f"{measure.value:{'+' if measure.name == 'duration_growth' else ''}.1%}"
    start = f"  - {MEASURES[measure.name]}: {value} (target {measure.target}"
    if measure.is_met is None:
        return (f"{start})",)
    return f"{start}, ", "met" if measure.is_met else Styled("missed", "red"), ")"


def _print_days(days: dict[str, int]) -> None:
    """Print one bar per day, on a terminal only."""
    if not days or not sys.stdout.isatty():
        return
    newest = dict(list(days.items())[-MAX_DAYS:])
    most = max(newest.values())
    line = "".join(BARS[min(len(BARS) - 1, count * len(BARS) // (most + 1))] for count in newest.values())
    say(f"\nTasks per day, {next(iter(newest))} to {next(reversed(newest))}, {most:,} at most:\n  {line}")


def _format_number(value: float | None, form: str = ",.0f") -> str:
    return NONE if value is None else format(value, form)
