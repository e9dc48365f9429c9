"""Examination of a store of plain files: its directories, its tasks with their lists and blobs, and `tasks.db`."""

from __future__ import annotations

import operator
import os
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path

from msgspec import ValidationError

from orihon import codec
from orihon.errors import Corrupt, LeaseHeld, OrihonError, StoreError, UsageError
from orihon.ops.doctor.check_sql import TaskTable, check_sqlite_file
from orihon.ops.doctor.finding import (
    Finding,
    Line,
    check_lines,
    check_mode,
    limit_findings,
    note,
    problem,
    repair_and_recheck,
    report_figures,
)
from orihon.ops.doctor.repair import (
    FOLDERS,
    TABLE,
    UnopenedStore,
    is_store_file,
    is_task_id,
    is_temporary,
    iter_tasks,
    rebuild_table,
    repair_directories,
    repair_task,
)
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
from orihon.stores.jsonl.line_reader import Source, count_newlines, find_end, open_list, read_lines
from orihon.stores.jsonl.lock_file import find_holder
from orihon.stores.jsonl.message_index import CHANGED, MessageIndex, fill_index
from orihon.stores.jsonl.message_index import NAME as INDEX
from orihon.stores.jsonl.store import JsonlStore
from orihon.stores.sql import rows

LEASE_COLUMNS = frozenset({"lease_owner", "heartbeat_at"})  # in the row, but not in the files
ATTEMPTS = 3
ACTIVE_SECONDS = 5


def examine_files(base: Path, progress: ProgressCounter, *, fix: bool) -> Iterator[Finding]:
    """Examine the store. With `fix`, repair what can be repaired."""
    findings = list(_check_store(base))
    if fix:
        findings = repair_and_recheck(findings, lambda: _repair_store(base), lambda: _check_store(base))
    yield from findings
    table, store = None, None
    with ExitStack() as stack:
        if not any(finding.level == "problem" and finding.where == TABLE for finding in findings):
            if fix:
                store = stack.enter_context(UnopenedStore(base, writable=True))
            table = stack.enter_context(closing(TaskTable(base / TABLE, store.database if store else None)))
            progress.total = table.query("SELECT count(*) FROM tasks")[0][0]
        for place, uuid in iter_tasks(base):
            yield from _examine_task(_TaskCheck(base, place, uuid, table, progress), store)
            progress.add(tasks=1)
        if table is not None:
            yield from _check_rows_without_directory(base, table)
    yield report_figures(str(base), progress)


def _repair_store(base: Path) -> None:
    path = base / TABLE
    if not path.exists() or any(finding.fixable for finding in check_sqlite_file(path, "quick_check")):
        rebuild_table(base)
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
        elif entry.name.startswith(f"{TABLE}.old-"):
            yield note(entry.name, "An older tasks.db that a rebuild kept. It can be removed.")
    if (base / TABLE).is_file():
        yield from check_sqlite_file(base / TABLE, "quick_check")
    else:
        yield problem(TABLE, "It is missing.", fixable=True)


def _is_being_created(path: Path) -> bool:
    try:
        with directory_handle(path) as dir_fd:
            return find_holder(dir_fd) is not None
    except (OSError, OrihonError):
        return True  # it has its final name by now


def _check_place(path: Path) -> Iterator[Finding]:
    """Check the mode of one of the four directories, and the entries in it that are not tasks."""
    yield from check_mode(path.lstat().st_mode, path.name, PRIVATE_DIRECTORY)
    with os.scandir(path) as entries:
        for entry in entries:
            is_directory = entry.is_dir(follow_symlinks=False)
            if is_directory and is_task_id(entry.name):
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
    yield from check_mode(directory.st_mode, where, PRIVATE_DIRECTORY)
    with os.scandir(dir_fd) as entries:
        for entry in entries:
            if where == "." and not is_store_file(entry.name):
                continue
            path = f"{where}/{entry.name}" if where != "." else entry.name
            with suppress(FileNotFoundError):  # a temporary file that is gone by now
                yield from _check_entry(entry.name, entry.stat(follow_symlinks=False), path, directory.st_uid)


