"""A SQLite file that the doctor reads: without changing it, while other processes may write it."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from orihon.errors import StoreUnavailable
from orihon.ops.doctor.finding import Finding, note, problem
from orihon.records import TaskRow
from orihon.stores.sql import rows
from orihon.stores.sql.database import SCHEMA_VERSION, Database

COPIED_BYTES = 256 * 1024 * 1024
ATTEMPTS = 5
SOUND_SINCE = (3, 51, 3)
LOG_ENDINGS = ("-wal", "-shm", "-journal")
EARLIER = "It was made by an earlier version of Orihon"
_ROW = f"SELECT {rows.SELECTED} FROM tasks WHERE uuid = ?"  # noqa: S608 - the names come from the struct
_PAGE = "SELECT uuid FROM tasks WHERE uuid > ? ORDER BY uuid LIMIT 1000"


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


def check_sqlite_file(path: Path, pragma: str) -> list[Finding]:
    """Check that a SQLite file is sound and has the columns of a task, and report a version with a known bug."""
    for _ in range(ATTEMPTS):
        before = signature(path)
        findings = list(_check_once(path, pragma))
        if not findings or signature(path) == before:
            break  # else it was written meanwhile, which can look like damage
    if sqlite3.sqlite_version_info < SOUND_SINCE:
        sentence = (
            f"SQLite {sqlite3.sqlite_version} has a rare bug, fixed in 3.51.3, by which a commit can be lost when two "
            "processes write. Orihon avoids it; a copy made with `orihon copy` is still a good thing to have."
        )
        findings.append(note(path.name, sentence))
    return findings


def _check_once(path: Path, pragma: str) -> Iterator[Finding]:
    try:
        with peek(path) as connection:
            for (message,) in connection.execute(f"PRAGMA {pragma}(10)"):
                if message != "ok":
                    yield problem(path.name, f"SQLite says: {message}.", fixable=True)
            ((version,),) = connection.execute("PRAGMA user_version")
            columns = {name for _, name, *_ in connection.execute("PRAGMA table_info(tasks)")}
    except sqlite3.DatabaseError as error:
        yield problem(path.name, f"It is not a sound SQLite file: {error}.", fixable=True)
        return
    missing = set(rows.COLUMNS) - columns
    if version > SCHEMA_VERSION:
        sentence = f"It has schema {version}; this version of Orihon knows {SCHEMA_VERSION}. Use a newer version."
        yield problem(path.name, sentence)
    elif missing and version < SCHEMA_VERSION:
        yield problem(path.name, f"{EARLIER} and is upgraded when it is opened.", fixable=True)
    elif missing:
        yield problem(path.name, f"Its table of tasks lacks {', '.join(sorted(missing))}.", fixable=True)


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

    def uuids(self) -> Iterator[str]:
        """Yield the ids of all rows."""
        page = [""]
        while page := [uuid for (uuid,) in self.query(_PAGE, page[-1])]:
            yield from page

    def close(self) -> None:
        """Close the file."""
        self._stack.close()
