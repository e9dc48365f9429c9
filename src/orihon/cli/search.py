"""`orihon search`: full text over all tasks."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from typing import get_args

import click

from orihon.cli.output import say_json, say_line
from orihon.cli.progress import Progress, amount
from orihon.errors import UsageError
from orihon.ops.access import open_authorized_store
from orihon.ops.progress import ProgressCounter, format_count
from orihon.ops.search import SearchQuery, SearchResult
from orihon.ops.search import search as find
from orihon.records import Status
from orihon.settings.load import load
from orihon.task_key import TaskKey

STATUSES = get_args(Status)


@click.command()
@click.argument("text", nargs=-1, required=True)
@click.option("--user", help="Only tasks of this user.")
@click.option("--status", multiple=True, type=click.Choice(STATUSES), help="Only tasks in this state. Repeatable.")
@click.option("--key", help="Only tasks on this, such as github/acme/shop/issue/27.")
@click.option("--from", "since", metavar="DATE", help="Only tasks made on this day or later.")
@click.option("--to", "until", metavar="DATE", help="Only tasks made on this day or earlier.")
@click.option("--limit", type=click.IntRange(1, 1000), default=10, show_default=True, help="So many tasks at most.")
@click.option("--rebuild", is_flag=True, help="Make the index anew.")
@click.option("--store", help="The store to look in instead of that of the settings.")
@click.option("--json", "as_json", is_flag=True, help='One {"uuid", "score", "count", "places", …} per line.')
def search(
    text: tuple[str, ...],
    *,
    user: str | None,
    status: tuple[Status, ...],
    key: str | None,
    since: str | None,
    until: str | None,
    limit: int,
    rebuild: bool,
    store: str | None,
    as_json: bool,
) -> None:
    """Look for words in the messages, summaries and tool calls of all tasks, the best first.

    All words must occur in one message. "Quoted words" stand together, and `begin*` finds what begins so. Japanese
    and its like are found by any part of a word. What is new is read first, which takes a while the first time.

    \b
    orihon search rounding error
    orihon search '"max retries"' --status failed --from 2024-01-01
    orihon search 設定 --user alice --limit 3
    orihon search 'basket*' --json | jq -r .uuid
    """
    wanted = SearchQuery(
        text=" ".join(text),
        user=user,
        status=status,
        key=str(TaskKey.parse(key)) if key else None,
        created_from=_moment(since, time.min),
        created_to=_moment(until, time.max),
        limit=limit,
    )
    with open_authorized_store(load(), store, command="search") as authorized, Progress() as progress:

        def on_progress(counter: ProgressCounter) -> None:
            progress.show(f"reading what is new: {counter.tasks:,} tasks, {amount(counter.size_bytes)}")

        found = find(authorized, wanted, rebuild=rebuild, on_progress=on_progress)
    for one in found:
        if as_json:
            say_json(one)
        else:
            _print(one)
    if not found and not as_json:
        say_line("Nothing was found.")


def _print(one: SearchResult) -> None:
    head = f"{one.uuid}  {one.status:9}  {one.task_key}  {one.user or '-'}  {one.created_at[:10]}"
    say_line(f"{head}  {format_count(one.count, 'place')}")
    for place in one.places:
        say_line(f"    {place.kind} {place.number}: {place.snippet}")


def _moment(text: str | None, edge: time) -> str | None:
    """A day, or a moment, of the clock on the wall, in the form that is stored."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
        if len(text) <= len("2024-01-15"):
            moment = datetime.combine(date.fromisoformat(text), edge)
    except ValueError:
        raise UsageError(f"{text!a} is not a date.", hint="Write it as 2024-01-15.") from None
    return moment.astimezone(UTC).isoformat(timespec="microseconds")[:-6] + "Z"
