"""`orihon resume`: go on with a task that was paused or interrupted."""

from __future__ import annotations

from typing import Any

import click

from orihon.agent.control import pause_files
from orihon.cli.jobs import job_options
from orihon.cli.options import uuid_argument
from orihon.cli.run import run
from orihon.ops.access import open_authorized_store
from orihon.settings.load import load


@click.command()
@uuid_argument
@job_options
@click.option("--json", "as_json", is_flag=True, help="At the end one object on standard output instead of the answer.")
@click.pass_context
def resume(context: click.Context, /, uuid: str, *, as_json: bool, **options: Any) -> None:
    """Go on with a task here: one that was paused, whose process died, or that waits in the queue.

    If a file of its own asks it to pause, the file is taken away first. It is the same as `orihon unpause UUID` and
    then `orihon run --resume UUID`; the options change how it goes on.

    \b
    orihon resume 550e8400
    orihon resume 550e8400 --model anthropic:claude-sonnet-5 --approve edits
    """
    settings = load()
    with open_authorized_store(settings, options["store"], command="resume") as authorized:
        found = authorized.row(uuid).uuid
        authorized.record_access("task", ["row"], uuid=found)
    for path in pause_files(settings.pause_resume, found)[1:]:
        path.unlink(missing_ok=True)
    context.invoke(run, what=None, uuid=found, as_json=as_json, **options)
