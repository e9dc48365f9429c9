"""One generation of a backup: a directory with a portable file for each task, and a manifest that says what they are.

    BACKUPS/2024-01-15/manifest.jsonl      {"orihon":"backup","version":1,"made_at":…,"store":…}
                                           {"uuid":…,"created_at":…,"fence":…,"sha256":…,"size_bytes":…}   one per task
                                           {"tasks":321,"sha256":…}                        of all bytes before it
    BACKUPS/2024-01-15/tasks/{uuid}.orihon

Tasks stand in the manifest the newest first, as stores give them, so that two manifests, or a manifest and a store, can
be compared without keeping either in memory. Whoever reads one takes nothing on trust: a name is an id and leads
nowhere, a file is a regular file, and its bytes are those that the manifest names.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NoReturn, Self, TypeVar

import msgspec

from orihon.coerce import decode_json
from orihon.errors import Corrupt, NotFound, SchemaMismatch, UsageError
from orihon.records import Status
from orihon.stores.checks import checked
from orihon.stores.files import directory_handle, disk_errors, open_file, sync, write_all

VERSION = 1
MANIFEST, TASKS = "manifest.jsonl", "tasks"
LINE_BYTES = 4096  # no line of a manifest is longer
BLOCK_BYTES = 1024 * 1024
HINT = "Use another generation; `ls` shows them."

T = TypeVar("T")

_DAY = re.compile(r"\d{4}-\d\d-\d\d")


class Header(msgspec.Struct, frozen=True):
    """The first line."""

    orihon: str
    version: int
    made_at: str
    store: str


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One task: what tells that it has changed since, and what its file must be."""

    uuid: str
    created_at: str
    status: Status
    user: str | None
    updated_at: str | None
    fence: int
    stub: bool
    records: int
    blobs: int
    size_bytes: int  # of the file
    sha256: str

    @property
    def place(self) -> tuple[str, str]:
        """Where it stands; the largest come first."""
        return self.created_at, self.uuid


class End(msgspec.Struct, frozen=True):
    """The last line."""

    tasks: int
    sha256: str


def file_of(generation: Path, uuid: str) -> Path:
    """The file of a task."""
    return generation / TASKS / f"{checked(uuid)}.orihon"


def generations(directory: Path) -> list[Path]:
    """All generations, the newest first."""
    with disk_errors(f"{directory} cannot be read"), suppress(FileNotFoundError):
        names = (entry.name for entry in os.scandir(directory) if entry.is_dir(follow_symlinks=False))
        return [directory / name for name in sorted(filter(_DAY.fullmatch, names), reverse=True)]
    return []


def chosen(directory: Path, day: str | None) -> Path:
    """The newest generation, or that of a day."""
    found = generations(directory)
    if day is None and found:
        return found[0]
    for one in found:
        if one.name == day:
            return one
    there = ", ".join(one.name for one in found[:10])
    raise NotFound(kind="backup", id=day or str(directory), hint=f"There are {there}." if there else "Make one first.")


class Writing:
    """A manifest on its way to the disk."""

    def __init__(self, generation: Path, made_at: str, store: str) -> None:
        with directory_handle(generation) as within:
            self._fd = open_file(MANIFEST, os.O_WRONLY | os.O_CREAT | os.O_EXCL, within)
        self._hash, self.count = hashlib.sha256(), 0
        self._write(Header("backup", VERSION, made_at, store))

    def add(self, entry: Entry) -> None:
        """One more task."""
        self._write(entry)
        self.count += 1

    def end(self) -> None:
        """The last line; the manifest is on the disk when this returns."""
        self._write(End(self.count, self._hash.hexdigest()))
        sync(self._fd)

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self, line: msgspec.Struct) -> None:
        data = msgspec.json.encode(line) + b"\n"
        self._hash.update(data)
        write_all(self._fd, data)


def is_whole(generation: Path) -> bool:
    """Whether a manifest can be read to its end."""
    try:
        for _ in entries(generation):
            pass
    except (Corrupt, UsageError, SchemaMismatch):
        return False
    return True


def entries(generation: Path) -> Iterator[Entry]:
    """The tasks of a generation; Corrupt as soon as something is wrong, at the latest at its end."""
    where = generation / MANIFEST
    with disk_errors(f"{where} cannot be read"), directory_handle(generation) as within:
        try:
            fd = open_file(MANIFEST, os.O_RDONLY, within)
        except FileNotFoundError:
            raise Corrupt(f"{generation} has no manifest.", where=str(where), hint=HINT) from None
        with os.fdopen(fd, "rb") as file:
            yield from _Reading(where).entries(iter(lambda: file.readline(LINE_BYTES + 1), b""))


class _Reading:
    def __init__(self, where: Path) -> None:
        self.where = where

    def entries(self, lines: Iterator[bytes]) -> Iterator[Entry]:
        hashed, count, before = hashlib.sha256(), 0, ("\U0010ffff", "")
        first = next(lines, b"")
        self._check(self._decoded(first, Header))
        hashed.update(first)
        for line in lines:
            if line.startswith(b'{"tasks":'):
                if self._decoded(line, End) != End(count, hashed.hexdigest()) or next(lines, b""):
                    self._refuse("its checksum is wrong")
                return
            entry = self._decoded(line, Entry)
            checked(entry.uuid)
            if entry.place >= before:
                self._refuse(f"task {entry.uuid} stands in the wrong place, or twice")
            before, count = entry.place, count + 1
            hashed.update(line)
            yield entry
        self._refuse("it is cut off")

    def _check(self, header: Header) -> None:
        if header.orihon != "backup":
            self._refuse("it is not one of a backup")
        if header.version != VERSION:
            raise SchemaMismatch(f"{self.where} has version {header.version}; this version of Orihon knows {VERSION}.")

    def _decoded(self, line: bytes, kind: type[T]) -> T:
        try:
            if len(line) > LINE_BYTES or not line.endswith(b"\n"):
                raise msgspec.DecodeError("a line that does not end")
            return decode_json(line, type=kind)
        except ValueError as error:
            self._refuse(f"{line[:40]!a} cannot be read ({error})")

    def _refuse(self, reason: str) -> NoReturn:
        raise Corrupt(f"{self.where} cannot be used: {reason}.", where=str(self.where), hint=HINT)


def checksum(file: Path) -> tuple[int, str]:
    """Size and sha256 of a regular file; a link, a device or a directory is refused."""
    with disk_errors(f"{file} cannot be read"), directory_handle(file.parent) as within:
        fd = open_file(file.name, os.O_RDONLY, within)
        try:
            hashed, size = hashlib.sha256(), 0
            while block := os.read(fd, BLOCK_BYTES):
                hashed.update(block)
                size += len(block)
            return size, hashed.hexdigest()
        finally:
            os.close(fd)
