"""`orihon clean`: delete and compress what is old."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from orihon.cli.options import json_option, store_option
from orihon.cli.output import say_json, say_line
from orihon.cli.progress import Progress, amount
from orihon.errors import StoreError
from orihon.ops.access import open_authorized_store
from orihon.ops.clean import Cleaned
from orihon.ops.clean import clean as clean_up
from orihon.ops.progress import ProgressCounter, format_count
from orihon.settings.load import load

if TYPE_CHECKING:
    from orihon.agent.queue import RecoveredTask


@click.command()
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.option(
    "--older-than",
    type=click.IntRange(0),
    metavar="DAYS",
    help="Delete after so many days, instead of `retention.delete_after_days`.",
)
@click.option(
    "--emergency", is_flag=True, help="Delete after `retention.emergency_after_days`, and compress all the rest."
)
@store_option
@json_option("The figures as one object; `failures` is empty when all went well.")
@click.pass_context
def clean(
    context: click.Context, url: str | None, older_than: int | None, *, dry_run: bool, emergency: bool, as_json: bool
) -> None:
    """Delete old tasks, compress younger ones, and settle those whose process died.

    A completed or stopped task leaves its final summary and the outline of its plan, so that a later task on the same
    thing inherits them, for `context_inheritance.context_expiry_days`; then nothing is left. Compressed tasks are read
    like others. A task that is kept (`orihon keep`), or that somebody writes, is never touched. A SQLite file is not
    compressed; room that is free in it goes back to the disk.

    The exit code is 0, or 3 when a task could not be cleaned.

    \b
    orihon clean --dry-run                 what would be done
    orihon clean                           every night
    orihon clean --older-than 10           delete after 10 days
    orihon clean --emergency               when the disk is full
    orihon clean --json | jq .freed_bytes
    """
    settings = load()
    with open_authorized_store(settings, url, command="clean") as authorized, Progress() as progress:

        def on_progress(counter: ProgressCounter) -> None:
            progress.show(f"{format_count(counter.tasks, 'task')} cleaned")

        def heard(one: RecoveredTask) -> None:
            from orihon.agent.run_setup import announce  # noqa: PLC0415 - seldom needed, and large

            announce(settings, one)

        cleaned = clean_up(
            authorized,
            settings,
            dry_run=dry_run,
            older_than=older_than,
            emergency=emergency,
            on_recovered=heard,
            on_progress=on_progress,
        )
    if as_json:
        say_json(cleaned)
    else:
        _print(cleaned)
    context.exit(StoreError.exit_code if cleaned.failures else 0)


def _print(cleaned: Cleaned) -> None:
    lines = (
        ("deleted", cleaned.deleted, "nothing of them is left"),
        ("reduced", cleaned.reduced, f"what a later task inherits stays for {cleaned.keep_stub_days} days"),
        ("compressed", cleaned.compressed, "they are read as before"),
        ("interrupted", cleaned.interrupted, "their process died; they failed, or are back in the queue"),
        ("held", cleaned.held, "somebody writes them, so they are left alone"),
        ("kept", cleaned.kept, "somebody keeps them, so they are left alone"),
    )
    for name, count, meaning in lines:
        if count:
            say_line(f"{name:12} {format_count(count, 'task')}: {meaning}")
    for sentence in cleaned.failures:
        say_line(f"problem      {sentence}", err=True)
    if cleaned.dry_run:
        say_line(f"About {amount(cleaned.freed_bytes)} would be freed. Nothing was changed.")
    else:
        say_line(f"{amount(cleaned.freed_bytes)} freed in {cleaned.seconds:.1f} seconds.")
    there = ", ".join(f"{count:,} {status}" for status, count in cleaned.left.items() if count)
    say_line(f"There are now: {there or 'no tasks'}.")
