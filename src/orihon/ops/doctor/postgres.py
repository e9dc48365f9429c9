"""A store in a PostgreSQL database, looked at as a whole: as it was at one moment, whoever works on it meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from typing import Any

import msgspec
from psycopg import IsolationLevel

from orihon.errors import LeaseHeld, OrihonError
from orihon.ops.doctor.database import (
    BARE,
    being_deleted,
    copies_of,
    look_at_blobs,
    look_at_lines,
    orphans_in,
    without_a_task,
    without_metadata,
)
from orihon.ops.doctor.finding import Finding, mended, not_too_many, note, problem
from orihon.ops.progress import ProgressCounter
from orihon.records import Record
from orihon.stores.base import LISTS
from orihon.stores.sql import rows
from orihon.stores.sql.migrations import require_tables
from orihon.stores.sql.postgres import LET_GO
from orihon.stores.sql.postgres_pool import Connection, Server
from orihon.stores.sql.postgres_queue import died_here
from orihon.stores.sql.store import TABLES, Holder, holder_of
from orihon.stores.sql.sweeping import LEFT

# ruff: noqa: S608 - the statements are put together from the names of tables and columns that stand in the code
UNSAFE = ("fsync", "full_page_writes", "synchronous_commit")
HELD = "SELECT uuid, lease_owner FROM tasks WHERE lease_owner IS NOT NULL"
HAS_BLOB = "SELECT 1 FROM blobs WHERE uuid = %s AND sha256 = %s"

_numbers = count()


def examine_postgres(url: str, progress: ProgressCounter, *, fix: bool) -> Iterator[Finding]:
    """Look at everything; with `fix`, let go of the leases of the dead."""
    started = time.monotonic()
    with closing(Server(url, patience_seconds=0)) as server:
        try:
            require_tables(server)
        except OrihonError as error:
            yield problem(server.shown, f"{error.message} {error.hint}")
            return
        yield from _settings(server)
        found = [note(f"task {uuid}", _gone(holder), fixable=True) for uuid, holder, _ in _dead(server)]
        yield from mended(found, lambda: _let_go(server), list) if fix else found
        with closing(server.connect()) as connection:
            yield from _look(connection, progress)
        yield Finding("ok", server.shown, f"Looked at {progress} in {time.monotonic() - started:.1f} seconds.")


def _settings(server: Server) -> Iterator[Finding]:
    statement = "SELECT name, setting FROM pg_settings WHERE name = ANY(%s) AND setting = 'off'"
    for name, setting in server.all(statement, list(UNSAFE)):
        yield note(server.shown, f"`{name}` is {setting} on this server: a crash of it can take back what was stored.")


def _gone(holder: Holder) -> str:
    return f"Its holder, {holder}, is gone without giving the lease back."


def _dead(server: Server) -> Iterator[tuple[str, Holder, str]]:
    """Leases whose holder certainly does not run any more; of other machines that is not known."""
    for uuid, owner in server.all(HELD):
        try:
            holder = holder_of(uuid, owner)
        except LeaseHeld:
            continue  # written by hand; it expires
        if died_here(uuid, owner):
            yield uuid, holder, owner


def _let_go(server: Server) -> None:
    for uuid, _, owner in _dead(server):
        server.change(LET_GO, uuid, owner)


def _look(connection: Connection, progress: ProgressCounter) -> Iterator[Finding]:
    connection.isolation_level = IsolationLevel.REPEATABLE_READ  # all of it as it is now, like `pg_dump`
    connection.read_only = True
    with connection.transaction():
        for values in _each(connection, f"SELECT {rows.SELECTED} FROM tasks"):
            progress.add(tasks=1)
            try:
                rows.row_of(values)
            except msgspec.ValidationError as error:
                yield problem(f"task {values[0]}", f"Its row makes no sense: {error}. Its lists are still there.")
        for kind, (name, _) in LISTS.items():
            yield from not_too_many(name, _list(connection, kind, name, progress))
            yield from without_a_task(_each(connection, orphans_in(TABLES[name][0])), TABLES[name][0])
        blobs = _each(connection, "SELECT uuid, sha256, data FROM blobs", at_once=1)
        yield from not_too_many("blobs", look_at_blobs(blobs, progress))
        yield from without_a_task(_each(connection, orphans_in("blobs")), "blobs")
        yield from being_deleted(_each(connection, LEFT))
        yield from without_metadata(_each(connection, BARE))


def _list(connection: Connection, kind: type[Record], name: str, progress: ProgressCounter) -> Iterator[Finding]:
    table, number = TABLES[name]
    chosen = ", ".join(("uuid", number, "line", *copies_of(kind)))

    def has_blob(uuid: str, sha256: str) -> bool:
        return connection.execute(HAS_BLOB, (uuid, sha256)).fetchone() is not None

    yield from look_at_lines(kind, _each(connection, f"SELECT {chosen} FROM {table}"), has_blob, progress)


def _each(connection: Connection, statement: str, at_once: int = 200) -> Iterator[tuple[Any, ...]]:
    """The rows of a query, a few at a time."""
    with connection.cursor(name=f"look_{next(_numbers)}", binary=True) as cursor:
        cursor.itersize = at_once
        cursor.execute(statement.encode())
        yield from cursor
