"""`orihon similar`: tasks like this one."""

from __future__ import annotations

import shutil

import click

from orihon.cli.options import json_option, store_option, uuid_argument
from orihon.cli.output import say_json, say_line
from orihon.cli.people import NONE, moment
from orihon.cli.progress import Progress
from orihon.ops.access import open_authorized_store
from orihon.ops.progress import ProgressCounter
from orihon.ops.similar import Similar, find_similar
from orihon.settings.load import load
from orihon.terminal import collapse, truncate


@click.command()
@uuid_argument
@click.option("--limit", type=click.IntRange(1, 1000), default=10, show_default=True, help="Tasks at most.")
@store_option
@json_option('A list of {"task": {...}, "score", "shared"}, the most similar first.')
def similar(uuid: str, limit: int, url: str | None, *, as_json: bool) -> None:
    """Find tasks like this one, by what was asked, done and learned; the words that they share are named.

    \b
    orihon similar 550e8400
    orihon similar 550e8400 --limit 3 --json | jq -r '.[].task.uuid'
    """
    with open_authorized_store(load(), url, command="similar") as authorized, Progress() as progress:

        def on_progress(counter: ProgressCounter) -> None:
            progress.show(f"{counter.tasks:,} tasks compared")

        found = find_similar(authorized, uuid, limit, on_progress=on_progress)
    if as_json:
        say_json(found)
        return
    for one in found:
        say_line(truncate(_line(one), shutil.get_terminal_size().columns))
    if not found:
        say_line("There is no task like it.", err=True)


def _line(one: Similar) -> str:
    task = one.task
    user = collapse(task.user or NONE)
    about = (
        f"{task.uuid[:8]}  {task.status:9}  {collapse(task.task_key)}  {user}  {moment(task.created_at, seconds=False)}"
    )
    return f"{one.score:.2f}  {about}  {collapse(', '.join(one.shared))}"
