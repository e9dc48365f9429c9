"""Rows of the table `tasks`: find, count, sum up, parse and write them.

The queries are the same for SQLite and PostgreSQL, which has a function `julianday` for this. `insert`, `update` and
the table of totals are for SQLite.

A SQLite file keeps its totals by day, user and status in the table `task_totals`, which triggers update: adding up
100,000 rows takes a third of a second and more (docs/adr/0018-totals-kept-by-triggers.md).
"""

from __future__ import annotations

import logging
import sqlite3
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, Protocol

import msgspec

from orihon.errors import Corrupt, UsageError
from orihon.records import TaskRow
from orihon.stores.base import GroupBy, Query, Totals
from orihon.stores.validation import validate_task_id
from orihon.task_key import TaskKey

# ruff: noqa: S608 - the names of tables and columns are those of this package

log = logging.getLogger("orihon")

PAGE_ROWS = 500
DAY_START, DAY_END = "T00:00:00.000000Z", "T23:59:59.999999Z"
ORDERS = {
    "duration": "(julianday(completed_at) - julianday(started_at)) * 86400",
    "tokens": "total_tokens",
    "calls": "llm_call_count",
    "messages": "message_count",
    "size": "size_bytes",
}
# a whole number, so that a trigger can subtract exactly what it added
_MILLISECONDS = "CAST(round((julianday({row}.completed_at) - julianday({row}.started_at)) * 86400000) AS BIGINT)"
FIGURES = {  # columns of `task_totals`; `{row}` is `tasks`, or `old` and `new` in a trigger
    "tasks": "1",
    "messages": "{row}.message_count",
    "tokens": "coalesce({row}.total_tokens, 0)",
    "llm_calls": "coalesce({row}.llm_call_count, 0)",
    "tool_calls": "coalesce({row}.tool_call_count, 0)",
    "compressions": "coalesce({row}.compression_count, 0)",
    "timed": f"CASE WHEN {_MILLISECONDS} IS NULL THEN 0 ELSE 1 END",
    "milliseconds": f"coalesce({_MILLISECONDS}, 0)",
    "size_bytes": "{row}.size_bytes",
    "packed_bytes": "coalesce({row}.packed_bytes, {row}.size_bytes)",
    "summaries": "{row}.summary_count",
    "summary_failures": "{row}.summary_failures",
    "summarised_tokens": "{row}.summarised_tokens",
    "summary_tokens": "{row}.summary_tokens",
    "retention_count": "{row}.retention_count",
    "retention_sum": "{row}.retention_sum",
}
GROUPS = {"day": "substr({row}.created_at, 1, 10)", "user": "coalesce({row}.\"user\", '')", "status": "{row}.status"}
SUMMED_COLUMNS = (  # of `tasks`, which figures and groups are made of
    *("created_at", "user", "status", "started_at", "completed_at", "message_count", "total_tokens", "llm_call_count"),
    *("tool_call_count", "compression_count", "size_bytes", "packed_bytes", "summary_count", "summary_failures"),
    *("summarised_tokens", "summary_tokens", "retention_count", "retention_sum"),
)
# word for word the condition of the index on ended tasks, and in words that fit no other index
ENDED = "status NOT IN ('pending', 'running', 'paused') AND coalesce(completed_at, created_at)"
COLUMNS = tuple(name for name in TaskRow.__struct_fields__ if name != "unknown")
REQUIRED = ("uuid", "task_source", "task_type", "task_id", "task_key", "status", "created_at")
_SAMPLE = dict.fromkeys(REQUIRED, "x") | {"status": "running"}


