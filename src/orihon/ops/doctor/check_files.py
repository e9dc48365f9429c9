"""Examination of a store of plain files: its directories, its tasks with their lists and blobs, and `tasks.db`."""

from __future__ import annotations

import operator
import os
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from itertools import repeat
from pathlib import Path
from typing import NamedTuple

from msgspec import ValidationError

from orihon import codec
from orihon.errors import Corrupt, OrihonError, StoreError, UsageError
from orihon.ops.doctor import tasks_db
from orihon.ops.doctor.finding import (
    Finding,
    check_mode,
    check_record,
    limit_findings,
    note,
    problem,
    repair_and_recheck,
)
from orihon.ops.doctor.readonly import TaskTable, UnopenedStore, describe_error, find_holder
from orihon.ops.doctor.repair import FOLDERS, is_store_file, is_temporary, repair_directories, repair_task
from orihon.ops.progress import ProgressCounter
from orihon.records import Message, Metadata, Record, TaskRow
from orihon.stores import mounts
from orihon.stores.base import FORMAT, LISTS
from orihon.stores.files import (
    PRIVATE_DIRECTORY,
    PRIVATE_FILE,
    Refused,
    directory_handle,
    exists,
    open_file,
    read_file,
)
from orihon.stores.jsonl.layout import DIRECTORIES, LOCK, NEW, PLACES, TRASH, decode_row, find_place, list_path
from orihon.stores.jsonl.line_reader import Source, find_end, open_list
from orihon.stores.jsonl.message_index import CHANGED, MessageIndex, fill_index
from orihon.stores.jsonl.message_index import NAME as INDEX
from orihon.stores.sql import rows

LEASE_COLUMNS = frozenset({"lease_owner", "heartbeat_at"})  # in the row, but not in the files
ATTEMPTS = 3
ACTIVE_SECONDS = 5
KEPT_LINE = "The line stays in the file; the lines before and after it are still read."


class TaskLocation(NamedTuple):
    """The directory of a task."""

    base: Path
    place: str
    uuid: str

    @property
    def where(self) -> str:
        """The path relative to the store."""
        return f"{self.place}/{self.uuid}"


def examine_files(base: Path, progress: ProgressCounter, *, fix: bool, rebuild: bool) -> Iterator[Finding]:
    """Examine the store. With `rebuild`, first rebuild `tasks.db`; with `fix`, repair what can be repaired."""
    started = time.monotonic()
    if rebuild:
        yield tasks_db.rebuild(base)
    findings = list(_check_store(base))
    if fix and any(finding.fixable for finding in findings):
        findings = list(repair_and_recheck(findings, lambda: _repair_store(base), lambda: _check_store(base)))
    yield from findings
    has_table = not any(finding.level == "problem" and finding.where == tasks_db.NAME for finding in findings)
    with ExitStack() as stack:
        table = None
        store = stack.enter_context(UnopenedStore(base, progress, writable=fix and has_table))
        if has_table:
            database = store.database if fix else None
            table = stack.enter_context(closing(TaskTable(base / tasks_db.NAME, database)))
        for place, uuid in tasks_db.iter_tasks(base):
            progress.add(tasks=1)
            yield from _examine_task(store, TaskLocation(base, place, uuid), table, fix=fix and has_table)
        if table is not None:
            yield from _check_rows_without_directory(base, table)
    yield Finding("ok", str(base), f"Examined {progress} in {time.monotonic() - started:.1f} seconds.")


def _repair_store(base: Path) -> None:
    path = base / tasks_db.NAME
    if not path.exists() or any(finding.fixable for finding in tasks_db.check_table(path)):
        tasks_db.rebuild(base)
    repair_directories(base)


# directories


def _check_store(base: Path) -> Iterator[Finding]:
    try:
        mounts.require_local(base)
    except UsageError as error:
        yield problem(".", f"{error.message} {error.hint}")
    with directory_handle(base) as dir_fd:
        yield from _check_entries(dir_fd, ".")
    for place in PLACES:
        if (base / place).is_dir() and not (base / place).is_symlink():
            yield from _check_place(base / place)
        else:
            yield problem(place, "There is no such directory in the store.", fixable=True)
    for entry in sorted(base.iterdir()):
        if entry.name.startswith(TRASH):
            yield note(entry.name, "A deletion was interrupted; the rest of the task can be removed.", fixable=True)
        elif entry.name.startswith(NEW) and not _is_being_created(entry):
            yield note(entry.name, "The creation of a task was interrupted.", fixable=True)
        elif entry.name.startswith(f"{tasks_db.NAME}.old-"):
            yield note(entry.name, "An older tasks.db that a rebuild kept. It can be removed.")
    if (base / tasks_db.NAME).is_file():
        yield from tasks_db.check_table(base / tasks_db.NAME)
    else:
        yield problem(tasks_db.NAME, "It is missing.", fixable=True)
    yield from tasks_db.check_sqlite_version(tasks_db.NAME)


