"""Repairs of a store of plain files: directories, tasks, and a new `tasks.db`. No record is deleted."""

from __future__ import annotations

import os
import re
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path

from msgspec import ValidationError

from orihon import codec
from orihon.errors import Corrupt, LeaseHeld, UsageError
from orihon.ops.doctor.finding import Finding
from orihon.ops.doctor.sqlite_file import LOG_ENDINGS, TaskTable, check_sqlite_file
from orihon.records import Metadata, Record, TaskRow
from orihon.stores.base import LISTS
from orihon.stores.files import (
    PRIVATE_DIRECTORY,
    PRIVATE_FILE,
    Refused,
    directory_handle,
    disk_errors,
    exists,
    make_directory,
    read_file,
    sync_directory,
)
from orihon.stores.jsonl.append_log import AppendLog
from orihon.stores.jsonl.layout import (
    PLACES,
    decode_row,
    find_place,
    find_task,
    guess_row,
    list_path,
    write_state,
)
from orihon.stores.jsonl.line_reader import find_end, open_list
from orihon.stores.jsonl.lock_file import LockFile, find_holder
from orihon.stores.jsonl.message_index import NAME as INDEX
from orihon.stores.jsonl.message_index import rebuild_index
from orihon.stores.jsonl.tree import TaskTree
from orihon.stores.sql import rows
from orihon.stores.sql.database import Database
from orihon.stores.validation import validate_task_id

TABLE, FRESH = "tasks.db", ".tasks.db.new"
FOLDERS = ("planning", "blobs")  # inside the directory of a task
HINT = "Stop the processes that use this store, then rebuild."

_TEMPORARY = re.compile(r"\..*\.new(-wal|-shm|-journal)?")
_STORE_FILE = re.compile(r"\.?(tasks\.db|search\.db|audit\.jsonl|mask\.key|pause_signal|stop_signal)([-.].*)?")


def is_store_file(name: str) -> bool:
    """Return whether Orihon creates files of this name in the top directory of a store."""
    return _STORE_FILE.fullmatch(name) is not None


def is_temporary(name: str) -> bool:
    """Return whether a file was about to replace another when its writer died."""
    return _TEMPORARY.fullmatch(name) is not None


def is_task_id(name: str) -> bool:
    """Return whether a directory can belong to a task."""
    with suppress(UsageError):
        return bool(validate_task_id(name))
    return False


def iter_tasks(base: Path) -> Iterator[tuple[str, str]]:
    """Yield the place and the id of every task in a store."""
    for place in PLACES:
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(base / place) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False) and is_task_id(entry.name):
                    yield place, entry.name


def open_tree(base: Path) -> TaskTree:
    """Return the tasks of a store with a sound `tasks.db`, without opening the store. `database.close()` closes it."""
    return TaskTree(base, Database(base / TABLE, ("tasks",)), durable=True, report=_ignore)


def repair_directories(base: Path) -> None:
    """Create missing directories, correct the modes of the store's own files, and finish interrupted deletions."""
    for name in ("", *PLACES):
        make_directory(base / name)
        (base / name).chmod(PRIVATE_DIRECTORY)
    with directory_handle(base) as dir_fd:
        _clean_directory(dir_fd, is_store_file)
    tree = open_tree(base)
    with closing(tree.database):
        tree.remove_leftovers()


def repair_task(tree: TaskTree, uuid: str, findings: list[Finding]) -> None:
    """Repair one task. A task that has a writer is left unchanged."""
    with disk_errors(f"Task {uuid} cannot be repaired"), directory_handle(find_task(tree.base, uuid)) as dir_fd:
        if not exists("metadata.json", dir_fd):
            tree.recover(uuid)
            if find_place(tree.base, uuid) is None:
                return  # its creation had only begun
        try:
            lock = LockFile.take(uuid, dir_fd)
        except LeaseHeld:
            return
        try:
            os.fchmod(dir_fd, PRIVATE_DIRECTORY)
            _clean_directory(dir_fd)
            torn = [name for kind, (name, field) in LISTS.items() if field and _repair_tail(name, kind, uuid, dir_fd)]
            if "messages" in torn or any(finding.where.endswith(f"/{INDEX}") for finding in findings):
                _rebuild_index(uuid, dir_fd)
            with suppress(Corrupt, FileNotFoundError):  # without metadata there is no row
                _repair_state(tree, uuid, dir_fd)
        finally:
            lock.release()


def _clean_directory(dir_fd: int, is_ours: Callable[[str], bool] = bool) -> None:
    """Correct modes and remove temporary files in a directory and in the folders of a task."""
    for name in filter(is_ours, os.listdir(dir_fd)):
        with suppress(FileNotFoundError):  # other processes create and delete tasks meanwhile
            mode = os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_mode
            if stat.S_ISDIR(mode) and name in FOLDERS:
                os.chmod(name, PRIVATE_DIRECTORY, dir_fd=dir_fd)
                with directory_handle(name, dir_fd) as folder_fd:
                    _clean_directory(folder_fd)
            elif stat.S_ISREG(mode) and is_temporary(name):
                os.unlink(name, dir_fd=dir_fd)
            elif stat.S_ISREG(mode) and stat.S_IMODE(mode) != PRIVATE_FILE:
                # by name, because closing a handle would end the SQLite locks of this process
                os.chmod(name, PRIVATE_FILE, dir_fd=dir_fd)


