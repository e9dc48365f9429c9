"""Which status may follow which, and how a task ends: in an order that a crash at any point cannot confuse.

    activity `completing` · note `ending` · final summary · status, summary and handoff in one step · lease gone

The note says how the task was to end, so that whoever takes it after a crash can finish it. The step that sets the
status moves the directory and is all or nothing, so each outcome happens once.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from orihon.errors import Conflict
from orihon.records import Status, TaskRow

TRANSITIONS: Final[dict[Status, frozenset[Status]]] = {
    "pending": frozenset({"running", "stopped", "failed"}),
    "running": frozenset({"paused", "completed", "stopped", "failed"}),
    "paused": frozenset({"running", "stopped", "failed"}),
    "completed": frozenset(),
    "stopped": frozenset(),
    "failed": frozenset(),  # but for the one that was interrupted: see `can_resume`
}
ENDED: Final[tuple[Status, ...]] = ("completed", "stopped", "failed")
INTERRUPTED: Final = "interrupted"


class Ending(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a task was to end."""

    status: Status
    error: str = ""
    reason: str = ""


def ending_of(notes: dict[str, Any]) -> Ending | None:
    """The ending that was begun, if there is one."""
    try:
        ending = msgspec.convert(notes.get("ending"), Ending)
    except msgspec.ValidationError:
        return None
    return ending if ending.status in ENDED else None


def check(row: TaskRow, then: Status) -> None:
    """Refuse a transition that is not in the table."""
    if then not in TRANSITIONS[row.status]:
        already = "already" if row.status in ENDED else "now"
        raise Conflict(
            f"Task {row.uuid} is {row.status} {already}; it cannot become {then}.",
            hint="A new task with the same key inherits what this one learned.",
            retryable=False,
        )


def can_resume(row: TaskRow) -> bool:
    """Whether a task can go on: all that have not ended, and the failure that nobody chose."""
    return row.status not in ENDED or (row.status == "failed" and row.reason == INTERRUPTED)


def check_resume(row: TaskRow) -> None:
    """Refuse to go on with a task that has ended."""
    if not can_resume(row):
        raise Conflict(
            f"Task {row.uuid} is {row.status} already; it cannot be resumed.",
            hint="Start a new task with the same key: it inherits what this one learned.",
            retryable=False,
        )


def shown(row: TaskRow) -> str:
    """What a task works on, as the logs show it: `github/acme/shop#27`."""
    place = "/".join(part for part in (row.task_source, row.owner, row.repo) if part)
    place += f"/{row.project_id}" if row.project_id is not None else ""
    return f"{place}#{row.task_id}"


def said(ending: Ending) -> str:
    """How a task ended, for the log."""
    if ending.status == "completed":
        return "Task completed successfully"
    why = ending.error or ending.reason
    return f"Task {ending.status}: {why}" if why else f"Task {ending.status}"
