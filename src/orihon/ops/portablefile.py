"""The bytes of a portable file: what writes them, and what takes nothing in them on trust.

{"orihon":"task","version":1,"uuid":"550e8400-…"}
{"metadata":{…}}
{"messages":{"seq":1,"role":"user",…}}              the lines of each list, as the store has them
{"blob":{"sha256":"9f86d0…","data":"base64"}}       a large one in several pieces, one after the other
{"row":{…}}
{"end":{"lines":321,"sha256":"…"}}                  of all bytes before it
"""

from __future__ import annotations

import base64
import binascii
import gzip
import hashlib
import os
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple, NoReturn, TypeVar

import msgspec

from orihon import codec
from orihon.coerce import decode_json
from orihon.context.events import problem
from orihon.errors import Corrupt, SchemaMismatch, UsageError
from orihon.records import Event, Metadata, Record, TaskRow
from orihon.stores.base import FORMAT, LISTS
from orihon.stores.checks import checked
from orihon.stores.files import open_file, sync

VERSION = 1
MAGIC = b"\x1f\x8b"
PIECE_BYTES = 1024 * 1024
MAX_LINE_BYTES = codec.MAX_LINE_BYTES + 64  # the name of the list stands around it
BOMB_BYTES, BOMB_RATIO = 256 * 1024 * 1024, 200  # no log is packed so well; a file of zeros is
HINT = "Nothing was imported. Export the task again, or ask for the file again."

_KINDS = {name: kind for kind, (name, field) in LISTS.items() if field}
_NAME = re.compile(rb'\{"([a-z]+)":')
_SHA256 = re.compile(r"[0-9a-f]{64}")

R = TypeVar("R", bound=Record)


class Header(msgspec.Struct, frozen=True):
    """The first line."""

    orihon: str
    version: int
    uuid: str


class End(msgspec.Struct, frozen=True):
    """The last line: how many there were, and what all of them together are."""

    lines: int
    sha256: str


class Piece(msgspec.Struct, frozen=True):
    """A blob, or a part of it."""

    sha256: str
    data: str