def _check_entry(name: str, found: os.stat_result, where: str, owner: int) -> Iterator[Finding]:
    if stat.S_ISREG(found.st_mode):
        yield from check_mode(found.st_mode, where, PRIVATE_FILE)
    elif not stat.S_ISDIR(found.st_mode):
        yield _report_special_file(found.st_mode, where)
    if is_temporary(name):
        yield note(where, "A temporary file of an interrupted write.", fixable=True)
    elif name.endswith(".torn"):
        yield note(where, f"{found.st_size:,} bytes of an incomplete write that were set aside. No reader needs them.")
    if found.st_uid != owner:
        yield problem(where, f"It belongs to another user (uid {found.st_uid}, not {owner}).")


def _report_special_file(mode: int, where: str) -> Finding:
    kind = "link" if stat.S_ISLNK(mode) else "FIFO" if stat.S_ISFIFO(mode) else "device or a socket"
    return problem(where, f"It is a {kind}. Orihon neither creates nor follows those; remove it unless it is yours.")


def _check_rows_without_directory(base: Path, table: TaskTable) -> Iterator[Finding]:
    for uuid in table.uuids():
        if _has_directory(base, uuid):
            continue
        # checked again, because the task may have been moving; and a deletion removes the row before the trash
        if _has_directory(base, uuid) or os.path.lexists(base / f"{TRASH}{uuid}"):
            continue
        table.refresh()
        if table.query("SELECT 1 FROM tasks WHERE uuid = ?", uuid):
            yield problem(
                f"{TABLE}, task {uuid}",
                "The row has no directory: the lists of the task are lost, and only the row is left. "
                "`--rebuild` makes a table without it and keeps the old one.",
            )


def _has_directory(base: Path, uuid: str) -> bool:
    return any(os.path.lexists(base / place / uuid) for place in PLACES)


# tasks


def _examine_task(check: _TaskCheck, store: JsonlStore | None) -> list[Finding]:
    """Check a task. With a store, repair it."""
    findings = check.run()
    if store is None:
        return findings

    def check_again() -> list[Finding]:
        place = find_place(check.base, check.uuid)  # the repair may have moved it
        return _TaskCheck(check.base, place, check.uuid, check.table, ProgressCounter()).run() if place else []

    try:
        return repair_and_recheck(findings, lambda: repair_task(store, check.uuid, findings), check_again)
    except LeaseHeld:
        return findings
    except OrihonError as error:
        if find_place(check.base, check.uuid) != check.place or check.is_active():
            return []  # another process moved or deleted it, and works on it
        return [*findings, problem(check.where, f"It could not be repaired: {error.message}")]


