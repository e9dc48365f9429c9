"""How an ended task in plain files is kept in less room, and how it is cut down to what a later one inherits.

A list is compressed beside the plain one, read back and compared, put in its place, and only then is the plain one
removed, so that at every moment one of the two is whole. Readers take the plain one while there is one. A task that is
cut down says so first (`going`) and when it is done (`stub`), so that whoever cleans next finishes what was begun.
What `state.json` says comes before what the row says, as always.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING

import msgspec

from orihon.errors import Corrupt
from orihon.records import Archived, TaskRow
from orihon.stores.base import LISTS
from orihon.stores.files import create_file, directory_handle, disk_errors, exists, open_file, replace_file, sync
from orihon.stores.jsonl.layout import encode_handoff, write_state
from orihon.stores.jsonl.line_reader import BLOCK_BYTES, GzipSource, PlainSource, compress
from orihon.stores.jsonl.lock_file import NAME, Hold, LockFile
from orihon.stores.jsonl.message_index import NAME as INDEX
from orihon.stores.jsonl.recovery import load
from orihon.stores.sql import rows
from orihon.stores.validation import require_fence

if TYPE_CHECKING:
    from orihon.stores.jsonl.store import JsonlStore

STUB = frozenset({"metadata.json", "state.json", "handoff.json", NAME})
BLOCK = 512  # in which stat counts
WORTH = 0.9  # a blob that stays larger than this share of itself (a picture) is left as it is


def archive(store: JsonlStore, uuid: str, fence: int) -> tuple[int, int]:
    """Compress the lists of a task, and the blobs that get smaller by it; the bytes of both before and after."""
    with _taken(store, uuid, fence, "cannot be compressed") as (directory, row, hold):
        before = _content_bytes(directory)
        for folder in ("", "planning", "blobs"):
            with suppress(FileNotFoundError), directory_handle(folder or ".", directory) as within:
                _pack(
                    [name for name in sorted(os.listdir(within)) if _can_be_packed(folder, name, uuid)],
                    within,
                    hold,
                    worth=WORTH if folder == "blobs" else None,
                )
        after = _content_bytes(directory)
        with hold:
            _say(store, directory, row, "gzip", after)
        return before, after


def cut_down(store: JsonlStore, uuid: str, fence: int | None) -> None:
    """Leave nothing of a task but its stub; its row stays."""
    with _taken(store, uuid, fence, "cannot be cut down") as (directory, row, hold), hold:
        going = _say(store, directory, row, "going", row.packed_bytes)
        if going.final_summary is not None and not exists("handoff.json", directory):
            replace_file("handoff.json", encode_handoff(going), directory, durable=True)
        for name in sorted(set(os.listdir(directory)) - STUB):
            if stat.S_ISDIR(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
                shutil.rmtree(name, dir_fd=directory)
            else:
                os.unlink(name, dir_fd=directory)
        sync(directory)
        _say(store, directory, row, "stub", 0)


def _pack(names: list[str], within: int, hold: Hold, *, worth: float | None = None) -> None:
    """Put compressed files in place of plain ones; with `worth`, only of those that get smaller than this share."""
    packed = [name for name in names if _packed(name, within, worth)]
    if packed:
        sync(within)  # their names are on the disk before the plain ones go
    with hold:  # or another process has the task by now, and appends to the plain ones
        for name in packed:
            os.unlink(name, dir_fd=within)


def _packed(name: str, within: int, worth: float | None) -> bool:
    """Put a compressed file beside a plain one; whether it is worth it."""
    temporary = f".{name}.gz.new"
    with closing(PlainSource(open_file(name, os.O_RDONLY, within))) as plain:
        if not plain.size:
            return False  # `zcat` would find the end of nothing
        try:
            is_worth_it = _compressed(plain, temporary, within, worth)
            if is_worth_it:
                os.replace(temporary, f"{name}.gz", src_dir_fd=within, dst_dir_fd=within)
            else:
                os.unlink(temporary, dir_fd=within)
        except (OSError, Corrupt):
            with suppress(OSError):  # it takes room on a disk that may be full
                os.unlink(temporary, dir_fd=within)
            raise
    return is_worth_it


def _compressed(plain: PlainSource, temporary: str, within: int, worth: float | None) -> bool:
    """Write the compressed file and read it back; whether it is small enough."""
    fd = create_file(temporary, within)
    try:
        compress(plain, fd)
        sync(fd)
        packed = GzipSource(fd)
        if worth is not None and os.fstat(fd).st_size > worth * plain.size:
            return False
        if packed.size != plain.size or any(
            packed.read_at(place, BLOCK_BYTES) != plain.read_at(place, BLOCK_BYTES)
            for place in range(0, plain.size, BLOCK_BYTES)
        ):
            raise Corrupt(f"{temporary} does not read as it was written.")
        return True
    finally:
        os.close(fd)


def size_of(directory: int) -> int:
    """What a directory takes on the disk with all that is in it; what goes away meanwhile does not count."""
    size = 0
    for _, _, files, within in os.fwalk(".", dir_fd=directory):
        size += os.fstat(within).st_blocks * BLOCK
        for file in files:
            with suppress(FileNotFoundError):
                size += os.stat(file, dir_fd=within, follow_symlinks=False).st_blocks * BLOCK
    return size


def _can_be_packed(folder: str, name: str, uuid: str) -> bool:
    """Whether it is a list, or a blob, that is not compressed yet."""
    from orihon.stores.jsonl.store import file_of  # noqa: PLC0415 - the two know each other

    if folder == "blobs":
        return not name.startswith(".") and not name.endswith(".gz")
    path = f"{folder}/{name}" if folder else name
    return path in {file_of(title, uuid) for title, field in LISTS.values() if field}


@contextmanager
def _taken(store: JsonlStore, uuid: str, fence: int | None, what: str) -> Iterator[tuple[int, TaskRow, Hold]]:
    """The directory of a task that nobody writes meanwhile, its row as the files say it, and the hold on it."""
    directory = store.open_task(uuid)
    try:
        with disk_errors(f"Task {uuid} {what}"):
            lock = LockFile.take(uuid, directory)
            try:
                _, row = load(store, uuid, directory)
                require_fence(row, fence)
                yield directory, row, Hold(store.base, uuid, lock)
            finally:
                lock.release()
    finally:
        os.close(directory)


def _content_bytes(directory: int) -> int:
    """The bytes of lists and blobs, as `TaskRow.size_bytes` means them."""
    return sum(
        os.stat(file, dir_fd=within, follow_symlinks=False).st_size
        for _, _, files, within in os.fwalk(".", dir_fd=directory)
        for file in files
        if file not in STUB and file != INDEX
    )


def _say(store: JsonlStore, directory: int, row: TaskRow, archived: Archived, packed_bytes: int | None) -> TaskRow:
    changes = {"archived": archived, "packed_bytes": packed_bytes}
    row = msgspec.structs.replace(row, **changes)
    write_state(row, directory, durable=True, lasting=True)
    store.database.write(lambda connection: rows.update(connection, row.uuid, changes, {}))
    return row
