"""Compress the files of an ended task, or cut the task down to what a later one inherits.

A file is compressed next to the plain one, read back and compared, put in its place, and only then is the plain one
removed, so that one of the two is always complete. Readers prefer the plain one. A task that is cut down is marked
first (`going`) and when it is done (`stub`), so that an interrupted run is finished by the next. `state.json` is
written before the row, as always.
"""

from __future__ import annotations

import os
import shutil
import stat
from contextlib import closing, suppress

import msgspec

from orihon.errors import Corrupt
from orihon.records import Archived, TaskRow
from orihon.stores.base import LISTS
from orihon.stores.files import (
    create_file,
    directory_handle,
    disk_errors,
    exists,
    open_file,
    replace_file,
    sync,
    write_all,
)
from orihon.stores.jsonl.layout import STUB, encode_handoff, list_path, write_state
from orihon.stores.jsonl.line_reader import BLOCK_BYTES, GzipSource, PlainSource, compress, open_gzip
from orihon.stores.jsonl.lock_file import Hold
from orihon.stores.jsonl.message_index import NAME as INDEX
from orihon.stores.jsonl.tree import TaskTree
from orihon.stores.validation import require_fence

STAT_BLOCK = 512  # bytes
MAX_RATIO = 0.9  # a blob that stays larger than this share of itself (a picture) is not compressed


def archive_task(tree: TaskTree, uuid: str, fence: int) -> tuple[int, int]:
    """Compress the lists of a task, and the blobs that get smaller by it; return the bytes before and after."""
    with disk_errors(f"Task {uuid} cannot be compressed"), tree.locked(uuid) as (directory, hold):
        _, row = tree.load(uuid, directory)
        require_fence(row, fence)
        before = _content_bytes(directory)
        lists = {list_path(name, uuid) for name, field in LISTS.values() if field}
        for folder in ("", "planning", "blobs"):
            with suppress(FileNotFoundError), directory_handle(folder or ".", directory) as dir_fd:
                names = sorted(os.listdir(dir_fd))
                if folder == "blobs":
                    blobs = [name for name in names if not name.startswith(".") and not name.endswith(".gz")]
                    _compress_files(blobs, dir_fd, hold, max_ratio=MAX_RATIO)
                else:
                    _compress_files([name for name in names if os.path.join(folder, name) in lists], dir_fd, hold)  # noqa: PTH118
        after = _content_bytes(directory)
        with hold:
            _mark(tree, directory, row, "gzip", after)
        return before, after


def reduce_to_stub(tree: TaskTree, uuid: str, fence: int | None) -> None:
    """Remove all files of a task but its stub. Its row stays."""
    with disk_errors(f"Task {uuid} cannot be cut down"), tree.locked(uuid) as (directory, hold), hold:
        _, row = tree.load(uuid, directory)
        require_fence(row, fence)
        going = _mark(tree, directory, row, "going", row.packed_bytes)
        if going.final_summary is not None and not exists("handoff.json", directory):
            replace_file("handoff.json", encode_handoff(going), directory, durable=True)
        for name in sorted(set(os.listdir(directory)) - STUB):
            if stat.S_ISDIR(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
                shutil.rmtree(name, dir_fd=directory)
            else:
                os.unlink(name, dir_fd=directory)
        sync(directory)
        _mark(tree, directory, row, "stub", 0)


def unarchive_list(name: str, dir_fd: int) -> None:
    """Decompress a list, so that it can be written."""
    packed, temporary = f"{name}.gz", f".{name}.new"
    if exists(name, dir_fd) or not exists(packed, dir_fd):
        return
    source = open_gzip(open_file(packed, os.O_RDONLY, dir_fd))
    fd = create_file(temporary, dir_fd)
    try:
        for offset in range(0, source.size, BLOCK_BYTES):
            write_all(fd, source.read_at(offset, BLOCK_BYTES))
        sync(fd)
    finally:
        os.close(fd)
        source.close()
    os.replace(temporary, name, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
    sync(dir_fd)
    with suppress(FileNotFoundError):
        os.unlink(packed, dir_fd=dir_fd)


def measure_directory(directory: int) -> int:
    """Return the bytes that a directory takes on disk with all that is in it."""
    size = 0
    for _, _, files, dir_fd in os.fwalk(".", dir_fd=directory):
        size += os.fstat(dir_fd).st_blocks * STAT_BLOCK
        for file in files:
            with suppress(FileNotFoundError):  # it was removed meanwhile
                size += os.stat(file, dir_fd=dir_fd, follow_symlinks=False).st_blocks * STAT_BLOCK
    return size


def _compress_files(names: list[str], dir_fd: int, hold: Hold, *, max_ratio: float | None = None) -> None:
    """Replace plain files by compressed ones; with `max_ratio`, only those that get smaller than this share."""
    compressed = [name for name in names if _compress_file(name, dir_fd, max_ratio)]
    if compressed:
        sync(dir_fd)  # their names are on disk before the plain files go
    with hold:  # or another process has the task by now and appends to the plain files
        for name in compressed:
            os.unlink(name, dir_fd=dir_fd)


def _compress_file(name: str, dir_fd: int, max_ratio: float | None) -> bool:
    """Put a compressed file next to a plain one; return whether it is small enough."""
    temporary = f".{name}.gz.new"
    with closing(PlainSource(open_file(name, os.O_RDONLY, dir_fd))) as plain:
        if not plain.size:
            return False  # zcat takes an empty file for a broken one
        try:
            is_small = _write_compressed(plain, temporary, dir_fd, max_ratio)
            if is_small:
                os.replace(temporary, f"{name}.gz", src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
            else:
                os.unlink(temporary, dir_fd=dir_fd)
        except (OSError, Corrupt):
            with suppress(OSError):  # it takes space on a disk that may be full
                os.unlink(temporary, dir_fd=dir_fd)
            raise
    return is_small


def _write_compressed(plain: PlainSource, temporary: str, dir_fd: int, max_ratio: float | None) -> bool:
    """Write the compressed file and read it back; return whether it is small enough."""
    fd = create_file(temporary, dir_fd)
    try:
        compress(plain, fd)
        sync(fd)
        packed = GzipSource(fd)
        if max_ratio is not None and os.fstat(fd).st_size > max_ratio * plain.size:
            return False
        offsets = range(0, plain.size, BLOCK_BYTES)
        if packed.size != plain.size or any(
            packed.read_at(offset, BLOCK_BYTES) != plain.read_at(offset, BLOCK_BYTES) for offset in offsets
        ):
            raise Corrupt(f"{temporary} does not read as it was written.")
        return True
    finally:
        os.close(fd)


def _content_bytes(directory: int) -> int:
    """Return the bytes of lists and blobs, as `TaskRow.size_bytes` means them."""
    return sum(
        os.stat(file, dir_fd=dir_fd, follow_symlinks=False).st_size
        for _, _, files, dir_fd in os.fwalk(".", dir_fd=directory)
        for file in files
        if file not in STUB and file != INDEX
    )


def _mark(tree: TaskTree, directory: int, row: TaskRow, archived: Archived, packed_bytes: int | None) -> TaskRow:
    row = msgspec.structs.replace(row, archived=archived, packed_bytes=packed_bytes)
    write_state(row, directory, durable=True)
    tree.database.write_row(row, "archived", "packed_bytes")
    return row
