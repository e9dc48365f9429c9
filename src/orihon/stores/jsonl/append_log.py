"""One append-only file of lines, and the honest truth about what is in it.

An append is one `write`. When it fails, what it left behind is taken away again and the caller hears NotWritten; when
even that fails, or a sync does, nobody can know what is on the disk: the caller hears OutcomeUnknown, and the next
append looks before it writes. A tail that was torn by a crash is cut off and kept aside, never silently.
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
from orihon.stores.files import begin_sync, exists, identity_of, open_file, sync, write_all
from orihon.stores.jsonl.line_reader import PlainSource, lines_from, start_of_last, whole_size

Report = Callable[[str, int, str], None]  # a file, an offset in it, and what is wrong there
RESYNC_BYTES = 1024 * 1024


class AppendLog:
    """A list that is being written; there is one writer."""

    def __init__(self, name: str, kind: type[Record], within: int, report: Report) -> None:
        self.name, self.kind = name, kind
        self._within, self._report = within, report
        self.created = not exists(name, within)
        self.fd = open_file(name, os.O_RDWR | os.O_APPEND | os.O_CREAT, within)
        self.identity = identity_of(os.fstat(self.fd))
        self.synced, self._unsynced = 0, True  # whoever wrote it before us may have died before he synced it
        self.doubtful = False
        try:
            self.size = self._mend_tail()
            self.last = self._newest()
        except BaseException:
            self.close()
            raise

    @property
    def source(self) -> PlainSource:
        """The same bytes for reading; closed with this."""
        return PlainSource(self.fd)

    def append(self, line: bytes, number: int) -> int:
        """Write one line; the offset at which it stands."""
        offset = self.size
        self.doubtful = True  # until all is done: Ctrl-C may come between any two steps
        try:
            written = os.write(self.fd, line)
            if written != len(line):
                write_all(self.fd, line[written:])
        except OSError as error:
            self._take_back(offset, error)
        self.size, self.last, self._unsynced = offset + len(line), number, True
        self.doubtful = False
        return offset

    def begin_sync(self) -> None:
        """Let the disk begin with what was appended since the last sync."""
        if self._unsynced and self.synced:
            begin_sync(self.fd, self.synced, self.size - self.synced)

    def sync(self) -> None:
        """What was appended is on the disk when this returns."""
        if self.doubtful:
            self.look_again()
        if not self._unsynced:
            return
        try:
            sync(self.fd)
        except OSError as error:
            self.doubtful = True
            raise OutcomeUnknown(f"{self.name} could not be synced: {error.strerror}.") from error
        self.synced, self._unsynced = self.size, False

    def look_again(self) -> None:
        """After a doubtful write or sync: open the file anew, mend its tail, and put the unsynced part there again."""
        try:
            fd = open_file(self.name, os.O_RDWR | os.O_APPEND, self._within)
            os.close(self.fd)
            self.fd = fd
            self.size = self._mend_tail()
            self.last = self._newest()
            self._write_again()
        except OSError as error:
            raise OutcomeUnknown(f"{self.name} cannot be trusted to the disk: {error.strerror}.") from error
        self.synced, self._unsynced, self.doubtful = self.size, False, False

    def _write_again(self) -> None:
        """After a failed sync the kernel may call pages clean that never reached the disk. Writing the same bytes to
        the same place makes them dirty again, so that the next sync really writes them.
        """
        again = open_file(self.name, os.O_RDWR, self._within)
        try:
            for place in range(min(self.synced, self.size), self.size, RESYNC_BYTES):
                data = os.pread(again, min(RESYNC_BYTES, self.size - place), place)
                if os.pwrite(again, data, place) != len(data):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            sync(again)
        finally:
            os.close(again)

    def close(self) -> None:
        """Let the file go."""
        os.close(self.fd)

    def _take_back(self, size: int, cause: OSError) -> None:
        """Remove what a failed write left behind."""
        try:
            os.ftruncate(self.fd, size)
        except OSError:
            raise OutcomeUnknown(f"{self.name} could not be written: {cause.strerror}.") from cause
        self.doubtful = False
        raise NotWritten(f"{self.name} could not be written: {cause.strerror}.") from cause

    def _newest(self) -> int:
        """The number of the last record; a broken line at the end is no reason to use a number twice."""
        _, field = LISTS[self.kind]
        for count in (1, 64, 1 << 40):
            found = 0
            for line in lines_from(self.source, start_of_last(self.source, count)):
                with suppress(Corrupt):
                    found = max(found, getattr(codec.decode_line(line.data or b"", self.kind), field))
            if found or not self.size:
                return found
        return found

    def _mend_tail(self) -> int:
        """The size of the whole lines; a last line that only lacks its newline gets it, another one is put aside."""
        source = self.source
        size, whole = source.size, whole_size(source)
        if size == whole:
            return size
        if size - whole <= codec.MAX_LINE_BYTES:
            tail = source.read_at(whole, size - whole)
            try:
                codec.decode_line(tail, self.kind)
            except Corrupt:
                pass
            else:
                write_all(self.fd, b"\n")
                self._report(self.name, whole, "the last line had lost its end, which was put back")
                return size + 1
        self._put_aside(whole, size)
        return whole

    def _put_aside(self, whole: int, size: int) -> None:
        aside = open_file(f"{self.name}.torn", os.O_WRONLY | os.O_APPEND | os.O_CREAT, self._within)
        try:
            for place in range(whole, size, RESYNC_BYTES):
                write_all(aside, os.pread(self.fd, min(RESYNC_BYTES, size - place), place))
            write_all(aside, b"\n")
            sync(aside)
        finally:
            os.close(aside)
        sync(self._within)
        os.ftruncate(self.fd, whole)
        sync(self.fd)
        reason = f"a torn line of {size - whole:,} bytes was cut off and kept in {self.name}.torn"
        self._report(self.name, whole, reason)
