"""The store of plain files: a directory per task, JSON lines in it, and `tasks.db` for all of them.

    tasks.db   pending/  running/  paused/  completed/
                         {uuid}/  metadata.json  state.json  messages.jsonl  messages.idx  events.jsonl
                                  summaries.jsonl  tools.jsonl  planning/{uuid}.jsonl  blobs/{sha256}  .lock
                                  handoff.json

The files are the truth. `state.json` says what a task's status is; its directory and its row follow, also after a crash
between any two steps. The lease is an flock on `.lock`, which is free the moment its holder dies, and only then.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import msgspec

from orihon import codec
from orihon.errors import (
    Conflict,
    Corrupt,
    LeaseLost,
    NotFound,
    NotWritten,
    OutcomeUnknown,
    StoreError,
    StoreUnavailable,
)
from orihon.records import Blob, Metadata, Record, Status, TaskRow
from orihon.stores import mounts
from orihon.stores.base import LISTS, GroupBy, Lease, Options, Problem, Query, Store, Totals
from orihon.stores.files import (
    directory_handle,
    disk_errors,
    exists,
    make_directory,
    open_file,
    read_file,
    replace_file,
    sync,
    warn_if_open,
)
from orihon.stores.jsonl.archive import archive_task, measure_directory, reduce_to_stub
from orihon.stores.jsonl.layout import (
    DIRECTORIES,
    KINDS,
    LOCK,
    OLD_STATES,
    PLACES,
    encode_handoff,
    find_place,
    find_task,
    list_path,
    open_task,
    task_directory,
    write_state,
)
from orihon.stores.jsonl.line_reader import (
    Source,
    count_newlines,
    find_end,
    find_last_lines,
    open_gzip,
    open_list,
    read_lines,
)
from orihon.stores.jsonl.lock_file import Hold, LockFile, find_holder
from orihon.stores.jsonl.message_index import NAME as INDEX
from orihon.stores.jsonl.message_index import MessageIndex, is_valid
from orihon.stores.jsonl.task_files import TaskFiles
from orihon.stores.jsonl.tree import TaskTree
from orihon.stores.liveness import Heartbeat, current_owner
from orihon.stores.sql import rows
from orihon.stores.sql.database import Database
from orihon.stores.validation import require_fence, validate_new_task, validate_task_id

log = logging.getLogger("orihon")

HANDOFF = frozenset({"handoff", "final_summary", "status", "completed_at"})  # the columns in `handoff.json`


class JsonlStore(Store):
    """Tasks in directories."""

    leases_expire = False
    archives = True

    def __init__(self, directory: Path | str, options: Options | None = None) -> None:
        super().__init__(str(Path(directory)), options)
        self.base = Path(directory).absolute()  # valid after a change of the working directory
        self.leases: set[Lease] = set()
        with disk_errors(f"The store {self.base} cannot be opened"):
            make_directory(self.base)
            warn_if_open(self.base)
            mounts.require_local(self.base)
            for place in PLACES:
                make_directory(self.base / place)
        self.database = Database(self.base / "tasks.db", ("tasks", "deleted"))
        durable = self.options.durability != "os"
        self.tree = TaskTree(self.base, self.database, durable=durable, report=self.report)
        try:
            self.tree.remove_leftovers()
            self.tree.reconcile()
        except BaseException:
            self.database.close()
            raise

    @property
    def identity(self) -> str:
        return str(self.base.resolve())

    def lease(self, uuid: str, *, create: Metadata | None = None, status: Status = "running") -> Lease:
        validate_task_id(uuid)
        if create is None:
            return JsonlLease.take(self, uuid)
        create = validate_new_task(uuid, create, self.sanitiser)
        if find_place(self.base, uuid) is not None:
            raise Conflict(f"Task {uuid} exists already.", hint="Resume it, or choose another uuid.")
        return JsonlLease.create(self, create, status)

    def find(self, query: Query | None = None) -> Iterator[TaskRow]:
        return rows.find(self.database, (query or Query()).sanitised(self.sanitiser))

    def totals(self, query: Query, by: GroupBy) -> dict[str, Totals]:
        return rows.read_totals(self.database, query.sanitised(self.sanitiser), by)

    def count(self, query: Query) -> tuple[int, int]:
        return rows.count(self.database, query.sanitised(self.sanitiser))

    def lines(self, uuid: str, name: str, first: int, last: int | None) -> Iterator[tuple[int, bytes]]:  # noqa: ARG002
        with task_directory(self.base, uuid) as directory, disk_errors(f"The {name} of task {uuid} cannot be read"):
            yield from self._read_list(uuid, name, first, directory)

    def _read_list(self, uuid: str, name: str, first: int, directory: int) -> Iterator[tuple[int, bytes]]:
        if name == "metadata":
            yield 0, read_file("metadata.json", directory)
            return
        source = open_list(name, uuid, directory)
        if source is None:
            return
        with closing(source):
            end, tail = self._read_tail(uuid, name, source, directory)
            for line in read_lines(source, _find_start(name, source, first, directory, len(tail)), end):
                if line.data is None:
                    reason = f"the line has {line.length:,} bytes, more than {codec.MAX_LINE_BYTES:,}, and is left out"
                    self.report(self.problem(uuid, name, line.offset, reason))
                else:
                    yield line.offset, line.data
            yield from tail

    def _read_tail(self, uuid: str, name: str, source: Source, directory: int) -> tuple[int, list[tuple[int, bytes]]]:
        """Return where the complete lines end, and a last one that lacks only its newline; report a torn one."""
        size = source.size
        if not size or source.read_at(size - 1, 1) == b"\n" or exists(LOCK, directory):
            return size, []  # nothing is torn, or it is being written just now
        end = find_end(source)
        if source.size != size or exists(LOCK, directory):
            return end, []
        data = source.read_at(end, size - end) if size - end <= codec.MAX_LINE_BYTES else b""
        try:
            codec.decode_line(data, KINDS[name])
        except Corrupt:
            self.report(self.problem(uuid, name, end, f"the last line is torn after {size - end:,} bytes"))
            return end, []
        self.report(self.problem(uuid, name, end, "the last line has lost its newline; nothing else is missing"))
        return end, [(end, data)]

    def problem(self, uuid: str, name: str, position: int, reason: str) -> Problem:
        """Return the problem at an offset, with the line number that an editor shows."""
        where = f"{find_place(self.base, uuid)}/{uuid}/{list_path(name, uuid)}"
        line = 0
        with suppress(NotFound), task_directory(self.base, uuid) as directory:
            source = open_list(name, uuid, directory)
            if source is not None:
                with closing(source):
                    line = 1 + count_newlines(source, position)
        return Problem(uuid, where, line, reason, name)

    def blob(self, uuid: str, sha256: str) -> bytes:
        with task_directory(self.base, uuid) as directory, disk_errors(f"Blob {sha256} cannot be read"):
            try:
                with directory_handle("blobs", directory) as dir_fd:
                    data = _read_blob(validate_task_id(sha256), dir_fd)
            except FileNotFoundError:
                raise NotFound(kind="blob", id=sha256) from None
        if hashlib.sha256(data).hexdigest() != sha256:
            raise Corrupt(f"Blob {sha256} of task {uuid} does not match its hash.", where=f"blobs/{sha256}")
        return data

    def delete(self, uuid: str, *, fence: int | None = None, stub: bool = False) -> None:
        if stub:
            reduce_to_stub(self.tree, uuid, fence)
            return
        with disk_errors(f"Task {uuid} cannot be deleted"), self.tree.locked(uuid) as (directory, hold):
            if fence is not None:
                require_fence(self.tree.load(uuid, directory)[1], fence)
            self.tree.delete(uuid, hold)

    def archive(self, uuid: str, *, fence: int) -> tuple[int, int]:
        return archive_task(self.tree, uuid, fence)

    def is_abandoned(self, row: TaskRow) -> bool:
        with suppress(OSError, StoreError), task_directory(self.base, row.uuid) as directory:
            return find_holder(directory) is None
        return False

    def sidecar_path(self, name: str) -> Path:
        return self.base / name

    def task_path(self, uuid: str) -> Path:
        """Return the directory of a task."""
        return find_task(self.base, uuid)

    def disk_bytes(self) -> int:
        with disk_errors(f"{self.base} cannot be measured"), directory_handle(self.base) as directory:
            return measure_directory(directory)

    def close(self) -> None:
        with ExitStack() as stack:  # closes all of them, also if one fails
            stack.callback(self.database.close)
            for lease in self.leases:
                stack.callback(lease.close)


class JsonlLease(Lease):
    """The open files of one task, and the lock on it."""

    store: JsonlStore

    def __init__(self, store: JsonlStore, directory: int, lock: LockFile, metadata: Metadata, row: TaskRow) -> None:
        super().__init__(store, metadata, row.fence + 1)
        self._directory, self._lock_file = directory, lock
        self._hold = Hold(store.base, self.uuid, lock)
        self._durable = store.options.durability != "os"
        self._files = TaskFiles(self.uuid, directory, self._hold, durable=self._durable, report=self._report)
        self._process_id = os.getpid()
        self._closed = self._suspended = False
        self._state_synced = True
        self._must_sync_state = False  # a synced write of the state failed half-way, so the next one must be synced
        owner = current_owner()
        self.row = msgspec.structs.replace(
            row,
            fence=self.fence,
            lease_owner=str(owner),
            process_id=owner.process_id,
            hostname=owner.hostname,
            heartbeat_at=codec.now(),
        )
        try:
            with disk_errors(f"Task {self.uuid} cannot be opened"):
                self._begin()
        except BaseException:
            self._files.close()
            raise
        self._heartbeat = Heartbeat(self._beat, store.options.heartbeat_seconds)
        store.leases.add(self)

    @classmethod
    def create(cls, store: JsonlStore, metadata: Metadata, status: Status) -> JsonlLease:
        """Create a task, completely or not at all."""
        row = TaskRow.new(metadata, status)
        directory, lock = store.tree.create(metadata, row)
        try:
            return cls(store, directory, lock, metadata, row)
        except BaseException:
            store.tree.rollback_create(metadata.uuid, directory, lock)
            raise

    @classmethod
    def take(cls, store: JsonlStore, uuid: str) -> JsonlLease:
        """Take an existing task, and finish what a crash left half-done."""
        directory = open_task(store.base, uuid)
        try:
            with disk_errors(f"Task {uuid} cannot be taken"):
                lock = LockFile.take(uuid, directory)
        except BaseException:
            os.close(directory)
            raise
        try:
            with disk_errors(f"Task {uuid} cannot be opened"), Hold(store.base, uuid, lock):
                metadata, row = store.tree.load(uuid, directory)
                store.tree.move_to_place(row)
            return cls(store, directory, lock, metadata, row)
        except BaseException:
            lock.release()
            os.close(directory)
            raise

    def _begin(self) -> None:
        # a writer that only changes the row leaves a compressed task as it is
        self._archived = bool(self.row.archived) or any(self._files.find_lists().values())
        with self._hold:
            if not self._archived:
                self._files.open_all()
            for name in OLD_STATES:
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=self._directory)
        self._lock_file.announce(self.fence)
        self._save({"fence": self.fence}, full_row=True)

    def _unarchive(self) -> None:
        """Decompress the lists before a write. The state is written first, so that they are compressed again."""
        with disk_errors(f"Task {self.uuid} cannot be decompressed"):
            self._save({"archived": "", "packed_bytes": None})
            with self._hold:
                self._files.open_all()
        self._archived = False

    def read_row(self) -> TaskRow:
        return self.row  # its files are the truth, and only this lease writes them

    def last(self, kind: type[Record]) -> int:
        if self._archived:
            return self.store.last_number(self.uuid, kind)
        append_log = self._files.logs.get(LISTS[kind][0])
        return append_log.last if append_log is not None else 0

    def append(self, record: Record) -> int:
        self._check()  # before the lock, which a forked child may find locked for ever
        with self.lock:
            if self._archived:
                self._unarchive()
            self._files.reopen_uncertain(LISTS.get(type(record), ("", ""))[0])
            return super().append(record)

    def find_key(self, key: str) -> int | None:
        number = super().find_key(key)
        if number is not None:
            self._files.check()  # it is acknowledged once more
        return number

    def write(self, name: str, number: int, line: bytes, record: Record) -> None:
        if self._archived:
            self._unarchive()
        self._files.append(name, number, line, record)
        if self.store.options.durability == "message":
            self.sync()

    def put(self, data: bytes) -> Blob:
        self._check()
        sha256 = hashlib.sha256(data).hexdigest()
        with self.lock, disk_errors("A blob cannot be stored"), self._hold:
            folder = self._files.folder("blobs")
            if _find_size(sha256, folder) != len(data):  # a power cut may have left an empty file
                self._files.names_changed = True
                replace_file(sha256, data, folder, durable=self._durable)
            self._files.check_folder("blobs")
            return Blob(sha256=sha256, size_bytes=len(data))

    def change(self, changes: dict[str, Any], add: dict[str, int]) -> TaskRow:
        self._check()
        with self.lock, disk_errors(f"The state of task {self.uuid} cannot be written"):
            if changes.get("status", self.row.status) != self.row.status:
                self.sync()
            self._save(changes, add)
            return self.row

    def sync(self) -> None:
        self._check()
        with self.lock:
            self._files.sync()
            self._files.check()

    def suspend(self) -> None:
        self._check()
        self._heartbeat.stop()
        with self.lock:
            if self._files.names_changed:  # the next holder does not know of it
                self.sync()
            self._suspended = True
            self._clear_holder()
            self._lock_file.release()

    def retake(self) -> bool:
        if self._closed or not self._suspended or self.lost or os.getpid() != self._process_id:
            return False
        with self.lock, disk_errors(f"Task {self.uuid} cannot be taken"):
            lock = LockFile.take(self.uuid, self._directory)
            try:
                hold = Hold(self.store.base, self.uuid, lock)
                if not self._is_untouched(hold):
                    lock.release()
                    return False
                lock.announce(self.fence)
                self.store.database.write_row(self.row, "lease_owner", "heartbeat_at")
            except BaseException:
                lock.release()
                raise
            self._lock_file, self._hold, self._suspended = lock, hold, False
            self._files.hold_by(hold)
        self._heartbeat = Heartbeat(self._beat, self.store.options.heartbeat_seconds)
        return True

    def _is_untouched(self, hold: Hold) -> bool:
        """Return whether no other process took the task since this one let go."""
        with hold:
            row = self.store.tree.load(self.uuid, self._directory)[1]
        return row.fence == self.fence and not row.archived

    def close(self) -> None:
        if self._closed or os.getpid() != self._process_id:
            return  # lock and row belong to the parent of a forked child
        if self._suspended:
            with self.lock:
                self._closed = True
                self.store.leases.discard(self)
                self._files.close()
                os.close(self._directory)
            return
        self._heartbeat.stop()
        with self.lock:
            if self._closed:
                return
            try:
                if not self.lost:
                    self._sync_state()
                    self._files.names_changed = True  # the state was replaced by name
                    self.sync()
            finally:
                self._closed = True
                self.store.leases.discard(self)
                self._release()

    @property
    def tokens(self) -> int:
        """The tokens of the whole log."""
        return self._files.index.last.tokens if self._files.index is not None else 0

    @property
    def lost(self) -> bool:
        return self._hold.lost

    def _check(self) -> None:
        if self._closed or self._suspended:
            raise LeaseLost(f"The lease on task {self.uuid} was released; nothing was written.")
        if os.getpid() != self._process_id:
            raise LeaseLost(f"Task {self.uuid} belongs to the parent process; nothing was written.")

    def _save(self, changes: dict[str, Any], add: dict[str, int] | None = None, *, full_row: bool = False) -> None:
        """Write state, directory and row, in this order, so that a crash between two of them can be finished.

        A change of status and every change of an ended task are synced.
        """
        sums = {name: getattr(self.row, name) + increment for name, increment in (add or {}).items()}
        changes = {"updated_at": codec.now()} | changes | sums
        row = msgspec.structs.replace(self.row, **changes)
        moves = row.status != self.row.status
        with self._hold:
            if row.handoff is not None and (full_row or not changes.keys().isdisjoint(HANDOFF)):
                replace_file("handoff.json", encode_handoff(row), self._directory, durable=False, atomic=self._durable)
            self._must_sync_state |= moves or DIRECTORIES[row.status] == "completed"
            self._state_synced = self._must_sync_state
            write_state(row, self._directory, durable=self._durable and self._must_sync_state)
            self._must_sync_state = False
            try:
                if moves or full_row:
                    self.store.tree.move_to_place(row)
                names = () if full_row else (*changes, "lease_owner", "process_id", "hostname")
                self.store.database.write_row(row, *names)
            except (OSError, NotWritten, StoreUnavailable) as error:
                raise OutcomeUnknown(f"The state of task {self.uuid} was written, but not its row: {error}") from error
        self.row = row  # only now: repeating a failed change adds nothing twice

    def _sync_state(self) -> None:
        if self._state_synced or not self._durable:
            return
        try:
            fd = open_file("state.json", os.O_RDONLY, self._directory)
            try:
                sync(fd)
            finally:
                os.close(fd)
        except OSError as error:
            raise OutcomeUnknown(f"The state of {self.uuid} could not be synced: {error.strerror}.") from error

    def _beat(self) -> None:
        with self.lock:
            if self._closed or self.lost:
                return
            try:
                with self._hold:
                    self._lock_file.announce(self.fence)
                    os.utime("state.json", dir_fd=self._directory)
                    row = msgspec.structs.replace(self.row, heartbeat_at=codec.now())
                    self.store.database.write_row(row, "heartbeat_at")
            except LeaseLost as error:
                log.warning("[uuid:%s] %s", self.uuid[:8], error)

    def _release(self) -> None:
        self._files.close()
        try:
            self._clear_holder()
        finally:
            self._lock_file.release()
            os.close(self._directory)

    def _clear_holder(self) -> None:
        """Remove the holder from the row. A failure is only logged."""
        try:
            if not self.lost:
                with self._hold:
                    row = msgspec.structs.replace(self.row, lease_owner=None, heartbeat_at=None)
                    self.store.database.write_row(row, "lease_owner", "heartbeat_at")
        except LeaseLost as error:  # at this very moment
            log.warning("[uuid:%s] %s", self.uuid[:8], error)
        except (NotWritten, OSError, OutcomeUnknown, StoreUnavailable) as error:  # the lock is what counts
            log.warning("[uuid:%s] The row still names us as the writer: %s", self.uuid[:8], error)

    def _report(self, name: str, offset: int, reason: str) -> None:
        self.store.report(self.store.problem(self.uuid, name, offset, reason))


def _read_blob(sha256: str, dir_fd: int) -> bytes:
    """Return the bytes of a blob, plain or compressed."""
    try:
        return read_file(sha256, dir_fd)
    except FileNotFoundError:
        with closing(open_gzip(open_file(f"{sha256}.gz", os.O_RDONLY, dir_fd))) as packed:
            return packed.read_at(0, packed.size)


def _find_size(name: str, dir_fd: int) -> int:
    """Return the bytes of a file; -1 if there is none."""
    try:
        return os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_size
    except FileNotFoundError:
        return -1


def _find_start(name: str, source: Source, first: int, directory: int, tail: int) -> int:
    """Return an offset from which number `first` is not missed; `tail` lines follow the complete ones."""
    if first < 0:
        return find_last_lines(source, max(0, -first - tail))
    if first <= 1:
        return 0
    if name != "messages":
        return _find_counted(name, source, first)
    if not exists(INDEX, directory):
        return 0
    fd = open_file(INDEX, os.O_RDONLY, directory)
    try:
        entry = MessageIndex(fd).find_before(first)
    finally:
        os.close(fd)
    # numbers grow, so `first` is behind every smaller number; an index with a wrong offset is ignored
    return entry.offset if entry is not None and is_valid(entry, source) else 0


def _find_counted(name: str, source: Source, first: int) -> int:
    """Return the offset of number `first` in a list without an index, counting lines from the end.

    Where lines are missing this is too early, which does no harm. Where there are more, the list is read from its
    beginning.
    """
    newest = _read_number(name, source, find_last_lines(source, 1))
    start = find_last_lines(source, newest - first + 1) if newest >= first else 0
    return start if 0 < _read_number(name, source, start) <= first else 0


def _read_number(name: str, source: Source, offset: int) -> int:
    """Return the number of the line at an offset; 0 if it cannot be read."""
    kind = KINDS[name]
    line = next(read_lines(source, offset), None)
    with suppress(Corrupt):
        return int(getattr(codec.decode_line((line and line.data) or b"", kind), LISTS[kind][1]))
    return 0