class _TaskCheck:
    """The check of one task: its entries, its documents, its row, its lists and its blobs."""

    def __init__(self, base: Path, place: str, uuid: str, table: TaskTable | None, progress: ProgressCounter) -> None:
        self.base, self.place, self.uuid, self.table, self.progress = base, place, uuid, table, progress
        self.where, self.path = f"{place}/{uuid}", base / place / uuid
        self._dir_fd = -1
        self._blobs: set[str] = set()

    def run(self) -> list[Finding]:
        """Check the task. While another process works on it, problems are checked again."""
        for _ in range(ATTEMPTS):
            findings = list(self._check())
            if not any(finding.level == "problem" for finding in findings):
                break
            if not os.path.lexists(self.path):
                return []  # it has moved, and is examined in its new place
            if self.table is None or not (self.table.refresh() or self.is_active()):
                break
            time.sleep(0.1)  # a writer has written one of two files, and the other follows
            self.progress = ProgressCounter()  # records that are read again are not counted again
        return findings

    def is_active(self) -> bool:
        """Return whether the state of the task was written just now."""
        try:
            return time.time() - (self.path / "state.json").stat().st_mtime < ACTIVE_SECONDS
        except OSError:
            return False

    def _check(self) -> Iterator[Finding]:
        try:
            with directory_handle(self.path) as self._dir_fd:
                yield from self._check_open_task()
        except FileNotFoundError:
            return
        except (OSError, Refused) as error:
            yield problem(self.where, f"It cannot be opened: {_describe(error)}")

    def _check_open_task(self) -> Iterator[Finding]:
        holder = find_holder(self._dir_fd)
        yield from _check_entries(self._dir_fd, self.where)
        for name in FOLDERS:
            with (
                suppress(OSError, Refused),
                directory_handle(name, self._dir_fd) as folder_fd,
            ):  # else its entry says why
                yield from _check_entries(folder_fd, f"{self.where}/{name}")
                if name == "blobs":
                    self._blobs = {entry.removesuffix(".gz") for entry in os.listdir(folder_fd)}
        if holder is None:
            yield from self._check_documents()
        else:
            yield note(self.where, f"It is being written by {holder}, so it is not repaired now.")
        for kind, (name, field) in LISTS.items():
            if field:
                where = f"{self.where}/{list_path(name, self.uuid)}"
                yield from limit_findings(where, self._check_list(kind, where, is_held=holder is not None))
        yield from limit_findings(f"{self.where}/blobs", self._check_blobs())

    # documents and row: they agree only while the task has no writer

    def _check_documents(self) -> Iterator[Finding]:
        if exists(LOCK, self._dir_fd):
            yield note(f"{self.where}/.lock", "Its holder died without releasing the lease.", fixable=True)
        for place in PLACES:
            if place != self.place and os.path.lexists(self.base / place / self.uuid):
                yield problem(self.where, f"There is a second directory of this task in {place}/. Keep the right one.")
        where = f"{self.where}/metadata.json"
        try:
            metadata = codec.decode_line(read_file("metadata.json", self._dir_fd), Metadata)
        except FileNotFoundError:
            if all(name == "state.json" or name.startswith(".") for name in os.listdir(self._dir_fd)):
                yield note(self.where, "The creation of the task was interrupted.", fixable=True)
            else:
                yield problem(where, "It is missing: what the task worked on is lost. Its lists are still there.")
        except (OSError, Corrupt, Refused) as error:
            yield problem(where, f"It cannot be read: {_describe(error)} Its lists are still there.")
        else:
            if metadata.uuid != self.uuid:
                yield problem(where, f"It belongs to another task ({metadata.uuid}).")
            elif metadata.format > FORMAT:
                newer = f"It has format {metadata.format}; this version of Orihon knows {FORMAT}. Use a newer version."
                yield problem(where, newer)
            else:
                yield from self._check_state(metadata)

    def _check_state(self, metadata: Metadata) -> Iterator[Finding]:
        if metadata.format == 0:
            sentence = "It was written by a program of version 2.0 or 3.0 of the format. It can be used."
            yield note(self.where, sentence)
        row = None
        try:
            row = decode_row(metadata, read_file("state.json", self._dir_fd))
        except (OSError, Corrupt, Refused) as error:
            missing = isinstance(error, FileNotFoundError)
            reason = "It is missing." if missing else f"It cannot be read: {_describe(error)}"
            sentence = f"{reason} It can be restored from the row and the directory."
            level = note if missing and not metadata.format else problem
            yield level(f"{self.where}/state.json", sentence, fixable=True)
        if row is not None and DIRECTORIES[row.status] != self.place:
            belongs = f"it belongs in {DIRECTORIES[row.status]}/: a move was interrupted."
            yield problem(self.where, f"state.json says {row.status}, so {belongs}", fixable=True)
        if self.table is not None:
            yield from self._check_row(row, self.table)

    def _check_row(self, state: TaskRow | None, table: TaskTable) -> Iterator[Finding]:
        try:
            row = table.row(self.uuid)
        except ValidationError as error:
            yield problem(self.where, f"Its row in tasks.db is invalid: {error}.", fixable=True)
            return
        if row is None and table.query("SELECT 1 FROM deleted_tasks WHERE uuid = ?", self.uuid):
            yield note(self.where, f"Its row was deleted from tasks.db. To delete the task, run: rm -r {self.path}")
            return
        if row is None:
            yield problem(self.where, "It has no row in tasks.db, so no list of tasks shows it.", fixable=True)
            return
        if row.lease_owner is not None:
            yield note(self.where, f"Its row names {row.lease_owner} as its holder, which is dead.", fixable=True)
        differences = [
            f"{name} {getattr(row, name)!r}, not {getattr(state, name)!r}"
            for name in rows.COLUMNS
            if state is not None and name not in LEASE_COLUMNS and getattr(row, name) != getattr(state, name)
        ]
        if differences:
            sentence = f"Its row differs from its files: it says {'; '.join(differences[:3])}."
            yield problem(self.where, sentence, fixable=True)

    # lists and blobs

    def _check_list(self, kind: type[Record], where: str, *, is_held: bool) -> Iterator[Finding]:
        try:
            source = open_list(LISTS[kind][0], self.uuid, self._dir_fd)
            if source is None:
                return
            with closing(source):
                size, end, is_sound = source.size, find_end(source), True
                for finding in check_lines(kind, self._lines(source, where, end), self._has_blob, self.progress):
                    is_sound = False
                    yield finding
                if is_held:
                    return
                if size > end:
                    sentence = f"Its last {size - end:,} bytes are an incomplete line, as after a crash."
                    yield problem(where, sentence, fixable=True)
                if kind is Message:
                    yield from self._check_index(source, end, where, is_sound=is_sound)
        except (OSError, StoreError) as error:
            yield problem(where, f"It cannot be read: {_describe(error)} It is left unchanged.")

    def _lines(self, source: Source, where: str, end: int) -> Iterator[Line]:
        for number, line in enumerate(read_lines(source, 0, end), 1):
            yield Line(self.uuid, where, f"Line {number}: ", line.length if line.data is None else line.data)

    def _has_blob(self, _: str, sha256: str) -> bool:
        return sha256 in self._blobs

    def _check_index(self, log: Source, end: int, where: str, *, is_sound: bool) -> Iterator[Finding]:
        """Compare the index with one that is built from the log."""
        changed: list[int] = []  # offsets
        has_index = exists(INDEX, self._dir_fd)
        with ExitStack() as stack:
            old_fd = open_file(INDEX, os.O_RDONLY, self._dir_fd) if has_index else os.open(os.devnull, os.O_RDONLY)
            stack.callback(os.close, old_fd)
            new_file = stack.enter_context(tempfile.TemporaryFile())
            old, new = MessageIndex(old_fd), MessageIndex(new_file.fileno())
            fill_index(new, old, log, end, lambda offset, _: changed.append(offset))
            is_same = all(map(operator.eq, old.entries(), new.entries()))
            is_garbage = os.fstat(old.fd).st_size > 0 and not old.count and new.count > 0
        for offset in changed:
            number = 1 + count_newlines(log, offset)
            yield problem(where, f"Line {number}: {CHANGED}. It can be read, but do not trust it.")
        where = f"{self.where}/{INDEX}"
        if not has_index and new.count:
            yield note(where, "It is missing; it is rebuilt when the task is opened.", fixable=True)
        elif is_sound and (not is_same or is_garbage or old.count > new.count):
            yield problem(where, "It does not match messages.jsonl.", fixable=True)
        elif is_sound and old.count < new.count:
            missing = new.count - old.count
            yield note(where, f"It lacks the newest {missing:,} messages, as after a crash.", fixable=True)

    def _check_blobs(self) -> Iterator[Finding]:
        store = UnopenedStore(self.base)
        for sha256 in sorted(self._blobs):
            if not sha256.startswith("."):
                try:
                    store.blob(self.uuid, sha256)
                except (OSError, OrihonError) as error:
                    sentence = f"{_describe(error)} The line that names it is still there."
                    yield problem(f"{self.where}/blobs/{sha256}", sentence)


def _describe(error: OSError | OrihonError) -> str:
    """Return the reason of an error as a sentence."""
    return error.message if isinstance(error, OrihonError) else f"{error.strerror}."
