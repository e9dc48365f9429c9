"""Keeps the index up to date: finds tasks that may have changed, and reads their new records.

Changed tasks are marked as waiting in the index itself and read one after the other, each from the last indexed record
on. The work can stop at any time. It takes no lease and delays no writer; memory does not depend on the size of the
store.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from heapq import merge
from itertools import groupby, islice
from operator import itemgetter
from typing import Any

from orihon.codec import format_time
from orihon.errors import Corrupt, NotFound, StoreUnavailable
from orihon.ops.blobs import load_blobs
from orihon.ops.progress import OnProgress, ProgressCounter
from orihon.ops.search.index import Document, Index, add_document, index_path, make_tags, with_index
from orihon.records import Message, Summary
from orihon.stores import is_postgres
from orihon.stores.base import Store
from orihon.stores.files import Refused
from orihon.stores.sql.rows import ENDED, Reader

MAX_CHARS = 1_000_000  # of one text; the rest is not indexed
BATCH_CHARS = 1_000_000  # in one transaction
BATCH_TASKS = 200
PAGE = 1000
CLOCK_MARGIN = timedelta(seconds=60)  # by which the clocks of machines may differ

# a value that changes when a task is added or removed, answered by an index
_STATE = "SELECT count(*), ifnull(max(rowid), 0), ifnull(sum(rowid), 0) FROM tasks"
_STATE_POSTGRES = "SELECT count(*), sum(('x' || left(md5(uuid), 8))::bit(32)::bigint)::text FROM tasks"
_COLUMNS = 'uuid, "user", task_key, status, created_at'
# tasks that ended, that run, or that were touched while waiting; each condition is answered by an index
CHANGED = f"""
SELECT {_COLUMNS} FROM tasks WHERE uuid > ? AND uuid IN (
    SELECT uuid FROM tasks WHERE {ENDED} >= ?
    UNION SELECT uuid FROM tasks WHERE status = 'running'
    UNION SELECT uuid FROM tasks WHERE status IN ('pending', 'paused') AND updated_at >= ?
) ORDER BY uuid LIMIT ?
"""  # noqa: S608 - the names are constants
_UUIDS = "SELECT uuid FROM tasks WHERE uuid > ? ORDER BY uuid LIMIT ?"
_INSERT = f"INSERT INTO tasks ({_COLUMNS}) VALUES (?, ?, ?, ?, ?)"  # noqa: S608
_MARK_WAITING = "UPDATE tasks SET status = ?, waits = 1 WHERE uuid = ?"
_WAITING = "SELECT id, uuid, user, task_key, messages, summaries FROM tasks WHERE waits ORDER BY created_at LIMIT ?"
_MARK_READ = "UPDATE tasks SET messages = ?, summaries = ?, waits = 0 WHERE id = ?"

Row = tuple[Any, ...]
WaitingTask = tuple[int, str, str | None, str, int, int]


def update_index(store: Store, seconds: float) -> bool:
    """Update the index of a store for a limited time, and return whether it is complete."""
    if index_path(store) is None:
        return True
    return with_index(store, lambda index: fill_index(store, index, seconds=seconds))


def purge(store: Store) -> None:
    """Remove deleted tasks from the index, so that none of their words is left in the file."""
    path = index_path(store)
    if path is not None and path.exists():
        with_index(store, lambda index: _purge(store, index))


def _purge(store: Store, index: Index) -> None:
    with index.lock() as is_locked:
        if is_locked:
            _find_changes(store, index)
            index.optimise()


def fill_index(store: Store, index: Index, *, seconds: float | None = None, on_progress: OnProgress = None) -> bool:
    """Update an index and return whether it is complete. Return False at once if another process is updating it."""
    deadline = None if seconds is None else time.monotonic() + seconds
    progress = ProgressCounter(on_progress)
    with index.lock() as is_locked:
        if not is_locked:
            return False
        _find_changes(store, index)
        ((progress.total,),) = index.database.all("SELECT count(*) FROM tasks WHERE waits")
        while waiting := index.database.all(_WAITING, BATCH_TASKS):
            while waiting:
                _read_batch(store, index, waiting, progress)
                if deadline is not None and time.monotonic() > deadline:
                    return not index.database.all(_WAITING, 1)
        return True


# reading the tasks that wait


def _read_batch(store: Store, index: Index, waiting: list[WaitingTask], progress: ProgressCounter) -> None:
    """Index tasks from the front of the list, as many as make a transaction of a good size."""
    deleted: list[str] = []

    def read(connection: sqlite3.Connection) -> None:
        chars = 0
        while waiting and chars < BATCH_CHARS:
            task, uuid, user, key, messages, summaries = waiting.pop(0)
            try:
                for document in _iter_documents(store, uuid, messages, summaries):
                    add_document(connection, task, make_tags(user, key), document)
                    if document.kind == "summary":
                        summaries = document.number
                    else:
                        messages = document.number
                    chars += len(document.text)
                    progress.add(records=1, size_bytes=len(document.text))
            except NotFound:
                deleted.append(uuid)
            except (Corrupt, Refused, StoreUnavailable):
                pass  # what could be read is indexed
            connection.execute(_MARK_READ, (messages, summaries, task))
            progress.add(tasks=1)

    index.database.transact(read, size_bytes=4 * BATCH_CHARS)
    for uuid in deleted:
        index.remove_task(uuid)


def _iter_documents(store: Store, uuid: str, messages: int, summaries: int) -> Iterator[Document]:
    """Yield the texts of a task that are not indexed yet: summaries, messages, and the calls of messages."""
    for summary in store.read(uuid, Summary, first=summaries + 1):
        yield Document("summary", summary.id, summary.summary[:MAX_CHARS])
    for message in store.read(uuid, Message, first=messages + 1):
        with suppress(NotFound, Corrupt, StoreUnavailable):  # a lost blob: the line has the beginning of the text
            message = load_blobs(store, uuid, message)  # noqa: PLW2901
        texts = [message.text, *(f"{call.name} {call.arguments}" for call in message.tool_calls)]
        yield Document(message.role, message.seq, "\n".join(texts).strip()[:MAX_CHARS])


# finding the tasks that may have changed


def _find_changes(store: Store, index: Index) -> None:
    """Mark the tasks that may have new records, and remove those that were deleted."""
    database: Reader | None = getattr(store, "reader", None) or getattr(store, "database", None)
    if database is None:
        _compare_all_rows(store, index)
        return
    began = datetime.now(UTC)
    (present,) = database.all(_STATE_POSTGRES if is_postgres(store.url) else _STATE)
    state = " ".join(map(str, present))
    if state != index.meta("state"):  # a task was added or removed; a copied one may have an old date
        _compare_uuids(database, index)
    running = [uuid for (uuid,) in index.database.all("SELECT uuid FROM tasks WHERE status = 'running'")]
    for start in range(0, len(running), PAGE):  # they may have written something before they ended
        _mark_waiting(index, _read_rows(database, running[start : start + PAGE]))
    since, last = index.meta("since"), ""
    while since and (page := database.all(CHANGED, last, since, since, PAGE)):
        last = page[-1][0]
        _mark_waiting(index, page)
    index.set_meta(state=state, since=format_time(began - CLOCK_MARGIN))


def _compare_all_rows(store: Store, index: Index) -> None:
    """Mark all tasks, for a store that has no database to query."""
    rows = store.find()
    present: set[str] = set()
    while page := [(row.uuid, row.user, row.task_key, row.status, row.created_at) for row in islice(rows, PAGE)]:
        _mark_waiting(index, page)
        present.update(row[0] for row in page)
    for uuid in [uuid for uuid in _iter_uuids(index.database) if uuid not in present]:
        index.remove_task(uuid)


def _compare_uuids(database: Reader, index: Index) -> None:
    """Mark tasks that only the store has, and remove those that only the index has."""
    in_store = ((uuid, "store") for uuid in _iter_uuids(database))
    in_index = ((uuid, "index") for uuid in _iter_uuids(index.database))
    added: list[str] = []
    deleted: list[str] = []
    for uuid, group in groupby(merge(in_store, in_index), key=itemgetter(0)):
        sides = [side for _, side in group]
        if sides == ["store"]:
            added.append(uuid)
        elif sides == ["index"]:
            deleted.append(uuid)
        if len(added) == PAGE:
            _mark_waiting(index, _read_rows(database, added))
            added = []
    _mark_waiting(index, _read_rows(database, added))
    for uuid in deleted:
        index.remove_task(uuid)


def _read_rows(database: Reader, uuids: list[str]) -> list[Row]:
    marks = ", ".join("?" * len(uuids))
    return database.all(f"SELECT {_COLUMNS} FROM tasks WHERE uuid IN ({marks})", *uuids) if uuids else []  # noqa: S608


def _iter_uuids(database: Any) -> Iterator[str]:
    page: list[Row] = [("",)]
    while page := database.all(_UUIDS, page[-1][0], PAGE):
        yield from (uuid for (uuid,) in page)


def _mark_waiting(index: Index, rows: Iterable[Row]) -> None:
    """Mark tasks as waiting. A task that was created again with the id of a deleted one is a new task."""
    pairs = [(row, index.database.all("SELECT created_at FROM tasks WHERE uuid = ?", row[0])) for row in rows]
    for (uuid, *_, created_at), known in pairs:
        if known and known != [(created_at,)]:
            index.remove_task(uuid)
            known.clear()

    def write(connection: sqlite3.Connection) -> None:
        connection.executemany(_INSERT, [row for row, known in pairs if not known])
        connection.executemany(_MARK_WAITING, [(row[3], row[0]) for row, known in pairs if known])

    index.database.transact(write)
