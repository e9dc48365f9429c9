"""A little room that is kept for a full disk: to delete a task, to pause one or to give a lease back takes some."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from orihon.stores.files import Refused, open_file

RESERVE_BYTES = 512 * 1024
STEP_BYTES = 16 * 1024


def keep(path: Path, *, part: bool = False) -> None:
    """Take the room, if there is enough, or a part of it; a disk that is full already has none to keep."""
    with suppress(OSError, Refused):
        fd = open_file(path, os.O_RDWR | os.O_CREAT)
        try:
            _fill(fd, STEP_BYTES if part else RESERVE_BYTES)
        finally:
            os.close(fd)


def _fill(fd: int, least_bytes: int) -> None:
    most = RESERVE_BYTES if hasattr(os, "posix_fallocate") else 0  # macOS has none, and keeps nothing
    for size in range(most, least_bytes - 1, -STEP_BYTES):
        with suppress(OSError):
            os.posix_fallocate(fd, 0, size)
            return


def give(path: Path) -> bool:
    """Give the room back; whether there was any."""
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    return True
