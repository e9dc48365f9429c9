"""Looking without touching: nothing here creates, repairs or chmods anything.

The stores put right what they open, which is what a writer wants and a doctor must not do before he is asked to.

One thing that cannot be seen from here: SQLite's locks belong to a process and end when any handle on the file is
closed. So whoever examines a store has closed it before, or does it in a process of his own, as the command does.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sqlite3
import stat
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from orihon.coerce import decode_json
from orihon.errors import OrihonError, StoreUnavailable
from orihon.records import TaskRow
from orihon.stores.jsonl import lock_file
from orihon.stores.sql import rows
from orihon.stores.sql.database import Database

COPIED_BYTES = 256 * 1024 * 1024
TRIES = 5
_QUIET = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@contextmanager
def open_quietly(name: str | Path, within: int | None = None, *, directory: bool = False) -> Iterator[int]:
    """A handle for reading; OSError for a link, or for anything that is not a file (or a directory)."""
    fd = os.open(name, _QUIET | (os.O_DIRECTORY if directory else 0), dir_fd=within)
    try:
        if not directory and not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(0, "it is not a regular file")
        yield fd
    finally:
        os.close(fd)


def reason_of(error: OSError | OrihonError) -> str:
    """Why something could not be read, as a sentence."""
    return error.message if isinstance(error, OrihonError) else f"{error.strerror}."


def read_quietly(name: str, within: int, limit: int) -> bytes:
    """The beginning of a small file."""
    with open_quietly(name, within) as fd, os.fdopen(os.dup(fd), "rb") as file:
        return file.read(limit)


def holder_of(within: int) -> str | None:
    """Who writes the task in this directory now; None when nobody does, whatever `.lock` says."""
    try:
        with open_quietly(lock_file.NAME, within) as fd:
            try:
                fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                with suppress(ValueError):
                    holder = decode_json(os.read(fd, 4096), type=lock_file.Holder)
                    return f"process {holder.process_id} on {holder.hostname}"
                return "another process"
    except OSError:
        return None
    return None


@contextmanager
def peek(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection to what a SQLite file holds now, its log included; the file and its log stay as they are."""
    if not _has_log(path):
        # there is nothing but the file, so SQLite need not make the files by which it would talk to others
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?immutable=1", uri=True)) as connection:
            yield connection
        return
    with tempfile.TemporaryDirectory(prefix="orihon-") as folder:
        copy = Path(folder) / path.name
        found = copy.as_uri() if _is_copied(path, copy) else f"{path.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(found, uri=True)) as connection:
            yield connection


def signature(path: Path) -> tuple[object, ...]:
    """Changes whenever somebody commits."""
    return tuple(_stamp(Path(f"{path}{end}")) for end in ("", "-wal"))


def _has_log(path: Path) -> bool:
    return any(_size(path, end) for end in ("-wal", "-journal"))


def _size(path: Path, end: str) -> int:
    try:
        return Path(f"{path}{end}").stat().st_size
    except OSError:
        return 0


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _is_copied(path: Path, copy: Path) -> bool:
    """File and log of one moment: the log only grows unless it was copied back, and then the file has changed.

    What is too large, or changes too fast, has to be read in place, which may refresh its -shm.
    """
    if sum(_size(path, end) for end in ("", "-wal")) > COPIED_BYTES:
        return False
    for _ in range(TRIES):
        before = _stamp(path)
        for end in ("", "-wal", "-journal"):
            with suppress(FileNotFoundError):
                shutil.copyfile(f"{path}{end}", f"{copy}{end}")
        if _stamp(path) == before:
            return True
    return False


_ROW = f"SELECT {', '.join(rows.COLUMNS)} FROM tasks WHERE uuid = ?"  # noqa: S608 - the names come from the struct
_PAGE = "SELECT uuid FROM tasks WHERE uuid > ? ORDER BY uuid LIMIT 1000"


class Table(ABC):
    """The rows of tasks, to be compared with their files."""

    @abstractmethod
    def query(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """What it says now."""

    def refresh(self) -> bool:
        """Look again, if what was looked at is not the newest."""
        return False

    def row(self, uuid: str) -> TaskRow | None:
        """The row of a task; ValidationError when it makes no sense."""
        found = self.query(_ROW, uuid)
        return rows.row_of(found[0]) if found else None

    def pages(self) -> Iterator[list[str]]:
        """The tasks that have a row, some at a time."""
        page = [""]
        while page := [uuid for (uuid,) in self.query(_PAGE, page[-1])]:
            yield page


class PeekedTable(Table):
    """A `tasks.db` that is only looked at."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._open()

    def _open(self) -> None:
        self._signature = signature(self.path)
        self._peeking = peek(self.path)
        self._connection = self._peeking.__enter__()

    def query(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        for _ in range(TRIES):
            try:
                return self._connection.execute(statement, values).fetchall()
            except sqlite3.DatabaseError:
                if not self.refresh():  # a file that changed under our eyes is looked at again
                    raise
        raise StoreUnavailable(f"{self.path} changes too fast to be looked at.")

    def refresh(self) -> bool:
        if signature(self.path) == self._signature:
            return False
        self.close()
        self._open()
        return True

    def close(self) -> None:
        """Let the file go."""
        self._peeking.__exit__(None, None, None)


class OpenTable(Table):
    """A `tasks.db` that is being repaired."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def query(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        return self._database.all(statement, *values)
