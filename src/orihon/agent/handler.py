"""One task from its request to its end: the `TaskHandler` of the specification.

The status says how a task ended: completed; failed with the reason, after a limit, a tool that keeps failing or a model
that refuses; stopped, when the bot was unassigned; paused and resumable, by a pause file, a signal or an unreachable
provider. The label at the source follows when the status is on disk.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from orihon._prompts import read
from orihon.agent.control import (
    ASSIGNED,
    COMMENTS,
    Check,
    make_comment_check,
    make_pause_check,
    make_stop_check,
    make_stop_file_check,
    stop_file_path,
)
from orihon.agent.loop import Limits, Loop, Model, OnStep, PauseRequested, Step, StopRequested, Tools
from orihon.agent.progress_comment import ProgressReporter
from orihon.agent.signals import TimeIsUp, time_limit
from orihon.agent.sources import Comment, Outcome, SeenComments, Source
from orihon.context.language import language_of
from orihon.engine import Engine
from orihon.errors import ContextError, LimitReached, ModelTimeout, OrihonError, RunError, ScriptError, SourceError
from orihon.records import TIMEOUT, Issue, Message, TaskRow
from orihon.task.config import Summariser
from orihon.task.task import Task
from orihon.task_key import TaskKey

log = logging.getLogger("orihon")

OUTCOMES: dict[str, Outcome] = {"completed": "done", "failed": "failed", "paused": "paused", "stopped": "stopped"}


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done, and for whom."""

    key: TaskKey
    request: str
    issue: Issue | None = None  # the fields that the request was rendered from
    user: str | None = None
    uuid: str | None = None
    system: str = ""  # empty for the built-in prompt
    comments: tuple[Comment, ...] = ()  # quoted in the request
    read_at: str = ""  # time when they were read
    assigned: bool = False  # whether the bot was assigned, so that unassigning it stops the task
    notes: dict[str, Any] = {}  # stored with the task, for a resume


