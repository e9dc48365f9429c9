"""`memory:`, the shortest implementation of the contract. Its tasks end with the process.

It is meant for tests, for trials and for `context_storage.enabled: false`. Lines and blobs are kept as bytes, so that a
record that is read shares nothing with the record that was written.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from typing import Any

import msgspec

from orihon import codec
from orihon.errors import Conflict, LeaseHeld, LeaseLost, NotFound
from orihon.records import Blob, Metadata, Record, Status, TaskRow
from orihon.stores.base import LISTS, Lease, Options, Order, Query, Store, duration_seconds
from orihon.stores.liveness import current_owner
from orihon.stores.validation import require_fence, validate_new_task


class _Task:
    def __init__(self, metadata: Metadata, row: TaskRow) -> None:
        self.row = row
        self.lists: dict[str, dict[int, bytes]] = {name: {} for name, _ in LISTS.values()}
        self.lists["metadata"][1] = codec.encode_line(metadata)
        self.metadata = metadata
        self.blobs: dict[str, bytes] = {}
        self.holder: MemoryLease | None = None


class MemoryStore(Store):
    """Tasks in dictionaries."""

    leases_expire = False

    def __init__(self, url: str = "memory:", options: Options | None = None) -> None:
        super().__init__(url, options)
        self.tasks: dict[str, _Task] = {}
        self.guard = threading.RLock()

    @property
    def identity(self) -> str:
        return f"memory:{id(self)}"

    def lease(self, uuid: str, *, create: Metadata | None = None, status: Status = "running") -> Lease:
        with self.guard:
            if create is not None:
                if uuid in self.tasks:
                    raise Conflict(f"Task {uuid} exists already.", hint="Resume it, or choose another uuid.")
                create = validate_new_task(uuid, create, self.sanitiser)
                self.tasks[uuid] = _Task(create, TaskRow.new(create, status))
            task = self._task(uuid)
            if task.holder is not None:
                raise LeaseHeld(f"Task {uuid} is held by {current_owner()}.", owner=str(current_owner()))
            task.row = msgspec.structs.replace(task.row, fence=task.row.fence + 1, lease_owner=str(current_owner()))
            task.holder = MemoryLease(self, task)
            return task.holder

    def find(self, query: Query | None = None) -> Iterator[TaskRow]:
        query = (query or Query()).sanitised(self.sanitiser)
        with self.guard:
            rows = [task.row for task in self.tasks.values() if _matches(task.row, query)]
        rows.sort(key=lambda row: (_rank(row, query.order), row.created_at, row.uuid), reverse=True)
        yield from rows[query.offset :][: query.limit]

    def lines(self, uuid: str, name: str, first: int, last: int | None) -> Iterator[tuple[int, bytes]]:
        numbered = self._task(uuid).lists[name]
        numbers = sorted(numbered)
        chosen = numbers[first:] if first < 0 else [number for number in numbers if number >= first]
        yield from ((number, numbered[number]) for number in chosen if last is None or number <= last)

    def blob(self, uuid: str, sha256: str) -> bytes:
        blobs = self._task(uuid).blobs
        if sha256 not in blobs:
            raise NotFound(kind="blob", id=sha256)
        return blobs[sha256]

    def delete(self, uuid: str, *, fence: int | None = None, stub: bool = False) -> None:
        with self.guard:
            task = self._task(uuid)
            if task.holder is not None:
                raise LeaseHeld(f"Task {uuid} is being written; it is not deleted.", owner=str(current_owner()))
            require_fence(task.row, fence)
            if stub:
                task.row = msgspec.structs.replace(task.row, archived="stub", packed_bytes=0)
                task.blobs = {}
                task.lists = {name: records if name == "metadata" else {} for name, records in task.lists.items()}
            else:
                del self.tasks[uuid]

    def close(self) -> None:
        for task in list(self.tasks.values()):
            if task.holder is not None:
                task.holder.close()

    def _task(self, uuid: str) -> _Task:
        try:
            return self.tasks[uuid]
        except KeyError:
            raise NotFound(kind="task", id=uuid) from None


class MemoryLease(Lease):
    """The right to write one task in memory."""

    store: MemoryStore

    def __init__(self, store: MemoryStore, task: _Task) -> None:
        super().__init__(store, task.metadata, task.row.fence)
        self.task = task

    def last(self, kind: type[Record]) -> int:
        return next(reversed(self.task.lists[LISTS[kind][0]]), 0)

    def write(self, name: str, number: int, line: bytes, record: Record) -> None:  # noqa: ARG002
        self._check()
        self.task.lists[name][number] = line

    def put(self, data: bytes) -> Blob:
        self._check()
        sha256 = hashlib.sha256(data).hexdigest()
        self.task.blobs[sha256] = bytes(data)
        return Blob(sha256=sha256, size_bytes=len(data))

    def change(self, changes: dict[str, Any], add: dict[str, int]) -> TaskRow:
        with self.lock:
            self._check()
            sums = {name: getattr(self.task.row, name) + more for name, more in add.items()}
            stamped = {"updated_at": codec.now()} | changes | sums
            self.task.row = msgspec.structs.replace(self.task.row, **stamped)
            return self.task.row

    def sync(self) -> None:
        self._check()

    def close(self) -> None:
        if self.task.holder is self:
            self.task.row = msgspec.structs.replace(self.task.row, lease_owner=None)
            self.task.holder = None

    def suspend(self) -> None:
        self.close()

    def retake(self) -> bool:
        with self.store.guard:
            if self.store.tasks.get(self.uuid) is not self.task or self.task.row.fence != self.fence:
                return False
            if self.task.holder is not None:
                return self.task.holder is self
            self.task.row = msgspec.structs.replace(self.task.row, lease_owner=str(current_owner()))
            self.task.holder = self
            return True

    def _check(self) -> None:
        if self.task.holder is not self:
            raise LeaseLost


def _rank(row: TaskRow, order: Order) -> float:
    """Return what rows are sorted by before their time of creation. A task that has not ended ranks last."""
    if order == "duration":
        seconds = duration_seconds(row)
        return -1 if seconds is None else seconds
    sizes = {
        "tokens": row.total_tokens,
        "calls": row.llm_call_count,
        "messages": row.message_count,
        "size": row.size_bytes,
    }
    return sizes.get(order, 0)


def _matches(row: TaskRow, query: Query) -> bool:
    return (
        (query.uuid is None or row.uuid.startswith(query.uuid))
        and (not query.status or row.status in query.status)
        and (query.user is None or row.user == query.user)
        and (query.key is None or row.task_key == query.key)
        and (query.linked is None or row.linked_key == query.linked)
        and (query.created_from is None or row.created_at >= query.created_from)
        and (query.created_to is None or row.created_at <= query.created_to)
        and (query.completed_from is None or (row.completed_at or "") >= query.completed_from)
        and (query.ended_from is None or (_has_ended(row) and (row.completed_at or row.created_at) >= query.ended_from))
        and (
            query.ended_before is None
            or (_has_ended(row) and (row.completed_at or row.created_at) < query.ended_before)
        )
        and (query.reason is None or row.reason == query.reason)
        and (query.kept is None or row.kept == query.kept)
        and (not query.archived or row.archived in query.archived)
    )


def _has_ended(row: TaskRow) -> bool:
    return row.status in {"completed", "stopped", "failed"}
