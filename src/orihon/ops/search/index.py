"""The index file `search.db`: the words of every message and summary, and how far each task has been read.

The file lies beside the store, is private to its owner and holds nothing that the store does not hold. Writers of tasks
never open it. It can be deleted at any time; a broken one, or one of another version, is recreated.

The compressed texts are stored beside the words: they are needed to show matches, and to remove the words of a deleted
task. Every document is also tagged with the user and the key of its task, so that tasks which the caller may not see
are excluded inside the query and influence no figure.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import sqlite3
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from orihon.errors import Corrupt, StoreError
from orihon.ops.search.tokenize import split_words
from orihon.stores.base import Store
from orihon.stores.files import disk_errors, open_file
from orihon.stores.sql.database import Database

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

T = TypeVar("T")


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
            self.database.transact(partial(_remove_task, task, make_tags(user, key)))

    def optimise(self) -> None:
        """Rewrite the words, so that none of the removed ones is left in the file."""
        self.database.change("INSERT INTO words (words) VALUES ('optimize')")


def add_document(connection: sqlite3.Connection, task: int, tags: str, document: Document) -> None:
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


def make_tags(user: str | None, key: str) -> str:
    """Return the words by which the documents of a user and a key are found."""
    return f"{user_tag(user or '')} {key_tag(key)}"


def user_tag(user: str) -> str:
    """Return the word for a user."""
    return f"u{_digest(user)}"


def key_tag(key: str) -> str:
    """Return the word for a task key."""
    return f"k{_digest(key)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:20]


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
