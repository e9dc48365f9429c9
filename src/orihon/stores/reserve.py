"""A little room that is kept for a bad day: on a full disk even a deletion needs some, to be written down."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

RESERVE_BYTES = 512 * 1024


def keep(path: Path) -> None:
    """Take the room, if there is any; a disk that is full already has none to keep."""
    with suppress(OSError):
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.fchmod(fd, 0o600)
            if hasattr(os, "posix_fallocate"):  # macOS has none, and keeps nothing
                os.posix_fallocate(fd, 0, RESERVE_BYTES)
        finally:
            os.close(fd)


def give(path: Path) -> bool:
    """Give the room back; whether there was any."""
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    return True
