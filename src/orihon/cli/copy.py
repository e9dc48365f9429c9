"""`orihon copy`: copy tasks from one store to another, and compare."""

from __future__ import annotations

import click

from orihon.cli._command import emit, json_option
from orihon.cli._format import format_size
from orihon.cli._output import Progress, say_line, say_problems
from orihon.errors import Conflict, UsageError
from orihon.ops.access import require_admin
from orihon.ops.copy import Copied, copy_tasks
from orihon.ops.progress import format_count
from orihon.settings.load import load
from orihon.stores import open_store, require_store, store_options


@click.command()
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.option("--task", "tasks", multiple=True, metavar="UUID", help="Only this task (a prefix suffices). Repeatable.")
@json_option("The figures as one object; `failures` is empty if all tasks are equal.")
@click.pass_context
def copy(context: click.Context, source: str, target: str, tasks: tuple[str, ...], *, as_json: bool) -> None:
    """Copy tasks from one store to another, then read every record of both and compare.

    Other tasks of the target are left alone. A second run continues where the first stopped. A record that differs is
    reported and not changed; the other tasks are copied, and the exit code is 3.

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
        on_progress = progress.show_counts("{tasks:,} tasks, {records:,} records read, {size}")
        copied = copy_tasks(origin, goal, tasks=tasks, on_progress=on_progress)
    emit(copied, _print_copied, as_json=as_json)
    context.exit(Conflict.exit_code if copied.failures or copied.broken else 0)


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
