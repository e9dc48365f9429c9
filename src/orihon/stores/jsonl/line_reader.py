"""Read lines from a file, plain or compressed, from any offset, in bounded memory.

A compressed list is a gzip file of many members, each of about 256 kB and ending with a complete line. `zcat` and
`zgrep` read it like any other. The header of each member says how long it is, so a reader skips to the member that it
needs; offsets mean the same as in the plain file. A gzip file of another program is decompressed to a temporary file.
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
from contextlib import contextmanager, suppress
from typing import NamedTuple, Protocol

from orihon.codec import MAX_LINE_BYTES
from orihon.errors import Corrupt
from orihon.stores.files import exists, open_directory, open_file, write_all
from orihon.stores.jsonl.layout import list_path

BLOCK_BYTES = 256 * 1024
CHUNK_BYTES = 64 * 1024  # that are read at once
FIRST_CHUNK_BYTES = 16 * 1024  # a reader of a few lines should not wait for many

# magic, deflate, "has extra field"; no time, no system; 12 bytes of extra field, of ours, 8 bytes long
_HEADER = struct.Struct("<4sI2sHccHII")
_MAGIC, _OURS = b"\x1f\x8b\x08\x04", (b"O", b"H")
_TRAILER = struct.Struct("<II")


class Line(NamedTuple):
    """A line without its newline; `data` is None if it is too long to be read."""

    offset: int
    length: int
    data: bytes | None


class Source(Protocol):
    """Bytes that can be read at any offset."""

    @property
    def size(self) -> int:
        """The number of bytes now."""

    def read_at(self, offset: int, size: int) -> bytes:
        """Return some bytes; fewer at the end."""

    def close(self) -> None:
        """Close the file."""


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
        self._members: list[tuple[int, int, int]] = []  # offset and length in the file, and plain length
        self._cached: tuple[int, bytes] = (-1, b"")
        self.size = self._read_headers()

    def _read_headers(self) -> int:
        """Find all members; return the plain size."""
        offset, plain = 0, 0
        while header := os.pread(self.fd, _HEADER.size, offset):
            magic, _, _, _, id1, id2, _, length, size = _HEADER.unpack(header.ljust(_HEADER.size, b"\0"))
            if magic != _MAGIC or (id1, id2) != _OURS or length <= _HEADER.size + _TRAILER.size:
                raise Corrupt("A member of a compressed list is not where it should be.", where=f"byte {offset}")
            self._starts.append(plain)
            self._members.append((offset, length, size))
            offset, plain = offset + length, plain + size
        return plain

    def read_at(self, offset: int, size: int) -> bytes:
        data = bytearray()
        while size > len(data) and offset + len(data) < self.size:
            number = bisect_right(self._starts, offset + len(data)) - 1
            start = offset + len(data) - self._starts[number]
            data += self._read_member(number)[start : start + size - len(data)]
        return bytes(data)

    def _read_member(self, number: int) -> bytes:
        if self._cached[0] != number:
            offset, length, size = self._members[number]
            with _gzip_errors(f"byte {offset}"):
                plain = gzip.decompress(os.pread(self.fd, length, offset))
            if len(plain) != size:
                raise Corrupt("A member of a compressed list is not as long as it says.", where=f"byte {offset}")
            self._cached = (number, plain)
        return self._cached[1]

    def close(self) -> None:
        os.close(self.fd)


def open_list(name: str, uuid: str, directory: int) -> Source | None:
    """Open a list of a task for reading, plain or compressed; return None if there is none."""
    folder, _, file = list_path(name, uuid).rpartition("/")
    if folder and not exists(folder, directory):
        return None
    dir_fd = open_directory(folder, directory) if folder else os.dup(directory)
    try:
        for _ in range(2):  # it may be compressed, or decompressed, between two tries
            with suppress(FileNotFoundError):
                return PlainSource(open_file(file, os.O_RDONLY, dir_fd))
            with suppress(FileNotFoundError):
                return open_gzip(open_file(f"{file}.gz", os.O_RDONLY, dir_fd))
        return None
    finally:
        os.close(dir_fd)


def open_gzip(fd: int) -> Source:
    """Return the source of a compressed list; one of another program is decompressed first."""
    try:
        header = os.pread(fd, _HEADER.size, 0)
        if len(header) == _HEADER.size and _HEADER.unpack(header)[4:6] == _OURS:
            return GzipSource(fd)
        source = _decompress(fd)
    except BaseException:
        os.close(fd)
        raise
    os.close(fd)
    return source


def _decompress(fd: int) -> Source:
    with os.fdopen(os.dup(fd), "rb") as file, gzip.open(file) as packed, tempfile.TemporaryFile() as plain:
        with _gzip_errors("byte 0"):
            shutil.copyfileobj(packed, plain, BLOCK_BYTES)
        plain.flush()
        return PlainSource(os.dup(plain.fileno()))


@contextmanager
def _gzip_errors(where: str) -> Iterator[None]:
    try:
        yield
    except (OSError, EOFError, zlib.error) as error:
        raise Corrupt(f"A compressed list cannot be decompressed: {error}.", where=where) from error


def compress(source: Source, fd: int) -> None:
    """Write a source as a compressed list to a file."""
    offset = 0
    while block := source.read_at(offset, BLOCK_BYTES):
        block = block[: block.rfind(b"\n") + 1] or block  # a complete line at its end, unless a line is longer
        packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
        body = packer.compress(block) + packer.flush()
        length = _HEADER.size + len(body) + _TRAILER.size
        header = _HEADER.pack(_MAGIC, 0, b"\0\xff", 12, *_OURS, 8, length, len(block))
        write_all(fd, header + body + _TRAILER.pack(zlib.crc32(block), len(block) & 0xFFFFFFFF))
        offset += len(block)


def read_lines(source: Source, offset: int, end: int | None = None) -> Iterator[Line]:
    """Return complete lines from an offset on. A last line without a newline is not there yet."""
    end = source.size if end is None else end
    rest, size = b"", FIRST_CHUNK_BYTES
    while offset + len(rest) < end:
        chunk = source.read_at(offset + len(rest), min(size, end - offset - len(rest)))
        if not chunk:
            return
        size = max(min(CHUNK_BYTES, size * 2), len(rest))  # a long line is not joined from many chunks
        lines = (rest + chunk).split(b"\n")
        for line in lines[:-1]:
            yield Line(offset, len(line), line)
            offset += len(line) + 1
        rest = lines[-1]
        if len(rest) > MAX_LINE_BYTES:
            length = _measure_line(source, offset, end)
            if length is None:
                return
            yield Line(offset, length, None)
            offset, rest = offset + length + 1, b""


def _measure_line(source: Source, offset: int, end: int) -> int | None:
    """Return the length of a very long line, without keeping it; None if it does not end."""
    position = offset
    while position < end and (chunk := source.read_at(position, min(CHUNK_BYTES, end - position))):
        newline = chunk.find(b"\n")
        if newline >= 0:
            return position + newline - offset
        position += len(chunk)
    return None


def find_end(source: Source) -> int:
    """Return the offset behind the last newline. What follows is torn or not written yet."""
    return find_last_lines(source, 0)


def find_last_lines(source: Source, count: int) -> int:
    """Return the offset of the newest `count` complete lines."""
    position = source.size
    wanted = count + 1  # the newline before the first of them
    while position > 0:
        start = max(0, position - CHUNK_BYTES)
        chunk = source.read_at(start, position - start)
        newlines = chunk.count(b"\n")
        if newlines >= wanted:
            index = len(chunk)
            for _ in range(wanted):
                index = chunk.rfind(b"\n", 0, index)
            return start + index + 1
        wanted, position = wanted - newlines, start
    return 0


def count_newlines(source: Source, end: int) -> int:
    """Return the number of newlines before an offset."""
    count, offset = 0, 0
    while offset < end and (chunk := source.read_at(offset, min(1 << 20, end - offset))):
        count += chunk.count(b"\n")
        offset += len(chunk)
    return count
