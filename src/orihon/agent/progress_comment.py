"""What a run says in its one progress comment, made from what happens in it; nothing here can end a run."""

from __future__ import annotations

import logging

from orihon.agent.loop import Step
from orihon.agent.sources.base import Source
from orihon.agent.sources.progress import Progress, Report
from orihon.errors import OrihonError
from orihon.planning.history import read_run
from orihon.planning.schema import Plan
from orihon.records import TaskRow
from orihon.settings.schema import ProgressComment
from orihon.task.task import Task

log = logging.getLogger("orihon")

NOTE = "progress"
PHASES = ("planning", "execution", "verification")
ENTRY_CHARS = 160


class Reporting:
    """The comment of one task; without a source nobody reads it, and nothing is done."""

    def __init__(self, source: Source | None, task: Task, settings: ProgressComment) -> None:
        self.task = task
        self._said, self._phase = "", ""
        self._kept = dict(task.history.view.state.notes.get(NOTE) or {})
        self.progress = (
            Progress(source, task.row.key, settings, state=self._kept)
            if source is not None and settings.enabled
            else None
        )

    def watch(self, step: Step) -> None:
        """Take what happened in; the comment follows when it may."""
        if self.progress is None or step.kind == "text":
            return
        self._phase = step.phase or self._phase
        entry = ""
        if step.kind == "note":
            self._said = entry = step.text
        elif step.kind == "call" or step.is_error:
            entry = step.text[:ENTRY_CHARS]
        self.progress.show(self._report("working"), entry)
        if self.progress.comment_id != self._kept.get("comment_id", ""):
            self.keep()

    def keep(self) -> None:
        """Note which comment it is, so that whoever resumes goes on with it."""
        if self.progress is None or self.progress.state() == self._kept:
            return
        try:
            self.task.event("note", **{NOTE: self.progress.state()})
            self._kept = self.progress.state()
        except OrihonError as error:
            log.warning("The progress comment could not be noted: %s", error)

    def finish(self, row: TaskRow) -> None:
        """Write how it ended, and the model's last words."""
        if self.progress is None:
            return
        status = f"{row.status}: {row.error_message or row.reason}" if row.error_message or row.reason else row.status
        if row.status == "completed":
            self._said = self._last_words() or self._said
        self.progress.finish(self._report(status), row.status)

    def _report(self, status: str) -> Report:
        plan, row = self._plan(), self.task.row
        actions = plan.actions if plan is not None else []
        steps = tuple((action.purpose or action.tool, action.status == "completed") for action in actions)
        return Report(
            title=f"Task {row.uuid[:8]}",
            status=status,
            phases=PHASES if plan is not None else (),
            phase=self._phase,
            said=self._said,
            done=sum(done for _, done in steps),
            total=len(steps),
            calls=row.llm_call_count,
            steps=steps,
        )

    def _plan(self) -> Plan | None:
        if not self._phase:
            return None
        try:
            return read_run(self.task.lease.store, self.task.row).plan
        except OrihonError:
            return None

    def _last_words(self) -> str:
        try:
            newest = self.task.history.read(max(1, self.task.history.last - 20), self.task.history.last)
            return next(
                (one.text for one in reversed(list(newest)) if one.role == "assistant" and one.text.strip()), ""
            )
        except OrihonError:
            return ""
