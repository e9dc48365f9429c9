"""`orihon backup`: the ended tasks of a store, one generation a day."""

from __future__ import annotations

import os
from pathlib import Path

import click

from orihon.cli.options import json_option, store_option
from orihon.cli.output import say_json, say_line
from orihon.cli.progress import Progress, amount
from orihon.errors import StoreError
from orihon.ops.access import open_authorized_store
from orihon.ops.backup import BackedUp
from orihon.ops.backup import backup as back_up
from orihon.ops.progress import ProgressCounter, format_count
from orihon.settings.load import load

NICE = 10  # it only reads, so nobody ever waits for it


@click.command()
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.argument("uuids", metavar="[UUID]...", nargs=-1)
@store_option
@json_option("The figures as one object; `failures` is empty when all went well.")
@click.pass_context
def backup(context: click.Context, directory: Path, uuids: tuple[str, ...], url: str | None, *, as_json: bool) -> None:
    """Back up all tasks that have ended, or only some, to DIRECTORY/YYYY-MM-DD.

    A task that has not changed since the last generation is not copied again. Each new file is restored into a
    temporary place and compared record by record; the others are compared with their checksums. The generation of a
    day takes the place of an earlier one of that day, and `retention.backup_generations` of them are kept. It can run
    while others work. The exit code is 0, or 3 when a task could not be backed up.

    \b
    orihon backup /mnt/backup/orihon
    orihon backup /mnt/backup/orihon 550e8400
    orihon backup /mnt/backup/orihon --store sqlite:///contexts.db --json
    """
    settings = load()
    os.nice(NICE)
    with open_authorized_store(settings, url, command="backup") as authorized, Progress() as progress:

        def on_progress(counter: ProgressCounter) -> None:
            progress.show(f"{counter.tasks:,} tasks, {counter.records:,} records written, {amount(counter.size_bytes)}")

        done = back_up(
            authorized, directory, keep=settings.retention.backup_generations, tasks=uuids, on_progress=on_progress
        )
    if as_json:
        say_json(done)
    else:
        _print(done)
    context.exit(StoreError.exit_code if done.failures else 0)


def _print(done: BackedUp) -> None:
    for sentence in done.notes:
        say_line(f"note     {sentence}", err=True)
    for sentence in done.failures:
        say_line(f"problem  {sentence}", err=True)
    say_line(
        f"{done.generation}: {format_count(done.tasks, 'task')}, {amount(done.size_bytes)}. "
        f"Written, restored and compared: {format_count(done.written, 'task')}, "
        f"{format_count(done.records, 'record')}, "
        f"{amount(done.written_bytes)}. Unchanged: {format_count(done.unchanged, 'task')}. {done.seconds:.1f} seconds."
    )
    if done.carried:
        say_line(f"As they were in the last generation: {format_count(done.carried, 'task')}.")
    if done.removed:
        say_line(f"Removed: {', '.join(done.removed)}.")
