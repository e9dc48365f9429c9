"""The files of one task that are open for writing: its lists, the index of its log, and its subdirectories."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from orihon.errors import OutcomeUnknown
from orihon.records import Message
from orihon.stores.base import LISTS
from orihon.stores.files import disk_errors, exists, get_identity, make_private_directory, open_directory, sync
from orihon.stores.jsonl.append_log import AppendLog
from orihon.stores.jsonl.archive import unarchive_list
from orihon.stores.jsonl.layout import KINDS, list_path
from orihon.stores.jsonl.lock_file import Hold
from orihon.stores.jsonl.message_index import MessageIndex, make_entry, open_index

log = logging.getLogger("orihon")

Report = Callable[[str, int, str], None]  # a list, an offset in its file, and what is wrong there


class TaskFiles:
    """The open files of one task; `directory` is a descriptor of its directory, which the caller closes."""

    def __init__(self, uuid: str, directory: int, hold: Hold, *, durable: bool, report: Report) -> None:
        self._uuid, self._directory, self._hold = uuid, directory, hold
        self._durable, self._report = durable, report
        self.logs: dict[str, AppendLog] = {}
        self.index: MessageIndex | None = None
        self.names_changed = True  # the last writer may have died before it synced the directory
        self._folders: dict[str, int] = {}

    def find_lists(self) -> dict[str, bool]:
        """Return the names of the task's lists, and whether each is compressed."""
        lists = {}
        for name in (name for name, field in LISTS.values() if field):
            folder, file = self._locate(name)
            if folder and not exists(folder, self._directory):
                continue
            dir_fd = self.folder(folder)
            if exists(file, dir_fd):
                lists[name] = False
            elif exists(f"{file}.gz", dir_fd):
                lists[name] = True
        return lists

    def _locate(self, name: str) -> tuple[str, str]:
        folder, _, file = list_path(name, self._uuid).rpartition("/")
        return folder, file

    def hold_by(self, hold: Hold) -> None:
        """Go on with another proof that the task is ours to write: the lease was released and taken again."""
        self._hold = hold

    # opening

    def open_all(self) -> None:
        """Open every list of the task, and the index of the log."""
        for name in self.find_lists():
            self.open(name)
        if "messages" in self.logs:
            self.open_index()

    def open(self, name: str) -> AppendLog:
        """Open a list for writing. It is created or decompressed if necessary."""
        folder, file = self._locate(name)
        with disk_errors(f"{file} cannot be opened"):
            dir_fd = self.folder(folder)
            unarchive_list(file, dir_fd)
            append_log = AppendLog(file, KINDS[name], dir_fd, partial(self._report, name))
        self.names_changed = self.names_changed or append_log.created
        self.logs[name] = append_log
        return append_log

    def folder(self, name: str) -> int:
        """Return a descriptor of a directory inside the task's, which is created when it is first needed."""
        if not name:
            return self._directory
        if name not in self._folders:
            if not exists(name, self._directory):
                make_private_directory(name, self._directory)
                if self._durable:  # a line must not be on disk before the directory of the file that it names
                    sync(self._directory)
            self._folders[name] = open_directory(name, self._directory)
        return self._folders[name]

    def open_index(self) -> None:
        """Open the index of the log. Without it everything works, only slower."""
        self._close_index()
        messages = self.logs["messages"]
        try:
            self.index = open_index(self._directory, messages.source, messages.size, partial(self._report, "messages"))
        except OSError as error:
            log.warning("[uuid:%s] messages.idx cannot be written: %s", self._uuid[:8], error)
        else:
            messages.last = max(messages.last, self.index.last.seq)

    def index_message(self, line: bytes, offset: int, message: Message) -> None:
        """Add a message that was written at an offset to the index."""
        index = self.index
        if index is None or index.last.end != offset:  # it lacks an earlier message
            self.open_index()
        else:
            index.add(make_entry(line[:-1], offset, message.seq, index.last.tokens + message.tokens))

    # checking

    def check(self) -> None:
        """Raise LeaseLost if what was appended is not visible to every reader."""
        self._hold.check()
        for name in self.logs:
            self.check_list(name)

    def check_list(self, name: str) -> None:
        """Raise LeaseLost if the file of a list is not the one that is open."""
        self._hold.check_file(list_path(name, self._uuid), self._directory, self.logs[name].identity)

    def check_folder(self, name: str) -> None:
        """Raise LeaseLost if a directory inside the task's is not the one that is open."""
        self._hold.check_file(name, self._directory, get_identity(os.fstat(self.folder(name))))

    def reopen_uncertain(self, *names: str) -> None:
        """Read lists again after a write or sync that failed."""
        for name in names:
            append_log = self.logs.get(name)
            if append_log is not None and append_log.uncertain:
                with self._hold:
                    self.check_list(name)
                    append_log.reopen()

    # syncing and closing

    def sync(self) -> None:
        """Write what was appended, and the names of new files, to the disk."""
        self.reopen_uncertain(*self.logs)
        if self._durable:
            for append_log in self.logs.values():
                append_log.start_sync()
            for append_log in self.logs.values():
                append_log.sync()
            if self.names_changed:
                self._sync_names()
        if self.index is not None:
            with suppress(OSError):  # the index is caught up by the next open
                self.index.flush()

    def _sync_names(self) -> None:
        try:
            for folder in (*self._folders.values(), self._directory):
                sync(folder)
        except OSError as error:
            raise OutcomeUnknown(f"The directory of {self._uuid} could not be synced: {error.strerror}.") from error
        self.names_changed = False

    def close(self) -> None:
        """Close everything but the task's own directory."""
        for append_log in self.logs.values():
            append_log.close()
        self._close_index()
        for folder in self._folders.values():
            os.close(folder)

    def _close_index(self) -> None:
        if self.index is not None:
            os.close(self.index.fd)
            self.index = None
