"""Which tasks may have something that the index does not know, and which are gone; the former wait in the index."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

from orihon.ops.search.index import Index
from orihon.ops.search.place import database_of
from orihon.stores import is_postgres
from orihon.stores.base import Store
from orihon.stores.sql.rows import ENDED, Reader

PAGE = 1000
MARGIN = timedelta(seconds=60)  # by which clocks may differ

# another figure when a task came or went; an index answers it
_STATE = "SELECT count(*), ifnull(max(rowid), 0), ifnull(sum(rowid), 0) FROM tasks"
_STATE_WITHOUT_ROWIDS = "SELECT count(*), sum(('x' || left(md5(uuid), 8))::bit(32)::bigint)::text FROM tasks"
_COLUMNS = 'uuid, "user", task_key, status, created_at'
# what ended meanwhile, what runs, and what was touched while it waits: each of them is found through an index
CHANGED = f"""
SELECT {_COLUMNS} FROM tasks WHERE uuid > ? AND uuid IN (
    SELECT uuid FROM tasks WHERE {ENDED} >= ?
    UNION SELECT uuid FROM tasks WHERE status = 'running'
    UNION SELECT uuid FROM tasks WHERE status IN ('pending', 'paused') AND updated_at >= ?
) ORDER BY uuid LIMIT ?
"""  # noqa: S608 - names from above
_UUIDS = "SELECT uuid FROM tasks WHERE uuid > ? ORDER BY uuid LIMIT ?"
_NEW = f"INSERT INTO tasks ({_COLUMNS}) VALUES (?, ?, ?, ?, ?)"  # noqa: S608
_AGAIN = "UPDATE tasks SET status = ?, waits = 1 WHERE uuid = ?"

Row = tuple[Any, ...]
All = Callable[..., list[tuple[Any, ...]]]


def look(store: Store, index: Index) -> None:
    """Let those tasks wait that may have something new, and let go of those that are gone."""
    database = database_of(store)
    if database is None:
        _look_at_all(store, index)
        return
    began = datetime.now(UTC)
    (present,) = database.all(_STATE_WITHOUT_ROWIDS if is_postgres(store.url) else _STATE)
    state = " ".join(map(str, present))
    if state != index.meta("state"):  # a task came or went; one that was copied here may bring an old date with it
        _compare(database, index)
    ran = [uuid for (uuid,) in index.database.all("SELECT uuid FROM tasks WHERE status = 'running'")]
    for place in range(0, len(ran), PAGE):  # whatever became of them, they may have said something before
        _await(index, _rows(database, ran[place : place + PAGE]))
    since, last = index.meta("since"), ""
    while since and (page := database.all(CHANGED, last, since, since, PAGE)):
        last = page[-1][0]
        _await(index, page)
    index.note(state=state, since=(began - MARGIN).isoformat(timespec="microseconds")[:-6] + "Z")


def _look_at_all(store: Store, index: Index) -> None:
    """The slow way, row by row, for a store whose rows are not in a file of ours."""
    rows = store.find()
    seen: set[str] = set()
    while page := [(row.uuid, row.user, row.task_key, row.status, row.created_at) for row in islice(rows, PAGE)]:
        _await(index, page)
        seen.update(row[0] for row in page)
    for uuid in [uuid for uuid in _uuids(index.database.all) if uuid not in seen]:
        index.forget(uuid)


def _compare(database: Reader, index: Index) -> None:
    """Go through all ids of both in their order: what only the store has is new, what only the index has is gone."""
    theirs, ours = _uuids(database.all), _uuids(index.database.all)
    there, here = next(theirs, None), next(ours, None)
    gone: list[str] = []
    new: list[str] = []
    while there is not None or here is not None:
        if there is not None and (here is None or there < here):
            new.append(there)
            there = next(theirs, None)
        elif here is not None and (there is None or here < there):
            gone.append(here)
            here = next(ours, None)
        else:
            there, here = next(theirs, None), next(ours, None)
        if len(new) >= PAGE or (new and there is None):
            _await(index, _rows(database, new))
            new = []
    for uuid in gone:
        index.forget(uuid)


def _rows(database: Reader, uuids: list[str]) -> list[Row]:
    marks = ", ".join("?" * len(uuids))
    return database.all(f"SELECT {_COLUMNS} FROM tasks WHERE uuid IN ({marks})", *uuids)  # noqa: S608


def _uuids(ask: All) -> Iterator[str]:
    page: list[tuple[Any, ...]] = [("",)]
    while page := ask(_UUIDS, page[-1][0], PAGE):
        yield from (uuid for (uuid,) in page)


def _await(index: Index, rows: Iterable[Row]) -> None:
    """These are to be read; a task that was made again under the id of another is a new one."""
    pairs = [(row, index.database.all("SELECT created_at FROM tasks WHERE uuid = ?", row[0])) for row in rows]
    for (uuid, *_, created_at), known in pairs:
        if known and known != [(created_at,)]:
            index.forget(uuid)
            known.clear()

    def note(connection: sqlite3.Connection) -> None:
        connection.executemany(_NEW, [row for row, known in pairs if not known])
        connection.executemany(_AGAIN, [(row[3], row[0]) for row, known in pairs if known])

    index.database.transact(note)
