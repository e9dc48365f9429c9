"""What a crash left half-done in plain files, and how it is finished when somebody looks next.

`state.json` decides. A directory that is elsewhere is moved, a row that says something else is written again, a task
that was never finished being made is removed, and a row without a directory is reported. A task that somebody holds
is left to him.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from orihon import codec
from orihon.coerce import decode_json
from orihon.errors import Corrupt, LeaseHeld, NotFound, OrihonError
from orihon.records import Metadata, Status, TaskRow
from orihon.stores.base import Problem, Query
from orihon.stores.files import (
    create_file,
    directory_handle,
    disk_errors,
    exists,
    open_file,
    read_file,
    sync,
    sync_directory,
    write_all,
)
from orihon.stores.jsonl.layout import DIRECTORIES, KEPT, decode_row, row_left
from orihon.stores.jsonl.line_reader import BLOCK_BYTES, open_gzip
from orihon.stores.jsonl.lock_file import NAME, Hold, LockFile
from orihon.stores.sql import rows

if TYPE_CHECKING:
    from orihon.stores.jsonl.store import JsonlStore

ACTIVE: tuple[Status, ...] = ("pending", "running", "paused")


def reconcile(store: JsonlStore) -> None:
    """Compare the tasks that are not finished with their rows; cheap, because there are few of them."""
    there = {name for place in ACTIVE for name in os.listdir(store.base / place)}
    statement = f"SELECT uuid, status, updated_at FROM tasks WHERE status IN ({', '.join('?' * len(ACTIVE))})"  # noqa: S608
    said = {uuid: (status, updated_at) for uuid, status, updated_at in store.database.all(statement, *ACTIVE)}
    for uuid in sorted(there | said.keys()):
        state = _state_of(store, uuid)
        if state is None or state != said.get(uuid):
            recover(store, uuid)
    if not _completed_agree(store):
        known = {uuid for (uuid,) in store.database.all("SELECT uuid FROM tasks")}
        for uuid in sorted(set(os.listdir(store.base / "completed")) - known):
            recover(store, uuid)


def _completed_agree(store: JsonlStore) -> bool:
    """Whether there are as many completed tasks as rows; a file system that counts directories says so at once.

    Where it does not (ext4 stops at 65,000, btrfs never begins), a row that was written after the last move must do.
    """
    place = (store.base / "completed").stat()
    ended = set(DIRECTORIES) - set(ACTIVE)
    statement = f"SELECT COUNT(*) FROM tasks WHERE status IN ({', '.join('?' * len(ended))})"  # noqa: S608
    ((rows_there,),) = store.database.all(statement, *ended)
    if place.st_nlink > 1:
        return bool(place.st_nlink - 2 == rows_there)
    return rows_there > 0 and place.st_mtime_ns <= _written_at(store)


def _written_at(store: JsonlStore) -> int:
    path = store.database.path
    files = [path.stat()]
    with suppress(FileNotFoundError):
        files.append(path.with_name(f"{path.name}-wal").stat())
    return max(file.st_mtime_ns for file in files if file.st_size)  # an empty log is only as old as this connection


def _state_of(store: JsonlStore, uuid: str) -> tuple[str, str] | None:
    """Status and time of the last change as the files say them; None when they say nothing, or stand at odds."""
    try:
        with directory_handle(store.path_of(uuid)) as directory:
            state = decode_json(read_file("state.json", directory), type=_State)
    except (OrihonError, OSError, ValueError):
        return None  # `recover` finds out what it is, and says so
    return (state.status, state.updated_at) if DIRECTORIES.get(state.status) == store.place_of(uuid) else None


class _State(msgspec.Struct):
    status: Status
    updated_at: str = ""


def recover(store: JsonlStore, uuid: str) -> None:
    """Make directory, state and row of one task agree."""
    try:
        directory = store.open_task(uuid)
    except NotFound:
        store.report(Problem(uuid, "tasks.db", 0, "the task has a row but no directory"))
        return
    except Exception as error:  # noqa: BLE001 - one odd entry must not keep a store from opening
        store.report(Problem(uuid, "tasks", 0, str(error)))
        return
    try:
        lock = LockFile.take(uuid, directory)
    except (OrihonError, OSError) as error:
        os.close(directory)
        if not isinstance(error, LeaseHeld):  # somebody works on it: it is his to finish
            store.report(Problem(uuid, NAME, 0, str(error)))
        return
    try:
        with Hold(store.base, uuid, lock):
            if not exists("metadata.json", directory):
                _discard(store, uuid, directory)
                return
            _, row = load(store, uuid, directory)
            settle(store, uuid, row)
            store.database.write(lambda connection: rows.insert(connection, row))
    except (OrihonError, OSError) as error:  # one broken task must not keep the others from being used
        store.report(Problem(uuid, "metadata.json", 0, str(error)))
    finally:
        lock.release()
        os.close(directory)


def load(store: JsonlStore, uuid: str, directory: int) -> tuple[Metadata, TaskRow]:
    """What the files of a task say; a state that was torn is put together from what is left."""
    metadata = codec.decode_line(read_file("metadata.json", directory), Metadata)
    try:
        return metadata, decode_row(metadata, read_file("state.json", directory))
    except (Corrupt, FileNotFoundError) as error:
        store.report(Problem(uuid, "state.json", 0, f"{error}; it is written again from what is left"))
    # a query finds all ids that begin so, and another task's row must never stand in
    known = next((row for row in rows.find(store.database, Query(uuid=uuid)) if row.uuid == uuid), None)
    kept = read_file(KEPT, directory) if exists(KEPT, directory) else b""
    return metadata, row_left(metadata, store.place_of(uuid) or "", kept=kept, known=known)


def settle(store: JsonlStore, uuid: str, row: TaskRow) -> None:
    """Move a task to the directory of its status, if it is not there."""
    source, target = store.path_of(uuid), store.base / DIRECTORIES[row.status] / uuid
    if source != target:
        with disk_errors(f"Task {uuid} cannot be moved to {target.parent.name}/"):
            source.rename(target)
            if store.options.durability != "os":
                sync_directory(target.parent)
                sync_directory(source.parent)


def thaw(name: str, within: int) -> None:
    """A list that retention had compressed becomes plain again, because somebody wants to write it."""
    packed = f"{name}.gz"
    if exists(name, within) or not exists(packed, within):
        return
    source = open_gzip(open_file(packed, os.O_RDONLY, within))
    fd = create_file(f".{name}.new", within)
    try:
        for place in range(0, source.size, BLOCK_BYTES):
            write_all(fd, source.read_at(place, BLOCK_BYTES))
        sync(fd)
    finally:
        os.close(fd)
        source.close()
    os.replace(f".{name}.new", name, src_dir_fd=within, dst_dir_fd=within)
    sync(within)
    with suppress(FileNotFoundError):
        os.unlink(packed, dir_fd=within)


def _discard(store: JsonlStore, uuid: str, directory: int) -> None:
    """A task that was never finished being made: nobody was told that it exists."""
    begun = {"state.json", ".lock"}
    if any(name not in begun and not name.startswith(".") for name in os.listdir(directory)):
        store.report(Problem(uuid, "metadata.json", 0, "it is missing; what else is there is left as it is"))
        return
    shutil.rmtree(store.path_of(uuid), ignore_errors=True)
