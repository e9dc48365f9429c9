"""One task from its request to its end: the seeds' `TaskHandler`.

However it ends, the status says how: done is completed, a limit, a tool that keeps failing or a model that refuses is
failed with the reason, an unassigned bot is stopped. A pause file, a signal, or a provider that cannot be reached now
is paused, and can be resumed. Whoever asked hears of it by the label, after the status is on disk.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from orihon.agent.control import (
    ASSIGNED,
    COMMENTS,
    make_comment_check,
    make_pause_check,
    make_stop_check,
    make_stop_file_check,
    stop_file_path,
)
from orihon.agent.loop import Limits, Loop, Model, PauseRequested, Step, StopRequested, Watch
from orihon.agent.progress_comment import Reporting
from orihon.agent.prompts import prompt
from orihon.agent.sources.base import Arrivals, Comment, Outcome, Source
from orihon.context.language import language_of
from orihon.engine import Engine
from orihon.errors import ContextError, LimitReached, OrihonError, RunError, ScriptError, SourceError
from orihon.records import Message, TaskRow
from orihon.task.config import Summariser
from orihon.task.task import Task
from orihon.task_key import TaskKey

log = logging.getLogger("orihon")

OUTCOMES: dict[str, Outcome] = {
    "completed": "done",
    "failed": "failed",
    "paused": "paused",
    "stopped": "stopped",
}


class Tools(Protocol):
    """What can be done, and how it is described."""

    @property
    def schemas(self) -> list[dict[str, Any]]: ...

    def run(self, call: Any) -> Any: ...


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done, and for whom."""

    key: TaskKey
    request: str
    user: str | None = None
    uuid: str | None = None
    system: str = ""  # empty means the prompt that comes with Orihon
    comments: tuple[Comment, ...] = ()  # those that the request quotes
    read_at: str = ""  # when they were read
    assigned: bool = False  # whether the bot was, so that taking it off means stop
    notes: dict[str, Any] = {}  # kept with the task, for whoever resumes it


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
        checks: Sequence[Callable[[Task], None]] = (),
        on_step: Watch | None = None,
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
        self.planning, self.checks, self.on_step = planning, checks, on_step
        self.options, self.summariser = options or {}, summariser
        self.workspace, self.ask_user = workspace, ask_user
        self.paused_by_file, self.paused_by_signal = paused_by_file, paused_by_signal
        self.paused_by_failure = paused_by_failure

    def handle(self, work: Work) -> TaskRow:
        """A new task; the row as it ended."""
        options = {"tools": self.tools.schemas, "summariser": self.summariser} | self.options
        task = self.engine.start(work.key, uuid=work.uuid, user=work.user, **options)
        return self.carry_on(task, work)

    def resume(self, uuid: str, work: Work | None = None) -> TaskRow:
        """Go on with a task that was begun."""
        return self.carry_on(self.engine.resume(uuid, summariser=self.summariser), work)

    def carry_on(self, task: Task, work: Work | None = None) -> TaskRow:
        """Run a task to its end, or until it has to wait; one that nobody has begun needs its work."""
        reporting = Reporting(self.source, task, self.engine.settings.planning.progress_comment)
        try:
            with task:
                self._tell(task, "processing")
                try:
                    if work is not None and not task.began:
                        self._request(task, work)
                    self._work(task, reporting)
                    self._link(task)
                except (Exception, KeyboardInterrupt, SystemExit) as error:  # noqa: BLE001 - `_leave` raises it again
                    reporting.keep()
                    self._leave(task, error)
        finally:
            outcome = OUTCOMES.get(task.row.status)
            if outcome is not None:  # else somebody else has the task now, and says what becomes of it
                reporting.finish(task.row)
                self._tell(task, outcome)
        return task.row

    def _leave(self, task: Task, error: BaseException) -> None:
        """End the task, or let it wait, as the error says; what is none of ours is raised again."""
        match error:
            case PauseRequested():
                task.pause(str(error))
            case StopRequested():
                task.stop(str(error))
                stop_file_path(self.engine.settings.pause_resume, task.uuid).unlink(missing_ok=True)
            case LimitReached():
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

    def _request(self, task: Task, work: Work) -> None:
        """The first two messages; said with keys, so that a start after a crash does not say them twice."""
        if self.source is not None and task.handoff is not None:
            self._say(task.row.key, task.handoff.notice)
        arrivals = Arrivals({"since": work.read_at})
        arrivals.fresh(work.comments)
        known = {COMMENTS: arrivals.state(), ASSIGNED: work.assigned} if self.source is not None else {}
        if work.notes or known:
            task.event("note", **work.notes, **known)
        said = Message(seq=0, role="user", content=work.request, timestamp="", tokens=0)
        language = task.config.language if task.config.language != "auto" else language_of([said])
        system = [work.system or prompt("system", language), self.engine.settings.system_prompt]
        task.add("system", "\n\n".join(text.strip() for text in system if text.strip()), key="orihon:system")
        task.add("user", work.request, key="orihon:request")

    def _work(self, task: Task, reporting: Reporting) -> None:
        def watch(step: Step) -> None:
            reporting.watch(step)
            if self.on_step is not None:
                self.on_step(step)

        loop = Loop(task, self.model, self.tools, checks=self._checks(), limits=self.limits, on_step=watch)
        if self.planning:
            from orihon.planning.coordinator import PlanningCoordinator  # noqa: PLC0415 - only those who plan need it

            PlanningCoordinator(loop, self.engine, ask_user=self.ask_user, workspace=self.workspace).run()
        else:
            loop.run_until_done()

    def _checks(self) -> list[Callable[[Task], None]]:
        settings = self.engine.settings
        checks = [*self.checks, make_stop_file_check(settings.pause_resume)]
        checks.append(make_pause_check(settings.pause_resume, self.paused_by_file))
        if self.source is not None:
            checks += [make_stop_check(self.source, settings.task_stop), make_comment_check(self.source)]
        return checks

    def _link(self, task: Task) -> None:
        """Keep which pull request the issue became, so that its first run inherits."""
        if self.source is None or task.row.linked_key:
            return
        try:
            found = self.source.linked(task.row.key)
        except SourceError as error:
            log.warning("Whether %s is linked to something is not known now: %s", task.row.key, error)
            return
        if found is not None and found != task.row.key:
            task.link(found)

    def _tell(self, task: Task, outcome: Outcome) -> None:
        """A label is for people: that a forge cannot be reached must not end a task."""
        if self.on_step is not None:
            self.on_step(Step(kind="note", text=outcome))
        if self.source is not None:
            tell(self.source, task.row.key, outcome)

    def _say(self, key: TaskKey, text: str) -> None:
        try:
            if self.source is not None and text:
                self.source.say(key, text)
        except OrihonError as error:
            log.warning("Nobody could be told at %s: %s", key, error)


def tell(source: Source, key: TaskKey, outcome: Outcome) -> None:
    """Set the label; what goes wrong is only logged."""
    try:
        source.mark(key, outcome)
    except OrihonError as error:
        log.warning("%s could not be marked as %s: %s", key, outcome, error)
