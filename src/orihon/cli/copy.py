"""`orihon copy`: tasks from one store to another."""

from __future__ import annotations

import click

from orihon.cli.output import say_json, say_line
from orihon.cli.progress import Progress, amount
from orihon.errors import Conflict, UsageError
from orihon.ops.access import require_admin
from orihon.ops.copy import Copied, copy_tasks
from orihon.ops.progress import ProgressCounter, format_count
from orihon.settings.load import load
from orihon.stores import open_store, require_store, store_options

FAILED = Conflict.exit_code


@click.command()
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.option(
    "--task", "tasks", multiple=True, metavar="UUID", help="Only this task; the beginning is enough. Repeatable."
)
@click.option(
    "--json", "as_json", is_flag=True, help="The figures as one object; `failures` is empty when all is equal."
)
@click.pass_context
def copy(context: click.Context, source: str, target: str, tasks: tuple[str, ...], *, as_json: bool) -> None:
    """Copy tasks from one store to another, then read every record of both and compare.

    Other tasks of the target are left alone. Run again, it goes on where it stopped. A record that differs is an
    error that names it and changes nothing; the other tasks are copied. The exit code is then 3.

    \b
    orihon copy logs/contexts sqlite:///contexts.db
    orihon copy logs/contexts postgresql://orihon@db.example.com/orihon
    orihon copy sqlite:///contexts.db logs/again --task 0f8fad5b --task 7c9e6679
    orihon copy logs/contexts /mnt/usb/contexts --json | jq .records
    """
    settings = load()
    gate = require_admin(settings, "copy a store", source, command="copy")
    require_store(source)
    if target == "memory:":
        raise UsageError(
            "A copy in memory ends with this command.",
            hint="Copy to a directory, to sqlite:///FILE or to postgresql://HOST/DATABASE.",
        )
    gate.record_access("copy", ["everything"], to=target, **({"tasks": list(tasks)} if tasks else {}))
    options = store_options(settings)
    with open_store(source, options) as origin, open_store(target, options) as goal, Progress() as progress:

        def on_progress(counter: ProgressCounter) -> None:
            progress.show(f"{counter.tasks:,} tasks, {counter.records:,} records read, {amount(counter.size_bytes)}")

        copied = copy_tasks(origin, goal, tasks=tasks, on_progress=on_progress)
    if as_json:
        say_json(copied)
    else:
        _print(copied)
    context.exit(FAILED if copied.failures or copied.broken else 0)


def _print(copied: Copied) -> None:
    for sentence in copied.notes:
        say_line(f"note     {sentence}")
    for sentence in copied.failures:
        say_line(f"problem  {sentence}", err=True)
    if copied.changed:
        say_line(f"note     {format_count(copied.changed, 'record')} had to be cleaned or masked on the way.")
    say_line(
        f"Equal in both stores, compared one by one: {format_count(copied.tasks, 'task')}, "
        f"{format_count(copied.records, 'record')}, {format_count(copied.blobs, 'blob')}, {amount(copied.size_bytes)}. "
        f"New in the target: {format_count(copied.appended, 'record')}. {copied.seconds:.1f} seconds."
    )
    if copied.broken:
        say_line(f"{format_count(copied.broken, 'line')} of the source could not be read and copied.", err=True)
    if copied.failures:
        say_line(f"{format_count(len(copied.failures), 'task')} could not be copied.", err=True)
