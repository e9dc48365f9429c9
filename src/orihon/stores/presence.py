"""Whether there is a store at a place. Nothing is made by asking."""

from __future__ import annotations

import os
from pathlib import Path

from orihon.errors import UsageError
from orihon.stores import is_postgres, need_psycopg
from orihon.stores.making import PLACES

SQLITE = "sqlite:///"
TABLES = "tasks.db"


def require(url: str) -> None:
    """Refuse a place where there is no store, rather than make one there."""
    if url == "memory:":
        return
    if is_postgres(url):
        need_psycopg()
        return  # connecting says whether there is one
    is_file = url.startswith(SQLITE)
    place = Path(url.removeprefix(SQLITE))
    if "\0" in url or (not is_file and "://" in url):
        raise UsageError(
            f"There is no store for {url!a}.", hint="Give a directory, sqlite:///FILE or postgresql://HOST/DATABASE."
        )
    if place.is_symlink():
        raise UsageError(f"{place} is a link, which Orihon does not follow.", hint="Name the store itself.")
    if is_file and not place.is_file():
        raise UsageError(f"There is no file {place}.", hint="`orihon config` shows where the store is.")
    if not is_file and not is_store(place):
        reason = "there is no tasks.db and no running/ in it" if place.is_dir() else "there is no such directory"
        raise UsageError(f"{place} is not a store: {reason}.", hint="`orihon config` shows where the store is.")


def is_store(base: Path) -> bool:
    """Whether a directory is a store, or was one once."""
    return base.is_dir() and any(os.path.lexists(base / name) for name in (TABLES, *PLACES))
