"""The right to write one task in plain files."""

from __future__ import annotations

import hashlib
import logging
import os
from typing import TYPE_CHECKING, Any

import msgspec

from orihon import codec
from orihon.errors import LeaseLost, NotWritten, OutcomeUnknown, StoreUnavailable
from orihon.records import Blob, Message, Metadata, Record, Status, TaskRow
from orihon.stores.base import LISTS, Lease
from orihon.stores.files import disk_errors, exists, open_file, replace_file, size_of, sync
from orihon.stores.jsonl.creation import make, unmake
from orihon.stores.jsonl.layout import KEPT, encode_handoff, write_state
from orihon.stores.jsonl.lock_file import Hold, LockFile
from orihon.stores.jsonl.recovery import load, settle
from orihon.stores.jsonl.task_files import TaskFiles
from orihon.stores.liveness import Heartbeat, current_owner
from orihon.stores.sql import rows

if TYPE_CHECKING:
    from orihon.stores.jsonl.store import JsonlStore


log = logging.getLogger("orihon")

HANDOFF = frozenset({"handoff", "final_summary", "status", "completed_at"})  # what `handoff.json` says


class JsonlLease(Lease):
    """Open files of one task, and the lock on it."""

    store: JsonlStore

    def __init__(self, store: JsonlStore, directory: int, lock: LockFile, metadata: Metadata, row: TaskRow) -> None:
        super().__init__(store, metadata, row.fence + 1)
        self._directory, self._lock_file = directory, lock
        self._hold = Hold(store.base, self.uuid, lock)
        self._files = TaskFiles(store, self.uuid, directory, self._hold)
        self._pid = os.getpid()
        self._closed = False
        self._must_last = False  # a state that was to last may be written by half: the next one has to, then
        owner = current_owner()
        self.row = msgspec.structs.replace(
            row, fence=self.fence, lease_owner=str(owner), process_id=owner.process_id, hostname=owner.hostname
        )
        try:
            with disk_errors(f"Task {self.uuid} cannot be opened"):
                self._begin()
        except BaseException:
            self._files.close()
            raise
        self._heartbeat = Heartbeat(self._beat, store.options.heartbeat_seconds)
        store.leases.add(self)

    def _begin(self) -> None:
        # whoever only changes the row leaves a compressed task as it is
        self._packed = bool(self.row.archived) or any(map(self._files.is_packed, self._files.names()))
        if not self._packed:
            with self._hold:  # a torn tail is cut off, and nobody may write behind it meanwhile
                self._files.open_all()
        self._lock_file.say(self.fence)
        # what the last holder left must last, before we write states that need not
        self._save({"fence": self.fence}, lasting=self.fence > 1 or not exists(KEPT, self._directory), whole_row=True)

    def _unpack(self) -> None:
        """Somebody wants to write what retention had compressed; the state first, so that it is compressed again."""
        if self._packed:
            with disk_errors(f"Task {self.uuid} cannot be unpacked"):
                self._save({"archived": "", "packed_bytes": None}, lasting=False)
                with self._hold:
                    self._files.open_all()
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
            with disk_errors(f"Task {uuid} cannot be opened"), Hold(store.base, uuid, lock):
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
            return self.store.last_number(self.uuid, kind)
        list_file = self._files.lists.get(LISTS[kind][0])
        return list_file.last if list_file is not None else 0

    def append(self, record: Record) -> int:
        self._check()  # before the lock, which a forked child may find locked for ever
        with self.lock:
            self._unpack()
            self._files.look_again(LISTS.get(type(record), ("", ""))[0])
            return super().append(record)

    def find_key(self, key: str) -> int | None:
        found = super().find_key(key)
        if found is not None:
            self._files.check()  # it is acknowledged once more
        return found

    def write(self, name: str, number: int, line: bytes, record: Record) -> None:
        self._unpack()
        with self._hold:
            list_file = self._files.lists.get(name) or self._files.open(name)
            offset = list_file.append(line, number)
            self._files.check_list(name)  # last: the file that readers find has the line
        if isinstance(record, Message):
            self._files.index_message(line, offset, record)
        if self.store.options.durability == "message":
            self.sync()

    def put(self, data: bytes) -> Blob:
        self._check()
        sha256 = hashlib.sha256(data).hexdigest()
        with self.lock, disk_errors("A blob cannot be kept"), self._hold:
            folder = self._files.folder("blobs")
            if size_of(sha256, folder) != len(data):  # a power cut may have left an empty one
                self._files.names_changed = True
                replace_file(sha256, data, folder, durable=self._durable)
            self._files.check_folder("blobs")
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
            self._files.sync()
            self._files.check()

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

    def close(self) -> None:
        if self._closed or os.getpid() != self._pid:
            return  # a forked child has nothing to give back: lock and row are its parent's
        self._heartbeat.stop()
        with self.lock:
            if self._closed:
                return
            try:
                if not self.lost:
                    self._sync_state()
                    self._files.names_changed = True  # the state was put in its place by name
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
        return self._files.index.last.tokens if self._files.index is not None else 0

    @property
    def lost(self) -> bool:
        return self._hold.lost

    def _check(self) -> None:
        if self._closed:
            raise LeaseLost(f"The lease on task {self.uuid} was given back; nothing was written.")
        if os.getpid() != self._pid:
            raise LeaseLost(f"Task {self.uuid} belongs to the parent process; nothing was written.")

    def _save(
        self, changes: dict[str, Any], add: dict[str, int] | None = None, *, lasting: bool, whole_row: bool = False
    ) -> None:
        """State, directory, row: in this order, so that a crash between two of them can be finished."""
        with self._hold:
            self._save_held(changes, add or {}, lasting=lasting, whole_row=whole_row)

    def _save_held(self, changes: dict[str, Any], add: dict[str, int], *, lasting: bool, whole_row: bool) -> None:
        sums = {name: getattr(self.row, name) + more for name, more in add.items()}
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
            if self._closed or self.lost:
                return
            try:
                with self._hold:
                    self._lock_file.say(self.fence)
                    self._write_row(msgspec.structs.replace(self.row, heartbeat_at=codec.now()), ("heartbeat_at",))
            except LeaseLost as error:
                log.warning("[uuid:%s] %s", self.uuid[:8], error)

    def _let_go(self) -> None:
        self._files.close()
        free = msgspec.structs.replace(self.row, lease_owner=None, heartbeat_at=None)
        try:
            if not self.lost:
                with self._hold:
                    self._write_row(free, ("lease_owner", "heartbeat_at"))
        except LeaseLost as error:  # at this very moment
            log.warning("[uuid:%s] %s", self.uuid[:8], error)
        except (NotWritten, OSError, OutcomeUnknown, StoreUnavailable) as error:  # the lock is what counts
            log.warning("[uuid:%s] The row still names us as the writer: %s", self.uuid[:8], error)
        finally:
            self._lock_file.release()
            os.close(self._directory)
