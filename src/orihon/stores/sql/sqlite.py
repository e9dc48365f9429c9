"""`sqlite:///FILE`: tasks, lists and blobs in one SQLite file that `sqlite3` can open and people can query.

A lease is three columns of the task's row: who has it (`lease_owner`), when he was last heard of (`heartbeat_at`), and
the `fence`, which grows by one whenever the lease is taken. It is taken in one transaction, when it is free, when its
holder was not heard of for `expiry_seconds`, or when he is dead. Every write names its fence in its own statement, so
whoever slept and woke, however late, touches no row and hears LeaseLost. It names the owner too, because a task that
was deleted and made again counts its fences from 1.

Nothing else is needed to keep blobs before the lines that name them, or messages before the row that counts them: all
of it goes through one log, and a power cut cuts that log at one place. See `database` for what is synced when.
"""

from __future__ import annotations

import hashlib
import math
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import msgspec

from orihon import codec
from orihon.errors import Conflict, Corrupt, NotFound, NotWritten, OutcomeUnknown
from orihon.records import Metadata, Status, TaskRow
from orihon.stores import mounts
from orihon.stores.base import GroupBy, Lease, Options, Query, Totals
from orihon.stores.files import find_identity, warn_if_open
from orihon.stores.liveness import is_alive
from orihon.stores.sql import reserve, rows
from orihon.stores.sql.database import Database
from orihon.stores.sql.store import TABLES, FencedStore, held, holder_of, new_holder
from orihon.stores.sql.sweeping import GOING, GONE, MARK, finish, give_back, sweep, sweep_at_once
from orihon.stores.validation import require_fence, validate_new_task, validate_task_id

NEWEST = "SELECT min(n) FROM (SELECT {number} AS n FROM {table} WHERE uuid = ? ORDER BY n DESC LIMIT ?)"
PAGE = (
    "SELECT {number}, CAST(line AS BLOB) FROM {table} "
    "WHERE uuid = ? AND {number} BETWEEN ? AND ? ORDER BY {number} LIMIT 1000"
)
LAST = "SELECT ifnull(max({number}), 0) FROM {table} WHERE uuid = ?"
TAKE = "UPDATE tasks SET fence = fence + 1, lease_owner = ?, heartbeat_at = ? WHERE uuid = ?"
LET_GO = "UPDATE tasks SET lease_owner = NULL, heartbeat_at = NULL WHERE uuid = ? AND lease_owner = ?"
TAKEN = "SELECT fence, CAST(line AS BLOB) FROM tasks JOIN metadata USING (uuid) WHERE uuid = ?"
GO, FALL = "DELETE FROM tasks WHERE uuid = ?", "UPDATE tasks SET archived = 'going' WHERE uuid = ?"
FALLEN = "UPDATE tasks SET archived = 'stub', packed_bytes = 0 WHERE uuid = ? AND archived = 'going'"
# blobs behind the lines that name them, so that whoever reads meanwhile misses none
SWEPT = (*(place for name, place in TABLES.items() if name != "metadata"), ("blobs", "sha256"))
NO_NUMBER = 2**63 - 1
BESIDE = ("-wal", "-shm", "-reserve")
READABLE = ("-wal", "-shm", ".audit.jsonl", ".search.db", ".search.db-wal", ".search.db-shm")  # what holds texts

T = TypeVar("T")


