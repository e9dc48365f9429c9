"""`sqlite:///FILE`: tasks, lists and blobs in one SQLite file, which `sqlite3` can open and query.

Blobs are stored before the lines that name them, and messages before the row that counts them: all of it goes through
one log, and a power cut cuts that log at one place. `database` describes what is synced when.

A large task is deleted in pieces, each in its own transaction, with pauses in which other processes get their turn.
Free pages are returned to the disk in the same way.
"""

from __future__ import annotations

import math
import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from orihon import codec
from orihon.errors import Conflict, NotFound, NotWritten, OutcomeUnknown
from orihon.records import Message, Metadata, Status, TaskRow
from orihon.stores import mounts
from orihon.stores.base import GroupBy, Options, Query, Totals
from orihon.stores.files import Refused, disk_errors, find_identity, open_file, warn_if_open
from orihon.stores.liveness import is_alive
from orihon.stores.sql import rows
from orihon.stores.sql.database import PAGE_BYTES, Database
from orihon.stores.sql.store import (
    END_STUB,
    IF_MINE,
    LAST_NUMBERS,
    PIECE_ROWS,
    RETAKE,
    SWEPT_TABLES,
    TABLES,
    Line,
    SqlLease,
    SqlStore,
    TakenLease,
    lease_held,
    parse_holder,
)
from orihon.stores.validation import require_fence

# ruff: noqa: S608 - the statements consist of constants

TAKE = "UPDATE tasks SET fence = fence + 1, lease_owner = ?, heartbeat_at = ? WHERE uuid = ?"
TAKEN = (
    f"SELECT (SELECT CAST(line AS BLOB) FROM metadata WHERE uuid = tasks.uuid), fence, {LAST_NUMBERS} "
    "FROM tasks WHERE uuid = ?"
)
PIECE = (
    "DELETE FROM {table} WHERE uuid = ? AND {number} IN "
    f"(SELECT {{number}} FROM {{table}} WHERE uuid = ? LIMIT {PIECE_ROWS}) AND {{condition}}"
)
PIECE_PAGES = 32
MAX_PAUSE_SECONDS = 0.05
RESERVE_BYTES, RESERVE_STEP_BYTES = 512 * 1024, 16 * 1024
SIDECARS = ("-wal", "-shm", "-reserve")
READABLE = ("-wal", "-shm", ".audit.jsonl", ".search.db", ".search.db-wal", ".search.db-shm")  # files with texts

# every write of a lease ends with `IF_MINE`, and changes nothing if it does not hold
APPEND = f"INSERT INTO {{table}} (uuid, {{number}}, line) SELECT uuid, ?, ? FROM tasks WHERE {IF_MINE}"
APPEND_MESSAGE = (
    "INSERT INTO messages (uuid, seq, line, role, tokens, timestamp, key) "
    f"SELECT uuid, ?, ?, ?, ?, ?, ? FROM tasks WHERE {IF_MINE}"
)
# `+seq`, because SQLite would walk the primary key to avoid a sort, and read all messages for a new key
FIND_KEY = "SELECT seq FROM messages WHERE uuid = ? AND key = ? ORDER BY +seq DESC LIMIT 1"
RENEW = f"UPDATE tasks SET heartbeat_at = ? WHERE {IF_MINE}"
RETAKE_NOW = RETAKE.format(now="?")
RELEASE_MINE = f"UPDATE tasks SET lease_owner = NULL, heartbeat_at = NULL WHERE {IF_MINE}"

T = TypeVar("T")


