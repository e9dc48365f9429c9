"""Backups of ended tasks, one generation a day, and their restore.

    BACKUPS/2024-01-15/manifest.jsonl      {"orihon":"backup","version":1,"made_at":…,"store":…}
                                           {"uuid":…,"created_at":…,"fence":…,"sha256":…,"size_bytes":…}   one per task
                                           {"tasks":321,"sha256":…}                   of all bytes before this line
    BACKUPS/2024-01-15/tasks/{uuid}.orihon

A task that has not changed since the last generation is a hard link to the same file, whose checksum is compared. A new
or changed task is written as a task file, restored from it into a temporary store, and compared with the original
record by record. A generation appears in one step when it is complete. It replaces an earlier one of the same day;
generations beyond the newest seven are removed.

Restoring never overwrites: a task that exists and differs is a failure that changes nothing, a stub gets its records
back. A backup can come from anywhere: names are checked before they are used as paths, links and devices are refused,
and the manifest and each file must match their checksums. Manifests list the newest task first, like stores, so that
two of them can be compared in bounded memory.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from heapq import merge
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import msgspec

from orihon.codec import format_time
from orihon.coerce import decode_json
from orihon.errors import Conflict, Corrupt, LeaseHeld, NotFound, SchemaMismatch, StoreError, UsageError
from orihon.ops.access import AuthorizedStore
from orihon.ops.copy import TaskCopy, compare_rows
from orihon.ops.progress import OnProgress, ProgressCounter, add_sentence, collect_failure
from orihon.ops.task_file import open_task_file, write_task_file
from orihon.records import Status, TaskRow
from orihon.stores.base import Query, Store
from orihon.stores.files import (
    PRIVATE_DIRECTORY,
    create_file,
    directory_handle,
    disk_errors,
    make_directory,
    open_file,
    sync,
    sync_directory,
    warn_if_open,
    write_all,
)
from orihon.stores.jsonl.lock_file import LockFile
from orihon.stores.jsonl.store import JsonlStore
from orihon.stores.lookup import choose_by_id
from orihon.stores.validation import validate_task_id
from orihon.task.lifecycle import ENDED

VERSION = 1
MANIFEST, TASKS = "manifest.jsonl", "tasks"
NEW, OLD, CHECK = ".new-", ".old-", ".check-"  # prefixes of directories in progress
MAX_LINE_BYTES = 4096  # of a manifest
BLOCK_BYTES = 1024 * 1024
HINT = "Use another generation; `ls` shows them."

T = TypeVar("T")

_DAY = re.compile(r"\d{4}-\d\d-\d\d")


class Header(msgspec.Struct, frozen=True):
    """The first line of a manifest."""

    orihon: str
    version: int
    made_at: str
    store: str


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One task of a manifest. `fence`, `updated_at` and `stub` show whether the task has changed since."""

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


class End(msgspec.Struct, frozen=True):
    """The last line of a manifest."""

    tasks: int
    sha256: str


class BackedUp(msgspec.Struct, kw_only=True):
    """The result of a backup."""

    store: str
    generation: str
    tasks: int = 0  # in the generation
    written: int = 0  # new or changed; restored and compared
    unchanged: int = 0  # linked to the previous file; its checksum was compared
    carried: int = 0  # taken from the previous generation, because they failed or were not requested
    records: int = 0  # of the written tasks, compared one by one
    size_bytes: int = 0  # of all files
    written_bytes: int = 0
    removed: list[str] = []  # generations
    notes: list[str] = []  # what was left out of a file because no reader could use it
    failures: list[str] = []
    seconds: float = 0


class Restored(msgspec.Struct, kw_only=True):
    """The result of a restore."""

    generation: str
    store: str
    restored: int = 0  # and compared record by record
    equal: int = 0  # already in the store
    records: int = 0
    blobs: int = 0
    failures: list[str] = []
    seconds: float = 0


# making a backup


