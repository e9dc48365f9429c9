"""`metadata.json`, `state.json` and the row of `tasks.db`: one task said three times, and how one follows from another.

`metadata.json` never changes. `state.json` holds everything about a task that does, under the names that people know
from it. Both together give the row, so `tasks.db` can be made again from the files. `handoff.json` says again, for
people, what a task that ended leaves to the next one; nobody reads it back.
"""

from __future__ import annotations

import os
from contextlib import suppress
from operator import attrgetter
from typing import Any

import msgspec

from orihon import codec
from orihon.coerce import decode_json
from orihon.errors import Corrupt, OutcomeUnknown
from orihon.records import Metadata, Status, TaskRow
from orihon.stores.files import drop_spares, replace_file, swap_file

KEPT = ".state.json"
END = "end_of"
BLOCK = 1024  # bytes

DIRECTORIES: dict[Status, str] = {
    "pending": "pending",
    "running": "running",
    "paused": "paused",
    "completed": "completed",
    "stopped": "completed",
    "failed": "completed",
}
PLACES = tuple(dict.fromkeys(DIRECTORIES.values()))
NEW, TRASH = ".new-", ".deleted-"  # the beginning of the name of a task that is being created or deleted

_OLD_NAMES = {"total_tokens": "total_tokens_used", "error_message": "error"}
_FIELDS = (
    *("status", "activity", "started_at", "updated_at", "completed_at", "llm_call_count", "tool_call_count"),
    *("total_tokens", "current_context_tokens", "compression_count", "last_activity", "error_message", "reason"),
    *("resume_count", "attempts", "priority", "kept", "archived", "linked_key", "final_summary", "handoff", "fence"),
    *("process_id", "hostname", "message_count", "size_bytes", "packed_bytes", "summary_count", "summary_failures"),
    *("summarised_tokens", "summary_tokens"),
)
_NAMES = tuple(_OLD_NAMES.get(name, name) for name in _FIELDS)
_values_of = attrgetter(*_FIELDS)


def write_state(row: TaskRow, directory: int, *, durable: bool, lasting: bool) -> bool:
    """Put `state.json` in place of the one before; whether it lasts.

    It changes four times in a turn, and nobody waits for the disk each time: a power cut may leave an older one. What
    must last, a status above all, is synced where that is wanted, and kept under a second name until the next such one.
    The state of a task that ended always lasts, and needs no second name.
    """
    state, ended = encode_state(row), DIRECTORIES[row.status] == "completed"
    if not lasting and not ended:
        swap_file("state.json", _padded(state), directory)
        return False
    drop_spares("state.json", directory)  # they are older than what is to last
    replace_file("state.json", state, directory, durable=durable and ended, whole=durable)
    if ended:
        with suppress(OSError):  # nobody reads it where the state can be read, and that is on the disk
            os.unlink(KEPT, dir_fd=directory)
    else:
        try:
            replace_file(KEPT, state, directory, durable=durable)
        except OSError as error:
            raise OutcomeUnknown(f"state.json was written, but may not last: {error.strerror}.") from error
    return True


def encode_state(row: TaskRow) -> bytes:
    """`state.json`, for people: one line per field, and at the end which state it is the end of."""
    fields = dict(zip(_NAMES, _values_of(row), strict=True), **{END: row.updated_at})
    return msgspec.json.format(msgspec.json.encode(fields), indent=2) + b"\n"


def _padded(state: bytes) -> bytes:
    """As long as most others, so that a power cut cannot leave the length of one with the bytes of another."""
    return state[:-1].ljust(-(-len(state) // BLOCK) * BLOCK - 1) + b"\n"


def encode_handoff(row: TaskRow) -> bytes:
    """`handoff.json`, for people: what the next task on the same thing is told."""
    try:
        outline = decode_json(row.handoff or "null")
    except ValueError:
        outline = row.handoff
    fields = {
        "task_key": row.task_key,
        "status": row.status,
        "completed_at": row.completed_at,
        "summary": row.final_summary,
        "outline": outline,
    }
    return msgspec.json.format(msgspec.json.encode(fields), indent=2) + b"\n"


def encode_metadata(metadata: Metadata) -> bytes:
    """`metadata.json`, for people."""
    return msgspec.json.format(codec.encode(metadata), indent=2) + b"\n"


def row_left(metadata: Metadata, place: str, *, kept: bytes, known: TaskRow | None) -> TaskRow:
    """The row of a task whose state cannot be read: as it was kept, or newer in the table, or what its place says."""
    with suppress(Corrupt):
        row = decode_row(metadata, kept)
        if known is not None and known.status == row.status and (known.updated_at or "") > (row.updated_at or ""):
            return known
        return row
    if known is not None and DIRECTORIES[known.status] == place:
        return known
    status: Status = "failed" if place == "completed" else place  # type: ignore[assignment]
    return TaskRow.new(metadata, status)


def decode_row(metadata: Metadata, state: bytes) -> TaskRow:
    """The row that the two files stand for; Corrupt when the state cannot be read."""
    try:
        fields: dict[str, Any] = decode_json(state, type=dict[str, Any])
        if fields.get(END, fields.get("updated_at")) != fields.get("updated_at"):
            raise ValueError("its end belongs to another state")  # noqa: TRY301 - a disk writes sector by sector
        names = dict(zip(_NAMES, _FIELDS, strict=True))
        known = {names[name]: value for name, value in fields.items() if name in names and value is not None}
        changed = msgspec.to_builtins(TaskRow.new(metadata, known["status"])) | known
        return msgspec.convert(changed, TaskRow)
    except (ValueError, KeyError) as error:
        raise Corrupt(f"state.json of {metadata.uuid} cannot be read: {error}.", where="state.json") from error
