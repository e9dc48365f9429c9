"""The one comment that shows the progress of a task: written once, edited in place, never a reason to stop.

It is edited at most once in `min_seconds`, and less often while the source fails; the next edit contains what happened
in between. The end is always written, with a few attempts. Failures of the source are logged. A deleted comment is
written again. The state is stored with the task, so that a resumed task continues the same comment.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any

from msgspec import Struct

from orihon import codec
from orihon.agent.loop import Step
from orihon.agent.sources import Source
from orihon.agent.sources.issue import join_line, remove_invisible, shorten_middle
from orihon.agent.sources.rest_client import GONE, NOT_FOUND
from orihon.errors import OrihonError, SourceError
from orihon.ingest import mask_output
from orihon.planning.history import read_run
from orihon.planning.schema import Action
from orihon.records import TaskRow
from orihon.retry import Backoff
from orihon.settings.schema import ProgressComment as ProgressSettings
from orihon.task.task import Task
from orihon.task_key import TaskKey

log = logging.getLogger("orihon")

MIN_SECONDS = 15.0
MAX_PAUSE_SECONDS = 300.0
MAX_CHARS = 50_000
MAX_TEXT_CHARS = 4_000
MAX_STEPS = 100
MAX_ENTRY_CHARS = 160
MAX_SEARCHED_MESSAGES = 20  # for the model's last text
NOTE = "progress"
PHASES = ("planning", "execution", "verification")


class Report(Struct, frozen=True, kw_only=True):
    """The progress of a task."""

    title: str = ""
    status: str = ""
    phase: str = ""  # one of PHASES, if the task is planned
    text: str = ""
    calls: int = 0
    steps: tuple[tuple[str, bool], ...] = ()  # and whether each is done


class ProgressComment:
    """Shows reports in one comment."""

    def __init__(
        self,
        source: Source,
        key: TaskKey,
        settings: ProgressSettings | None = None,
        *,
        state: Mapping[str, Any] | None = None,
        min_seconds: float = MIN_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.source, self.key, self.settings = source, key, settings or ProgressSettings()
        self.min_seconds, self._clock, self._sleep = min_seconds, clock, sleep
        self._failing = Backoff(first_seconds=2 * min_seconds, longest_seconds=MAX_PAUSE_SECONDS, jitter=0)
        self.report = Report()
        self.comment_id: str = (state or {}).get("comment_id", "")
        self._entries = deque[str]((state or {}).get("entries", ()), maxlen=self.settings.max_history_entries)
        self._shown = ""
        self._next = clock()
        self._failures = 0

    def show(self, report: Report | None = None, entry: str = "") -> None:
        """Take a report and a line of history. The comment follows when an edit is due."""
        self._take(report, entry)
        if self._clock() >= self._next:
            self._write_or_log()

    def finish(self, report: Report | None = None, entry: str = "") -> None:
        """Write the last report, whenever the last edit was."""
        self._take(report, entry)
        backoff = Backoff(tries=4, first_seconds=2.0, jitter=0, sleep=self._sleep)
        try:
            backoff.call(self._write, should_retry=lambda error: getattr(error, "retryable", False))
        except Exception as error:  # noqa: BLE001 - whatever a source does, the run ends
            log.warning("The progress of %s is not shown: %s", self.key, error)

    def state(self) -> dict[str, Any]:
        """Return what a resumed task needs."""
        return {"comment_id": self.comment_id, "entries": list(self._entries)}

    def _take(self, report: Report | None, entry: str) -> None:
        self.report = report or self.report
        if entry.strip():
            self._entries.append(f"`{codec.now()[11:19]}` {_escape_line(entry)}")

    def _write_or_log(self) -> None:
        try:
            self._write()
        except Exception as error:  # noqa: BLE001 - whatever a source does, the run continues
            self._failures += 1
            self._next = self._clock() + self._failing.pause_seconds(self._failures)
            log.warning("The progress of %s is not shown: %s", self.key, error)

    def _write(self) -> None:
        text = render_report(self.report, list(self._entries))
        if not self.settings.enabled or text == self._shown:
            return
        if self.comment_id:
            try:
                self.source.edit_comment(self.key, self.comment_id, text)
            except SourceError as error:
                if error.status not in {NOT_FOUND, GONE}:
                    raise
                self.comment_id = ""
        if not self.comment_id:
            self.comment_id = self.source.add_comment(self.key, text)
        self._shown, self._failures, self._next = text, 0, self._clock() + self.min_seconds


class ProgressReporter:
    """Keeps the progress comment of one task up to date. Without a source it does nothing."""

    def __init__(self, source: Source | None, task: Task, settings: ProgressSettings) -> None:
        self.task = task
        self._text, self._phase = "", ""
        self._stored = dict(task.log.view.state.notes.get(NOTE) or {})
        self.comment = (
            ProgressComment(source, task.row.key, settings, state=self._stored)
            if source is not None and settings.enabled
            else None
        )

    def add_step(self, step: Step) -> None:
        """Take a step of the run."""
        if self.comment is None or step.kind == "text":
            return
        self._phase = step.phase or self._phase
        entry = ""
        if step.kind == "note":
            self._text = entry = step.text
        elif step.kind == "call" or step.is_error:
            entry = step.text[:MAX_ENTRY_CHARS]
        self.comment.show(self._make_report("working"), entry)
        if self.comment.comment_id != self._stored.get("comment_id", ""):
            self.store_state()

    def store_state(self) -> None:
        """Note which comment it is, so that a resume continues it."""
        if self.comment is None or self.comment.state() == self._stored:
            return
        try:
            self.task.writer.event("note", **{NOTE: self.comment.state()})
            self._stored = self.comment.state()
        except OrihonError as error:
            log.warning("The state of the progress comment could not be stored: %s", error)

    def finish(self, row: TaskRow) -> None:
        """Write how the task ended, and the model's last text."""
        if self.comment is None:
            return
        reason = row.error_message or row.reason
        if row.status == "completed":
            self._text = self._find_last_text() or self._text
        self.comment.finish(self._make_report(f"{row.status}: {reason}" if reason else row.status), row.status)

    def _make_report(self, status: str) -> Report:
        row = self.task.row
        actions: tuple[Action, ...] = ()
        with suppress(OrihonError):
            actions = read_run(self.task.writer.lease.store, row).plan.actions if self._phase else ()
        return Report(
            title=f"Task {row.uuid[:8]}",
            status=status,
            phase=self._phase,
            text=self._text,
            calls=row.llm_call_count,
            steps=tuple((action.purpose or action.tool, action.status == "completed") for action in actions),
        )

    def _find_last_text(self) -> str:
        messages = islice(self.task.log.backwards(((1, self.task.log.last),)), MAX_SEARCHED_MESSAGES)
        with suppress(OrihonError):
            return next((one.text for one in messages if one.role == "assistant" and one.text.strip()), "")
        return ""