class SqliteStore(FencedStore):
    """Tasks in one SQLite file."""

    leases_expire = True

    def __init__(self, path: Path, options: Options | None = None) -> None:
        super().__init__(f"sqlite:///{path}", options)
        self.path = path = path.absolute()  # also after the process has changed its directory
        mounts.require_local(path.parent)
        warn_if_open(path, *(path.with_name(f"{path.name}{end}") for end in READABLE))
        self.leases: set[Lease] = set()
        self.syncs = self.options.durability != "os"
        # three connections, so that a reader does not wait for a writer's disk, nor a heartbeat for either
        with ExitStack() as opened:
            self.writer = Database(path, ("tasks", "lists"), durable=self.options.durability == "message")
            opened.callback(self.writer.close)
            self.reader = Database(path)
            opened.callback(self.reader.close)
            self.renewer = Database(path)
            opened.pop_all()
        self._opened = {file: find_identity(file) for file in (str(path), f"{path}-wal") if find_identity(file)}
        self.reserve = path.with_name(f"{path.name}-reserve")
        reserve.keep(self.reserve)

    def lease(self, uuid: str, *, create: Metadata | None = None, status: Status = "running") -> Lease:
        from orihon.stores.sql.sqlite_lease import SqliteLease  # noqa: PLC0415 - the two know each other

        validate_task_id(uuid)
        create = None if create is None else validate_new_task(uuid, create, self.sanitiser)
        owner = msgspec.json.encode(new_holder()).decode()

        def take(connection: sqlite3.Connection) -> tuple[Metadata, int, str, dict[str, int]]:
            if create is not None:
                _create(connection, create, status)
            self._refuse_if_held(connection, uuid)
            _finish_going(connection, uuid)
            connection.execute(TAKE, (owner, codec.now(), uuid))
            ((fence, line),) = connection.execute(TAKEN, (uuid,))
            return codec.decode_line(line, Metadata), fence, owner, last_numbers(connection, uuid)

        try:
            lease = SqliteLease(self, *self.writer.transact(take, durable=self.syncs))
            self.leases.add(lease)
        except BaseException as error:
            if isinstance(error, OutcomeUnknown) or not isinstance(error, Exception):
                self.writer.change(LET_GO, uuid, owner)  # it may be taken, and nobody has it
            raise
        return lease

    def find(self, query: Query | None = None) -> Iterator[TaskRow]:
        return rows.find(self.reader, (query or Query()).sanitised(self.sanitiser))

    def totals(self, query: Query, by: GroupBy) -> dict[str, Totals]:
        return rows.kept_totals(self.reader, query.sanitised(self.sanitiser), by)

    def lines(self, uuid: str, name: str, first: int, last: int | None) -> Iterator[tuple[int, bytes]]:
        table, number = TABLES[name]
        self._check_task(uuid)
        if first < 0:
            ((newest,),) = self.reader.all(NEWEST.format(table=table, number=number), uuid, -first)
            first = newest or 1
        # page by page, each beginning behind the last number, so that no reader keeps the log from being copied back
        statement = PAGE.format(table=table, number=number)
        while found := self.reader.some(statement, uuid, first, NO_NUMBER if last is None else last):
            yield from ((place, line + b"\n") for place, line in found)
            first = found[-1][0] + 1

    def blob(self, uuid: str, sha256: str) -> bytes:
        self._check_task(uuid)
        found = self.reader.all("SELECT data FROM blobs WHERE uuid = ? AND sha256 = ?", uuid, sha256)
        if not found:
            raise NotFound(kind="blob", id=sha256)
        data: bytes = found[0][0]
        if hashlib.sha256(data).hexdigest() != sha256:
            raise Corrupt(f"The bytes of blob {sha256} are not those that were put there.", where=str(self.reader.path))
        return data

    def delete(self, uuid: str, *, fence: int | None = None, stub: bool = False) -> None:
        self.with_reserve(lambda: self._delete(uuid, fence, FALL if stub else GO), spend=True)
        if stub:
            sweep(self.writer, uuid, SWEPT, GOING)
            self.writer.change(FALLEN, uuid, durable=self.syncs)
        else:
            sweep(self.writer, uuid, (*SWEPT, TABLES["metadata"]), GONE)

    def _delete(self, uuid: str, fence: int | None, statement: str) -> None:
        """Out of sight in one step."""
        validate_task_id(uuid)

        def delete(connection: sqlite3.Connection) -> None:
            self._refuse_if_held(connection, uuid)
            require_fence(rows.get(connection, uuid), fence)
            connection.execute(statement, (uuid,))
            if statement == GO:
                connection.execute(MARK, (uuid,))

        self.writer.transact(delete, durable=self.syncs)

    def with_reserve(self, work: Callable[[], T], *, spend: bool = False) -> T:
        """Do something small that must be possible on a full disk, with the room that is kept for it.

        What is left of the room is kept for the next time, unless it may be spent. Where no file may grow, because of
        a limit of the process, there is room in the log once it is copied back.
        """
        try:
            return work()
        except OutcomeUnknown:
            # what was half written to the log is seen by nobody, and the next write overwrites it
            if not self.writer.log_failed or not self.writer.begin_log_again():
                raise
        except NotWritten:
            if not reserve.give(self.reserve):
                raise
        try:
            return work()
        finally:
            reserve.keep(self.reserve, part=not spend)

    def disk_bytes(self) -> int:
        files = (self.path, *(self.path.with_name(f"{self.path.name}{end}") for end in BESIDE))
        return sum(file.stat().st_size for file in files if file.exists())

    def count(self, query: Query) -> tuple[int, int]:
        return rows.count(self.reader, query.sanitised(self.sanitiser))

    def sidecar_path(self, name: str) -> Path:
        return self.path.with_name(f"{self.path.name}.{name}")

    def vacuum(self) -> int:
        finish(self.writer, (*SWEPT, TABLES["metadata"]))
        return give_back(self.writer)

    def close(self) -> None:
        with ExitStack() as last_to_first:  # all of them, also when one fails
            for database in (self.writer, self.reader, self.renewer):
                last_to_first.callback(database.close)
            for lease in self.leases:
                last_to_first.callback(lease.close)

    def is_in_place(self) -> bool:
        """Whether the file and its log are still those that are open; SQLite goes on with files that were removed."""
        return all(find_identity(file) == identity for file, identity in self._opened.items())

    def _check_task(self, uuid: str) -> None:
        if not self.reader.all("SELECT 1 FROM tasks WHERE uuid = ?", validate_task_id(uuid)):
            raise NotFound(kind="task", id=uuid)

    def _refuse_if_held(self, connection: sqlite3.Connection, uuid: str) -> None:
        found = connection.execute("SELECT lease_owner, heartbeat_at FROM tasks WHERE uuid = ?", (uuid,)).fetchone()
        if found is None:
            raise NotFound(kind="task", id=uuid)
        owner, heartbeat_at = found
        if owner is None or _silence_seconds(heartbeat_at) > self.options.expiry_seconds:
            return
        holder = holder_of(uuid, owner)
        if is_alive(holder) is not False:
            raise held(uuid, holder)


