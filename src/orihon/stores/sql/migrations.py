"""The tables of the PostgreSQL store and the rights on them.

Each version of the tables is a file `postgres/NNN_name.sql`, which is run once, in order. A migration and its record
are one transaction, so a database is at one version or at the next. An empty database gets its tables when it is first
opened, if the role may create them. An older one is left alone until `orihon migrate` is run, because other processes
may still use it with the version that fits it.

The database itself enforces the rights of a role: a policy on `tasks` named after the role shows it its rows, and the
lists show what belongs to these. A role without a policy sees nothing. A role that works on all tasks has a policy on
every table, because a statement that creates a task with its metadata does not see the task yet.
"""

from __future__ import annotations

from contextlib import closing
from functools import partial
from importlib import resources
from typing import NamedTuple

from msgspec import Struct
from psycopg import sql

from orihon.errors import SchemaMismatch
from orihon.stores.sql.postgres_pool import MIGRATE_HINT, Connection, Server
from orihon.stores.sql.store import TABLES

# any number, the same for all processes: migrations that start at the same moment run one after the other
LOCK, UNLOCK = "SELECT pg_advisory_lock(6744205811)", "SELECT pg_advisory_unlock(6744205811)"
WAIT = "SELECT pg_advisory_xact_lock_shared(6744205811)"
RECORDS = """CREATE TABLE IF NOT EXISTS orihon_migrations (
    number integer PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now()
)"""
# from the catalogue itself, because `to_regclass` may remember that a table did not exist a moment ago
EXISTS = "SELECT 1 FROM pg_tables WHERE schemaname = ANY(current_schemas(false)) AND tablename = ANY(%s) LIMIT 1"
RECORD_TABLE, OTHER_TABLES = ["orihon_migrations"], ["tasks", "messages"]
VERSION = "SELECT coalesce(max(number), 0) FROM orihon_migrations"

SCHEMA = (
    "SELECT schemaname FROM pg_tables WHERE tablename = 'orihon_migrations' "
    "AND schemaname = ANY(current_schemas(false)) LIMIT 1"
)
REVOKE = "REVOKE ALL ON ALL TABLES IN SCHEMA {schema} FROM {role}"
GRANT_USAGE = "GRANT USAGE ON SCHEMA {schema} TO {role}"
GRANT_READING = "GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}"
GRANT_WORKING = "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}"
REVOKE_AUDIT = "REVOKE ALL ON audit FROM {role}"  # every role may insert, by a grant to PUBLIC
REVOKE_MASK_KEY = "REVOKE ALL ON mask_key FROM {role}"  # a reader masks no ids
DROP_POLICY = "DROP POLICY IF EXISTS {role} ON {table}"
SHOW_ALL = "CREATE POLICY {role} ON {table} TO {role} USING (true)"
SHOW_USER = 'CREATE POLICY {role} ON tasks TO {role} USING ("user" = {user})'


class Migration(NamedTuple):
    """One step from a version to the next."""

    number: int
    name: str
    sql: str


class Migrated(Struct, frozen=True):
    """The migrations that were applied, and the version of the tables afterwards."""

    url: str
    version: int
    applied: list[str]


def bring_up_to_date(url: str, *, role: str | None = None, user: str | None = None) -> Migrated:
    """Bring the tables of a database up to date; grant a role their use, or only the reading of one user's tasks."""
    with closing(Server(url, retry_seconds=0)) as server:
        applied = [f"{migration.number:03} {migration.name}" for migration in migrate(server)]
        if role is not None:
            server.run(lambda connection: grant(connection, role, user), writing=True)
        return Migrated(server.safe_url, read_version(server) or 0, applied)


def load_migrations() -> list[Migration]:
    """Return all migrations, in order."""
    folder = resources.files("orihon.stores.sql").joinpath("postgres")
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    named = [(file.name.removesuffix(".sql").partition("_"), file) for file in files]
    return [Migration(int(number), name, file.read_text(encoding="utf-8")) for (number, _, name), file in named]