class Writing:
    """A file on its way to the disk; nobody but its owner can read it."""

    def __init__(self, path: Path, uuid: str) -> None:
        self._file = os.fdopen(open_file(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb")
        self._packed = gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=self._file, mtime=0)
        self._hash, self._count = hashlib.sha256(), 0
        self._write(msgspec.json.encode(Header("task", VERSION, uuid)))

    def line(self, name: str, line: bytes) -> None:
        """One line of a list."""
        self._write(b'{"%s":%s}' % (name.encode(), line.rstrip(b"\n")))

    def blob(self, sha256: str, data: bytes) -> None:
        """A blob, piece by piece; an empty one is one piece."""
        for start in range(0, len(data) or 1, PIECE_BYTES):
            piece = Piece(sha256, base64.b64encode(data[start : start + PIECE_BYTES]).decode())
            self.line("blob", msgspec.json.encode(piece))

    def end(self, *, durable: bool = True) -> None:
        """The last line; the file is whole when this returns, and on the disk if it should be."""
        self.line("end", msgspec.json.encode(End(self._count, self._hash.hexdigest())))
        self._packed.close()
        self._file.flush()
        if durable:
            sync(self._file.fileno())

    def close(self) -> None:
        """Let go of the file, whether it is whole or not."""
        self._file.close()

    def _write(self, line: bytes) -> None:
        self._packed.write(line + b"\n")
        self._hash.update(line + b"\n")
        self._count += 1


class Span(NamedTuple):
    """Where something stands in the unpacked file."""

    start: int
    end: int


class Unpacked:
    """A portable file, unpacked into another and checked to its last byte."""

    def __init__(self, path: Path, plain: IO[bytes]) -> None:
        self.path, self.plain = path, plain
        self.lists: dict[str, Span] = {}
        self.blobs: dict[str, Span] = {}
        self.uuid = ""
        self._metadata: Metadata | None = None
        self._row: TaskRow | None = None
        self._list = self._blob = ""  # what the last line belonged to
        self._blob_hash = hashlib.sha256()
        with path.open("rb") as packed, self._unpacking(), gzip.open(packed) as lines:
            most = max(BOMB_BYTES, BOMB_RATIO * os.fstat(packed.fileno()).st_size)
            self._read(lines, most)

    def task(self) -> tuple[Metadata, TaskRow]:
        """The metadata and the row, which agree on what task it is."""
        metadata, row = self._metadata, self._row
        if metadata is None or row is None:
            self.refuse("its metadata or its row is missing")
        if not (self.uuid == metadata.uuid == row.uuid) or str(metadata.task_key) != row.task_key:
            self.refuse("its parts belong to different tasks")
        if metadata.format > FORMAT:
            raise SchemaMismatch(f"The task in {self.path} has format {metadata.format}; this version knows {FORMAT}.")
        return metadata, row

    def refuse(self, reason: str, cause: BaseException | None = None) -> NoReturn:
        """Say why this file is not believed."""
        raise Corrupt(f"{self.path} cannot be imported: {reason}.", where=str(self.path), hint=HINT) from cause

    @contextmanager
    def _unpacking(self) -> Iterator[None]:
        try:
            yield
        except EOFError as error:
            self.refuse("it is cut off", error)
        except (gzip.BadGzipFile, zlib.error) as error:
            self.refuse(f"it cannot be unpacked ({error})", error)

    def _read(self, lines: gzip.GzipFile, most: int) -> None:
        total, count, place = hashlib.sha256(), 0, 0
        end: End | None = None
        while line := lines.readline(MAX_LINE_BYTES + 1):
            if end is not None:
                self.refuse("something follows its end")
            if len(line) > MAX_LINE_BYTES:
                self.refuse(f"a line is longer than {MAX_LINE_BYTES:,} bytes")
            if not line.endswith(b"\n"):
                self.refuse("it is cut off")
            if place + len(line) > most:
                self.refuse(f"unpacked it is larger than {most:,} bytes, which no task of its size is")
            if not count:
                self._header(line)
            elif line.startswith(b'{"end":'):
                end = self._inner(line, End)
                if end != End(count, total.hexdigest()):
                    self.refuse("its checksum is wrong, so it was changed or damaged")
            else:
                self._take(line, Span(place, place + len(line)))
            self.plain.write(line)
            total.update(line)
            count, place = count + 1, place + len(line)
        if end is None:
            self.refuse("it is cut off" if count else "it is empty")
        self._end_blob()
        self.plain.flush()

    def _header(self, line: bytes) -> None:
        try:
            header = decode_json(line, type=Header)
        except ValueError:
            sentence = f"{self.path} is not a portable task."
            raise UsageError(sentence, hint="An export of a task makes one.") from None
        if header.version != VERSION:
            sentence = f"{self.path} has version {header.version} of the portable format; this version knows {VERSION}."
            raise SchemaMismatch(sentence, hint="Use the version of Orihon that wrote it.")
        self.uuid = checked(header.uuid)

    def _take(self, line: bytes, span: Span) -> None:
        found = _NAME.match(line)
        name = found[1].decode() if found else ""
        if name == "blob":
            self._take_blob(line, span)
            return
        if name in _KINDS:
            if name in self.lists and name != self._list:
                self.refuse(f"its {name} stand in two places")
            record = self._inner(line, _KINDS[name])
            if isinstance(record, Event) and (reason := problem(record)):
                self.refuse(reason)
            self.lists[name] = Span(self.lists.get(name, span).start, span.end)
        elif name == "metadata" and self._metadata is None:
            self._metadata = self._inner(line, Metadata)
        elif name == "row" and self._row is None:
            self._row = self._inner(line, TaskRow)
        else:
            self.refuse(f"line {line[:40]!a} means nothing")
        self._list = name

    def _take_blob(self, line: bytes, span: Span) -> None:
        piece = self._inner(line, Piece)
        if piece.sha256 != self._blob:
            self._end_blob()
            if not _SHA256.fullmatch(piece.sha256) or piece.sha256 in self.blobs:
                self.refuse(f"blob {piece.sha256[:80]!a} has no proper name or is there twice")
            self._blob, self._blob_hash = piece.sha256, hashlib.sha256()
        self._blob_hash.update(self._bytes(piece))
        self.blobs[piece.sha256] = Span(self.blobs.get(piece.sha256, span).start, span.end)

    def _end_blob(self) -> None:
        if self._blob and self._blob_hash.hexdigest() != self._blob:
            self.refuse(f"blob {self._blob} does not hold what its name says")

    def _bytes(self, piece: Piece) -> bytes:
        try:
            return bytes_of(piece)
        except binascii.Error as error:
            self.refuse(f"blob {piece.sha256} is not base64", error)

    def _inner(self, line: bytes, kind: type[Any]) -> Any:
        """What stands in a line under its name, read strictly."""
        inner = line[line.index(b":") + 1 : -2]
        try:
            if not line.endswith(b"}\n"):
                raise Corrupt("the line does not end as it should")  # noqa: TRY301
            return codec.decode_line(inner, kind) if issubclass(kind, Record) else decode_json(inner, type=kind)
        except (Corrupt, ValueError) as error:
            self.refuse(f"line {line[:40]!a} cannot be read ({error})", error)


def inner(line: bytes, name: str) -> bytes | None:
    """The line of a list inside a line of the file; None when it belongs to another."""
    head = b'{"%s":' % name.encode()
    return line[len(head) : -2] + b"\n" if line.startswith(head) else None


def bytes_of(piece: Piece) -> bytes:
    """What a piece of a blob holds."""
    return base64.b64decode(piece.data, validate=True)