def render_report(report: Report, entries: list[str]) -> str:
    """Return the text of the comment. Of a long history the oldest lines are left out."""
    done = sum(is_done for _, is_done in report.steps)
    counts = [
        f"{done} of {len(report.steps)} actions" if report.steps else "",
        f"{report.calls} model calls" if report.calls else "",
    ]
    status = " · ".join(filter(None, [f"**{_escape_line(report.status)}**" if report.status else "", *counts]))
    text = shorten_middle(remove_invisible(mask_output(report.text)).strip(), MAX_TEXT_CHARS)
    quotation = "\n".join(f"> {line}" for line in text.split("\n") if line)
    steps = "\n".join(f"- [{'x' if done else ' '}] {_escape_line(step)}" for step, done in report.steps[:MAX_STEPS])
    heading = f"## {_escape_line(report.title)}" if report.title else ""
    head = "\n\n".join(filter(None, [heading, status, _render_phases(report.phase), quotation, steps]))
    kept, room = [], MAX_CHARS - len(head)
    for entry in reversed(entries):
        room -= len(entry) + 3
        if room < 0:
            break
        kept.append(f"- {entry}")
    if not kept:
        return head
    history = "\n".join(reversed(kept))
    return f"{head}\n\n<details><summary>History ({len(kept)})</summary>\n\n{history}\n\n</details>".lstrip()


def _render_phases(phase: str) -> str:
    """Return `✅ planning → ▶️ execution → verification`."""
    if phase not in PHASES:
        return ""
    present = PHASES.index(phase)
    marks = [("✅ " if index < present else "▶️ " if index == present else "") for index in range(len(PHASES))]
    return " → ".join(map("".join, zip(marks, PHASES, strict=True)))


def _escape_line(text: str) -> str:
    """Return one line that cannot end its section; it is masked before it is shortened."""
    return join_line(mask_output(text)).replace("<", "&lt;")
