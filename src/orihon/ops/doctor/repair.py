"""Repairs of a store of plain files that lose nothing. No record is deleted."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

from orihon.errors import Corrupt, LeaseHeld
from orihon.ops.doctor.finding import Finding
from orihon.ops.doctor.readonly import UnopenedStore
from orihon.records import Record
from orihon.stores.base import LISTS
from orihon.stores.files import (
    PRIVATE_DIRECTORY,
    PRIVATE_FILE,
    directory_handle,
    disk_errors,
    exists,
    make_directory,
    read_file,
)
from orihon.stores.jsonl.append_log import AppendLog
from orihon.stores.jsonl.layout import PLACES, decode_row, find_place, find_task, list_path, write_state
from orihon.stores.jsonl.line_reader import find_end, open_list
from orihon.stores.jsonl.lock_file import LockFile
from orihon.stores.jsonl.message_index import NAME as INDEX
from orihon.stores.jsonl.message_index import rebuild_index

FOLDERS = ("planning", "blobs")  # inside the directory of a task

_TEMPORARY = re.compile(r"\..*\.new(-wal|-shm|-journal)?")
_STORE_FILE = re.compile(r"\.?(tasks\.db|search\.db|audit\.jsonl|mask\.key|pause_signal|stop_signal)([-.].*)?")


def is_store_file(name: str) -> bool:
    """Return whether Orihon creates files of this name in the top directory of a store."""
    return _STORE_FILE.fullmatch(name) is not None


def is_temporary(name: str) -> bool:
    """Return whether a file was about to replace another when its writer died."""
    return _TEMPORARY.fullmatch(name) is not None


def repair_directories(base: Path) -> None:
    """Create missing directories, correct the modes of the store's own files, and finish interrupted deletions."""
    for name in ("", *PLACES):
        make_directory(base / name)
        (base / name).chmod(PRIVATE_DIRECTORY)
    with directory_handle(base) as dir_fd:
        _clean_directory(dir_fd, is_store_file)
    with UnopenedStore(base, writable=True) as store:
        store.tree.remove_leftovers()


def repair_task(store: UnopenedStore, uuid: str, findings: list[Finding]) -> None:
    """Repair one task. A task that has a writer is left unchanged."""
    with disk_errors(f"Task {uuid} cannot be repaired"), directory_handle(find_task(store.base, uuid)) as dir_fd:
        if not exists("metadata.json", dir_fd):
            store.tree.recover(uuid)
            if find_place(store.base, uuid) is None:
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
                _repair_state(store, uuid, dir_fd)
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


def _repair_state(store: UnopenedStore, uuid: str, dir_fd: int) -> None:
    """Make state, directory and row agree. A state that cannot be read is set aside."""
    metadata, row = store.tree.load(uuid, dir_fd)
    try:
        decode_row(metadata, read_file("state.json", dir_fd))
    except Corrupt:
        os.replace("state.json", "state.json.torn", src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
    except FileNotFoundError:
        pass
    if not exists("state.json", dir_fd):
        write_state(row, dir_fd, durable=True)
    store.tree.move_to_place(row)
    store.tree.write_row(row)


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
    if log is None:
        return
    with closing(log):
        os.close(rebuild_index(dir_fd, log, find_end(log), _ignore).fd)


def _ignore(*_: object) -> None:
    """Ignore a problem that the examination has already reported."""
