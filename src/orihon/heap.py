"""Freed memory goes back to the system.

An SDK works in several copies of a request, and a fold in several of what it folds. The C library would keep all of
that for a process that mostly waits, and all blocks of a thread as long as one of them is in use.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

STATUS = Path("/proc/self/statm")
SMALL_BYTES = 256 * 1024 * 1024


def clear_up() -> None:
    """Look for garbage and give it back, while there is time for it: Python would do so when somebody waits.

    In a large process both would take long, and a few megabytes do not matter.
    """
    if _resident_bytes() < SMALL_BYTES:
        if gc.isenabled():
            gc.collect()
        give_back()


def give_back() -> None:
    """Let go of what is free, in about a millisecond; nothing happens where the C library has no way to."""
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _trim() -> Callable[[int], int] | None:
    import ctypes  # noqa: PLC0415 - it takes memory, and not everybody comes here

    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # it is glibc's own
        return None


def _resident_bytes() -> int:
    """What the process takes; very much where that cannot be told."""
    try:
        return int(STATUS.read_bytes().split()[1]) * os.sysconf("SC_PAGESIZE")
    except OSError:
        return sys.maxsize
