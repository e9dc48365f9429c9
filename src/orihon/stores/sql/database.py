"""One SQLite file: how it is opened, written and made safe, and the one place where SQLite's errors become ours.

A transaction begins IMMEDIATE, so that it waits for its turn at the start and never finds itself locked out half-way.
It looks every millisecond or two, for up to `PATIENCE_SECONDS`, so that "database is locked" is not something a user
ever reads. SQLite's own waiting sleeps longer and longer, up to a tenth of a second, and misses many a turn.

A commit is safe from kill -9 when it returns. A durable one is safe from a power cut as well, and so is every commit
before it, by whomever: they all stand in the one write-ahead log, which is read up to its first flaw and which a
durable commit syncs whole. It does so by itself after the commit: SQLite would do it in the middle, and everybody else
would wait for the disk. No lock of SQLite's is on the log, so it may be opened by hand, unlike the file.

SQLite before 3.51.3 can lose commits when the log is copied back into the file while somebody else commits. So it is
not left to copy when it likes: `_copy_back` does it, with the right to write in hand, and hears of every error.
"""

from __future__ import annotations

import logging
import os
import random
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

from orihon.errors import Conflict, Corrupt, NotWritten, OutcomeUnknown, SchemaMismatch, StoreUnavailable, UsageError
from orihon.stores.files import Refused, make_directory, open_file, refuse_foreign, sync_data, sync_directory
from orihon.stores.sql import sums

log = logging.getLogger("orihon")

SCHEMA_VERSION = 4
_COUNT = "INTEGER NOT NULL DEFAULT 0"
ADDED = {  # columns of `tasks` that an older file lacks
    "handoff": "TEXT",
    "archived": "TEXT NOT NULL DEFAULT ''",
    "message_count": _COUNT,
    "size_bytes": _COUNT,
    "packed_bytes": "INTEGER",
    "summary_count": _COUNT,
    "summary_failures": _COUNT,
    "summarised_tokens": _COUNT,
    "summary_tokens": _COUNT,
}
PATIENCE_SECONDS = 90
LOOK_SECONDS = 0.001, 0.003  # between two looks, by chance, so that all who wait have their turn
TRIES = 3
PAGE_BYTES = 2048  # with messages of 3.7 kB it wastes 3 % less than 4096 and is no slower
READ_BYTES = 1024 * 1024  # what a reader takes at once
COPY_BACK_BYTES = 4 * 1024 * 1024  # how long the log gets before a durable commit copies it back
COPY_BACK_ANYWAY_BYTES = 64 * 1024 * 1024  # and before any commit does
TRANSACTION_BYTES = 16 * 1024  # what a transaction adds to the log beside its texts, at a guess

SETTINGS = (
    "synchronous = NORMAL",  # never OFF: who copies the log back unsynced takes the commits of all others with it
    "wal_autocheckpoint = 0",  # `_copy_back` does it
    "fullfsync = ON",  # on macOS, where a plain sync stops at the drive's cache
    "checkpoint_fullfsync = ON",
    "secure_delete = FAST",  # to overwrite what is deleted takes room that a full disk does not have
)

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]

# SQLite's locks belong to the process and end when *any* handle on the file is closed, so a file is touched by hand
# only at the moment when it is made, and never while another thread may have it open
_making = threading.Lock()


def sql(name: str) -> str:
    """The text of a `.sql` file of this package."""
    return resources.files("orihon.stores.sql").joinpath(f"{name}.sql").read_text(encoding="utf-8")


