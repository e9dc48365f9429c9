"""`orihon clean`, `keep` and `unkeep`: delete and compress old tasks, except those that are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from orihon.cli._command import StoreSession, store_command
from orihon.cli._format import format_size
from orihon.cli._output import say_line
from orihon.errors import StoreError
from orihon.ops.clean import Cleaned, keep_task
from orihon.ops.clean import clean as clean_tasks
from orihon.ops.progress import format_count

if TYPE_CHECKING:
    from orihon.agent.queue import RecoveredTask


@store_command(json="The figures as one object; `failures` is empty on success.")
@click.option("--dry-run", is_flag=True, help="Only print what would be done.")
@click.option("--older-than", type=click.IntRange(0), metavar="DAYS", help="Override `retention.delete_after_days`.")
@click.option("--emergency", is_flag=True, help="Delete after `retention.emergency_after_days`; compress all others.")
def clean(session: StoreSession, older_than: int | None, *, dry_run: bool, emergency: bool) -> int:
    """Delete old tasks, compress younger ones, and recover tasks whose process died.

    A completed or stopped task leaves its final summary and the outline of its plan, which later tasks with the same
    key inherit, for `context_inheritance.context_expiry_days`; then nothing is left. Compressed tasks can be read like
    others. A task that is kept (`orihon keep`) or in use is never touched. A SQLite file is not compressed; its free
    pages are returned to the disk.

    The exit code is 0, or 3 if a task could not be cleaned.

    \b
    orihon clean --dry-run                 what would be done
    orihon clean                           every night
    orihon clean --older-than 10           delete after 10 days
    orihon clean --emergency               when the disk is full
    orihon clean --json | jq .freed_bytes
    """

    def on_recovered(task: RecoveredTask) -> None:
        from orihon.agent.run_setup import announce  # noqa: PLC0415 - large, and rarely needed

        announce(session.settings, task)

    cleaned = clean_tasks(
        session.authorized,
        session.settings,
        dry_run=dry_run,
        older_than=older_than,
        emergency=emergency,
        on_recovered=on_recovered,
        on_progress=session.progress.show_counts("{tasks:,} tasks cleaned"),
    )
    session.emit(cleaned, _print_cleaned)
    return StoreError.exit_code if cleaned.failures else 0


def _print_cleaned(cleaned: Cleaned) -> None:
    lines = (
        ("deleted", cleaned.deleted, "nothing of them is left"),
        ("reduced", cleaned.reduced, f"what a later task inherits stays for {cleaned.keep_stub_days} days"),
        ("compressed", cleaned.compressed, "they are read as before"),
        ("interrupted", cleaned.interrupted, "their process died; they failed, or are back in the queue"),
        ("held", cleaned.held, "they are in use and left alone"),
        ("kept", cleaned.kept, "they are kept and left alone"),
    )
    for name, count, meaning in lines:
        if count:
            say_line(f"{name:12} {format_count(count, 'task')}: {meaning}")
    for failure in cleaned.failures:
        say_line(f"problem      {failure}", err=True)
    if cleaned.dry_run:
        say_line(f"About {format_size(cleaned.freed_bytes)} would be freed. Nothing was changed.")
    else:
        say_line(f"{format_size(cleaned.freed_bytes)} freed in {cleaned.seconds:.1f} seconds.")
    remaining = ", ".join(f"{count:,} {status}" for status, count in cleaned.left.items() if count)
    say_line(f"There are now: {remaining or 'no tasks'}.")


@store_command(json='One {"uuid", "kept"} per line.')
@click.argument("uuids", metavar="UUID...", nargs=-1, required=True)
def keep(session: StoreSession, uuids: tuple[str, ...]) -> None:
    """Keep tasks: `orihon clean` does not touch them, even with --emergency, until `orihon unkeep`.

    \b
    orihon keep 550e8400
    orihon keep 550e8400 7c9e6679 --json
    """
    _set_kept(session, uuids, kept=True)


@store_command(json='One {"uuid", "kept"} per line.')
@click.argument("uuids", metavar="UUID...", nargs=-1, required=True)
def unkeep(session: StoreSession, uuids: tuple[str, ...]) -> None:
    """Let `orihon clean` clean tasks that were kept.

    \b
    orihon unkeep 550e8400
    orihon unkeep 550e8400 7c9e6679 --json
    """
    _set_kept(session, uuids, kept=False)


def _set_kept(session: StoreSession, uuids: tuple[str, ...], *, kept: bool) -> None:
    for uuid in uuids:
        row = keep_task(session.authorized, uuid, kept=kept)
        session.emit({"uuid": row.uuid, "kept": row.kept}, f"{row.uuid} is {'kept' if kept else 'no longer kept'}.")
