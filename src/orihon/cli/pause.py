"""`orihon pause`, `unpause` and `stop`: interrupt tasks through files that they check before each model call."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from orihon.agent.control import pause_files, stop_file_path, write_signal_file
from orihon.agent.queue import load_job, stop_idle_task
from orihon.cli._command import Session, optional_uuids_argument, store_command, uuids_argument
from orihon.engine import Engine
from orihon.errors import SettingsError, UsageError
from orihon.records import TaskRow


@store_command(json='One {"file", "exists"} per line.')
@optional_uuids_argument
@click.option("--all", "is_all", is_flag=True, help="All tasks, including those that start later.")
def pause(session: Session, uuids: tuple[str, ...], *, is_all: bool) -> None:
    """Ask tasks to pause, through a file that they check before each model call.

    `orihon unpause` removes the file. Workers then continue the tasks they paused, and `orihon run --resume UUID`
    continues the others. A queued task is not started while it is asked to pause.

    \b
    orihon pause 550e8400
    orihon pause --all
    """
    for path, row in _find_files(session, uuids, is_all=is_all):
        write_signal_file(path)
        session.emit({"file": str(path), "exists": path.exists()}, f"{_describe_pause(row)} ({path})")


def _describe_pause(row: TaskRow | None) -> str:
    if row is None:
        return "All tasks, now and later, pause before their next model call, until `orihon unpause --all`."
    if row.status == "running":
        return f"{row.uuid} pauses before its next model call."
    return f"{row.uuid} is {row.status}; no worker continues it until `orihon unpause {row.uuid[:8]}`."


@store_command(json='One {"file", "exists"} per line.')
@optional_uuids_argument
@click.option("--all", "is_all", is_flag=True, help="Remove the file for all tasks; those of single tasks stay.")
def unpause(session: Session, uuids: tuple[str, ...], *, is_all: bool) -> None:
    """Remove the files that ask tasks to pause.

    Workers continue the tasks they paused; `orihon run --resume UUID` continues a task that was started with `orihon
    run`.

    \b
    orihon unpause 550e8400
    orihon unpause --all
    """
    for path, row in _find_files(session, uuids, is_all=is_all):
        existed = path.exists()
        path.unlink(missing_ok=True)
        subject, verb = ("Tasks", "are") if row is None else (row.uuid, "is")
        sentence = f"{subject} {verb} {'no longer' if existed else 'not'} asked to pause. ({path})"
        session.emit({"file": str(path), "exists": path.exists()}, sentence)


def _find_files(session: Session, uuids: tuple[str, ...], *, is_all: bool) -> Iterator[tuple[Path, TaskRow | None]]:
    """Yield the files that ask these tasks, or all tasks, to pause."""
    if bool(uuids) == is_all:
        raise UsageError("Name the tasks.", hint="Give ids, or --all.")
    if is_all:
        session.gate.require_admin("pause the tasks of all")
    settings = session.settings.pause_resume
    if not settings.enabled:
        raise SettingsError(
            "`pause_resume.enabled` is off, so tasks do not check for the file.", path="pause_resume.enabled"
        )
    if is_all:
        yield Path(settings.signal_file), None
    for uuid in uuids:
        row = session.authorized.row(uuid)
        session.authorized.record_access("task", ["row"], uuid=row.uuid)
        yield pause_files(settings, row.uuid)[1], row


@store_command(json='One {"uuid", "status", "asked"} per line; `asked` if the task runs and is asked through a file.')
@uuids_argument
@click.option("--reason", default="by the user", show_default=True, help="The reason, which is stored with the task.")
def stop(session: Session, uuids: tuple[str, ...], reason: str) -> None:
    """End tasks permanently. A new task with the same key inherits what they learned.

    A queued or paused task is stopped at once. A running task is asked through a file, which it checks before each
    model call. To continue a task later, use `orihon pause`.

    \b
    orihon stop 550e8400
    orihon stop 550e8400 7c9e6679 --reason "no longer needed"
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
