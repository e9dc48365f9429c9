"""Everything that one run needs, built from the settings and its job, and closed again: model, tools, source, handler.

    target = target_of("https://github.com/acme/shop/issues/27", settings)
    with Setup(engine, target.key, job, user="alice") as setup:
        row = setup.handler.handle(setup.work())

The settings are those of the user whose task it is; see `users`. A queued task is run by `run_queued`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal, Self, cast
from urllib.parse import urlsplit

import msgspec

from orihon.agent import queue
from orihon.agent.checks import DRAINED, asked_to_pause
from orihon.agent.handler import OUTCOMES, TaskHandler, Work, tell
from orihon.agent.loop import Limits, Watch
from orihon.agent.models import Model, open_model
from orihon.agent.queue import Job
from orihon.agent.sources import Item, Source, open_source
from orihon.agent.sources.base import same
from orihon.agent.sources.local import BOT, Local
from orihon.agent.tools.approval import Ask
from orihon.agent.tools.box import Toolbox
from orihon.agent.users import settings_for
from orihon.codec import now
from orihon.engine import Engine
from orihon.errors import LeaseHeld, OrihonError, ScriptError, SourceError, UsageError
from orihon.ingest import sanitiser_for
from orihon.records import TaskRow
from orihon.settings.schema import Forge, Settings
from orihon.task.task import HANDOFF_KEY, Task
from orihon.task_key import TaskKey

log = logging.getLogger("orihon")

PUBLIC = {"github": "github.com", "gitlab": "gitlab.com"}
Check = Callable[[Task], None]


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody wants to be worked on."""

    key: TaskKey
    request: str = ""
    file: str = ""


def targets_of(text: str, settings: Settings) -> list[Target]:
    """What is meant by a text, a Markdown file, a directory of them, or the URL of an issue or a pull request."""
    if text.strip().lower().startswith(("http://", "https://")) and len(text.split()) == 1:
        return [Target(key=key_of(text.strip(), settings))]
    local = Local(text, sanitiser=sanitiser_for(settings))
    if local.path is None:
        return [Target(key=local.keys()[0], request=text)]
    if not local.path.is_dir():
        return [Target(key=local.keys()[0], file=str(local.path.resolve()))]
    return [Target(key=item.key, file=str(Path(item.url).resolve())) for item in local.find()]


def target_of(text: str, settings: Settings) -> Target:
    """The one thing that is meant."""
    if len(text) < 4096 and "\n" not in text and Path(text).is_dir():  # noqa: PLR2004 - the longest path
        raise UsageError(f"{text!a} is a directory.", hint="Name one of its files; `orihon enqueue` takes them all.")
    return targets_of(text, settings)[0]


