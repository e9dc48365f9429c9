"""Where the index of a store lies, and where its rows can be asked for quickly."""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

from orihon.errors import Corrupt
from orihon.ops.search.index import Index, remove
from orihon.stores import is_postgres
from orihon.stores.base import Store
from orihon.stores.jsonl.store import JsonlStore
from orihon.stores.sql.rows import Reader
from orihon.stores.sql.sqlite import SqliteStore

if TYPE_CHECKING:
    from orihon.stores.sql.postgres import PostgresStore

T = TypeVar("T")


def index_path(store: Store) -> Path | None:
    """`search.db` in the directory of a store, beside its file, or with the person; in memory there is none."""
    return store.sidecar_path("search.db")


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


def database_of(store: Store) -> Reader | None:
    """The database that holds the rows of a store, where there is one."""
    if isinstance(store, JsonlStore):
        return store.database
    if isinstance(store, SqliteStore):
        return store.reader
    return cast("PostgresStore", store).reader if is_postgres(store.url) else None
