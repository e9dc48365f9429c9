"""Copying of tasks from one store to another, with proof that the copy is equal.

A task is first compared with what the target has of it, then the missing records are appended, then both are read back
and compared. A copy that was interrupted therefore continues where it stopped, repeating a finished copy writes
nothing, and a record that differs raises Conflict and changes nothing. The target sanitises all records; a record
that this changes is compared in its sanitised form and counted.

While a task is being copied its status in the target is `paused`. Its own status is written last, with its row. Export,
import, backup and restore use the same engine, with a task file as one of the stores.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from heapq import merge
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TypeVar

import msgspec

from orihon import codec
from orihon.context.events import problem
from orihon.errors import Conflict, Corrupt, NotFound, UsageError
from orihon.ops.blobs import BlobOwner, map_blobs
from orihon.ops.progress import OnProgress, ProgressCounter, add_sentence, collect_failure
from orihon.parts import is_textual
from orihon.records import Blob, Event, Metadata, Part, Raw, Record, TaskRow
from orihon.stores import is_postgres
from orihon.stores.base import LISTS, Lease, Problem, Query, Store
from orihon.stores.lookup import find_row

R = TypeVar("R", bound=Record)

# lists that name messages come first, so that their messages exist when their last number is read
KINDS = tuple(reversed([kind for kind, (_, field) in LISTS.items() if field]))
# the lease, and the size on the disk of one store, are not part of a task
STORE_COLUMNS = frozenset({"fence", "lease_owner", "heartbeat_at", "packed_bytes", "unknown"})
COLUMNS = tuple(name for name in TaskRow.__struct_fields__ if name not in STORE_COLUMNS)
HINT = "Nothing was changed there. Delete the task in the target, or copy to another store."


class CopiedTask(msgspec.Struct):
    """The figures of one task. All records are equal in both stores."""

    records: int = 0
    blobs: int = 0
    size_bytes: int = 0
    changed: int = 0
    appended: int = 0
    notes: list[str] = []  # what was left out, and why


class Copied(msgspec.Struct, kw_only=True):
    """The result of a copy. All tasks are equal in both stores, except those in `failures`."""

    source: str
    target: str
    tasks: int = 0
    records: int = 0  # compared one by one after the copy
    blobs: int = 0
    size_bytes: int = 0  # of the compared lines and blobs
    appended: int = 0  # records that were missing in the target
    changed: int = 0  # records that the sanitiser cleaned or masked
    broken: int = 0  # lines of the source that cannot be read
    notes: list[str] = []
    failures: list[str] = []
    seconds: float = 0

    def add_task(self, task: CopiedTask) -> None:
        """Add the figures of one task."""
        self.tasks += 1
        for name in ("records", "blobs", "size_bytes", "appended", "changed"):
            setattr(self, name, getattr(self, name) + getattr(task, name))


def copy_tasks(source: Store, target: Store, *, tasks: Sequence[str] = (), on_progress: OnProgress = None) -> Copied:
    """Copy the given tasks, by default all. A task that fails does not stop the others."""
    _refuse_same_store(source, target)
    copied = Copied(source=source.url, target=target.url)
    rows = [find_row(source, uuid) for uuid in dict.fromkeys(tasks)] if tasks else source.find()
    progress = ProgressCounter(on_progress, total=len(set(tasks)) or source.count(Query())[0])
    problems: set[Problem] = set()
    damaged: set[str] = set()

    def report(problem: Problem) -> None:
        if problem not in problems:
            problems.add(problem)
            damaged.add(problem.uuid)
            copied.broken += 1
            add_sentence(copied.notes, f"Task {problem.uuid} cannot be copied completely: {problem}")

    with reporting_to(source, report):
        for row in rows:
            task_copy = TaskCopy(source, target, row, progress, damaged=damaged)
            with collect_failure(copied.failures, row.uuid):
                copied.add_task(task_copy.run())
            for note in task_copy.notes:
                add_sentence(copied.notes, f"Task {row.uuid}: {note}")
            progress.add(tasks=1)
    copied.seconds = progress.seconds
    return copied


@contextmanager
def reporting_to(store: Store, report: Callable[[Problem], None]) -> Iterator[None]:
    """Send the problems of a store to `report` inside the block."""
    options = store.options
    store.options = msgspec.structs.replace(options, report=report)
    try:
        yield
    finally:
        store.options = options


def _refuse_same_store(source: Store, target: Store) -> None:
    paths = [Path(store.url.removeprefix("sqlite:///")) for store in (source, target)]
    both_exist = all(path.exists() for path in paths) and source.url != "memory:" != target.url
    same_database = is_postgres(source.url) and source.url == target.url
    if source is target or same_database or (both_exist and paths[0].samefile(paths[1])):
        raise UsageError("Source and target are the same store.", hint="Name another target.")


class TaskCopy:
    """The copy of one task. The lease of the target is taken only if something is missing there.

    `damaged` names tasks of which the target may have more than the source can still read. With `skip_unusable`, events
    that no import would accept are left out with a note.
    """

    def __init__(
        self,
        source: Store,
        target: Store,
        row: TaskRow,
        progress: ProgressCounter | None = None,
        *,
        damaged: Collection[str] = (),
        skip_unusable: bool = False,
    ) -> None:
        self.source, self.target, self.uuid = source, target, row.uuid
        self.row = target.sanitiser.record(_ignore_archiving(row))
        self.notes: list[str] = []
        self._progress = progress or ProgressCounter()
        self._damaged, self._skip_unusable = damaged, skip_unusable
        self._lease: Lease | None = None
        self._is_writing = False
        self._figures = CopiedTask()
        self._missing = ""  # the first record or blob that the target does not have
        self._blobs: dict[str, Blob] = {}  # by the checksum at the source
        self._checked_blobs: set[str] = set()  # two blobs can be equal once they are masked

    def run(self) -> CopiedTask:
        """Copy and compare. Raise Conflict if the target has something else; then it is unchanged."""
        last_numbers = {kind: self.source.last_number(self.uuid, kind) for kind in KINDS}
        if self.row.lease_owner is not None:
            self.notes.append("It has a writer at the source; later records are not copied.")
        appended = 0
        try:
            is_new = self._create_if_absent()
            if not is_new:
                self._compare(last_numbers)
            if is_new or self._missing:
                with self._writer().batch():
                    appended = self._compare(last_numbers, write=True).appended
            self._copy_row()
        finally:
            if self._lease is not None:
                self._lease.close()
        if self._lease is not None:
            self._compare(last_numbers)
            if self._missing:
                raise Conflict(f"{self._missing} did not arrive in the target.")
        for name in self._row_differences():
            raise Conflict(f"Its row has another {name} in the target.", hint=HINT)
        return msgspec.structs.replace(self._figures, appended=appended)

    # metadata and row

    def _create_if_absent(self) -> bool:
        metadata = self._metadata(self.source)
        try:
            existing = self._metadata(self.target)
        except NotFound:
            # the real status follows with the row, so that an incomplete task is never taken for a finished one
            self._lease = self.target.lease(self.uuid, create=metadata, status="paused")
            return True
        if codec.encode(existing) != codec.encode(metadata):
            raise Conflict("Its metadata differ from those in the target.", hint=HINT)
        return False

    def _metadata(self, store: Store) -> Metadata:
        for metadata in store.read(self.uuid, Metadata):
            return self.target.sanitiser.record(metadata)
        raise Corrupt(f"Its metadata in {store.url} cannot be read.")

    def _copy_row(self) -> None:
        differences = self._row_differences()
        if differences:
            names = {"updated_at", "message_count", *differences}  # the first two are otherwise set by the store
            changes = {name: getattr(self.row, name) for name in names}
            if "archived" in changes:  # a stub takes no space, and a task that got its records back is not archived
                changes["packed_bytes"] = 0 if self.row.archived else None
            self._writer().update(**changes)

    def _row_differences(self) -> list[str]:
        return compare_rows(self.target.row(self.uuid), self.row)

    # lists

    def _compare(self, last_numbers: dict[type[Record], int], *, write: bool = False) -> CopiedTask:
        """Compare all lists of both stores. With `write`, append what the target lacks."""
        self._figures, self._missing, self._is_writing = CopiedTask(), "", write
        self._blobs.clear()
        self._checked_blobs.clear()
        for kind, last in last_numbers.items():
            self._compare_list(kind, last)
        return self._figures

    def _compare_list(self, kind: type[Record], last: int) -> None:
        name, field = LISTS[kind]
        figures = self._figures
        for original, existing in self._pairs(kind, last):
            record = self._sanitise(original)
            number, line = getattr(record, field), codec.encode_line(record)
            if existing is not None:
                if codec.encode_line(existing) != line:
                    raise Conflict(f"{name} {number} differs in the target.", hint=HINT)
            elif self._must_write(f"{name} {number}"):
                # not `Lease.append`, which would set number, time and tokens, and refuse an old key
                lease = self._writer()
                with lease.lock:
                    lease.write(name, number, line, record)
                figures.appended += 1
            figures.records += 1
            figures.size_bytes += len(line)
            figures.changed += record != original
            self._progress.add(records=1, size_bytes=len(line))

    def _pairs(self, kind: type[R], last: int) -> Iterator[tuple[R, R | None]]:
        """Yield each record of the source with the record of the target that has its number."""
        name, field = LISTS[kind]
        sources = ((getattr(record, field), "source", record) for record in self._source_records(kind, last))
        targets = ((getattr(record, field), "target", record) for record in self.target.read(self.uuid, kind))
        missing = 0
        for number, group in groupby(merge(sources, targets, key=itemgetter(0)), key=itemgetter(0)):
            found = {side: record for _, side, record in group}
            if missing and "target" in found:
                raise Conflict(
                    f"The target has {name} {number}, but not {missing}, and numbers can only grow.", hint=HINT
                )
            if "source" not in found:
                self._note_extra(name, number)
                continue
            if "target" not in found:
                missing = missing or number
            yield found["source"], found.get("target")

    def _source_records(self, kind: type[R], last: int) -> Iterator[R]:
        for record in self.source.read(self.uuid, kind, last=last):
            reason = ""
            if self._skip_unusable and isinstance(record, Event):
                reason = problem(record) or problem(self.target.sanitiser.record(record))
            if not reason:
                yield record
            elif (note := f"It is left out: {reason}.") not in self.notes:
                self.notes.append(note)

    def _note_extra(self, name: str, number: int) -> None:
        """Accept a record that only the target has if the source is damaged, else raise Conflict."""
        if self.uuid not in self._damaged:
            raise Conflict(f"{name} {number} is in the target, but not in the source.", hint=HINT)
        note = f"{name} {number} cannot be read in the source; the target has it from earlier."
        if note not in self.notes:
            self.notes.append(note)

    def _must_write(self, item: str) -> bool:
        self._missing = self._missing or item
        return self._is_writing

    def _writer(self) -> Lease:
        if self._lease is None:
            self._lease = self.target.lease(self.uuid)
        return self._lease

    # records and their blobs, as the target's sanitiser leaves them

    def _sanitise(self, record: R) -> R:
        """Return the record as the target stores it. Its blobs are copied first."""
        return map_blobs(self.target.sanitiser.record(record), self._copy_blob)

    def _copy_blob(self, blob: Blob, owner: BlobOwner) -> Blob:
        """Return the blob as the target has it. A blob that the source lost is reported and kept as a name."""
        if blob.sha256 in self._blobs:
            return self._blobs[blob.sha256]
        self._blobs[blob.sha256] = blob
        try:
            original = self.source.blob(self.uuid, blob.sha256)
        except (NotFound, Corrupt) as error:
            self.source.report(Problem(self.uuid, f"blob {blob.sha256}", 0, error.message))
            return blob
        data = self._sanitise_data(original, owner)
        if data != original:
            masked = msgspec.structs.replace(blob, sha256=hashlib.sha256(data).hexdigest(), size_bytes=len(data))
            self._blobs[blob.sha256] = masked
            blob = masked
        self._compare_blob(blob, data)
        self._figures.blobs += 1
        self._figures.size_bytes += len(data)
        return blob

    def _sanitise_data(self, data: bytes, owner: BlobOwner) -> bytes:
        sanitiser = self.target.sanitiser
        if isinstance(owner, Part) and owner.text is None:
            return sanitiser.data(data, textual=is_textual(owner))
        if isinstance(owner, Raw):
            value = msgspec.json.decode(data)
            admitted = sanitiser.value(value)
            return data if admitted == value else msgspec.json.encode(admitted)
        if isinstance(owner, Event) and owner.type != "sticky":
            return sanitiser.data(data)
        return sanitiser.text(data.decode("utf-8", "replace")).encode()

    def _compare_blob(self, blob: Blob, data: bytes) -> None:
        if blob.sha256 in self._checked_blobs:
            return
        self._checked_blobs.add(blob.sha256)
        try:
            existing = self.target.blob(self.uuid, blob.sha256)
        except NotFound:
            if self._must_write(f"blob {blob.sha256}"):
                self._writer().put(data)
            return
        if existing != data:
            raise Conflict(f"Blob {blob.sha256} differs in the target.", hint=HINT)


def compare_rows(row: TaskRow, other: TaskRow) -> list[str]:
    """Return the columns in which two rows of a task differ, except those that belong to one store."""
    row, other = _ignore_archiving(row), _ignore_archiving(other)
    return [name for name in COLUMNS if getattr(row, name) != getattr(other, name)]


def _ignore_archiving(row: TaskRow) -> TaskRow:
    """Return the row without its archive state: each store archives on its own. A stub stays a stub."""
    return msgspec.structs.replace(row, archived="stub" if row.archived in {"going", "stub"} else "")
