"""Everything that one run needs, from the settings and its job: model, tools, source, handler.

    target = parse_target("https://github.com/acme/shop/issues/27", settings)
    with RunSetup(engine, target.key, job, user="alice") as setup:
        row = setup.handler.handle(setup.load_work())

The settings are those of the user of the task; see `user_settings`. `run_queued` runs a task of the queue.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal, Self, cast

import msgspec

from orihon.agent import queue
from orihon.agent.control import DRAINED, Check, find_pause_file
from orihon.agent.handler import OUTCOMES, TaskHandler, Work, find_language, mark_outcome
from orihon.agent.instructions import make_instructions_check
from orihon.agent.loop import Limits, OnStep
from orihon.agent.models import Model, choose_summariser, open_model
from orihon.agent.queue import Job
from orihon.agent.sources import Source, open_source
from orihon.agent.tools.approval import Ask
from orihon.agent.tools.toolbox import Toolbox
from orihon.agent.user_settings import settings_for
from orihon.codec import now
from orihon.context.matter import INHERITED
from orihon.engine import Engine
from orihon.errors import LeaseHeld, OrihonError, ScriptError, SourceError, UsageError
from orihon.records import TaskRow
from orihon.settings.schema import Settings
from orihon.task.config import EXTRACTIVE, Summariser
from orihon.task_key import TaskKey

log = logging.getLogger("orihon")

PROVIDERS = frozenset({"openai", "ollama", "lmstudio", "anthropic"})


class RunSetup:
    """The model, tools, source and handler of one run. Use it in a `with` block."""

    def __init__(
        self,
        engine: Engine,
        key: TaskKey,
        job: Job,
        *,
        user: str | None = None,
        uuid: str | None = None,
        on_step: OnStep | None = None,
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
            self.source = open_task_source(key, job, self.settings)
            if self.source is not None:
                self._stack.callback(self.source.close)
            self.model = self.open_model(job.model)
            self.summariser = self.find_summariser(self.model)
            self.tools = self._stack.enter_context(
                Toolbox(job.workspace, approve=job.approve, ask=ask, servers=self.settings.mcp_servers if mcp else ())
            )
            reasons = {"paused_by_file": queue.BY_FILE, "paused_by_failure": queue.FAILED, "paused_by_signal": DRAINED}
            self.handler = TaskHandler(
                self.engine,
                self.model,
                self.tools,
                source=self.source,
                limits=self._make_limits(),
                planning=self.settings.planning.enabled if job.plan is None else job.plan,
                checks=(*checks, make_instructions_check(self.tools.workspace, self.settings.sticky)),
                on_step=on_step,
                options=self.options,
                summariser=self.summariser,
                workspace=job.workspace,
                ask_user=ask_user,
                **(reasons if job.queued else {}),
            )
        except BaseException:
            self._stack.close()
            raise

    @property
    def options(self) -> dict[str, Any]:
        """The options of a new task, without its tools."""
        name = str(getattr(self.model, "name", ""))
        provider, _, model = name.partition(":")
        is_known = provider in PROVIDERS
        length = getattr(self.settings.llm, provider).context_length if is_known else None
        return {
            "model": model if is_known else name,
            "llm_provider": provider or None,
            "context_length": self.job.context_length or length,
        }

    def load_work(self) -> Work:
        """Return the request of the task, as it stands at its source now."""
        notes = {queue.WORK: msgspec.to_builtins(self.job)}
        if self.source is None:
            return Work(key=self.key, request=self.job.request, user=self.user, uuid=self.uuid, notes=notes)
        read_at, item = now(), self.source.get(self.key)
        return Work(
            key=self.key,
            request=self.source.render_prompt(item),
            issue=self.source.make_issue(item),
            user=self.user or self.source.find_user(item) or None,
            uuid=self.uuid,
            comments=item.comments,
            read_at=read_at,
            assigned=self.source.has_bot(item.assignees),
            notes=notes,
        )

    def advance_script(self, row: TaskRow) -> None:
        """Skip the replies of a scripted model that are in the log already."""
        begin_after = getattr(self.model, "begin_after", None)
        if begin_after is None:
            return
        messages = self.engine.read(row.uuid).messages()  # after a crash the row may lack the last reply
        replies = sum(message.role == "assistant" and message.key != INHERITED for message in messages)
        if replies or row.started_at is not None:
            begin_after(replies)

    def open_model(self, name: str) -> Model:
        """Open a model, which is closed with the setup."""
        model = open_model(name, self.settings, cache=Path(self.job.reply_cache) if self.job.reply_cache else None)
        self._stack.callback(_close_model, model)
        return model

    def find_summariser(self, model: Model) -> Summariser | None:
        """Return what writes the summaries of a task with this model; None means the extractive summariser."""
        name = choose_summariser(self.settings, model.name)
        if name == EXTRACTIVE:
            return None
        return model.ask if name == model.name else self.open_model(name).ask

    def claim(self, uuid: str, work: Work | None) -> Any:
        """Claim a waiting task for this setup; None if that is not possible."""
        options = self.options | {"tools": self.tools.schemas, "summariser": self.summariser}
        if work is not None and self.settings.window.language == "auto":
            options["language"] = find_language(work)
        return queue.claim(self.engine, uuid, **options)

    def close(self) -> None:
        """End the servers, what the shell started, and all connections."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _make_limits(self) -> Limits:
        job = self.job
        return Limits(
            calls=job.calls or self.settings.max_llm_process_num,
            tokens=job.tokens,
            seconds=job.seconds,
            cost=job.cost,
            input_price=job.prices[0],
            output_price=job.prices[1],
        )


