"""How a task in plain files is made, and how it is undone when that fails.

It is made under a hidden name and appears in its place in one step, whole and with its lock already held, so nobody
ever meets half a task. What a crash left under a hidden name is removed by whoever opens the store next.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from orihon.errors import Conflict, LeaseHeld, NotFound, OrihonError, OutcomeUnknown, StoreUnavailable
from orihon.records import Metadata, Status, TaskRow
from orihon.stores.files import (
    directory_handle,
    disk_errors,
    make_private_directory,
    open_directory,
    replace_file,
    sync_directory,
)
from orihon.stores.jsonl.layout import DIRECTORIES, NEW, PLACES, TRASH, encode_metadata, write_state
from orihon.stores.jsonl.lock_file import NAME, LockFile

if TYPE_CHECKING:
    from orihon.stores.jsonl.store import JsonlStore

log = logging.getLogger("orihon")

TRIES = 20
PAUSE_SECONDS = 0.005


def make(store: JsonlStore, metadata: Metadata, status: Status) -> tuple[int, LockFile, TaskRow]:
    """A handle on the new task's directory, its lock, and its row."""
    row = TaskRow.new(metadata, status)
    hidden = store.base / f"{NEW}{metadata.uuid}"
    place = store.base / DIRECTORIES[status] / metadata.uuid
    with disk_errors(f"Task {metadata.uuid} cannot be made"):
        directory, lock = _hidden(hidden, metadata.uuid)
        try:
            _fill(directory, metadata, row, durable=store.options.durability != "os")
            _show(store, hidden, place)
        except BaseException:
            unmake(store, metadata.uuid, directory, lock)
            raise
    return directory, lock, row


def _hidden(path: Path, uuid: str) -> tuple[int, LockFile]:
    """A directory of ours; somebody who clears up may take it for a leftover until we hold its lock."""
    for _ in range(TRIES):
        with suppress(FileExistsError):
            make_private_directory(path)
        try:
            directory = open_directory(path)
        except FileNotFoundError:
            continue
        try:
            return directory, LockFile.take(uuid, directory)
        except (NotFound, LeaseHeld):
            os.close(directory)
            time.sleep(PAUSE_SECONDS)  # whoever clears up is done in a moment
        except BaseException:
            os.close(directory)
            raise
    raise Conflict(f"Task {uuid} is being made by another process.")


def _fill(directory: int, metadata: Metadata, row: TaskRow, *, durable: bool) -> None:
    write_state(row, directory, durable=durable, lasting=True)
    replace_file("metadata.json", encode_metadata(metadata), directory, durable=durable)


def _show(store: JsonlStore, hidden: Path, place: Path) -> None:
    try:
        hidden.rename(place)
    except OSError as error:
        if error.errno in {errno.EEXIST, errno.ENOTEMPTY}:
            raise Conflict(f"There is a task {place.name} already.") from None
        raise
    if store.options.durability != "os":
        for parent in (place.parent, store.base):
            sync_directory(parent)


def unmake(store: JsonlStore, uuid: str, directory: int, lock: LockFile) -> None:
    """Remove a task whose creation failed; raise OutcomeUnknown if it may still be there.

    A directory whose lock is no longer ours stays, because another process may have taken it and written to it.
    """
    try:
        with lock.guard:
            for path in (store.base / f"{NEW}{uuid}", *(store.base / place / uuid for place in PLACES)):
                if lock.is_at(f"{path}/{NAME}"):
                    shutil.rmtree(path)
        if store.place_of(uuid) is None:  # or somebody else made a task of that name meanwhile
            with suppress(OrihonError):  # a row that is left is reported as one without a directory
                forget(store, uuid)
    except OSError as error:
        raise OutcomeUnknown(f"Task {uuid} was half made and cannot be removed: {error.strerror}.") from error
    except StoreUnavailable as error:  # another process is in the middle of a write
        raise OutcomeUnknown(f"Task {uuid} was half made and cannot be removed: {error}") from error
    finally:
        lock.release()
        os.close(directory)


def remove(path: Path) -> None:
    """A directory is gone, also when somebody else is removing it at the same time."""
    for _ in range(TRIES):
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            if not path.exists():
                return
        except OSError as error:
            if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
                raise
        else:
            return
        time.sleep(PAUSE_SECONDS)
    log.warning("%s could not be removed; whoever opens the store next tries again.", path)


def forget(store: JsonlStore, uuid: str) -> None:
    """The row is gone."""
    store.database.change("DELETE FROM tasks WHERE uuid = ?", uuid)


def clear_up(store: JsonlStore) -> None:
    """Remove what was left when a task was being made or deleted."""
    for path in (*store.base.glob(f"{TRASH}*"), *store.base.glob(f"{NEW}*")):
        try:
            with directory_handle(path) as directory:
                lock = LockFile.take(path.name, directory)
                try:
                    _, _, uuid = path.name.partition("-")
                    if path.name.startswith(TRASH) and store.place_of(uuid) is None:
                        forget(store, uuid)
                    remove(path)
                finally:
                    lock.release()
        except (LeaseHeld, NotFound, FileNotFoundError):
            continue  # somebody is at it just now
        except (OSError, OrihonError) as error:
            log.warning("%s cannot be removed: %s", path, error)