def read_version(server: Server) -> int | None:
    """Return the version of the tables; None if there are none."""
    if not server.all(EXISTS, RECORD_TABLE):
        return None
    ((number,),) = server.all(VERSION)
    return int(number)


def require_schema(server: Server) -> None:
    """Create the tables of an empty database; raise SchemaMismatch if they are older or newer than this code."""
    version = read_version(server)
    if version is None:
        migrate(server)
    elif version < load_migrations()[-1].number:
        server.all(WAIT)  # for a migration that is running
    require_tables(server)


def require_tables(server: Server) -> None:
    """Raise SchemaMismatch if a database has no tables, or those of another version."""
    newest, version = load_migrations()[-1].number, read_version(server)
    if version is None:
        raise SchemaMismatch(f"{server.safe_url} has no tables of Orihon.", hint=MIGRATE_HINT)
    if version > newest:
        raise _make_too_new(server, version, newest)
    if version < newest:
        sentence = f"The tables in {server.safe_url} have version {version}; this version of Orihon needs {newest}."
        raise SchemaMismatch(sentence, hint=MIGRATE_HINT)


def migrate(server: Server) -> list[Migration]:
    """Bring the tables up to date; return the migrations that were applied."""
    return server.run(partial(_migrate, server), writing=True)


def _migrate(server: Server, connection: Connection) -> list[Migration]:
    connection.execute(LOCK)
    try:
        return [migration for migration in load_migrations() if _apply(server, migration, connection)]
    finally:
        if not connection.closed:  # closing it released the lock
            connection.execute(UNLOCK)


def _apply(server: Server, migration: Migration, connection: Connection) -> bool:
    """Apply one migration, unless the database has it; return whether it was applied."""
    with connection.transaction():
        if not _has_records(server, connection):
            connection.execute(RECORDS)
        ((version,),) = connection.execute(VERSION)
        newest = load_migrations()[-1].number
        if version > newest:
            raise _make_too_new(server, version, newest)
        if version >= migration.number:
            return False
        connection.execute(migration.sql.encode())
        values = (migration.number, migration.name)
        connection.execute("INSERT INTO orihon_migrations (number, name) VALUES (%s, %s)", values)
        return True


def _has_records(server: Server, connection: Connection) -> bool:
    if connection.execute(EXISTS, (RECORD_TABLE,)).fetchone() is not None:
        return True
    if connection.execute(EXISTS, (OTHER_TABLES,)).fetchone() is not None:
        hint = (
            "Give Orihon its own database or schema: "
            "CREATE SCHEMA orihon, and ?options=-csearch_path%3Dorihon in the URL."
        )
        raise SchemaMismatch(f"{server.safe_url} has tables of another program.", hint=hint)
    return False


def _make_too_new(server: Server, version: int, newest: int) -> SchemaMismatch:
    sentence = f"The tables in {server.safe_url} have version {version}; this version of Orihon knows {newest}."
    return SchemaMismatch(sentence, hint="Use the newer version of Orihon that created them.")


def grant(connection: Connection, role: str, user: str | None) -> None:
    """Replace the rights of a role: it may work on all tasks, or read those of one user."""
    with connection.transaction():
        found = connection.execute(SCHEMA).fetchone()
        names = {
            "schema": sql.Identifier(found[0] if found else "public"),
            "role": sql.Identifier(role),
            "user": sql.Literal(user or ""),
        }
        for table in ("tasks", "blobs", *(table for table, _ in TABLES.values())):
            for statement in (DROP_POLICY, SHOW_ALL) if user is None else (DROP_POLICY,):
                connection.execute(sql.SQL(statement).format(table=sql.Identifier(table), **names))
        rights = (GRANT_WORKING,) if user is None else (GRANT_READING, REVOKE_MASK_KEY, SHOW_USER)
        for statement in (REVOKE, GRANT_USAGE, *rights, REVOKE_AUDIT):
            connection.execute(sql.SQL(statement).format(**names))