def key_of(url: str, settings: Settings) -> TaskKey:
    """The item at a URL: https://github.com/acme/shop/issues/27, or GitLab's …/-/merge_requests/3."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise UsageError(f"{url[:200]!a} is no address ({error}).", hint="Copy it from the browser.") from error
    path = [part for part in parts.path.split("/") if part and part != "-"]
    forge = next((name for name in PUBLIC if parts.hostname in _hosts(name, getattr(settings, name))), "")
    if not forge:
        raise UsageError(
            f"No forge of the settings is at {str(parts.hostname)!a}.",
            hint="Set `github.base_url` or `gitlab.base_url`; others are at github.com and gitlab.com.",
        )
    kinds = {"issues": "issue", "pull": "pull_request", "merge_requests": "merge_request"}
    place = next((at for at in range(2, len(path)) if path[at] in kinds and at + 1 < len(path)), None)
    if place is None:
        raise UsageError(
            f"{url[:200]!a} is not the address of an issue or of a pull request.",
            hint="Such as https://github.com/acme/shop/issues/27.",
        )
    owner, repo, kind, number = "/".join(path[: place - 1]), path[place - 1], kinds[path[place]], path[place + 1]
    return TaskKey(task_source=forge, owner=owner, repo=repo, task_type=kind, task_id=number)


def _hosts(name: str, forge: Forge) -> set[str | None]:
    if not forge.base_url:
        return {PUBLIC[name]}
    host = urlsplit(forge.base_url).hostname or ""
    return {host, host.removeprefix("api.")}


class Setup:
    """One run's model, tools, source and handler. Use it in a `with` block."""

    def __init__(
        self,
        engine: Engine,
        key: TaskKey,
        job: Job,
        *,
        user: str | None = None,
        uuid: str | None = None,
        watch: Watch | None = None,
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
            self.model = self.opened_model(job.model)
            summariser = self.settings.context_storage.summariser
            self.summariser = self.opened_model(summariser).ask if summariser not in {"", "extractive"} else None
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
                watch=watch,
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

    def work(self) -> Work:
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

    def went_on(self, row: TaskRow) -> None:
        """Say to a model that follows a script how far it is."""
        begin_after = getattr(self.model, "begin_after", None)
        if begin_after is None:
            return
        messages = self.engine.read(row.uuid).messages()  # the row may lack the last reply, after a crash
        said = sum(message.role == "assistant" and message.key != HANDOFF_KEY for message in messages)
        if said or row.started_at is not None:
            begin_after(said)

    def opened_model(self, name: str) -> Model:
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
        source = opened_source(self.key, self.job, self.settings)
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


def opened_source(key: TaskKey, job: Job, settings: Settings) -> Source | None:
    """Where a task came from; a text has nobody who hears of it."""
    if key.task_source == "local":
        return open_source("local", settings, what=Path(job.file)) if job.file else None
    return open_source(cast("Literal['github', 'gitlab']", key.task_source), settings)


def _close_model(model: Model) -> None:
    try:
        model.close()
    except ScriptError as error:  # a run that paused or failed did not need all replies
        log.debug("%s", error)


def resume(setup: Setup, row: TaskRow) -> TaskRow:
    """Go on with a task in the foreground; a queued one is begun."""
    found = asked_to_pause(setup.settings.pause_resume, row.uuid)
    if found is not None:
        raise UsageError(f"{found} asks the task to pause.", hint="`orihon unpause` takes it away.")
    setup.went_on(row)
    work = setup.work() if row.llm_call_count == 0 else None
    if row.status != "pending":
        return setup.handler.resume(row.uuid, work)
    task = queue.claim(setup.engine, row.uuid, **setup.options, tools=setup.tools.schemas, summariser=setup.summariser)
    if task is None:
        raise LeaseHeld(f"Task {row.uuid} cannot be taken: somebody works on it, or on the same thing.")
    return setup.handler.carry_on(task, work)


def run_queued(
    engine: Engine, uuid: str, *, watch: Watch | None = None, checks: Sequence[Check] = ()
) -> TaskRow | None:
    """Take a task out of the queue and run it; None when somebody else has it, or works on the same thing."""
    row, job = engine.row(uuid), queue.job_of(engine, uuid)
    if row.status not in {"pending", "paused"}:
        return None
    if job is None:
        return _refuse(engine, uuid, UsageError("Nothing says what is to be done.", hint="Queue it again."))
    try:
        setup = Setup(engine, row.key, job, user=row.user, uuid=row.uuid, watch=watch, checks=checks)
    except OrihonError as error:
        return _refuse(engine, uuid, error, job)
    with setup:
        options = setup.options | {"tools": setup.tools.schemas, "summariser": setup.summariser}
        try:
            work = setup.work() if row.llm_call_count == 0 else None
        except SourceError as error:
            return _refuse(engine, uuid, error, job)
        task = queue.claim(setup.engine, uuid, **options)
        if task is None:
            return None
        setup.went_on(row)
        return setup.handler.carry_on(task, work)


def _refuse(engine: Engine, uuid: str, error: OrihonError, job: Job | None = None) -> TaskRow | None:
    """A task that cannot be begun fails, or waits if it may be possible later."""
    task = queue.claim(engine, uuid)
    if task is None:
        return None
    with task:
        if job is None and queue.job_of(engine, uuid) is not None:  # it was just being queued
            task.update(status="pending", activity="")
        elif error.retryable:
            task.pause(f"{queue.FAILED}{error.message}")
        else:
            task.fail(f"{error.message} {error.hint}", reason=type(error).__name__)
    if job is not None and task.row.status == "failed":
        mark(engine.settings, task.row, job)
    return task.row


def announce(settings: Settings, one: queue.Recovered) -> None:
    """Say at its source that a task has ended whose process died."""
    if one.job is not None and one.row.status not in {"pending", "running"}:
        mark(settings, one.row, one.job)


def mark(settings: Settings, row: TaskRow, job: Job) -> None:
    """Say at its source that a task has ended, where no handler could."""
    try:
        source = opened_source(row.key, job, settings)
    except OrihonError as error:
        log.warning("%s could not be marked as %s: %s", row.key, row.status, error)
        return
    if source is not None:
        try:
            tell(source, row.key, OUTCOMES[row.status])
        finally:
            source.close()
