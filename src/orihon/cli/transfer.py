"""`orihon copy`, `backup`, `restore` and `migrate`: bring tasks to another store, and stores to a new version."""

from __future__ import annotations

import os
from pathlib import Path

import click

from orihon.cli._command import Session, complete_uuid, optional_uuids_argument, refuse_memory, store_command
from orihon.cli._format import format_size
from orihon.cli._output import say_json, say_line, say_notes, say_problems
from orihon.errors import Conflict, StoreError, UsageError
from orihon.ops.access import AccessGate
from orihon.ops.backup import BackedUp, Restored
from orihon.ops.backup import backup as back_up_tasks
from orihon.ops.backup import restore as restore_tasks
from orihon.ops.copy import Copied, copy_tasks
from orihon.ops.progress import format_count
from orihon.stores import is_postgres, open_store, require_psycopg, require_store, store_options

NICENESS = 10  # a backup is not urgent


@store_command(json="The figures as one object; `failures` is empty if all tasks are equal.", store_option=False)
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.option(
    "--task",
    "tasks",
    multiple=True,
    metavar="UUID",
    shell_complete=complete_uuid,
    help="Only this task (a prefix suffices). Repeatable.",
)
def copy(session: Session, source: str, target: str, tasks: tuple[str, ...]) -> int:
    """Copy tasks from one store to another, then read every record of both and compare.

    Other tasks of the target are left alone. A second run continues where the first stopped. A record that differs is
    reported and not changed; the other tasks are copied, and the exit code is 3.

    \b
    orihon copy logs/contexts sqlite:///contexts.db
    orihon copy logs/contexts postgresql://orihon@db.example.com/orihon
    orihon copy sqlite:///contexts.db logs/again --task 0f8fad5b --task 7c9e6679
    orihon copy logs/contexts /mnt/usb/contexts --json | jq .records
    """
    gate = AccessGate(session.settings, source, command="copy")
    gate.require_admin("copy a store")
    require_store(source)
    refuse_memory(target)
    gate.record_access("copy", ["everything"], to=target, **({"tasks": list(tasks)} if tasks else {}))
    options = store_options(session.settings)
    with open_store(source, options) as origin, open_store(target, options) as goal:
        copied = copy_tasks(origin, goal, tasks=tasks, on_progress=session.show_progress("copying"))
    session.emit(copied, _print_copied)
    return Conflict.exit_code if copied.failures or copied.broken else 0


def _print_copied(copied: Copied) -> None:
    for note in copied.notes:
        say_line(f"note     {note}")
    say_problems(copied.failures)
    if copied.changed:
        say_line(f"note     {format_count(copied.changed, 'record')} had to be cleaned or masked on the way.")
    say_line(
        f"Equal in both stores, compared one by one: {format_count(copied.tasks, 'task')}, "
        f"{format_count(copied.records, 'record')}, {format_count(copied.blobs, 'blob')}, "
        f"{format_size(copied.size_bytes)}. "
        f"New in the target: {format_count(copied.appended, 'record')}. {copied.seconds:.1f} seconds."
    )
    if copied.broken:
        say_line(f"{format_count(copied.broken, 'line')} of the source could not be read and copied.", err=True)
    if copied.failures:
        say_line(f"{format_count(len(copied.failures), 'task')} could not be copied.", err=True)


@store_command(json="The figures as one object; `failures` is empty on success.")
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@optional_uuids_argument
def backup(session: Session, directory: Path, uuids: tuple[str, ...]) -> int:
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
        on_progress=session.show_progress("backing up"),
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
@optional_uuids_argument
@click.option("--generation", metavar="YYYY-MM-DD", help="Restore this generation instead of the newest.")
def restore(session: Session, directory: Path, uuids: tuple[str, ...], generation: str | None) -> int:
    """Restore all tasks of a backup, or only some, and compare each record with the backup.

    The store is created if it does not exist. A task that exists and differs is left unchanged and reported; the exit
    code is then 3. A task of which `orihon clean` has left only a stub gets its records back. A backup of one kind of
    store can be restored to another kind.

    \b
    orihon restore /mnt/backup/orihon 550e8400
    orihon restore /mnt/backup/orihon --generation 2024-01-15
    orihon restore /mnt/backup/orihon --store sqlite:///drill.db --json
    """
    progress = session.show_progress("restoring")
    done = restore_tasks(directory, session.authorized, generation=generation, tasks=uuids, on_progress=progress)
    session.emit(done, _print_restore)
    return StoreError.exit_code if done.failures else 0


def _print_restore(done: Restored) -> None:
    say_problems(done.failures)
    say_line(
        f"{done.generation} into {done.store}: {format_count(done.restored, 'task')} restored, "
        f"{done.equal:,} there already, {format_count(done.records, 'record')} compared. "
        f"{done.seconds:.1f} seconds."
    )


@store_command(
    json='{"url", "version", "applied"}; `applied` is empty if the tables were up to date.', store_option=False
)
@click.argument("store", metavar="[URL]", required=False)
@click.option("--role", metavar="NAME", help="Let this database role use the tables; with --user, only read.")
@click.option("--user", help="The role may read the tasks of this user only.")
def migrate(session: Session, role: str | None, user: str | None) -> None:
    """Create or update the tables of a PostgreSQL store; without a URL, those of the store in the settings.

    Each step is one transaction, and a second run does nothing. An empty database gets its tables when a role that may
    create them first opens it. An update of Orihon waits for this command, because older versions may still be in use.

    The owner of the tables sees all tasks. A role named with --role may read and write all of them, for workers; with
    --user it may read the tasks of that user only, and the database enforces this.

    \b
    orihon migrate postgresql://orihon@db.example.com/orihon
    orihon migrate postgresql://orihon@db.example.com/orihon --role worker
    orihon migrate postgresql://orihon@db.example.com/orihon --role alice_pages --user alice
    """
    session.gate.require_admin("migrate a store")
    if not is_postgres(session.url):
        raise UsageError(
            f"{session.url!a} is not a PostgreSQL store, and needs no migration.", hint="Give postgresql://…"
        )
    if user is not None and role is None:
        raise UsageError("--user restricts a role, but no role is named.", hint="Add --role NAME.")
    require_psycopg()
    from orihon.stores.sql.migrations import bring_up_to_date  # noqa: PLC0415 - needs psycopg

    done = bring_up_to_date(session.url, role=role, user=user)
    session.gate.record_access("migrate", ["schema"])
    if session.as_json:
        say_json(done)
        return
    for name in done.applied:
        say_line(f"applied  {name}")
    say_line(f"{done.url} has version {done.version}.")
