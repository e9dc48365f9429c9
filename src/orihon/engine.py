"""Orihon: start a task, go on with one, look at them. `orihon.open(url)` gives it."""

from __future__ import annotations

import logging
import uuid as uuids
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, get_args
from weakref import WeakSet

import msgspec

from orihon import codec
from orihon.access import NOBODY, Principal, Trail, caller, checked_user, confined
from orihon.coerce import list_of, text_or_none
from orihon.errors import AccessDenied, LeaseHeld, NotFound, StoreError, UsageError
from orihon.records import Metadata, Status, TaskRow
from orihon.settings.load import load
from orihon.settings.schema import Settings
from orihon.stores import open_store, store_options
from orihon.stores.base import FORMAT, Lease, Query, Store
from orihon.stores.liveness import current_owner
from orihon.stores.lookup import describe_query, find_row, row_if_there, visible_rows
from orihon.task import hooks as hooking
from orihon.task import lifecycle
from orihon.task.config import (
    CALLABLE,
    EXTRACTIVE,
    Summariser,
    TaskConfig,
    check_names,
    config_from_metadata,
    config_from_settings,
)
from orihon.task.history import load_config
from orihon.task.reader import Reader
from orihon.task.task import Task
from orihon.task_key import TaskKey, key_of
from orihon.tokens import counter

if TYPE_CHECKING:
    from orihon.inheritance import Handoff

log = logging.getLogger("orihon")

LIBRARY = "library"  # what the audit calls a caller that is no command


def open_engine(
    url: str | Path | None = None,
    *,
    settings: Settings | None = None,
    hooks: Sequence[Any] = (),
    user: str | None = None,
    token: str | None = None,
) -> Engine:
    """The engine over a store: a directory, `sqlite:///FILE`, `postgresql://…` or `memory:`.

    Without a URL, it is the one of the settings. Without `settings`, `./config.yaml` and the environment are read.
    If `user` is given, only that user's tasks are visible, and new tasks are that user's. If `access.tokens` are
    configured, `token` or `ORIHON_TOKEN` must be one of them.
    """
    settings = load() if settings is None else settings
    hooks = hooking.checked(hooks)  # before there is a store to let go of
    url, options = str(settings.store_url if url is None else url), store_options(settings)
    who = NOBODY
    try:
        who = caller(settings, user, token)
        user = confined(who, user)
    except AccessDenied as error:
        from orihon.stores.audit import write_denial  # noqa: PLC0415 - seldom needed

        write_denial(url, options, who, LIBRARY, "open", of=user, reason=error.message)
        raise
    store = open_store(url, options)
    if user is None and not settings.access.tokens:
        return Engine(store, settings, hooks)
    from orihon.stores.audit import audit_of  # noqa: PLC0415 - only where looks are written down

    return Engine(store, settings, hooks, user, Trail(audit_of(store), who, LIBRARY))


