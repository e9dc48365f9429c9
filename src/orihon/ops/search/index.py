"""The index file `search.db`: the words of every message and summary, and how it is kept up to date.

The file is next to the store, is private to its owner and holds nothing that the store does not hold. Writers of tasks
never open it. It can be deleted at any time; a broken one, or one of another version, is recreated.

The compressed texts are stored with the words: they are needed to show matches, and to remove the words of a deleted
task. Every document is also tagged with the user and the key of its task, so that tasks which the caller may not see
are excluded inside the query and influence no figure.

To update it, tasks that may have changed are marked as waiting in the index itself and read one after the other, each
from the last indexed record on. The work can stop at any time. It takes no lease and delays no writer; memory does not
depend on the size of the store.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import sqlite3
import tempfile
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from heapq import merge
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from orihon.codec import format_time
from orihon.errors import Corrupt, NotFound, StoreError, StoreUnavailable
from orihon.ops.blobs import load_blobs
from orihon.ops.progress import OnProgress, ProgressCounter
from orihon.ops.search.tokenize import split_words
from orihon.records import Message, Summary
from orihon.stores import is_postgres
from orihon.stores.base import Store
from orihon.stores.files import Refused, disk_errors, open_file
from orihon.stores.sql.database import Database
from orihon.stores.sql.rows import ENDED, Reader

VERSION = "1"
KINDS = ("system", "user", "assistant", "tool", "summary")

_SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE tasks (
    id INTEGER PRIMARY KEY,
    uuid TEXT NOT NULL UNIQUE,
    user TEXT,
    task_key TEXT NOT NULL,
    status TEXT NOT NULL,
    created_at TEXT NOT NULL,
    messages INTEGER NOT NULL DEFAULT 0,
    summaries INTEGER NOT NULL DEFAULT 0,
    waits INTEGER NOT NULL DEFAULT 1
);
CREATE INDEX waiting ON tasks(created_at) WHERE waits;
CREATE TABLE docs (
    id INTEGER PRIMARY KEY, task INTEGER NOT NULL, kind INTEGER NOT NULL, number INTEGER NOT NULL, text BLOB NOT NULL
);
CREATE INDEX by_task ON docs(task);
CREATE VIRTUAL TABLE words USING fts5(who, body, content='', columnsize=0, tokenize='ascii')
"""
_DELETE = "INSERT INTO words (words, rowid, who, body) VALUES ('delete', ?, ?, ?)"

MAX_CHARS = 1_000_000  # of one text; the rest is not indexed
BATCH_CHARS = 1_000_000  # in one transaction
BATCH_TASKS = 200
PAGE = 1000
CLOCK_MARGIN = timedelta(seconds=60)  # by which the clocks of machines may differ

# a value that changes when a task is added or removed, answered by an index
_STATE = "SELECT count(*), ifnull(max(rowid), 0), ifnull(sum(rowid), 0) FROM tasks"
_STATE_POSTGRES = "SELECT count(*), sum(('x' || left(md5(uuid), 8))::bit(32)::bigint)::text FROM tasks"
_NAMES = ("uuid", "user", "task_key", "status", "created_at")
_COLUMNS = ", ".join(f'"{name}"' for name in _NAMES)
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

T = TypeVar("T")
Row = tuple[Any, ...]
WaitingTask = tuple[int, str, str | None, str, int, int]


class Document(NamedTuple):
    """The text of a message or a summary."""

    kind: str
    number: int
    text: str


