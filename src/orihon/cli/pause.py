"""`orihon pause`, `unpause` and `stop`: interrupt tasks through files that they check before each model call."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from orihon.agent.control import pause_files, stop_file_path, write_signal_file
from orihon.agent.queue import load_job, stop_idle_task
from orihon.cli._command import StoreSession, emit, json_option, store_command, store_option
from orihon.engine import Engine
from orihon.errors import SettingsError, UsageError
from orihon.ops.access import open_authorized_store, require_admin
from orihon.records import TaskRow
from orihon.settings.load import load


@click.command()
@click.argument("uuids", metavar="[UUID]...", nargs=-1)
@click.option("--all", "is_all", is_flag=True, help="All tasks, including those that start later.")
@store_option()
@json_option('One {"file", "exists"} per line.')
def pause(uuids: tuple[str, ...], url: str | None, *, is_all: bool, as_json: bool) -> None:
    """Ask tasks to pause, through a file that they check before each model call.

    `orihon unpause` removes the file. Workers then continue the tasks they paused, and `orihon run --resume UUID`
    continues the others. A queued task is not started while it is asked to pause.

    \b
    orihon pause 550e8400
    orihon pause --all
    """
    for path in _find_files(uuids, url, is_all=is_all, command="pause"):
        write_signal_file(path)
        emit({"file": str(path), "exists": path.exists()}, str(path), as_json=as_json)


@click.command()
@click.argument("uuids", metavar="[UUID]...", nargs=-1)
@click.option("--all", "is_all", is_flag=True, help="Remove the file for all tasks; those of single tasks stay.")
@store_option()
@json_option('One {"file", "exists"} per line.')
def unpause(uuids: tuple[str, ...], url: str | None, *, is_all: bool, as_json: bool) -> None:
    """Remove the files that ask tasks to pause.

    Workers continue the tasks they paused; `orihon run --resume UUID` continues a task that was started with `orihon
    run`.

    \b
    orihon unpause 550e8400
    orihon unpause --all
    """
    for path in _find_files(uuids, url, is_all=is_all, command="unpause"):
        existed = path.exists()
        path.unlink(missing_ok=True)
        sentence = f"{path} is removed." if existed else f"{path} does not exist."
        emit({"file": str(path), "exists": path.exists()}, sentence, as_json=as_json)


def _find_files(uuids: tuple[str, ...], url: str | None, *, is_all: bool, command: str) -> Iterator[Path]:
    """Yield the files that ask these tasks, or all tasks, to pause."""
    if bool(uuids) == is_all:
        raise UsageError("Name the tasks.", hint="Give ids, or --all.")
    settings = load()
    if is_all:
        require_admin(settings, "pause the tasks of all", url, command=command)
    if not settings.pause_resume.enabled:
        raise SettingsError(
            "`pause_resume.enabled` is off, so tasks do not check for the file.", path="pause_resume.enabled"
        )
    if is_all:
        yield Path(settings.pause_resume.signal_file)
        return
    with open_authorized_store(settings, url, command=command) as authorized:
        for uuid in uuids:
            row = authorized.row(uuid)
            authorized.record_access("task", ["row"], uuid=row.uuid)
            yield pause_files(settings.pause_resume, row.uuid)[1]


@store_command(json='One {"uuid", "status", "asked"} per line; `asked` if the task runs and is asked through a file.')
@click.argument("uuids", metavar="UUID...", nargs=-1, required=True)
@click.option("--reason", default="by the user", show_default=True, help="The reason, which is stored with the task.")
def stop(session: StoreSession, uuids: tuple[str, ...], reason: str) -> None:
    """End tasks permanently. A new task with the same key inherits what they learned.

    A queued or paused task is stopped at once. A running task is asked through a file, which it checks before each
    model call. To continue a task later, use `orihon pause`.

    \b
    orihon stop 550e8400
    orihon stop 550e8400 7c9e6679 --reason "done by hand"
    """
    authorized = session.authorized
    engine = Engine(authorized.store, session.settings, user=authorized.principal.scope)
    for row in [authorized.row(uuid) for uuid in uuids]:
        authorized.record_access("task", ["row"], uuid=row.uuid)
        stopped = stop_idle_task(engine, row.uuid, reason)
        if stopped is None:
            _ask_to_stop(engine, row, reason)
            sentence = f"{row.uuid} is running; it stops before its next model call."
            session.emit({"uuid": row.uuid, "status": row.status, "asked": True}, sentence)
            continue
        if (job := load_job(engine, row.uuid)) is not None:
            from orihon.agent.run_setup import mark_task  # noqa: PLC0415 - large, and `pause` does not need it

            mark_task(session.settings, stopped, job)
        result = {"uuid": stopped.uuid, "status": stopped.status, "asked": False}
        session.emit(result, f"{stopped.uuid} is {stopped.status}.")


def _ask_to_stop(engine: Engine, row: TaskRow, reason: str) -> None:
    settings = engine.settings.pause_resume
    if not settings.enabled:
        raise SettingsError(
            "`pause_resume.enabled` is off, so a running task cannot be asked to stop.", path="pause_resume.enabled"
        )
    write_signal_file(stop_file_path(settings, row.uuid), engine.store.sanitiser.text(reason))
