"""Repairs of a store of plain files: directories, tasks, and a new `tasks.db`. No record is deleted."""

from __future__ import annotations

import os
import re
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

from orihon import codec
from orihon.errors import LeaseHeld, UsageError
from orihon.ops.doctor.check_sql import LOG_ENDINGS
from orihon.ops.doctor.finding import Finding
from orihon.stores.base import Options, Query, Store
from orihon.stores.files import (
    PRIVATE_DIRECTORY,
    PRIVATE_FILE,
    Refused,
    directory_handle,
    disk_errors,
    exists,
    make_directory,
)
from orihon.stores.jsonl.layout import (
    PLACES,
)
from orihon.stores.jsonl.line_reader import find_end, open_list
from orihon.stores.jsonl.lock_file import LockFile, find_holder
from orihon.stores.jsonl.message_index import NAME as INDEX
from orihon.stores.jsonl.message_index import rebuild_index
from orihon.stores.jsonl.store import JsonlStore
from orihon.stores.jsonl.tree import TaskTree
from orihon.stores.sql.database import Database
from orihon.stores.validation import validate_task_id

TABLE = "tasks.db"
FOLDERS = ("planning", "blobs")  # inside the directory of a task
HINT = "Stop the processes that use this store, then rebuild."

_TEMPORARY = re.compile(r"\..*\.new(-wal|-shm|-journal)?")
_STORE_FILE = re.compile(
    r"\.?(tasks\.db|search\.db|audit\.jsonl|statistics\.json|mask\.key|pause_signal|stop_signal)([-.].*)?"
)


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


class UnopenedStore(JsonlStore):
    """A store of plain files that is used without being opened, because opening a store repairs it.

    Only a writable one has rows and leases; it needs a sound `tasks.db`.
    """

    def __init__(self, base: Path, *, writable: bool = False) -> None:
        Store.__init__(self, str(base), Options(report=_ignore))
        self.base, self.leases = base, set()
        if writable:
            self.database = Database(base / TABLE, ("tasks", "deleted"))
            self.tree = TaskTree(base, self.database, durable=True, report=_ignore)


def repair_directories(base: Path) -> None:
    """Create missing directories, correct the modes of the store's own files, and finish interrupted deletions."""
    for name in ("", *PLACES):
        make_directory(base / name)
        (base / name).chmod(PRIVATE_DIRECTORY)
    with directory_handle(base) as dir_fd:
        _clean_directory(dir_fd, is_store_file)
    with UnopenedStore(base, writable=True) as store:
        store.tree.remove_leftovers()


def repair_task(store: JsonlStore, uuid: str, findings: list[Finding]) -> None:
    """Repair one task, by taking and releasing its lease. Raise LeaseHeld for a task that has a writer."""
    with disk_errors(f"Task {uuid} cannot be repaired"), directory_handle(store.task_path(uuid)) as dir_fd:
        if not exists("metadata.json", dir_fd):
            store.tree.recover(uuid)  # its creation may have only begun
            return
        lock = LockFile.take(uuid, dir_fd)
        try:
            os.fchmod(dir_fd, PRIVATE_DIRECTORY)
            _clean_directory(dir_fd)
            if any(finding.where.endswith(f"/{INDEX}") for finding in findings):
                _rebuild_index(uuid, dir_fd)
        finally:
            lock.release()
        store.lease(uuid).close()  # sets incomplete lines aside, and makes state, directory and row agree


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
    """Set `tasks.db` aside and make a new one from the files. Raise LeaseHeld if the store is in use."""
    _refuse_if_used(base)
    kept_as = ""
    if (base / TABLE).exists():
        stamp = codec.now().translate(str.maketrans("", "", "-:."))
        kept_as = f"{TABLE}.old-{stamp}"
        for end in (*LOG_ENDINGS, ""):  # the logs first: a new file must never meet the log of the old one
            with suppress(FileNotFoundError):
                (base / f"{TABLE}{end}").rename(base / f"{kept_as}{end}")
    with JsonlStore(base, Options(report=_ignore)) as store:
        count, _ = store.count(Query())
    kept = f"; the old one is {kept_as}" if kept_as else ""
    return Finding("fixed", TABLE, f"It was rebuilt from the files, with {count:,} rows{kept}.")


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
