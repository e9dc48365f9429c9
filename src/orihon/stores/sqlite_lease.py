"""The right to write one task of a SQLite file: held by a fence, kept alive by a heartbeat."""

from __future__ import annotations

import hashlib
import logging
import os
import time
from typing import Any

from orihon import codec
from orihon.errors import LeaseLost
from orihon.records import Blob, Message, Metadata, Record, TaskRow
from orihon.stores import rows
from orihon.stores.base import LISTS, Lease
from orihon.stores.database import Database
from orihon.stores.heartbeat import Heartbeat
from orihon.stores.sqlite import TABLES, SqliteStore, last_numbers

log = logging.getLogger("orihon")

# ruff: noqa: S608 - the statements are put together from what stands here
# every statement ends with this, and touches nothing when it does not hold
IF_MINE = "WHERE uuid = ? AND fence = ? AND lease_owner = ?"
APPEND_MESSAGE = (
    "INSERT INTO messages (uuid, seq, line, role, tokens, timestamp, key) "
    f"SELECT uuid, ?, ?, ?, ?, ?, ? FROM tasks {IF_MINE}"
)
APPEND = f"INSERT INTO {{table}} (uuid, {{number}}, line) SELECT uuid, ?, ? FROM tasks {IF_MINE}"
PUT = f"INSERT OR IGNORE INTO blobs (uuid, sha256, data) SELECT uuid, ?, ? FROM tasks {IF_MINE}"
WITH_KEY = "SELECT seq FROM messages WHERE uuid = ? AND key = ? LIMIT 1"
RENEW = f"UPDATE tasks SET heartbeat_at = ? {IF_MINE}"
RELEASE = f"UPDATE tasks SET lease_owner = NULL, heartbeat_at = NULL {IF_MINE}"


class SqliteLease(Lease):
    """The right to write one task."""

    store: SqliteStore

    def __init__(self, store: SqliteStore, metadata: Metadata, fence: int, owner: str, numbers: dict[str, int]) -> None:
        super().__init__(store, metadata, fence)
        self._mine = (self.uuid, fence, owner)
        self._numbers: dict[str, int] | None = numbers
        self._process_id = os.getpid()
        self._closed = self._lost = False
        self._renewed = time.monotonic()
        self._heartbeat = Heartbeat(self._beat, store.options.heartbeat_seconds)

    def last(self, kind: type[Record]) -> int:
        with self.lock:
            if self._numbers is None:
                with self.store.writer.transaction() as connection:
                    self._numbers = last_numbers(connection, self.uuid)
            return self._numbers[LISTS[kind][0]]

    def write(self, name: str, number: int, line: bytes, record: Record) -> None:
        self._check()
        table, column = TABLES[name]
        values: list[Any] = [number, line.removesuffix(b"\n").decode()]
        if isinstance(record, Message):
            statement = APPEND_MESSAGE
            values += [record.role, record.tokens, record.timestamp, record.key]
        else:
            statement = APPEND.format(table=table, number=column)
        # forgotten until it is certain: whatever goes wrong, the next append looks what is there
        numbers, self._numbers = self._numbers, None
        if not self.store.writer.change(statement, *values, *self._mine):
            self._lose()
        self._numbers = numbers and numbers | {name: number}

    def number_of(self, key: str) -> int | None:
        found = super().number_of(key)
        if found is None:  # older than what is remembered: there is an index of them all
            found = next((seq for (seq,) in self.store.reader.all(WITH_KEY, self.uuid, key)), None)
        return found

    def put(self, data: bytes) -> Blob:
        with self.lock:
            self._check()
            sha256 = hashlib.sha256(data).hexdigest()
            if not self.store.writer.change(PUT, sha256, data, *self._mine):
                self._renew(self.store.writer)  # it is there already, or the lease is not ours any more
            return Blob(sha256=sha256, size_bytes=len(data))

    def change(self, changes: dict[str, Any], add: dict[str, int]) -> TaskRow:
        with self.lock:
            self._check()
            durable = "status" in changes and self.store.syncs
            changes = {"updated_at": codec.now()} | changes
            with self.store.writer.transaction(durable=durable) as connection:
                if not rows.update(connection, self.uuid, changes, add, lease=self._mine[1:]):
                    self._lose()
                return rows.get(connection, self.uuid)

    def sync(self) -> None:
        with self.lock:
            self._check()
            # a durable commit syncs all that were before it, and a heartbeat is as good a reason for one as any
            self._renew(self.store.writer, durable=self.store.syncs)

    def close(self) -> None:
        if self._process_id != os.getpid():
            return  # a child has nothing to give back
        with self.lock:
            if not self._closed:
                self._heartbeat.stop()
                self.store.writer.change(RELEASE, *self._mine, durable=self.store.syncs)
                self._closed = True
                self.store.leases.discard(self)

    def _check(self) -> None:
        """Refuse whoever has no right to write; whoever was silent for too long asks before he goes on."""
        if self._process_id != os.getpid():
            raise LeaseLost(f"Task {self.uuid} belongs to the parent process; nothing was written.")
        if self._closed or self._lost:
            raise LeaseLost
        if time.monotonic() - self._renewed > self.store.options.expiry_seconds:
            self._renew(self.store.writer)

    def _renew(self, database: Database, *, durable: bool = False) -> None:
        asked = time.monotonic()
        if not database.change(RENEW, codec.now(), *self._mine, durable=durable):
            self._lose()
        self._renewed = asked

    def _lose(self) -> None:
        self._lost = True
        raise LeaseLost

    def _beat(self) -> None:
        try:
            self._renew(self.store.renewer)
        except LeaseLost:
            log.warning("[uuid:%s] Somebody else took the lease.", self.uuid[:8])
            self._heartbeat.stop()
