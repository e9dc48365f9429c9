"""The file `search.db`: the words of every message and summary, and how far each task has been read.

It lies beside the store, belongs to its owner alone, and holds nothing that the store does not hold. Nobody who writes
a task ever opens it. It can be deleted at any time; one that is broken, or of another version, is made anew.

The texts are kept beside the words, packed: a text is needed to show where something was found, and to take its words
out again when its task is gone. Every document also has the user and the key of its task as words, so that what
somebody may not see is left out inside the query, and no figure he gets depends on it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from orihon.errors import Corrupt, StoreError
from orihon.ops.search.words import words_of
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


class Index:
    """The words of one store."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.database = _opened(path)

    def close(self) -> None:
        """Let the file go."""
        self.database.close()

    @contextmanager
    def alone(self) -> Iterator[bool]:
        """Whether nobody else is writing the index; he who is has all the time he wants, and others do not wait."""
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
        """A note about the whole; empty when there is none."""
        found = self.database.all("SELECT value FROM meta WHERE name = ?", name)
        return str(found[0][0]) if found else ""

    def note(self, **values: str) -> None:
        """Keep notes about the whole."""
        statement = "INSERT OR REPLACE INTO meta VALUES (?, ?)"
        self.database.transact(lambda connection: connection.executemany(statement, values.items()))

    def forget(self, uuid: str) -> None:
        """Take a task out, with all its words."""
        for task, user, key in self.database.all("SELECT id, user, task_key FROM tasks WHERE uuid = ?", uuid):
            self.database.transact(partial(_take_out, task, who_of(user, key)))

    def merge(self) -> None:
        """Write the words anew without those that were taken out, so that none of them is left in the file."""
        self.database.change("INSERT INTO words (words) VALUES ('optimize')")


class Text(NamedTuple):
    """What a message or a summary says."""

    kind: str
    number: int
    text: str


def add(connection: sqlite3.Connection, task: int, who: str, said: Text) -> None:
    """Take in a text of a task."""
    packed = zlib.compress(said.text.encode("utf-8", "replace"), 1)
    values = (task, KINDS.index(said.kind), said.number, packed)
    doc = connection.execute("INSERT INTO docs (task, kind, number, text) VALUES (?, ?, ?, ?)", values).lastrowid
    connection.execute("INSERT INTO words (rowid, who, body) VALUES (?, ?, ?)", (doc, who, _body(said.text)))


def _take_out(task: int, who: str, connection: sqlite3.Connection) -> None:
    docs = connection.execute("SELECT id, text FROM docs WHERE task = ?", (task,)).fetchall()
    connection.executemany(_DELETE, ((doc, who, _body(unpacked(text))) for doc, text in docs))
    connection.execute("DELETE FROM docs WHERE task = ?", (task,))
    connection.execute("DELETE FROM tasks WHERE id = ?", (task,))


def who_of(user: str | None, key: str) -> str:
    """The user and the key of a task, as words that nothing else can be."""
    return f"u{digest(user or '')} k{digest(key)}"


def digest(text: str) -> str:
    """A name as one word of plain letters."""
    return hashlib.sha256(str(text).encode("utf-8", "replace")).hexdigest()[:20]


def unpacked(text: bytes) -> str:
    """A text as it was taken in."""
    return zlib.decompress(text).decode("utf-8", "replace")


def remove(path: Path) -> None:
    """Take the whole index away."""
    for ending in ("", "-wal", "-shm"):
        with suppress(FileNotFoundError):
            path.with_name(path.name + ending).unlink()


def _body(text: str) -> str:
    return " ".join(words_of(text))


def _opened(path: Path) -> Database:
    """The file, sound and of this version; anything else is made anew."""
    for again in (True, False):
        database: Database | None = None
        try:
            database = Database(path)
            if not database.all("SELECT 1 FROM sqlite_master LIMIT 1"):
                database.transact(_make)
            if database.all("SELECT value FROM meta WHERE name = 'version'") != [(VERSION,)]:
                raise Corrupt(f"{path} is an index of another version.")
        except StoreError:
            if database is not None:
                database.close()
            if not again:
                raise
            remove(path)
        else:
            database.connection.execute("PRAGMA cache_size = -8000")
            return database
    raise AssertionError  # the second try returns or raises


def _make(connection: sqlite3.Connection) -> None:
    if connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone():
        return  # somebody else was first
    for statement in _SCHEMA.split(";\n"):
        connection.execute(statement)
    connection.execute("INSERT INTO meta VALUES ('version', ?)", (VERSION,))