class Database:
    """A connection to one SQLite file, used by one thread at a time; without a schema the file is taken as it is."""

    not_by = "+"

    def __init__(self, path: Path, schema: tuple[str, ...] = (), *, durable: bool = False) -> None:
        self.path, self.schema, self.durable = path, schema, durable
        self.lock = threading.RLock()
        self._process_id = os.getpid()
        self._log: int | None = None  # a handle for syncing it
        self._log_bytes = 0
        self._doubtful = False
        self.log_failed = False  # the last commit could not be written to the log
        with translated(path):
            prepare(path)
            self.connection = _connect(path)
            try:
                _patiently(self._set_up)
                self._migrate()
            except BaseException:
                self.connection.close()
                raise

    def _set_up(self) -> None:
        self.connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        if self.connection.execute("PRAGMA page_count").fetchone() == (0,):
            self.connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # it can be had for a new file only
        (mode,) = self.connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise StoreUnavailable(f"{self.path} cannot have a write-ahead log here.", hint="Use a local disk.")
        for setting in SETTINGS:
            self.connection.execute(f"PRAGMA {setting}")

    def _migrate(self) -> None:
        ((version,),) = self.all("PRAGMA user_version")
        if version > SCHEMA_VERSION:
            raise SchemaMismatch(f"{self.path} has schema {version}; this version of Orihon knows {SCHEMA_VERSION}.")
        if self.schema and (version < SCHEMA_VERSION or not self._has_tasks()):
            self.transact(self._make)  # whoever makes the same file at the same moment comes after

    def _make(self, connection: sqlite3.Connection) -> None:
        self._refuse_another_programs_file()
        if self._has_tasks():
            self._add_columns()  # before the indexes that name them
        for name in self.schema:
            for statement in sql(name).split(";\n"):
                connection.execute(statement)
        for statement in sums.schema():
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    def _add_columns(self) -> None:
        there = {name for _, name, *_ in self.all("PRAGMA table_info(tasks)")}
        for name in (name for name in ADDED if name not in there):
            self.connection.execute(f"ALTER TABLE tasks ADD COLUMN {name} {ADDED[name]}")

    def _refuse_another_programs_file(self) -> None:
        ((version,),) = self.all("PRAGMA user_version")
        if version == 0 and not self._has_tasks() and self.all("SELECT 1 FROM sqlite_master LIMIT 1"):
            raise SchemaMismatch(f"{self.path} is a SQLite file of another program.", hint="Choose another file.")

    def _has_tasks(self) -> bool:
        return bool(self.all("SELECT 1 FROM sqlite_master WHERE name = 'tasks'"))

    # reading

    def all(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        self._check_process()
        with self.lock, translated(self.path):
            return _patiently(lambda: self.connection.execute(statement, values).fetchall())

    def some(self, statement: str, *values: Any) -> list[tuple[int, bytes]]:
        """The first rows of a query for numbered lines, about a megabyte of them; the file is free again afterwards."""
        self._check_process()
        with self.lock, translated(self.path):
            return _patiently(lambda: self._some(statement, values))

    def _some(self, statement: str, values: tuple[Any, ...]) -> list[tuple[int, bytes]]:
        found, size = [], 0
        with closing(self.connection.execute(statement, values)) as cursor:
            for number, line in cursor:
                found.append((number, line))
                size += len(line)
                if size >= READ_BYTES:
                    break
        return found

    # writing

    def change(self, statement: str, *values: Any, durable: bool = False) -> int:
        """One statement in a transaction of its own; how many rows it touched."""
        size = sum(len(value) for value in values if isinstance(value, str | bytes))
        return self.transact(lambda it: it.execute(statement, values).rowcount, durable=durable, size_bytes=size)

    def transact(self, work: Work[T], *, durable: bool = False, size_bytes: int = 0) -> T:
        """Work that is done wholly or, whatever happens, not at all; a durable one also when the power is cut.

        It is not a `with` block: a signal can leave the generator of one behind, and when that is forgotten, some time
        later, it would roll back whatever is going on then.
        """
        self._check_process()
        durable = durable or self.durable
        with self.lock, translated(self.path, writing=True):
            if self.connection.in_transaction:
                self._roll_back()  # Ctrl-C came before the last one was rolled back
            done = self._done(work)
            if durable:
                self._sync()
            self._log_bytes += TRANSACTION_BYTES + size_bytes
            self._tidy(durable=durable)
            return done

    def write(self, work: Work[T]) -> T:
        """Do some work in a transaction; three tries, and a table that somebody dropped is made again."""
        for again in reversed(range(TRIES)):
            try:
                return self.transact(work)
            except StoreUnavailable as error:
                if not again:
                    raise
                if "no such table" in error.message:
                    self._migrate()
        raise AssertionError  # the last try returns or raises

    def close(self) -> None:
        """Let the file go."""
        if self._process_id == os.getpid():  # a child has nothing to give back
            with self.lock:
                self.connection.close()
                if self._log is not None:
                    os.close(self._log)
                    self._log = None

    def _done(self, work: Work[T]) -> T:
        try:
            _patiently(lambda: self.connection.execute("BEGIN IMMEDIATE"))
            done = work(self.connection)
            self._commit()
        except BaseException:
            self._roll_back()
            raise
        return done

    def _commit(self) -> None:
        self.log_failed = False
        try:
            self.connection.execute("COMMIT")
        except sqlite3.Error as error:
            if _code(error) != sqlite3.SQLITE_IOERR:
                raise
            self._doubtful = True
            self.log_failed = error.sqlite_errorcode == sqlite3.SQLITE_IOERR_WRITE
            raise OutcomeUnknown(f"{self.path} could not be committed: {error}.") from error

    def _roll_back(self) -> None:
        """After most errors SQLite has done it by itself; the error that led here is the one to hear about."""
        with suppress(sqlite3.Error):
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")

    def _sync(self) -> None:
        """Bring the log to the disk; meanwhile others can write."""
        try:
            if self._log is None:  # it is there as long as we have the file open
                self._log = os.open(f"{self.path}-wal", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
                sync_directory(self.path.parent)
            sync_data(self._log)
        except OSError as error:
            self._doubtful = True
            raise OutcomeUnknown(f"{self.path}-wal could not be synced: {error.strerror}.") from error

    def _tidy(self, *, durable: bool) -> None:
        """Copy the log back when it has grown, and after a failed sync, which must not be believed the second time."""
        must = durable and self._doubtful
        if not must and self._log_bytes <= (COPY_BACK_BYTES if durable else COPY_BACK_ANYWAY_BYTES):
            return
        try:
            copied = self._copy_back()
        except sqlite3.Error as error:  # what was committed stands in the log and is none the worse for it
            copied = False
            self._doubtful = self._doubtful or _code(error) == sqlite3.SQLITE_IOERR
            log.warning("%s-wal could not be copied back: %s", self.path, error)
        if must and not copied:
            raise OutcomeUnknown(f"A sync of {self.path} failed, and its log could not be copied back since.")

    def begin_log_again(self) -> bool:
        """Copy the log back, so that the next write stands at its beginning; whether it could be."""
        with self.lock:
            try:
                return self._copy_back()
            except sqlite3.Error as error:
                log.warning("%s-wal could not be copied back: %s", self.path, error)
                return False

    def _copy_back(self) -> bool:
        """Copy the log into the file and sync both; whether all of it was copied."""
        try:
            _patiently(lambda: self.connection.execute("BEGIN IMMEDIATE"))  # nobody commits meanwhile: see the top
            with closing(_connect(self.path)) as other:
                _, frames, copied = other.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        finally:
            self._roll_back()
        self._log_bytes = 0
        self._doubtful = self._doubtful and frames != copied
        return bool(frames == copied)

    def _check_process(self) -> None:
        if self._process_id != os.getpid():
            raise UsageError(
                f"{self.path} was opened by the parent of this process, and SQLite cannot share it.",
                hint="Open the store again after a fork.",
            )


def prepare(path: Path) -> None:
    """Create a missing file with mode 0600 before SQLite does, and refuse what is not a file of ours.

    SQLite gives `-wal` and `-shm` the mode of the file, so those of a file that others can read can be read as well.
    """
    if not path.parent.exists():
        make_directory(path.parent)
    with _making, suppress(FileExistsError):
        os.close(open_file(path, os.O_CREAT | os.O_EXCL | os.O_RDWR))
    for file in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
        with suppress(FileNotFoundError):
            found = file.lstat()
            if not stat.S_ISREG(found.st_mode):
                raise Refused(f"{file} is a link or not a regular file; Orihon does not use it.")
            refuse_foreign(found, file)


@contextmanager
def translated(path: Path, *, writing: bool = False) -> Iterator[None]:
    """SQLite's errors in our words; an error while writing, before the commit, leaves nothing behind."""
    try:
        yield
    except sqlite3.IntegrityError as error:
        raise Conflict(f"{path.name} has this already: {error}.") from error
    except sqlite3.Error as error:
        code, text = _code(error), str(error)
        if code in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
            raise Corrupt(f"{path} is not a sound SQLite file: {text}.", where=str(path)) from error
        if code == sqlite3.SQLITE_BUSY:
            text = f"another process has been writing for {PATIENCE_SECONDS} seconds"
        if writing and code in {sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_IOERR}:
            raise NotWritten(f"{path} could not be written: {text}.") from error
        raise StoreUnavailable(f"{path} cannot be used now: {text}.") from error
    except OSError as error:
        raise StoreUnavailable(f"{path} cannot be opened: {error.strerror}.") from error


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)


def _patiently(work: Callable[[], T]) -> T:
    """Wait for whoever has the file."""
    give_up = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return work()
        except sqlite3.OperationalError as error:
            if _code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > give_up:
                raise
            time.sleep(random.uniform(*LOOK_SECONDS))  # noqa: S311 - nobody guesses it


def _code(error: sqlite3.Error) -> int:
    """SQLite's primary code; 0 for what Python's module says by itself."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
