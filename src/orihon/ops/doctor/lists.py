"""Every line of every list, the index beside the log, and the blobs that lines name; each file is read once."""

from __future__ import annotations

import hashlib
import os
import stat
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress

from orihon import codec
from orihon.context.events import problem as problem_of
from orihon.errors import Corrupt
from orihon.ops.blobs import iter_blobs
from orihon.ops.doctor.finding import Finding, not_too_many, note, problem
from orihon.ops.doctor.quiet import open_quietly, reason_of
from orihon.ops.progress import ProgressCounter
from orihon.records import Event, Message, Record
from orihon.stores.base import LISTS
from orihon.stores.files import exists
from orihon.stores.jsonl.line_reader import Line, PlainSource, Source, lines_from, open_gzip, whole_size
from orihon.stores.jsonl.message_index import CHANGED, WIDTH, Entry, MessageIndex
from orihon.stores.jsonl.store import file_of

LOST = "That record is lost; its bytes are left as they are, and what stands before and after it is still read."
BLOCK_BYTES = 1024 * 1024
UNUSED = "Readers go on without it, and an export leaves it out; it stays where it is."
TELL_EVERY = 1000  # lines


class ListLook:
    """The lists of one task, of which somebody may be writing the end."""

    def __init__(self, uuid: str, directory: int, where: str, progress: ProgressCounter, *, held: bool) -> None:
        self.uuid, self.directory, self.where, self.progress, self.held = uuid, directory, where, progress, held

    def all(self) -> Iterator[Finding]:
        """What is wrong with any of them."""
        for kind, (name, field) in LISTS.items():
            if not field:
                continue
            where = f"{self.where}/{file_of(name, self.uuid)}"
            try:
                with self._source(name) as source:
                    if source is not None:
                        yield from not_too_many(where, self._list(source, kind, where))
            except (OSError, Corrupt) as error:
                yield problem(
                    where, f"It cannot be read: {reason_of(error)} What it holds is out of reach; it is left as it is."
                )
        yield from not_too_many(f"{self.where}/blobs", self._blobs())

    @contextmanager
    def _source(self, name: str) -> Iterator[Source | None]:
        folder, _, file = file_of(name, self.uuid).rpartition("/")
        with ExitStack() as stack:
            within = self.directory
            if folder:
                if not exists(folder, within):
                    yield None
                    return
                within = stack.enter_context(open_quietly(folder, within, directory=True))
            if exists(file, within):
                yield PlainSource(stack.enter_context(open_quietly(file, within)))
            elif exists(f"{file}.gz", within):
                packed = open_gzip(os.dup(stack.enter_context(open_quietly(f"{file}.gz", within))))
                stack.callback(packed.close)
                yield packed
            else:
                yield None

    def _list(self, source: Source, kind: type[Record], where: str) -> Iterator[Finding]:
        with ExitStack() as stack:
            index = None
            if kind is Message:
                fd = stack.enter_context(open_quietly("messages.idx", self.directory)) if self._has_index() else None
                index = _IndexLook(fd)
            size = source.size
            yield from self._lines(source, kind, where, index, size)
            if not self.held:
                torn = size - whole_size(source)
                if torn:
                    yield problem(where, f"Its last {torn:,} bytes are a line that a crash has torn.", fixable=True)
                if index is not None:
                    yield from index.findings(f"{self.where}/messages.idx")

    def _has_index(self) -> bool:
        return exists("messages.idx", self.directory)

    def _lines(
        self, source: Source, kind: type[Record], where: str, index: _IndexLook | None, size: int
    ) -> Iterator[Finding]:
        _, field = LISTS[kind]
        newest = told = number = 0
        for number, line in enumerate(lines_from(source, 0, size), 1):
            record, reason = _decoded(line, kind)
            if record is None:
                yield problem(where, f"Line {number} cannot be read: {reason} {LOST}")
            elif getattr(record, field) <= newest:
                reason = f"Line {number} repeats number {getattr(record, field)}, after {newest}."
                yield problem(where, f"{reason} Readers leave it out; it stays in the file.")
                record = None
            else:
                newest = getattr(record, field)
                if reason := flaw_of(record):
                    yield problem(where, f"Line {number}: {reason}. {UNUSED}")
                yield from self._named(record, line, number, where)
            if index is not None and index.differs(line, record):
                yield problem(where, f"Line {number}: {CHANGED}. It can be read, but do not trust it.")
            if number % TELL_EVERY == 0:
                self.progress.add(records=TELL_EVERY, size_bytes=line.offset - told)
                told = line.offset
        self.progress.add(records=number % TELL_EVERY, size_bytes=size - told)

    def _named(self, record: Record, line: Line, number: int, where: str) -> Iterator[Finding]:
        if b'"sha256":' not in (line.data or b""):
            return
        for blob in iter_blobs(record):
            if not self._has_blob(blob.sha256):
                yield problem(
                    where,
                    f"Line {number} names blob {blob.sha256}, which is not there: {blob.size_bytes:,} bytes are lost. "
                    "What the line itself says is still there.",
                )

    def _has_blob(self, sha256: str) -> bool:
        for name in (sha256, f"{sha256}.gz"):
            with suppress(OSError, ValueError):
                if stat.S_ISREG(os.stat(f"blobs/{name}", dir_fd=self.directory, follow_symlinks=False).st_mode):
                    return True
        return False

    def _blobs(self) -> Iterator[Finding]:
        try:
            with open_quietly("blobs", self.directory, directory=True) as folder, os.scandir(folder) as entries:
                for entry in entries:
                    if entry.is_file(follow_symlinks=False) and not entry.name.startswith("."):
                        yield from self._blob(entry.name, folder)
        except OSError:
            return  # there are none, or it is a link, which its entry says

    def _blob(self, name: str, folder: int) -> Iterator[Finding]:
        where = f"{self.where}/blobs/{name}"
        digest = hashlib.sha256()
        try:
            with open_quietly(name, folder) as fd, closing(_opened(name, os.dup(fd))) as source:
                for place in range(0, source.size, BLOCK_BYTES):
                    block = source.read_at(place, BLOCK_BYTES)
                    digest.update(block)
                    self.progress.add(size_bytes=len(block))
        except (OSError, Corrupt) as error:
            yield problem(where, f"It cannot be read: {reason_of(error)}")
            return
        if digest.hexdigest() != name.removesuffix(".gz"):
            yield problem(
                where,
                "Its bytes are not those that were stored (their sha256 differs); whoever asks for it hears so. "
                "What the line that names it says itself is still there.",
            )


