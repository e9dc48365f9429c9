"""`messages.idx`: where each message stands, how many tokens came before, and what its bytes add up to.

One entry of fixed width per message, so that any message is found without reading the log. The index is written when
the log is synced and caught up when it is opened; a missing, short or wrong one is built anew from the log. A checksum
that was written once is carried over, so that a line which changed later is reported, not blessed.
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
from orihon.stores.jsonl.line_reader import Source, lines_from

_ENTRY = struct.Struct("<QQQIII4x")  # offset, seq, tokens up to and with it, length, checksum, flags
_HEADER = b"orihon messages.idx 1\n".ljust(_ENTRY.size, b"\0")
WIDTH = _ENTRY.size
NAME = "messages.idx"
MANY = 4096

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
        """Where the next line begins."""
        return self.offset + self.length + 1


class _Numbers(msgspec.Struct):
    seq: Seq
    tokens: Count = 0
    token_count: Count = 0


_numbers = msgspec.json.Decoder(_Numbers)


class MessageIndex:
    """The entries of one log."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.count = max(0, os.fstat(fd).st_size - WIDTH) // WIDTH if os.pread(fd, WIDTH, 0) == _HEADER else 0
        self._pending = bytearray()
        self.last = self.entry(self.count - 1) if self.count else Entry(-1, 0, 0, 0, 0)

    def entry(self, place: int) -> Entry:
        """The entry at a place, from 0."""
        return Entry._make(_ENTRY.unpack(os.pread(self.fd, WIDTH, (place + 1) * WIDTH)))

    def entries(self) -> Iterator[Entry]:
        """All of them, in bounded memory."""
        for place in range(0, self.count, MANY):
            block = os.pread(self.fd, min(MANY, self.count - place) * WIDTH, (place + 1) * WIDTH)
            yield from map(Entry._make, _ENTRY.iter_unpack(block))

    def before(self, seq: int) -> Entry | None:
        """The last entry that is written down and whose number is smaller."""
        place = bisect_left(range(self.count), seq, key=lambda place: self.entry(place).seq) - 1
        entry = self.entry(place) if place >= 0 else None
        return entry if entry is not None and entry.seq < seq else None

    def add(self, entry: Entry) -> None:
        """Remember an entry until the next flush, or until there are many."""
        self._pending += _ENTRY.pack(*entry)
        self.last = entry
        if len(self._pending) >= WIDTH * MANY:
            with suppress(OSError):  # nothing is lost: it is kept for the next flush, and caught up on the next open
                self.flush()

    def flush(self) -> None:
        """Write down what was remembered. Not synced: what is lost is caught up."""
        if self._pending:
            os.lseek(self.fd, (self.count + 1) * WIDTH, os.SEEK_SET)
            write_all(self.fd, bytes(self._pending))
            self.count += len(self._pending) // WIDTH
            self._pending.clear()

    def reset(self) -> None:
        """Start anew."""
        os.ftruncate(self.fd, 0)
        os.pwrite(self.fd, _HEADER, 0)
        self.count, self.last = 0, Entry(-1, 0, 0, 0, 0)
        self._pending.clear()


def open_index(within: int, log: Source, size: int, report: Report) -> MessageIndex:
    """The index in a task's directory, for writing, caught up or built anew."""
    index = MessageIndex(open_file(NAME, os.O_RDWR | os.O_CREAT, within))
    try:
        if catch_up(index, log, size, report):
            return index
        new = MessageIndex(create_file(f".{NAME}.new", within))
    except BaseException:
        os.close(index.fd)
        raise
    try:
        rebuild(index, new, log, size, report)
        os.replace(f".{NAME}.new", NAME, src_dir_fd=within, dst_dir_fd=within)
    except BaseException:
        os.close(new.fd)
        raise
    finally:
        os.close(index.fd)
    return new


def catch_up(index: MessageIndex, log: Source, size: int, report: Report) -> bool:
    """Add what the log has and the index has not, up to `size`; False when the index is wrong and must be rebuilt."""
    if not _fits(index, log, size, report):
        return False
    for entry in _entries_of(log, index.last, size):
        index.add(entry)
    index.flush()
    return True


def rebuild(old: MessageIndex, new: MessageIndex, log: Source, size: int, report: Report) -> None:
    """Build a new index from the log; checksums of lines that did not move are kept, and a difference is reported."""
    new.reset()
    known = old.entries()
    before = next(known, None)
    for entry in _entries_of(log, new.last, size):
        while before is not None and before.offset < entry.offset:
            before = next(known, None)
        if before is not None and before[::3] == entry[::3] and before.checksum != entry.checksum:  # offset, length
            report(entry.offset, CHANGED)
            new.add(entry._replace(checksum=before.checksum))
        else:
            new.add(entry)
    new.flush()


def check(index: MessageIndex, log: Source, report: Report) -> int:
    """Compare every checksum; how many lines were looked at."""
    for entry in index.entries():
        fits = entry.length <= MAX_LINE_BYTES and entry.end <= log.size
        if not fits or zlib.crc32(log.read_at(entry.offset, entry.length)) != entry.checksum:
            report(entry.offset, CHANGED)
    return index.count


CHANGED = "the line is not what it was when it was written (its checksum differs)"


def numbers_of(line: bytes) -> tuple[int, int] | None:
    """Number and tokens of a line, without reading the rest of it; None when it is broken."""
    try:
        numbers = _numbers.decode(line)
    except (ValueError, RecursionError):
        try:
            message = decode_line(line, Message)
        except Corrupt:
            return None
        return message.seq, message.tokens
    return numbers.seq, numbers.tokens or numbers.token_count


def stands(entry: Entry, log: Source) -> bool:
    """Whether the line of an entry is where it says; the index may be broken, or that of another log."""
    if entry.length > MAX_LINE_BYTES or entry.end > log.size or not _has_borders(entry, log):
        return False
    numbers = numbers_of(log.read_at(entry.offset, entry.length))
    return numbers is not None and numbers[0] == entry.seq


def _has_borders(entry: Entry, log: Source) -> bool:
    before = log.read_at(entry.offset - 1, 1) if entry.offset else b"\n"
    return before == b"\n" == log.read_at(entry.offset + entry.length, 1)


def entry_of(line: bytes, offset: int, seq: int, tokens: int) -> Entry:
    """The entry of a line, which is given without its newline."""
    return Entry(offset, seq, tokens, len(line), zlib.crc32(line))


def _entries_of(log: Source, after: Entry, size: int) -> Iterator[Entry]:
    seq, tokens = after.seq, after.tokens
    for line in lines_from(log, max(0, after.end), size):
        numbers = numbers_of(line.data) if line.data is not None else None
        # a broken line has no number, and a doubled one is not a second message
        if numbers is not None and numbers[0] > seq:
            seq, tokens = numbers[0], tokens + numbers[1]
            yield entry_of(line.data or b"", line.offset, seq, tokens)


def _fits(index: MessageIndex, log: Source, size: int, report: Report) -> bool:
    """Whether the last entry describes a whole line of the log."""
    last = index.last
    if not index.count:
        index.reset()
        return True
    if last.offset < 0 or last.end > size:
        return False
    if last.length > MAX_LINE_BYTES or not _has_borders(last, log):
        return False
    line = log.read_at(last.offset, last.length)
    if b"\n" in line:
        return False
    if zlib.crc32(line) != last.checksum:
        report(last.offset, CHANGED)
    return True
