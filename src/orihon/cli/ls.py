"""`orihon ls`: the tasks of a store."""

from __future__ import annotations

import shutil
import sys
from typing import Any, get_args

import click

from orihon.cli.options import canonical, filter_options, json_option, language_option, store_option
from orihon.cli.output import Styled, say_json, say_line
from orihon.cli.people import NONE, duration, language, moment
from orihon.errors import UsageError
from orihon.ops.access import open_authorized_store
from orihon.ops.listing import TaskListing, TaskPage, list_tasks
from orihon.records import Status
from orihon.settings.load import load
from orihon.stores.base import Order, Query
from orihon.task.lifecycle import INTERRUPTED
from orihon.terminal import Language, collapse, measure_width, pad, truncate

HEADS = ("TASK", "STATUS", "KEY", "USER", "WHEN", "DURATION", "CALLS", "TOKENS")
NUMBERS = {"DURATION", "CALLS", "TOKENS"}
SHRINKS = "KEY"
LEAST = 12  # columns that are left of what shrinks
COLOURS = {"running": "green", "paused": "yellow", "failed": "red", "pending": "cyan"}


@click.command()
@filter_options
@click.option("--key", metavar="KEY", help="Only tasks on this, such as github/acme/shop/issue/27.")
@click.option("--retryable", is_flag=True, help="Only failures that `orihon resume` can go on with.")
@click.option("--kept", is_flag=True, help="Only tasks that are never cleaned.")
@click.option(
    "--sort", type=click.Choice(get_args(Order)), default="created", show_default=True, help="The most of it first."
)
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="Tasks on a page.")
@click.option("--page", type=click.IntRange(1), default=1, show_default=True, help="Which page.")
@store_option
@language_option
@json_option('{"tasks": [...], "offset", "has_more"}')
def ls(
    url: str | None,
    lang: str | None,
    *,
    key: str | None,
    sort: Order,
    limit: int,
    page: int,
    retryable: bool,
    kept: bool,
    as_json: bool,
    **filters: Any,
) -> None:
    """List tasks, the newest first: what they work on, how they are, when, how long, and what they used.

    \b
    orihon ls
    orihon ls --status failed --status stopped --from 2024-01-01
    orihon ls --user alice --sort tokens --limit 5
    orihon ls --key github/acme/shop/issue/27
    orihon ls --status failed --retryable
    orihon ls --page 2 --json | jq -r '.tasks[].uuid'
    """
    if retryable:
        filters["status"] = _failed(filters["status"])
    query = Query(
        key=canonical(key),
        reason=INTERRUPTED if retryable else None,
        kept=kept or None,
        order=sort,
        limit=limit,
        offset=(page - 1) * limit,
        **filters,
    )
    with open_authorized_store(load(), url, command="ls") as authorized:
        found = list_tasks(authorized, query)
    if as_json:
        say_json(found)
        return
    print_tasks(found, language(lang))
    if found.has_more:
        say_line(f"More: `orihon ls --page {page + 1}`, with the same options.", err=True)
    elif not found.tasks:
        say_line("There is no such task." if found.offset == 0 else "There are no more tasks.", err=True)


def _failed(status: tuple[Status, ...]) -> tuple[Status, ...]:
    if set(status) - {"failed"}:
        raise UsageError("--retryable chooses among failed tasks.", hint="Leave out the other --status.")
    return ("failed",)


def print_tasks(page: TaskPage, lang: Language) -> None:
    """A table as wide as the terminal."""
    if not page.tasks:
        return
    table = [HEADS, *(_cells(task, lang) for task in page.tasks)]
    widths = [max(measure_width(line[place]) for line in table) for place in range(len(HEADS))]
    shrinking = HEADS.index(SHRINKS)
    if sys.stdout.isatty():
        over = sum(widths) + 2 * (len(widths) - 1) - shutil.get_terminal_size().columns
        widths[shrinking] = max(LEAST, widths[shrinking] - max(0, over))
    for number, line in enumerate(table):
        cells = [
            pad(truncate(cell, width), width, right=head in NUMBERS)
            for head, cell, width in zip(HEADS, line, widths, strict=True)
        ]
        first, status, *others = cells
        colour = COLOURS.get(line[1]) if number else None
        say_line(f"{first}  ", Styled(status, colour), f"  {'  '.join(others)}".rstrip())


def _cells(task: TaskListing, lang: Language) -> tuple[str, ...]:
    return (
        task.uuid[:8],
        task.status,
        collapse(task.task_key),
        collapse(task.user or NONE),
        moment(task.created_at, seconds=False),
        duration(task.seconds, lang),
        f"{task.llm_calls:,}",
        f"{task.tokens:,}",
    )
