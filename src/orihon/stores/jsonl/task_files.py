"""The open files of one task in plain files: its lists, the index of its log, and the directories inside its own."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from orihon.errors import OutcomeUnknown
from orihon.records import Message
from orihon.stores.base import LISTS
from orihon.stores.files import disk_errors, exists, identity_of, make_private_directory, open_directory, sync
from orihon.stores.jsonl.append_log import AppendLog
from orihon.stores.jsonl.lock_file import Hold
from orihon.stores.jsonl.message_index import MessageIndex, entry_of, open_index
from orihon.stores.jsonl.recovery import thaw
from orihon.stores.jsonl.store import file_of

if TYPE_CHECKING:
    from orihon.stores.jsonl.store import JsonlStore

log = logging.getLogger("orihon")


class TaskFiles:
    """What is open of one task; `directory` is a handle on the task's own directory."""

    def __init__(self, store: JsonlStore, uuid: str, directory: int, hold: Hold) -> None:
        self._store, self._uuid, self.directory, self._hold = store, uuid, directory, hold
        self.lists: dict[str, AppendLog] = {}
        self.index: MessageIndex | None = None
        self.names_changed = True  # a process that wrote here before may have died before it synced them
        self._folders: dict[str, int] = {}

    # what is there

    def names(self) -> list[str]:
        """The lists that the task has, plain or compressed."""
        return [name for name, field in LISTS.values() if field and self._is_there(name)]

    def is_packed(self, name: str) -> bool:
        """Whether a list that is there is compressed."""
        folder, file = self._place(name)
        return not exists(file, self.folder(folder))

    def _is_there(self, name: str) -> bool:
        folder, file = self._place(name)
        if folder and not exists(folder, self.directory):
            return False
        within = self.folder(folder)
        return exists(file, within) or exists(f"{file}.gz", within)

    def _place(self, name: str) -> tuple[str, str]:
        folder, _, file = file_of(name, self._uuid).rpartition("/")
        return folder, file

    def check(self) -> None:
        """Raise LeaseLost when what was appended is not there for every reader."""
        self._hold.check()
        for name in self.lists:
            self.check_list(name)

    def check_list(self, name: str) -> None:
        """The same for one list."""
        self._hold.check_file(file_of(name, self._uuid), self.directory, self.lists[name].identity)

    def check_folder(self, name: str) -> None:
        """Raise LeaseLost when a directory inside the task's is not the one that is open."""
        self._hold.check_file(name, self.directory, identity_of(os.fstat(self.folder(name))))

    # opening

    def open_all(self) -> None:
        """Open every list that is there, and the index of the log."""
        for name in self.names():
            self.open(name)
        if "messages" in self.lists:
            self.open_index()

    def open(self, name: str) -> AppendLog:
        """Open a list for writing; it is made, or unpacked, if it must be."""
        folder, file = self._place(name)
        kind = next(kind for kind, (title, _) in LISTS.items() if title == name)
        with disk_errors(f"{file} cannot be opened"):
            within = self.folder(folder)
            thaw(file, within)
            list_file = AppendLog(file, kind, within, self._reporter(name))
        self.names_changed = self.names_changed or list_file.created
        self.lists[name] = list_file
        return list_file

    def folder(self, name: str) -> int:
        """A handle on a directory inside the task's, made when it is first needed."""
        if not name:
            return self.directory
        if name not in self._folders:
            if not exists(name, self.directory):
                make_private_directory(name, self.directory)
                if self._durable:  # a line must not be there before the directory of what it names
                    sync(self.directory)
            self._folders[name] = open_directory(name, self.directory)
        return self._folders[name]

    def open_index(self) -> None:
        """The index of the log, caught up; without one everything works, only slower."""
        self._close_index()
        log_file = self.lists["messages"]
        report = self._reporter("messages")
        try:
            self.index = open_index(
                self.directory, log_file.source, log_file.size, lambda offset, why: report(log_file.name, offset, why)
            )
        except OSError as error:
            log.warning("[uuid:%s] messages.idx cannot be written: %s", self._uuid[:8], error)
        else:
            log_file.last = max(log_file.last, self.index.last.seq)

    def index_message(self, line: bytes, offset: int, message: Message) -> None:
        """Take a message that was written at an offset into the index."""
        index = self.index
        if index is None or max(index.last.end, 0) != offset:  # it has missed something
            self.open_index()
        else:
            index.add(entry_of(line[:-1], offset, message.seq, index.last.tokens + message.tokens))

    # syncing and closing

    def look_again(self, *names: str) -> None:
        """After a doubtful write or sync of some lists: see what is there."""
        for name in names:
            list_file = self.lists.get(name)
            if list_file is not None and list_file.doubtful:
                with self._hold:
                    self.check_list(name)
                    list_file.look_again()

    def sync(self) -> None:
        """What was appended is on the disk, and its names are."""
        self.look_again(*self.lists)
        if self._durable:
            for list_file in self.lists.values():
                list_file.begin_sync()
            for list_file in self.lists.values():
                list_file.sync()
            if self.names_changed:
                self._sync_names()
        if self.index is not None:
            with suppress(OSError):  # an index that cannot be written is caught up on the next open
                self.index.flush()

    def _sync_names(self) -> None:
        try:
            for folder in (*self._folders.values(), self.directory):
                sync(folder)
        except OSError as error:
            raise OutcomeUnknown(f"The directory of {self._uuid} could not be synced: {error.strerror}.") from error
        self.names_changed = False

    def close(self) -> None:
        """Let go of all but the task's own directory."""
        for list_file in self.lists.values():
            list_file.close()
        self._close_index()
        for folder in self._folders.values():
            os.close(folder)

    def _close_index(self) -> None:
        if self.index is not None:
            os.close(self.index.fd)
            self.index = None

    @property
    def _durable(self) -> bool:
        return self._store.options.durability != "os"

    def _reporter(self, name: str) -> Callable[[str, int, str], None]:
        def report(file: str, offset: int, reason: str) -> None:  # noqa: ARG001
            self._store.report(self._store.problem(self._uuid, name, offset, reason))

        return report
