"""Freed memory goes back to the system.

An SDK works in several copies of a request, and a fold in several of what it folds. The C library would keep all of
that for a process that mostly waits. It is given back once for every reply, which takes about a millisecond.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache


def give_back() -> None:
    """Let go of what is free; nothing happens where the C library has no way to."""
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _trim() -> Callable[[int], int] | None:
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # it is glibc's own
        return None
