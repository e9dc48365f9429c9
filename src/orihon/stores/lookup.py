"""Find a task by its id or by the beginning of its id: the one lookup of the engine and all commands."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol, TypeVar

import msgspec

from orihon.errors import NotFound, UsageError
from orihon.records import TaskRow
from orihon.stores.base import Query, Store
from orihon.stores.validation import validate_task_id


def find_row(store: Store, uuid: str, *, user: str | None = None) -> TaskRow:
    """Return the row of the task with this id, else of the only task whose id begins with it.

    If `user` is given, the tasks of other users do not exist: they are not found, and do not make a beginning
    ambiguous. Raise NotFound if there is no such task, UsageError if the beginning is ambiguous.
    """
    if not isinstance(uuid, str) or not uuid:
        raise UsageError(f"Invalid task id {uuid!a}.", hint="Give the id of a task, or its beginning.")
    try:
        validate_task_id(uuid)
    except UsageError:  # no task can have this id, and no database needs to see it
        raise NotFound(kind="task", id=uuid) from None
    rows = list(store.find(Query(uuid=uuid, user=user, limit=2)))
    if len(rows) > 1 and (exact := row_if_there(store, uuid, user=user)):  # it may be older than the two newest
        return exact
    return choose_by_id(rows, uuid)


class HasId(Protocol):
    """Something that a task id names."""

    @property
    def uuid(self) -> str:
        """The id."""


T = TypeVar("T", bound=HasId)


def choose_by_id(candidates: Iterable[T], uuid: str, *, kind: str = "task", hint: str = "") -> T:
    """Return the candidate with this id, else the only one whose id begins with it.

    Raise NotFound, with the hint, if there is none, and UsageError if the beginning is ambiguous.
    """
    matches = [candidate for candidate in candidates if uuid and candidate.uuid.startswith(uuid)]
    matches = [candidate for candidate in matches if candidate.uuid == uuid] or matches
    if not matches:
        raise NotFound(kind=kind, id=uuid, hint=hint)
    if len(matches) > 1:
        raise UsageError(f"Several {kind}s begin with {uuid!a}.", hint="Give more of the id.")
    return matches[0]


def visible_rows(store: Store, query: Query, user: str | None) -> Iterator[TaskRow]:
    """Return the rows of a query, newest first; if `user` is given, only those of that user."""
    if user is not None:
        if query.user not in {None, user}:
            return iter(())
        query = msgspec.structs.replace(query, user=user)
    return store.find(query)


def describe_query(query: Query) -> dict[str, Any]:
    """Return the conditions of a query, for the audit."""
    default = Query()
    fields = query.__struct_fields__
    return {name: value for name in fields if (value := getattr(query, name)) != getattr(default, name)}


def row_if_there(store: Store, uuid: str, *, user: str | None = None) -> TaskRow | None:
    """Return the row of the task with exactly this id; None if there is none that the user may see."""
    return next((row for row in store.find(Query(uuid=uuid, user=user)) if row.uuid == uuid), None)
