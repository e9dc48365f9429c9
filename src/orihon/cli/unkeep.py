"""`orihon unkeep`: let a task be cleaned again."""

from __future__ import annotations

import click

from orihon.cli.keep import change
from orihon.cli.options import json_option, store_option


@click.command()
@click.argument("uuids", metavar="UUID...", nargs=-1, required=True)
@store_option
@json_option('One {"uuid", "kept"} per line.')
def unkeep(uuids: tuple[str, ...], url: str | None, *, as_json: bool) -> None:
    """Let `orihon clean` treat tasks like all others again.

    \b
    orihon unkeep 550e8400
    orihon unkeep 550e8400 7c9e6679 --json
    """
    change(uuids, url, kept=False, as_json=as_json)