class SqliteStore(SqlStore):
    """Tasks in one SQLite file."""

    page_statement = (
        "SELECT {number}, CAST(line AS BLOB) FROM {table} "
        "WHERE uuid = ? AND {number} BETWEEN {first} AND ? ORDER BY {number} LIMIT 1000"
    )

    def __init__(self, path: Path, options: Options | None = None) -> None:
        super().__init__(f"sqlite:///{path}", options)
        self.path = path = path.absolute()  # valid after a change of the working directory
        mounts.require_local(path.parent)
        warn_if_open(path, *(path.with_name(f"{path.name}{end}") for end in READABLE))
        # three connections: a reader does not wait for a writer's disk, nor a heartbeat for either
        with ExitStack() as opened:
            self.writer = Database(path, ("tasks", "lists"), durable=self.options.durability == "message")
            opened.callback(self.writer.close)
            self.reader: Database = Database(path)
            opened.callback(self.reader.close)
            self.renewer = Database(path)
            opened.pop_all()
        self._opened = {file: find_identity(file) for file in (str(path), f"{path}-wal") if find_identity(file)}
        self.reserve = path.with_name(f"{path.name}-reserve")
        self._fill_reserve(RESERVE_BYTES)

    @property
    def identity(self) -> str:
        return str(self.path.resolve())

    def query(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        return self.reader.all(statement, *values)

    def execute(self, statement: str, *values: Any, durable: bool = False) -> int:
        return self.writer.change(statement, *values, durable=durable)

    def read_page(self, statement: str, *values: Any) -> list[tuple[int, bytes]]:
        return self.reader.page(statement, *values)

    def check_before_reading(self, uuid: str) -> None:
        self.require_task(uuid)

    def totals(self, query: Query, by: GroupBy) -> dict[str, Totals]:
        return rows.read_totals(self.reader, self.prepare_query(query), by)

    # leases

    def take(self, uuid: str, owner: str, create: Metadata | None, status: Status) -> TakenLease:
        def take(connection: sqlite3.Connection) -> TakenLease:
            if create is not None:
                _create_task(connection, create, status)
            self._refuse_if_held(connection, uuid)
            if connection.execute(
                END_STUB, (uuid,)
            ).rowcount:  # a deletion was interrupted; the stub of the task is left
                _sweep_at_once(connection, uuid)
            connection.execute(TAKE, (owner, codec.now(), uuid))
            ((line, fence, *numbers),) = connection.execute(TAKEN, (uuid,))
            metadata = codec.decode_line(line or b"", Metadata)
            return TakenLease(metadata, fence, dict(zip(TABLES, numbers, strict=True)))

        return self.writer.transact(take, durable=self.is_durable)

    def may_be_taken_after(self, error: BaseException) -> bool:
        return isinstance(error, OutcomeUnknown) or not isinstance(error, Exception)

    def make_lease(self, owner: str, taken: TakenLease) -> SqliteLease:
        return SqliteLease(self, owner, taken)

    def _refuse_if_held(self, connection: sqlite3.Connection, uuid: str) -> None:
        found = connection.execute("SELECT lease_owner, heartbeat_at FROM tasks WHERE uuid = ?", (uuid,)).fetchone()
        if found is None:
            raise NotFound(kind="task", id=uuid)
        owner, heartbeat_at = found
        if owner is None or _measure_silence(heartbeat_at) > self.options.expiry_seconds:
            return
        holder = parse_holder(uuid, owner)
        if is_alive(holder) is not False:
            raise lease_held(uuid, holder)

    def is_in_place(self) -> bool:
        """Return whether path and log still name the open files. SQLite goes on writing to files that were removed."""
        return all(find_identity(file) == identity for file, identity in self._opened.items())

    # deleting

    def start_delete(self, uuid: str, fence: int | None, *, stub: bool) -> None:
        def delete(connection: sqlite3.Connection) -> None:
            self._refuse_if_held(connection, uuid)
            require_fence(_read_row(connection, uuid), fence)
            if stub:
                connection.execute("UPDATE tasks SET archived = 'going' WHERE uuid = ?", (uuid,))
            else:
                connection.execute("DELETE FROM tasks WHERE uuid = ?", (uuid,))
                connection.execute("UPDATE metadata SET id = 0 WHERE uuid = ?", (uuid,))

        # the deletion frees more than the reserve holds: it is taken again completely or not at all
        self.with_reserve(
            lambda: self.writer.transact(delete, durable=self.is_durable), min_reserve_bytes=RESERVE_BYTES
        )

    def sweep(self, uuid: str, condition: str) -> None:
        for table, number in SWEPT_TABLES:
            statement = PIECE.format(table=table, number=number, condition=condition.format(uuid="?"))
            while True:
                started = time.monotonic()
                if not self.writer.change(statement, *[uuid] * statement.count("?")):
                    break
                _pause_since(started)

    def vacuum(self) -> int:
        super().vacuum()
        freed_pages = 0
        ((mode,),) = self.writer.all("PRAGMA auto_vacuum")  # files of early versions have none, and reuse free pages
        while mode and self.writer.all("PRAGMA freelist_count") != [(0,)]:
            started, before = time.monotonic(), self._count_pages()
            self.writer.transact(_free_pages, size_bytes=PIECE_PAGES * PAGE_BYTES)
            freed = before - self._count_pages()
            if freed <= 0:
                break  # another process uses them
            freed_pages += freed
            _pause_since(started)
        self.writer.transact(lambda _: None, durable=True)  # only a checkpoint, if the log is long, shortens the file
        return freed_pages * PAGE_BYTES

    def _count_pages(self) -> int:
        ((count,),) = self.writer.all("PRAGMA page_count")
        return int(count)

    # files

    def with_reserve(self, work: Callable[[], T], *, min_reserve_bytes: int = RESERVE_STEP_BYTES) -> T:
        """Run work that must succeed on a full disk; if it fails, repeat it with the disk space that is reserved.

        Afterwards the space is reserved again, if `min_reserve_bytes` of it are left. Where no file may grow, because
        of a limit of the process, a checkpoint makes space in the log.
        """
        try:
            return work()
        except OutcomeUnknown:
            # the part that was written to the log is invisible, and the next write overwrites it
            if not self.writer.log_failed or not self.writer.checkpoint():
                raise
        except NotWritten:
            if not self.reserve.exists():
                raise
            self.reserve.unlink(missing_ok=True)
        try:
            return work()
        finally:
            self._fill_reserve(min_reserve_bytes)

    def _fill_reserve(self, min_bytes: int) -> None:
        """Reserve half a megabyte, or less on a disk that is nearly full, but at least `min_bytes`."""
        with suppress(OSError, Refused):
            fd = open_file(self.reserve, os.O_RDWR | os.O_CREAT)
            try:
                max_bytes = RESERVE_BYTES if hasattr(os, "posix_fallocate") else 0  # macOS cannot reserve space
                for size in range(max_bytes, min_bytes - 1, -RESERVE_STEP_BYTES):
                    with suppress(OSError):
                        os.posix_fallocate(fd, 0, size)
                        return
            finally:
                os.close(fd)

    def disk_bytes(self) -> int:
        files = (self.path, *(self.path.with_name(f"{self.path.name}{end}") for end in SIDECARS))
        return sum(file.stat().st_size for file in files if file.exists())

    def sidecar_path(self, name: str) -> Path:
        return self.path.with_name(f"{self.path.name}.{name}")

    def disconnect(self) -> None:
        with ExitStack() as stack:  # closes all of them, also if one fails
            for database in (self.writer, self.reader, self.renewer):
                stack.callback(database.close)


class SqliteLease(SqlLease):
    """The right to write one task of a SQLite file."""

    store: SqliteStore
    put_statement = (
        f"INSERT INTO blobs (uuid, sha256, data) SELECT uuid, ?, ? FROM tasks WHERE {IF_MINE} ON CONFLICT DO NOTHING"
    )

    def write_lines(self, lines: list[Line]) -> bool:
        (line,) = lines
        values: list[Any] = [line.number, line.data.decode()]
        if isinstance(line.record, Message):
            statement = APPEND_MESSAGE
            values += [line.record.role, line.record.tokens, line.record.timestamp, line.record.key]
        else:
            table, number = TABLES[line.name]
            statement = APPEND.format(table=table, number=number)
        return bool(self.store.writer.change(statement, *values, *self._mine))

    def find_key(self, key: str) -> int | None:
        self.check_file()
        return next((seq for (seq,) in self.store.reader.all(FIND_KEY, self.uuid, key)), None)

    def change_row(self, changes: dict[str, Any], increments: dict[str, int]) -> TaskRow | None:
        statement = f"UPDATE tasks SET {rows.assign(tuple(changes), tuple(increments))} WHERE {IF_MINE}"
        values = (*changes.values(), *increments.values(), *self._mine)

        def change(connection: sqlite3.Connection) -> TaskRow | None:
            return _read_row(connection, self.uuid) if connection.execute(statement, values).rowcount else None

        if "status" not in changes:
            return self.store.writer.transact(change)
        # a task can be paused and ended on a full disk, too
        return self.store.with_reserve(lambda: self.store.writer.transact(change, durable=self.store.is_durable))

    def sync(self) -> None:
        with self.lock:
            self._check()
            self._renew(durable=self.store.is_durable)  # a durable commit syncs all earlier ones
            self.check_file()

    def renew(self, *, beat: bool = False, durable: bool = False) -> bool:
        database = self.store.renewer if beat else self.store.writer
        return bool(database.change(RENEW, codec.now(), *self._mine, durable=durable))

    def release(self, *, durable: bool = True) -> None:
        durable = durable and self.store.is_durable
        self.store.with_reserve(lambda: self.store.writer.change(RELEASE_MINE, *self._mine, durable=durable))

    def take_back(self) -> bool:
        uuid, fence, owner = self._mine
        self.check_file()
        return bool(self.store.writer.change(RETAKE_NOW, owner, codec.now(), uuid, fence, owner))

    def check_file(self) -> None:
        with disk_errors(f"{self.store.path} cannot be checked"):
            in_place = self.store.is_in_place()
        if not in_place:
            self.lose(f"{self.store.path} was removed or replaced; task {self.uuid} is no longer written.")


def _create_task(connection: sqlite3.Connection, metadata: Metadata, status: Status) -> None:
    uuid = metadata.uuid
    if connection.execute("SELECT 1 FROM tasks WHERE uuid = ?", (uuid,)).fetchone():
        raise Conflict(f"Task {uuid} exists already.", hint="Resume it, or choose another uuid.")
    _sweep_at_once(connection, uuid)  # an earlier task with this id, whose deletion was interrupted
    connection.execute("DELETE FROM metadata WHERE uuid = ?", (uuid,))
    rows.insert(connection, TaskRow.new(metadata, status))
    line = codec.encode(metadata).decode()
    connection.execute("INSERT INTO metadata (uuid, id, line) VALUES (?, 1, ?)", (uuid, line))


def _sweep_at_once(connection: sqlite3.Connection, uuid: str) -> None:
    for table, _ in SWEPT_TABLES:
        connection.execute(f"DELETE FROM {table} WHERE uuid = ?", (uuid,))


def _read_row(connection: sqlite3.Connection, uuid: str) -> TaskRow:
    statement = f"SELECT {rows.SELECTED} FROM tasks WHERE uuid = ?"
    return rows.parse_row_leniently(connection.execute(statement, (uuid,)).fetchone())


def _measure_silence(heartbeat_at: str) -> float:
    """Return the seconds since the last heartbeat, by the clock of the machine: a file has no other."""
    try:
        last = datetime.fromisoformat(heartbeat_at)
    except (TypeError, ValueError):  # no holder wrote that
        return math.inf
    return (datetime.now(UTC) - last.astimezone(UTC)).total_seconds()


def _free_pages(connection: sqlite3.Connection) -> None:
    for _ in range(PIECE_PAGES):  # Python takes one step, which is one page, however many are asked for
        connection.execute("PRAGMA incremental_vacuum(1)").close()


def _pause_since(started: float) -> None:
    """Wait as long as the work took, so that other processes get their turn."""
    time.sleep(min(MAX_PAUSE_SECONDS, time.monotonic() - started))
