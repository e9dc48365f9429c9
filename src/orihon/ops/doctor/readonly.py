"""Read-only access to a store of plain files and to SQLite files. Nothing here creates, repairs or changes anything.

SQLite's locks belong to the process and end when any handle on the file is closed. The store must therefore not be open
in the process that examines it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from orihon.errors import OrihonError, StoreUnavailable
from orihon.ops.doctor.finding import MAX_FINDINGS
from orihon.ops.progress import ProgressCounter
from orihon.records import TaskRow
from orihon.stores.base import Options, Problem, Store
from orihon.stores.files import Refused, open_file
from orihon.stores.jsonl.layout import LOCK
from orihon.stores.jsonl.lock_file import read_holder
from orihon.stores.jsonl.store import JsonlStore
from orihon.stores.jsonl.tree import TaskTree
from orihon.stores.sql import rows
from orihon.stores.sql.database import Database

COPIED_BYTES = 256 * 1024 * 1024
ATTEMPTS = 5
_ROW = f"SELECT {', '.join(rows.COLUMNS)} FROM tasks WHERE uuid = ?"  # noqa: S608 - the names come from the struct
_PAGE = "SELECT uuid FROM tasks WHERE uuid > ? ORDER BY uuid LIMIT 1000"


class UnopenedStore(JsonlStore):
    """A store of plain files that is read without being opened, because opening a store repairs it.

    There are a `database` and a `tree` only if the store is `writable`.
    """

    def __init__(self, base: Path, progress: ProgressCounter | None = None, *, writable: bool = False) -> None:
        Store.__init__(self, str(base), Options(report=self._collect))
        self.base, self.leases, self._writable = base, set(), writable
        self._progress = progress or ProgressCounter()
        self._problems: list[Problem] = []
        self._omitted = 0
        self._line, self._offset, self._end = 0, -1, 0
        if writable:
            self.database = Database(base / "tasks.db", ("tasks",))
            self.tree = TaskTree(base, self.database, durable=True, report=self.report)

    def begin_list(self, end: int) -> None:
        """Prepare for reading a list whose complete lines end at an offset."""
        self._problems, self._omitted = [], 0
        self._line, self._offset, self._end = 0, -1, end

    def take_problems(self) -> tuple[list[Problem], int]:
        """Return the problems of a list that was read: the first ones, and the number of the others."""
        return self._problems, self._omitted

    def lines(self, uuid: str, name: str, first: int, last: int | None) -> Iterator[tuple[int, bytes]]:
        for offset, line in super().lines(uuid, name, first, last):
            self._line, self._offset = self._line + 1, offset
            self._progress.add(records=1, size_bytes=len(line))
            yield offset, line

    def problem(self, uuid: str, name: str, place: int, reason: str) -> Problem:
        if place >= self._end:
            return Problem(uuid, name, 0, "")  # an incomplete last line is checked separately
        self._line += place != self._offset  # a line that is too long is not yielded
        return Problem(uuid, name, self._line, reason)

    def line_number(self, uuid: str, name: str, offset: int) -> int:
        """Return the number of the line at an offset."""
        return super().problem(uuid, name, offset, "").line

    def _collect(self, problem: Problem) -> None:
        if problem.reason and len(self._problems) < MAX_FINDINGS:
            self._problems.append(problem)
        elif problem.reason:
            self._omitted += 1

    def close(self) -> None:
        if self._writable:
            super().close()


def find_holder(dir_fd: int) -> str | None:
    """Return the process that writes the task in a directory; None if there is none, whatever `.lock` says."""
    try:
        fd = open_file(LOCK, os.O_RDONLY, dir_fd)
    except (OSError, Refused):
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return str(read_holder(dir_fd) or "another process")
    finally:
        os.close(fd)
    return None


def describe_error(error: OSError | OrihonError) -> str:
    """Return the reason of an error as a sentence."""
    return error.message if isinstance(error, OrihonError) else f"{error.strerror}."


@contextmanager
def peek(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a SQLite file with its log, without changing either."""
    with tempfile.TemporaryDirectory(prefix="orihon-") as folder:
        copy = Path(folder) / path.name
        if not any(_size(path, end) for end in ("-wal", "-journal")):
            url = f"{path.absolute().as_uri()}?immutable=1"  # SQLite then creates no -shm
        elif _copy_with_log(path, copy):
            url = copy.as_uri()
        else:
            url = f"{path.absolute().as_uri()}?mode=ro"  # too large or too busy to copy; may refresh its -shm
        with closing(sqlite3.connect(url, uri=True)) as connection:
            yield connection


def _copy_with_log(path: Path, copy: Path) -> bool:
    """Copy file and log of one moment. The log only grows, unless it is checkpointed, which changes the file."""
    if sum(_size(path, end) for end in ("", "-wal")) > COPIED_BYTES:
        return False
    for _ in range(ATTEMPTS):
        before = _stamp(path)
        for end in ("", "-wal", "-journal"):
            with suppress(FileNotFoundError):
                shutil.copyfile(f"{path}{end}", f"{copy}{end}")
        if _stamp(path) == before:
            return True
    return False


def signature(path: Path) -> tuple[object, ...]:
    """Return a value that changes with every commit."""
    return _stamp(path), _stamp(Path(f"{path}-wal"))


def _size(path: Path, end: str) -> int:
    stamp = _stamp(Path(f"{path}{end}"))
    return stamp[1] if stamp else 0


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


class TaskTable:
    """The rows in `tasks.db`: of an open database, else of the file as it is now."""

    def __init__(self, path: Path, database: Database | None = None) -> None:
        self.path, self._database, self._stack = path, database, ExitStack()
        if database is None:
            self._open()

    def _open(self) -> None:
        self._signature = signature(self.path)
        self._connection = self._stack.enter_context(peek(self.path))

    def query(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        if self._database is not None:
            return self._database.all(statement, *values)
        for _ in range(ATTEMPTS):
            try:
                return self._connection.execute(statement, values).fetchall()
            except sqlite3.DatabaseError:
                if not self.refresh():  # the file did not change meanwhile, so it is damaged
                    raise
        raise StoreUnavailable(f"{self.path} changes too fast to be examined.")

    def refresh(self) -> bool:
        """Reopen the file if it has changed, and return whether it had."""
        if self._database is not None or signature(self.path) == self._signature:
            return False
        self.close()
        self._open()
        return True

    def row(self, uuid: str) -> TaskRow | None:
        """Return the row of a task. Raise ValidationError if a column holds an invalid value."""
        found = self.query(_ROW, uuid)
        return rows.parse_row(found[0]) if found else None

    def pages(self) -> Iterator[list[str]]:
        """Yield the ids of all rows, a thousand at a time."""
        page = [""]
        while page := [uuid for (uuid,) in self.query(_PAGE, page[-1])]:
            yield page

    def close(self) -> None:
        """Close the file."""
        self._stack.close()