class Engine:
    """Tasks in one store."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        hooks: Sequence[Any] = (),
        user: str | None = None,
        trail: Trail | None = None,
    ) -> None:
        self.store, self.settings = store, settings
        self.user = user  # whose tasks are visible here; None means those of all users
        self.trail = trail or Trail(None, NOBODY, "")  # without one, nothing is written to the audit
        self.hooks = hooking.checked(hooks)
        self._open: WeakSet[Task] = WeakSet()

    def start(
        self,
        key: TaskKey | str,
        *,
        uuid: str | None = None,
        user: str | None = None,
        model: str | None = None,
        context_length: int | None = None,
        reserved_output: int | None = None,
        tools: Sequence[dict[str, Any]] | None = None,
        tokens: str | None = None,
        summariser: Summariser | str | None = None,
        window: str | None = None,
        language: str | None = None,
        inherit: bool = True,
        queued: bool = False,
        **others: Any,
    ) -> Task:
        """A new task on this key, to be used in a `with` block; unless told not to, it inherits from the last one.

        A queued one is only made: it is pending until somebody resumes it.
        """
        key = self._key(key)
        check_names(others)
        user, uuid = self._confined(user, "start"), text_or_none(uuid, "uuid")
        ask, name = self._summariser(summariser)
        config = config_from_settings(
            self.settings,
            model=model,
            context_length=context_length,
            reserved_output=reserved_output,
            tools=None if tools is None else list_of(tools, "tools", hint="Give a list of schemas."),
            tokens=tokens,
            summariser=name,
            window=window,
            language=language,
            **others,
        )
        self._finish_what_was_begun(key)
        handoff = self.inheritance(key, user=user, config=config) if inherit and not queued else None
        if handoff is not None:
            config = msgspec.structs.replace(config, inherited_from=handoff.uuid)
        metadata = self._metadata(key, uuid, user, config)
        lease = self.store.lease(metadata.uuid, create=metadata, status="pending" if queued else "running")
        try:
            task = Task(
                lease, config_from_metadata(lease.metadata.config), summariser=ask, hooks=self.hooks, handoff=handoff
            )
        except BaseException:
            lease.close()
            raise
        self._open.add(task)
        if not queued:
            task.log.info("Task started: %s", lifecycle.shown(task.row))
            hooking.call(self.hooks, "on_started", task)
        return task

    def resume(self, uuid: str, *, summariser: Summariser | str | None = None, **changes: Any) -> Task:
        """Go on with a task after a pause or a crash: the same window, byte for byte.

        A queued task is begun, and only then what it was made with can still be changed, such as its `tools`.
        """
        check_names(changes)
        row = self.row(uuid)
        self.trail.looked("task", uuid=row.uuid, read=["everything"])
        lease = self.store.lease(row.uuid)
        try:
            task = self.taken(lease)
            if task.row.status == "pending" and not task.began:
                found = self.inheritance(row.key, user=row.user, config=task.config, exclude=row.uuid)
                changes |= {"inherited_from": found.uuid} if found is not None else {}
            if changes:
                task = self._changed(task, changes)
            task = self._resumed(task, summariser)
        except BaseException:
            lease.close()
            raise
        self._open.add(task)
        what = "started" if row.status == "pending" else "resumed"  # a queued task begins only now
        task.log.info("Task %s: %s", what, lifecycle.shown(task.row))
        hooking.call(self.hooks, f"on_{what}", task)
        return task

    def tasks(
        self, *, status: Status | Sequence[Status] = (), user: str | None = None, key: TaskKey | str | None = None
    ) -> Iterator[TaskRow]:
        """The tasks of the store, the newest first."""
        statuses = (status,) if isinstance(status, str) else tuple(list_of(status, "status"))
        wrong = [one for one in statuses if one not in get_args(Status)]
        if wrong:
            raise UsageError(f"There is no status {wrong[0]!a}.", hint=f"There are {', '.join(get_args(Status))}.")
        key = None if key is None else self._key(key)
        user = None if user is None else checked_user(user, "user")
        query = Query(status=statuses, user=user, key=None if key is None else str(key))
        self.trail.asked("tasks", user, query=describe_query(query))
        return self.rows(query)

    def rows(self, query: Query) -> Iterator[TaskRow]:
        """The rows that are visible here, the newest first."""
        return visible_rows(self.store, query, self.user)

    def row(self, uuid: str) -> TaskRow:
        """Return the row of one task, by its id or by a beginning of it that fits no other visible task."""
        try:
            return find_row(self.store, uuid, user=self.user)
        except NotFound:
            if self.user is not None:
                self.trail.denied("task", uuid=uuid)
            raise

    def read(self, uuid: str) -> Reader:
        """A task to look at; it needs no lease and disturbs nobody."""
        row = self.row(uuid)
        self.trail.looked("task", uuid=row.uuid, read=["everything"])
        return Reader(self.store, row)

    def inheritance(
        self, key: TaskKey | str, *, user: str | None = None, config: TaskConfig | None = None, exclude: str = ""
    ) -> Handoff | None:
        """What a new task of this user on this key would inherit."""
        key = self._key(key)
        config = config or config_from_settings(self.settings)
        user = self._confined(user, "inheritance", key=str(key))
        self.trail.looked("inheritance", key=str(key))
        from orihon.inheritance import prepare  # noqa: PLC0415 - a task that inherits nothing needs nothing of it

        return prepare(
            self.store,
            key,
            settings=self.settings.context_inheritance,
            user=user,
            now=codec.now(),
            counter=counter(config.tokens),
            context_length=config.context_length,
            language=config.language,
            exclude=exclude,
        )

    def _key(self, key: TaskKey | str) -> TaskKey:
        """A task key as the store names it; the fields still have the case that a secret is recognised by."""
        return self.store.sanitiser.key(key_of(key))

    def taken(self, lease: Lease) -> Task:
        """A task whose lease the caller holds, as it is stored."""
        config = load_config(self.store, lease.metadata)
        earlier = row_if_there(self.store, config.inherited_from) if config.inherited_from else None
        if earlier is not None and not self._may_inherit(self.store.row(lease.uuid), earlier):
            log.warning("[uuid:%s] It names an earlier run of another user, which it does not get.", lease.uuid[:8])
            config = msgspec.structs.replace(config, inherited_from="")
        return Task(lease, config, hooks=self.hooks)

    def close(self) -> None:
        """Let go of the store; tasks that still run are paused before."""
        try:
            for task in list(self._open):
                try:
                    task.close()
                except StoreError as error:
                    log.warning("[uuid:%s] The task could not be paused: %s", task.uuid[:8], error)
        finally:
            self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _resumed(self, task: Task, summariser: Summariser | str | None) -> Task:
        row, notes = task.row, task.history.view.state.notes
        task.summariser, _ = self._summariser(
            summariser if summariser is not None else self._stored_summariser(task.config)
        )
        ending = lifecycle.ending_of(notes)
        if row.status == "running" and ending is not None:
            task.finish(ending)
        lifecycle.check_resume(task.row)
        crashed = row.status in {"running", "failed"}
        task.update(
            add={"resume_count": 1} if row.status != "pending" else None,
            status="running",
            activity="processing",
            last_activity="resumed",
            started_at=row.started_at or codec.now(),
            completed_at=None,
            error_message=None,
            reason=None,
        )
        if ending is not None:
            task.event("note", ending=None)
        if crashed:
            task.interrupt_lost()
        if task.config.inherited_from and not task.began:
            task.handoff = self.inheritance(row.key, user=row.user, config=task.config, exclude=row.uuid)
        return task

    def _changed(self, task: Task, changes: dict[str, Any]) -> Task:
        """A queued task with other settings; they are kept as an event, because the metadata is written once."""
        if task.row.status != "pending":
            raise UsageError(
                f"Task {task.uuid} is {task.row.status}; what it was started with cannot be changed.",
                hint="Only a queued task can be given other settings.",
            )
        config_from_settings(
            self.settings, **(msgspec.to_builtins(task.config) | changes)
        )  # refuses what makes no sense
        task.event("note", frozen=changes)
        return self.taken(task.lease)

    def _finish_what_was_begun(self, key: TaskKey) -> None:
        """A task on the same thing that died while it ended is ended now, so that it can be inherited."""
        for row in self.store.find(Query(status=("running",), key=str(key), user=self.user)):
            if row.activity != "completing":
                continue
            try:
                with self.store.lease(row.uuid) as lease:
                    task = self.taken(lease)
                    ending = lifecycle.ending_of(task.history.view.state.notes)
                    if ending is not None and task.row.status == "running":
                        task.finish(ending)
            except (LeaseHeld, NotFound):
                continue
            except StoreError as error:
                log.warning("[uuid:%s] Its end could not be finished: %s", row.uuid[:8], error)

    def _confined(self, user: str | None, at: str, **what: Any) -> str | None:
        """The owner of a new task: the requested user if the engine may act for them, else the engine's user."""
        user = None if user is None else checked_user(user, "user")
        if self.user is None:
            return user or (self.trail.who.user or None if self.settings.access.tokens else None)
        try:
            return confined(Principal(self.user), user)
        except AccessDenied:
            self.trail.denied(at, of=user, **what)
            raise

    def _may_inherit(self, row: TaskRow, earlier: TaskRow) -> bool:
        from orihon.inheritance import may_inherit  # noqa: PLC0415 - a task that inherits nothing needs nothing of it

        return may_inherit(row, earlier, self.settings.context_inheritance)

    def _summariser(self, given: Summariser | str | None) -> tuple[Summariser | None, str | None]:
        """The callable, and the name that is kept of it."""
        if callable(given):
            return given, str(getattr(given, "model", "") or CALLABLE)
        name = given or self.settings.context_storage.summariser or EXTRACTIVE
        if name != EXTRACTIVE:
            raise UsageError(
                f"There is no summariser {name!a} here.",
                hint="Give a callable from a prompt to a text, or `extractive`.",
            )
        return None, EXTRACTIVE

    @staticmethod
    def _stored_summariser(config: TaskConfig) -> str:
        """A callable cannot be kept; without a new one the extractive summary does it."""
        return EXTRACTIVE if config.summariser != EXTRACTIVE else config.summariser

    @staticmethod
    def _metadata(key: TaskKey, uuid: str | None, user: str | None, config: TaskConfig) -> Metadata:
        owner = current_owner()
        return Metadata(
            uuid=uuid or str(uuids.uuid4()),
            task_key=key,
            created_at=codec.now(),
            process_id=owner.process_id,
            hostname=owner.hostname,
            config=msgspec.to_builtins(config),
            user=user,
            format=FORMAT,
        )
