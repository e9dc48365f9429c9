"""The right to write one task in plain files."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from orihon import codec
from orihon.errors import Conflict, LeaseLost
from orihon.records import Blob, Message, Metadata, Record, Status, TaskRow
from orihon.stores import rows
from orihon.stores.base import LISTS, Lease, first_row
from orihon.stores.files import (
    disk_errors,
    exists,
    open_directory,
    open_file,
    replace_file,
    sync,
    sync_directory,
)
from orihon.stores.heartbeat import Heartbeat
from orihon.stores.identity import me
from orihon.stores.index import Index, catch_up, entry_of, rebuild
from orihon.stores.jsonl import file_of
from orihon.stores.listfile import ListFile
from orihon.stores.lockfile import LockFile
from orihon.stores.recovery import load, settle, thaw
from orihon.stores.sources import lines_from, start_of_last
from orihon.stores.state import DIRECTORIES, encode_metadata, encode_state

if TYPE_CHECKING:
    from orihon.stores.jsonl import JsonlStore


class JsonlLease(Lease):
    """Open files of one task, and the lock on it."""

    store: JsonlStore

    def __init__(self, store: JsonlStore, directory: int, lock: LockFile, metadata: Metadata, row: TaskRow) -> None:
        super().__init__(store, metadata, row.fence + 1)
        self._directory, self._lock_file = directory, lock
        self._pid = os.getpid()
        self._closed = False
        self._lists: dict[str, ListFile] = {}
        self._last: dict[str, int] = {}
        self._names_changed = False
        self._folders: dict[str, int] = {}
        owner = me()
        self.row = msgspec.structs.replace(
            row, fence=self.fence, lease_owner=str(owner), process_id=owner.process_id, hostname=owner.hostname
        )
        for name, _ in LISTS.values():
            if name != "metadata" and self._is_there(name):
                self._open(name)
        self._index = self._open_index() if "messages" in self._lists else None
        lock.say(self.fence)
        self._save({"fence": self.fence}, durable=False)
        self._heartbeat = Heartbeat(self._beat, store.options.heartbeat_seconds)
        store.leases.add(self)

    @classmethod
    def create(cls, store: JsonlStore, metadata: Metadata, status: Status) -> JsonlLease:
        """Make a task: the lock first, then the files, then the row."""
        path = store.base / DIRECTORIES[status] / metadata.uuid
        with disk_errors(f"Task {metadata.uuid} cannot be made"):
            try:
                path.mkdir(mode=0o700)
            except FileExistsError:
                raise Conflict(f"There is a task {metadata.uuid} already.") from None
            directory = open_directory(path)
            lock = LockFile.take(metadata.uuid, directory)
            durable = store.options.durability != "os"
            row = first_row(metadata, status, fence=0)
            replace_file("state.json", encode_state(row), directory, durable=durable)
            replace_file("metadata.json", encode_metadata(metadata), directory, durable=durable)
            if durable:
                sync_directory(path.parent)
        store.database.write(lambda connection: rows.insert(connection, row))
        return cls(store, directory, lock, metadata, row)

    @classmethod
    def take(cls, store: JsonlStore, uuid: str) -> JsonlLease:
        """Take a task that is there, and finish what a crash left half-done."""
        directory = store.open_task(uuid)
        try:
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
        return self._last.get(LISTS[kind][0], 0)

    def write(self, name: str, number: int, line: bytes, record: Record) -> None:
        self._check()
        list_file = self._lists.get(name) or self._open(name)
        offset = list_file.append(line)
        self._last[name] = number
        if isinstance(record, Message):
            index = self._index = self._index or self._open_index()
            if index.last.offset < offset:
                index.add(entry_of(line[:-1], offset, number, index.last.tokens + record.tokens))
        if self.store.options.durability == "message":
            self.sync()

    def put(self, data: bytes) -> Blob:
        with self.lock, disk_errors("A blob cannot be kept"):
            self._check()
            sha256 = hashlib.sha256(data).hexdigest()
            folder = self._folder("blobs")
            if not exists(sha256, folder):
                replace_file(sha256, data, folder, durable=self._durable)
            return Blob(sha256=sha256, size_bytes=len(data))

    def update(self, *, add: dict[str, int] | None = None, **changes: Any) -> TaskRow:
        with self.lock, disk_errors(f"The state of task {self.uuid} cannot be written"):
            self._check()
            moves = changes.get("status", self.row.status) != self.row.status
            if moves:
                self.sync()
            self._save(changes, add or {}, durable=moves and self._durable)
            return self.row

    def sync(self) -> None:
        with self.lock:
            self._check()
            if self._durable:
                for list_file in self._lists.values():
                    list_file.sync()
                if self._names_changed:
                    with disk_errors("A directory cannot be synced"):
                        for folder in (*self._folders.values(), self._directory):
                            sync(folder)
                    self._names_changed = False
            if self._index is not None:
                with suppress(OSError):  # an index that cannot be written is caught up on the next open
                    self._index.flush()

    def close(self) -> None:
        if self._closed:
            return
        self._heartbeat.stop()
        with self.lock:
            if self._closed:
                return
            try:
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

    def _save(self, changes: dict[str, Any], add: dict[str, int] | None = None, *, durable: bool) -> None:
        """State, directory, row: in this order, so that a crash between two of them can be finished."""
        add = add or {}
        changes = {"updated_at": codec.now()} | changes
        sums = {name: getattr(self.row, name) + more for name, more in add.items()}
        self.row = msgspec.structs.replace(self.row, **changes, **sums)
        replace_file("state.json", encode_state(self.row), self._directory, durable=durable)
        if "status" in changes:
            settle(self.store, self.uuid, self.row)
        lease = {name: getattr(self.row, name) for name in ("lease_owner", "process_id", "hostname")}
        self._write_row(lambda connection: rows.update(connection, self.uuid, changes | lease, add))

    def _write_row(self, work: Callable[[Any], int]) -> None:
        def update_or_insert(connection: Any) -> None:
            if not work(connection):  # somebody removed the row; the files know what it said
                rows.insert(connection, self.row)

        self.store.database.write(update_or_insert)

    def _beat(self) -> None:
        with self.lock:
            if not self._closed:
                self._lock_file.say(self.fence)
                now = codec.now()
                self._write_row(lambda connection: rows.update(connection, self.uuid, {"heartbeat_at": now}, {}))

    def _let_go(self) -> None:
        for list_file in self._lists.values():
            list_file.close()
        if self._index is not None:
            os.close(self._index.fd)
        for folder in self._folders.values():
            os.close(folder)
        try:
            free = {"lease_owner": None, "heartbeat_at": None}
            self._write_row(lambda connection: rows.update(connection, self.uuid, free, {}))
        finally:
            self._lock_file.release()
            os.close(self._directory)

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

    def _folder(self, name: str) -> int:
        """A handle on a directory inside the task's, made when it is first needed."""
        if not name:
            return self._directory
        if name not in self._folders:
            if not exists(name, self._directory):
                os.mkdir(name, 0o700, dir_fd=self._directory)
                self._names_changed = True
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
        self._last[name] = self._newest(kind, list_file)
        return list_file

    def _newest(self, kind: type[Record], list_file: ListFile) -> int:
        """The number of the last record; a broken line at the end is no reason to use a number twice."""
        _, field = LISTS[kind]
        for count in (1, 64, 1 << 40):
            found = 0
            for line in lines_from(list_file.source, start_of_last(list_file.source, count)):
                with suppress(Exception):
                    found = max(found, getattr(codec.decode_line(line.data or b"", kind), field))
            if found or not list_file.size:
                return found
        return found

    def _open_index(self) -> Index:
        log = self._lists["messages"]
        report = self._reporter("messages")

        def wrong(offset: int, reason: str) -> None:
            report(log.name, offset, reason)

        index = Index(open_file("messages.idx", os.O_RDWR | os.O_CREAT, self._directory))
        if not catch_up(index, log.source, log.size, wrong):
            new = Index(open_file(".messages.idx.new", os.O_RDWR | os.O_CREAT | os.O_TRUNC, self._directory))
            rebuild(index, new, log.source, log.size, wrong)
            os.replace(".messages.idx.new", "messages.idx", src_dir_fd=self._directory, dst_dir_fd=self._directory)
            os.close(index.fd)
            index = new
        self._last["messages"] = max(self._last["messages"], index.last.seq)
        return index

    def _reporter(self, name: str) -> Callable[[str, int, str], None]:
        def report(file: str, offset: int, reason: str) -> None:  # noqa: ARG001
            self.store.report(self.store.problem(self.uuid, name, offset, reason))

        return report