class Index:
    """The index of one store."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.database = _open(path)

    def close(self) -> None:
        """Close the file."""
        self.database.close()

    @contextmanager
    def lock(self) -> Iterator[bool]:
        """Try to become the only writer of the index; yield False at once if another process is."""
        with disk_errors(f"{self.path} cannot be locked"):
            fd = open_file(self.path.with_name(f"{self.path.name}-lock"), os.O_CREAT | os.O_RDWR)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True
        finally:
            os.close(fd)

    def meta(self, name: str) -> str:
        """Return a value about the whole index; empty if there is none."""
        found = self.database.all("SELECT value FROM meta WHERE name = ?", name)
        return str(found[0][0]) if found else ""

    def set_meta(self, **values: str) -> None:
        """Store values about the whole index."""
        statement = "INSERT OR REPLACE INTO meta VALUES (?, ?)"
        self.database.transact(lambda connection: connection.executemany(statement, values.items()))

    def remove_task(self, uuid: str) -> None:
        """Remove a task with all its words."""
        for task, user, key in self.database.all("SELECT id, user, task_key FROM tasks WHERE uuid = ?", uuid):
            self.database.transact(partial(_remove_task, task, _make_tags(user, key)))

    def optimise(self) -> None:
        """Rewrite the words, so that none of the removed ones is left in the file."""
        self.database.change("INSERT INTO words (words) VALUES ('optimize')")


def _add_document(connection: sqlite3.Connection, task: int, tags: str, document: Document) -> None:
    """Add the text of a message or a summary."""
    packed = zlib.compress(document.text.encode("utf-8", "replace"), 1)
    values = (task, KINDS.index(document.kind), document.number, packed)
    row_id = connection.execute("INSERT INTO docs (task, kind, number, text) VALUES (?, ?, ?, ?)", values).lastrowid
    body = " ".join(split_words(document.text))
    connection.execute("INSERT INTO words (rowid, who, body) VALUES (?, ?, ?)", (row_id, tags, body))


def _remove_task(task: int, tags: str, connection: sqlite3.Connection) -> None:
    documents = connection.execute("SELECT id, text FROM docs WHERE task = ?", (task,)).fetchall()
    words = ((row_id, tags, " ".join(split_words(unpack_text(packed)))) for row_id, packed in documents)
    connection.executemany(_DELETE, words)
    connection.execute("DELETE FROM docs WHERE task = ?", (task,))
    connection.execute("DELETE FROM tasks WHERE id = ?", (task,))


def unpack_text(packed: bytes) -> str:
    """Return the text of a document."""
    return zlib.decompress(packed).decode("utf-8", "replace")


def _make_tags(user: str | None, key: str) -> str:
    """Return the words by which the documents of a user and a key are found."""
    return f"{make_tag('u', user or '')} {make_tag('k', key)}"


def make_tag(kind: Literal["u", "k"], text: str) -> str:
    """Return the word for a user or for a task key."""
    return kind + hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:20]


def index_path(store: Store) -> Path | None:
    """Return the path of the index of a store; None if the store is in memory."""
    return store.sidecar_path("search.db")


def with_index(store: Store, work: Callable[[Index], T]) -> T:
    """Call `work` with the index of a store, for a store in memory with a temporary one.

    An index that turns out to be broken is recreated once.
    """
    path = index_path(store)
    if path is None:
        with tempfile.TemporaryDirectory() as folder, closing(Index(Path(folder) / "search.db")) as index:
            return work(index)
    try:
        with closing(Index(path)) as index:
            return work(index)
    except (Corrupt, zlib.error) as error:
        if isinstance(error, Corrupt) and error.where != str(path):
            raise  # the store itself is corrupt
    remove_index(path)
    with closing(Index(path)) as index:
        return work(index)


def remove_index(path: Path) -> None:
    """Delete the index file."""
    for ending in ("", "-wal", "-shm"):
        path.with_name(path.name + ending).unlink(missing_ok=True)


def _open(path: Path) -> Database:
    """Open the file, and recreate it if it is broken or of another version."""
    with suppress(StoreError):
        return _open_sound(path)
    remove_index(path)
    return _open_sound(path)


def _open_sound(path: Path) -> Database:
    database = Database(path)
    try:
        if not database.all("SELECT 1 FROM sqlite_master LIMIT 1"):
            database.transact(_create_tables)
        if database.all("SELECT value FROM meta WHERE name = 'version'") != [(VERSION,)]:
            raise Corrupt(f"{path} is an index of another version.")  # noqa: TRY301 - it is closed below
        database.connection.execute("PRAGMA cache_size = -8000")
    except BaseException:
        database.close()
        raise
    return database


def _create_tables(connection: sqlite3.Connection) -> None:
    if connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone():
        return  # another process created them first
    for statement in _SCHEMA.split(";\n"):
        connection.execute(statement)
    connection.execute("INSERT INTO meta VALUES ('version', ?)", (VERSION,))


# updating the index


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
                    _add_document(connection, task, _make_tags(user, key), document)
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
    if database is None:  # a store in memory, whose index is new
        _mark_waiting(index, [tuple(getattr(row, name) for name in _NAMES) for row in store.find()])
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
