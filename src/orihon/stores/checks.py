"""What comes from outside is checked here before a store uses it: ids, new tasks, changes of a row."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from orihon.codec import cleaned
from orihon.errors import Conflict, UsageError
from orihon.ingest import Sanitiser
from orihon.records import Metadata, TaskRow
from orihon.tokens import counter

if TYPE_CHECKING:
    from orihon.stores.base import Query

FIXED = frozenset(
    ("uuid", "task_source", "owner", "repo", "task_type", "task_id", "project_id", "task_key", "fence", "unknown")
)
CHANGEABLE = tuple(name for name in TaskRow.__struct_fields__ if name not in FIXED)

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", re.ASCII)
_ROW = dict.fromkeys(("uuid", "task_source", "task_type", "task_id", "task_key", "created_at"), "x")
_ROW["status"] = "running"


def checked(uuid: str) -> str:
    """An id from outside, before it is used for anything."""
    if not isinstance(uuid, str) or not _ID.fullmatch(uuid):
        shown = ascii(uuid)[:80]
        raise UsageError(f"A task id cannot be {shown}.", hint="Allowed are 1 to 64 letters, digits, `_` and `-`.")
    return uuid


def checked_task(uuid: str, create: Metadata, sanitiser: Sanitiser) -> Metadata:
    """A task that is to be made, as it may be stored."""
    if create.uuid != checked(uuid):
        sentence = f"The task is called {uuid}, but its metadata says {create.uuid!a}."
        raise UsageError(sentence, hint="Give both the same id.")
    counter(create.config.get("tokens", "estimate"))  # a name that means nothing is refused now, not at a message
    if sanitiser.text(uuid) != uuid:  # it names the directory, and would be read wherever the task is named
        raise UsageError("The task id holds something that looks like a secret.", hint="Leave the uuid out.")
    try:
        return cleaned(sanitiser.record(create))
    except msgspec.ValidationError as error:
        hint = "orihon.records.Metadata says what each field holds."
        raise UsageError(f"A task cannot be made so: {error}.", hint=hint) from error


def checked_changes(
    changes: dict[str, Any], add: dict[str, int], sanitiser: Sanitiser
) -> tuple[dict[str, Any], dict[str, int]]:
    """Changes of a row that make sense, cleaned and masked."""
    wrong = sorted({name for name in (*changes, *add) if name not in CHANGEABLE})
    if wrong:
        raise UsageError(f"A row has no {wrong[0]!a} to change.", hint=f"There are {', '.join(CHANGEABLE)}.")
    changes = sanitiser.row_changes(changes)
    try:
        msgspec.convert(_ROW | changes | add, TaskRow)
    except msgspec.ValidationError as error:
        hint = "orihon.records.TaskRow says what each column holds."
        raise UsageError(f"The row cannot be changed so: {error}.", hint=hint) from error
    return changes, add


def checked_query(query: Query, sanitiser: Sanitiser) -> Query:
    """A query that names users and keys as they are stored."""
    names = {"user": query.user, "task_key": query.key, "linked_key": query.linked}
    asked = sanitiser.row_changes(names)
    if asked == names:
        return query
    return msgspec.structs.replace(query, user=asked["user"], key=asked["task_key"], linked=asked["linked_key"])


def refuse_if_changed(row: TaskRow, fence: int | None) -> None:
    """Refuse to remove what somebody has written, kept or resumed since it was looked at."""
    if fence is not None and row.fence != fence:
        raise Conflict(f"Somebody has written task {row.uuid} since it was looked at.")
