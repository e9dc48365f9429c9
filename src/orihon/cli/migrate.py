"""`orihon migrate`: create or update the tables of a PostgreSQL store."""

from __future__ import annotations

import click

from orihon.cli._command import json_option
from orihon.cli._output import say_json, say_line
from orihon.errors import UsageError
from orihon.ops.access import require_admin
from orihon.settings.load import load
from orihon.stores import is_postgres, require_psycopg


@click.command()
@click.argument("url", required=False)
@json_option('{"url", "version", "applied"}; `applied` is empty if the tables were up to date.')
@click.option("--role", metavar="NAME", help="Let this database role use the tables; with --user, only read.")
@click.option("--user", help="The role may read the tasks of this user only.")
def migrate(url: str | None, role: str | None, user: str | None, *, as_json: bool) -> None:
    """Create or update the tables of a PostgreSQL store; without a URL, those of the store in the settings.

    Each step is one transaction, and a second run does nothing. An empty database gets its tables when a role that may
    create them first opens it. An update of Orihon waits for this command, because older versions may still be in use.

    The owner of the tables sees all tasks. A role named with --role may read and write all of them, for workers; with
    --user it may read the tasks of that user only, and the database enforces this.

    \b
    orihon migrate postgresql://orihon@db.example.com/orihon
    orihon migrate postgresql://orihon@db.example.com/orihon --role worker
    orihon migrate postgresql://orihon@db.example.com/orihon --role alice_pages --user alice
    """
    settings = load()
    url = url or settings.store_url
    gate = require_admin(settings, "migrate a store", url, command="migrate")
    if not is_postgres(url):
        raise UsageError(f"{url!a} is not a PostgreSQL store, and needs no migration.", hint="Give postgresql://…")
    if user is not None and role is None:
        raise UsageError("--user restricts a role, but no role is named.", hint="Add --role NAME.")
    require_psycopg()
    from orihon.stores.sql.migrations import bring_up_to_date  # noqa: PLC0415 - needs psycopg

    done = bring_up_to_date(url, role=role, user=user)
    gate.record_access("migrate", ["schema"])
    if as_json:
        say_json(done)
        return
    for name in done.applied:
        say_line(f"applied  {name}")
    say_line(f"{done.url} has version {done.version}.")
