"""The rows of tasks: how they are found in a database, and how they are changed in a SQLite file."""

from __future__ import annotations

import logging
import sqlite3
import sys
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import msgspec

from orihon.errors import Corrupt, UsageError
from orihon.records import TaskRow
from orihon.stores.base import GroupBy, Query, Totals
from orihon.stores.sql import sums
from orihon.stores.validation import validate_task_id

log = logging.getLogger("orihon")

PAGE = 500
DAY_BEGINS, DAY_ENDS = "T00:00:00.000000Z", "T23:59:59.999999Z"
FIRST_DAY, LAST_DAY = f"0000-01-01{DAY_BEGINS}", f"9999-12-31{DAY_ENDS}"
SECONDS = "(julianday(completed_at) - julianday(started_at)) * 86400"
ORDERS = {
    "duration": SECONDS,
    "tokens": "total_tokens",
    "calls": "llm_call_count",
    "messages": "message_count",
    "size": "size_bytes",
}
# word for word as the index has it, and in words that suit no other index
ENDED = "status NOT IN ('pending', 'running', 'paused') AND coalesce(completed_at, created_at)"
COLUMNS = tuple(name for name in TaskRow.__struct_fields__ if name != "unknown")
_KNOWN = frozenset(COLUMNS)
_NEEDED = ("uuid", "task_source", "task_type", "task_id", "task_key", "status", "created_at")
_OPTIONAL = _KNOWN - set(_NEEDED)
_SAMPLE = dict.fromkeys(_NEEDED, "x") | {"status": "running"}


