"""What comes from outside is checked here before a store uses it: ids, new tasks, changes of a row."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from orihon.codec import clean_text, cleaned
from orihon.errors import Conflict, UsageError
from orihon.funnel import admit
from orihon.records import Metadata, TaskRow
from orihon.secrets import KnownSecrets, mask
from orihon.tokens import counter

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


def checked_task(uuid: str, create: Metadata, known: KnownSecrets | None) -> Metadata:
    """A task that is to be made, as it may be stored."""
    if create.uuid != checked(uuid):
        sentence = f"The task is called {uuid}, but its metadata says {create.uuid!a}."
        raise UsageError(sentence, hint="Give both the same id.")
    counter(create.config.get("tokens", "estimate"))  # a name that means nothing is refused now, not at a message
    try:
        return cleaned(admit(create, known))
    except msgspec.ValidationError as error:
        hint = "orihon.records.Metadata says what each field holds."
        raise UsageError(f"A task cannot be made so: {error}.", hint=hint) from error


def checked_changes(
    changes: dict[str, Any], add: dict[str, int], known: KnownSecrets | None
) -> tuple[dict[str, Any], dict[str, int]]:
    """Changes of a row that make sense, cleaned and masked."""
    wrong = sorted({name for name in (*changes, *add) if name not in CHANGEABLE})
    if wrong:
        raise UsageError(f"A row has no {wrong[0]!a} to change.", hint=f"There are {', '.join(CHANGEABLE)}.")
    texts = {name: mask(clean_text(value), known=known) for name, value in changes.items() if isinstance(value, str)}
    try:
        msgspec.convert(_ROW | changes | texts | add, TaskRow)
    except msgspec.ValidationError as error:
        hint = "orihon.records.TaskRow says what each column holds."
        raise UsageError(f"The row cannot be changed so: {error}.", hint=hint) from error
    return changes | texts, add


def refuse_if_changed(row: TaskRow, fence: int | None) -> None:
    """Refuse to remove what somebody has written, kept or resumed since it was looked at."""
    if fence is not None and row.fence != fence:
        raise Conflict(f"Somebody has written task {row.uuid} since it was looked at.")
