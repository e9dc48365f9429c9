"""`orihon backup` and `orihon restore`: back up ended tasks, one generation a day, and bring them back."""

from __future__ import annotations

import os
from pathlib import Path

import click

from orihon.cli._command import StoreSession, store_command
from orihon.cli._format import format_size
from orihon.cli._output import say_line, say_notes, say_problems
from orihon.errors import StoreError
from orihon.ops.backup import BackedUp, Restored
from orihon.ops.backup import backup as back_up_tasks
from orihon.ops.backup import restore as restore_tasks
from orihon.ops.progress import format_count

NICENESS = 10  # a backup only reads, and nobody waits for it


@store_command(json="The figures as one object; `failures` is empty on success.")
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.argument("uuids", metavar="[UUID]...", nargs=-1)
def backup(session: StoreSession, directory: Path, uuids: tuple[str, ...]) -> int:
    """Back up all tasks that have ended, or only some, to DIRECTORY/YYYY-MM-DD.

    A task that has not changed since the last generation is not copied again. Each new file is restored to a temporary
    directory and compared record by record; the others are compared with their checksums. A second backup on the same
    day replaces the first, and `retention.backup_generations` generations are kept. A backup can run while other
    processes work. The exit code is 0, or 3 if a task could not be backed up.

    \b
    orihon backup /mnt/backup/orihon
    orihon backup /mnt/backup/orihon 550e8400
    orihon backup /mnt/backup/orihon --store sqlite:///contexts.db --json
    """
    os.nice(NICENESS)
    done = back_up_tasks(
        session.authorized,
        directory,
        keep=session.settings.retention.backup_generations,
        tasks=uuids,
        on_progress=session.progress.show_counts("{tasks:,} tasks, {records:,} records written, {size}"),
    )
    session.emit(done, _print_backup)
    return StoreError.exit_code if done.failures else 0


def _print_backup(done: BackedUp) -> None:
    say_notes(done.notes)
    say_problems(done.failures)
    say_line(
        f"{done.generation}: {format_count(done.tasks, 'task')}, {format_size(done.size_bytes)}. "
        f"Written, restored and compared: {format_count(done.written, 'task')}, "
        f"{format_count(done.records, 'record')}, {format_size(done.written_bytes)}. "
        f"Unchanged: {format_count(done.unchanged, 'task')}. {done.seconds:.1f} seconds."
    )
    if done.carried:
        say_line(f"As they were in the last generation: {format_count(done.carried, 'task')}.")
    if done.removed:
        say_line(f"Removed: {', '.join(done.removed)}.")


@store_command(json="The figures as one object; `failures` is empty on success.", create=True)
@click.argument("directory", type=click.Path(file_okay=False, exists=True, path_type=Path))
@click.argument("uuids", metavar="[UUID]...", nargs=-1)
@click.option("--generation", metavar="YYYY-MM-DD", help="Restore this generation instead of the newest.")
def restore(session: StoreSession, directory: Path, uuids: tuple[str, ...], generation: str | None) -> int:
    """Restore all tasks of a backup, or only some, and compare each record with the backup.

    The store is created if it does not exist. A task that exists and differs is left unchanged and reported; the exit
    code is then 3. A task of which `orihon clean` has left only a stub gets its records back. A backup of one kind of
    store can be restored to another kind.

    \b
    orihon restore /mnt/backup/orihon 550e8400
    orihon restore /mnt/backup/orihon --generation 2024-01-15
    orihon restore /mnt/backup/orihon --store sqlite:///drill.db --json
    """
    done = restore_tasks(
        directory,
        session.authorized,
        generation=generation,
        tasks=uuids,
        on_progress=session.progress.show_counts("{tasks:,} tasks, {records:,} records"),
    )
    session.emit(done, _print_restore)
    return StoreError.exit_code if done.failures else 0


def _print_restore(done: Restored) -> None:
    say_problems(done.failures)
    say_line(
        f"{done.generation} into {done.store}: {format_count(done.restored, 'task')} restored, "
        f"{done.equal:,} there already, {format_count(done.records, 'record')} compared. "
        f"{done.seconds:.1f} seconds."
    )
