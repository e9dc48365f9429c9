"""`orihon keep`: never clean a task."""

from __future__ import annotations

import click

from orihon.cli.options import json_option, store_option
from orihon.cli.output import say_json, say_line
from orihon.ops.access import open_authorized_store
from orihon.ops.clean import keep_task
from orihon.settings.load import load


@click.command()
@click.argument("uuids", metavar="UUID...", nargs=-1, required=True)
@store_option
@json_option('One {"uuid", "kept"} per line.')
def keep(uuids: tuple[str, ...], url: str | None, *, as_json: bool) -> None:
    """Keep tasks: `orihon clean` never touches them, nor with --emergency, until `orihon unkeep`.

    \b
    orihon keep 550e8400
    orihon keep 550e8400 7c9e6679 --json
    """
    change(uuids, url, kept=True, as_json=as_json)


def change(uuids: tuple[str, ...], url: str | None, *, kept: bool, as_json: bool) -> None:
    """Keep tasks or no longer, and say so."""
    with open_authorized_store(load(), url, command="keep" if kept else "unkeep") as authorized:
        for uuid in uuids:
            row = keep_task(authorized, uuid, kept=kept)
            if as_json:
                say_json({"uuid": row.uuid, "kept": row.kept})
            else:
                say_line(f"{row.uuid} is {'kept' if kept else 'no longer kept'}.")
