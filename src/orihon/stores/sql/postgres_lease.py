"""The right to write one task of a PostgreSQL database.

Every statement here can be repeated when its answer was lost. A line has its number: it is there, or it is not. A
change of the row has a revision: it was made, or it was not. So a connection that breaks in the middle is a pause; only
when the server stays away does the caller hear OutcomeUnknown, and then a key tells.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from orihon import codec
from orihon.errors import Conflict
from orihon.records import Blob, Message, Record, TaskRow
from orihon.stores.sql import rows
from orihon.stores.sql.postgres import NUMBERS, PostgresStore
from orihon.stores.sql.postgres_queue import CHANNEL, NOW
from orihon.stores.sql.store import TABLES, FencedLease

# ruff: noqa: S608 - the statements are put together from what stands here
IF_MINE = "uuid = %s AND fence = %s AND lease_owner = %s"
# the row stays locked until the line is in, so that nobody takes the lease between the look and the line
MINE = f"(SELECT uuid FROM tasks WHERE {IF_MINE} FOR SHARE) AS mine"
# one line or many, as one statement: a connection cut in the middle leaves no half of it behind
BESIDE = {"role": "text", "tokens": "bigint", "timestamp": "text", "key": "text"}  # what messages say again
APPEND = (
    "INSERT INTO {table} (uuid, {columns}) SELECT mine.uuid, new.* "
    f"FROM {MINE}, unnest({{arrays}}) AS new ON CONFLICT DO NOTHING RETURNING {{number}}"
)
THERE = "SELECT line = %s FROM {table} WHERE uuid = %s AND {number} = %s"
PUT = f"INSERT INTO blobs (uuid, sha256, data) SELECT uuid, %s, %s FROM {MINE} ON CONFLICT DO NOTHING RETURNING sha256"
WITH_KEY = "SELECT seq FROM messages WHERE uuid = %s AND md5(key) = md5(%s) AND key = %s ORDER BY seq DESC LIMIT 1"
CHANGED = f"SELECT {rows.SELECTED} FROM tasks WHERE {IF_MINE} AND revision = %s"
RENEW = f"UPDATE tasks SET heartbeat_at = {NOW} WHERE {IF_MINE} RETURNING uuid"
# whoever waits for work hears of it when it can be taken
RELEASE = (
    f"WITH free AS (UPDATE tasks SET lease_owner = NULL, heartbeat_at = NULL, reserved_until = NULL WHERE {IF_MINE} "
    f"RETURNING status) SELECT pg_notify('{CHANNEL}', '') FROM free WHERE status = 'pending'"
)


BATCH, BATCH_BYTES = 500, 1_000_000


class _Line(NamedTuple):
    """A line on its way."""

    name: str
    number: int
    line: bytes
    record: Record | None


def _append(name: str) -> str:
    """The statement that appends to a list."""
    table, number = TABLES[name]
    types = {number: "bigint", "line": "bytea"} | (BESIDE if name == "messages" else {})
    arrays = ", ".join(f"%s::{type_}[]" for type_ in types.values())
    return APPEND.format(table=table, columns=", ".join(types), number=number, arrays=arrays)


STATEMENTS = {name: _append(name) for name in TABLES}


class PostgresLease(FencedLease):
    """The right to write one task."""

    store: PostgresStore

    revision: int | None = None  # of the row; None when it must be asked for
    _batch: list[_Line] | None = None  # what travels together, inside `together`

    def read_numbers(self) -> dict[str, int]:
        found = self.store.server.all(f"SELECT {NUMBERS} FROM tasks WHERE uuid = %s", self.uuid)
        return dict(zip(TABLES, found[0] if found else (0,) * len(TABLES), strict=True))

    def write(self, name: str, number: int, line: bytes, record: Record) -> None:
        if self._batch is None:
            super().write(name, number, line, record)
            return
        self._check()
        if self._batch and self._batch[-1].name != name:
            self._send()
        self._batch.append(_Line(name, number, line.removesuffix(b"\n"), record))
        self._numbers = self._numbers and self._numbers | {name: number}
        if len(self._batch) >= BATCH or sum(len(waiting.line) for waiting in self._batch) >= BATCH_BYTES:
            self._send()

    def write_line(self, name: str, number: int, line: bytes, message: Message | None) -> bool:
        return self._put_there([_Line(name, number, line, message)])

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

    def _send(self) -> None:
        """Write what was put off, in one step."""
        if not self._batch:
            return
        batch, self._batch = self._batch, []
        numbers, self._numbers = self._numbers, None
        if not self._put_there(batch):
            self._lose()
        self._numbers = numbers

    def _put_there(self, lines: list[_Line]) -> bool:
        columns: list[list[Any]] = [[new.number for new in lines], [new.line for new in lines]]
        if lines[0].name == "messages":
            columns += [[getattr(new.record, name) for new in lines] for name in BESIDE]
        # of the numbers all are new, or none: the last one tells
        return bool(self.store.server.change(STATEMENTS[lines[0].name], *self._mine, *columns)) or self._is_there(
            lines[-1]
        )

    def _is_there(self, new: _Line) -> bool:
        """Whether a line that could not be put is there: the answer to an earlier try was lost, or the lease was."""
        table, column = TABLES[new.name]
        there = self.store.server.all(THERE.format(table=table, number=column), new.line, self.uuid, new.number)
        if there == [(False,)] and self.renew():
            raise Conflict(f"Number {new.number} of the {new.name} of task {self.uuid} is there, and is another one.")
        return there == [(True,)]

    def find_key(self, key: str) -> int | None:
        self._send()
        found = self.store.server.all(WITH_KEY, self.uuid, key, key)
        return found[0][0] if found else None

    def _remember_key(self, key: str, number: int) -> None:
        """There is an index of them all."""

    def put(self, data: bytes) -> Blob:
        with self.lock:
            self._check()
            sha256 = hashlib.sha256(data).hexdigest()
            if not self.store.server.change(PUT, sha256, data, *self._mine):
                self._renew()  # it is there already, or the lease is not ours any more
            return Blob(sha256=sha256, size_bytes=len(data))

    def change(self, changes: dict[str, Any], add: dict[str, int]) -> TaskRow:
        with self.lock:
            self._check()
            self._send()
            changes = {"updated_at": codec.now()} | changes
            parts = [f"{rows.quoted(name)} = %s" for name in changes]
            parts += [f"{rows.quoted(name)} = {rows.quoted(name)} + %s" for name in add]
            # forgotten until it is certain, as the numbers are
            revision, self.revision = self._known_revision(), None
            found = self.store.server.change(
                f"UPDATE tasks SET {', '.join(parts)}, revision = revision + 1 "
                f"WHERE {IF_MINE} AND revision = %s RETURNING {rows.SELECTED}",
                *(*changes.values(), *add.values(), *self._mine, revision),
            )
            if not found:  # the answer to an earlier try was lost, or the lease was
                found = self.store.server.all(CHANGED, *self._mine, revision + 1)
            if not found:
                self._lose()
            self.revision = revision + 1
            return rows.usable_row(found[0])

    def _known_revision(self) -> int:
        if self.revision is None:
            found = self.store.server.all(f"SELECT revision FROM tasks WHERE {IF_MINE}", *self._mine)
            if not found:
                self._lose()
            self.revision = found[0][0]
        return self.revision

    def sync(self) -> None:
        with self.lock:
            self._check()
            self._send()
            if not self.store.server.all(f"SELECT 1 FROM tasks WHERE {IF_MINE}", *self._mine):
                self._lose()

    def renew(self, *, beat: bool = False, durable: bool = False) -> bool:  # noqa: ARG002 - every commit is
        return bool(self.store.server.change(RENEW, *self._mine))

    def release(self) -> None:
        self.store.server.change(RELEASE, *self._mine)
