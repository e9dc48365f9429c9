"""Orihon: start a task, go on with one, look at them. `orihon.open(url)` gives it."""

from __future__ import annotations

import logging
import uuid as uuids
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self, get_args
from weakref import WeakSet

import msgspec

from orihon import codec
from orihon.config import load
from orihon.errors import LeaseHeld, NotFound, StoreError, UsageError
from orihon.handoff import Handoff, prepare
from orihon.keys import TaskKey
from orihon.records import Metadata, Status, TaskRow
from orihon.settings import Settings
from orihon.stores import open_store, options_of
from orihon.stores.base import FORMAT, Lease, Query, Store
from orihon.stores.identity import me
from orihon.task import hooks as hooking
from orihon.task import lifecycle
from orihon.task.frozen import CALLABLE, EXTRACTIVE, Frozen, Summariser, freeze, thaw
from orihon.task.history import stored_frozen
from orihon.task.reader import Reader
from orihon.task.task import Task
from orihon.tokens import counter

log = logging.getLogger("orihon")


def open_engine(
    url: str | Path | None = None,
    *,
    settings: Settings | None = None,
    hooks: Sequence[Any] = (),
    user: str | None = None,
) -> Orihon:
    """The engine over a store: a directory, `sqlite:///FILE`, `postgresql://…` or `memory:`.

    Without a URL, it is the one of the settings. Without `settings`, `./config.yaml` and the environment are read.
    With a `user`, only his tasks are there.
    """
    settings = load() if settings is None else settings
    hooks = hooking.checked(hooks)  # before there is a store to let go of
    store = open_store(settings.store_url if url is None else url, options_of(settings))
    return Orihon(store, settings, hooks, user)


