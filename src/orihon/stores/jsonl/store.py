"""The store of plain files: a directory per task, JSON lines inside, and `tasks.db` beside them.

    tasks.db   pending/  running/  paused/  completed/
                         {uuid}/  metadata.json  state.json  messages.jsonl  messages.idx  events.jsonl
                                  summaries.jsonl  tools.jsonl  planning/{uuid}.jsonl  blobs/{sha256}  .lock
                                  handoff.json

The files are the truth. `state.json` says what a task's status is; its directory and its row follow, also after a crash
between any two steps: whoever opens the store next finishes what was begun. The lease is an flock on `.lock`: it is
free the moment its holder dies, and only then.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path

from orihon import codec
from orihon.errors import Conflict, Corrupt, NotFound, NotWritten, StoreUnavailable
from orihon.records import Metadata, Status, TaskRow
from orihon.stores import mounts
from orihon.stores.base import LISTS, GroupBy, Lease, Options, Problem, Query, Store, Totals
from orihon.stores.files import (
    directory_handle,
    disk_errors,
    exists,
    make_directory,
    open_directory,
    open_file,
    read_file,
    sync_directory,
    warn_if_open,
)
from orihon.stores.jsonl.archive import archive, cut_down, size_of
from orihon.stores.jsonl.creation import clear_up, forget, remove
from orihon.stores.jsonl.layout import PLACES, TRASH
from orihon.stores.jsonl.line_reader import PlainSource, Source, lines_from, open_gzip, start_of_last, whole_size
from orihon.stores.jsonl.lock_file import NAME, Hold, LockFile
from orihon.stores.jsonl.message_index import MessageIndex, stands
from orihon.stores.jsonl.recovery import load, reconcile
from orihon.stores.sql import rows
from orihon.stores.sql.database import Database
from orihon.stores.validation import require_fence, validate_new_task, validate_task_id

KINDS = {name: kind for kind, (name, _) in LISTS.items()}


class JsonlStore(Store):
    """Tasks in directories."""

    leases_expire = False
    archives = True

    def __init__(self, directory: Path | str, options: Options | None = None) -> None:
        super().__init__(str(Path(directory)), options)
        self.base = Path(directory).absolute()  # also after the process has changed its directory
        self.leases: set[Lease] = set()
        with disk_errors(f"The store {self.base} cannot be opened"):
            make_directory(self.base)
            warn_if_open(self.base)
            mounts.require_local(self.base)
            for place in PLACES:
                make_directory(self.base / place)
        self.database = Database(self.base / "tasks.db", ("tasks",))
        try:
            clear_up(self)
            reconcile(self)
        except BaseException:
            self.database.close()
            raise

    # the ten verbs

    def lease(self, uuid: str, *, create: Metadata | None = None, status: Status = "running") -> Lease:
        from orihon.stores.jsonl.lease import JsonlLease  # noqa: PLC0415 - the two know each other

        validate_task_id(uuid)
        if create is None:
            return JsonlLease.take(self, uuid)
        create = validate_new_task(uuid, create, self.sanitiser)
        if self.place_of(uuid) is not None:
            raise Conflict(f"There is a task {uuid} already.", hint="Resume it, or choose another uuid.")
        return JsonlLease.create(self, create, status)

    def find(self, query: Query | None = None) -> Iterator[TaskRow]:
        return rows.find(self.database, (query or Query()).sanitised(self.sanitiser))

    def totals(self, query: Query, by: GroupBy) -> dict[str, Totals]:
        return rows.kept_totals(self.database, query.sanitised(self.sanitiser), by)

    def lines(self, uuid: str, name: str, first: int, last: int | None) -> Iterator[tuple[int, bytes]]:  # noqa: ARG002
        directory = self.open_task(uuid)
        try:
            with disk_errors(f"The {name} of task {uuid} cannot be read"):
                yield from self._lines(uuid, name, first, directory)
        finally:
            os.close(directory)

    def _lines(self, uuid: str, name: str, first: int, directory: int) -> Iterator[tuple[int, bytes]]:
        if name == "metadata":
            yield 0, read_file("metadata.json", directory)
            return
        source = open_list(name, uuid, directory)
        if source is None:
            return
        with closing(source):
            whole, tail = self._tail(uuid, name, source, directory)
            for line in lines_from(source, _start(name, source, first, directory, len(tail)), whole):
                if line.data is None:
                    reason = f"the line has {line.length:,} bytes, more than {codec.MAX_LINE_BYTES:,}, and is left out"
                    self.report(self.problem(uuid, name, line.offset, reason))
                else:
                    yield line.offset, line.data
            yield from tail

    def _tail(self, uuid: str, name: str, source: Source, directory: int) -> tuple[int, list[tuple[int, bytes]]]:
        """Where the whole lines end, and a last one that only lacks its newline; a torn one is reported."""
        size = source.size
        if not size or source.read_at(size - 1, 1) == b"\n" or exists(NAME, directory):
            return size, []  # nothing is torn, or it is being written just now
        whole = whole_size(source)
        if source.size != size or exists(NAME, directory):
            return whole, []
        data = source.read_at(whole, size - whole) if size - whole <= codec.MAX_LINE_BYTES else b""
        try:
            codec.decode_line(data, KINDS[name])
        except Corrupt:
            self.report(self.problem(uuid, name, whole, f"the last line is torn after {size - whole:,} bytes"))
            return whole, []
        self.report(self.problem(uuid, name, whole, "the last line has lost its end; nothing else is missing"))
        return whole, [(whole, data)]

    def blob(self, uuid: str, sha256: str) -> bytes:
        directory = self.open_task(uuid)
        try:
            with disk_errors(f"Blob {sha256} cannot be read"), directory_handle("blobs", directory) as within:
                data = _blob(validate_task_id(sha256), within)
        except StoreUnavailable as error:
            if isinstance(error.__cause__, FileNotFoundError):
                raise NotFound(kind="blob", id=sha256) from None
            raise
        finally:
            os.close(directory)
        if hashlib.sha256(data).hexdigest() != sha256:
            raise Corrupt(
                f"Blob {sha256} of task {uuid} is not what it was when it was stored.", where=f"blobs/{sha256}"
            )
        return data

    def delete(self, uuid: str, *, fence: int | None = None, stub: bool = False) -> None:
        if stub:
            cut_down(self, uuid, fence)
            return
        directory = self.open_task(uuid)
        try:
            with disk_errors(f"Task {uuid} cannot be deleted"):
                lock = LockFile.take(uuid, directory)
                try:
                    if fence is not None:
                        require_fence(load(self, uuid, directory)[1], fence)
                    self._delete(uuid, self.base / f"{TRASH}{uuid}", Hold(self.base, uuid, lock))
                finally:
                    lock.release()
        finally:
            os.close(directory)

    def _delete(self, uuid: str, gone: Path, hold: Hold) -> None:
        """Out of sight in one step; what a crash leaves of it is removed by whoever opens the store next."""
        place = self.path_of(uuid)
        if gone.exists():  # another one of that name, which could not be removed whole
            remove(gone)
        with hold:
            place.rename(gone)
        if self.options.durability != "os":
            sync_directory(place.parent)
            sync_directory(self.base)
        try:
            forget(self, uuid)
        except NotWritten:  # the disk is full, and the files are what makes room on it
            remove(gone)
            forget(self, uuid)
        else:
            remove(gone)

    def archive(self, uuid: str, *, fence: int) -> tuple[int, int]:
        return archive(self, uuid, fence)

    def sidecar_path(self, name: str) -> Path:
        return self.base / name

    def disk_bytes(self) -> int:
        with disk_errors(f"{self.base} cannot be measured"), directory_handle(self.base) as directory:
            return size_of(directory)

    def count(self, query: Query) -> tuple[int, int]:
        return rows.count(self.database, query.sanitised(self.sanitiser))

    def close(self) -> None:
        with ExitStack() as last_to_first:  # all of them, also when one fails
            last_to_first.callback(self.database.close)
            for lease in self.leases:
                last_to_first.callback(lease.close)

    # where a task is

    def place_of(self, uuid: str) -> str | None:
        """The directory that a task is in; it may be on the move, so a miss is looked at twice."""
        for _ in range(2):
            for place in PLACES:
                if os.path.lexists(self.base / place / uuid):
                    return place
        return None

    def path_of(self, uuid: str) -> Path:
        """The task's own directory."""
        place = self.place_of(validate_task_id(uuid))
        if place is None:
            raise NotFound(kind="task", id=uuid)
        return self.base / place / uuid

    def open_task(self, uuid: str) -> int:
        """A handle on the task's directory, which stays good when the task moves."""
        for _ in range(3):
            path = self.path_of(uuid)
            with disk_errors(f"Task {uuid} cannot be opened"), suppress(FileNotFoundError):
                return open_directory(path)  # or it moved between the look and the step
        raise NotFound(kind="task", id=uuid)

    def problem(self, uuid: str, name: str, place: int, reason: str) -> Problem:
        """The offset as a line number, which is what an editor shows."""
        where = f"{self.place_of(uuid)}/{uuid}/{file_of(name, uuid)}"
        try:
            directory = self.open_task(uuid)
        except NotFound:
            return Problem(uuid, where, 0, reason, name)
        try:
            source = open_list(name, uuid, directory)
            if source is None:
                return Problem(uuid, where, 0, reason, name)
            with closing(source):
                return Problem(uuid, where, 1 + _newlines_before(source, place), reason, name)
        finally:
            os.close(directory)


