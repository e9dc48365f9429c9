"""The rows of tasks in a SQLite file."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from typing import Any

import msgspec

from orihon.records import TaskRow
from orihon.stores.base import Query
from orihon.stores.database import Database

PAGE = 500

COLUMNS = tuple(name for name in TaskRow.__struct_fields__ if name != "unknown")


def insert(connection: sqlite3.Connection, row: TaskRow) -> None:
    """Put a row there, or in place of the one with its uuid."""
    marks = ", ".join("?" * len(COLUMNS))
    values = [getattr(row, name) for name in COLUMNS]
    connection.execute(f"INSERT OR REPLACE INTO tasks ({', '.join(COLUMNS)}) VALUES ({marks})", values)  # noqa: S608


def update(
    connection: sqlite3.Connection,
    uuid: str,
    changes: dict[str, Any],
    add: dict[str, int],
    *,
    lease: tuple[int, str] | None = None,
) -> int:
    """Set some columns and add to others, if the lease (fence, owner) is still the one; how many rows it hit."""
    unknown = (changes.keys() | add.keys()) - set(COLUMNS)
    if unknown:
        raise TypeError(f"a task has no {', '.join(sorted(unknown))}")
    parts = [f"{name} = ?" for name in changes] + [f"{name} = {name} + ?" for name in add]
    where = "uuid = ?" if lease is None else "uuid = ? AND fence = ? AND lease_owner = ?"
    values = [*changes.values(), *add.values(), uuid, *(lease or ())]
    return connection.execute(f"UPDATE tasks SET {', '.join(parts)} WHERE {where}", values).rowcount  # noqa: S608


def get(connection: sqlite3.Connection, uuid: str) -> TaskRow:
    """The row of a task, as the transaction sees it."""
    statement = f"SELECT {', '.join(COLUMNS)} FROM tasks WHERE uuid = ?"  # noqa: S608 - the names come from the struct
    return row_of(connection.execute(statement, (uuid,)).fetchone())


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
        ("uuid >= ? AND uuid < ?", None if query.uuid is None else (query.uuid, query.uuid + "\U0010ffff")),
        ("user = ?", query.user),
        ("task_key = ?", query.key),
        ("linked_key = ?", query.linked),
        ("created_at >= ?", query.created_from),
        ("created_at <= ?", query.created_to),
        ("completed_at >= ?", query.completed_from),
        (f"status IN ({', '.join('?' * len(query.status))})", query.status or None),
    ):
        if value is not None:
            conditions.append(condition)
            values += value if isinstance(value, tuple) else [value]
    return conditions, values