def _is_being_created(path: Path) -> bool:
    try:
        with directory_handle(path) as dir_fd:
            return find_holder(dir_fd) is not None
    except (OSError, OrihonError):
        return True  # it has its final name by now


def _check_place(path: Path) -> Iterator[Finding]:
    """Check the mode of one of the four directories, and the entries in it that are not tasks."""
    yield from check_mode(path.lstat(), path.name, PRIVATE_DIRECTORY)
    with os.scandir(path) as entries:
        for entry in entries:
            is_directory = entry.is_dir(follow_symlinks=False)
            if is_directory and tasks_db.is_task_id(entry.name):
                continue
            where = f"{path.name}/{entry.name}"
            if is_directory or entry.is_file(follow_symlinks=False):
                yield note(where, "It is not a task and is left unchanged.")
            else:
                yield _report_special_file(entry.stat(follow_symlinks=False).st_mode, where)


def _check_entries(dir_fd: int, where: str) -> Iterator[Finding]:
    """Check kind, owner and mode of a directory and of its entries, and report leftovers of crashes.

    The top directory may hold other files of the user, which are ignored.
    """
    directory = os.fstat(dir_fd)
    yield from check_mode(directory, where, PRIVATE_DIRECTORY)
    with os.scandir(dir_fd) as entries:
        for entry in entries:
            if where == "." and not is_store_file(entry.name):
                continue
            path = f"{where}/{entry.name}" if where != "." else entry.name
            with suppress(FileNotFoundError):  # a temporary file that is gone by now
                yield from _check_entry(entry.name, entry.stat(follow_symlinks=False), path, directory.st_uid)


def _check_entry(name: str, found: os.stat_result, where: str, owner: int) -> Iterator[Finding]:
    if not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode):
        yield _report_special_file(found.st_mode, where)
    elif stat.S_ISREG(found.st_mode):
        yield from check_mode(found, where, PRIVATE_FILE)
    if is_temporary(name):
        yield note(where, "A temporary file of an interrupted write.", fixable=True)
    elif name.endswith(".torn"):
        yield note(where, f"{found.st_size:,} bytes of an incomplete write that were set aside. No reader needs them.")
    if found.st_uid != owner:
        yield problem(where, f"It belongs to another user (uid {found.st_uid}, not {owner}).")


def _report_special_file(mode: int, where: str) -> Finding:
    kind = "link" if stat.S_ISLNK(mode) else "FIFO" if stat.S_ISFIFO(mode) else "device or a socket"
    return problem(where, f"It is a {kind}. Orihon neither creates nor follows those; remove it unless it is yours.")


# tasks


def _examine_task(store: UnopenedStore, task: TaskLocation, table: TaskTable | None, *, fix: bool) -> Iterator[Finding]:
    findings = _check_task(store, task, table)
    if not fix or not any(finding.fixable for finding in findings):
        yield from findings
        return

    def check_again() -> list[Finding]:
        place = find_place(task.base, task.uuid)  # the repair may have moved it
        silent = UnopenedStore(task.base)
        return _check_task(silent, task._replace(place=place), table) if place else []

    try:
        yield from repair_and_recheck(findings, lambda: repair_task(store, task.uuid, findings), check_again)
    except OrihonError as error:
        if find_place(task.base, task.uuid) != task.place or _is_active(task):
            return  # another process moved or deleted it, and works on it
        yield from findings
        yield problem(task.where, f"It could not be repaired: {error.message}")


def _check_task(store: UnopenedStore, task: TaskLocation, table: TaskTable | None) -> list[Finding]:
    """Check one task. While another process works on it, problems are checked again."""
    for _ in range(ATTEMPTS):
        findings = list(_check_task_once(store, task, table))
        if not any(finding.level == "problem" for finding in findings):
            break
        if not os.path.lexists(task.base / task.where):
            return []  # it has moved, and is examined in its new place
        if table is None or not (table.refresh() or _is_active(task)):
            break
        time.sleep(0.1)  # a writer has written one of two files, and the other follows
        store = UnopenedStore(task.base)  # records that are read again are not counted again
    return findings


def _is_active(task: TaskLocation) -> bool:
    """Return whether the state of the task was written just now."""
    try:
        return time.time() - (task.base / task.where / "state.json").stat().st_mtime < ACTIVE_SECONDS
    except OSError:
        return False


