"""The tables of the PostgreSQL store, version by version: `sql/postgres/NNN_name.sql`, each run once, in its order.

A migration and its record are one transaction, so a database is at one version or at the next. An empty database gets
its tables when it is first opened, if the role may make them; one that is older is left alone until somebody says
`orihon migrate`, because others may still work on it with the version that fits it.
"""

from __future__ import annotations

from contextlib import closing
from functools import partial
from importlib import resources
from typing import NamedTuple

from msgspec import Struct

from orihon.errors import SchemaMismatch
from orihon.stores.sql.postgres_errors import MIGRATE
from orihon.stores.sql.postgres_pool import Connection, Server
from orihon.stores.sql.postgres_roles import grant

# any number will do, as long as it is the same everywhere: two that migrate at once come one after the other
LOCK, UNLOCK = "SELECT pg_advisory_lock(6744205811)", "SELECT pg_advisory_unlock(6744205811)"
WAIT = "SELECT pg_advisory_xact_lock_shared(6744205811)"
RECORDS = """CREATE TABLE IF NOT EXISTS orihon_migrations (
    number integer PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now()
)"""
# asked of the catalogue itself, because `to_regclass` may remember that a table was not there a moment ago
THERE = "SELECT 1 FROM pg_tables WHERE schemaname = ANY(current_schemas(false)) AND tablename = ANY(%s) LIMIT 1"
RECORD, OTHERS = ["orihon_migrations"], ["tasks", "messages"]


class Migration(NamedTuple):
    """One step from a version to the next."""

    number: int
    name: str
    sql: str


class Migrated(Struct, frozen=True):
    """What was done, and the version that the tables have now."""

    url: str
    version: int
    applied: list[str]


def bring_up_to_date(url: str, *, role: str | None = None, user: str | None = None) -> Migrated:
    """Bring the tables of a database up to date; with a role, let it use them, or only read the tasks of one user."""
    with closing(Server(url, patience_seconds=0)) as server:
        applied = [f"{migration.number:03} {migration.name}" for migration in migrate(server)]
        if role is not None:
            server.run(lambda connection: grant(connection, role, user), writing=True)
        return Migrated(server.shown, version_of(server) or 0, applied)


def migrations() -> list[Migration]:
    """All of them, in their order."""
    folder = resources.files("orihon.stores.sql").joinpath("postgres")
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    found = [(file.name.removesuffix(".sql").partition("_"), file) for file in files]
    return [Migration(int(number), name, file.read_text(encoding="utf-8")) for (number, _, name), file in found]


def version_of(server: Server) -> int | None:
    """The version of the tables; None when there are none."""
    if not server.all(THERE, RECORD):
        return None
    ((number,),) = server.all("SELECT coalesce(max(number), 0) FROM orihon_migrations")
    return int(number)


def require_schema(server: Server) -> None:
    """Make the tables of an empty database; refuse one that is older or newer than this code."""
    version = version_of(server)
    if version is None:
        migrate(server)
    elif version < migrations()[-1].number:
        server.all(WAIT)  # whoever makes the tables right now is waited for
    require_tables(server)


def require_tables(server: Server) -> None:
    """Refuse a database without tables, or with those of another version."""
    newest, version = migrations()[-1].number, version_of(server)
    if version is None:
        raise SchemaMismatch(f"{server.shown} has no tables of Orihon.", hint=MIGRATE)
    if version > newest:
        raise _too_new(server, version, newest)
    if version < newest:
        sentence = f"The tables in {server.shown} have version {version}; this version of Orihon needs {newest}."
        raise SchemaMismatch(sentence, hint=MIGRATE)


def migrate(server: Server) -> list[Migration]:
    """Bring the tables up to date; what was done. Whoever does the same at the same moment comes after."""
    return server.run(partial(_migrate, server), writing=True)


def _migrate(server: Server, connection: Connection) -> list[Migration]:
    connection.execute(LOCK)
    try:
        return [migration for migration in migrations() if _apply(server, migration, connection)]
    finally:
        if not connection.closed:  # and if it is, the lock is gone with it
            connection.execute(UNLOCK)


def _apply(server: Server, migration: Migration, connection: Connection) -> bool:
    """One migration, if it is not there yet."""
    with connection.transaction():
        if not _records_there(server, connection):
            connection.execute(RECORDS)
        newest = connection.execute("SELECT coalesce(max(number), 0) FROM orihon_migrations").fetchone()
        if newest is not None and newest[0] > migrations()[-1].number:
            raise _too_new(server, newest[0], migrations()[-1].number)
        if newest is not None and newest[0] >= migration.number:
            return False
        connection.execute(migration.sql.encode())
        values = (migration.number, migration.name)
        connection.execute("INSERT INTO orihon_migrations (number, name) VALUES (%s, %s)", values)
        return True


def _records_there(server: Server, connection: Connection) -> bool:
    if connection.execute(THERE, (RECORD,)).fetchone() is not None:
        return True
    if connection.execute(THERE, (OTHERS,)).fetchone() is not None:
        hint = (
            "Give Orihon a database of its own, or a schema: "
            "CREATE SCHEMA orihon, and ?options=-csearch_path%3Dorihon in the URL."
        )
        raise SchemaMismatch(f"{server.shown} has tables of another program.", hint=hint)
    return False


def _too_new(server: Server, version: int, newest: int) -> SchemaMismatch:
    sentence = f"The tables in {server.shown} have version {version}; this version of Orihon knows {newest}."
    return SchemaMismatch(sentence, hint="Use the newer version of Orihon that made them.")