def file_of(name: str, uuid: str) -> str:
    """The file of a list, relative to the task's directory."""
    if name == "metadata":
        return "metadata.json"
    return f"planning/{uuid}.jsonl" if name == "planning" else f"{name}.jsonl"


def open_list(name: str, uuid: str, directory: int) -> Source | None:
    """A list for reading, plain or compressed; None when there is none."""
    folder, _, file = file_of(name, uuid).rpartition("/")
    if folder and not exists(folder, directory):
        return None
    within = open_directory(folder, directory) if folder else os.dup(directory)
    try:
        for _ in range(2):  # it may be compressed, or unpacked, between two looks
            with suppress(FileNotFoundError):
                return PlainSource(open_file(file, os.O_RDONLY, within))
            with suppress(FileNotFoundError):
                return open_gzip(open_file(f"{file}.gz", os.O_RDONLY, within))
        return None
    finally:
        os.close(within)


def _blob(sha256: str, within: int) -> bytes:
    """The bytes of a blob, plain or compressed."""
    try:
        return read_file(sha256, within)
    except FileNotFoundError:
        with closing(open_gzip(open_file(f"{sha256}.gz", os.O_RDONLY, within))) as packed:
            return packed.read_at(0, packed.size)


def _start(name: str, source: Source, first: int, directory: int, more: int) -> int:
    """Where to begin to read so that number `first` is not missed; `more` lines come behind the whole ones."""
    if first < 0:
        return start_of_last(source, max(0, -first - more))
    if first <= 1:
        return 0
    if name != "messages":
        return _start_counted(name, source, first)
    if not exists("messages.idx", directory):
        return 0
    fd = open_file("messages.idx", os.O_RDONLY, directory)
    try:
        entry = MessageIndex(fd).before(first)
    finally:
        os.close(fd)
    # numbers grow, so whatever is not before `first` stands behind any message that is; and an index that points
    # elsewhere is not believed: the list is read from its beginning instead
    return entry.offset if entry is not None and stands(entry, source) else 0


def _start_counted(name: str, source: Source, first: int) -> int:
    """Where number `first` begins in a list without an index: as many lines before the end as there are numbers.

    Where lines are missing this is too early, which does no harm. Where there are more, the list is read from its
    beginning.
    """
    newest = _number_at(name, source, start_of_last(source, 1))
    start = start_of_last(source, newest - first + 1) if newest >= first else 0
    return start if 0 < _number_at(name, source, start) <= first else 0


def _number_at(name: str, source: Source, offset: int) -> int:
    """The number of the line that begins there; 0 when it cannot be read."""
    kind = KINDS[name]
    line = next(lines_from(source, offset), None)
    with suppress(Corrupt):
        return int(getattr(codec.decode_line((line and line.data) or b"", kind), LISTS[kind][1]))
    return 0


def _newlines_before(source: Source, offset: int) -> int:
    count, place = 0, 0
    while place < offset and (block := source.read_at(place, min(1 << 20, offset - place))):
        count += block.count(b"\n")
        place += len(block)
    return count