def _check_task_once(store: UnopenedStore, task: TaskLocation, table: TaskTable | None) -> Iterator[Finding]:
    try:
        with directory_handle(task.base / task.where) as dir_fd:
            holder = find_holder(dir_fd)
            yield from _check_entries(dir_fd, task.where)
            for name in FOLDERS:
                with suppress(OSError, Refused), directory_handle(name, dir_fd) as folder_fd:  # else its entry says why
                    yield from _check_entries(folder_fd, f"{task.where}/{name}")
            if holder is None:
                yield from _check_idle_task(task, dir_fd, table)
            else:
                yield note(task.where, f"It is being written by {holder}, so it is not repaired now.")
            yield from _ListCheck(store, task, dir_fd, is_held=holder is not None).run()
    except FileNotFoundError:
        return
    except (OSError, Refused) as error:
        yield problem(task.where, f"It cannot be opened: {describe_error(error)}")


def _check_idle_task(task: TaskLocation, dir_fd: int, table: TaskTable | None) -> Iterator[Finding]:
    """Check that directory, files and row agree, which holds only while the task has no writer."""
    if exists(LOCK, dir_fd):
        yield note(f"{task.where}/.lock", "Its holder died without releasing the lease.", fixable=True)
    for place in PLACES:
        if place != task.place and os.path.lexists(task.base / place / task.uuid):
            yield problem(task.where, f"There is a second directory of this task in {place}/. Keep the right one.")
    metadata, findings = _read_metadata(task, dir_fd)
    yield from findings
    if metadata is None:
        return
    row, findings = _read_state(task, dir_fd, metadata)
    yield from findings
    if row is not None and DIRECTORIES[row.status] != task.place:
        yield problem(
            task.where,
            f"state.json says {row.status}, so it belongs in {DIRECTORIES[row.status]}/: a move was interrupted.",
            fixable=True,
        )
    if table is not None:
        yield from _check_row(task, table, row)


def _read_metadata(task: TaskLocation, dir_fd: int) -> tuple[Metadata | None, list[Finding]]:
    where = f"{task.where}/metadata.json"
    try:
        metadata = codec.decode_line(read_file("metadata.json", dir_fd), Metadata)
    except FileNotFoundError:
        if all(name == "state.json" or name.startswith(".") for name in os.listdir(dir_fd)):
            return None, [note(task.where, "The creation of the task was interrupted.", fixable=True)]
        return None, [problem(where, "It is missing: what the task worked on is lost. Its lists are still there.")]
    except (OSError, Corrupt, Refused) as error:
        return None, [problem(where, f"It cannot be read: {describe_error(error)} Its lists are still there.")]
    if metadata.uuid != task.uuid:
        return None, [problem(where, f"It belongs to another task ({metadata.uuid}).")]
    if metadata.format > FORMAT:
        sentence = f"It has format {metadata.format}; this version of Orihon knows {FORMAT}. Use a newer version."
        return metadata, [problem(where, sentence)]
    return metadata, []


def _read_state(task: TaskLocation, dir_fd: int, metadata: Metadata) -> tuple[TaskRow | None, list[Finding]]:
    try:
        return decode_row(metadata, read_file("state.json", dir_fd)), []
    except FileNotFoundError:
        reason = "It is missing."
    except (OSError, Corrupt, Refused) as error:
        reason = f"It cannot be read: {describe_error(error)}"
    sentence = f"{reason} It can be restored from the row and the directory."
    return None, [problem(f"{task.where}/state.json", sentence, fixable=True)]


def _check_row(task: TaskLocation, table: TaskTable, state: TaskRow | None) -> Iterator[Finding]:
    try:
        row = table.row(task.uuid)
    except ValidationError as error:
        yield problem(task.where, f"Its row in tasks.db is invalid: {error}.", fixable=True)
        return
    if row is None:
        yield problem(task.where, "It has no row in tasks.db, so no list of tasks shows it.", fixable=True)
        return
    if row.lease_owner is not None:
        yield note(task.where, f"Its row names {row.lease_owner} as its holder, which is dead.", fixable=True)
    differences = [
        f"{name} {getattr(row, name)!r}, not {getattr(state, name)!r}"
        for name in rows.COLUMNS
        if state is not None and name not in LEASE_COLUMNS and getattr(row, name) != getattr(state, name)
    ]
    if differences:
        sentence = f"Its row differs from its files: it says {'; '.join(differences[:3])}."
        yield problem(task.where, sentence, fixable=True)