class Reader(Protocol):
    """A database that can be asked; values stand where the statement has a `?`."""

    @property
    def not_by(self) -> str:
        """What keeps it from looking a column up in an index, before the name of the column."""

    def all(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """The rows of a query."""


def quoted(name: str) -> str:
    """The name of a column in SQL, where `user` is a word of its own."""
    return f'"{name}"'


SELECTED = ", ".join(map(quoted, COLUMNS))


def insert(connection: sqlite3.Connection, row: TaskRow) -> None:
    """Put a row there, or in place of the one with its uuid."""
    marks = ", ".join("?" * len(COLUMNS))
    values = [getattr(row, name) for name in COLUMNS]
    changes = ", ".join(f"{name} = excluded.{name}" for name in COLUMNS)
    # not INSERT OR REPLACE, which removes a row without telling the triggers
    statement = f"INSERT INTO tasks ({', '.join(COLUMNS)}) VALUES ({marks}) ON CONFLICT (uuid) DO UPDATE SET {changes}"  # noqa: S608
    connection.execute(statement, values)


def update(
    connection: sqlite3.Connection,
    uuid: str,
    changes: dict[str, Any],
    add: dict[str, int],
    *,
    lease: tuple[int, str] | None = None,
) -> int:
    """Set some columns and add to others, if the lease (fence, owner) is still the one; how many rows it hit."""
    if unknown := (changes.keys() | add.keys()) - _KNOWN:
        raise TypeError(f"a task has no {', '.join(sorted(unknown))}")
    parts = [f"{name} = ?" for name in changes] + [f"{name} = {name} + ?" for name in add]
    where = "uuid = ?" if lease is None else "uuid = ? AND fence = ? AND lease_owner = ?"
    values = [*changes.values(), *add.values(), uuid, *(lease or ())]
    return connection.execute(f"UPDATE tasks SET {', '.join(parts)} WHERE {where}", values).rowcount  # noqa: S608


def get(connection: sqlite3.Connection, uuid: str) -> TaskRow:
    """The row of a task, as the transaction sees it."""
    statement = f"SELECT {', '.join(COLUMNS)} FROM tasks WHERE uuid = ?"  # noqa: S608 - the names come from the struct
    return usable_row(connection.execute(statement, (uuid,)).fetchone())


def find(database: Reader, query: Query) -> Iterator[TaskRow]:
    """Rows in their order, fetched page by page so that no reader holds the database for long."""
    return _newest(database, query) if query.order == "created" else _largest(database, query)


def kept_totals(database: Reader, query: Query, by: GroupBy) -> dict[str, Totals]:
    """What the rows add up to, where a table keeps their sums; it answers if the query asks for whole days."""
    days = _days(query)
    if days is None:
        return totals(database, query, by)
    names = ", ".join(f"SUM({name})" for name in sums.FIGURES)
    conditions, values = _conditions(database, Query(user=query.user, status=query.status))
    conditions += ["day >= ?", "day <= ?", "tasks > 0"]
    where = f"WHERE {' AND '.join(conditions)}"
    statement = f"SELECT {quoted(by)}, {names} FROM task_totals {where} GROUP BY 1"  # noqa: S608
    return _totals(database.all(statement, *values, *days))


def totals(database: Reader, query: Query, by: GroupBy) -> dict[str, Totals]:
    """What the rows add up to, one by one."""
    conditions, values = _conditions(database, query)
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    figures = ", ".join(f"CAST(SUM({figure.format(row='tasks')}) AS BIGINT)" for figure in sums.FIGURES.values())
    group = sums.GROUPS[by].format(row="tasks")
    return _totals(database.all(f"SELECT {group}, {figures} FROM tasks {where} GROUP BY 1", *values))  # noqa: S608


def _days(query: Query) -> tuple[str, str] | None:
    """The first and the last day, if there is nothing else to the query than whole days, user and status."""
    asked = Query(user=query.user, status=query.status, created_from=query.created_from, created_to=query.created_to)
    first, last = query.created_from or FIRST_DAY, query.created_to or LAST_DAY
    plain = msgspec.structs.replace(query, order="created", limit=None, offset=0) == asked
    return (first[:10], last[:10]) if plain and first.endswith(DAY_BEGINS) and last.endswith(DAY_ENDS) else None


def _totals(found: list[tuple[Any, ...]]) -> dict[str, Totals]:
    made = {}
    for group, *figures in found:
        fields = dict(zip(sums.FIGURES, figures, strict=True))
        made[str(group)] = Totals(seconds=fields.pop("milliseconds") / 1000, **fields)
    return made


def _largest(database: Reader, query: Query) -> Iterator[TaskRow]:
    """Chosen from one index, which has all that is compared, and only then read."""
    conditions, values = _conditions(database, query, by_figure=True)
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    order = f"ORDER BY {ORDERS[query.order]} DESC NULLS LAST, created_at DESC, uuid DESC"
    chosen = f"SELECT uuid FROM tasks {where} {order} LIMIT ? OFFSET ?"  # noqa: S608
    end = sys.maxsize if query.limit is None else query.offset + query.limit
    for offset in range(query.offset, end, PAGE):
        statement = f"SELECT {SELECTED} FROM tasks WHERE uuid IN ({chosen}) {order}"  # noqa: S608
        found = database.all(statement, *values, min(PAGE, end - offset), offset)
        yield from _readable(found)
        if len(found) < PAGE:
            return


def _newest(database: Reader, query: Query) -> Iterator[TaskRow]:
    conditions, values = _conditions(database, query)
    left = query.limit if query.limit is not None else sys.maxsize
    offset = query.offset
    while left > 0:
        where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
        found = database.all(
            f"SELECT {SELECTED} FROM tasks {where} "  # noqa: S608 - the names come from the struct
            "ORDER BY created_at DESC, uuid DESC LIMIT ? OFFSET ?",
            *(*values, min(PAGE, left), offset),
        )
        yield from _readable(found)
        if len(found) < PAGE:
            return
        left, offset = left - PAGE, 0
        # the next page starts behind the last row, not at a count, because rows may have come in meanwhile
        conditions, values = _conditions(database, query)
        conditions.append("(created_at, uuid) < (?, ?)")
        values += [found[-1][COLUMNS.index("created_at")], found[-1][COLUMNS.index("uuid")]]


def count(database: Reader, query: Query) -> tuple[int, int]:
    """How many rows there are, and the bytes of their tasks; limit and offset do not count."""
    conditions, values = _conditions(database, query)
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    figures = "count(*), CAST(coalesce(sum(coalesce(packed_bytes, size_bytes)), 0) AS BIGINT)"
    ((found, size_bytes),) = database.all(f"SELECT {figures} FROM tasks {where}", *values)  # noqa: S608
    return found, size_bytes


def row_of(values: tuple[Any, ...]) -> TaskRow:
    """A row as the database gives it; ValidationError when a column holds what it cannot."""
    return msgspec.convert(_given(values), TaskRow, strict=False)


def usable_row(values: tuple[Any, ...]) -> TaskRow:
    """A row; a column that cannot be read has its default. Corrupt when there is no task without it."""
    try:
        row = _row_or_most_of_it(values)
        validate_task_id(row.uuid)
    except (msgspec.ValidationError, UsageError) as error:
        raise Corrupt(f"The row of a task cannot be read: {error}.") from error
    return row


def _row_or_most_of_it(values: tuple[Any, ...]) -> TaskRow:
    try:
        return row_of(values)
    except msgspec.ValidationError as error:
        given = _given(values)
        log.warning("[uuid:%.8s] A column of its row is not read: %s", given.get("uuid"), error)
    usable = {name: value for name, value in given.items() if name not in _OPTIONAL or _fits(name, value)}
    return msgspec.convert(usable, TaskRow, strict=False)


def _given(values: tuple[Any, ...]) -> dict[str, Any]:
    return {name: value for name, value in zip(COLUMNS, values, strict=True) if value is not None}


def _fits(name: str, value: Any) -> bool:
    try:
        msgspec.convert(_SAMPLE | {name: value}, TaskRow, strict=False)
    except msgspec.ValidationError:
        return False
    return True


def _readable(found: Iterable[tuple[Any, ...]]) -> Iterator[TaskRow]:
    """The rows that can be read; one broken row must not hide the others."""
    for values in found:
        try:
            yield usable_row(values)
        except Corrupt as error:
            log.warning("%s It is left out.", error)


def _conditions(database: Reader, query: Query, *, by_figure: bool = False) -> tuple[list[str], list[Any]]:
    """What must hold; where there is an index of its own, that of a column which most rows share is not taken."""
    index = database.not_by if by_figure or query.ended_before is not None else ""
    conditions: list[str] = []
    values: list[Any] = []
    for condition, value in (
        ("uuid >= ? AND uuid < ?", None if query.uuid is None else (query.uuid, query.uuid + "\U0010ffff")),
        (f'{index}"user" = ?', query.user),
        ("task_key = ?", query.key),
        ("linked_key = ?", query.linked),
        ("created_at >= ?", query.created_from),
        ("created_at <= ?", query.created_to),
        ("completed_at >= ?", query.completed_from),
        (f"{ENDED} >= ?", query.ended_from),
        (f"{ENDED} < ?", query.ended_before),
        ("reason = ?", query.reason),
        ("kept = ?", query.kept),
        (f"archived IN ({', '.join('?' * len(query.archived))})", query.archived or None),
        (f"{index}status IN ({', '.join('?' * len(query.status))})", query.status or None),
    ):
        if value is not None:
            conditions.append(condition)
            values += value if isinstance(value, tuple) else [value]
    return conditions, values
