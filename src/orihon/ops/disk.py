"""What tasks take on the disk now, measured file by file; for a store of files only."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import msgspec

from orihon.errors import NotFound, UsageError
from orihon.ops.access import Desk
from orihon.ops.tally import Tally
from orihon.stores.archiving import size_of
from orihon.stores.base import Query
from orihon.stores.files import Refused, directory_handle
from orihon.stores.jsonl import JsonlStore
from orihon.task.lifecycle import ENDED


class Disk(msgspec.Struct):
    """The disk of tasks that have not ended, and of those that have."""

    active_bytes: int = 0
    ended_bytes: int = 0


def measured(desk: Desk, query: Query, *, tell: Callable[[Tally], None] | None = None) -> Disk:
    """Walk the directories of the tasks that a query asks for."""
    store = desk.store
    if not isinstance(store, JsonlStore):
        raise UsageError("Only tasks in plain files have a disk size of their own.", hint="Leave out --disk.")
    disk, tally = Disk(), Tally(tell=tell)
    for row in desk.rows(query):
        # it was deleted, or moved, a moment ago, or is a link that somebody planted, of which the doctor speaks
        with suppress(NotFound, FileNotFoundError, Refused):
            with directory_handle(store.path_of(row.uuid)) as directory:
                size = size_of(directory)
            name = "ended_bytes" if row.status in ENDED else "active_bytes"
            setattr(disk, name, getattr(disk, name) + size)
            tally.add(tasks=1, size_bytes=size)
    return disk