def backup(
    authorized: AuthorizedStore,
    directory: Path,
    *,
    keep: int = 7,
    tasks: Sequence[str] = (),
    now: datetime | None = None,
    on_progress: OnProgress = None,
) -> BackedUp:
    """Make today's generation of the ended tasks that the caller may see.

    If `tasks` are given, only these are backed up; the others are taken from the previous generation.
    """
    now = now or datetime.now(UTC)
    generation = directory / now.strftime("%Y-%m-%d")
    result = BackedUp(store=authorized.store.url, generation=str(generation))
    rows = _select_rows(authorized, tasks)
    progress = ProgressCounter(on_progress, total=len(set(tasks)) or authorized.count(Query(status=ENDED)))
    with disk_errors(f"A backup to {directory} cannot be made"):
        make_directory(directory)
        warn_if_open(directory)
        with _exclusive(directory):
            _remove_leftovers(directory)
            with _temporary_store(directory, authorized.store) as proof_store:
                run = _Run(authorized.store, proof_store, result, progress)
                run.write(rows, format_time(now), carry_others=bool(tasks))
            _publish(run.fresh, generation)
            result.removed = _remove_old(directory, keep)
    authorized.record_access("backup", ["everything"], generation=result.generation, tasks=result.tasks)
    result.seconds = progress.seconds
    return result


def _select_rows(authorized: AuthorizedStore, tasks: Sequence[str]) -> Iterable[TaskRow]:
    if not tasks:
        return authorized.rows(Query(status=ENDED))
    rows = {row.uuid: row for row in map(authorized.row, tasks)}
    for row in rows.values():
        authorized.record_access("task", ["row"], uuid=row.uuid)
        if row.status not in ENDED:
            raise UsageError(f"Task {row.uuid} is {row.status}.", hint="Only tasks that have ended are backed up.")
    return sorted(rows.values(), key=lambda row: (row.created_at, row.uuid), reverse=True)


