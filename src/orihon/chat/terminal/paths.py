"""Paths as Tab completes them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

MOST = 200
LOOKED_AT = 5000  # names in one directory


def paths(begun: str, directory: Path) -> list[str]:
    """The files and directories whose path begins so; hidden ones only when asked for."""
    head, slash, tail = begun.rpartition("/")
    try:
        found = sorted(islice(_names(directory / Path(head + slash).expanduser(), tail), MOST))
    except (OSError, ValueError, RuntimeError):  # a directory that is none, a character that no path holds, an odd ~
        return []
    return [f"{head}{slash}{name}" for name in found]


def _names(place: Path, tail: str) -> Iterator[str]:
    with os.scandir(place) as entries:
        for entry in islice(entries, LOOKED_AT):
            is_meant = entry.name.startswith(tail) and (tail.startswith(".") or not entry.name.startswith("."))
            if is_meant and entry.name.isprintable():
                yield f"{entry.name}/" if entry.is_dir() else entry.name
