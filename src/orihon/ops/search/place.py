"""Where the index of a store lies, and where its rows can be asked for quickly."""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from orihon.errors import Corrupt
from orihon.ops.search.index import Index, remove
from orihon.stores.base import Store
from orihon.stores.database import Database
from orihon.stores.jsonl import JsonlStore
from orihon.stores.sqlite import SqliteStore

T = TypeVar("T")


def index_path(store: Store) -> Path | None:
    """`search.db` in the directory of a store, or beside its file; a store that has no place has no index either."""
    if isinstance(store, JsonlStore):
        return store.base / "search.db"
    if isinstance(store, SqliteStore):
        return store.path.with_name(f"{store.path.name}.search.db")
    return None


def with_index(store: Store, work: Callable[[Index], T]) -> T:
    """Do something with the index of a store, where there is no place for one with one that is gone afterwards.

    An index that turns out to be broken is made anew, once.
    """
    path = index_path(store)
    if path is None:
        with tempfile.TemporaryDirectory() as folder, closing(Index(Path(folder) / "search.db")) as index:
            return work(index)
    try:
        with closing(Index(path)) as index:
            return work(index)
    except (Corrupt, zlib.error) as error:
        if isinstance(error, Corrupt) and error.where != str(path):
            raise  # it is the store itself
    remove(path)
    with closing(Index(path)) as index:
        return work(index)


def database_of(store: Store) -> Database | None:
    """The SQLite file that holds the rows of a store, where there is one."""
    if isinstance(store, JsonlStore):
        return store.database
    return store.reader if isinstance(store, SqliteStore) else None