class _Run:
    """Writes one generation to the directory `fresh`."""

    def __init__(self, store: Store, proof_store: Store, result: BackedUp, progress: ProgressCounter) -> None:
        self.store, self.proof_store, self.result, self.progress = store, proof_store, result, progress
        generation = Path(result.generation)
        self.fresh = generation.with_name(f"{NEW}{generation.name}")
        self.previous = next(iter(list_generations(generation.parent)), None)

    def write(self, rows: Iterable[TaskRow], made_at: str, *, carry_others: bool) -> None:
        make_directory(self.fresh / TASKS)
        hashed = hashlib.sha256()
        with directory_handle(self.fresh) as dir_fd:
            manifest = open_file(MANIFEST, os.O_WRONLY | os.O_CREAT | os.O_EXCL, dir_fd)

        def add_line(line: msgspec.Struct) -> None:
            data = msgspec.json.encode(line) + b"\n"
            hashed.update(data)
            write_all(manifest, data)

        try:
            add_line(Header("backup", VERSION, made_at, self.store.url))
            previous = read_manifest(self.previous) if self.previous is not None else iter(())
            for row, before in _pair(rows, previous):
                entry = self._back_up(row, before) if row is not None else self._carry(before) if carry_others else None
                if entry is not None:
                    add_line(entry)
                    self.result.tasks += 1
                    self.result.size_bytes += entry.size_bytes
                self.progress.add(tasks=row is not None)
            self._sync_files()
            add_line(End(self.result.tasks, hashed.hexdigest()))
            sync(manifest)
        finally:
            os.close(manifest)
        sync_directory(self.fresh)

    def _sync_files(self) -> None:
        """Sync all files at the end, when most are already on disk. This slows other processes less."""
        with directory_handle(self.fresh / TASKS) as dir_fd:
            for name in os.listdir(dir_fd):
                fd = open_file(name, os.O_RDONLY, dir_fd)
                try:
                    sync(fd)
                finally:
                    os.close(fd)
            sync(dir_fd)

    def _back_up(self, row: TaskRow, before: Entry | None) -> Entry | None:
        try:
            # every writer raises the fence
            state = (row.fence, row.updated_at, _is_stub(row))
            is_same = before is not None and state == (before.fence, before.updated_at, before.stub)
            if before is not None and is_same and self._link(before):
                self.result.unchanged += 1
                return before
            return self._write_task(row)
        except NotFound:
            return None  # it was deleted meanwhile
        except StoreError as error:
            add_sentence(self.result.failures, f"Task {row.uuid}: {error.message}")
            return self._carry(before)

    def _carry(self, before: Entry | None) -> Entry | None:
        if before is None or not self._link(before):
            return None
        self.result.carried += 1
        return before

    def _link(self, entry: Entry) -> bool:
        """Link the file of the previous generation; return False if it no longer matches its checksum."""
        if self.previous is None:
            return False
        source, target = _file_path(self.previous, entry.uuid), _file_path(self.fresh, entry.uuid)
        try:
            if _checksum(source) != (entry.size_bytes, entry.sha256):
                return False
        except StoreError:
            return False
        try:
            target.hardlink_to(source)
        except OSError:  # the file system has no links
            with source.open("rb") as original, os.fdopen(create_file(target), "wb") as copy:
                shutil.copyfileobj(original, copy)
        return True

    def _write_task(self, row: TaskRow) -> Entry:
        path = _file_path(self.fresh, row.uuid)
        copied = write_task_file(self.store, row, path, durable=False)
        try:
            self._prove(path, row)
        except StoreError:
            path.unlink()
            raise
        size, sha256 = _checksum(path)
        for note in copied.notes:
            add_sentence(self.result.notes, f"Task {row.uuid}: {note}")
        self.result.written += 1
        self.result.records += copied.records
        self.result.written_bytes += size
        self.progress.add(records=copied.records, size_bytes=size)
        same: dict[str, Any] = {
            name: getattr(row, name) for name in ("uuid", "created_at", "status", "user", "updated_at", "fence")
        }
        return Entry(
            **same,
            stub=_is_stub(row),
            records=copied.records,
            blobs=copied.blobs,
            size_bytes=size,
            sha256=sha256,
        )

    def _prove(self, path: Path, row: TaskRow) -> None:
        """Restore the file into the temporary store and compare that with the original."""
        try:
            with open_task_file(path, self.proof_store.options) as task_file:
                task_file.copy_to(self.proof_store)
            if TaskCopy(self.store, self.proof_store, row, skip_unusable=True).run().appended:
                raise Conflict("Its file lacks some of its records.")
        finally:
            with suppress(NotFound):
                self.proof_store.delete(row.uuid)


def _is_stub(row: TaskRow) -> bool:
    return row.archived in {"going", "stub"}


def _pair(rows: Iterable[TaskRow], previous: Iterable[Entry]) -> Iterator[tuple[TaskRow | None, Entry | None]]:
    """Yield rows and entries of the same task together. Both come newest first."""
    by_age = attrgetter("created_at", "uuid")
    for _, group in groupby(merge(rows, previous, key=by_age, reverse=True), key=by_age):
        found = {isinstance(item, Entry): item for item in group}
        yield found.get(False), found.get(True)  # type: ignore[misc]


@contextmanager
def _exclusive(directory: Path) -> Iterator[None]:
    """Allow one backup at a time."""
    with directory_handle(directory) as dir_fd:
        try:
            lock = LockFile.take("backup", dir_fd)
        except LeaseHeld as error:
            holder = error.owner or "Another process"
            raise LeaseHeld(f"{holder} is making a backup to {directory} now.") from error
        try:
            yield
        finally:
            lock.release()


@contextmanager
def _temporary_store(directory: Path, original: Store) -> Iterator[Store]:
    """Yield a store to restore into."""
    with tempfile.TemporaryDirectory(prefix=CHECK, dir=directory) as folder:
        Path(folder).chmod(PRIVATE_DIRECTORY)  # a umask may have narrowed it
        with JsonlStore(folder, msgspec.structs.replace(original.options, durability="os")) as store:
            yield store


