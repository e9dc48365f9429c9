"""What the SQLite and PostgreSQL stores share: leases are columns of a row, lists and blobs are tables.

A lease is three columns of the task's row: who holds it (`lease_owner`), when the holder was last alive
(`heartbeat_at`), and the `fence`, which grows by one whenever the lease is taken. It can be taken if it is free, if its
holder was silent for `expiry_seconds`, or if its holder is dead. Every write names its fence in the same statement, so
a writer that wakes after its lease expired changes no row and gets LeaseLost. It names the owner too, because a task
that was deleted and created again counts its fences from 1.

A deletion removes the row first, or marks it as `going`, so that the task disappears in one step. Lists and blobs
follow in pieces. Leftovers of a crash are found by that mark, or by metadata with number 0, which are deleted last.
"""

from __future__ import annotations

import hashlib
import logging
import os
import time
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, NamedTuple, NoReturn

import msgspec

from orihon import codec
from orihon.coerce import decode_json
from orihon.errors import (
    Corrupt,
    LeaseHeld,
    LeaseLost,
    NotFound,
    NotWritten,
    OutcomeUnknown,
    StoreError,
    StoreUnavailable,
)
from orihon.records import Blob, Metadata, Record, Status, TaskRow
from orihon.stores.base import LISTS, GroupBy, Lease, Options, Query, Store, Totals
from orihon.stores.liveness import Heartbeat, Owner, current_owner, is_alive
from orihon.stores.sql import rows
from orihon.stores.validation import validate_new_task, validate_task_id

# ruff: noqa: S608 - the statements consist of constants

log = logging.getLogger("orihon")

# the table of each list, and the column that numbers it
TABLES = {name: ("tool_calls" if name == "tools" else name, field or "id") for name, field in LISTS.values()}
# blobs after the lines that name them, so that a reader misses none
SWEPT_TABLES = (*(table for name, table in TABLES.items() if name != "metadata"), ("blobs", "sha256"))
PIECE_ROWS = 200  # that a deletion removes at once
MAX_NUMBER = 2**63 - 1

IF_MINE = "uuid = ? AND fence = ? AND lease_owner = ?"
RETAKE = (
    "UPDATE tasks SET lease_owner = ?, heartbeat_at = {now} "
    "WHERE uuid = ? AND fence = ? AND (lease_owner IS NULL OR lease_owner = ?)"
)
RELEASE = "UPDATE tasks SET lease_owner = NULL, heartbeat_at = NULL WHERE uuid = ? AND lease_owner = ?"
END_STUB = "UPDATE tasks SET archived = 'stub', packed_bytes = 0 WHERE uuid = ? AND archived = 'going'"
END_DELETE = "DELETE FROM metadata WHERE uuid = ? AND id = 0"
LEFTOVERS = "SELECT uuid FROM metadata WHERE id = 0"
IS_GONE = "NOT EXISTS (SELECT 1 FROM tasks WHERE tasks.uuid = {uuid})"
IS_GOING = "EXISTS (SELECT 1 FROM tasks WHERE tasks.uuid = {uuid} AND archived = 'going')"
_LAST = "(SELECT coalesce(max({number}), 0) FROM {table} WHERE uuid = tasks.uuid)"
LAST_NUMBERS = ", ".join(_LAST.format(table=table, number=number) for table, number in TABLES.values())
NEWEST = (
    "(SELECT coalesce(min(n), 1) FROM "
    "(SELECT {number} AS n FROM {table} WHERE uuid = ? ORDER BY n DESC LIMIT ?) AS newest)"
)


class LeaseHolder(Owner, frozen=True, kw_only=True):
    """The holder of a lease, as JSON in `lease_owner`."""

    since: str


def make_owner() -> str:
    """Return the text of `lease_owner` for the current process."""
    holder = LeaseHolder(**msgspec.structs.asdict(current_owner()), since=codec.now())
    return msgspec.json.encode(holder).decode()


def parse_holder(uuid: str, owner: str) -> LeaseHolder:
    """Return the holder of a lease. One that cannot be read, because it was edited, holds until it expires."""
    try:
        return decode_json(owner, type=LeaseHolder)
    except ValueError:
        raise LeaseHeld(f"Task {uuid} is held by {owner!r}.", owner=owner) from None


