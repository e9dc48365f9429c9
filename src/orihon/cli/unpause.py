"""`orihon unpause`: let paused tasks go on."""

from __future__ import annotations

import click

from orihon.cli.options import json_option
from orihon.cli.output import say_json, say_line
from orihon.cli.pause import file_object, files


@click.command()
@click.argument("uuids", metavar="[UUID]...", nargs=-1)
@click.option("--all", "everybody", is_flag=True, help="Take the file for all tasks away; those of single tasks stay.")
@click.option("--store", help="The store instead of that of the settings.")
@json_option('One {"file", "exists"} per line.')
def unpause(uuids: tuple[str, ...], store: str | None, *, everybody: bool, as_json: bool) -> None:
    """Take the files away that ask tasks to pause.

    Workers go on with what they paused; `orihon run --resume UUID` goes on with a task that was run by hand.

    \b
    orihon unpause 550e8400
    orihon unpause --all
    """
    for path in files(uuids, store, everybody=everybody, command="unpause"):
        was_there = path.exists()
        path.unlink(missing_ok=True)
        if as_json:
            say_json(file_object(path))
        else:
            say_line(f"{path} is gone." if was_there else f"{path} was not there.")