def _check_rows_without_directory(base: Path, table: TaskTable) -> Iterator[Finding]:
    for page in table.pages():
        for uuid in [uuid for uuid in page if not _has_directory(base, uuid)]:
            # checked again, because the task may have been moving; and a deletion removes the row before the trash
            if _has_directory(base, uuid) or os.path.lexists(base / f"{TRASH}{uuid}"):
                continue
            table.refresh()
            if table.query("SELECT 1 FROM tasks WHERE uuid = ?", uuid):
                yield problem(
                    f"tasks.db, task {uuid}",
                    "The row has no directory: the lists of the task are lost, and only the row is left. "
                    "`--rebuild` makes a table without it and keeps the old one.",
                )


def _has_directory(base: Path, uuid: str) -> bool:
    return any(os.path.lexists(base / place / uuid) for place in PLACES)


# lists and blobs


class _ListCheck:
    """Checks the lists, the index and the blobs of one task."""

    def __init__(self, store: UnopenedStore, task: TaskLocation, dir_fd: int, *, is_held: bool) -> None:
        self.store, self.task, self.dir_fd, self.is_held = store, task, dir_fd, is_held
        self.blobs: set[str] = set()

    def run(self) -> Iterator[Finding]:
        with (
            suppress(OSError, Refused),
            directory_handle("blobs", self.dir_fd) as folder_fd,
            os.scandir(folder_fd) as files,
        ):
            self.blobs = {file.name.removesuffix(".gz") for file in files if file.is_file(follow_symlinks=False)}
        for kind, (name, field) in LISTS.items():
            where = f"{self.task.where}/{list_path(name, self.task.uuid)}"
            try:
                source = open_list(name, self.task.uuid, self.dir_fd) if field else None
                if source is not None:
                    with closing(source):
                        yield from limit_findings(where, self._check_list(source, kind, where))
            except (OSError, StoreError) as error:
                yield problem(where, f"It cannot be read: {describe_error(error)} It is left unchanged.")
        yield from limit_findings(f"{self.task.where}/blobs", self._check_blobs())

    def _check_list(self, source: Source, kind: type[Record], where: str) -> Iterator[Finding]:
        name, field = LISTS[kind]
        size, end = source.size, find_end(source)
        self.store.begin_list(end)
        for record in self.store.read(self.task.uuid, kind):
            yield from check_record(record, f"{where}, {name} {getattr(record, field)}", self.blobs.__contains__)
        problems, omitted = self.store.take_problems()
        for found in problems:
            yield problem(where, f"Line {found.line}: {found.reason.rstrip('.')}. {KEPT_LINE}")
        yield from repeat(problem(where, KEPT_LINE), omitted)  # `limit_findings` counts them
        if size > end and not self.is_held:
            yield problem(
                where, f"Its last {size - end:,} bytes are an incomplete line, as after a crash.", fixable=True
            )
        if kind is Message and not self.is_held:
            yield from self._check_index(source, end, where, is_sound=not problems)

    def _check_index(self, log: Source, end: int, where: str, *, is_sound: bool) -> Iterator[Finding]:
        """Compare the index with one that is built from the log."""
        changed: list[int] = []  # offsets
        has_index = exists(INDEX, self.dir_fd)
        with ExitStack() as stack:
            old_fd = open_file(INDEX, os.O_RDONLY, self.dir_fd) if has_index else os.open(os.devnull, os.O_RDONLY)
            stack.callback(os.close, old_fd)
            new_file = stack.enter_context(tempfile.TemporaryFile())
            old, new = MessageIndex(old_fd), MessageIndex(new_file.fileno())
            fill_index(new, old, log, end, lambda offset, _: changed.append(offset))
            is_same = all(map(operator.eq, old.entries(), new.entries()))
            is_garbage = os.fstat(old.fd).st_size > 0 and not old.count and new.count > 0
        for offset in changed:
            line = self.store.line_number(self.task.uuid, LISTS[Message][0], offset)
            yield problem(where, f"Line {line}: {CHANGED}. It can be read, but do not trust it.")
        where = f"{self.task.where}/{INDEX}"
        if not has_index and new.count:
            yield note(where, "It is missing; it is rebuilt when the task is opened.", fixable=True)
        elif is_sound and (not is_same or is_garbage or old.count > new.count):
            yield problem(where, "It does not match messages.jsonl.", fixable=True)
        elif is_sound and old.count < new.count:
            missing = new.count - old.count
            yield note(where, f"It lacks the newest {missing:,} messages, as after a crash.", fixable=True)

    def _check_blobs(self) -> Iterator[Finding]:
        for sha256 in sorted(self.blobs):
            if not sha256.startswith("."):
                try:
                    self.store.blob(self.task.uuid, sha256)
                except (OSError, OrihonError) as error:
                    sentence = f"{describe_error(error)} The line that names it is still there."
                    yield problem(f"{self.task.where}/blobs/{sha256}", sentence)
