"""Everything that one run needs, built from the settings and its job, and closed again: model, tools, source, handler.

    target = parse_target("https://github.com/acme/shop/issues/27", settings)
    with RunSetup(engine, target.key, job, user="alice") as setup:
        row = setup.handler.handle(setup.load_work())

The settings are those of the user whose task it is; see `users`. A queued task is run by `run_queued`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal, Self, cast

import msgspec

from orihon.agent import queue
from orihon.agent.control import DRAINED, find_pause_file
from orihon.agent.handler import OUTCOMES, TaskHandler, Work, tell
from orihon.agent.loop import Limits, Watch
from orihon.agent.models import Model, open_model
from orihon.agent.queue import Job
from orihon.agent.sources import Item, Source, open_source
from orihon.agent.sources.base import same
from orihon.agent.sources.local import BOT
from orihon.agent.tools.approval import Ask
from orihon.agent.tools.toolbox import Toolbox
from orihon.agent.user_settings import settings_for
from orihon.codec import now
from orihon.engine import Engine
from orihon.errors import LeaseHeld, OrihonError, ScriptError, SourceError, UsageError
from orihon.records import TaskRow
from orihon.settings.schema import Forge, Settings
from orihon.task.task import HANDOFF_KEY, Task
from orihon.task_key import TaskKey

log = logging.getLogger("orihon")

Check = Callable[[Task], None]


class RunSetup:
    """One run's model, tools, source and handler. Use it in a `with` block."""

    def __init__(
        self,
        engine: Engine,
        key: TaskKey,
        job: Job,
        *,
        user: str | None = None,
        uuid: str | None = None,
        on_step: Watch | None = None,
        checks: Sequence[Check] = (),
        ask: Ask | None = None,
        ask_user: Callable[[Sequence[str]], str | None] | None = None,
        mcp: bool = True,
    ) -> None:
        self.key, self.job, self.user, self.uuid = key, job, user, uuid
        self.settings = settings_for(key.task_source, user or "", engine.settings)
        self.engine = Engine(engine.store, self.settings, engine.hooks, engine.user, engine.trail)
        self._stack = ExitStack()
        try:
            self.source = self._opened_source()
            self.model = self.open_model(job.model)
            summariser = self.settings.context_storage.summariser
            self.summariser = self.open_model(summariser).ask if summariser not in {"", "extractive"} else None
            self.tools = self._stack.enter_context(
                Toolbox(job.workspace, approve=job.approve, ask=ask, servers=self.settings.mcp_servers if mcp else ())
            )
            waits = {"paused_by_file": queue.BY_FILE, "paused_by_failure": queue.FAILED, "paused_by_signal": DRAINED}
            self.handler = TaskHandler(
                self.engine,
                self.model,
                self.tools,
                source=self.source,
                limits=self._limits(),
                planning=self.settings.planning.enabled if job.plan is None else job.plan,
                checks=checks,
                on_step=on_step,
                options=self.options,
                summariser=self.summariser,
                workspace=job.workspace,
                ask_user=ask_user,
                **(waits if job.queued else {}),
            )
        except BaseException:
            self._stack.close()
            raise

    @property
    def options(self) -> dict[str, Any]:
        """What a new task is started with, beside its tools."""
        name = str(getattr(self.model, "name", ""))
        provider, _, model = name.partition(":")
        known = {"openai", "ollama", "lmstudio", "anthropic"}
        length = getattr(self.settings.llm, provider).context_length if provider in known else None
        return {
            "model": model if provider in known else name,
            "llm_provider": provider or None,
            "context_length": self.job.context_length or length,
        }

    def load_work(self) -> Work:
        """What the task is told first; a forge is asked what stands there now."""
        notes = {queue.WORK: msgspec.to_builtins(self.job)}
        if self.source is None:
            return Work(key=self.key, request=self.job.request, user=self.user, uuid=self.uuid, notes=notes)
        read_at, item = now(), self.source.get(self.key)
        return Work(
            key=self.key,
            request=self.source.prompt(item),
            user=self.user or self.source.user_of(item) or None,
            uuid=self.uuid,
            comments=item.comments,
            read_at=read_at,
            assigned=self._is_assigned(item),
            notes=notes,
        )

    def advance_script(self, row: TaskRow) -> None:
        """Say to a model that follows a script how far it is."""
        begin_after = getattr(self.model, "begin_after", None)
        if begin_after is None:
            return
        messages = self.engine.read(row.uuid).messages()  # the row may lack the last reply, after a crash
        said = sum(message.role == "assistant" and message.key != HANDOFF_KEY for message in messages)
        if said or row.started_at is not None:
            begin_after(said)

    def open_model(self, name: str) -> Model:
        """A model by its name; it is closed with the rest."""
        model = open_model(name, self.settings)
        self._stack.callback(_close_model, model)
        return model

    def close(self) -> None:
        """End the servers, what the shell started, and all connections."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _opened_source(self) -> Source | None:
        source = open_task_source(self.key, self.job, self.settings)
        if source is not None:
            self._stack.callback(source.close)
        return source

    def _limits(self) -> Limits:
        job = self.job
        return Limits(
            calls=job.calls or self.settings.max_llm_process_num,
            tokens=job.tokens,
            seconds=job.seconds,
            cost=job.cost,
            input_price=job.prices[0],
            output_price=job.prices[1],
        )

    def _is_assigned(self, item: Item) -> bool:
        forge: Forge = self.settings.gitlab if self.key.task_source == "gitlab" else self.settings.github
        bot = forge.bot_name or (BOT if self.key.task_source == "local" else "")
        return bool(bot) and any(same(name, bot) for name in item.assignees)


def open_task_source(key: TaskKey, job: Job, settings: Settings) -> Source | None:
    """Where a task came from; a text has nobody who hears of it."""
    if key.task_source == "local":
        return open_source("local", settings, what=Path(job.file)) if job.file else None
    return open_source(cast("Literal['github', 'gitlab']", key.task_source), settings)


def _close_model(model: Model) -> None:
    try:
        model.close()
    except ScriptError as error:  # a run that paused or failed did not need all replies
        log.debug("%s", error)


def resume_run(setup: RunSetup, row: TaskRow) -> TaskRow:
    """Go on with a task in the foreground; a queued one is begun."""
    found = find_pause_file(setup.settings.pause_resume, row.uuid)
    if found is not None:
        raise UsageError(f"{found} asks the task to pause.", hint="`orihon unpause` takes it away.")
    setup.advance_script(row)
    work = setup.load_work() if row.llm_call_count == 0 else None
    if row.status != "pending":
        return setup.handler.resume(row.uuid, work)
    task = queue.claim(setup.engine, row.uuid, **setup.options, tools=setup.tools.schemas, summariser=setup.summariser)
    if task is None:
        raise LeaseHeld(f"Task {row.uuid} cannot be taken: somebody works on it, or on the same thing.")
    return setup.handler.carry_on(task, work)


def run_queued(
    engine: Engine, uuid: str, *, on_step: Watch | None = None, checks: Sequence[Check] = ()
) -> TaskRow | None:
    """Take a task out of the queue and run it; None when somebody else has it, or works on the same thing."""
    row, job = engine.row(uuid), queue.load_job(engine, uuid)
    if row.status not in {"pending", "paused"}:
        return None
    if job is None:
        return _refuse(engine, uuid, UsageError("Nothing says what is to be done.", hint="Queue it again."))
    try:
        setup = RunSetup(engine, row.key, job, user=row.user, uuid=row.uuid, on_step=on_step, checks=checks)
    except OrihonError as error:
        return _refuse(engine, uuid, error, job)
    with setup:
        options = setup.options | {"tools": setup.tools.schemas, "summariser": setup.summariser}
        try:
            work = setup.load_work() if row.llm_call_count == 0 else None
        except SourceError as error:
            return _refuse(engine, uuid, error, job)
        task = queue.claim(setup.engine, uuid, **options)
        if task is None:
            return None
        setup.advance_script(row)
        return setup.handler.carry_on(task, work)


def _refuse(engine: Engine, uuid: str, error: OrihonError, job: Job | None = None) -> TaskRow | None:
    """A task that cannot be begun fails, or waits if it may be possible later."""
    task = queue.claim(engine, uuid)
    if task is None:
        return None
    with task:
        if job is None and queue.load_job(engine, uuid) is not None:  # it was just being queued
            task.update(status="pending", activity="")
        elif error.retryable:
            task.pause(f"{queue.FAILED}{error.message}")
        else:
            task.fail(f"{error.message} {error.hint}", reason=type(error).__name__)
    if job is not None and task.row.status == "failed":
        mark_task(engine.settings, task.row, job)
    return task.row


def announce(settings: Settings, one: queue.RecoveredTask) -> None:
    """Say at its source that a task has ended whose process died."""
    if one.job is not None and one.row.status not in {"pending", "running"}:
        mark_task(settings, one.row, one.job)


def mark_task(settings: Settings, row: TaskRow, job: Job) -> None:
    """Say at its source that a task has ended, where no handler could."""
    try:
        source = open_task_source(row.key, job, settings)
    except OrihonError as error:
        log.warning("%s could not be marked as %s: %s", row.key, row.status, error)
        return
    if source is not None:
        try:
            tell(source, row.key, OUTCOMES[row.status])
        finally:
            source.close()
