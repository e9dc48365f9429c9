"""The rows of tasks in a SQLite file, and the one place where SQLite's own errors become ours.

A transaction begins IMMEDIATE, so that it waits for its turn at the start and never finds itself locked out half-way.
Waiting is SQLite's own (up to `BUSY_SECONDS`), and a write is tried three times before it is given up, so that
"database is locked" is not something a user ever reads.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from orihon.errors import Conflict, Corrupt, SchemaMismatch, StoreUnavailable
from orihon.records import TaskRow
from orihon.stores.base import Query

SCHEMA_VERSION = 1
BUSY_SECONDS = 30
TRIES = 3
PAGE = 500

T = TypeVar("T")

COLUMNS = tuple(name for name in TaskRow.__struct_fields__ if name != "unknown")


def sql(name: str) -> str:
    """The text of a `.sql` file of this package."""
    return resources.files("orihon.stores.sql").joinpath(f"{name}.sql").read_text(encoding="utf-8")


class Database:
    """One SQLite file, used by one thread at a time."""

    def __init__(self, path: Path, schema: tuple[str, ...], *, durable: bool = False) -> None:
        self.path, self.schema = path, schema
        self.lock = threading.RLock()
        with translated(path):
            _create_private(path)
            self.connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
            self.connection.execute("PRAGMA journal_mode = WAL")
            self.connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            self._migrate()

    def _migrate(self) -> None:
        ((version,),) = self.all("PRAGMA user_version")
        if version > SCHEMA_VERSION:
            raise SchemaMismatch(f"{self.path} has schema {version}; this version of Orihon knows {SCHEMA_VERSION}.")
        if version < SCHEMA_VERSION or not self._has_tasks():
            with self.transaction() as connection:
                for name in self.schema:
                    for statement in sql(name).split(";\n"):
                        connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    def _has_tasks(self) -> bool:
        return bool(self.all("SELECT 1 FROM sqlite_master WHERE name = 'tasks'"))

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All or nothing; any exception rolls back."""
        with self.lock, translated(self.path):
            self._begin()
            try:
                yield self.connection
            except BaseException:
                self.connection.execute("ROLLBACK")
                raise
            self.connection.execute("COMMIT")

    def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do some work in a transaction; three tries, and a table that somebody dropped is made again."""
        for again in reversed(range(TRIES)):
            try:
                with self.transaction() as connection:
                    return work(connection)
            except StoreUnavailable as error:
                if not again:
                    raise
                if "no such table" in error.message:
                    self._migrate()
        raise AssertionError  # the last try returns or raises

    def _begin(self) -> None:
        for again in reversed(range(TRIES)):
            try:
                self.connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                if not again or "locked" not in str(error):
                    raise
                time.sleep(0.05)
            else:
                return

    def all(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        with self.lock, translated(self.path):
            return self.connection.execute(statement, values).fetchall()

    def close(self) -> None:
        """Let the file go."""
        with self.lock:
            self.connection.close()


def _create_private(path: Path) -> None:
    """The file exists with mode 0600 before SQLite sees it; its `-wal` and `-shm` take the mode from it."""
    os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """SQLite's errors in our words."""
    try:
        yield
    except sqlite3.IntegrityError as error:
        raise Conflict(f"{path.name} has this already: {error}.") from error
    except sqlite3.DatabaseError as error:
        text = str(error)
        if "malformed" in text or "not a database" in text:
            raise Corrupt(f"{path} is not a sound SQLite file: {text}.", where=str(path)) from error
        raise StoreUnavailable(f"{path} cannot be used now: {text}.") from error
    except OSError as error:
        raise StoreUnavailable(f"{path} cannot be opened: {error.strerror}.") from error


def insert(connection: sqlite3.Connection, row: TaskRow) -> None:
    """Put a row there, or in place of the one with its uuid."""
    marks = ", ".join("?" * len(COLUMNS))
    values = [getattr(row, name) for name in COLUMNS]
    connection.execute(f"INSERT OR REPLACE INTO tasks ({', '.join(COLUMNS)}) VALUES ({marks})", values)  # noqa: S608


def update(connection: sqlite3.Connection, uuid: str, changes: dict[str, Any], add: dict[str, int]) -> int:
    """Set some columns and add to others; how many rows there were."""
    unknown = (changes.keys() | add.keys()) - set(COLUMNS)
    if unknown:
        raise TypeError(f"a task has no {', '.join(sorted(unknown))}")
    parts = [f"{name} = ?" for name in changes] + [f"{name} = {name} + ?" for name in add]
    values = [*changes.values(), *add.values(), uuid]
    return connection.execute(f"UPDATE tasks SET {', '.join(parts)} WHERE uuid = ?", values).rowcount  # noqa: S608


def find(database: Database, query: Query) -> Iterator[TaskRow]:
    """Rows, the newest first, fetched page by page so that no reader holds the file for long."""
    conditions, values = _conditions(query)
    left = query.limit if query.limit is not None else sys.maxsize
    offset = query.offset
    while left > 0:
        where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
        found = database.all(
            f"SELECT {', '.join(COLUMNS)} FROM tasks {where} "  # noqa: S608 - the names come from the struct
            "ORDER BY created_at DESC, uuid DESC LIMIT ? OFFSET ?",
            *(*values, min(PAGE, left), offset),
        )
        yield from map(row_of, found)
        if len(found) < PAGE:
            return
        left, offset = left - PAGE, 0
        # the next page starts behind the last row, not at a count, because rows may have come in meanwhile
        last = row_of(found[-1])
        conditions, values = _conditions(query)
        conditions.append("(created_at, uuid) < (?, ?)")
        values += [last.created_at, last.uuid]


def row_of(values: tuple[Any, ...]) -> TaskRow:
    """A row as SQLite gives it."""
    fields = dict(zip(COLUMNS, values, strict=True))
    return msgspec.convert({name: value for name, value in fields.items() if value is not None}, TaskRow, strict=False)


def _conditions(query: Query) -> tuple[list[str], list[Any]]:
    conditions: list[str] = []
    values: list[Any] = []
    for condition, value in (
        ("uuid >= ? AND uuid < ?", query.uuid and (query.uuid, query.uuid + "\U0010ffff")),
        ("user = ?", query.user),
        ("task_key = ?", query.key),
        ("created_at >= ?", query.created_from),
        ("created_at <= ?", query.created_to),
        ("completed_at >= ?", query.completed_from),
        (f"status IN ({', '.join('?' * len(query.status))})", query.status or None),
    ):
        if value is not None:
            conditions.append(condition)
            values += value if isinstance(value, tuple) else [value]
    return conditions, values
