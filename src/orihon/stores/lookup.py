"""A task by its id, or by a beginning of it: the one lookup of the engine and of all commands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from orihon.errors import NotFound, UsageError
from orihon.records import TaskRow
from orihon.stores.base import Query, Store
from orihon.stores.checks import checked


def find_row(store: Store, uuid: str, *, user: str | None = None) -> TaskRow:
    """Return the row of the task with this id, else of the only task whose id begins with it.

    If `user` is given, the tasks of other users do not exist: they are not found, and do not make a beginning
    ambiguous. NotFound if there is no such task, UsageError if several begin alike.
    """
    if not isinstance(uuid, str) or not uuid:
        raise UsageError(f"A task id cannot be {uuid!a}.", hint="Give the id of a task, or its beginning.")
    try:
        checked(uuid)
    except UsageError:  # no task can be called so, and no database needs to see it
        raise NotFound(kind="task", id=uuid) from None
    found = list(store.find(Query(uuid=uuid, user=user, limit=2)))
    if len(found) > 1:
        # the task with exactly this id may be older than the others, or not among the first two
        found = [_exact(store, uuid, user)]
    if not found:
        raise NotFound(kind="task", id=uuid)
    return found[0]


def visible_rows(store: Store, query: Query, user: str | None) -> Iterator[TaskRow]:
    """The rows that a query asks for, the newest first; if `user` is given, only those of that user."""
    if user is not None:
        if query.user not in {None, user}:
            return iter(())
        query = msgspec.structs.replace(query, user=user)
    return store.find(query)


def asked(query: Query) -> dict[str, Any]:
    """What a query asks for, for the audit."""
    plain = Query()
    return {name: value for name in query.__struct_fields__ if (value := getattr(query, name)) != getattr(plain, name)}


def row_if_there(store: Store, uuid: str, *, user: str | None = None) -> TaskRow | None:
    """Return the row of the task with exactly this id; None if there is none that the user may see."""
    return next((row for row in store.find(Query(uuid=uuid, user=user)) if row.uuid == uuid), None)


def _exact(store: Store, uuid: str, user: str | None) -> TaskRow:
    row = row_if_there(store, uuid, user=user)
    if row is None:
        raise UsageError(f"Several tasks begin with {uuid!a}.", hint="Give more of the id.")
    return row