def flaw_of(record: Record) -> str:
    """What is wrong with a record that can be read, but not used."""
    return problem_of(record) if isinstance(record, Event) else ""


def _opened(name: str, fd: int) -> Source:
    return open_gzip(fd) if name.endswith(".gz") else PlainSource(fd)


def _decoded(line: Line, kind: type[Record]) -> tuple[Record | None, str]:
    if line.data is None:
        return None, f"it has {line.length:,} bytes, more than {codec.MAX_LINE_BYTES:,}."
    try:
        return codec.decode_line(line.data, kind), ""
    except Corrupt as error:
        return None, error.message.removeprefix("The line cannot be read: ")


class _IndexLook:
    """`messages.idx`, read beside the log."""

    def __init__(self, fd: int | None) -> None:
        self.fd = fd
        size = 0 if fd is None else os.fstat(fd).st_size
        index = None if fd is None else MessageIndex(fd)
        self._entries = iter(()) if index is None else index.entries()
        self._next: Entry | None = next(self._entries, None)
        self._tokens = 0
        self.wrong = index is not None and size != (index.count + 1) * WIDTH and size > 0
        self.missing = 0

    def differs(self, line: Line, record: Record | None) -> bool:
        """Whether the line is another one than when it was written; the index itself is judged at the end."""
        while self._next is not None and self._next.offset < line.offset:
            self.wrong = True
            self._step()
        entry = self._next
        if entry is None or entry.offset > line.offset:
            self.missing += record is not None
            self.wrong = self.wrong or (record is not None and entry is not None)
            return False
        before = self._tokens
        self._step()
        if not isinstance(record, Message):
            return False  # an entry of better days; the line is reported already
        if entry.length != line.length:
            self.wrong = True
            return False
        if zlib.crc32(line.data or b"") != entry.checksum:
            return True
        self.wrong = self.wrong or (entry.seq, entry.tokens - before) != (record.seq, record.tokens)
        return False

    def _step(self) -> None:
        self._tokens = self._next.tokens if self._next is not None else 0
        self._next = next(self._entries, None)

    def findings(self, where: str) -> Iterator[Finding]:
        """What is wrong with the index, which can always be built anew."""
        if self.fd is None and self.missing:
            yield note(where, "It is missing; it is built when the task is opened next.", fixable=True)
        elif self.wrong or self._next is not None:
            yield problem(where, "It does not describe messages.jsonl as it is.", fixable=True)
        elif self.missing:
            yield note(where, f"It lacks the newest {self.missing:,} messages, as after a crash.", fixable=True)