def _create(connection: sqlite3.Connection, metadata: Metadata, status: Status) -> None:
    uuid = validate_task_id(metadata.uuid)
    if connection.execute("SELECT 1 FROM tasks WHERE uuid = ?", (uuid,)).fetchone():
        raise Conflict(f"There is a task {uuid} already.", hint="Resume it, or choose another uuid.")
    sweep_at_once(connection, uuid, (*SWEPT, TABLES["metadata"]))  # of one with this id, whose deletion was cut short
    rows.insert(connection, TaskRow.new(metadata, status))
    line = codec.encode(metadata).decode()
    connection.execute("INSERT INTO metadata (uuid, id, line) VALUES (?, 1, ?)", (uuid, line))


def _finish_going(connection: sqlite3.Connection, uuid: str) -> None:
    """Whoever takes a task finds a stub, not what is left of one that was being cut down when the power failed."""
    if connection.execute(FALLEN, (uuid,)).rowcount:
        sweep_at_once(connection, uuid, SWEPT)


def last_numbers(connection: sqlite3.Connection, uuid: str) -> dict[str, int]:
    """The newest number of every list, from the ends of the primary keys."""
    return {
        name: connection.execute(LAST.format(table=table, number=number), (uuid,)).fetchone()[0]
        for name, (table, number) in TABLES.items()
    }


def _silence_seconds(heartbeat_at: str) -> float:
    """How long a holder was not heard of, by the clock of the machine: a file has no other."""
    try:
        heard = datetime.fromisoformat(heartbeat_at)
    except (TypeError, ValueError):  # nobody wrote that: the holder was never heard of
        return math.inf
    return (datetime.now(UTC) - heard.astimezone(UTC)).total_seconds()
