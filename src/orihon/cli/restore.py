"""`orihon restore`: tasks from a backup into a store."""

from __future__ import annotations

from pathlib import Path

import click

from orihon.cli.options import json_option
from orihon.cli.output import say_json, say_line
from orihon.cli.progress import Progress
from orihon.errors import StoreError, UsageError
from orihon.ops.access import open_authorized_store
from orihon.ops.backup import restore as bring_back
from orihon.ops.progress import ProgressCounter, format_count
from orihon.settings.load import load


@click.command()
@click.argument("directory", type=click.Path(file_okay=False, exists=True, path_type=Path))
@click.argument("uuids", metavar="[UUID]...", nargs=-1)
@click.option("--generation", metavar="YYYY-MM-DD", help="That of this day instead of the newest.")
@click.option("--store", "url", metavar="URL", help="Into this store, which is made if it is not there.")
@json_option("The figures as one object; `failures` is empty when all went well.")
@click.pass_context
def restore(
    context: click.Context,
    directory: Path,
    uuids: tuple[str, ...],
    generation: str | None,
    url: str | None,
    *,
    as_json: bool,
) -> None:
    """Bring tasks back from a backup, all or some, and compare each record with the backup.

    A task that is there and differs is left as it is, and named; the exit code is then 3. A task that was cleaned, and
    of which only a stub is left, gets its records back. A backup of one kind of store can be restored into another.

    \b
    orihon restore /mnt/backup/orihon 550e8400
    orihon restore /mnt/backup/orihon --generation 2024-01-15
    orihon restore /mnt/backup/orihon --store sqlite:///drill.db --json
    """
    settings = load()
    url = url or settings.store_url
    if url == "memory:":
        raise UsageError("A store in memory ends with this command.", hint="Give a directory or sqlite:///FILE.")
    with open_authorized_store(settings, url, command="restore", create=True) as authorized, Progress() as progress:

        def on_progress(counter: ProgressCounter) -> None:
            progress.show(f"{format_count(counter.tasks, 'task')}, {format_count(counter.records, 'record')}")

        done = bring_back(directory, authorized, generation=generation, tasks=uuids, on_progress=on_progress)
    if as_json:
        say_json(done)
    else:
        for sentence in done.failures:
            say_line(f"problem  {sentence}", err=True)
        say_line(
            f"{done.generation} into {done.store}: {format_count(done.restored, 'task')} restored, "
            f"{done.equal:,} there already, {format_count(done.records, 'record')} compared. "
            f"{done.seconds:.1f} seconds."
        )
    context.exit(StoreError.exit_code if done.failures else 0)
