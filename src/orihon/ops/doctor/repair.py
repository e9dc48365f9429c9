"""What can be repaired without losing anything; nothing that anybody wrote is deleted here."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

from orihon.errors import Corrupt, LeaseHeld
from orihon.ops.doctor.entries import FOLDERS, is_ours, is_temporary
from orihon.ops.doctor.finding import Finding
from orihon.records import Record
from orihon.stores.base import LISTS, Options, Store
from orihon.stores.files import (
    PRIVATE_DIRECTORY,
    PRIVATE_FILE,
    create_file,
    directory_handle,
    disk_errors,
    exists,
    make_directory,
    open_file,
    read_file,
)
from orihon.stores.jsonl.append_log import AppendLog
from orihon.stores.jsonl.creation import clear_up
from orihon.stores.jsonl.layout import PLACES, decode_row, write_state
from orihon.stores.jsonl.line_reader import Source, whole_size
from orihon.stores.jsonl.lock_file import LockFile
from orihon.stores.jsonl.message_index import MessageIndex, rebuild
from orihon.stores.jsonl.recovery import load, recover, settle
from orihon.stores.jsonl.store import JsonlStore, file_of, open_list
from orihon.stores.sql import rows
from orihon.stores.sql.database import Database


class Bench(JsonlStore):
    """A store of plain files that does not repair itself when it is opened, so that every repair can be told."""

    def __init__(self, base: Path) -> None:
        Store.__init__(self, str(base), Options(report=_silence))
        self.base, self.leases = base, set()
        self.database = Database(base / "tasks.db", ("tasks",))


def _silence(*_: object) -> None:
    """The doctor says it in his own words."""


def mend_directories(base: Path) -> None:
    """Modes of the store and of what stands beside its tasks, and what a deletion left."""
    for name in ("", *PLACES):
        make_directory(base / name)
        (base / name).chmod(PRIVATE_DIRECTORY)
    with directory_handle(base) as directory:
        _tidy(directory, is_ours)
    with Bench(base) as bench:
        clear_up(bench)


def mend_task(bench: Bench, uuid: str, found: list[Finding]) -> None:
    """All that is fixable in one task; a task that somebody holds is left to him."""
    with disk_errors(f"Task {uuid} cannot be repaired"), directory_handle(bench.path_of(uuid)) as directory:
        if not exists("metadata.json", directory):
            recover(bench, uuid)
            if bench.place_of(uuid) is None:
                return  # it had only just begun to be made
        try:
            lock = LockFile.take(uuid, directory)
        except LeaseHeld:
            return
        try:
            os.fchmod(directory, PRIVATE_DIRECTORY)
            _tidy(directory)
            torn = [name for kind, (name, field) in LISTS.items() if field and _mend_tail(name, kind, uuid, directory)]
            if "messages" in torn or any(finding.where.endswith("/messages.idx") for finding in found):
                _mend_index(uuid, directory)
            with suppress(Corrupt, FileNotFoundError):  # without metadata there is no row to be made
                _mend_state(bench, uuid, directory)
        finally:
            lock.release()


def _tidy(directory: int, chosen: Callable[[str], bool] = bool) -> None:
    """Modes and temporary files, in a directory and in those of a task inside it."""
    for name in filter(chosen, os.listdir(directory)):
        with suppress(FileNotFoundError):  # tasks are made and deleted meanwhile
            _tidy_one(name, directory)


def _tidy_one(name: str, directory: int) -> None:
    mode = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
    if stat.S_ISDIR(mode) and name in FOLDERS:
        os.chmod(name, PRIVATE_DIRECTORY, dir_fd=directory)
        with directory_handle(name, directory) as folder:
            _tidy(folder)
    elif stat.S_ISREG(mode) and is_temporary(name):
        os.unlink(name, dir_fd=directory)
    elif stat.S_ISREG(mode) and stat.S_IMODE(mode) != PRIVATE_FILE:
        # by its name, because a handle that is closed would end SQLite's locks of this process
        os.chmod(name, PRIVATE_FILE, dir_fd=directory)


def _mend_state(bench: Bench, uuid: str, directory: int) -> None:
    """State, directory and row agree; a state that cannot be read is kept aside."""
    metadata, row = load(bench, uuid, directory)
    try:
        decode_row(metadata, read_file("state.json", directory))
    except Corrupt:
        os.replace("state.json", "state.json.torn", src_dir_fd=directory, dst_dir_fd=directory)
    except FileNotFoundError:
        pass
    if not exists("state.json", directory):
        write_state(row, directory, durable=True, lasting=True)
    settle(bench, uuid, row)
    bench.database.write(lambda connection: rows.insert(connection, row))


def _mend_tail(name: str, kind: type[Record], uuid: str, directory: int) -> bool:
    """Put a torn end aside, as whoever opens the list for writing does; whether there was one."""
    source = open_list(name, uuid, directory)
    if source is None:
        return False
    with closing(source):
        torn = source.size - whole_size(source)
    folder, _, file = file_of(name, uuid).rpartition("/")
    with directory_handle(folder or ".", directory) as within:
        if torn and exists(file, within):
            AppendLog(file, kind, within, _silence).close()
    return bool(torn)


def _mend_index(uuid: str, directory: int) -> None:
    """Build the index anew; checksums that were written once are carried over."""
    log = open_list("messages", uuid, directory)
    if log is None:
        return
    with closing(log):
        _rebuild_index(log, directory)


def _rebuild_index(log: Source, directory: int) -> None:
    old = MessageIndex(open_file("messages.idx", os.O_RDWR | os.O_CREAT, directory))
    try:
        new = MessageIndex(create_file(".messages.idx.new", directory))
        try:
            rebuild(old, new, log, whole_size(log), _silence)
        finally:
            os.close(new.fd)
    finally:
        os.close(old.fd)
    os.replace(".messages.idx.new", "messages.idx", src_dir_fd=directory, dst_dir_fd=directory)
