"""`messages.idx`: offset, length, checksum and cumulative tokens of each message.

Entries have a fixed width, so any message is found without reading the log. The index is written when the log is synced
and caught up when it is opened. A missing, short or wrong index is rebuilt from the log. A checksum that was written
once is carried over, so that a line which changed later is reported.
"""

from __future__ import annotations

import os
import struct
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple

import msgspec

from orihon.codec import MAX_LINE_BYTES, decode_line
from orihon.errors import Corrupt
from orihon.records import Count, Message, Seq
from orihon.stores.files import create_file, open_file, write_all
from orihon.stores.jsonl.line_reader import Source, read_lines

_ENTRY = struct.Struct("<QQQIII4x")  # offset, seq, tokens up to and with it, length, checksum, flags
_HEADER = b"orihon messages.idx 1\n".ljust(_ENTRY.size, b"\0")
WIDTH = _ENTRY.size
NAME = "messages.idx"
BATCH = 4096
CHANGED = "the line is not what it was when it was written (its checksum differs)"

Report = Callable[[int, str], None]  # an offset in the log, and what is wrong there


class Entry(NamedTuple):
    """One message in the log."""

    offset: int
    seq: int
    tokens: int
    length: int
    checksum: int
    flags: int = 0

    @property
    def end(self) -> int:
        """The offset of the next line."""
        return self.offset + self.length + 1


NO_ENTRY = Entry(-1, 0, 0, 0, 0)  # before the first message


