"""One process at a time: the lock of a shadow, and the note in it that tells a successor what was left half-done.

The lock is an flock, and the git commands that are run inherit it. So when a process is killed, the lock is free only
when its git commands have ended as well, and whatever lock files git left behind belong to nobody.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orihon.errors import Conflict
from orihon.stores.files import directory_handle, open_file

NAME = "turn"
WAIT_SECONDS = 30.0
PAUSE_SECONDS = 0.02
MAX_NOTE_BYTES = 10_000
_BUSY = b"\0"


class Turn:
    """The right to use a shadow. `left` is the note of a predecessor that did not end; None when the last one did."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        found = os.pread(fd, MAX_NOTE_BYTES, 0)
        self.left = os.fsdecode(found.partition(b"\0")[0]) if found else None

    def note(self, path: str = "") -> None:
        """Say what is to be removed if this process ends now."""
        os.pwrite(self.fd, os.fsencode(path) + _BUSY, 0)


@contextmanager
def turn(repository: Path) -> Iterator[Turn]:
    """Wait for the lock; then nobody else uses the shadow until this is left."""
    with directory_handle(repository) as within:
        fd = open_file(NAME, os.O_RDWR | os.O_CREAT, within)
    try:
        _lock(fd, repository)
        mine = Turn(fd)
        yield mine
        os.ftruncate(fd, 0)
    finally:
        os.close(fd)


def _lock(fd: int, repository: Path) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in {errno.EAGAIN, errno.EACCES, errno.EINTR}:
                raise
            if time.monotonic() > deadline:
                message = f"Another process has been using the checkpoints in {repository} for {WAIT_SECONDS:.0f} s."
                raise Conflict(message, hint="Wait until it is done, and try again.") from error
            time.sleep(PAUSE_SECONDS)
        else:
            return
