"""The files of one task that are open for writing: its lists, the index of its log, and its subdirectories.

A list is an append-only file of lines with crash repair. An append is one `write`. When it fails, the file is cut back
and the caller gets NotWritten. When that fails too, or a sync does, the content of the disk is unknown: the caller gets
OutcomeUnknown, and the next append reads the file again before it writes. A torn last line is cut off, kept in a second
file and reported.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from orihon import codec
from orihon.errors import Corrupt, NotWritten, OutcomeUnknown
from orihon.records import Message, Record
from orihon.stores.base import LISTS
from orihon.stores.files import (
    disk_error,
    disk_errors,
    exists,
    get_identity,
    make_private_directory,
    open_directory,
    open_file,
    start_sync,
    sync,
    write_all,
)
from orihon.stores.jsonl.archive import unarchive_list
from orihon.stores.jsonl.layout import KINDS, list_path
from orihon.stores.jsonl.line_reader import PlainSource, find_end, find_last_lines, read_lines
from orihon.stores.jsonl.lock_file import Hold
from orihon.stores.jsonl.message_index import MessageIndex, open_index

log = logging.getLogger("orihon")

COPY_BYTES = 1024 * 1024

Report = Callable[[str, int, str], None]  # a list, an offset in its file, and what is wrong there


class AppendLog:
    """A list that is open for writing. There is one writer."""

    def __init__(self, name: str, kind: type[Record], dir_fd: int, report: Callable[[int, str], None]) -> None:
        self.name, self.kind = name, kind
        self._dir_fd, self._report = dir_fd, report
        self.created = not exists(name, dir_fd)
        self.fd = open_file(name, os.O_RDWR | os.O_APPEND | os.O_CREAT, dir_fd)
        self.identity = get_identity(os.fstat(self.fd))
        self.synced, self.unsynced = 0, True  # the last writer may have died before it synced
        self.uncertain = False
        try:
            self.size = self._repair_tail()
            self.last = self._find_last_number()
        except BaseException:
            self.close()
            raise

    @property
    def source(self) -> PlainSource:
        """The same file for reading; it is closed with this object."""
        return PlainSource(self.fd)

    def append(self, line: bytes, number: int) -> int:
        """Write one line; return its offset."""
        offset = self.size
        self.uncertain = True  # until all is done: Ctrl-C may come between any two steps
        try:
            written = os.write(self.fd, line)
            if written != len(line):
                write_all(self.fd, line[written:])
        except OSError as error:
            self._truncate_failed_write(offset, error)
        self.size, self.last, self.unsynced = offset + len(line), number, True
        self.uncertain = False
        return offset

    def start_sync(self) -> None:
        """Start to write what was appended since the last sync to the disk."""
        if self.unsynced and self.synced:
            start_sync(self.fd, self.synced, self.size - self.synced)

    def sync(self) -> None:
        """Write what was appended to the disk."""
        if self.uncertain:
            self.reopen()
        if not self.unsynced:
            return
        try:
            sync(self.fd)
        except OSError as error:
            self.uncertain = True
            raise OutcomeUnknown(f"{self.name} could not be synced: {error.strerror}.") from error
        self.synced, self.unsynced = self.size, False

    def reopen(self) -> None:
        """After a failed write or sync: open the file again, repair its tail, and rewrite the unsynced part."""
        try:
            fd = open_file(self.name, os.O_RDWR | os.O_APPEND, self._dir_fd)
            os.close(self.fd)
            self.fd = fd
            self.size = self._repair_tail()
            self.last = self._find_last_number()
            self._rewrite_unsynced()
        except OSError as error:
            raise OutcomeUnknown(f"{self.name} cannot be written safely: {error.strerror}.") from error
        self.synced, self.unsynced, self.uncertain = self.size, False, False

    def _rewrite_unsynced(self) -> None:
        """Write the unsynced bytes to the same place once more, and sync them.

        After a failed sync the kernel may call pages clean that never reached the disk. Writing them makes them dirty.
        """
        fd = open_file(self.name, os.O_RDWR, self._dir_fd)
        try:
            for offset in range(min(self.synced, self.size), self.size, COPY_BYTES):
                data = os.pread(fd, min(COPY_BYTES, self.size - offset), offset)
                if os.pwrite(fd, data, offset) != len(data):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            sync(fd)
        finally:
            os.close(fd)

    def close(self) -> None:
        """Close the file."""
        os.close(self.fd)

    def _truncate_failed_write(self, size: int, cause: OSError) -> None:
        try:
            os.ftruncate(self.fd, size)
        except OSError:
            raise OutcomeUnknown(f"{self.name} could not be written: {cause.strerror}.") from cause
        self.uncertain = False
        raise NotWritten(f"{self.name} could not be written: {cause.strerror}.") from cause

    def _find_last_number(self) -> int:
        """Return the highest number, also if lines at the end are broken; no number is used twice."""
        _, field = LISTS[self.kind]
        number = 0
        for count in (1, 64, 1 << 40):
            for line in read_lines(self.source, find_last_lines(self.source, count)):
                with suppress(Corrupt):
                    number = max(number, getattr(codec.decode_line(line.data or b"", self.kind), field))
            if number or not self.size:
                break
        return number

    def _repair_tail(self) -> int:
        """Complete a last line that lacks only its newline, else move it to a second file; return the size."""
        source = self.source
        size, end = source.size, find_end(source)
        if size == end:
            return size
        if size - end <= codec.MAX_LINE_BYTES:
            try:
                codec.decode_line(source.read_at(end, size - end), self.kind)
            except Corrupt:
                pass
            else:
                write_all(self.fd, b"\n")
                self._report(end, "the last line had lost its newline, which was restored")
                return size + 1
        self._quarantine_tail(end, size)
        return end

    def _quarantine_tail(self, end: int, size: int) -> None:
        fd = open_file(f"{self.name}.torn", os.O_WRONLY | os.O_APPEND | os.O_CREAT, self._dir_fd)
        try:
            for offset in range(end, size, COPY_BYTES):
                write_all(fd, os.pread(self.fd, min(COPY_BYTES, size - offset), offset))
            write_all(fd, b"\n")
            sync(fd)
        finally:
            os.close(fd)
        sync(self._dir_fd)
        os.ftruncate(self.fd, end)
        sync(self.fd)
        self._report(end, f"a torn line of {size - end:,} bytes was cut off and kept in {self.name}.torn")


class TaskFiles:
    """The open files of one task; `directory` is a descriptor of its directory, which the caller closes."""

    def __init__(self, uuid: str, directory: int, hold: Hold, *, durable: bool, report: Report) -> None:
        self._uuid, self._directory, self._hold = uuid, directory, hold
        self._durable, self._report = durable, report
        self._paths = {name: list_path(name, uuid) for name, field in LISTS.values() if field}
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
        folder, _, file = self._paths[name].rpartition("/")
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

    def append(self, name: str, number: int, line: bytes, record: Record) -> None:
        """Append a line to a list, and add a message to the index."""
        with self._hold:
            append_log = self.logs.get(name) or self.open(name)
            offset = append_log.append(line, number)
            self.check_list(name)  # last: the file that readers open has the line
        if not isinstance(record, Message):
            return
        if self.index is None or not self.index.append(line[:-1], offset, number, record.tokens):
            self.open_index()  # it lacked an earlier message

    # checking

    def check(self) -> None:
        """Raise LeaseLost if what was appended is not visible to every reader."""
        self._hold.check()
        for name in self.logs:
            self.check_list(name)

    def check_list(self, name: str) -> None:
        """Raise LeaseLost if the file of a list is not the one that is open."""
        self._check_name(self._paths[name], self.logs[name].identity)

    def check_folder(self, name: str) -> None:
        """Raise LeaseLost if a directory inside the task's is not the one that is open."""
        self._check_name(name, get_identity(os.fstat(self.folder(name))))

    def _check_name(self, name: str, identity: tuple[int, int]) -> None:
        try:
            found = os.stat(name, dir_fd=self._directory, follow_symlinks=False)
            if (found.st_dev, found.st_ino) == identity:
                return
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError as error:
            raise disk_error(error, f"Task {self._uuid} cannot be checked") from error
        self._hold.lose(f"{name} was removed or replaced")

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
            unsynced = [append_log for append_log in self.logs.values() if append_log.unsynced]
            for append_log in unsynced[1:]:
                append_log.start_sync()  # while the first one is synced
            for append_log in unsynced:
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