class Orihon:
    """Tasks in one store."""

    def __init__(self, store: Store, settings: Settings, hooks: Sequence[Any] = (), user: str | None = None) -> None:
        self.store, self.settings = store, settings
        self.user = user  # whose tasks can be named and listed here; None means everybody's
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
        key = TaskKey.parse(key) if isinstance(key, str) else key
        _check_names(others)
        ask, name = self._summariser(summariser)
        frozen = freeze(
            self.settings,
            model=model,
            context_length=context_length,
            reserved_output=reserved_output,
            tools=list(tools) if tools is not None else None,
            tokens=tokens,
            summariser=name,
            window=window,
            language=language,
            **others,
        )
        self._finish_what_was_begun(key)
        handoff = self.handoff(key, user=user, frozen=frozen) if inherit and not queued else None
        if handoff is not None:
            frozen = msgspec.structs.replace(frozen, inherited_from=handoff.uuid)
        metadata = self._metadata(key, uuid, user, frozen)
        lease = self.store.lease(metadata.uuid, create=metadata, status="pending" if queued else "running")
        try:
            task = Task(lease, thaw(lease.metadata.config), summariser=ask, hooks=self.hooks, handoff=handoff)
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
        _check_names(changes)
        row = self.row(uuid)
        lease = self.store.lease(row.uuid)
        try:
            task = self.taken(lease)
            if task.row.status == "pending" and not task.began:
                found = self.handoff(row.key, user=row.user, frozen=task.frozen, exclude=row.uuid)
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
        statuses = (status,) if isinstance(status, str) else tuple(status)
        wrong = [one for one in statuses if one not in get_args(Status)]
        if wrong:
            raise UsageError(f"There is no status {wrong[0]!a}.", hint=f"There are {', '.join(get_args(Status))}.")
        key = TaskKey.parse(key) if isinstance(key, str) else key
        if self.user is not None and user not in {None, self.user}:
            return iter(())
        return self.store.find(
            Query(status=statuses, user=self.user or user, key=str(key) if key is not None else None)
        )

    def row(self, uuid: str) -> TaskRow:
        """The row of one task, by its id or by a beginning of it that fits no other."""
        if not isinstance(uuid, str) or not uuid:
            raise UsageError(f"A task id cannot be {uuid!a}.", hint="Give the id of a task, or its beginning.")
        found = list(self.store.find(Query(uuid=uuid, user=self.user, limit=2)))
        whole = [row for row in found if row.uuid == uuid]
        if not found:
            raise NotFound(kind="task", id=uuid)
        if len(found) > 1 and not whole:
            try:
                return self.store.row(uuid)  # one that is called exactly so may be older than those that begin so
            except NotFound:
                raise UsageError(f"Several tasks begin with {uuid!a}.", hint="Give more of the id.") from None
        return (whole or found)[0]

    def read(self, uuid: str) -> Reader:
        """A task to look at; it needs no lease and disturbs nobody."""
        return Reader(self.store, self.row(uuid))

    def handoff(
        self, key: TaskKey | str, *, user: str | None = None, frozen: Frozen | None = None, exclude: str = ""
    ) -> Handoff | None:
        """What a new task on this key would inherit."""
        frozen = frozen or freeze(self.settings)
        return prepare(
            self.store,
            TaskKey.parse(key) if isinstance(key, str) else key,
            settings=self.settings.context_inheritance,
            user=user,
            now=codec.now(),
            counter=counter(frozen.tokens),
            context_length=frozen.context_length,
            language=frozen.language,
            exclude=exclude,
        )

    def taken(self, lease: Lease) -> Task:
        """A task whose lease somebody has, as it is stored."""
        return Task(lease, stored_frozen(self.store, lease.metadata), hooks=self.hooks)

    def close(self) -> None:
        """Let go of the store; tasks that still run are paused before."""
        for task in list(self._open):
            try:
                task.close()
            except StoreError as error:
                log.warning("[uuid:%s] The task could not be paused: %s", task.uuid[:8], error)
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _resumed(self, task: Task, summariser: Summariser | str | None) -> Task:
        row, notes = task.row, task.history.view.state.notes
        task.summariser, _ = self._summariser(summariser if summariser is not None else self._frozen_one(task.frozen))
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
        if task.frozen.inherited_from and not task.began:
            task.handoff = self.handoff(row.key, user=row.user, frozen=task.frozen, exclude=row.uuid)
        return task

    def _changed(self, task: Task, changes: dict[str, Any]) -> Task:
        """A queued task with other settings; they are kept as an event, because the metadata is written once."""
        if task.row.status != "pending":
            raise UsageError(
                f"Task {task.uuid} is {task.row.status}; what it was started with cannot be changed.",
                hint="Only a queued task can be given other settings.",
            )
        freeze(self.settings, **(msgspec.to_builtins(task.frozen) | changes))  # refuses what makes no sense
        task.event("note", frozen=changes)
        return self.taken(task.lease)

    def _finish_what_was_begun(self, key: TaskKey) -> None:
        """A task on the same thing that died while it ended is ended now, so that it can be inherited."""
        for row in self.store.find(Query(status=("running",), key=str(key))):
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
    def _frozen_one(frozen: Frozen) -> str:
        """A callable cannot be kept; without a new one the extractive summary does it."""
        return EXTRACTIVE if frozen.summariser != EXTRACTIVE else frozen.summariser

    @staticmethod
    def _metadata(key: TaskKey, uuid: str | None, user: str | None, frozen: Frozen) -> Metadata:
        owner = me()
        return Metadata(
            uuid=uuid or str(uuids.uuid4()),
            task_key=key,
            created_at=codec.now(),
            process_id=owner.process_id,
            hostname=owner.hostname,
            config=msgspec.to_builtins(frozen),
            user=user,
            format=FORMAT,
        )


def _check_names(others: dict[str, Any]) -> None:
    names = [name for name in Frozen.__struct_fields__ if name != "inherited_from"]  # that is found, not given
    wrong = sorted(others.keys() - set(names))
    if wrong:
        known = ", ".join(names)
        raise UsageError(f"A task has no {wrong[0]!a} to set.", hint=f"There are {known}.")
