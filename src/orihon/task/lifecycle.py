"""The status of a task: which one may follow which, and how a task pauses or ends.

A task ends in an order that a crash at any point cannot confuse:

    activity `completing` · note `ending` · final summary · status, summary and outline in one step · lease released

The note says how the task was to end, so that the process that takes it after a crash can finish it. The step that
sets the status moves the directory and is atomic, so each outcome happens once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from orihon import codec
from orihon.errors import Conflict, StoreError
from orihon.records import TIMEOUT, Status, TaskRow
from orihon.task.summaries import Summaries
from orihon.task.timeline import Timeline
from orihon.task.tool_calls import ToolCalls
from orihon.task.writer import TaskWriter

TRANSITIONS: Final[dict[Status, frozenset[Status]]] = {
    "pending": frozenset({"running", "stopped", "failed"}),
    "running": frozenset({"paused", "completed", "stopped", "failed"}),
    "paused": frozenset({"running", "stopped", "failed"}),
    "completed": frozenset(),
    "stopped": frozenset(),
    "failed": frozenset(),  # except if it can be resumed: see `can_resume`
}
ENDED: Final[tuple[Status, ...]] = ("completed", "stopped", "failed")
INTERRUPTED: Final = "interrupted"


class Ending(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a task is to end."""

    status: Status
    error: str = ""
    reason: str = ""

    def __str__(self) -> str:
        if self.status == "completed":
            return "Task completed successfully"
        why = self.error or self.reason
        return f"Task {self.status}: {why}" if why else f"Task {self.status}"


def read_ending(notes: dict[str, Any]) -> Ending | None:
    """Return the ending that was begun, if there is one."""
    try:
        ending = msgspec.convert(notes.get("ending"), Ending)
    except msgspec.ValidationError:
        return None
    return ending if ending.status in ENDED else None


def check_transition(row: TaskRow, status: Status) -> None:
    """Raise Conflict unless the task may change to this status."""
    if status not in TRANSITIONS[row.status]:
        already = "already" if row.status in ENDED else "now"
        raise Conflict(
            f"Task {row.uuid} is {row.status} {already}; it cannot become {status}.",
            hint=_advise(row),
            retryable=False,
        )


def can_resume(row: TaskRow) -> bool:
    """Return whether a task can continue: it has not ended, or its process died or its time was up."""
    return row.status not in ENDED or (row.status == "failed" and row.reason in (INTERRUPTED, TIMEOUT))


def check_resume(row: TaskRow) -> None:
    """Raise Conflict if the task has ended."""
    if not can_resume(row):
        raise Conflict(
            f"Task {row.uuid} is {row.status} already; it cannot be resumed.",
            hint=_advise(row),
            retryable=False,
        )


def _advise(row: TaskRow) -> str:
    """Return what the user of an ended task can do. A failed task is not inherited."""
    inherits = "a failed one is not inherited" if row.status == "failed" else "it inherits what this one learned"
    return f"Start a new task with the same key: {inherits}."


class Lifecycle:
    """Pauses and ends a task. Callers hold the writer's lock."""

    def __init__(
        self,
        writer: TaskWriter,
        timeline: Timeline,
        calls: ToolCalls,
        summaries: Summaries,
        on_change: Callable[[Status], None],
    ) -> None:
        self._writer, self._timeline, self._calls, self._summaries = writer, timeline, calls, summaries
        self._on_change = on_change

    @property
    def can_pause(self) -> bool:
        """Whether the task runs and its end has not begun."""
        return self._writer.row.status == "running" and read_ending(self._writer.log.view.state.notes) is None

    def pause(self, reason: str = "") -> None:
        """Pause the task and release the lease."""
        writer = self._writer
        check_transition(writer.row, "paused")
        self._calls.interrupt_running()
        writer.update(status="paused", activity="", last_activity="paused", reason=reason or None)
        self.release()
        writer.logger.info("Task paused%s", f": {reason}" if reason else "")
        self._on_change("paused")

    def close(self) -> None:
        """Release the lease; a task that still runs is paused first."""
        if not self.can_pause or self._writer.lease.lost:  # then another process may pause it
            self._writer.lease.close()
            return
        try:
            self.pause()
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Release the lease. A failure is only logged, because the status is stored already."""
        try:
            self._writer.lease.close()
        except StoreError as error:
            self._writer.logger.warning("%s", error)

    def end(self, ending: Ending) -> None:
        """End a running task."""
        check_transition(self._writer.row, ending.status)
        self._writer.check_running()
        self._begin(ending)

    def drop(self, reason: str = "") -> None:
        """Stop a task that is pending or paused, without resuming it first."""
        check_transition(self._writer.row, "stopped")
        self._begin(Ending("stopped", reason=reason))

    def finish(self, ending: Ending) -> None:
        """Do the rest of an ending that was begun, perhaps by a process that died."""
        from orihon.inheritance import make_outline, render_sections  # noqa: PLC0415 - only a task that ends needs it

        writer = self._writer
        writer.update(activity="completing", last_activity="final_summary")
        ledger = self._summaries.find_ledger()
        summary = self._summaries.make_final(ledger, render_sections(writer.log.view.state.notes))
        writer.lease.sync()
        writer.update(
            status=ending.status,
            activity="",
            completed_at=codec.now(),
            final_summary=summary or None,
            handoff=make_outline(
                writer.lease.store, writer.row, writer.log.view.state.notes, ledger, self._summaries.people
            ),
            error_message=ending.error or None,
            reason=ending.reason or None,
        )
        self.release()
        writer.logger.info("%s", ending)
        self._on_change(ending.status)

    def complete_or_pause(self) -> None:
        """Complete the task; Ctrl-C before the end has begun pauses it, even at the last moment."""
        try:
            self.end(Ending("completed"))
        except Exception:
            raise
        except BaseException:
            if self.can_pause:
                self.pause()
            raise

    def _begin(self, ending: Ending) -> None:
        self._calls.interrupt_running()
        self._timeline.close_tangents()
        self._writer.update(activity="completing")  # how another process finds a task that died here
        self._writer.note(ending=msgspec.to_builtins(ending))
        self.finish(ending)
