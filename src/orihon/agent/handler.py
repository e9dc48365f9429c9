"""One task from its request to its end: the seeds' `TaskHandler`.

However it ends, the status says how: done is completed, a limit, a tool that keeps failing or a model that cannot be
reached is failed with the reason, an unassigned bot is stopped, a pause file or a signal is paused. Whoever asked hears
of it by the label, after the status is on disk.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec

from orihon.agent.checks import comment_check, pause_check, stop_check
from orihon.agent.loop import Limits, Loop, Model, PauseAsked, Step, StopAsked, Watch
from orihon.agent.prompts import prompt
from orihon.context.language import language_of
from orihon.engine import Orihon
from orihon.errors import ContextError, LimitReached, OrihonError, RunError
from orihon.keys import TaskKey
from orihon.records import Message, TaskRow
from orihon.task.task import Task

log = logging.getLogger("orihon")

Outcome = Literal["queued", "processing", "done", "failed", "paused", "stopped"]
OUTCOMES: dict[str, Outcome] = {
    "pending": "queued",
    "running": "processing",
    "completed": "done",
    "failed": "failed",
    "paused": "paused",
    "stopped": "stopped",
}


class Tools(Protocol):
    """What can be done, and how it is described."""

    schemas: list[dict[str, Any]]

    def run(self, call: Any) -> Any: ...


class Source(Protocol):
    """Who hears of a task, and is asked about it."""

    def mark(self, key: TaskKey, outcome: Outcome) -> None: ...

    def say(self, key: TaskKey, text: str) -> str: ...

    def new_comments(self, key: TaskKey, since: str) -> list[Any]: ...

    def is_wanted(self, key: TaskKey) -> bool: ...


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done, and for whom."""

    key: TaskKey
    request: str
    user: str | None = None
    uuid: str | None = None
    system: str = ""  # empty means the prompt that comes with Orihon


class TaskHandler:
    """Runs tasks, one at a time."""

    def __init__(
        self,
        engine: Orihon,
        model: Model,
        tools: Tools,
        *,
        source: Source | None = None,
        limits: Limits | None = None,
        planning: bool = False,
        checks: Sequence[Callable[[Task], None]] = (),
        watch: Watch | None = None,
        options: dict[str, Any] | None = None,
        workspace: Path | str | None = None,
        ask_user: Callable[[Sequence[str]], str | None] | None = None,
    ) -> None:
        self.engine, self.model, self.tools, self.source = engine, model, tools, source
        self.limits = limits or Limits(calls=engine.settings.max_llm_process_num)
        self.planning, self.checks, self.watch = planning, checks, watch
        self.options = options or {}
        self.workspace, self.ask_user = workspace, ask_user

    def handle(self, work: Work) -> TaskRow:
        """A new task; the row as it ended."""
        options = self._summariser() | self.options
        task = self.engine.start(work.key, uuid=work.uuid, user=work.user, tools=self.tools.schemas, **options)
        return self.carry_on(task, work)

    def resume(self, uuid: str) -> TaskRow:
        """Go on with a task that was begun."""
        return self.carry_on(self.engine.resume(uuid, **self._summariser()))

    def carry_on(self, task: Task, work: Work | None = None) -> TaskRow:
        """Run a task to its end, or until it has to wait; one that nobody has begun needs its work."""
        self._tell(task.row.key, "processing")
        if task.handoff is not None and not task.began:
            self._say(task.row.key, task.handoff.notice)
        with task:
            try:
                if work is not None:
                    self._request(task, work)
                self._work(task)
            except PauseAsked as asked:
                task.pause(str(asked))
            except StopAsked as asked:
                task.stop(str(asked))
            except LimitReached as error:
                task.fail(error.message, reason=f"limit: {error.limit}")
            except (ContextError, RunError) as error:
                task.fail(error.message, reason=type(error).__name__)
        self._tell(task.row.key, OUTCOMES[task.row.status])
        return task.row

    def _request(self, task: Task, work: Work) -> None:
        """The first two messages; said with keys, so that a start after a crash does not say them twice."""
        said = Message(seq=0, role="user", content=work.request, timestamp="", tokens=0)
        language = task.frozen.language if task.frozen.language != "auto" else language_of([said])
        task.add("system", work.system or prompt("system", language), key="orihon:system")
        task.add("user", work.request, key="orihon:request")

    def _work(self, task: Task) -> None:
        loop = Loop(task, self.model, self.tools, checks=self._checks(), limits=self.limits, watch=self.watch)
        if self.planning:
            from orihon.planning.coordinator import PlanningCoordinator  # noqa: PLC0415 - only those who plan need it

            PlanningCoordinator(loop, self.engine, ask_user=self.ask_user, workspace=self.workspace).run()
        else:
            loop.until_done()

    def _checks(self) -> list[Callable[[Task], None]]:
        settings = self.engine.settings
        checks = [*self.checks, pause_check(settings.pause_resume)]
        if self.source is not None:
            checks += [stop_check(self.source, settings.task_stop), comment_check(self.source)]
        return checks

    def _summariser(self) -> dict[str, Any]:
        ask = getattr(self.model, "ask", None)
        return {"summariser": ask} if callable(ask) else {}

    def _tell(self, key: TaskKey, outcome: Outcome) -> None:
        """A label is for people: that a forge cannot be reached must not end a task."""
        if self.watch is not None:
            self.watch(Step(kind="note", text=outcome))
        if self.source is None:
            return
        try:
            self.source.mark(key, outcome)
        except OrihonError as error:
            log.warning("%s could not be marked as %s: %s", key, outcome, error)

    def _say(self, key: TaskKey, text: str) -> None:
        if self.source is None:
            return
        try:
            self.source.say(key, text)
        except OrihonError as error:
            log.warning("Nobody could be told at %s: %s", key, error)
