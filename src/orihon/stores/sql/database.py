"""One SQLite file: open it, write to it durably, and translate SQLite's errors.

A transaction begins IMMEDIATE: it waits for its turn at the start and is never locked out half-way. It tries every
millisecond or two, for up to 90 seconds, so that no user ever reads "database is locked". SQLite's own busy handler
sleeps for up to a tenth of a second and misses many turns.

A commit survives kill -9 when it returns. A durable commit also survives a power cut, and so does every earlier commit,
from any process: all are in one write-ahead log, which is read up to its first flaw, and which a durable commit syncs.
The sync follows the commit, because SQLite would sync inside it, and all other processes would wait for the disk. There
is no lock of SQLite's on the log, so it may be opened separately, unlike the file.

SQLite before 3.51.3 can lose commits if the log is copied back into the file (a checkpoint) during another commit. So
checkpoints are not automatic: `_checkpoint` runs them inside a write transaction, and gets every error.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

from orihon.errors import Conflict, Corrupt, NotWritten, OutcomeUnknown, SchemaMismatch, StoreUnavailable, UsageError
from orihon.records import TaskRow
from orihon.retry import Backoff
from orihon.stores.files import Refused, make_directory, open_file, refuse_foreign, sync_data, sync_directory
from orihon.stores.sql import rows

log = logging.getLogger("orihon")

SCHEMA_VERSION = 6
# fields of a line that queries can name; they take no space and cost a writer nothing
FIELDS = {
    "summaries": {
        **dict.fromkeys(("start_seq", "end_seq", "original_tokens", "summary_tokens"), "INTEGER"),
        **dict.fromkeys(("summary", "kind", "model", "timestamp"), "TEXT"),
        **dict.fromkeys(("ratio", "retention"), "REAL"),
    },
    "tool_calls": {
        **dict.fromkeys(("tool", "args", "result", "status", "error", "timestamp", "call_id"), "TEXT"),
        **dict.fromkeys(("duration_ms", "message_seq"), "INTEGER"),
    },
}
# short pauses of random length, so that all processes that wait get their turn
BUSY = Backoff(max_seconds=90, first_seconds=0.003, longest_seconds=0.003, jitter=0.67)
TRIES = 3
PAGE_BYTES = 2048  # with messages of 3.7 kB it wastes 3 % less than 4096 and is no slower
READ_BYTES = 1024 * 1024  # that a reader takes at once
CHECKPOINT_BYTES = 4 * 1024 * 1024  # length of the log at which a durable commit runs a checkpoint
FORCED_CHECKPOINT_BYTES = 64 * 1024 * 1024  # and at which any commit does
TRANSACTION_BYTES = 16 * 1024  # an estimate of the bytes that a transaction adds to the log, without its texts

SETTINGS = (
    "synchronous = NORMAL",  # never OFF: an unsynced checkpoint takes the commits of all processes with it
    "wal_autocheckpoint = 0",  # `_checkpoint` does it
    "fullfsync = ON",  # on macOS, where a plain sync stops at the drive's cache
    "checkpoint_fullfsync = ON",
    "secure_delete = FAST",  # overwriting deleted content takes space that a full disk does not have
)

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]

# SQLite's locks belong to the process and end when *any* descriptor of the file is closed. Therefore the file is
# opened separately only when it is created, and never while another thread may have it open.
_creating = threading.Lock()


class Database:
    """A connection to one SQLite file, used by one thread at a time. Without a schema the file is taken as it is."""

    avoid_index = "+"

    def __init__(self, path: Path, schema: tuple[str, ...] = (), *, durable: bool = False) -> None:
        self.path, self.schema, self.durable = path, schema, durable
        self.lock = threading.RLock()
        self._process_id = os.getpid()
        self._log: int | None = None  # a descriptor for syncing it
        self._log_bytes = 0
        self._uncertain = False  # a commit or a sync failed: the log may not be on disk
        self.log_failed = False  # the last commit could not be written to the log
        with sqlite_errors(path):
            prepare_file(path)
            self.connection = _connect(path)
            try:
                _retry_while_busy(self._configure)
                self._migrate()
            except BaseException:
                self.connection.close()
                raise

    def _configure(self) -> None:
        self.connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        if self.connection.execute("PRAGMA page_count").fetchone() == (0,):
            self.connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # possible for a new file only
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
            self.transact(self._create_tables)  # a process that does the same at the same moment waits

    def _create_tables(self, connection: sqlite3.Connection) -> None:
        ((version,),) = self.all("PRAGMA user_version")
        if self._has_tasks():
            self._add_columns()  # before the indexes that name them
        elif version == 0 and self.all("SELECT 1 FROM sqlite_master LIMIT 1"):
            raise SchemaMismatch(f"{self.path} is a SQLite file of another program.", hint="Choose another file.")
        for name in self.schema:
            for statement in _read_statements(name):
                connection.execute(statement)
        self._add_fields()
        rows.create_totals(connection)
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    def _add_columns(self) -> None:
        """Add the columns that a file of an earlier version, or of the specification's own program, lacks."""
        there = {name for _, name, *_ in self.all("PRAGMA table_info(tasks)")}
        for name, definition in _read_columns():
            if name not in there:
                self.connection.execute(f'ALTER TABLE tasks ADD COLUMN "{name}" {definition}')
        if "task_key" not in there:
            rows.fill_keys(self.connection)

    def _add_fields(self) -> None:
        for table, fields in FIELDS.items():
            there = {name for _, name, *_ in self.all(f"PRAGMA table_xinfo({table})")}
            for name, kind in fields.items() if there else ():
                value = f"CASE WHEN json_valid(line) THEN json_extract(line, '$.{name}') END"
                value = f"coalesce({value}, 'rolling')" if name == "kind" else value
                if name not in there:
                    self.connection.execute(f"ALTER TABLE {table} ADD COLUMN {name} {kind} AS ({value}) VIRTUAL")

    def _has_tasks(self) -> bool:
        return bool(self.all("SELECT 1 FROM sqlite_master WHERE name = 'tasks'"))

    # reading

    def all(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        self._check_process()
        with self.lock, sqlite_errors(self.path):
            return _retry_while_busy(lambda: self.connection.execute(statement, values).fetchall())

    def page(self, statement: str, *values: Any) -> list[tuple[int, bytes]]:
        """Return the first rows of a query for numbered lines, about a megabyte of them."""
        self._check_process()
        with self.lock, sqlite_errors(self.path):
            return _retry_while_busy(lambda: self._read_page(statement, values))

    def _read_page(self, statement: str, values: tuple[Any, ...]) -> list[tuple[int, bytes]]:
        lines, size = [], 0
        with closing(self.connection.execute(statement, values)) as cursor:
            for number, line in cursor:
                lines.append((number, line))
                size += len(line)
                if size >= READ_BYTES:
                    break
        return lines

    # writing

    def change(self, statement: str, *values: Any, durable: bool = False) -> int:
        """Run one statement in its own transaction; return the number of rows that it changed."""
        size = sum(len(value) for value in values if isinstance(value, str | bytes))
        return self.transact(lambda it: it.execute(statement, values).rowcount, durable=durable, size_bytes=size)

    def transact(self, work: Work[T], *, durable: bool = False, size_bytes: int = 0) -> T:
        """Run work in a transaction, completely or not at all; a durable one survives a power cut.

        It is not a `with` block, because a signal can leave its generator unfinished. When that is collected later, it
        would roll back whatever transaction is open by then.
        """
        self._check_process()
        durable = durable or self.durable
        with self.lock, sqlite_errors(self.path, writing=True):
            if self.connection.in_transaction:
                self._roll_back()  # Ctrl-C may have prevented it the last time
            try:
                _retry_while_busy(partial(self.connection.execute, "BEGIN IMMEDIATE"))
                result = work(self.connection)
                self._commit()
            except BaseException:
                self._roll_back()
                raise
            if durable:
                self._sync()
            self._log_bytes += TRANSACTION_BYTES + size_bytes
            self._checkpoint_if_due(durable=durable)
            return result

    def write_row(self, row: TaskRow, *names: str) -> None:
        """Write some columns of a row, or all, with three tries. A row or a table that was removed is created again."""

        def write(connection: sqlite3.Connection) -> None:
            statement = f"UPDATE tasks SET {rows.assign(names)} WHERE uuid = ?"  # noqa: S608
            values = [getattr(row, name) for name in names]
            if not names or not connection.execute(statement, [*values, row.uuid]).rowcount:
                rows.insert(connection, row)

        for retries in reversed(range(TRIES)):
            try:
                return self.transact(write)
            except StoreUnavailable as error:
                if not retries:
                    raise
                if "no such table" in error.message:
                    self._migrate()
        raise AssertionError  # the last try returns or raises

    def close(self) -> None:
        """Close the file."""
        if self._process_id == os.getpid():  # the connection of a forked child is its parent's
            with self.lock:
                self.connection.close()
                if self._log is not None:
                    os.close(self._log)
                    self._log = None

    def _commit(self) -> None:
        self.log_failed = False
        try:
            self.connection.execute("COMMIT")
        except sqlite3.Error as error:
            if _primary_code(error) != sqlite3.SQLITE_IOERR:
                raise
            self._uncertain = True
            self.log_failed = error.sqlite_errorcode == sqlite3.SQLITE_IOERR_WRITE
            raise OutcomeUnknown(f"{self.path} could not be committed: {error}.") from error

    def _roll_back(self) -> None:
        """Roll back. After most errors SQLite has done so already; the error that led here is the one to raise."""
        with suppress(sqlite3.Error):
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")

    def _sync(self) -> None:
        """Write the log to the disk. Other processes can commit meanwhile."""
        try:
            if self._log is None:  # it exists as long as the file is open
                self._log = os.open(f"{self.path}-wal", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
                sync_directory(self.path.parent)
            sync_data(self._log)
        except OSError as error:
            self._uncertain = True
            raise OutcomeUnknown(f"{self.path}-wal could not be synced: {error.strerror}.") from error

    def _checkpoint_if_due(self, *, durable: bool) -> None:
        """Run a checkpoint when the log has grown, and after a failed sync, whose repetition cannot be trusted."""
        required = durable and self._uncertain
        if not required and self._log_bytes <= (CHECKPOINT_BYTES if durable else FORCED_CHECKPOINT_BYTES):
            return
        if not self.checkpoint() and required:
            raise OutcomeUnknown(f"A sync of {self.path} failed, and no checkpoint of its log succeeded since.")

    def checkpoint(self) -> bool:
        """Copy the log back into the file; return whether all of it was copied. The next commit then overwrites it."""
        with self.lock:
            try:
                return self._checkpoint()
            except sqlite3.Error as error:  # the commits are in the log and not affected
                self._uncertain = self._uncertain or _primary_code(error) == sqlite3.SQLITE_IOERR
                log.warning("The checkpoint of %s-wal failed: %s", self.path, error)
                return False

    def _checkpoint(self) -> bool:
        try:
            _retry_while_busy(partial(self.connection.execute, "BEGIN IMMEDIATE"))  # no other commit: see above
            with closing(_connect(self.path)) as other:
                _, frames, copied = other.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        finally:
            self._roll_back()
        self._log_bytes = 0
        self._uncertain = self._uncertain and frames != copied
        return bool(frames == copied)

    def _check_process(self) -> None:
        """Raise UsageError in a forked child."""
        if self._process_id != os.getpid():
            raise UsageError(
                f"{self.path} was opened by the parent of this process, and SQLite cannot share it.",
                hint="Open the store again after a fork.",
            )


def _read_statements(schema: str) -> list[str]:
    return resources.files("orihon.stores.sql").joinpath(f"{schema}.sql").read_text(encoding="utf-8").split(";\n")


def _read_columns() -> Iterator[tuple[str, str]]:
    """Yield the name and the definition of each column of `tasks`."""
    with closing(sqlite3.connect(":memory:")) as model:
        model.execute(_read_statements("tasks")[0])
        columns = model.execute("PRAGMA table_info(tasks)").fetchall()
    for _, name, kind, not_null, default, _ in columns:
        yield name, f"{kind} NOT NULL DEFAULT {default or chr(39) * 2}" if not_null else kind


def prepare_file(path: Path) -> None:
    """Create a missing file with mode 0600 before SQLite does; refuse links and files of other users.

    SQLite gives `-wal` and `-shm` the mode of the file.
    """
    if not path.parent.exists():
        make_directory(path.parent)
    with _creating, suppress(FileExistsError):
        os.close(open_file(path, os.O_CREAT | os.O_EXCL | os.O_RDWR))
    for file in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
        with suppress(FileNotFoundError):
            found = file.lstat()
            if not stat.S_ISREG(found.st_mode):
                raise Refused(f"{file} is a link or not a regular file; Orihon does not use it.")
            refuse_foreign(found, file)


@contextmanager
def sqlite_errors(path: Path, *, writing: bool = False) -> Iterator[None]:
    """Translate SQLite's errors. An error while writing, before the commit, leaves nothing behind."""
    try:
        yield
    except sqlite3.IntegrityError as error:
        raise Conflict(f"{path.name} has this already: {error}.") from error
    except sqlite3.Error as error:
        code, text = _primary_code(error), str(error)
        if code in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
            raise Corrupt(f"{path} is damaged or not a SQLite file: {text}.", where=str(path)) from error
        if code == sqlite3.SQLITE_BUSY:
            text = f"another process has been writing for {BUSY.max_seconds:g} seconds"
        if writing and code in {sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_IOERR}:
            raise NotWritten(f"{path} could not be written: {text}.") from error
        raise StoreUnavailable(f"{path} cannot be used now: {text}.") from error
    except OSError as error:
        raise StoreUnavailable(f"{path} cannot be opened: {error.strerror}.") from error


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)


def _retry_while_busy(work: Callable[[], T]) -> T:
    """Run work; while another process has the file, repeat it."""
    try:
        return work()
    except sqlite3.OperationalError as error:
        if not _is_busy(error):
            raise
    return BUSY.call(work, should_retry=_is_busy)


def _is_busy(error: Exception) -> bool:
    return isinstance(error, sqlite3.OperationalError) and _primary_code(error) == sqlite3.SQLITE_BUSY


def _primary_code(error: sqlite3.Error) -> int:
    """Return SQLite's primary error code; 0 for an error of Python's module."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
