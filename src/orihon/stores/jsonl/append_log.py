"""An append-only line file with crash repair.

An append is one `write`. When it fails, the file is cut back and the caller gets NotWritten. When that fails too, or a
sync does, the content of the disk is unknown: the caller gets OutcomeUnknown, and the next append reads the file again
before it writes. A torn last line is cut off, kept in a second file and reported.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress

from orihon import codec
from orihon.errors import Corrupt, NotWritten, OutcomeUnknown
from orihon.records import Record
from orihon.stores.base import LISTS
from orihon.stores.files import exists, get_identity, open_file, start_sync, sync, write_all
from orihon.stores.jsonl.line_reader import PlainSource, find_end, find_last_lines, read_lines

Report = Callable[[int, str], None]  # an offset in the file, and what is wrong there
COPY_BYTES = 1024 * 1024


class AppendLog:
    """A list that is open for writing. There is one writer."""

    def __init__(self, name: str, kind: type[Record], dir_fd: int, report: Report) -> None:
        self.name, self.kind = name, kind
        self._dir_fd, self._report = dir_fd, report
        self.created = not exists(name, dir_fd)
        self.fd = open_file(name, os.O_RDWR | os.O_APPEND | os.O_CREAT, dir_fd)
        self.identity = get_identity(os.fstat(self.fd))
        self.synced, self._unsynced = 0, True  # the last writer may have died before it synced
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
        self.size, self.last, self._unsynced = offset + len(line), number, True
        self.uncertain = False
        return offset

    def start_sync(self) -> None:
        """Start to write what was appended since the last sync to the disk."""
        if self._unsynced and self.synced:
            start_sync(self.fd, self.synced, self.size - self.synced)

    def sync(self) -> None:
        """Write what was appended to the disk."""
        if self.uncertain:
            self.reopen()
        if not self._unsynced:
            return
        try:
            sync(self.fd)
        except OSError as error:
            self.uncertain = True
            raise OutcomeUnknown(f"{self.name} could not be synced: {error.strerror}.") from error
        self.synced, self._unsynced = self.size, False

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
        self.synced, self._unsynced, self.uncertain = self.size, False, False

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
