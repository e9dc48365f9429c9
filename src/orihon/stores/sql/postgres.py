"""`postgresql://…`: tasks, lists and blobs in one PostgreSQL database that any number of machines share.

A lease expires by the clock of the database; a holder that died on this machine is noticed at once. Every write locks
the row while it compares fence and owner. It is therefore complete before the holder changes or does not happen, and
the next holder continues from what is stored.

Every statement can be repeated when its answer was lost: a line has its number, a change of the row has a revision, a
lease has its owner. So a broken connection is a pause. Only if the server stays away does the caller get
OutcomeUnknown, and the key of a message then tells whether it was stored.

A commit is synced when it returns, whatever the durability, except with `os`: PostgreSQL has nothing between a commit
that survives a power cut and one that is lost when a server process is killed.

Space of deleted tasks is used again after the next autovacuum, which comes early: see `postgres/004_figures.sql`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from orihon import codec
from orihon.errors import Conflict, Corrupt, LeaseHeld, NotFound, StoreError
from orihon.records import Metadata, Record, Status, TaskRow
from orihon.stores.base import Lease, Options, Query
from orihon.stores.files import data_home, new_mask_key
from orihon.stores.sql import rows
from orihon.stores.sql.migrations import require_schema
from orihon.stores.sql.postgres_pool import Server
from orihon.stores.sql.postgres_queue import AGO, CHANNEL, NOW, PostgresQueue, died_here
from orihon.stores.sql.store import (
    IF_MINE,
    IS_GOING,
    IS_GONE,
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
    make_owner,
    parse_holder,
)
from orihon.stores.validation import require_fence

# ruff: noqa: S608 - the statements consist of constants

OWN_TABLES = ("tasks", "blobs", *(table for table, _ in TABLES.values()))
DISK_BYTES = "SELECT coalesce(sum(pg_total_relation_size(to_regclass(name))), 0) FROM unnest(?::text[]) AS name"
MASK_KEY = "SELECT key FROM mask_key"
# another worker may create it at the same moment
NEW_MASK_KEY = "WITH made AS (INSERT INTO mask_key (key) VALUES (?) ON CONFLICT DO NOTHING) SELECT 1"

# leases
CREATED_COLUMNS = tuple(name for name in rows.COLUMNS if name != "heartbeat_at")
CREATE = (
    f"WITH made AS (INSERT INTO tasks ({', '.join(map(rows.quote, CREATED_COLUMNS))}, heartbeat_at) "
    f"SELECT {', '.join('?' * len(CREATED_COLUMNS))}, {NOW} WHERE NOT EXISTS "
    "(SELECT 1 FROM metadata WHERE uuid = ? AND id = 0) "
    "ON CONFLICT DO NOTHING RETURNING uuid) "
    "INSERT INTO metadata (uuid, id, line) SELECT uuid, 1, ? FROM made RETURNING uuid"
)
# a second try, after an answer that was lost, does not count the fence again
TAKE = (
    f"UPDATE tasks SET fence = fence + (lease_owner IS DISTINCT FROM ?)::int, lease_owner = ?, heartbeat_at = {NOW} "
    f"WHERE uuid = ? AND (lease_owner IS NULL OR lease_owner = ANY(?) OR coalesce(heartbeat_at, '') < {AGO}) "
    "RETURNING fence"
)
# read after the lease is taken, because a statement does not see what was committed while it waited
TAKEN = (
    f"SELECT archived, fence, revision, (SELECT line FROM metadata WHERE uuid = tasks.uuid), {LAST_NUMBERS} "
    "FROM tasks WHERE uuid = ? AND lease_owner = ?"
)
RENEW = f"UPDATE tasks SET heartbeat_at = {NOW} WHERE {IF_MINE}"
RETAKE_NOW = RETAKE.format(now=NOW)
# a worker that waits is notified when the task can be taken
RELEASE_MINE = (
    f"WITH free AS (UPDATE tasks SET lease_owner = NULL, heartbeat_at = NULL, reserved_until = NULL WHERE {IF_MINE} "
    f"RETURNING status) SELECT pg_notify('{CHANNEL}', '') FROM free WHERE status = 'pending'"
)

# lists: one line or many in one statement, of which a broken connection leaves all or nothing
BATCH_LINES, BATCH_BYTES = 500, 1_000_000
MESSAGE_COLUMNS = {"role": "text", "tokens": "bigint", "timestamp": "text", "key": "text"}  # repeated from the line
# the row stays locked until the line is stored, so that no other process takes the lease in between
MINE = f"(SELECT uuid FROM tasks WHERE {IF_MINE} FOR SHARE) AS mine"
APPEND = (
    "INSERT INTO {table} (uuid, {columns}) SELECT mine.uuid, new.* "
    f"FROM {MINE}, unnest({{arrays}}) AS new ON CONFLICT DO NOTHING"
)
IS_STORED = "SELECT line = ? FROM {table} WHERE uuid = ? AND {number} = ?"
FIND_KEY = "SELECT seq FROM messages WHERE uuid = ? AND md5(key) = md5(?) AND key = ? ORDER BY seq DESC LIMIT 1"
CHANGED_ROW = f"SELECT {rows.SELECTED} FROM tasks WHERE {IF_MINE} AND revision = ?"

# deletions: the lease is held until the first step, and not needed afterwards
START_DELETE = (
    "WITH gone AS (DELETE FROM tasks WHERE uuid = ? AND lease_owner = ? RETURNING uuid) "
    "UPDATE metadata SET id = 0 FROM gone WHERE metadata.uuid = gone.uuid"
)
START_STUB = (
    "UPDATE tasks SET archived = 'going', lease_owner = NULL, heartbeat_at = NULL WHERE uuid = ? AND lease_owner = ?"
)
# a piece is taken from all lists at once, so that a task of ordinary size is gone in four statements
PIECE = (
    "swept_{table} AS (DELETE FROM {table} USING one WHERE {table}.uuid = one.uuid AND {number} IN "
    f"(SELECT {{number}} FROM {{table}}, one WHERE {{table}}.uuid = one.uuid LIMIT {PIECE_ROWS}) "
    "AND {condition} RETURNING 1)"
)


def _make_append(name: str) -> str:
    table, number = TABLES[name]
    types = {number: "bigint", "line": "bytea"} | (MESSAGE_COLUMNS if name == "messages" else {})
    arrays = ", ".join(f"?::{type_}[]" for type_ in types.values())
    return APPEND.format(table=table, columns=", ".join(types), arrays=arrays)


def _make_sweep(tables: tuple[tuple[str, str], ...], condition: str) -> str:
    condition = condition.format(uuid="one.uuid")
    pieces = ", ".join(PIECE.format(table=table, number=number, condition=condition) for table, number in tables)
    counts = ", ".join(f"(SELECT count(*) FROM swept_{table})" for table, _ in tables)
    return f"WITH one AS (SELECT ? AS uuid), {pieces} SELECT greatest({counts})"


APPENDS = {name: _make_append(name) for name in TABLES}
SWEEPS = {
    condition: [_make_sweep(tables, condition) for tables in (SWEPT_TABLES[:-1], SWEPT_TABLES[-1:])]
    for condition in (IS_GONE, IS_GOING)
}


class PostgresStore(SqlStore):
    """Tasks in one PostgreSQL database."""

    # about a megabyte: the sizes are known without the lines, and only the lines of the page are read
    page_statement = (
        "SELECT {number}, line FROM ("
        "SELECT {number}, line, sum(octet_length(line)) OVER (ORDER BY {number}) - octet_length(line) AS before FROM ("
        "SELECT {number}, line FROM {table} WHERE uuid = ? AND {number} BETWEEN {first} AND ? "
        "ORDER BY {number} LIMIT 1000) AS page) AS sized WHERE before < 1000000 ORDER BY {number}"
    )

    def __init__(self, url: str, options: Options | None = None) -> None:
        options = options or Options()
        synced = options.durability != "os"
        self.server = Server(url, retry_seconds=options.expiry_seconds / 2, synced=synced)
        super().__init__(self.server.safe_url, options)
        self.reader = RowReader(self.server)
        self._queue = PostgresQueue(self)
        try:
            require_schema(self.server)
        except BaseException:
            self.server.close()
            raise

    @property
    def queue(self) -> PostgresQueue:
        return self._queue

    def query(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        return self.server.all(statement, *values)

    def execute(self, statement: str, *values: Any, durable: bool = False) -> int:  # noqa: ARG002 - every commit is
        return self.server.execute(statement, *values)

    def read_page(self, statement: str, *values: Any) -> list[tuple[int, bytes]]:
        return self.server.all(statement, *values)

    def prepare_query(self, query: Query) -> Query:
        query = super().prepare_query(query)
        values = msgspec.structs.asdict(query).items()
        # PostgreSQL refuses NUL, which stored text does not contain
        return msgspec.structs.replace(
            query, **{name: codec.clean_text(value) for name, value in values if isinstance(value, str)}
        )

    # leases

    def take(self, uuid: str, owner: str, create: Metadata | None, status: Status) -> TakenLease:
        if create is not None:
            self._create(create, status, owner)
        else:
            self._take(uuid, owner)
        try:
            return self._read_taken(uuid, owner)
        except Corrupt:
            self.let_go(uuid, owner)
            raise

    def make_lease(self, owner: str, taken: TakenLease) -> PostgresLease:
        return PostgresLease(self, owner, taken)

    def _create(self, metadata: Metadata, status: Status, owner: str) -> None:
        row = msgspec.structs.replace(TaskRow.new(metadata, status, fence=1), lease_owner=owner)
        values = [getattr(row, name) for name in CREATED_COLUMNS]
        insert = partial(self.server.execute, CREATE, *values, row.uuid, codec.encode(metadata))
        if insert() or self.query(TAKEN, row.uuid, owner):
            return
        self.finish_delete(row.uuid)  # an earlier task with this id, whose deletion was interrupted
        if not insert() and not self.query(TAKEN, row.uuid, owner):
            raise Conflict(f"Task {row.uuid} exists already.", hint="Resume it, or choose another uuid.")

    def _take(self, uuid: str, owner: str) -> int:
        """Take the lease and return its fence; raise LeaseHeld if a living process has it."""
        replaceable = [owner]  # after a broken connection the lease may be ours already
        while not (taken := self.server.change(TAKE, owner, owner, uuid, replaceable, self.options.expiry_seconds)):
            found = self.query("SELECT lease_owner FROM tasks WHERE uuid = ?", uuid)
            if not found:
                raise NotFound(kind="task", id=uuid)
            ((other,),) = found
            if other is not None and not died_here(uuid, other):
                raise lease_held(uuid, parse_holder(uuid, other))
            replaceable = [owner] if other is None else [owner, other]
        return int(taken[0][0])

    def _read_taken(self, uuid: str, owner: str) -> TakenLease:
        found = self.query(TAKEN, uuid, owner)
        if found and found[0][0] == "going":  # a deletion was interrupted; the stub of the task is left
            self.finish_stub(uuid)
            found = self.query(TAKEN, uuid, owner)
        if not found:  # a process with a shorter expiry has taken it already
            raise LeaseHeld(f"Task {uuid} was taken by another process at the same moment.")
        _, fence, revision, line, *numbers = found[0]
        metadata = codec.decode_line(line or b"", Metadata)
        return TakenLease(metadata, fence, dict(zip(TABLES, numbers, strict=True)), revision)

    # deleting

    def start_delete(self, uuid: str, fence: int | None, *, stub: bool) -> None:
        row = self.row(uuid)
        if row.lease_owner is None:
            require_fence(row, fence)
        owner = make_owner()
        taken_fence = self._take(uuid, owner)
        if fence is not None and taken_fence != fence + 1:  # it was written just now
            self.let_go(uuid, owner)
            raise Conflict(f"Task {uuid} was written since it was read.")
        self.execute(START_STUB if stub else START_DELETE, uuid, owner)

    def sweep(self, uuid: str, condition: str) -> None:
        for statement in SWEEPS[condition]:
            while self.server.change(statement, uuid)[0][0] == PIECE_ROWS:
                pass

    # the store as a whole

    def disk_bytes(self) -> int:
        ((size_bytes,),) = self.query(DISK_BYTES, list(OWN_TABLES))
        return int(size_bytes)

    def sidecar_path(self, name: str) -> Path:
        # in the user's directory; one for each role, because not every role sees every task
        directory = hashlib.sha256(f"{self.url} {self.server.role}".encode()).hexdigest()[:16]
        return data_home() / "stores" / directory / name

    def mask_key(self) -> bytes:
        """Return the key that all workers share."""
        found = self.query(MASK_KEY)
        if not found:
            self.server.change(NEW_MASK_KEY, new_mask_key())
            found = self.query(MASK_KEY)
        return bytes(found[0][0])

    def close_lease(self, lease: Lease) -> None:
        try:
            lease.close()
        except StoreError:
            self.server.stop_retrying()  # for the leases that follow
            raise

    def disconnect(self) -> None:
        with ExitStack() as stack:  # closes both, also if one fails
            stack.callback(self.server.close)
            stack.callback(self._queue.close)


class RowReader:
    """Queries over rows. They are planned each time, because the best plan depends on the values."""

    avoid_index = ""  # PostgreSQL knows how many rows share a value

    def __init__(self, server: Server) -> None:
        self.server = server

    def all(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        return self.server.all(statement, *values, prepare=False)


class PostgresLease(SqlLease):
    """The right to write one task of a PostgreSQL database."""

    store: PostgresStore
    put_statement = f"INSERT INTO blobs (uuid, sha256, data) SELECT uuid, ?, ? FROM {MINE} ON CONFLICT DO NOTHING"

    def __init__(self, store: PostgresStore, owner: str, taken: TakenLease) -> None:
        super().__init__(store, owner, taken)
        self._revision: int | None = taken.revision  # None: unknown since an error
        self._batch: list[Line] | None = None  # lines that are sent together

    @contextmanager
    def batch(self) -> Iterator[None]:
        with self.lock:
            if self._batch is not None:
                yield
                return
            self._batch = []
            try:
                yield
            finally:
                try:
                    self._send()
                finally:
                    self._batch = None

    def write(self, name: str, number: int, line: bytes, record: Record) -> None:
        if self._batch is None:
            super().write(name, number, line, record)
            return
        self._check()
        if self._batch and self._batch[-1].name != name:
            self._send()
        self._batch.append(Line(name, number, line.removesuffix(b"\n"), record))
        self._numbers = self._numbers and self._numbers | {name: number}
        if len(self._batch) >= BATCH_LINES or sum(len(waiting.data) for waiting in self._batch) >= BATCH_BYTES:
            self._send()

    def _send(self) -> None:
        """Write the lines of the batch in one step."""
        if not self._batch:
            return
        batch, self._batch = self._batch, []
        numbers, self._numbers = self._numbers, None
        if not self.write_lines(batch):
            self.lose()
        self._numbers = numbers

    def write_lines(self, lines: list[Line]) -> bool:
        columns: list[list[Any]] = [[line.number for line in lines], [line.data for line in lines]]
        if lines[0].name == "messages":
            columns += [[getattr(line.record, name) for line in lines] for name in MESSAGE_COLUMNS]
        # all numbers are new, or none is
        return bool(self.store.execute(APPENDS[lines[0].name], *self._mine, *columns)) or self._is_stored(lines[-1])

    def _is_stored(self, line: Line) -> bool:
        """Return whether a line that was not inserted is stored. If so, the answer to an earlier try was lost."""
        table, column = TABLES[line.name]
        stored = self.store.query(IS_STORED.format(table=table, number=column), line.data, self.uuid, line.number)
        if stored == [(False,)] and self.renew():
            raise Conflict(f"Number {line.number} of the {line.name} of task {self.uuid} exists and differs.")
        return stored == [(True,)]

    def find_key(self, key: str) -> int | None:
        self._send()
        found = self.store.query(FIND_KEY, self.uuid, key, key)
        return found[0][0] if found else None

    def change_row(self, changes: dict[str, Any], increments: dict[str, int]) -> TaskRow | None:
        self._send()
        # unknown until the row is changed, like the numbers
        revision, self._revision = self._read_revision(), None
        found = self.store.server.change(
            f"UPDATE tasks SET {rows.assign(tuple(changes), tuple(increments))}, revision = revision + 1 "
            f"WHERE {IF_MINE} AND revision = ? RETURNING {rows.SELECTED}",
            *(*changes.values(), *increments.values(), *self._mine, revision),
        )
        if not found:  # the answer to an earlier try, or the lease, was lost
            found = self.store.query(CHANGED_ROW, *self._mine, revision + 1)
        if not found:
            return None
        self._revision = revision + 1
        return rows.parse_row_leniently(found[0])

    def _read_revision(self) -> int:
        if self._revision is None:
            found = self.store.query(f"SELECT revision FROM tasks WHERE {IF_MINE}", *self._mine)
            if not found:
                self.lose()
            self._revision = found[0][0]
        return self._revision

    def sync(self) -> None:
        with self.lock:
            self._check()
            self._send()
            if not self.store.query(f"SELECT 1 FROM tasks WHERE {IF_MINE}", *self._mine):
                self.lose()

    def renew(self, *, beat: bool = False, durable: bool = False) -> bool:  # noqa: ARG002 - every commit is durable
        return bool(self.store.execute(RENEW, *self._mine))

    def release(self, *, durable: bool = True) -> None:  # noqa: ARG002 - every commit is durable
        self.store.execute(RELEASE_MINE, *self._mine)

    def take_back(self) -> bool:
        uuid, fence, owner = self._mine
        return bool(self.store.execute(RETAKE_NOW, owner, uuid, fence, owner))
