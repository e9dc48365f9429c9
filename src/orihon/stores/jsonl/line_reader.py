"""Lines out of a file, plain or compressed, from any place in it, in bounded memory.

A compressed list is a gzip file of many members, each of about 256 kB and ending with a whole line. `zcat` and `zgrep`
read it as any other. Each member says in its header how long it is, so that a reader can hop from one to the next and
unpack only what it needs; offsets mean the same as in the plain file. A gzip file made by somebody else is unpacked
once to a temporary file.
"""

from __future__ import annotations

import gzip
import os
import shutil
import struct
import tempfile
import zlib
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from orihon.codec import MAX_LINE_BYTES
from orihon.errors import Corrupt
from orihon.stores.files import write_all

BLOCK_BYTES = 256 * 1024
PIECE_BYTES = 64 * 1024  # that are read at once
FIRST_PIECE_BYTES = 16 * 1024  # a reader who wants a few lines should not wait for many

# magic, deflate, "has extra field"; no time, no system; 12 bytes of extra field, of ours, 8 bytes long
_HEADER = struct.Struct("<4sI2sHccHII")
_MAGIC, _OURS = b"\x1f\x8b\x08\x04", (b"O", b"H")
_TRAILER = struct.Struct("<II")


class Line(NamedTuple):
    """A line without its newline; `data` is None when it is too long to be read."""

    offset: int
    length: int
    data: bytes | None


class Source(Protocol):
    """Bytes that can be read from any place."""

    @property
    def size(self) -> int:
        """How many there are now."""

    def read_at(self, offset: int, size: int) -> bytes:
        """Some of them; fewer at the end."""

    def close(self) -> None:
        """Let the file go."""


class PlainSource:
    """A file as it is; it may grow while it is read."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    @property
    def size(self) -> int:
        return os.fstat(self.fd).st_size

    def read_at(self, offset: int, size: int) -> bytes:
        return os.pread(self.fd, size, offset)

    def close(self) -> None:
        os.close(self.fd)


class GzipSource:
    """A compressed list, read member by member."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._starts: list[int] = []  # in plain bytes
        self._members: list[tuple[int, int, int]] = []  # place and length in the file, and plain length
        self._cached: tuple[int, bytes] = (-1, b"")
        self.size = self._hop()

    def _hop(self) -> int:
        place, plain = 0, 0
        while header := os.pread(self.fd, _HEADER.size, place):
            magic, _, _, _, one, two, _, length, size = _HEADER.unpack(header.ljust(_HEADER.size, b"\0"))
            if magic != _MAGIC or (one, two) != _OURS or length <= _HEADER.size + _TRAILER.size:
                raise Corrupt("A member of a compressed list is not where it should be.", where=f"byte {place}")
            self._starts.append(plain)
            self._members.append((place, length, size))
            place, plain = place + length, plain + size
        return plain

    def read_at(self, offset: int, size: int) -> bytes:
        found = bytearray()
        while size > len(found) and offset + len(found) < self.size:
            number = bisect_right(self._starts, offset + len(found)) - 1
            start = offset + len(found) - self._starts[number]
            found += self._member(number)[start : start + size - len(found)]
        return bytes(found)

    def _member(self, number: int) -> bytes:
        if self._cached[0] != number:
            place, length, size = self._members[number]
            with _unpacking(f"byte {place}"):
                plain = gzip.decompress(os.pread(self.fd, length, place))
            if len(plain) != size:
                raise Corrupt("A member of a compressed list is not as long as it says.", where=f"byte {place}")
            self._cached = (number, plain)
        return self._cached[1]

    def close(self) -> None:
        os.close(self.fd)


def open_gzip(fd: int) -> Source:
    """A compressed list; one that somebody else compressed is unpacked first."""
    try:
        header = os.pread(fd, _HEADER.size, 0)
        if len(header) == _HEADER.size and _HEADER.unpack(header)[4:6] == _OURS:
            return GzipSource(fd)
        source = _unpacked(fd)
    except BaseException:
        os.close(fd)
        raise
    os.close(fd)
    return source


def _unpacked(fd: int) -> Source:
    with os.fdopen(os.dup(fd), "rb") as file, gzip.open(file) as packed, tempfile.TemporaryFile() as plain:
        with _unpacking("byte 0"):
            shutil.copyfileobj(packed, plain, BLOCK_BYTES)
        plain.flush()
        return PlainSource(os.dup(plain.fileno()))


@contextmanager
def _unpacking(where: str) -> Iterator[None]:
    try:
        yield
    except (OSError, EOFError, zlib.error) as error:
        raise Corrupt(f"A compressed list cannot be unpacked: {error}.", where=where) from error


def compress(source: Source, target: int) -> None:
    """Write a source as a compressed list to a file."""
    for block in _blocks(source):
        packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
        body = packer.compress(block) + packer.flush()
        length = _HEADER.size + len(body) + _TRAILER.size
        header = _HEADER.pack(_MAGIC, 0, b"\0\xff", 12, *_OURS, 8, length, len(block))
        write_all(target, header + body + _TRAILER.pack(zlib.crc32(block), len(block) & 0xFFFFFFFF))


def _blocks(source: Source) -> Iterator[bytes]:
    """Pieces of about `BLOCK_BYTES` that end with a whole line, unless a line is longer than that."""
    offset = 0
    while block := source.read_at(offset, BLOCK_BYTES):
        end = block.rfind(b"\n") + 1 or len(block)
        yield block[:end]
        offset += end


def lines_from(source: Source, offset: int, end: int | None = None) -> Iterator[Line]:
    """Whole lines from a place on; a last one without a newline is not there yet."""
    end = source.size if end is None else end
    rest, size = b"", FIRST_PIECE_BYTES
    while offset + len(rest) < end:
        block = source.read_at(offset + len(rest), min(size, end - offset - len(rest)))
        if not block:
            return
        size = max(min(PIECE_BYTES, size * 2), len(rest))  # a long line is not put together from many pieces
        pieces = (rest + block).split(b"\n")
        for piece in pieces[:-1]:
            yield Line(offset, len(piece), piece)
            offset += len(piece) + 1
        rest = pieces[-1]
        if len(rest) > MAX_LINE_BYTES:
            length = _length_of_line(source, offset, end)
            if length is None:
                return
            yield Line(offset, length, None)
            offset, rest = offset + length + 1, b""


def _length_of_line(source: Source, offset: int, end: int) -> int | None:
    """How long a very long line is, without keeping it; None when it does not end."""
    place = offset
    while place < end and (block := source.read_at(place, min(PIECE_BYTES, end - place))):
        found = block.find(b"\n")
        if found >= 0:
            return place + found - offset
        place += len(block)
    return None


def whole_size(source: Source) -> int:
    """The size up to and including the last newline; what comes after it is torn or not written yet."""
    place = source.size
    while place > 0:
        start = max(0, place - PIECE_BYTES)
        found = source.read_at(start, place - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        place = start
    return 0


def start_of_last(source: Source, count: int) -> int:
    """Where the newest `count` whole lines begin."""
    place = whole_size(source)
    wanted = count + 1  # the newline before the first of them
    while place > 0:
        start = max(0, place - PIECE_BYTES)
        block = source.read_at(start, place - start)
        here = block.count(b"\n")
        if here < wanted:
            wanted, place = wanted - here, start
            continue
        found = len(block)
        for _ in range(wanted):
            found = block.rfind(b"\n", 0, found)
        return start + found + 1
    return 0
