"""One task as one file that can be carried away: `write_portable(store, row, path)`, `read_portable(path)`.

The file is gzip'ed lines of JSON (see `portablefile`), so `zcat FILE | jq` shows what is in it. A file is a store of
one task to `TaskCopy`, which fills it and reads it back to prove that it is equal, and which brings it into another
store in the same way. What is read may come from anybody: it is unpacked to a file without a name, checked to its last
byte, and only then believed. There are no paths in it that could lead anywhere.

    write_portable(store, store.row(uuid), Path("task.orihon"))
    with read_portable(Path("task.orihon")) as portable:
        take_in(portable, other_store)
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NoReturn, TypeVar

import msgspec

from orihon import codec
from orihon.agent import queue
from orihon.coerce import decode_json
from orihon.errors import Conflict, Corrupt, NotFound, OrihonError, UsageError
from orihon.ops.portablefile import HINT, Piece, Span, Unpacked, Writing, bytes_of, inner
from orihon.ops.progress import OnProgress, ProgressCounter
from orihon.ops.taskcopy import Figures, TaskCopy
from orihon.records import Blob, Event, Metadata, PlanEntry, Record, Status, TaskRow
from orihon.stores.base import LISTS, Lease, Options, Problem, Query, Store
from orihon.stores.checks import checked, checked_task
from orihon.stores.files import disk_errors, sync_directory
from orihon.stores.lookup import row_if_there
from orihon.stores.newrow import first_row

EVENTS = LISTS[Event][0]

R = TypeVar("R", bound=Record)


def write_portable(
    store: Store, row: TaskRow, path: Path, *, durable: bool = True, on_progress: OnProgress = None
) -> Figures:
    """Write a task to a file, read it back, and compare; only then has the file its name. A file there is replaced.

    An event that cannot be read or used is left out, and the figures have a note of it. A caller that writes many files
    syncs them itself at the end, and says that they need not be `durable` before.
    """
    problems: list[Problem] = []
    before = store.options
    store.options = msgspec.structs.replace(before, report=problems.append)
    fresh = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        options = before if durable else msgspec.structs.replace(before, durability="os")
        with disk_errors(f"{path} cannot be written"), Portable(fresh, options) as target:
            copy = TaskCopy(store, target, row, ProgressCounter(on_progress), {row.uuid}, sound_only=True)
            figures = copy.run()
            if lost := [one for one in problems if one.list != EVENTS]:
                raise Corrupt(f"Task {row.uuid} cannot be exported whole: {lost[0]}.")
            figures.notes = [*copy.notes, *dict.fromkeys(f"It is left out: {one}." for one in problems)]
            fresh.replace(path)
            if durable:
                sync_directory(path.parent)
    finally:
        store.options = before
        with suppress(FileNotFoundError):
            fresh.unlink()
    return figures


def read_portable(path: Path, options: Options | None = None) -> Portable:
    """The task in a file, as a store that holds nothing else; what is wrong with the file is said at once."""
    portable = Portable(path, options)
    try:
        portable.unpack()
    except BaseException:
        portable.close()
        raise
    return portable


def take_in(portable: Portable, target: Store, *, on_progress: OnProgress = None) -> Figures:
    """Bring the task of a file into a store and compare: all of it comes in, or nothing.

    One that was running or queued is paused there, and no worker takes it up by itself. One that is there already is
    compared, and what is new is added.
    """
    (row,) = portable.find()
    if row.status in {"running", "pending"} or (row.status == "paused" and queue.is_resumed_by_workers(row.reason)):
        row = msgspec.structs.replace(row, status="paused", activity="", reason=None)
    is_new = row_if_there(target, row.uuid) is None
    try:
        return TaskCopy(portable, target, row, ProgressCounter(on_progress), set()).run()
    except OrihonError:
        if is_new:
            with suppress(NotFound):
                target.delete(row.uuid)
        raise


class Portable(Store):
    """A store that is one file with one task: written once, whole, then only read."""

    leases_expire = False

    def __init__(self, path: Path, options: Options | None = None) -> None:
        super().__init__(str(path), msgspec.structs.replace(options or Options(), report=_refuse))
        self.path = path
        self._writer: PortableLease | None = None
        self._plain: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - `close` closes it
        self._lists: dict[str, Span] = {}
        self._blobs: dict[str, Span] = {}
        self._task: tuple[Metadata, TaskRow] | None = None
        self._called = ""  # by the file, when the task goes by another name here

    def unpack(self) -> tuple[Metadata, TaskRow]:
        """Read the whole file and check it."""
        with disk_errors(f"{self.path} cannot be read"):
            unpacked = Unpacked(self.path, self._plain)
        self._lists, self._blobs, self._called = unpacked.lists, unpacked.blobs, unpacked.uuid
        self._task = unpacked.task()
        return self._task

    def rename(self, **changes: Any) -> None:
        """Let the task have another `uuid` or `user` from now on."""
        metadata, row = self._task or self.unpack()
        checked(changes.get("uuid", row.uuid))
        self._task = msgspec.structs.replace(metadata, **changes), msgspec.structs.replace(row, **changes)

    # the verbs of a reader

    def find(self, query: Query | None = None) -> Iterator[TaskRow]:
        del query  # there is only one
        if self._task is not None:
            yield self._task[1]
        elif self._writer is not None:
            yield self._writer.row

    def read(self, uuid: str, kind: type[R], *, first: int = 1, last: int | None = None) -> Iterator[R]:
        for record in super().read(uuid, kind, first=first, last=last):
            if isinstance(record, PlanEntry) and record.task_uuid == self._called != uuid:
                yield msgspec.structs.replace(record, task_uuid=uuid)
            else:
                yield record

    def lines(self, uuid: str, name: str, first: int, last: int | None) -> Iterator[tuple[int, bytes]]:
        del last
        if self._task is None:
            if self._writer is None:
                raise NotFound(kind="task", id=uuid)
            return  # nothing is read before all is written
        if name == "metadata":
            yield 1, codec.encode_line(self._task[0])
        elif name in self._lists:
            all_lines = self._between(self._lists[name])
            found = ((place, own) for place, line in all_lines if (own := inner(line, name)) is not None)
            yield from found if first >= 0 else deque(found, maxlen=-first)

    def blob(self, uuid: str, sha256: str) -> bytes:
        del uuid
        if sha256 not in self._blobs:
            raise NotFound(kind="blob", id=sha256)
        pieces = (inner(line, "blob") or b"" for _, line in self._between(self._blobs[sha256]))
        return b"".join(bytes_of(decode_json(piece, type=Piece)) for piece in pieces)

    def _between(self, span: Span) -> Iterator[tuple[int, bytes]]:
        place = span.start
        while place < span.end:
            self._plain.seek(place)  # each time: somebody may read a blob meanwhile
            line = self._plain.readline()
            yield place, line
            place += len(line)

    # the verbs of a writer

    def lease(self, uuid: str, *, create: Metadata | None = None, status: Status = "running") -> Lease:
        if create is None or self._writer is not None or self._task is not None:
            raise Conflict(f"{self.path} is written once, whole.", hint="Export the task to another file.")
        create = checked_task(uuid, create, self.sanitiser)
        self._writer = PortableLease(self, create, first_row(create, status, fence=0))
        return self._writer

    def delete(self, uuid: str, *, fence: int | None = None, stub: bool = False) -> None:
        del fence, stub
        raise UsageError(f"Task {uuid} is a file of its own.", hint=f"Remove {self.path}.")

    def close(self) -> None:
        if self._writer is not None:
            self._writer.file.close()
        self._plain.close()


class PortableLease(Lease):
    """The right to write the file; when it is closed, the file is whole, and is read."""

    store: Portable

    def __init__(self, store: Portable, metadata: Metadata, row: TaskRow) -> None:
        super().__init__(store, metadata, fence=0)
        self.row = row
        self.file = Writing(store.path, metadata.uuid)
        self.file.line("metadata", codec.encode(metadata))

    def last(self, kind: type[Record]) -> int:
        del kind
        return 0  # a copy brings its own numbers

    def write(self, name: str, number: int, line: bytes, record: Record) -> None:
        del number, record
        self.file.line(name, line)

    def put(self, data: bytes) -> Blob:
        blob = Blob(sha256=hashlib.sha256(data).hexdigest(), size_bytes=len(data))
        self.file.blob(blob.sha256, data)
        return blob

    def change(self, changes: dict[str, Any], add: dict[str, int]) -> TaskRow:
        added = {name: getattr(self.row, name) + number for name, number in add.items()}
        self.row = msgspec.structs.replace(self.row, **changes, **added)
        return self.row

    def sync(self) -> None:
        """All of it is synced at the end."""

    def close(self) -> None:
        self.file.line("row", codec.encode(self.row))
        self.file.end(durable=self.store.options.durability != "os")
        self.file.close()
        self.store.unpack()


def _refuse(problem: Problem) -> NoReturn:
    raise Corrupt(f"The task cannot be imported: {problem}.", hint=HINT)