def open_task_source(key: TaskKey, job: Job, settings: Settings) -> Source | None:
    """Return the source of a task, or None for a text."""
    if key.task_source == "local":
        return open_source("local", settings, what=Path(job.file)) if job.file else None
    return open_source(cast("Literal['github', 'gitlab']", key.task_source), settings)


def _close_model(model: Model) -> None:
    try:
        model.close()
    except ScriptError as error:  # a run that paused or failed does not need all replies
        log.debug("%s", error)


def resume_run(setup: RunSetup, row: TaskRow) -> TaskRow:
    """Continue a task in the foreground, or begin a queued one."""
    path = find_pause_file(setup.settings.pause_resume, row.uuid)
    if path is not None:
        raise UsageError(f"{path} pauses the task.", hint="`orihon unpause` removes it.")
    setup.advance_script(row)
    work = setup.load_work() if row.llm_call_count == 0 else None
    if row.status != "pending":
        return setup.handler.resume(row.uuid, work)
    task = setup.claim(row.uuid, work)
    if task is None:
        raise LeaseHeld(f"Task {row.uuid} cannot be taken: another process runs it, or a task with the same key.")
    return setup.handler.run(task, work)


def run_queued(
    engine: Engine, uuid: str, *, on_step: OnStep | None = None, checks: Sequence[Check] = ()
) -> TaskRow | None:
    """Claim a task of the queue and run it. Return None if another process has it, or runs its key."""
    row, job = engine.row(uuid), queue.load_job(engine, uuid)
    if row.status not in {"pending", "paused"}:
        return None
    if job is None:
        return _refuse(engine, uuid, UsageError("The task has no job.", hint="Enqueue it again."))
    try:
        setup = RunSetup(engine, row.key, job, user=row.user, uuid=row.uuid, on_step=on_step, checks=checks)
    except OrihonError as error:
        return _refuse(engine, uuid, error, job)
    with setup:
        try:
            work = setup.load_work() if row.llm_call_count == 0 else None
        except SourceError as error:
            return _refuse(engine, uuid, error, job)
        task = setup.claim(uuid, work)
        if task is None:
            return None
        setup.advance_script(row)
        return setup.handler.run(task, work)


def _refuse(engine: Engine, uuid: str, error: OrihonError, job: Job | None = None) -> TaskRow | None:
    """Fail a task that cannot be begun, or pause it if it may be possible later."""
    task = queue.claim(engine, uuid)
    if task is None:
        return None
    with task:
        if job is None and queue.load_job(engine, uuid) is not None:  # it is being enqueued just now
            task.writer.update(status="pending", activity="")
        elif error.retryable:
            task.pause(f"{queue.FAILED}{error.message}")
        else:
            task.fail(f"{error.message} {error.hint}", reason=type(error).__name__)
    if job is not None and task.row.status == "failed":
        mark_task(engine.settings, task.row, job)
    return task.row


def announce(settings: Settings, recovered: queue.RecoveredTask) -> None:
    """Mark a task at its source that ended because its process died."""
    if recovered.job is not None and recovered.row.status not in {"pending", "running"}:
        mark_task(settings, recovered.row, recovered.job)


def mark_task(settings: Settings, row: TaskRow, job: Job) -> None:
    """Mark a task at its source that ended outside of a handler."""
    try:
        source = open_task_source(row.key, job, settings)
    except OrihonError as error:
        log.warning("%s could not be marked as %s: %s", row.key, row.status, error)
        return
    if source is not None:
        try:
            mark_outcome(source, row.key, OUTCOMES[row.status])
        finally:
            source.close()