def _repair_state(tree: TaskTree, uuid: str, dir_fd: int) -> None:
    """Make state, directory and row agree. A state that cannot be read is set aside."""
    metadata, row = tree.load(uuid, dir_fd)
    try:
        decode_row(metadata, read_file("state.json", dir_fd))
    except Corrupt:
        os.replace("state.json", "state.json.torn", src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
    except FileNotFoundError:
        pass
    if not exists("state.json", dir_fd):
        write_state(row, dir_fd, durable=True)
    tree.move_to_place(row)
    tree.write_row(row)


def _repair_tail(name: str, kind: type[Record], uuid: str, dir_fd: int) -> bool:
    """Set an incomplete last line aside, as opening the list for writing does, and return whether there was one."""
    source = open_list(name, uuid, dir_fd)
    if source is None:
        return False
    with closing(source):
        is_torn = source.size > find_end(source)
    folder, _, file = list_path(name, uuid).rpartition("/")
    with directory_handle(folder or ".", dir_fd) as folder_fd:
        if is_torn and exists(file, folder_fd):
            AppendLog(file, kind, folder_fd, _ignore).close()
    return is_torn


def _rebuild_index(uuid: str, dir_fd: int) -> None:
    """Rebuild the index from the log. Checksums that were written once are carried over."""
    log = open_list("messages", uuid, dir_fd)
    if log is not None:
        with closing(log):
            os.close(rebuild_index(dir_fd, log, find_end(log), _ignore).fd)


def _ignore(*_: object) -> None:
    """Ignore a problem that the examination has already reported."""


# a new tasks.db


def rebuild_table(base: Path) -> Finding:
    """Rebuild `tasks.db` from the files and keep the old one. Raise LeaseHeld if the store is in use."""
    _refuse_if_used(base)
    for end in ("", *LOG_ENDINGS):
        (base / f"{FRESH}{end}").unlink(missing_ok=True)
    with ExitStack() as stack:
        old: TaskTable | None = None
        if (base / TABLE).exists() and not any(item.fixable for item in check_sqlite_file(base / TABLE, "quick_check")):
            old = stack.enter_context(closing(TaskTable(base / TABLE)))
        database = stack.enter_context(closing(Database(base / FRESH, ("tasks",))))

        def fill(connection: sqlite3.Connection) -> int:
            count = 0
            for count, row in enumerate(_read_rows(base, old), 1):  # noqa: B007 - the number of the last one
                rows.insert(connection, row)
            return count

        count = database.transact(fill, durable=True)
    kept_as = _keep_old(base)
    (base / FRESH).replace(base / TABLE)
    sync_directory(base)
    kept = f"; the old one is {kept_as}" if kept_as else ""
    return Finding("fixed", TABLE, f"It was rebuilt from the files, with {count:,} rows{kept}.")


def _read_rows(base: Path, old: TaskTable | None) -> Iterator[TaskRow]:
    """Yield the row that the files of each task say, or else the old row."""
    for place, uuid in iter_tasks(base):
        known = None
        with suppress(ValidationError):
            known = old.row(uuid) if old is not None else None
        with suppress(OSError, Corrupt, Refused), directory_handle(base / place / uuid) as dir_fd:
            metadata = codec.decode_line(read_file("metadata.json", dir_fd), Metadata)
            known = guess_row(metadata, place, known)
            known = decode_row(metadata, read_file("state.json", dir_fd))
        if known is not None:
            yield known


def _refuse_if_used(base: Path) -> None:
    for place, uuid in iter_tasks(base):
        with suppress(OSError, Refused), directory_handle(base / place / uuid) as dir_fd:
            if holder := find_holder(dir_fd):
                sentence = f"Task {uuid} is being written by {holder}, which would go on writing to the old tasks.db."
                raise LeaseHeld(sentence, owner=holder, hint=HINT)
    if not (base / TABLE).exists():
        return
    with suppress(sqlite3.DatabaseError), closing(sqlite3.connect(base / TABLE, timeout=0)) as connection:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("COMMIT")  # closing then copies the log back, so that the old file is complete
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                raise LeaseHeld("tasks.db is open in another process.", hint=HINT) from error
            raise


def _keep_old(base: Path) -> str:
    """Link the old file to a second name, so that there is a `tasks.db` at every moment, and return that name."""
    if not (base / TABLE).exists():
        return ""
    stamp = codec.now().translate(str.maketrans("", "", "-:."))
    kept_as = f"{TABLE}.old-{stamp}"
    for end in ("", *LOG_ENDINGS):
        with suppress(FileNotFoundError):
            (base / f"{kept_as}{end}").hardlink_to(base / f"{TABLE}{end}")
    sync_directory(base)
    for end in LOG_ENDINGS:  # the new file must not meet the log of the old one
        (base / f"{TABLE}{end}").unlink(missing_ok=True)
    return kept_as
