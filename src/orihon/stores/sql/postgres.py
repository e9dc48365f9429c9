"""`postgresql://…`: tasks, lists and blobs in one PostgreSQL database that any number of machines share.

A lease is what it is in a SQLite file: three columns of the task's row, taken in one statement, when it is free, when
its holder was not heard of for `expiry_seconds` by the clock of the database, or when he died on this very machine.
Every write locks that row while it looks at fence and owner, so it comes whole before a change of the holder or not at
all, and the next holder counts from what is there.

A commit is synced when it returns, whatever the durability, except with `os`: PostgreSQL has nothing between a commit
that a power cut cannot take back and one that the kill of a server process takes with it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from orihon import codec
from orihon.errors import Conflict, Corrupt, LeaseHeld, NotFound, StoreError
from orihon.records import Metadata, Status, TaskRow
from orihon.stores.base import GroupBy, Lease, Options, Query, Totals
from orihon.stores.files import data_home, new_mask_key
from orihon.stores.sql import postgres_sweeping, rows
from orihon.stores.sql.migrations import require_schema
from orihon.stores.sql.postgres_pool import Server
from orihon.stores.sql.postgres_queue import AGO, NOW, PostgresQueue, died_here
from orihon.stores.sql.store import TABLES, FencedStore, held, holder_of, new_holder
from orihon.stores.validation import require_fence, validate_new_task, validate_task_id

# ruff: noqa: S608 - the statements are put together from what stands here
FREE = f"(lease_owner IS NULL OR lease_owner = ANY(%s) OR coalesce(heartbeat_at, '') < {AGO})"
MADE_WITH = tuple(name for name in rows.COLUMNS if name != "heartbeat_at")
CREATE = (
    f"WITH made AS (INSERT INTO tasks ({', '.join(map(rows.quoted, MADE_WITH))}, heartbeat_at) "
    f"SELECT {', '.join(['%s'] * len(MADE_WITH))}, {NOW} WHERE NOT EXISTS "
    "(SELECT 1 FROM metadata WHERE uuid = %s AND id = 0) "
    "ON CONFLICT DO NOTHING RETURNING uuid) "
    "INSERT INTO metadata (uuid, id, line) SELECT uuid, 1, %s FROM made RETURNING uuid"
)
# a second try, after an answer that was lost, counts no further
TAKE = (
    f"UPDATE tasks SET fence = fence + (lease_owner IS DISTINCT FROM %s)::int, lease_owner = %s, heartbeat_at = {NOW} "
    f"WHERE uuid = %s AND {FREE} RETURNING fence"
)
LET_GO = "UPDATE tasks SET lease_owner = NULL, heartbeat_at = NULL WHERE uuid = %s AND lease_owner = %s RETURNING uuid"
# read after the lease is taken and not with it, because a statement does not see what came while it waited
LAST = "(SELECT coalesce(max({number}), 0) FROM {table} WHERE uuid = tasks.uuid) AS {name}"
NUMBERS = ", ".join(LAST.format(name=name, table=table, number=number) for name, (table, number) in TABLES.items())
TAKEN = (
    f"SELECT archived, fence, revision, (SELECT line FROM metadata WHERE uuid = tasks.uuid), {NUMBERS} "
    "FROM tasks WHERE uuid = %s AND lease_owner = %s"
)
# about a megabyte: the sizes are known without the lines, and only those that are given out are read
PAGE = (
    "SELECT {number}, line FROM ("
    "SELECT {number}, line, sum(octet_length(line)) OVER (ORDER BY {number}) - octet_length(line) AS before FROM ("
    "SELECT {number}, line FROM {table} WHERE uuid = %s AND {number} BETWEEN {first} AND %s "
    "ORDER BY {number} LIMIT 1000) AS page) AS sized WHERE before < 1000000 ORDER BY {number}"
)
NEWEST = (
    "(SELECT coalesce(min(n), 1) FROM ("
    "SELECT {number} AS n FROM {table} WHERE uuid = %s ORDER BY n DESC LIMIT %s) AS newest)"
)
DISK = "SELECT coalesce(sum(pg_total_relation_size(to_regclass(name))), 0) FROM unnest(%s::text[]) AS name"
OWN_TABLES = ("tasks", "blobs", *(table for table, _ in TABLES.values()))
NO_NUMBER = 2**63 - 1
MASK_KEY = "SELECT key FROM mask_key"
# another worker may create it at the same moment
NEW_MASK_KEY = "WITH made AS (INSERT INTO mask_key (key) VALUES (%s) ON CONFLICT DO NOTHING) SELECT 1"


class PostgresStore(FencedStore):
    """Tasks in one PostgreSQL database."""

    leases_expire = True

    def __init__(self, url: str, options: Options | None = None) -> None:
        options = options or Options()
        synced = options.durability != "os"
        self.server = Server(url, patience_seconds=options.expiry_seconds / 2, synced=synced)
        super().__init__(self.server.shown, options)
        self.leases: set[Lease] = set()
        self.reader = Rows(self.server)
        self._queue = PostgresQueue(self)
        try:
            require_schema(self.server)
        except BaseException:
            self.server.close()
            raise

    def lease(self, uuid: str, *, create: Metadata | None = None, status: Status = "running") -> Lease:
        from orihon.stores.sql.postgres_lease import PostgresLease  # noqa: PLC0415 - the two know each other

        validate_task_id(uuid)
        owner = msgspec.json.encode(new_holder()).decode()
        if create is not None:
            self._create(validate_new_task(uuid, create, self.sanitiser), status, owner)
        else:
            self._take(uuid, owner)
        found = self._taken(uuid, owner)
        if found and found[0][0] == "going":  # it was being cut down when somebody's power failed
            postgres_sweeping.finish_going(self.server, uuid)
            found = self._taken(uuid, owner)
        if not found:  # for somebody with little patience we had expired already
            raise LeaseHeld(f"Task {uuid} was taken by somebody else at the same moment.")
        _, fence, revision, line, *numbers = found[0]
        try:
            metadata = codec.decode_line(line or b"", Metadata)
            lease = PostgresLease(self, metadata, fence, owner, dict(zip(TABLES, numbers, strict=True)))
        except BaseException:
            self.server.change(LET_GO, uuid, owner)
            raise
        lease.revision = revision
        self.leases.add(lease)
        return lease

    @property
    def queue(self) -> PostgresQueue:
        return self._queue

    def find(self, query: Query | None = None) -> Iterator[TaskRow]:
        return rows.find(self.reader, _cleaned((query or Query()).sanitised(self.sanitiser)))

    def row(self, uuid: str) -> TaskRow:
        found = self.server.all(f"SELECT {rows.SELECTED} FROM tasks WHERE uuid = %s", validate_task_id(uuid))
        if not found:
            raise NotFound(kind="task", id=uuid)
        return rows.usable_row(found[0])

    def lines(self, uuid: str, name: str, first: int, last: int | None) -> Iterator[tuple[int, bytes]]:
        table, number = TABLES[name]
        names = {"table": table, "number": number}
        values: list[Any] = [validate_task_id(uuid), first, NO_NUMBER if last is None else last]
        statement = PAGE.format(first="%s", **names)
        if first < 0:
            newest, values[1:2] = NEWEST.format(**names), [uuid, -first]
            found = self.server.all(PAGE.format(first=newest, **names), *values)
        else:
            found = self.server.all(statement, *values)
        if not found:
            self._check_task(uuid)
        # page by page, each beginning behind the last number, so that no reader holds a transaction
        while found:
            yield from ((place, line + b"\n") for place, line in found)
            found = self.server.all(statement, uuid, found[-1][0] + 1, values[-1])

    def blob(self, uuid: str, sha256: str) -> bytes:
        found = self.server.all(
            "SELECT data FROM blobs WHERE uuid = %s AND sha256 = %s", validate_task_id(uuid), sha256
        )
        if not found:
            self._check_task(uuid)
            raise NotFound(kind="blob", id=sha256)
        data: bytes = found[0][0]
        if hashlib.sha256(data).hexdigest() != sha256:
            raise Corrupt(f"The bytes of blob {sha256} are not those that were put there.", where=self.url)
        return data

    def delete(self, uuid: str, *, fence: int | None = None, stub: bool = False) -> None:
        row = self.row(uuid)
        if row.lease_owner is None:
            require_fence(row, fence)
        owner = msgspec.json.encode(new_holder()).decode()
        taken = self._take(uuid, owner)
        if fence is not None and taken != fence + 1:  # at this very moment
            self.server.change(LET_GO, uuid, owner)
            raise Conflict(f"Somebody has written task {uuid} since it was looked at.")
        (postgres_sweeping.fall if stub else postgres_sweeping.go)(self.server, uuid, owner)

    def totals(self, query: Query, by: GroupBy) -> dict[str, Totals]:
        return rows.totals(self.reader, _cleaned(query.sanitised(self.sanitiser)), by)

    def count(self, query: Query) -> tuple[int, int]:
        return rows.count(self.reader, _cleaned(query.sanitised(self.sanitiser)))

    def disk_bytes(self) -> int:
        ((size_bytes,),) = self.server.all(DISK, list(OWN_TABLES))
        return int(size_bytes)

    def sidecar_path(self, name: str) -> Path:
        # with the person, and by the role as well, because not every role sees every task
        place = hashlib.sha256(f"{self.url} {self.server.role}".encode()).hexdigest()[:16]
        return data_home() / "stores" / place / name

    def mask_key(self) -> bytes:
        """Return the key that all workers share."""
        found = self.server.all(MASK_KEY)
        if not found:
            self.server.change(NEW_MASK_KEY, new_mask_key())
            found = self.server.all(MASK_KEY)
        return bytes(found[0][0])

    def vacuum(self) -> int:
        postgres_sweeping.finish(self.server)
        return 0

    def close(self) -> None:
        with ExitStack() as last_to_first:  # all of them, also when one fails
            last_to_first.callback(self.server.close)
            last_to_first.callback(self._queue.close)
            for lease in self.leases:
                last_to_first.callback(self._close_lease, lease)

    def _close_lease(self, lease: Lease) -> None:
        """Give a lease back; after the first that cannot be, the others do not wait for the server as well."""
        try:
            lease.close()
        except StoreError:
            self.server.hurry()
            raise

    def _create(self, metadata: Metadata, status: Status, owner: str) -> None:
        row = msgspec.structs.replace(TaskRow.new(metadata, status, fence=1), lease_owner=owner)
        values = [getattr(row, name) for name in MADE_WITH]
        made = partial(self.server.change, CREATE, *values, metadata.uuid, codec.encode(metadata))
        if made() or self._taken(metadata.uuid, owner):
            return
        postgres_sweeping.finish_gone(self.server, metadata.uuid)  # one with this id, whose deletion was cut short
        if not made() and not self._taken(metadata.uuid, owner):
            raise Conflict(f"There is a task {metadata.uuid} already.", hint="Resume it, or choose another uuid.")

    def _take(self, uuid: str, owner: str) -> int:
        """Take the lease; its fence."""
        takes_over = [owner]  # after a connection that broke it may be ours already
        while not (taken := self.server.change(TAKE, owner, owner, uuid, takes_over, self.options.expiry_seconds)):
            found = self.server.all("SELECT lease_owner FROM tasks WHERE uuid = %s", uuid)
            if not found:
                raise NotFound(kind="task", id=uuid)
            ((other,),) = found
            if other is not None and not died_here(uuid, other):
                raise held(uuid, holder_of(uuid, other))
            takes_over = [owner] if other is None else [owner, other]
        return int(taken[0][0])

    def _taken(self, uuid: str, owner: str) -> list[tuple[Any, ...]]:
        return self.server.all(TAKEN, uuid, owner)

    def _check_task(self, uuid: str) -> None:
        if not self.server.all("SELECT 1 FROM tasks WHERE uuid = %s", validate_task_id(uuid)):
            raise NotFound(kind="task", id=uuid)


class Rows:
    """The table of tasks, as `rows` asks it; planned each time, because the best plan depends on what is looked for."""

    not_by = ""  # it knows how many rows share a value

    def __init__(self, server: Server) -> None:
        self.server = server

    def all(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        return self.server.all(statement.replace("?", "%s"), *values, prepare=False)


def _cleaned(query: Query) -> Query:
    """What is looked for, as it would have been stored; PostgreSQL knows no NUL."""
    texts = {
        name: codec.clean_text(value) for name, value in msgspec.structs.asdict(query).items() if isinstance(value, str)
    }
    return msgspec.structs.replace(query, **texts)