class Reader(Protocol):
    """A database to query; values replace the `?` of a statement."""

    @property
    def avoid_index(self) -> str:
        """The prefix that keeps a column from being looked up in an index."""

    def all(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""


def quote(name: str) -> str:
    """Quote the name of a column, because `user` is a keyword of SQL."""
    return f'"{name}"'


SELECTED = ", ".join(map(quote, COLUMNS))


# queries


def find(database: Reader, query: Query) -> Iterator[TaskRow]:
    """Return rows in the order of the query, page by page, so that no reader holds the database for long."""
    return _find_newest(database, query) if query.order == "created" else _find_largest(database, query)


def count(database: Reader, query: Query) -> tuple[int, int]:
    """Return the number of rows and the bytes of their tasks, regardless of limit and offset."""
    where, values = _make_where(database, query)
    figures = "count(*), CAST(coalesce(sum(coalesce(packed_bytes, size_bytes)), 0) AS BIGINT)"
    ((tasks, size_bytes),) = database.all(f"SELECT {figures} FROM tasks {where}", *values)
    return tasks, size_bytes


def _find_largest(database: Reader, query: Query) -> Iterator[TaskRow]:
    """Choose the rows from one index, which has everything that is compared, and only then read them."""
    where, values = _make_where(database, query, by_figure=True)
    order = f"ORDER BY {ORDERS[query.order]} DESC NULLS LAST, created_at DESC, uuid DESC"
    chosen = f"SELECT uuid FROM tasks {where} {order} LIMIT ? OFFSET ?"
    statement = f"SELECT {SELECTED} FROM tasks WHERE uuid IN ({chosen}) {order}"
    end = sys.maxsize if query.limit is None else query.offset + query.limit
    for offset in range(query.offset, end, PAGE_ROWS):
        page = database.all(statement, *values, min(PAGE_ROWS, end - offset), offset)
        yield from _parse_rows(page)
        if len(page) < PAGE_ROWS:
            return


def _find_newest(database: Reader, query: Query) -> Iterator[TaskRow]:
    left = query.limit if query.limit is not None else sys.maxsize
    offset, last = query.offset, None
    while left > 0:
        # a page begins behind the last row, not at a count, because rows may have been added meanwhile
        where, values = _make_where(database, query, after=last)
        statement = f"SELECT {SELECTED} FROM tasks {where} ORDER BY created_at DESC, uuid DESC LIMIT ? OFFSET ?"
        page = database.all(statement, *values, min(PAGE_ROWS, left), offset)
        yield from _parse_rows(page)
        if len(page) < PAGE_ROWS:
            return
        left, offset = left - PAGE_ROWS, 0
        last = page[-1][COLUMNS.index("created_at")], page[-1][COLUMNS.index("uuid")]


def _make_where(
    database: Reader, query: Query, *, after: tuple[str, str] | None = None, by_figure: bool = False
) -> tuple[str, list[Any]]:
    """Return the WHERE clause of a query and its values.

    With `by_figure` the index of figures is used, not that of a column whose value many rows share.
    """
    avoid = database.avoid_index if by_figure or query.ended_before is not None else ""
    conditions: list[str] = []
    values: list[Any] = []
    for condition, value in (
        ("uuid >= ? AND uuid < ?", None if query.uuid is None else (query.uuid, query.uuid + "\U0010ffff")),
        (f'{avoid}"user" = ?', query.user),
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
        (f"{avoid}status IN ({', '.join('?' * len(query.status))})", query.status or None),
        ("(created_at, uuid) < (?, ?)", after),
    ):
        if value is not None:
            conditions.append(condition)
            values += value if isinstance(value, tuple) else [value]
    return f"WHERE {' AND '.join(conditions)}" if conditions else "", values


# totals


def read_totals(database: Reader, query: Query, by: GroupBy) -> dict[str, Totals]:
    """Return the sums over the rows of a query, from `task_totals` if the query asks for whole days."""
    days = _get_whole_days(query)
    if days is None:
        return compute_totals(database, query, by)
    sums = ", ".join(f"SUM({name})" for name in FIGURES)
    where, values = _make_where(database, Query(user=query.user, status=query.status))
    where = f"{where} AND" if where else "WHERE"
    statement = f"SELECT {quote(by)}, {sums} FROM task_totals {where} day >= ? AND day <= ? AND tasks > 0 GROUP BY 1"
    return _make_totals(database.all(statement, *values, *days))


def compute_totals(database: Reader, query: Query, by: GroupBy) -> dict[str, Totals]:
    """Return the sums over the rows of a query, by adding up the rows."""
    where, values = _make_where(database, query)
    sums = ", ".join(f"CAST(SUM({figure}) AS BIGINT)" for figure in _fill(FIGURES, "tasks"))
    group = GROUPS[by].format(row="tasks")
    return _make_totals(database.all(f"SELECT {group}, {sums} FROM tasks {where} GROUP BY 1", *values))


def _get_whole_days(query: Query) -> tuple[str, str] | None:
    """Return the first and the last day, if the query names nothing but whole days, user and status."""
    summed = Query(user=query.user, status=query.status, created_from=query.created_from, created_to=query.created_to)
    first, last = query.created_from or f"0000-01-01{DAY_START}", query.created_to or f"9999-12-31{DAY_END}"
    if msgspec.structs.replace(query, order="created", limit=None, offset=0) != summed:
        return None
    return (first[:10], last[:10]) if first.endswith(DAY_START) and last.endswith(DAY_END) else None


def _make_totals(groups: list[tuple[Any, ...]]) -> dict[str, Totals]:
    totals = {}
    for group, *sums in groups:
        figures = dict(zip(FIGURES, sums, strict=True))
        totals[str(group)] = Totals(seconds=figures.pop("milliseconds") / 1000, **figures)
    return totals


def fill_keys(connection: sqlite3.Connection) -> None:
    """Write the task keys of a table that had no column for them."""
    names = ("task_source", "owner", "repo", "task_type", "task_id")
    for uuid, *values in connection.execute(
        f"SELECT uuid, {', '.join(names)} FROM tasks WHERE task_key = ''"
    ).fetchall():
        try:
            key = str(TaskKey(**dict(zip(names, values, strict=True))))
        except UsageError as error:
            log.warning("[uuid:%s] Its task key cannot be read: %s", uuid[:8], error.message)
            key = "/".join(map(str, values))
        connection.execute("UPDATE tasks SET task_key = ? WHERE uuid = ?", (key, uuid))


def create_totals(connection: sqlite3.Connection) -> None:
    """Create the table `task_totals` and its triggers again, and fill the table."""
    connection.execute("DROP TABLE IF EXISTS task_totals")  # of an earlier version it has fewer columns
    columns = ", ".join(f"{name} INTEGER NOT NULL DEFAULT 0" for name in FIGURES)
    connection.execute(
        "CREATE TABLE task_totals (day TEXT NOT NULL, user TEXT NOT NULL, status TEXT NOT NULL, "
        f"{columns}, PRIMARY KEY (day, user, status)) WITHOUT ROWID"
    )
    for name, event, body in (
        ("insert", "INSERT", _add_row("new", "+")),
        ("delete", "DELETE", _add_row("old", "-")),
        ("update", f"UPDATE OF {', '.join(SUMMED_COLUMNS)}", f"{_add_row('old', '-')} {_add_row('new', '+')}"),
    ):
        connection.execute(f"DROP TRIGGER IF EXISTS task_totals_{name}")
        connection.execute(f"CREATE TRIGGER task_totals_{name} AFTER {event} ON tasks BEGIN {body} END")
    names = ", ".join((*GROUPS, *FIGURES))
    selected = ", ".join((*_fill(GROUPS, "tasks"), *(f"SUM({figure})" for figure in _fill(FIGURES, "tasks"))))
    connection.execute(f"INSERT INTO task_totals ({names}) SELECT {selected} FROM tasks GROUP BY 1, 2, 3")


def _add_row(row: str, sign: str) -> str:
    """Return the statements of a trigger that add a row to its totals, or subtract it."""
    day, user, status = _fill(GROUPS, row)
    where = f"day = {day} AND user = {user} AND status = {status}"
    figures = zip(FIGURES, _fill(FIGURES, row), strict=True)
    changes = ", ".join(f"{name} = {name} {sign} {figure}" for name, figure in figures)
    # not INSERT OR IGNORE: in a trigger, the statement that fired it decides how conflicts are resolved
    insert = (
        f"INSERT INTO task_totals (day, user, status) SELECT {day}, {user}, {status} "
        f"WHERE NOT EXISTS (SELECT 1 FROM task_totals WHERE {where});"
    )
    return f"{insert} UPDATE task_totals SET {changes} WHERE {where};"


def _fill(expressions: dict[str, str], row: str) -> list[str]:
    return [expression.format(row=row) for expression in expressions.values()]


# parsing


def parse_row(values: tuple[Any, ...]) -> TaskRow:
    """Return the row of `SELECTED` columns; raise ValidationError if one has a wrong type."""
    return msgspec.convert(_name_values(values), TaskRow, strict=False)


def parse_row_leniently(values: tuple[Any, ...]) -> TaskRow:
    """Return the row; a column that cannot be read gets its default. Raise Corrupt if a required one is broken."""
    try:
        try:
            row = parse_row(values)
        except msgspec.ValidationError as error:
            named = _name_values(values)
            log.warning("[uuid:%.8s] A column of its row cannot be read: %s", named.get("uuid"), error)
            usable = {name: value for name, value in named.items() if name in REQUIRED or _is_valid(name, value)}
            row = msgspec.convert(usable, TaskRow, strict=False)
        validate_task_id(row.uuid)
    except (msgspec.ValidationError, UsageError) as error:
        raise Corrupt(f"The row of a task cannot be read: {error}.") from error
    return row


def _parse_rows(page: Iterable[tuple[Any, ...]]) -> Iterator[TaskRow]:
    """Return the rows that can be read; a broken row must not hide the others."""
    for values in page:
        try:
            yield parse_row_leniently(values)
        except Corrupt as error:
            log.warning("%s It is left out.", error)


def _name_values(values: tuple[Any, ...]) -> dict[str, Any]:
    return {name: value for name, value in zip(COLUMNS, values, strict=True) if value is not None}


def _is_valid(name: str, value: Any) -> bool:
    try:
        msgspec.convert(_SAMPLE | {name: value}, TaskRow, strict=False)
    except msgspec.ValidationError:
        return False
    return True


# writing


def insert(connection: sqlite3.Connection, row: TaskRow) -> None:
    """Insert a row, or replace the one with its uuid."""
    marks = ", ".join("?" * len(COLUMNS))
    changes = ", ".join(f"{name} = excluded.{name}" for name in COLUMNS)
    # not INSERT OR REPLACE, which deletes a row without firing the triggers
    statement = f"INSERT INTO tasks ({SELECTED}) VALUES ({marks}) ON CONFLICT (uuid) DO UPDATE SET {changes}"
    connection.execute(statement, [getattr(row, name) for name in COLUMNS])


@cache
def assign(changes: tuple[str, ...], increments: tuple[str, ...] = ()) -> str:
    """Return the assignments of an UPDATE: columns that are set, then columns that are added to."""
    return ", ".join([f'"{name}" = ?' for name in changes] + [f'"{name}" = "{name}" + ?' for name in increments])