def lease_held(uuid: str, holder: LeaseHolder) -> LeaseHeld:
    """Return the error that names the holder of a task."""
    return LeaseHeld(f"Task {uuid} is held by {holder} since {holder.since}.", owner=str(holder))


class TakenLease(NamedTuple):
    """The state of a task whose lease was taken."""

    metadata: Metadata
    fence: int
    last_numbers: dict[str, int]
    revision: int = 0  # PostgreSQL's count of the changes of a row


class SqlStore(Store):
    """Tasks in a database."""

    leases_expire = True
    reader: rows.Reader  # for queries over rows
    page_statement: ClassVar[str]  # reads lines; its blanks are `{table}`, `{number}` and `{first}`

    def __init__(self, url: str, options: Options | None = None) -> None:
        super().__init__(url, options)
        self.leases: set[Lease] = set()
        self.is_durable = self.options.durability != "os"

    # each database does these differently

    @abstractmethod
    def query(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""

    @abstractmethod
    def execute(self, statement: str, *values: Any, durable: bool = False) -> int:
        """Run one statement in its own transaction; return the number of rows that it changed or returned."""

    @abstractmethod
    def read_page(self, statement: str, *values: Any) -> list[tuple[int, bytes]]:
        """Return numbered lines, about a megabyte of them."""

    @abstractmethod
    def take(self, uuid: str, owner: str, create: Metadata | None, status: Status) -> TakenLease:
        """Take the lease of a task; with `create`, create the task first."""

    @abstractmethod
    def make_lease(self, owner: str, taken: TakenLease) -> Lease:
        """Return the object for a lease that was taken."""

    @abstractmethod
    def start_delete(self, uuid: str, fence: int | None, *, stub: bool) -> None:
        """Delete the row of a task and mark its metadata; with `stub`, mark the row as going."""

    @abstractmethod
    def sweep(self, uuid: str, condition: str) -> None:
        """Delete lists and blobs of a task in pieces, as long as the condition holds."""

    @abstractmethod
    def disconnect(self) -> None:
        """Close the connections."""

    def may_be_taken_after(self, error: BaseException) -> bool:  # noqa: ARG002 - SQLite uses it
        """Return whether `take` may have taken the lease although it raised this error."""
        return False

    def check_before_reading(self, uuid: str) -> None:
        """Raise NotFound if the task is gone, where this check is cheap."""

    # leases

    def lease(self, uuid: str, *, create: Metadata | None = None, status: Status = "running") -> Lease:
        validate_task_id(uuid)
        create = None if create is None else validate_new_task(uuid, create, self.sanitiser)
        owner, taken = make_owner(), None
        try:
            taken = self.take(uuid, owner, create, status)
            lease = self.make_lease(owner, taken)
            self.leases.add(lease)
        except BaseException as error:
            if taken is not None or self.may_be_taken_after(error):
                self.let_go(uuid, owner)
            raise
        return lease

    def let_go(self, uuid: str, owner: str) -> None:
        """Release a lease that no object holds."""
        with suppress(StoreError):  # it expires
            self.execute(RELEASE, uuid, owner)

    # reading

    def find(self, query: Query | None = None) -> Iterator[TaskRow]:
        return rows.find(self.reader, self.prepare_query(query or Query()))

    def totals(self, query: Query, by: GroupBy) -> dict[str, Totals]:
        return rows.compute_totals(self.reader, self.prepare_query(query), by)

    def count(self, query: Query) -> tuple[int, int]:
        return rows.count(self.reader, self.prepare_query(query))

    def prepare_query(self, query: Query) -> Query:
        """Return the query with its values as they are stored."""
        return query.sanitised(self.sanitiser)

    def row(self, uuid: str) -> TaskRow:
        found = self.query(f"SELECT {rows.SELECTED} FROM tasks WHERE uuid = ?", validate_task_id(uuid))
        if not found:
            raise NotFound(kind="task", id=uuid)
        return rows.parse_row_leniently(found[0])

    def lines(self, uuid: str, name: str, first: int, last: int | None) -> Iterator[tuple[int, bytes]]:
        self.check_before_reading(validate_task_id(uuid))
        table, number = TABLES[name]
        names = {"table": table, "number": number}
        end = MAX_NUMBER if last is None else last
        statement = self.page_statement.format(first="?", **names)
        if first < 0:
            newest = self.page_statement.format(first=NEWEST.format(**names), **names)
            page = self.read_page(newest, uuid, uuid, -first, end)
        else:
            page = self.read_page(statement, uuid, first, end)
        if not page:
            self.require_task(uuid)
        # each page begins behind the last number, so that no transaction is open between two pages
        while page:
            yield from ((position, line + b"\n") for position, line in page)
            page = self.read_page(statement, uuid, page[-1][0] + 1, end)

    def blob(self, uuid: str, sha256: str) -> bytes:
        self.check_before_reading(validate_task_id(uuid))
        found = self.query("SELECT data FROM blobs WHERE uuid = ? AND sha256 = ?", uuid, sha256)
        if not found:
            self.require_task(uuid)
            raise NotFound(kind="blob", id=sha256)
        data: bytes = found[0][0]
        if hashlib.sha256(data).hexdigest() != sha256:
            raise Corrupt(f"Blob {sha256} of task {uuid} does not match its hash.", where=self.url)
        return data

    def is_abandoned(self, row: TaskRow) -> bool:
        silent_since = datetime.now(UTC) - timedelta(seconds=self.options.expiry_seconds)
        if row.lease_owner is None or (row.heartbeat_at or "") < codec.format_time(silent_since):
            return True
        with suppress(LeaseHeld):
            return is_alive(parse_holder(row.uuid, row.lease_owner)) is False
        return False

    def require_task(self, uuid: str) -> None:
        """Raise NotFound if the task has no row."""
        if not self.query("SELECT 1 FROM tasks WHERE uuid = ?", uuid):
            raise NotFound(kind="task", id=uuid)

    # deleting

    def delete(self, uuid: str, *, fence: int | None = None, stub: bool = False) -> None:
        self.start_delete(validate_task_id(uuid), fence, stub=stub)
        if stub:
            self.finish_stub(uuid)
        else:
            self.finish_delete(uuid)

    def finish_stub(self, uuid: str) -> None:
        """Reduce a task that is marked as going to its row and metadata."""
        self.sweep(uuid, IS_GOING)
        self.execute(END_STUB, uuid, durable=self.is_durable)

    def finish_delete(self, uuid: str) -> None:
        """Delete lists, blobs and metadata of a task whose row is gone."""
        self.sweep(uuid, IS_GONE)
        self.execute(END_DELETE, uuid)

    def vacuum(self) -> int:
        for (uuid,) in self.query(LEFTOVERS):
            self.finish_delete(uuid)
        return 0

    # closing

    def close(self) -> None:
        with ExitStack() as stack:  # closes all of them, also if one fails
            stack.callback(self.disconnect)
            for lease in self.leases:
                stack.callback(self.close_lease, lease)

    def close_lease(self, lease: Lease) -> None:
        """Release a lease that is open when the store is closed."""
        lease.close()


class Line(NamedTuple):
    """A line to be written to a list."""

    name: str
    number: int
    data: bytes
    record: Record


class SqlLease(Lease):
    """The right to write one task, proved by a fence and kept by a heartbeat."""

    store: SqlStore
    put_statement: ClassVar[str]  # inserts a blob; its values are sha256, data and those of `IF_MINE`

    def __init__(self, store: SqlStore, owner: str, taken: TakenLease) -> None:
        super().__init__(store, taken.metadata, taken.fence)
        self._mine = (self.uuid, taken.fence, owner)  # the values of `IF_MINE`
        self._numbers: dict[str, int] | None = taken.last_numbers
        self._process_id = os.getpid()
        self._closed = self._lost = self._suspended = False
        self._renewed = time.monotonic()
        self._heartbeat = Heartbeat(self._beat, store.options.heartbeat_seconds)

    @property
    def lost(self) -> bool:
        return self._lost

    # each database does these differently

    @abstractmethod
    def write_lines(self, lines: list[Line]) -> bool:
        """Write lines of one list, if the lease is still ours; return whether they are stored."""

    @abstractmethod
    def change_row(self, changes: dict[str, Any], increments: dict[str, int]) -> TaskRow | None:
        """Change the row, if the lease is still ours; return it, or None."""

    @abstractmethod
    def renew(self, *, beat: bool = False, durable: bool = False) -> bool:
        """Write a heartbeat; return whether the lease was still ours. A `beat` waits for no other write."""

    @abstractmethod
    def release(self, *, durable: bool = True) -> None:
        """Release the lease, if it is still ours."""

    @abstractmethod
    def take_back(self) -> bool:
        """Take the lease that was released, unless another process took it; return whether it is ours."""

    def check_file(self) -> None:
        """Raise LeaseLost if other processes do not see what was written."""

    # the same for both

    def last(self, kind: type[Record]) -> int:
        with self.lock:
            if self._numbers is None:
                found = self.store.query(f"SELECT {LAST_NUMBERS} FROM tasks WHERE uuid = ?", self.uuid)
                self._numbers = dict(zip(TABLES, found[0] if found else (0,) * len(TABLES), strict=True))
            return self._numbers[LISTS[kind][0]]

    def write(self, name: str, number: int, line: bytes, record: Record) -> None:
        self._check()
        # unknown until the line is stored: after an error the next append reads them again
        numbers, self._numbers = self._numbers, None
        if not self.write_lines([Line(name, number, line.removesuffix(b"\n"), record)]):
            self.lose()
        self.check_file()
        self._numbers = numbers and numbers | {name: number}

    def _remember_key(self, key: str, number: int) -> None:
        """Do nothing: the database has an index of all keys."""

    def put(self, data: bytes) -> Blob:
        with self.lock:
            self._check()
            sha256 = hashlib.sha256(data).hexdigest()
            if not self.store.execute(self.put_statement, sha256, data, *self._mine):
                self._renew()  # the blob is stored already, or the lease is lost
            self.check_file()
            return Blob(sha256=sha256, size_bytes=len(data))

    def change(self, changes: dict[str, Any], add: dict[str, int]) -> TaskRow:
        with self.lock:
            self._check()
            row = self.change_row({"updated_at": codec.now()} | changes, add)
            if row is None:
                self.lose()
            self.check_file()
            return row

    def suspend(self) -> None:
        with self.lock:
            self._check()
            self._heartbeat.stop()
            self._suspended = True
            self.release(durable=False)

    def retake(self) -> bool:
        with self.lock:
            if self._closed or self._lost or not self._suspended or self._process_id != os.getpid():
                return False
            asked = time.monotonic()
            if not self.take_back():
                return False
            self._renewed, self._suspended = asked, False
            self._heartbeat = Heartbeat(self._beat, self.store.options.heartbeat_seconds)
            return True

    def close(self) -> None:
        if self._process_id != os.getpid():
            return  # the lease belongs to the parent of a forked child
        with self.lock:
            if self._closed:
                return
            if not self._suspended:
                self._heartbeat.stop()
            self._closed = True
            self.store.leases.discard(self)
            try:
                if not self._lost and not self._suspended:
                    self.release()
            except (NotWritten, OutcomeUnknown, StoreUnavailable) as error:
                raise type(error)(
                    f"The lease on task {self.uuid} could not be released: {error.message} "
                    f"It is free when this process ends, or in {self.store.options.expiry_seconds:g} seconds.",
                    hint="No record that was appended is lost.",
                    retryable=False,
                ) from error

    def _check(self) -> None:
        """Raise LeaseLost if the lease is not ours. A holder that was silent for too long asks the store."""
        if self._process_id != os.getpid():
            raise LeaseLost(f"Task {self.uuid} belongs to the parent process; nothing was written.")
        if self._closed or self._lost or self._suspended:
            raise LeaseLost
        if time.monotonic() - self._renewed > self.store.options.expiry_seconds:
            self._renew()

    def _renew(self, *, beat: bool = False, durable: bool = False) -> None:
        asked = time.monotonic()
        if not self.renew(beat=beat, durable=durable):
            self.lose()
        self._renewed = asked

    def lose(self, message: str = "") -> NoReturn:
        """Raise LeaseLost, now and at every later write."""
        self._lost = True
        raise LeaseLost(message)

    def _beat(self) -> None:
        try:
            self._renew(beat=True)
        except LeaseLost:
            log.warning("[uuid:%s] Another process took the lease.", self.uuid[:8])
            self._heartbeat.stop()
