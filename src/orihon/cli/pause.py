"""`orihon pause`: ask one task, or all, to pause."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from orihon.agent.control import pause_files, write_signal_file
from orihon.cli.options import json_option
from orihon.cli.output import say_json, say_line
from orihon.errors import SettingsError, UsageError
from orihon.ops.access import open_authorized_store, require_admin
from orihon.settings.load import load


@click.command()
@click.argument("uuids", metavar="[UUID]...", nargs=-1)
@click.option("--all", "everybody", is_flag=True, help="All tasks, and those that will be started.")
@click.option("--store", help="The store instead of that of the settings.")
@json_option('One {"file", "exists"} per line.')
def pause(uuids: tuple[str, ...], store: str | None, *, everybody: bool, as_json: bool) -> None:
    """Ask tasks to pause, by a file that they look for before each call of the model.

    `orihon unpause` takes the file away; then workers go on with what they paused, and `orihon run --resume UUID` with
    the rest. A task that waits in the queue is not begun while it is to pause.

    \b
    orihon pause 550e8400
    orihon pause --all
    """
    for path in files(uuids, store, everybody=everybody, command="pause"):
        write_signal_file(path)
        if as_json:
            say_json(file_object(path))
        else:
            say_line(str(path))


def file_object(path: Path) -> dict[str, Any]:
    """A file that asks for it, for programs."""
    return {"file": str(path), "exists": path.exists()}


def files(uuids: tuple[str, ...], store: str | None, *, everybody: bool, command: str) -> Iterator[Path]:
    """The files that ask for it."""
    if bool(uuids) == everybody:
        raise UsageError("Say which tasks.", hint="Give ids, or --all.")
    settings = load()
    if everybody:
        require_admin(settings, "pause the tasks of all", store, command=command)
    if not settings.pause_resume.enabled:
        raise SettingsError(
            "`pause_resume.enabled` is off, so no task looks for the file.", path="pause_resume.enabled"
        )
    if everybody:
        yield Path(settings.pause_resume.signal_file)
        return
    with open_authorized_store(settings, store, command=command) as authorized:
        for uuid in uuids:
            row = authorized.row(uuid)
            authorized.record_access("task", ["row"], uuid=row.uuid)
            yield pause_files(settings.pause_resume, row.uuid)[1]
