"""`orihon ls`, `orihon stats`, and `orihon` alone: the tasks of a store, their figures, and what to do next."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, get_args

import click
import msgspec

from orihon.cli._command import Session, filter_options, language_option, store_command
from orihon.cli._format import NONE, choose_language, format_duration, format_size, format_status, format_time
from orihon.cli._output import Styled, say, say_json, say_line, say_table, truncate
from orihon.cli._translate import translate
from orihon.errors import NotFound, UsageError
from orihon.ops.access import open_authorized_store
from orihon.ops.listing import TaskListing, TaskPage, list_tasks
from orihon.ops.progress import format_count
from orihon.settings.load import load
from orihon.stores.base import Order, Query
from orihon.task.lifecycle import INTERRUPTED
from orihon.terminal import Language, collapse

if TYPE_CHECKING:
    from orihon.ops.stats import Measure, Statistics, User

HEADINGS = ("TASK", "STATUS", "KEY", "USER", "WHEN", "DURATION", "CALLS", "TOKENS")
NUMBERS = {"DURATION", "CALLS", "TOKENS"}
OPTIONAL = ("CALLS", "USER", "DURATION")  # left out first where the terminal is narrow

TITLE = "Context Storage Statistics"
MAX_USERS, MAX_TASKS, MAX_NAME = 10, 10, 40
MAX_DAYS = 60  # in the line of bars
BARS = "▁▂▃▄▅▆▇█"
MEASURES = {
    "failure_rate": "Failure rate",
    "summary_success": "Summary success",
    "retention": "Retention of summaries",
    "compression_ratio": "Compression ratio",
    "bytes_per_month": "Disk per month",
    "duration_growth": "Duration, last 30 days against the 30 before",
    "memory_saved": "Memory saved",
}

ABOUT = "Orihon keeps the whole history of an LLM agent on disk and folds it so that it fits in the model's window."
FIRST_STEPS = {
    "orihon demo": "watch an agent that is killed and resumes, offline",
    "orihon init": "write config.yaml, and try the model",
    'orihon run "Fix the tests"': "work on a task; --model names the model",
    "orihon chat": "talk to a model",
    "orihon import FILE": "import sessions of other agents",
    "orihon config": "show the settings",
}
NEXT_STEPS = {
    "orihon ls": "list the tasks",
    "orihon show UUID": "show one of them",
    "orihon search WORDS": "search all of them",
    'orihon run "Fix the tests"': "work on a new task",
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
    session: Session,
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
        say_line(translate(f"More: `orihon ls --page {page + 1}`, with the same options."), err=True)
    elif not tasks.tasks:
        say_line(translate("There is no such task." if tasks.offset == 0 else "There are no more tasks."), err=True)


def _print_table(page: TaskPage, lang: Language) -> None:
    rows = [
        (
            task.uuid[:8],
            format_status(task),
            collapse(task.task_key),
            collapse(task.user or NONE),
            format_time(task.created_at, seconds=False),
            format_duration(task.seconds, lang),
            f"{task.llm_calls:,}",
            f"{task.tokens:,}",
        )
        for task in page.tasks
    ]
    if rows:
        say_table(HEADINGS, rows, shrink="KEY", numbers=NUMBERS, optional=OPTIONAL)


@store_command(json="One object; `measures` has each figure with its target.")
@click.option("--summary", is_flag=True, help="Only the figures, even with a filter.")
@filter_options
@click.option("--disk", is_flag=True, help="Measure the files on disk instead of adding up the sizes of the records.")
@language_option
def stats(session: Session, lang: str | None, *, summary: bool, disk: bool, **filters: Any) -> None:
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
        usage = measure_disk(session.authorized, query, on_progress=session.show_progress("measuring"))
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
    by_status = {"running": 0, "completed": 0} | statistics.by_status
    lines = [
        f"{TITLE}\n{'=' * len(TITLE)}\n",
        f"Total contexts: {statistics.tasks:,}",
        *(f"  - {name.capitalize()}: {count:,}" for name, count in by_status.items()),
        "\nDisk usage:",
        f"  - Running: {format_size(statistics.active_bytes)}",
        f"  - Completed: {format_size(statistics.ended_bytes)}{after}",
        "\nAverage per task:",
        f"  - Messages: {_format_number(statistics.average_messages)}",
        f"  - Tokens: {_format_number(statistics.average_tokens)}",
        f"  - Duration: {format_duration(statistics.average_seconds, lang)}",
        f"  - Compressions: {_format_number(statistics.average_compressions, '.1f')}",
        "\nBy user:",
        *_format_users(statistics.users, lang),
        "\nTargets:",
    ]
    say("\n".join(lines))
    for measure in statistics.measures:
        say_line(*_format_measure(measure))
    if statistics.days and sys.stdout.isatty():
        say(_format_days(statistics.days))


def _format_users(users: list[User], lang: Language) -> Iterator[str]:
    for user in users[:MAX_USERS]:
        name = truncate(collapse(user.user) or "(no user)", MAX_NAME)
        usage = f"{user.tokens:,} tokens, {format_duration(user.average_seconds, lang)} each"
        yield f"  - {name}: {format_count(user.tasks, 'task')} ({user.share:.0%}), {usage}"
    if others := users[MAX_USERS:]:
        tasks = sum(user.tasks for user in others)
        yield f"  - {format_count(len(others), 'other')}: {format_count(tasks, 'task')}"


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
    return f"{start}, ", Styled("met", "green") if measure.is_met else Styled("missed", "red"), ")"


def _format_days(days: dict[str, int]) -> str:
    """Return one bar per day."""
    newest = dict(list(days.items())[-MAX_DAYS:])
    most = max(newest.values())
    bars = "".join(BARS[min(len(BARS) - 1, count * len(BARS) // (most + 1))] for count in newest.values())
    return f"\nTasks per day, {next(iter(newest))} to {next(reversed(newest))}, {most:,} at most:\n  {bars}"


def _format_number(value: float | None, form: str = ",.0f") -> str:
    return NONE if value is None else format(value, form)


# `orihon` alone


def print_next_steps() -> None:
    """Print what is in the store, and what to do next."""
    settings = load()
    url = settings.store_url
    try:
        with open_authorized_store(settings, url, command="orihon") as authorized:
            counts = Counter({status: sums.tasks for status, sums in authorized.totals(Query(), "status").items()})
            newest = list_tasks(authorized, Query(status=("running", "paused"), limit=MAX_TASKS)).tasks
    except NotFound:
        say(f"{translate(ABOUT)}\n\n{translate(f'There is no store at {url} yet. To begin:')}\n")
        _print_steps(FIRST_STEPS)
        return
    interrupted = [task for task in newest if task.interrupted]
    paused = [task for task in newest if task.status == "paused"]
    counts["running"] -= len(interrupted)
    counts["interrupted"] = len(interrupted)
    listed = ", ".join(f"{count:,} {status}" for status, count in sorted(counts.items()) if count > 0)
    say(f"{url}: {listed or 'no tasks'}.\n")
    steps = {_resume_command(task): "continue a task whose process is gone" for task in interrupted[:1]}
    steps |= {_resume_command(task): "continue a paused task" for task in paused[:1]}
    _print_steps((steps | NEXT_STEPS) if newest or counts.total() else FIRST_STEPS)


def _resume_command(task: TaskListing) -> str:
    is_conversation = "/conversation/" in task.task_key
    return f"orihon {'chat --resume' if is_conversation else 'resume'} {task.uuid[:8]}"


def _print_steps(steps: dict[str, str]) -> None:
    for command, purpose in steps.items():
        say_line("  ", Styled(f"{command:28}", "bold"), f" {translate(purpose)}")
    say(f"\n{translate('`orihon --help` lists all commands.')}")
