"""`orihon migrate`: the tables of a PostgreSQL store, made or brought up to date."""

from __future__ import annotations

import click
import msgspec

from orihon.config import load
from orihon.errors import UsageError
from orihon.stores import is_postgres, need_psycopg


@click.command()
@click.argument("url", required=False)
@click.option(
    "--json", "as_json", is_flag=True, help='{"url", "version", "applied"}; `applied` is empty if all was well.'
)
def migrate(url: str | None, *, as_json: bool) -> None:
    """Make the tables of a PostgreSQL store, or bring them up to date; without a URL, those of the settings' store.

    Each step is one transaction, and a second run does nothing. An empty database gets its tables by itself when a role
    that may make them first opens it; a newer version of Orihon waits for this command, because older ones may still
    be at work.

    \b
    orihon migrate postgresql://orihon@db.example.com/orihon
    """
    place = url or load().store_url
    if not is_postgres(place):
        raise UsageError(f"{place!a} is not a PostgreSQL store, and needs no migration.", hint="Give postgresql://…")
    need_psycopg()
    from orihon.stores.migrations import bring_up_to_date  # noqa: PLC0415

    done = bring_up_to_date(place)
    if as_json:
        click.echo(msgspec.json.encode(done).decode())
        return
    for name in done.applied:
        click.echo(f"applied  {name}")
    click.echo(f"{done.url} has version {done.version}.")
