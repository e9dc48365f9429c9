"""`orihon migrate`: the tables of a PostgreSQL store, made or brought up to date."""

from __future__ import annotations

import click

from orihon.cli.output import say_json, say_line
from orihon.errors import UsageError
from orihon.ops.access import require_admin
from orihon.settings.load import load
from orihon.stores import is_postgres, require_psycopg


@click.command()
@click.argument("url", required=False)
@click.option(
    "--json", "as_json", is_flag=True, help='{"url", "version", "applied"}; `applied` is empty if all was well.'
)
@click.option("--role", metavar="NAME", help="Let this role of the database use the tables; with --user, only read.")
@click.option("--user", help="Whose tasks the role may read, and no others.")
def migrate(url: str | None, role: str | None, user: str | None, *, as_json: bool) -> None:
    """Make the tables of a PostgreSQL store, or bring them up to date; without a URL, those of the settings' store.

    Each step is one transaction, and a second run does nothing. An empty database gets its tables by itself when a role
    that may make them first opens it; a newer version of Orihon waits for this command, because older ones may still
    be at work.

    The owner of the tables sees all tasks. A role that is named with --role may read and write all of them, for
    workers; with --user it may read the tasks of that user only, and the database itself sees to it.

    \b
    orihon migrate postgresql://orihon@db.example.com/orihon
    orihon migrate postgresql://orihon@db.example.com/orihon --role worker
    orihon migrate postgresql://orihon@db.example.com/orihon --role alice_pages --user alice
    """
    settings = load()
    place = url or settings.store_url
    gate = require_admin(settings, "migrate a store", place, command="migrate")
    if not is_postgres(place):
        raise UsageError(f"{place!a} is not a PostgreSQL store, and needs no migration.", hint="Give postgresql://…")
    if user is not None and role is None:
        raise UsageError("--user says what a role may see, and there is none.", hint="Add --role NAME.")
    require_psycopg()
    from orihon.stores.sql.migrations import bring_up_to_date  # noqa: PLC0415

    done = bring_up_to_date(place, role=role, user=user)
    gate.record_access("migrate", ["schema"])
    if as_json:
        say_json(done)
        return
    for name in done.applied:
        say_line(f"applied  {name}")
    say_line(f"{done.url} has version {done.version}.")
