"""`backup(authorized, directory)`: the tasks that have ended, one generation a day, each file proved before it counts.

A task that has not changed since the last generation is a second name of the same file (a hard link), so a day costs
what changed on it; its bytes are compared with their checksum. A new or changed one is written as a portable file,
brought from there into a store of its own, and compared with the original record by record. The generation appears
in one step, when all of it is there; another one of the same day takes its place, and those beyond the newest seven go.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from orihon.errors import Conflict, LeaseHeld, NotFound, StoreError, UsageError
from orihon.ops.access import AuthorizedStore
from orihon.ops.generation import TASKS, Entry, Writing, checksum, entries, file_of, generations, is_whole
from orihon.ops.portable import read_portable, take_in, write_portable
from orihon.ops.progress import OnProgress, ProgressCounter
from orihon.ops.taskcopy import TaskCopy
from orihon.records import TaskRow
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
)
from orihon.stores.jsonl import JsonlStore
from orihon.stores.lockfile import LockFile
from orihon.task.lifecycle import ENDED

NEW, OLD, CHECK = ".new-", ".old-", ".check-"
MANY = 1000  # sentences that are kept


class BackedUp(msgspec.Struct, kw_only=True):
    """What was done."""

    store: str
    generation: str
    tasks: int = 0  # in the generation
    written: int = 0  # new or changed, proved by restoring and comparing
    unchanged: int = 0  # the same file as before, its checksum compared
    carried: int = 0  # that could not be written, or were not asked for, as they were before
    records: int = 0  # of those written, compared one by one
    size_bytes: int = 0  # of all files
    written_bytes: int = 0
    removed: list[str] = []  # generations
    notes: list[str] = []  # what was left out of a file, because no reader could use it
    failures: list[str] = []
    seconds: float = 0


def backup(
    authorized: AuthorizedStore,
    directory: Path,
    *,
    keep: int = 7,
    tasks: Sequence[str] = (),
    now: datetime | None = None,
    on_progress: OnProgress = None,
) -> BackedUp:
    """Make the generation of the day, of all tasks that this person may see, or with some of them anew."""
    began, now = time.monotonic(), now or datetime.now(UTC)
    done = BackedUp(store=authorized.store.url, generation=str(directory / now.strftime("%Y-%m-%d")))
    with disk_errors(f"A backup to {directory} cannot be made"):
        make_directory(directory)
        warn_if_open(directory)
        with _alone(directory), _scratch(directory) as scratch:
            found = generations(directory)
            fresh = directory / f"{NEW}{Path(done.generation).name}"
            with JsonlStore(scratch, msgspec.structs.replace(authorized.store.options, durability="os")) as proof:
                work = _Backup(
                    authorized, (fresh, found[0] if found else None), proof, done, ProgressCounter(on_progress)
                )
                work.run(_rows(authorized, tasks), now, carry=bool(tasks))
            _show(fresh, Path(done.generation))
            done.removed = _prune(directory, keep)
    authorized.record_access("backup", generation=done.generation, tasks=done.tasks)
    done.seconds = time.monotonic() - began
    return done


def _rows(authorized: AuthorizedStore, tasks: Sequence[str]) -> Iterable[TaskRow]:
    if not tasks:
        return authorized.rows(Query(status=ENDED))
    rows = {row.uuid: row for row in map(authorized.row, tasks)}
    for row in rows.values():
        if row.status not in ENDED:
            raise UsageError(f"Task {row.uuid} is {row.status}.", hint="Only what has ended is backed up.")
    return sorted(rows.values(), key=lambda row: (row.created_at, row.uuid), reverse=True)


class _Backup:
    """One generation in the making."""

    def __init__(
        self,
        authorized: AuthorizedStore,
        places: tuple[Path, Path | None],
        proof: Store,
        done: BackedUp,
        progress: ProgressCounter,
    ) -> None:
        self.authorized, self.proof, self.done, self.progress = authorized, proof, done, progress
        self.fresh, self.last = places

    def run(self, rows: Iterable[TaskRow], now: datetime, *, carry: bool) -> None:
        make_directory(self.fresh / TASKS)
        earlier = entries(self.last) if self.last is not None else iter(())
        with Writing(self.fresh, now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"), self.authorized.store.url) as manifest:
            for row, before in _merged(rows, earlier):
                entry = self._entry(row, before) if row is not None else self._carried(before) if carry else None
                if entry is not None:
                    manifest.add(entry)
                    self.done.size_bytes += entry.size_bytes
                self.progress.add(tasks=1)
            self._sync()
            manifest.end()
            self.done.tasks = manifest.count
        sync_directory(self.fresh)

    def _sync(self) -> None:
        """All of it at the end: by then most is on the disk, and whoever works beside us feels less of it."""
        with directory_handle(self.fresh / TASKS) as within, os.scandir(within) as found:
            for entry in found:
                fd = open_file(entry.name, os.O_RDONLY, within)
                try:
                    sync(fd)
                finally:
                    os.close(fd)
            sync(within)

    def _entry(self, row: TaskRow, before: Entry | None) -> Entry | None:
        try:
            if before is not None and _is_same(row, before) and self._linked(before):
                self.done.unchanged += 1
                return before
            return self._written(row)
        except NotFound:
            return None  # it was cleaned just now
        except StoreError as error:
            if len(self.done.failures) < MANY:
                self.done.failures.append(f"Task {row.uuid}: {error.message}")
            return self._carried(before)

    def _carried(self, before: Entry | None) -> Entry | None:
        if before is None or not self._linked(before):
            return None
        self.done.carried += 1
        return before

    def _linked(self, entry: Entry) -> bool:
        """Give the file of the last generation a second name; False when it is not what it was."""
        if self.last is None:
            return False
        there, here = file_of(self.last, entry.uuid), file_of(self.fresh, entry.uuid)
        try:
            if checksum(there) != (entry.size_bytes, entry.sha256):
                return False
        except StoreError:
            return False
        try:
            here.hardlink_to(there)
        except OSError:  # a file system without links
            with there.open("rb") as source, os.fdopen(create_file(here), "wb") as copy:
                shutil.copyfileobj(source, copy)
        return True

    def _written(self, row: TaskRow) -> Entry:
        path = file_of(self.fresh, row.uuid)
        figures = write_portable(self.authorized.store, row, path, durable=False)
        try:
            self._prove(path, row)
        except StoreError:
            path.unlink()
            raise
        size, sha256 = checksum(path)
        self.done.notes += [f"Task {row.uuid}: {one}" for one in figures.notes[: MANY - len(self.done.notes)]]
        self.done.written += 1
        self.done.records += figures.records
        self.done.written_bytes += size
        self.progress.add(records=figures.records, size_bytes=size)
        return Entry(
            uuid=row.uuid,
            created_at=row.created_at,
            status=row.status,
            user=row.user,
            updated_at=row.updated_at,
            fence=row.fence,
            stub=row.archived in {"going", "stub"},
            records=figures.records,
            blobs=figures.blobs,
            size_bytes=size,
            sha256=sha256,
        )

    def _prove(self, path: Path, row: TaskRow) -> None:
        """Restore the file into a store of its own, and compare that with the original."""
        try:
            with read_portable(path, self.proof.options) as portable:
                take_in(portable, self.proof)
            if (
                TaskCopy(self.authorized.store, self.proof, row, ProgressCounter(), set(), sound_only=True)
                .run()
                .appended
            ):
                raise Conflict("Its file lacks some of its records.")
        finally:
            with suppress(NotFound):
                self.proof.delete(row.uuid)


def _is_same(row: TaskRow, before: Entry) -> bool:
    """Whether nobody has written the task since; whoever does raises the fence."""
    stub = row.archived in {"going", "stub"}
    return (row.fence, row.updated_at, stub) == (before.fence, before.updated_at, before.stub)


def _merged(rows: Iterable[TaskRow], earlier: Iterable[Entry]) -> Iterator[tuple[TaskRow | None, Entry | None]]:
    """Rows and entries of the same tasks together; both come the newest first."""
    left = iter(earlier)
    before = next(left, None)
    for row in rows:
        while before is not None and before.place > (row.created_at, row.uuid):
            yield None, before
            before = next(left, None)
        if before is not None and before.uuid == row.uuid:
            yield row, before
            before = next(left, None)
        else:
            yield row, None
    while before is not None:
        yield None, before
        before = next(left, None)


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """One backup at a time."""
    with directory_handle(directory) as within:
        try:
            lock = LockFile.take("backup", within)
        except LeaseHeld as error:
            raise LeaseHeld(f"{error.owner or 'Another process'} makes a backup to {directory} now.") from error
        try:
            yield
        finally:
            lock.release()


@contextmanager
def _scratch(directory: Path) -> Iterator[Path]:
    """A place to restore into, once what a crash left is cleared away."""
    _finish(directory)
    with tempfile.TemporaryDirectory(prefix=CHECK, dir=directory) as place:
        Path(place).chmod(PRIVATE_DIRECTORY)  # which a umask may have narrowed
        yield Path(place)


def _show(fresh: Path, place: Path) -> None:
    """Put a whole generation in its place; one of the same day gives way."""
    old = place.with_name(f"{OLD}{place.name}")
    if place.exists():
        place.rename(old)
    fresh.rename(place)
    sync_directory(place.parent)
    if old.exists():
        shutil.rmtree(old)


def _finish(directory: Path) -> None:
    """What a crash left: a whole generation that was on the way to its place gets there, the rest goes."""
    for start in (NEW, OLD):
        for path in sorted(directory.glob(f"{start}*")):
            place = directory / path.name.removeprefix(start)
            if not place.exists() and is_whole(path):
                path.rename(place)
            else:
                shutil.rmtree(path)
    for path in directory.glob(f"{CHECK}*"):
        shutil.rmtree(path)


def _prune(directory: Path, keep: int) -> list[str]:
    removed = generations(directory)[keep:]
    for path in removed:
        gone = path.with_name(f"{OLD}{path.name}")
        path.rename(gone)  # out of sight in one step
        shutil.rmtree(gone)
    return [path.name for path in removed]