class MessageIndex:
    """The entries of one log."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.count = max(0, os.fstat(fd).st_size - WIDTH) // WIDTH if os.pread(fd, WIDTH, 0) == _HEADER else 0
        self._pending = bytearray()
        self.last = self.entry(self.count - 1) if self.count else NO_ENTRY

    def entry(self, position: int) -> Entry:
        """Return the entry at a position, counted from 0."""
        return Entry._make(_ENTRY.unpack(os.pread(self.fd, WIDTH, (position + 1) * WIDTH)))

    def entries(self) -> Iterator[Entry]:
        """Return all entries, in bounded memory."""
        for position in range(0, self.count, BATCH):
            block = os.pread(self.fd, min(BATCH, self.count - position) * WIDTH, (position + 1) * WIDTH)
            yield from map(Entry._make, _ENTRY.iter_unpack(block))

    def find_before(self, seq: int) -> Entry | None:
        """Return the last entry with a smaller number."""
        position = bisect_left(range(self.count), seq, key=lambda position: self.entry(position).seq) - 1
        entry = self.entry(position) if position >= 0 else None
        return entry if entry is not None and entry.seq < seq else None

    def append(self, line: bytes, offset: int, seq: int, tokens: int) -> bool:
        """Add the entry of a new line, given without its newline; return False if an earlier one is missing."""
        last = self.last
        if last.offset + last.length + 1 != offset:
            return False
        self.add(Entry(offset, seq, last.tokens + tokens, len(line), zlib.crc32(line)))
        return True

    def add(self, entry: Entry) -> None:
        """Add an entry. It is written by the next flush, or when there are many."""
        self._pending += _ENTRY.pack(*entry)
        self.last = entry
        if len(self._pending) >= WIDTH * BATCH:
            with suppress(OSError):  # nothing is lost: the next flush writes it, or the next open
                self.flush()

    def flush(self) -> None:
        """Write the added entries. They are not synced: lost entries are restored from the log."""
        if self._pending:
            os.lseek(self.fd, (self.count + 1) * WIDTH, os.SEEK_SET)
            write_all(self.fd, bytes(self._pending))
            self.count += len(self._pending) // WIDTH
            self._pending.clear()

    def reset(self) -> None:
        """Remove all entries."""
        os.ftruncate(self.fd, 0)
        os.pwrite(self.fd, _HEADER, 0)
        self.count, self.last = 0, NO_ENTRY
        self._pending.clear()


def open_index(dir_fd: int, log: Source, size: int, report: Report) -> MessageIndex:
    """Open the index of a log for writing, caught up to `size` or rebuilt."""
    index = MessageIndex(open_file(NAME, os.O_RDWR | os.O_CREAT, dir_fd))
    try:
        if _matches_log(index, log, size, report):
            for entry in _read_entries(log, index.last, size):
                index.add(entry)
            index.flush()
            return index
    except BaseException:
        os.close(index.fd)
        raise
    os.close(index.fd)
    return rebuild_index(dir_fd, log, size, report)


def rebuild_index(dir_fd: int, log: Source, size: int, report: Report) -> MessageIndex:
    """Replace the index by a new one, built from the log; checksums of lines that did not move are carried over."""
    old = MessageIndex(open_file(NAME, os.O_RDWR | os.O_CREAT, dir_fd))
    try:
        new = MessageIndex(create_file(f".{NAME}.new", dir_fd))
        try:
            fill_index(new, old, log, size, report)
            os.replace(f".{NAME}.new", NAME, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
        except BaseException:
            os.close(new.fd)
            raise
    finally:
        os.close(old.fd)
    return new


def fill_index(new: MessageIndex, old: MessageIndex, log: Source, size: int, report: Report) -> None:
    """Fill a new index from the log and the checksums of an old one; report each difference."""
    new.reset()
    known = old.entries()
    before = next(known, None)
    for entry in _read_entries(log, new.last, size):
        while before is not None and before.offset < entry.offset:
            before = next(known, None)
        same_place = before is not None and (before.offset, before.length) == (entry.offset, entry.length)
        if before is not None and same_place and before.checksum != entry.checksum:
            report(entry.offset, CHANGED)
            new.add(entry._replace(checksum=before.checksum))
        else:
            new.add(entry)
    new.flush()


def make_entry(line: bytes, offset: int, seq: int, tokens: int) -> Entry:
    """Return the entry of a line, which is given without its newline."""
    return Entry(offset, seq, tokens, len(line), zlib.crc32(line))


def is_valid(entry: Entry, log: Source) -> bool:
    """Return whether the message of an entry is where it says. The index may be broken, or that of another log."""
    if not _is_line(entry, log, log.size):
        return False
    numbers = _parse_numbers(log.read_at(entry.offset, entry.length))
    return numbers is not None and numbers.seq == entry.seq


def _is_line(entry: Entry, log: Source, size: int) -> bool:
    if entry.offset < 0 or entry.length > MAX_LINE_BYTES or entry.end > size:
        return False
    before = log.read_at(entry.offset - 1, 1) if entry.offset else b"\n"
    return before == b"\n" == log.read_at(entry.offset + entry.length, 1)


def _matches_log(index: MessageIndex, log: Source, size: int, report: Report) -> bool:
    """Return whether the last entry describes a line of the log."""
    if not index.count:
        index.reset()
        return True
    if not _is_line(index.last, log, size):
        return False
    line = log.read_at(index.last.offset, index.last.length)
    if b"\n" in line:
        return False
    if zlib.crc32(line) != index.last.checksum:
        report(index.last.offset, CHANGED)
    return True


class _Numbers(msgspec.Struct):
    seq: Seq
    tokens: Count = 0
    token_count: Count = 0


_numbers = msgspec.json.Decoder(_Numbers)


def _parse_numbers(line: bytes) -> _Numbers | None:
    """Return number and tokens of a line, without decoding the rest; None if it is broken."""
    try:
        return _numbers.decode(line)
    except (ValueError, RecursionError):
        try:
            message = decode_line(line, Message)
        except Corrupt:
            return None
        return _Numbers(message.seq, message.tokens)


def _read_entries(log: Source, last: Entry, size: int) -> Iterator[Entry]:
    """Return the entries of the messages after the last one that is known."""
    seq, tokens = last.seq, last.tokens
    for line in read_lines(log, max(0, last.end), size):
        numbers = _parse_numbers(line.data) if line.data is not None else None
        # a broken line has no number, and a repeated one is no second message
        if numbers is not None and numbers.seq > seq:
            seq, tokens = numbers.seq, tokens + (numbers.tokens or numbers.token_count)
            yield make_entry(line.data or b"", line.offset, seq, tokens)