def _publish(fresh: Path, generation: Path) -> None:
    """Move a complete generation to its place. One of the same day is replaced."""
    old = generation.with_name(f"{OLD}{generation.name}")
    if generation.exists():
        generation.rename(old)
    fresh.rename(generation)
    sync_directory(generation.parent)
    if old.exists():
        shutil.rmtree(old)


def _remove_leftovers(directory: Path) -> None:
    """Remove what an interrupted backup left. A generation that was about to be replaced gets its name back."""
    for prefix in (OLD, NEW, CHECK):
        for path in directory.glob(f"{prefix}*"):
            generation = directory / path.name.removeprefix(OLD)
            if prefix == OLD and not generation.exists():
                path.rename(generation)
            else:
                shutil.rmtree(path)


def _remove_old(directory: Path, keep: int) -> list[str]:
    removed = list_generations(directory)[keep:]
    for path in removed:
        hidden = path.with_name(f"{OLD}{path.name}")
        path.rename(hidden)  # it disappears in one step
        shutil.rmtree(hidden)
    return [path.name for path in removed]


# restoring


def restore(
    directory: Path,
    authorized: AuthorizedStore,
    *,
    generation: str | None = None,
    tasks: Sequence[str] = (),
    on_progress: OnProgress = None,
) -> Restored:
    """Restore all tasks of a generation, or some. A task that fails does not stop the others."""
    path = _find_generation(directory, generation)
    result = Restored(generation=str(path), store=authorized.store.url)
    total, entries = _select_entries(path, authorized, tasks)
    progress = ProgressCounter(on_progress, total=total)
    for entry in entries:
        with collect_failure(result.failures, entry.uuid):
            _restore_task(path, entry, authorized, result)
        progress.add(tasks=1, records=entry.records, size_bytes=entry.size_bytes)
    authorized.record_access("restore", ["backup"], generation=result.generation, tasks=result.restored)
    result.seconds = progress.seconds
    return result


def _find_generation(directory: Path, day: str | None) -> Path:
    generations = list_generations(directory)
    for path in generations:
        if day in {None, path.name}:
            return path
    names = ", ".join(path.name for path in generations[:10])
    raise NotFound(
        kind="backup", id=day or str(directory), hint=f"There are {names}." if names else "Make a backup first."
    )


def _select_entries(generation: Path, authorized: AuthorizedStore, tasks: Sequence[str]) -> tuple[int, Iterable[Entry]]:
    """Return the number of entries to restore, and the entries, after the manifest was read to its end."""

    def read_visible() -> Iterator[Entry]:
        return (entry for entry in read_manifest(generation) if authorized.allows(entry.user))

    if not tasks:
        return sum(1 for _ in read_visible()), read_visible()
    chosen = []
    for uuid in dict.fromkeys(tasks):
        try:
            chosen.append(choose_by_id(read_visible(), uuid, hint=f"{generation} does not have it. {HINT}"))
        except (NotFound, UsageError):
            authorized.record_refusal(uuid)
            raise
    return len(chosen), chosen


def _restore_task(generation: Path, entry: Entry, authorized: AuthorizedStore, result: Restored) -> None:
    path, store = _file_path(generation, entry.uuid), authorized.store
    if _checksum(path) != (entry.size_bytes, entry.sha256):
        raise Corrupt(f"{path} is not the file that the manifest names.", where=str(path), hint=HINT)
    with open_task_file(path, store.options) as task_file:
        row = task_file.content.row
        if (row.uuid, row.user, row.status) != (entry.uuid, entry.user, entry.status) or row.status not in ENDED:
            raise Corrupt(f"{path} holds another task than the manifest says.", hint=HINT)
        if not authorized.allows(row.user):
            authorized.record_refusal(row.uuid)
            raise NotFound(kind="task", id=row.uuid)
        is_new = not _exists(store, row)
        copied = task_file.copy_to(store)
    result.restored += is_new or copied.appended > 0
    result.equal += not (is_new or copied.appended)
    result.records += copied.records
    result.blobs += copied.blobs


