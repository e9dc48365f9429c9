"""`orihon search` and `orihon similar`: full-text search over all tasks, and tasks that resemble another."""

from __future__ import annotations

from typing import Any

import click

from orihon.cli._command import Session, filter_options, store_command, uuid_argument
from orihon.cli._format import NONE, format_status, format_time
from orihon.cli._output import say_line, say_table
from orihon.ops.listing import Similar, find_similar
from orihon.ops.progress import format_count
from orihon.ops.search import SearchQuery, SearchResult
from orihon.ops.search import search as search_tasks
from orihon.terminal import collapse


@store_command(json='One {"uuid", "score", "count", "places", …} per line.')
@click.argument("text", nargs=-1, required=True)
@filter_options
@click.option("--limit", type=click.IntRange(1, 1000), default=10, show_default=True, help="Maximum number of tasks.")
@click.option("--rebuild", is_flag=True, help="Rebuild the index.")
def search(session: Session, text: tuple[str, ...], *, limit: int, rebuild: bool, **filters: Any) -> None:
    """Search the messages, summaries and tool calls of all tasks for words, best match first.

    All words must occur in one message. "Quoted words" must be adjacent, and `begin*` matches words with that prefix.
    Text without spaces, such as Japanese, is found by any part of a word. New records are indexed first, which takes a
    while the first time.

    \b
    orihon search rounding error
    orihon search '"max retries"' --status failed --from 2024-01-01
    orihon search 設定 --user alice --limit 3
    orihon search 'basket*' --json | jq -r .uuid
    """
    results = search_tasks(
        session.authorized,
        SearchQuery(text=" ".join(text), limit=limit, **filters),
        rebuild=rebuild,
        on_progress=session.show_progress("indexing new records"),
    )
    for result in results:
        session.emit(result, _print_result)
    if not results and not session.as_json:
        session.clear()
        say_line("Nothing was found.")


def _print_result(result: SearchResult) -> None:
    about = f"{result.uuid}  {result.status:9}  {result.task_key}  {result.user or NONE}  {result.created_at[:10]}"
    say_line(f"{about}  {format_count(result.count, 'place')}")
    for place in result.places:
        say_line(f"    {place.kind} {place.number}: {place.snippet}")


@store_command(json='A list of {"task": {...}, "score", "shared"}, the most similar first.')
@uuid_argument
@click.option("--limit", type=click.IntRange(1, 1000), default=10, show_default=True, help="Maximum number of tasks.")
def similar(session: Session, uuid: str, limit: int) -> None:
    """Find tasks that resemble this one in request, work and lessons, and show the words that they share.

    \b
    orihon similar 550e8400
    orihon similar 550e8400 --limit 3 --json | jq -r '.[].task.uuid'
    """
    on_progress = session.show_progress("comparing")
    results = find_similar(session.authorized, uuid, limit, on_progress=on_progress)
    session.emit(results, _print_similar)


def _print_similar(results: list[Similar]) -> None:
    if not results:
        say_line("There is no task like it.", err=True)
        return
    rows = [
        (
            f"{result.score:.2f}",
            result.task.uuid[:8],
            format_status(result.task),
            collapse(result.task.task_key),
            collapse(result.task.user or NONE),
            format_time(result.task.created_at, seconds=False),
            collapse(", ".join(result.shared)),
        )
        for result in results
    ]
    say_table(
        ("SCORE", "TASK", "STATUS", "KEY", "USER", "WHEN", "SHARED"), rows, shrink="SHARED", optional=("USER", "WHEN")
    )
