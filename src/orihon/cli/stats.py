"""`orihon stats`: what the tasks of a store add up to."""

from __future__ import annotations

import sys
from typing import Any

import click
import msgspec

from orihon.cli.ls import print_tasks
from orihon.cli.options import canonical, filter_options, json_option, language_option, store_option
from orihon.cli.output import Styled, say, say_json, say_line
from orihon.cli.people import duration, language
from orihon.cli.progress import Progress, amount
from orihon.ops.access import AuthorizedStore, open_authorized_store
from orihon.ops.listing import list_tasks
from orihon.ops.progress import ProgressCounter, format_count
from orihon.ops.stats import Measure, Statistics, compute_statistics, measure_disk
from orihon.settings.load import load
from orihon.stores.base import Query
from orihon.terminal import Language, collapse, measure_width, pad, truncate

TITLE = "Context Storage Statistics"
USERS, NEWEST = 10, 10
DAYS = 60  # that a line of bars shows
BAR = 20
BARS = "▁▂▃▄▅▆▇█"
NAMES = {
    "failure_rate": "Failure rate",
    "summary_success": "Summary success",
    "compression_ratio": "Compression ratio",
    "bytes_per_month": "Disk per month",
    "duration_growth": "Duration, last 30 days against the 30 before",
    "memory_saved": "Memory saved",
}
ELSEWHERE = "measured in docs/benchmarks.md"


@click.command()
@click.option("--summary", is_flag=True, help="Only the figures, also where a filter would list tasks.")
@filter_options
@click.option("--key", metavar="KEY", help="Only tasks on this, such as github/acme/shop/issue/27.")
@click.option("--disk", is_flag=True, help="Measure what the files take now; without it the records are counted.")
@store_option
@language_option
@json_option("One object; `measures` has each figure with its target.")
def stats(
    url: str | None,
    lang: str | None,
    key: str | None,
    *,
    summary: bool,
    disk: bool,
    as_json: bool,
    **filters: Any,
) -> None:
    """Count tasks, disk, tokens and time, by user and in all, each beside its target.

    With a filter, the newest of the tasks that it lets through are listed as well.

    \b
    orihon stats --summary
    orihon stats --user alice
    orihon stats --from 2024-01-01 --to 2024-01-31
    orihon stats --status failed
    orihon stats --summary --disk
    orihon stats --json | jq '.measures[] | select(.is_met == false)'
    """
    query = Query(key=canonical(key), **filters)
    with open_authorized_store(load(), url, command="stats") as authorized:
        found = compute_statistics(authorized, query)
        if disk:
            found = _with_disk(found, authorized, query)
        if as_json:
            say_json(found)
            return
        _print(found, language(lang))
        if not summary and query != Query():
            page = list_tasks(authorized, msgspec.structs.replace(query, limit=NEWEST))
            say("\nTasks:")
            print_tasks(page, language(lang))


def _with_disk(found: Statistics, authorized: AuthorizedStore, query: Query) -> Statistics:
    with Progress() as progress:

        def on_progress(counter: ProgressCounter) -> None:
            progress.show(f"{counter.tasks:,} tasks, {amount(counter.size_bytes)}")

        disk = measure_disk(authorized, query, on_progress=on_progress)
    return msgspec.structs.replace(
        found, active_bytes=disk.active_bytes, ended_bytes=disk.ended_bytes, ended_packed_bytes=disk.ended_bytes
    )


def _print(found: Statistics, lang: Language) -> None:
    status = {"running": 0, "completed": 0} | found.by_status
    packed = found.ended_packed_bytes
    after = f" ({amount(packed)} after compression)" if packed != found.ended_bytes else ""
    say(f"{TITLE}\n{'=' * len(TITLE)}\n")
    say_line(f"Total contexts: {found.tasks:,}")
    for name, count in status.items():
        say_line(f"  - {name.capitalize()}: {count:,}")
    say(f"\nDisk usage:\n  - Running: {amount(found.active_bytes)}")
    say_line(f"  - Completed: {amount(found.ended_bytes)}{after}")
    say("\nAverage per task:")
    say_line(f"  - Messages: {_number(found.average_messages)}")
    say_line(f"  - Tokens: {_number(found.average_tokens)}")
    say_line(f"  - Duration: {duration(found.average_seconds, lang)}")
    say_line(f"  - Compressions: {_number(found.average_compressions, '.1f')}")
    _print_users(found, lang)
    say("\nTargets:")
    for measure in found.measures:
        say_line(*_target(measure))
    _print_days(found.days)


def _print_users(found: Statistics, lang: Language) -> None:
    say("\nBy user:")
    width = max((measure_width(collapse(user.user)) for user in found.users[:USERS]), default=0)
    for user in found.users[:USERS]:
        name = truncate(collapse(user.user) or "(nobody)", 40)
        bar = f"{'█' * round(user.share * BAR):{BAR}}  " if sys.stdout.isatty() else ""
        start = f"  - {pad(name, width) if bar else name}: {bar}"
        each = f"{user.tokens:,} tokens, {duration(user.average_seconds, lang)} each"
        say_line(f"{start}{format_count(user.tasks, 'task')} ({user.share:.0%}), {each}")
    if others := found.users[USERS:]:
        say_line(
            f"  - {format_count(len(others), 'other')}: {format_count(sum(user.tasks for user in others), 'task')}"
        )


def _target(measure: Measure) -> tuple[str | Styled, ...]:
    if measure.name == "memory_saved":
        shown = ELSEWHERE
    elif measure.value is None:
        shown = "-"
    elif measure.name == "bytes_per_month":
        shown = amount(measure.value)
    else:
        shown = f"{measure.value:{'+' if measure.name == 'duration_growth' else ''}.1%}"
    told = f"  - {NAMES[measure.name]}: {shown} (target {measure.target}"
    if measure.is_met is None:
        return (f"{told})",)
    return f"{told}, ", "met" if measure.is_met else Styled("missed", "red"), ")"


def _print_days(days: dict[str, int]) -> None:
    """One bar for each day, on a terminal."""
    if not days or not sys.stdout.isatty():
        return
    shown = dict(list(days.items())[-DAYS:])
    most = max(shown.values())
    line = "".join(BARS[min(len(BARS) - 1, count * len(BARS) // (most + 1))] for count in shown.values())
    say(f"\nTasks per day, {next(iter(shown))} to {next(reversed(shown))}, {most:,} at most:\n  {line}")


def _number(value: float | None, form: str = ",.0f") -> str:
    return "-" if value is None else format(value, form)