def _exists(store: Store, row: TaskRow) -> bool:
    """Return whether the store has the task. Raise Conflict if it is complete there and its row differs."""
    try:
        existing = store.row(row.uuid)
    except NotFound:
        return False
    if existing.status in ENDED and not _is_stub(existing):
        for name in compare_rows(existing, row):
            raise Conflict(f"It exists with another {name} and is left unchanged.")
    return True


# generations and manifests


def list_generations(directory: Path) -> list[Path]:
    """Return all generations, newest first."""
    with disk_errors(f"{directory} cannot be read"), suppress(FileNotFoundError):
        names = (entry.name for entry in os.scandir(directory) if entry.is_dir(follow_symlinks=False))
        return [directory / name for name in sorted(filter(_DAY.fullmatch, names), reverse=True)]
    return []


def read_manifest(generation: Path) -> Iterator[Entry]:
    """Yield the entries of a generation. Raise Corrupt as soon as something is wrong, at the latest at the end."""
    path = generation / MANIFEST
    with disk_errors(f"{path} cannot be read"), directory_handle(generation) as dir_fd:
        try:
            fd = open_file(MANIFEST, os.O_RDONLY, dir_fd)
        except FileNotFoundError:
            raise Corrupt(f"{generation} has no manifest.", where=str(path), hint=HINT) from None
        with os.fdopen(fd, "rb") as file:
            yield from _parse_manifest(path, iter(lambda: file.readline(MAX_LINE_BYTES + 1), b""))


def _parse_manifest(path: Path, lines: Iterator[bytes]) -> Iterator[Entry]:
    first = next(lines, b"")
    header = _decode(path, first, Header)
    if header.orihon != "backup":
        _refuse(path, "it is not the manifest of a backup")
    if header.version != VERSION:
        raise SchemaMismatch(f"{path} has version {header.version}; this version of Orihon knows {VERSION}.")
    hashed, count, before = hashlib.sha256(first), 0, ("\U0010ffff", "")
    for line in lines:
        if line.startswith(b'{"tasks":'):
            if _decode(path, line, End) != End(count, hashed.hexdigest()) or next(lines, b""):
                _refuse(path, "its checksum is wrong")
            return
        entry = _decode(path, line, Entry)
        validate_task_id(entry.uuid)
        if (entry.created_at, entry.uuid) >= before:
            _refuse(path, f"task {entry.uuid} is out of order or appears twice")
        before, count = (entry.created_at, entry.uuid), count + 1
        hashed.update(line)
        yield entry
    _refuse(path, "it is truncated")


def _decode(path: Path, line: bytes, kind: type[T]) -> T:
    try:
        if len(line) > MAX_LINE_BYTES or not line.endswith(b"\n"):
            raise msgspec.DecodeError("the line does not end")
        return decode_json(line, type=kind)
    except ValueError as error:
        _refuse(path, f"{line[:40]!a} cannot be read ({error})")


def _refuse(path: Path, reason: str) -> NoReturn:
    raise Corrupt(f"{path} cannot be used: {reason}.", where=str(path), hint=HINT)


def _file_path(generation: Path, uuid: str) -> Path:
    return generation / TASKS / f"{validate_task_id(uuid)}.orihon"


def _checksum(path: Path) -> tuple[int, str]:
    """Return size and sha256 of a regular file. A link, a device or a directory is refused."""
    with (
        disk_errors(f"{path} cannot be read"),
        directory_handle(path.parent) as dir_fd,
        os.fdopen(open_file(path.name, os.O_RDONLY, dir_fd), "rb") as file,
    ):
        digest = hashlib.file_digest(file, "sha256")
        return file.tell(), digest.hexdigest()
