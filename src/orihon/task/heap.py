"""The heap of the C library, which keeps what is freed: after a fold it is given back to the system."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache


def give_back() -> None:
    """Return freed memory to the system, where the C library can; it takes less than a millisecond."""
    trim = _find_trim()
    if trim is not None:
        trim(0)


@cache
def _find_trim() -> Callable[[int], int] | None:
    if not sys.platform.startswith("linux"):
        return None
    import ctypes  # noqa: PLC0415 - most tasks never fold

    return getattr(ctypes.CDLL(None), "malloc_trim", None)
