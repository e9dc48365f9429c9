"""One task in one portable file: `write_task_file(store, row, path)` and `open_task_file(path)`.

    {"orihon":"task","version":1,"uuid":"550e8400-…"}
    {"metadata":{…}}
    {"messages":{"seq":1,"role":"user",…}}              the lines of each list, as the store has them
    {"blob":{"sha256":"9f86d0…","data":"base64"}}       a large blob in several consecutive pieces
    {"row":{…}}
    {"end":{"lines":321,"sha256":"…"}}                  of all bytes before this line

The lines are compressed with gzip, so that `zcat FILE | jq` shows them. `TaskFile` is a store of one task, which
`TaskCopy` fills, compares and copies like any other store. A file can come from anywhere: it is unpacked to an unnamed
temporary file and checked to its last byte before any of it is used. The format contains no paths.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import hashlib
import os
import re
import tempfile
import zlib
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple, NoReturn, TypeVar

import msgspec

from orihon import codec
from orihon.agent import queue
from orihon.coerce import decode_json
from orihon.context.events import problem
from orihon.errors import Conflict, Corrupt, NotFound, OrihonError, SchemaMismatch, UsageError
from orihon.ops.copy import CopiedTask, TaskCopy, reporting_to
from orihon.ops.progress import OnProgress, ProgressCounter
from orihon.records import Blob, Event, Metadata, PlanEntry, Record, Status, TaskRow
from orihon.stores.base import FORMAT, LISTS, Lease, Options, Problem, Query, Store
from orihon.stores.files import disk_errors, open_file, sync, sync_directory
from orihon.stores.lookup import row_if_there
from orihon.stores.validation import validate_new_task, validate_task_id

VERSION = 1
MAGIC = b"\x1f\x8b"
PIECE_BYTES = 1024 * 1024
MAX_LINE_BYTES = codec.MAX_LINE_BYTES + 64  # the name of the list surrounds the line
BOMB_BYTES, BOMB_RATIO = 256 * 1024 * 1024, 200  # no log compresses that well
HINT = "Nothing was imported. Export the task again, or get the file again."

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
    """The last line."""

    lines: int
    sha256: str


class Piece(msgspec.Struct, frozen=True):
    """A blob, or a part of it."""

    sha256: str
    data: str


class Span(NamedTuple):
    """A range of bytes in the unpacked file."""

    start: int
    end: int


def write_task_file(
    store: Store, row: TaskRow, path: Path, *, durable: bool = True, on_progress: OnProgress = None
) -> CopiedTask:
    """Write a task to a file, compare the file with the store, then give it its name. An existing file is replaced.

    An event that cannot be read or used is left out with a note; any other loss raises Corrupt. With `durable=False`,
    the caller syncs the file later.
    """
    problems: list[Problem] = []
    options = store.options if durable else msgspec.structs.replace(store.options, durability="os")
    temporary = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        with (
            disk_errors(f"{path} cannot be written"),
            reporting_to(store, problems.append),
            TaskFile(temporary, options) as target,
        ):
            task_copy = TaskCopy(
                store, target, row, ProgressCounter(on_progress), damaged={row.uuid}, skip_unusable=True
            )
            copied = task_copy.run()
            for loss in problems:
                if loss.list != LISTS[Event][0]:
                    raise Corrupt(f"Task {row.uuid} cannot be exported completely: {loss}.")
            copied.notes = [*task_copy.notes, *dict.fromkeys(f"It is left out: {loss}." for loss in problems)]
            temporary.replace(path)
            if durable:
                sync_directory(path.parent)
    finally:
        temporary.unlink(missing_ok=True)
    return copied


def open_task_file(path: Path, options: Options | None = None) -> TaskFile:
    """Open a task file for reading. Raise Corrupt at once if anything is wrong with it."""
    task_file = TaskFile(path, options)
    try:
        task_file.load()
    except BaseException:
        task_file.close()
        raise
    return task_file


class TaskFile(Store):
    """A store that is one file with one task: written once, then read only."""

    leases_expire = False

    def __init__(self, path: Path, options: Options | None = None) -> None:
        super().__init__(str(path), msgspec.structs.replace(options or Options(), report=_refuse_problem))
        self.path = path
        self._writer: TaskFileLease | None = None
        self._plain: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - `close` closes it
        self._content: _Content | None = None

    def load(self) -> None:
        """Unpack and check the file."""
        with disk_errors(f"{self.path} cannot be read"):
            self._content = _Content(self.path, self._plain)

    @property
    def content(self) -> _Content:
        """The content of a file that was loaded."""
        if self._content is None:
            raise NotFound(kind="task", id=self.url)
        return self._content

    def rename(self, **changes: Any) -> None:
        """Present the task with another `uuid` or `user`."""
        content = self.content
        validate_task_id(changes.get("uuid", content.row.uuid))
        content.metadata = msgspec.structs.replace(content.metadata, **changes)
        content.row = msgspec.structs.replace(content.row, **changes)

    def copy_to(self, target: Store, *, on_progress: OnProgress = None) -> CopiedTask:
        """Copy the task to a store and compare. A task that is new there arrives completely or not at all.

        A running or queued task arrives paused, and no worker resumes it. Of a task that exists, new records are added.
        """
        row = self.content.row
        if row.status in {"running", "pending"} or (row.status == "paused" and queue.is_resumed_by_workers(row.reason)):
            row = msgspec.structs.replace(row, status="paused", activity="", reason=None)
        is_new = row_if_there(target, row.uuid) is None
        try:
            return TaskCopy(self, target, row, ProgressCounter(on_progress)).run()
        except OrihonError:
            if is_new:
                with suppress(NotFound):
                    target.delete(row.uuid)
            raise

    # reading

    def find(self, query: Query | None = None) -> Iterator[TaskRow]:
        del query  # there is only one row
        if self._content is not None:
            yield self._content.row
        elif self._writer is not None:
            yield self._writer.row

    def read(self, uuid: str, kind: type[R], *, first: int = 1, last: int | None = None) -> Iterator[R]:
        for record in super().read(uuid, kind, first=first, last=last):
            if isinstance(record, PlanEntry) and record.task_uuid == self.content.uuid != uuid:
                yield msgspec.structs.replace(record, task_uuid=uuid)
            else:
                yield record

    def lines(self, uuid: str, name: str, first: int, last: int | None) -> Iterator[tuple[int, bytes]]:
        del uuid, last
        if self._content is None and self._writer is not None:
            return  # nothing can be read before everything is written
        if name == "metadata":
            yield 1, codec.encode_line(self.content.metadata)
        elif name in self.content.lists:
            lines = self._lines_in(self.content.lists[name], name)
            yield from lines if first >= 0 else deque(lines, maxlen=-first)

    def blob(self, uuid: str, sha256: str) -> bytes:
        del uuid
        if self._content is None or sha256 not in self._content.blobs:
            raise NotFound(kind="blob", id=sha256)
        pieces = self._lines_in(self._content.blobs[sha256], "blob")
        return b"".join(_decode_piece(decode_json(line, type=Piece)) for _, line in pieces)

    def _lines_in(self, span: Span, name: str) -> Iterator[tuple[int, bytes]]:
        """Yield the lines of one list inside a span, with their offsets."""
        offset, prefix = span.start, b'{"%s":' % name.encode()
        while offset < span.end:
            self._plain.seek(offset)  # each time, because a blob may be read between two lines
            line = self._plain.readline()
            if line.startswith(prefix):
                yield offset, line[len(prefix) : -2] + b"\n"
            offset += len(line)

    # writing

    def lease(self, uuid: str, *, create: Metadata | None = None, status: Status = "running") -> Lease:
        if create is None or self._writer is not None or self._content is not None:
            raise Conflict(f"{self.path} is written only once.", hint="Export the task to another file.")
        create = validate_new_task(uuid, create, self.sanitiser)
        self._writer = TaskFileLease(self, create, TaskRow.new(create, status))
        return self._writer

    def delete(self, uuid: str, *, fence: int | None = None, stub: bool = False) -> None:
        del fence, stub
        raise UsageError(f"Task {uuid} is a file of its own.", hint=f"Remove {self.path}.")

    def close(self) -> None:
        if self._writer is not None:
            self._writer.file.close()
        self._plain.close()


class TaskFileLease(Lease):
    """Writes the file. Closing the lease completes the file and loads it for reading."""

    store: TaskFile

    def __init__(self, store: TaskFile, metadata: Metadata, row: TaskRow) -> None:
        super().__init__(store, metadata, fence=0)
        self.row = row
        self.file = os.fdopen(open_file(store.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb")
        self._gzip = gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=self.file, mtime=0)
        self._hash, self._line_count = hashlib.sha256(), 0
        self._write_bytes(msgspec.json.encode(Header("task", VERSION, metadata.uuid)))
        self._write_line("metadata", codec.encode(metadata))

    def last(self, kind: type[Record]) -> int:
        del kind
        return 0  # a copy brings its own numbers

    def write(self, name: str, number: int, line: bytes, record: Record) -> None:
        del number, record
        self._write_line(name, line)

    def put(self, data: bytes) -> Blob:
        blob = Blob(sha256=hashlib.sha256(data).hexdigest(), size_bytes=len(data))
        for start in range(0, len(data) or 1, PIECE_BYTES):
            piece = Piece(blob.sha256, base64.b64encode(data[start : start + PIECE_BYTES]).decode())
            self._write_line("blob", msgspec.json.encode(piece))
        return blob

    def change(self, changes: dict[str, Any], add: dict[str, int]) -> TaskRow:
        added = {name: getattr(self.row, name) + number for name, number in add.items()}
        self.row = msgspec.structs.replace(self.row, **changes, **added)
        return self.row

    def sync(self) -> None:
        """Do nothing: the file is synced when it is complete."""

    def close(self) -> None:
        self._write_line("row", codec.encode(self.row))
        self._write_line("end", msgspec.json.encode(End(self._line_count, self._hash.hexdigest())))
        self._gzip.close()
        self.file.flush()
        if self.store.options.durability != "os":
            sync(self.file.fileno())
        self.file.close()
        self.store.load()

    def _write_line(self, name: str, line: bytes) -> None:
        self._write_bytes(b'{"%s":%s}' % (name.encode(), line.rstrip(b"\n")))

    def _write_bytes(self, line: bytes) -> None:
        self._gzip.write(line + b"\n")
        self._hash.update(line + b"\n")
        self._line_count += 1


class _Content:
    """The content of a task file, unpacked to `plain` and checked to the last byte."""

    def __init__(self, path: Path, plain: IO[bytes]) -> None:
        self.path, self.uuid = path, ""
        self.lists: dict[str, Span] = {}
        self.blobs: dict[str, Span] = {}
        self.metadata: Metadata  # set by the lines of the file
        self.row: TaskRow
        self._last_name = self._last_blob = ""  # of the line before
        self._blob_hash = hashlib.sha256()
        with path.open("rb") as packed, self._refuse_damage(), gzip.open(packed) as lines:
            limit = max(BOMB_BYTES, BOMB_RATIO * os.fstat(packed.fileno()).st_size)
            self._unpack(lines, plain, limit)
        if not hasattr(self, "metadata") or not hasattr(self, "row"):
            self._refuse("its metadata or its row is missing")
        if not (self.uuid == self.metadata.uuid == self.row.uuid) or str(self.metadata.task_key) != self.row.task_key:
            self._refuse("its parts belong to different tasks")
        if self.metadata.format > FORMAT:
            raise SchemaMismatch(f"The task in {path} has format {self.metadata.format}; this version knows {FORMAT}.")

    def _refuse(self, reason: str, cause: BaseException | None = None) -> NoReturn:
        raise Corrupt(f"{self.path} cannot be imported: {reason}.", where=str(self.path), hint=HINT) from cause

    @contextmanager
    def _refuse_damage(self) -> Iterator[None]:
        try:
            yield
        except EOFError as error:
            self._refuse("it is truncated", error)
        except (gzip.BadGzipFile, zlib.error) as error:
            self._refuse(f"it cannot be decompressed ({error})", error)

    def _unpack(self, lines: gzip.GzipFile, plain: IO[bytes], limit: int) -> None:
        total, count, offset = hashlib.sha256(), 0, 0
        end: End | None = None
        while line := lines.readline(MAX_LINE_BYTES + 1):
            if end is not None:
                self._refuse("something follows its end")
            if len(line) > MAX_LINE_BYTES:
                self._refuse(f"a line is longer than {MAX_LINE_BYTES:,} bytes")
            if not line.endswith(b"\n"):
                self._refuse("it is truncated")
            if offset + len(line) > limit:
                self._refuse(f"decompressed it is larger than {limit:,} bytes, more than a task of its size can be")
            if not count:
                self._read_header(line)
            elif line.startswith(b'{"end":'):
                end = self._decode(line, End)
                if end != End(count, total.hexdigest()):
                    self._refuse("its checksum is wrong; it was changed or damaged")
            else:
                self._read_line(line, Span(offset, offset + len(line)))
            plain.write(line)
            total.update(line)
            count, offset = count + 1, offset + len(line)
        if end is None:
            self._refuse("it is truncated" if count else "it is empty")
        self._check_last_blob()
        plain.flush()

    def _read_header(self, line: bytes) -> None:
        try:
            header = decode_json(line, type=Header)
        except ValueError:
            raise UsageError(
                f"{self.path} is not a portable task.", hint="`orihon export` writes portable tasks."
            ) from None
        if header.version != VERSION:
            raise SchemaMismatch(
                f"{self.path} has version {header.version} of the portable format; this version knows {VERSION}.",
                hint="Use the version of Orihon that wrote it.",
            )
        self.uuid = validate_task_id(header.uuid)

    def _read_line(self, line: bytes, span: Span) -> None:
        match = _NAME.match(line)
        name = match[1].decode() if match else ""
        if name == "blob":
            self._read_piece(line, span)
            return
        if name in _KINDS:
            if name in self.lists and name != self._last_name:
                self._refuse(f"its {name} are in two places")
            record = self._decode(line, _KINDS[name])
            if isinstance(record, Event) and (reason := problem(record)):
                self._refuse(reason)
            self.lists[name] = Span(self.lists.get(name, span).start, span.end)
        elif name == "metadata" and not hasattr(self, name):
            self.metadata = self._decode(line, Metadata)
        elif name == "row" and not hasattr(self, name):
            self.row = self._decode(line, TaskRow)
        else:
            self._refuse(f"line {line[:40]!a} is not part of the format")
        self._last_name = name

    def _read_piece(self, line: bytes, span: Span) -> None:
        piece = self._decode(line, Piece)
        if piece.sha256 != self._last_blob:
            self._check_last_blob()
            if not _SHA256.fullmatch(piece.sha256) or piece.sha256 in self.blobs:
                self._refuse(f"blob {piece.sha256[:80]!a} has an invalid name or appears twice")
            self._last_blob, self._blob_hash = piece.sha256, hashlib.sha256()
        try:
            self._blob_hash.update(_decode_piece(piece))
        except binascii.Error as error:
            self._refuse(f"blob {piece.sha256} is not base64", error)
        self.blobs[piece.sha256] = Span(self.blobs.get(piece.sha256, span).start, span.end)

    def _check_last_blob(self) -> None:
        if self._last_blob and self._blob_hash.hexdigest() != self._last_blob:
            self._refuse(f"the content of blob {self._last_blob} does not match its name")

    def _decode(self, line: bytes, kind: type[Any]) -> Any:
        """Decode the value inside a line strictly."""
        value = line[line.index(b":") + 1 : -2]
        try:
            if not line.endswith(b"}\n"):
                raise Corrupt("the line is not closed")  # noqa: TRY301
            return codec.decode_line(value, kind) if issubclass(kind, Record) else decode_json(value, type=kind)
        except (Corrupt, ValueError) as error:
            self._refuse(f"line {line[:40]!a} cannot be read ({error})", error)


def _decode_piece(piece: Piece) -> bytes:
    return base64.b64decode(piece.data, validate=True)


def _refuse_problem(problem: Problem) -> NoReturn:
    raise Corrupt(f"The task cannot be imported: {problem}.", hint=HINT)
