"""`orihon stop`: end a task that is not wanted any more."""

from __future__ import annotations

import click

from orihon.agent.control import stop_file_path, write_signal_file
from orihon.agent.queue import load_job
from orihon.agent.queue import stop_idle_task as stop_task
from orihon.agent.run_setup import mark_task
from orihon.cli.options import json_option, store_option
from orihon.cli.output import say_json, say_line
from orihon.engine import Engine
from orihon.errors import SettingsError
from orihon.ops.access import open_authorized_store
from orihon.records import TaskRow
from orihon.settings.load import load


@click.command()
@click.argument("uuids", metavar="UUID...", nargs=-1, required=True)
@click.option("--reason", default="by the user", show_default=True, help="Why; it is kept with the task.")
@store_option
@json_option('One {"uuid", "status", "asked"} per line; `asked` when somebody works on it and is told by a file.')
def stop(uuids: tuple[str, ...], reason: str, url: str | None, *, as_json: bool) -> None:
    """End tasks for good. What they learned is kept, and a new task on the same thing inherits it.

    A task that waits or is paused is stopped at once. One that runs is asked by a file, which it looks for before each
    call of the model. `orihon pause` only lets it wait.

    \b
    orihon stop 550e8400
    orihon stop 550e8400 7c9e6679 --reason "done by hand"
    """
    settings = load()
    with open_authorized_store(settings, url, command="stop") as authorized:
        engine = Engine(authorized.store, settings, user=authorized.principal.scope)
        for row in [authorized.row(uuid) for uuid in uuids]:
            authorized.record_access("task", ["row"], uuid=row.uuid)
            stopped = stop_task(engine, row.uuid, reason)
            if stopped is None:
                _ask(engine, row, reason)
            elif (job := load_job(engine, row.uuid)) is not None:
                mark_task(settings, stopped, job)
            _print(stopped or row, asked=stopped is None, as_json=as_json)


def _ask(engine: Engine, row: TaskRow, reason: str) -> None:
    settings = engine.settings.pause_resume
    if not settings.enabled:
        raise SettingsError(
            "`pause_resume.enabled` is off, so a task that runs cannot be told.", path="pause_resume.enabled"
        )
    write_signal_file(stop_file_path(settings, row.uuid), engine.store.sanitiser.text(reason))


def _print(row: TaskRow, *, asked: bool, as_json: bool) -> None:
    if as_json:
        say_json({"uuid": row.uuid, "status": row.status, "asked": asked})
    elif asked:
        say_line(f"{row.uuid} runs; it stops before its next call of the model.")
    else:
        say_line(f"{row.uuid} is {row.status}.")
