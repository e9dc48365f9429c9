"""The layout of a task's directory: where it is, the names of its files, and the JSON documents in it.

`metadata.json` never changes. `state.json` holds everything about a task that does. Both together give the row of
`tasks.db`, which can be rebuilt from them. `handoff.json` repeats for people what an ended task leaves to the next one;
it is never read back.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec

from orihon import codec
from orihon.coerce import decode_json
from orihon.errors import Corrupt, NotFound
from orihon.records import TIMEOUT, Metadata, Record, Status, TaskRow
from orihon.stores.base import LISTS
from orihon.stores.files import disk_errors, open_directory, replace_file
from orihon.stores.validation import validate_task_id

DIRECTORIES: dict[Status, str] = {
    "pending": "pending",
    "running": "running",
    "paused": "paused",
    "completed": "completed",
    "stopped": "completed",
    "failed": "completed",
}
PLACES = tuple(dict.fromkeys(DIRECTORIES.values()))
NEW, TRASH = ".new-", ".deleted-"  # prefixes of directories that are being created or deleted
LOCK = ".lock"
STUB = frozenset({"metadata.json", "state.json", "handoff.json", LOCK})  # what is left of a task that was cut down
OLD_STATES = (".state.json", ".state.json.spare", ".state.json.spare.new")  # of earlier versions
KINDS: dict[str, type[Record]] = {name: kind for kind, (name, _) in LISTS.items()}

# in `state.json` the status of a running task says what it does, and a timeout is a status of its own
ACTIVITIES = ("initializing", "processing", "compressing", "completing")

_OLD_NAMES = {"total_tokens": "total_tokens_used", "error_message": "error"}
_FIELDS = (
    *("status", "activity", "started_at", "updated_at", "completed_at", "llm_call_count", "tool_call_count"),
    *("total_tokens", "current_context_tokens", "compression_count", "last_activity", "error_message", "reason"),
    *("resume_count", "attempts", "priority", "kept", "archived", "linked_key", "final_summary", "handoff", "fence"),
    *("process_id", "hostname", "message_count", "size_bytes", "packed_bytes", "summary_count", "summary_failures"),
    *("summarised_tokens", "summary_tokens", "retention_count", "retention_sum"),
)
_NAMES = tuple(_OLD_NAMES.get(name, name) for name in _FIELDS)
_get_values = attrgetter(*_FIELDS)


def find_place(base: Path, uuid: str) -> str | None:
    """Return the name of the directory that a task is in. It may be moving, so there are two tries."""
    for _ in range(2):
        for place in PLACES:
            if os.path.lexists(base / place / uuid):
                return place
    return None


def find_task(base: Path, uuid: str) -> Path:
    """Return the directory of a task; raise NotFound if there is none."""
    place = find_place(base, validate_task_id(uuid))
    if place is None:
        raise NotFound(kind="task", id=uuid)
    return base / place / uuid


def open_task(base: Path, uuid: str) -> int:
    """Return a descriptor of the directory of a task, which stays valid when the task moves."""
    for _ in range(3):
        path = find_task(base, uuid)
        with disk_errors(f"Task {uuid} cannot be opened"), suppress(FileNotFoundError):
            return open_directory(path)  # or it moved in between
    raise NotFound(kind="task", id=uuid)


@contextmanager
def task_directory(base: Path, uuid: str) -> Iterator[int]:
    """Open the directory of a task for the time of a block."""
    directory = open_task(base, uuid)
    try:
        yield directory
    finally:
        os.close(directory)


def list_path(name: str, uuid: str) -> str:
    """Return the path of a list, relative to the task's directory."""
    if name == "metadata":
        return "metadata.json"
    return f"planning/{uuid}.jsonl" if name == "planning" else f"{name}.jsonl"


def write_state(row: TaskRow, directory: int, *, durable: bool) -> None:
    """Replace `state.json`.

    It changes four times in a turn, and a turn does not wait for the disk each time: without `durable`, a power cut may
    leave an older state or none that can be read. `TaskTree.load` then takes the row of `tasks.db`.
    """
    replace_file("state.json", encode_state(row), directory, durable=durable)


def encode_state(row: TaskRow) -> bytes:
    """Return `state.json`, one line per field."""
    return _encode_document(dict(zip(_NAMES, _get_values(row), strict=True)) | {"status": _to_word(row)})


def _to_word(row: TaskRow) -> str:
    if row.status == "running":
        return row.activity or "processing"
    return TIMEOUT if row.status == "failed" and row.reason == TIMEOUT else row.status


def decode_status(word: str) -> Status:
    """Return the status that a word of `state.json` stands for; raise ValidationError if there is no such word."""
    if word in ACTIVITIES:
        return "running"
    status: Status = msgspec.convert("failed" if word == TIMEOUT else word, Status)
    return status


def encode_handoff(row: TaskRow) -> bytes:
    """Return `handoff.json`: what the next task on the same key inherits."""
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
    return _encode_document(fields)


def encode_metadata(metadata: Metadata) -> bytes:
    """Return `metadata.json`."""
    return msgspec.json.format(codec.encode(metadata), indent=2) + b"\n"


def _encode_document(fields: dict[str, Any]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(fields), indent=2) + b"\n"


def decode_row(metadata: Metadata, state: bytes) -> TaskRow:
    """Return the row that both documents stand for; raise Corrupt if the state cannot be read."""
    try:
        fields: dict[str, Any] = decode_json(state, type=dict[str, Any])
        names = dict(zip(_NAMES, _FIELDS, strict=True))
        known = {names[name]: value for name, value in fields.items() if name in names and value is not None}
        word = known["status"]
        known["status"] = status = decode_status(word)
        if word in ACTIVITIES:
            known["activity"] = word
        elif word == TIMEOUT:
            known["reason"] = TIMEOUT
        return msgspec.convert(msgspec.to_builtins(TaskRow.new(metadata, status)) | known, TaskRow)
    except (ValueError, KeyError) as error:
        raise Corrupt(f"state.json of {metadata.uuid} cannot be read: {error}.", where="state.json") from error


def guess_row(metadata: Metadata, place: str, row: TaskRow | None) -> TaskRow:
    """Return the row of a task without a readable state: that of `tasks.db`, else one for the task's directory."""
    if row is not None and DIRECTORIES[row.status] == place:
        return row
    status: Status = "failed" if place == "completed" else place  # type: ignore[assignment]
    return TaskRow.new(metadata, status)
