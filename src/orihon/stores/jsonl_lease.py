"""The right to write one task in plain files."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from orihon import codec
from orihon.errors import LeaseLost, NotWritten, OutcomeUnknown, StoreUnavailable
from orihon.records import Blob, Message, Metadata, Record, Status, TaskRow
from orihon.stores import rows
from orihon.stores.base import LISTS, Lease
from orihon.stores.files import disk_errors, exists, open_directory, open_file, replace_file, size_of, sync
from orihon.stores.heartbeat import Heartbeat
from orihon.stores.identity import me
from orihon.stores.index import Index, entry_of, open_index
from orihon.stores.jsonl import file_of
from orihon.stores.listfile import ListFile
from orihon.stores.lockfile import LockFile
from orihon.stores.making import make, unmake
from orihon.stores.numbers import newest
from orihon.stores.recovery import load, settle, thaw
from orihon.stores.state import KEPT, encode_handoff, write_state

if TYPE_CHECKING:
    from orihon.stores.jsonl import JsonlStore


log = logging.getLogger("orihon")

HANDOFF = frozenset({"handoff", "final_summary", "status", "completed_at"})  # what `handoff.json` says


class JsonlLease(Lease):
    """Open files of one task, and the lock on it."""

    store: JsonlStore

    def __init__(self, store: JsonlStore, directory: int, lock: LockFile, metadata: Metadata, row: TaskRow) -> None:
        super().__init__(store, metadata, row.fence + 1)
        self._directory, self._lock_file = directory, lock
        self._pid = os.getpid()
        self._closed = False
        self._lists: dict[str, ListFile] = {}
        self._must_last = False  # a state that was to last may be written by half: the next one has to, then
        self._names_changed = True  # whoever wrote here before us may have died before he synced them
        self._folders: dict[str, int] = {}
        owner = me()
        self.row = msgspec.structs.replace(
            row, fence=self.fence, lease_owner=str(owner), process_id=owner.process_id, hostname=owner.hostname
        )
        self._index: Index | None = None
        try:
            with disk_errors(f"Task {self.uuid} cannot be opened"):
                self._begin()
        except BaseException:
            self._close_files()
            raise
        self._heartbeat = Heartbeat(self._beat, store.options.heartbeat_seconds)
        store.leases.add(self)

    def _begin(self) -> None:
        there = [name for name, field in LISTS.values() if field and self._is_there(name)]
        # whoever only changes the row leaves a compressed task as it is
        self._packed = bool(self.row.archived) or any(self._is_packed(name) for name in there)
        if not self._packed:
            self._open_lists(there)
        self._lock_file.say(self.fence)
        # what the last holder left must last, before we write states that need not
        self._save({"fence": self.fence}, lasting=self.fence > 1 or not exists(KEPT, self._directory), whole_row=True)

    def _open_lists(self, names: list[str]) -> None:
        for name in names:
            self._open(name)
        if "messages" in self._lists:
            self._open_index()

    def _unpack(self) -> None:
        """Somebody wants to write what retention had compressed; the state first, so that it is compressed again."""
        if self._packed:
            with disk_errors(f"Task {self.uuid} cannot be unpacked"):
                self._save({"archived": "", "packed_bytes": None}, lasting=False)
                self._open_lists([name for name, field in LISTS.values() if field and self._is_there(name)])
            self._packed = False

    @classmethod
    def create(cls, store: JsonlStore, metadata: Metadata, status: Status) -> JsonlLease:
        """Make a task, whole or not at all."""
        directory, lock, row = make(store, metadata, status)
        try:
            return cls(store, directory, lock, metadata, row)
        except BaseException:
            unmake(store, metadata.uuid, directory, lock)
            raise

    @classmethod
    def take(cls, store: JsonlStore, uuid: str) -> JsonlLease:
        """Take a task that is there, and finish what a crash left half-done."""
        directory = store.open_task(uuid)
        try:
            with disk_errors(f"Task {uuid} cannot be taken"):
                lock = LockFile.take(uuid, directory)
        except BaseException:
            os.close(directory)
            raise
        try:
            with disk_errors(f"Task {uuid} cannot be opened"):
                metadata, row = load(store, uuid, directory)
                settle(store, uuid, row)
            return cls(store, directory, lock, metadata, row)
        except BaseException:
            lock.release()
            os.close(directory)
            raise

    # the verbs

    def last(self, kind: type[Record]) -> int:
        if self._packed:
            return newest(self.store, self.uuid, kind)
        list_file = self._lists.get(LISTS[kind][0])
        return list_file.last if list_file is not None else 0

    def append(self, record: Record) -> int:
        self._check()  # before the lock, which a forked child may find locked for ever
        with self.lock:
            self._unpack()
            list_file = self._lists.get(LISTS.get(type(record), ("", ""))[0])
            if list_file is not None and list_file.doubtful:
                list_file.look_again()
            return super().append(record)

    def write(self, name: str, number: int, line: bytes, record: Record) -> None:
        self._unpack()
        list_file = self._lists.get(name) or self._open(name)
        offset = list_file.append(line, number)
        if isinstance(record, Message):
            index = self._index
            if index is None or max(index.last.end, 0) != offset:  # it has missed something
                self._open_index()
            else:
                index.add(entry_of(line[:-1], offset, number, index.last.tokens + record.tokens))
        if self.store.options.durability == "message":
            self.sync()

    def put(self, data: bytes) -> Blob:
        self._check()
        with self.lock, disk_errors("A blob cannot be kept"):
            sha256 = hashlib.sha256(data).hexdigest()
            folder = self._folder("blobs")
            if size_of(sha256, folder) != len(data):  # a power cut may have left an empty one
                self._names_changed = True
                replace_file(sha256, data, folder, durable=self._durable)
            return Blob(sha256=sha256, size_bytes=len(data))

    def change(self, changes: dict[str, Any], add: dict[str, int]) -> TaskRow:
        self._check()
        with self.lock, disk_errors(f"The state of task {self.uuid} cannot be written"):
            moves = changes.get("status", self.row.status) != self.row.status
            if moves:
                self.sync()
            self._save(changes, add, lasting=moves)
            return self.row

    def sync(self) -> None:
        self._check()
        with self.lock:
            if self._durable:
                for list_file in self._lists.values():
                    list_file.begin_sync()
                for list_file in self._lists.values():
                    list_file.sync()
                if self._names_changed:
                    self._sync_names()
            if self._index is not None:
                with suppress(OSError):  # an index that cannot be written is caught up on the next open
                    self._index.flush()

    def _sync_state(self) -> None:
        if self._state_lasts or not self._durable:
            return
        try:
            fd = open_file("state.json", os.O_RDONLY, self._directory)
            try:
                sync(fd)
            finally:
                os.close(fd)
        except OSError as error:
            raise OutcomeUnknown(f"The state of {self.uuid} could not be synced: {error.strerror}.") from error

    def _sync_names(self) -> None:
        try:
            for folder in (*self._folders.values(), self._directory):
                sync(folder)
        except OSError as error:
            raise OutcomeUnknown(f"The directory of {self.uuid} could not be synced: {error.strerror}.") from error
        self._names_changed = False

    def close(self) -> None:
        if self._closed or os.getpid() != self._pid:
            return  # a forked child has nothing to give back: lock and row are its parent's
        self._heartbeat.stop()
        with self.lock:
            if self._closed:
                return
            try:
                self._sync_state()
                self._names_changed = True  # the state was put in its place by name
                self.sync()
            finally:
                self._closed = True
                self.store.leases.discard(self)
                self._let_go()

    # the rest

    @property
    def _durable(self) -> bool:
        return self.store.options.durability != "os"

    @property
    def tokens(self) -> int:
        """The tokens of the whole log."""
        return self._index.last.tokens if self._index is not None else 0

    def _check(self) -> None:
        if self._closed:
            raise LeaseLost(f"The lease on task {self.uuid} was given back; nothing was written.")
        if os.getpid() != self._pid:
            raise LeaseLost(f"Task {self.uuid} belongs to the parent process; nothing was written.")

    def _save(
        self, changes: dict[str, Any], add: dict[str, int] | None = None, *, lasting: bool, whole_row: bool = False
    ) -> None:
        """State, directory, row: in this order, so that a crash between two of them can be finished."""
        sums = {name: getattr(self.row, name) + more for name, more in (add or {}).items()}
        changes = {"updated_at": codec.now()} | changes | sums
        row = msgspec.structs.replace(self.row, **changes)
        if row.handoff is not None and (whole_row or not changes.keys().isdisjoint(HANDOFF)):
            replace_file("handoff.json", encode_handoff(row), self._directory, durable=False, whole=self._durable)
        self._must_last = lasting = lasting or self._must_last
        self._state_lasts = write_state(row, self._directory, durable=self._durable, lasting=lasting)
        self._must_last = False
        try:
            if whole_row or row.status != self.row.status:
                settle(self.store, self.uuid, row)
            self._write_row(row, () if whole_row else (*changes, "lease_owner", "process_id", "hostname"))
        except (OSError, NotWritten, StoreUnavailable) as error:
            raise OutcomeUnknown(f"The state of task {self.uuid} was written, but not its row: {error}") from error
        self.row = row  # only now: whoever repeats what failed adds nothing twice

    def _write_row(self, row: TaskRow, names: tuple[str, ...]) -> None:
        """Some columns of the row, or all of them, also when somebody removed it: the files know what it said."""

        def write(connection: Any) -> None:
            changes = {name: getattr(row, name) for name in names}
            if not names or not rows.update(connection, self.uuid, changes, {}):
                rows.insert(connection, row)

        self.store.database.write(write)

    def _beat(self) -> None:
        with self.lock:
            if not self._closed:
                self._lock_file.say(self.fence)
                self._write_row(msgspec.structs.replace(self.row, heartbeat_at=codec.now()), ("heartbeat_at",))

    def _let_go(self) -> None:
        self._close_files()
        free = msgspec.structs.replace(self.row, lease_owner=None, heartbeat_at=None)
        try:
            self._write_row(free, ("lease_owner", "heartbeat_at"))
        except (NotWritten, OutcomeUnknown, StoreUnavailable) as error:  # the lock is what counts
            log.warning("[uuid:%s] The row still names us as the writer: %s", self.uuid[:8], error)
        finally:
            self._lock_file.release()
            os.close(self._directory)

    def _close_files(self) -> None:
        for list_file in self._lists.values():
            list_file.close()
        self._close_index()
        for folder in self._folders.values():
            os.close(folder)

    def _close_index(self) -> None:
        if self._index is not None:
            os.close(self._index.fd)
            self._index = None

    # opening lists

    def _place(self, name: str) -> tuple[str, str]:
        folder, _, file = file_of(name, self.uuid).rpartition("/")
        return folder, file

    def _is_there(self, name: str) -> bool:
        folder, file = self._place(name)
        if folder and not exists(folder, self._directory):
            return False
        within = self._folder(folder)
        return exists(file, within) or exists(f"{file}.gz", within)

    def _is_packed(self, name: str) -> bool:
        folder, file = self._place(name)
        return not exists(file, self._folder(folder))

    def _folder(self, name: str) -> int:
        """A handle on a directory inside the task's, made when it is first needed."""
        if not name:
            return self._directory
        if name not in self._folders:
            if not exists(name, self._directory):
                os.mkdir(name, 0o700, dir_fd=self._directory)
                if self._durable:  # a line must not be there before the directory of what it names
                    sync(self._directory)
            self._folders[name] = open_directory(name, self._directory)
        return self._folders[name]

    def _open(self, name: str) -> ListFile:
        folder, file = self._place(name)
        kind = next(kind for kind, (title, _) in LISTS.items() if title == name)
        with disk_errors(f"{file} cannot be opened"):
            within = self._folder(folder)
            thaw(file, within)
            list_file = ListFile(file, kind, within, self._reporter(name))
        self._names_changed = self._names_changed or list_file.created
        self._lists[name] = list_file
        return list_file

    def _open_index(self) -> None:
        """The index of the log, caught up; without one everything works, only slower."""
        self._close_index()
        log_file = self._lists["messages"]
        report = self._reporter("messages")
        try:
            self._index = open_index(
                self._directory, log_file.source, log_file.size, lambda offset, why: report(log_file.name, offset, why)
            )
        except OSError as error:
            log.warning("[uuid:%s] messages.idx cannot be written: %s", self.uuid[:8], error)
        else:
            log_file.last = max(log_file.last, self._index.last.seq)

    def _reporter(self, name: str) -> Callable[[str, int, str], None]:
        def report(file: str, offset: int, reason: str) -> None:  # noqa: ARG001
            self.store.report(self.store.problem(self.uuid, name, offset, reason))

        return report