class TaskHandler:
    """Runs tasks, one at a time."""

    def __init__(
        self,
        engine: Engine,
        model: Model,
        tools: Tools,
        *,
        source: Source | None = None,
        limits: Limits | None = None,
        planning: bool = False,
        checks: Sequence[Check] = (),
        on_step: OnStep | None = None,
        options: dict[str, Any] | None = None,
        summariser: Summariser | None = None,
        workspace: Path | str | None = None,
        ask_user: Callable[[Sequence[str]], str | None] | None = None,
        paused_by_file: str = "",
        paused_by_signal: str = "interrupted",
        paused_by_failure: str = "",
    ) -> None:
        self.engine, self.model, self.tools, self.source = engine, model, tools, source
        self.limits = limits or Limits(calls=engine.settings.max_llm_process_num)
        self.planning, self.checks, self.on_step = planning, checks, on_step or (lambda _: None)
        self.options, self.summariser = options or {}, summariser
        self.workspace, self.ask_user = workspace, ask_user
        self.paused_by_file, self.paused_by_signal = paused_by_file, paused_by_signal
        self.paused_by_failure = paused_by_failure

    def handle(self, work: Work) -> TaskRow:
        """Run a new task. Return its row."""
        options = {"tools": self.tools.schemas, "summariser": self.summariser} | self.options
        if self.engine.settings.window.language == "auto":  # known before the first message, for what is inherited
            options["language"] = find_language(work)
        return self.run(self.engine.start(work.key, uuid=work.uuid, user=work.user, **options), work)

    def resume(self, uuid: str, work: Work | None = None) -> TaskRow:
        """Continue a task."""
        return self.run(self.engine.resume(uuid, summariser=self.summariser), work)

    def run(self, task: Task, work: Work | None = None) -> TaskRow:
        """Run a task until it ends or pauses. A task that was not begun needs its work."""
        reporter = ProgressReporter(self.source, task, self.engine.settings.planning.progress_comment)
        try:
            with task:
                self._mark(task, "processing")
                try:
                    if work is not None and not task._began:
                        self._add_request(task, work)
                    with time_limit(self.limits.seconds):
                        self._run_turns(task, reporter)
                    self._link(task)
                except (Exception, KeyboardInterrupt, SystemExit) as error:  # noqa: BLE001 - `_end` re-raises
                    reporter.store_state()
                    self._end(task, error)
        finally:
            outcome = OUTCOMES.get(task.row.status)
            if outcome is not None:  # else another process has the task now
                reporter.finish(task.row)
                self._mark(task, outcome)
        return task.row

    def _end(self, task: Task, error: BaseException) -> None:
        """End or pause the task because of an error. Re-raise an unexpected one."""
        match error:
            case PauseRequested():
                task.pause(str(error))
            case StopRequested():
                task.stop(str(error))
                stop_file_path(self.engine.settings.pause_resume, task.uuid).unlink(missing_ok=True)
            case TimeIsUp():
                self._time_out(task, f"The run has reached its limit of {self.limits.seconds:g} seconds.")
            case LimitReached(limit="seconds"):
                self._time_out(task, error.message)
            case ModelTimeout() if not self.paused_by_failure:  # else the queue tries the task again later
                self._time_out(task, error.message)
            case LimitReached():
                task.summariser = None  # the summary costs no further call
                task.fail(error.message, reason=f"limit: {error.limit}")
            case ContextError() | RunError() if error.retryable:
                task.pause(f"{self.paused_by_failure}{error.message}")
            case ContextError() | RunError() | ScriptError():
                task.fail(error.message, reason=type(error).__name__)
            case KeyboardInterrupt() | SystemExit():
                task.pause(self.paused_by_signal)
                raise error
            case _:
                raise error

    def _time_out(self, task: Task, message: str) -> None:
        task.summariser = None  # no further call for the summary
        task.fail(message, reason=TIMEOUT)

    def _add_request(self, task: Task, work: Work) -> None:
        """Add the first two messages. Their keys prevent that a start after a crash adds them twice."""
        seen = SeenComments({"since": work.read_at})
        seen.take_new(work.comments)
        notes = work.notes
        if self.source is not None:
            self._comment(task.row.key, task.inheritance.notice if task.inheritance is not None else "")
            notes = notes | {COMMENTS: seen.state(), ASSIGNED: work.assigned}
        if notes:
            task.writer.event("note", **notes)
        language = find_language(work) if task.config.language == "auto" else task.config.language
        system = [work.system or read("orihon.agent", "system", language), self.engine.settings.system_prompt]
        task.add("system", "\n\n".join(text.strip() for text in system if text.strip()), key="orihon:system")
        task.add("user", work.request, key="orihon:request", issue=work.issue)

    def _run_turns(self, task: Task, reporter: ProgressReporter) -> None:
        def on_step(step: Step) -> None:
            reporter.add_step(step)
            self.on_step(step)

        loop = Loop(task, self.model, self.tools, checks=self._make_checks(), limits=self.limits, on_step=on_step)
        if self.planning:
            from orihon.planning.coordinator import PlanningCoordinator  # noqa: PLC0415 - only planned runs need it

            PlanningCoordinator(loop, self.engine, ask_user=self.ask_user, workspace=self.workspace).run()
        else:
            loop.run_until_done()

    def _make_checks(self) -> list[Check]:
        settings = self.engine.settings
        checks = [*self.checks, make_stop_file_check(settings.pause_resume)]
        checks.append(make_pause_check(settings.pause_resume, self.paused_by_file))
        if self.source is not None:
            checks += [make_stop_check(self.source, settings.task_stop), make_comment_check(self.source)]
        return checks

    def _link(self, task: Task) -> None:
        """Store which pull request the issue became, so that its first run inherits."""
        if self.source is None or task.row.linked_key:
            return
        try:
            linked = self.source.find_linked(task.row.key)
        except SourceError as error:
            log.warning("The links of %s are unknown: %s", task.row.key, error)
            return
        if linked is not None and linked != task.row.key:
            task.link(linked)

    def _mark(self, task: Task, outcome: Outcome) -> None:
        self.on_step(Step(kind="note", text=outcome))
        if self.source is not None:
            mark_outcome(self.source, task.row.key, outcome)

    def _comment(self, key: TaskKey, text: str) -> None:
        try:
            if self.source is not None and text:
                self.source.add_comment(key, text)
        except OrihonError as error:
            log.warning("%s could not be commented on: %s", key, error)


def find_language(work: Work) -> str:
    """Return the language of a request: that of its fields, because the words around them are ours."""
    if work.issue is not None and work.issue.language:
        return work.issue.language
    return language_of([Message(seq=0, role="user", content=work.request, timestamp="", tokens=0)])


def mark_outcome(source: Source, key: TaskKey, outcome: Outcome) -> None:
    """Set the label of an outcome. A failure is only logged: labels must not end a task."""
    try:
        source.mark(key, outcome)
    except OrihonError as error:
        log.warning("%s could not be marked as %s: %s", key, outcome, error)
