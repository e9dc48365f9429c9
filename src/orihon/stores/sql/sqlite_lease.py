"""The right to write one task of a SQLite file: held by a fence, kept alive by a heartbeat."""

from __future__ import annotations

import hashlib
import sqlite3
from functools import partial
from typing import Any

from orihon import codec
from orihon.records import Blob, Message, TaskRow
from orihon.stores.files import disk_errors
from orihon.stores.sql import rows
from orihon.stores.sql.sqlite import SqliteStore, last_numbers
from orihon.stores.sql.store import TABLES, FencedLease

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


class SqliteLease(FencedLease):
    """The right to write one task."""

    store: SqliteStore

    def read_numbers(self) -> dict[str, int]:
        return self.store.writer.transact(lambda connection: last_numbers(connection, self.uuid))

    def write_line(self, name: str, number: int, line: bytes, message: Message | None) -> bool:
        table, column = TABLES[name]
        values: list[Any] = [number, line.decode()]
        if message is not None:
            statement = APPEND_MESSAGE
            values += [message.role, message.tokens, message.timestamp, message.key]
        else:
            statement = APPEND.format(table=table, number=column)
        done = bool(self.store.writer.change(statement, *values, *self._mine))
        self._check_place()
        return done

    def find_key(self, key: str) -> int | None:
        self._check_place()
        found = super().find_key(key)
        if found is None:  # older than what is remembered: there is an index of them all
            found = next((seq for (seq,) in self.store.reader.all(WITH_KEY, self.uuid, key)), None)
        return found

    def put(self, data: bytes) -> Blob:
        with self.lock:
            self._check()
            sha256 = hashlib.sha256(data).hexdigest()
            if not self.store.writer.change(PUT, sha256, data, *self._mine):
                self._renew()  # it is there already, or the lease is not ours any more
            self._check_place()
            return Blob(sha256=sha256, size_bytes=len(data))

    def change(self, changes: dict[str, Any], add: dict[str, int]) -> TaskRow:
        with self.lock:
            self._check()
            durable = "status" in changes and self.store.syncs
            changes = {"updated_at": codec.now()} | changes
            write = partial(self.store.writer.transact, partial(self._changed, changes, add), durable=durable)
            # how a task waits or ends can be said on a full disk, too
            row: TaskRow = self.store.with_reserve(write) if "status" in changes else write()
            self._check_place()
            return row

    def _changed(self, changes: dict[str, Any], add: dict[str, int], connection: sqlite3.Connection) -> TaskRow:
        if not rows.update(connection, self.uuid, changes, add, lease=self._mine[1:]):
            self._lose()
        return rows.get(connection, self.uuid)

    def sync(self) -> None:
        with self.lock:
            self._check()
            # a durable commit syncs all that were before it, and a heartbeat is as good a reason for one as any
            self._renew(durable=self.store.syncs)
            self._check_place()

    def _check_place(self) -> None:
        """What was committed must be in the file that others open, before it is acknowledged."""
        with disk_errors(f"{self.store.path} cannot be looked at"):
            in_place = self.store.is_in_place()
        if not in_place:
            self._lose(f"{self.store.path} was removed or replaced; task {self.uuid} is no longer written.")

    def renew(self, *, beat: bool = False, durable: bool = False) -> bool:
        database = self.store.renewer if beat else self.store.writer
        return bool(database.change(RENEW, codec.now(), *self._mine, durable=durable))

    def release(self) -> None:
        self.store.with_reserve(lambda: self.store.writer.change(RELEASE, *self._mine, durable=self.store.syncs))
