"""Check input before a store uses it: task ids, new tasks, fences."""

from __future__ import annotations

import re

import msgspec

from orihon.codec import clean_record
from orihon.errors import Conflict, UsageError
from orihon.ingest import Sanitiser
from orihon.records import Metadata, TaskRow
from orihon.tokens import counter

_TASK_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", re.ASCII)


def validate_task_id(uuid: str) -> str:
    """Return the id; raise UsageError if it cannot be the id of a task."""
    if not isinstance(uuid, str) or not _TASK_ID.fullmatch(uuid):
        shown = ascii(uuid)[:80]
        raise UsageError(f"Invalid task id {shown}.", hint="Allowed are 1 to 64 letters, digits, `_` and `-`.")
    return uuid


def validate_new_task(uuid: str, metadata: Metadata, sanitiser: Sanitiser) -> Metadata:
    """Return the metadata of a new task as they are stored, cleaned and masked.

    The row repeats a few values of the config, so these must be values that the row can hold.
    """
    if metadata.uuid != validate_task_id(uuid):
        sentence = f"The task id is {uuid}, but the metadata say {metadata.uuid!a}."
        raise UsageError(sentence, hint="Give both the same id.")
    counter(metadata.config.get("tokens", "estimate"))  # an unknown counter is refused now, not at the first message
    if sanitiser.text(uuid) != uuid:  # the id is the name of a directory and appears in every listing
        raise UsageError("The task id looks like a secret.", hint="Leave the uuid out.")
    try:
        msgspec.convert(msgspec.to_builtins(TaskRow.new(metadata, "running")), TaskRow)
        return clean_record(sanitiser.record(metadata))
    except msgspec.ValidationError as error:
        hint = "orihon.records.Metadata describes the fields."
        raise UsageError(f"The task cannot be created: {error}.", hint=hint) from error


def require_fence(row: TaskRow, fence: int | None) -> None:
    """Raise Conflict if the task was written, kept or resumed since its row had this fence."""
    if fence is not None and row.fence != fence:
        raise Conflict(f"Task {row.uuid} was written since it was read.")
