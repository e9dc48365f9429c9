"""The engine: start a task, resume one, list them. `orihon.open(url)` returns it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, get_args
from weakref import WeakSet

import msgspec

from orihon import codec
from orihon.access import ANONYMOUS, Principal, Trail, caller, confine_user, validate_user
from orihon.coerce import to_list, to_optional_text
from orihon.context.view import View
from orihon.errors import AccessDenied, Conflict, LeaseHeld, NotFound, StoreError, StoreUnavailable, UsageError
from orihon.records import Event, Metadata, Status, TaskRow
from orihon.retry import Backoff
from orihon.settings.load import load
from orihon.settings.schema import Settings
from orihon.stores import open_store, store_options
from orihon.stores.base import FORMAT, Lease, Query, Store
from orihon.stores.liveness import current_owner
from orihon.stores.lookup import describe_query, find_row, row_if_there, visible_rows
from orihon.task.config import EXTRACTIVE, Summariser, TaskConfig, check_option_names, name_summariser
from orihon.task.hooks import call_hooks, validate_hooks
from orihon.task.lifecycle import can_resume, check_resume, read_ending
from orihon.task.log import load_config, load_view
from orihon.task.reader import Reader
from orihon.task.task import Task
from orihon.task_key import TaskKey, to_task_key
from orihon.tokens import counter

if TYPE_CHECKING:
    from orihon.inheritance import Handoff

logger = logging.getLogger("orihon")

SESSIONS = "0f1a8f0e-3c51-5a3e-9d53-1b8f6c2f7a20"  # the namespace of their ids
FINDING = Backoff(tries=3, first_seconds=0.2)
LIBRARY = "library"  # the audit's name for a caller that is no command


def open_engine(
    url: str | Path | None = None,
    *,
    settings: Settings | None = None,
    hooks: Sequence[Any] = (),
    user: str | None = None,
    token: str | None = None,
) -> Engine:
    """Return the engine over a store: a directory, `sqlite:///FILE`, `postgresql://…` or `memory:`.

    Without a URL, the store of the settings is opened. Without `settings`, `./config.yaml` and the environment are
    read. If `user` is given, only that user's tasks are visible, and new tasks are that user's. If `access.tokens`
    are configured, `token` or `ORIHON_TOKEN` must be one of them.
    """
    if url is not None and not isinstance(url, str | Path):
        raise UsageError(
            f"A store cannot be {url!a:.80}.", hint="Give a directory, or a URL such as sqlite:///contexts.db."
        )
    settings = load() if settings is None else settings
    hooks = validate_hooks(hooks)  # before a store is opened
    url, options = str(settings.store_url if url is None else url), store_options(settings)
    principal = ANONYMOUS
    try:
        principal = caller(settings, user, token)
        user = confine_user(principal, user)
    except AccessDenied as error:
        from orihon.stores.audit import open_trail  # noqa: PLC0415 - seldom needed

        with open_trail(url, options, principal, LIBRARY) as trail:
            trail.record_denied("open", of=user, reason=error.message)
        raise
    store = open_store(url, options)
    if user is None and not settings.access.tokens:
        return Engine(store, settings, hooks)
    from orihon.stores.audit import open_audit  # noqa: PLC0415 - only where reads are audited

    return Engine(store, settings, hooks, user, Trail(open_audit(store), principal, LIBRARY))


class Engine:
    """The tasks of one store."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        hooks: Sequence[Any] = (),
        user: str | None = None,
        trail: Trail | None = None,
    ) -> None:
        self.store, self.settings = store, settings
        self.user = user  # whose tasks are visible; None means all users'
        self.trail = trail or Trail(None, ANONYMOUS, "")  # this one writes no audit
        self.hooks = validate_hooks(hooks)
        self._threshold_explained = False
        self._open: WeakSet[Task] = WeakSet()
        self._has_sessions = False

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
        **options: Any,
    ) -> Task:
        """Start a task on this key and return it, for use in a `with` block.

        The task inherits from earlier runs of the key unless `inherit` is false. A `queued` task is only created: it
        is pending until a worker resumes it.
        """
        key = self._sanitise_key(key)
        check_option_names(options)
        user, uuid = self._owner(user, "start"), to_optional_text(uuid, "uuid")
        summarise, summariser_name = self._choose_summariser(summariser)
        config = TaskConfig.from_settings(
            self.settings,
            model=model,
            context_length=context_length,
            reserved_output=reserved_output,
            tools=None if tools is None else to_list(tools, "tools", hint="Give a list of schemas."),
            tokens=tokens,
            summariser=summariser_name,
            window=window,
            language=language,
            **options,
        )
        self._finish_interrupted_endings(key)
        inheritance = self.inheritance(key, user=user, config=config) if inherit and not queued else None
        if inheritance is not None:
            config = msgspec.structs.replace(config, inherited_from=inheritance.uuid)
        metadata = _new_metadata(key, uuid, user, config)
        lease = self.store.lease(metadata.uuid, create=metadata, status="pending" if queued else "running")
        task = self._create_task(lease, summarise, inheritance)
        self._open.add(task)
        if not queued:
            self._announce(task, "started")
            self._explain_threshold(task)
        return task

    def _create_task(self, lease: Lease, summariser: Summariser | None, inheritance: Handoff | None) -> Task:
        """Return the new task of a lease, which is released if that fails."""
        try:
            return Task(
                lease,
                view=View(),
                summariser=summariser,
                hooks=self.hooks,
                inheritance=inheritance,
                inheriting=self.settings.context_inheritance,
            )
        except BaseException:
            lease.close()
            raise

    def resume(self, uuid: str, *, summariser: Summariser | str | None = None, **options: Any) -> Task:
        """Continue a task after a pause or a crash. Its window is the same, byte for byte.

        A queued task is started. Only then can options that it was created with still change, such as its `tools`.
        """
        check_option_names(options)
        options = {name: value for name, value in options.items() if value is not None}
        row = self.row(uuid)
        self.trail.record("task", ["everything"], uuid=row.uuid)
        lease = self.store.lease(row.uuid)
        try:
            task = self.open_leased(lease)
            if task.row.status == "pending" and not task._began:
                inheritance = self.inheritance(row.key, user=row.user, config=task.config, exclude=row.uuid)
                options |= {"inherited_from": inheritance.uuid} if inheritance is not None else {}
            if options:
                task = self._with_options(task, options)
            self._continue(task, summariser)
        except BaseException:
            lease.close()
            raise
        self._open.add(task)
        self._announce(task, "started" if row.status == "pending" else "resumed")
        return task

    def session(
        self,
        id: str,
        *,
        wait: float = 0,
        user: str | None = None,
        summariser: Summariser | str | None = None,
        inherit: bool = True,
        **options: Any,
    ) -> Task:
        """Return the task that stays open under this id, any text; start it if there is none.

        Everyone in this process who asks for the id gets the same task. Leaving its `with` block, or `close`, gives it
        back; after the last holder here did, another process can take it. If another process has it now, wait
        up to `wait` seconds before LeaseHeld is raised. The options are those of `start`; what differs from the options
        that the task was started with is changed. `complete` ends the session, and the next one inherits from it.
        """
        from orihon.task.sessions import hold  # noqa: PLC0415 - a program without sessions does not need it

        key = self._sanitise_key(TaskKey.session(id))
        check_option_names(options)
        options = {name: value for name, value in options.items() if value is not None}
        user = self._owner(user, "session")

        def open_task() -> Task:
            return self._open_session(key, user, summariser, inherit=inherit, options=options)

        self._has_sessions = True
        session = hold((self.store.identity, user, str(key)), open_task, wait)
        task = session.task
        assert task is not None  # noqa: S101 - it was just taken
        try:
            self.trail.record("task", ["everything"], uuid=task.uuid)
            if options and options != session.options:
                task.reconfigure(**options)
                session.options = options
        except BaseException:
            session.let_go()
            raise
        return task

    def tasks(
        self, *, status: Status | Sequence[Status] = (), user: str | None = None, key: TaskKey | str | None = None
    ) -> Iterator[TaskRow]:
        """Yield the rows of the tasks, the newest first."""
        statuses = (status,) if isinstance(status, str) else tuple(to_list(status, "status"))
        unknown = [status for status in statuses if status not in get_args(Status)]
        if unknown:
            raise UsageError(f"There is no status {unknown[0]!a}.", hint=f"There are {', '.join(get_args(Status))}.")
        key = None if key is None else self._sanitise_key(key)
        user = None if user is None else validate_user(user, "user")
        query = Query(status=statuses, user=user, key=None if key is None else str(key))
        self.trail.record_query("tasks", ["rows"], user, query=describe_query(query))
        return self.rows(query)

    def rows(self, query: Query) -> Iterator[TaskRow]:
        """Yield the visible rows that match a query, the newest first."""
        return visible_rows(self.store, query, self.user)

    def row(self, uuid: str) -> TaskRow:
        """Return the row of one task, by its id or by a beginning of it that fits no other visible task."""
        try:
            return find_row(self.store, uuid, user=self.user)
        except (NotFound, UsageError):
            self.record_refusal("task", uuid)
            raise

    def record_refusal(self, kind: str, uuid: str) -> None:
        """Write a refusal to the audit: a user asked for a task that does not exist or is another user's."""
        if self.user is not None:
            self.trail.record_denied(kind, uuid=str(uuid))

    def read(self, uuid: str) -> Reader:
        """Return a task for reading. It needs no lease and disturbs no writer."""
        row = self.row(uuid)
        self.trail.record("task", ["everything"], uuid=row.uuid)
        return Reader(self.store, row)

    def inheritance(
        self, key: TaskKey | str, *, user: str | None = None, config: TaskConfig | None = None, exclude: str = ""
    ) -> Handoff | None:
        """Return what a new task of this user on this key would inherit."""
        key = self._sanitise_key(key)
        config = config or TaskConfig.from_settings(self.settings)
        user = self._owner(user, "inheritance", key=str(key))
        self.trail.record("inheritance", ["summary"], key=str(key))
        from orihon.inheritance import prepare  # noqa: PLC0415 - a task that inherits nothing does not need it

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

    def open_leased(self, lease: Lease) -> Task:
        """Return the task of a lease that the caller holds, as it is stored."""
        view = load_view(self.store, lease.uuid, lease.last(Event))
        config = load_config(lease.metadata, view)
        earlier = row_if_there(self.store, config.inherited_from) if config.inherited_from else None
        if earlier is not None and not self._may_inherit(lease.read_row(), earlier):
            logger.warning("[uuid:%s] It names an earlier run of another user, which is ignored.", lease.uuid[:8])
            config = msgspec.structs.replace(config, inherited_from="")
        inheriting = self.settings.context_inheritance
        return Task(lease, config=config, view=view, hooks=self.hooks, inheriting=inheriting)

    def close(self) -> None:
        """Close the store. Tasks that still run are paused first."""
        try:
            if self._has_sessions:
                from orihon.task.sessions import close_store  # noqa: PLC0415 - it is loaded already

                close_store(self.store)
            for task in list(self._open):
                try:
                    task.close()
                except StoreError as error:
                    logger.warning("[uuid:%s] The task could not be paused: %s", task.uuid[:8], error)
        finally:
            self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _continue(self, task: Task, summariser: Summariser | str | None) -> None:
        """Set a task running again and repair what a crash left open."""
        # a callable cannot be stored; without a new one the extractive summariser is used
        task.summariser, _ = self._choose_summariser(EXTRACTIVE if summariser is None else summariser)
        row, ending = task.row, read_ending(task.log.view.state.notes)
        if row.status == "running" and ending is not None:
            task._finish(ending)
        check_resume(task.row)
        task.writer.update(
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
            task.writer.note(ending=None)
        task._summaries.adopt_stored()
        if row.status in {"running", "failed"}:  # its process died
            task._interrupt_lost_calls()
        if task.config.inherited_from and not task._began:
            task.inheritance = self.inheritance(row.key, user=row.user, config=task.config, exclude=row.uuid)

    def _open_session(
        self,
        key: TaskKey,
        user: str | None,
        summariser: Summariser | str | None,
        *,
        inherit: bool,
        options: dict[str, Any],
    ) -> Task:
        """Return the task that is open under a key, else a new one. Raise LeaseHeld if another process has it."""
        while True:
            found = self.store.find(Query(key=str(key), user=user))
            rows = [row for row in found if row.user == user]
            row = next(filter(can_resume, rows), None)
            if row is not None:
                task = self._reopen_session(row, summariser)
                if task is not None:
                    return task
                continue
            uuid = _session_uuid(key, user, {row.uuid for row in rows})
            try:
                task = self.start(key, uuid=uuid, user=user, summariser=summariser, inherit=inherit, **options)
            except Conflict:  # another process was faster
                raise LeaseHeld(f"The session {key.task_id} is being started by another process.") from None
            self._open.discard(task)
            return task

    def _reopen_session(self, row: TaskRow, summariser: Summariser | str | None) -> Task | None:
        """Return the task of a session that no process holds; None if it turns out to have ended."""
        lease = self.store.lease(row.uuid)
        try:
            task = self.open_leased(lease)
            ending = read_ending(task.log.view.state.notes)
            if task.row.status == "running" and ending is not None:  # its process died while it ended
                task._finish(ending)
            if not can_resume(task.row):
                lease.close()
                return None
            task.summariser, _ = self._choose_summariser(EXTRACTIVE if summariser is None else summariser)
            was_given_back = row.lease_owner is None and lease.fence == row.fence + 1
            if task.row.status != "running":
                task.writer.update(
                    status="running", activity="", last_activity="resumed", completed_at=None, reason=None
                )
                task.writer.note(ending=None)
            if row.status == "failed" or not was_given_back:
                task._interrupt_lost_calls()
        except BaseException:
            lease.close()
            raise
        return task

    def _with_options(self, task: Task, options: dict[str, Any]) -> Task:
        """Return a queued task with other options. They are stored as an event: the metadata is written once."""
        if task.row.status != "pending":
            raise UsageError(
                f"Task {task.uuid} is {task.row.status}; its options cannot be changed.",
                hint="Only the options of a queued task can be changed.",
            )
        options = task.config.complete_options(options)
        task.config.with_options(options)  # raises for nonsense
        task.writer.note(frozen=options)
        return self.open_leased(task.writer.lease)

    def _finish_interrupted_endings(self, key: TaskKey) -> None:
        """End the tasks on this key that died while they ended, so that they can be inherited."""
        for row in self._find_completing(key):
            try:
                with self.store.lease(row.uuid) as lease:
                    task = self.open_leased(lease)
                    ending = read_ending(task.log.view.state.notes)
                    if ending is not None and task.row.status == "running":
                        task._finish(ending)
            except (LeaseHeld, NotFound):
                continue
            except StoreError as error:
                logger.warning("[uuid:%s] The end of the task could not be finished: %s", row.uuid[:8], error)

    def _find_completing(self, key: TaskKey) -> list[TaskRow]:
        """Return the tasks on this key that were ending; none, with a warning, if the store cannot say."""
        query = Query(status=("running",), key=str(key), user=self.user)
        try:
            rows = FINDING.call(lambda: list(self.store.find(query)), should_retry=_is_passing)
        except StoreError as error:
            logger.warning("Tasks on %s that died while they ended are not finished: %s", key, error)
            return []
        return [row for row in rows if row.activity == "completing"]

    def _announce(self, task: Task, change: str) -> None:
        task.writer.logger.info("Task %s: %s", change, _describe(task.row))
        call_hooks(self.hooks, f"on_{change}", task)

    def _explain_threshold(self, task: Task) -> None:
        """Say once that a threshold has no effect; loudly if it was set."""
        if task._summaries.threshold_has_effect or self._threshold_explained:
            return
        self._threshold_explained = True
        is_set = task.config.compression_threshold != TaskConfig().compression_threshold
        task.writer.logger.log(
            logging.WARNING if is_set else logging.INFO,
            "compression_threshold has no effect: there is no summariser, and the policy `%s` makes room by itself",
            task.config.window,
        )

    def _owner(self, user: str | None, at: str, **details: Any) -> str | None:
        """Return the owner of a new task: the requested user if the engine may act for them, else the engine's user."""
        user = None if user is None else validate_user(user, "user")
        if self.user is None:
            return user or (self.trail.principal.user or None if self.settings.access.tokens else None)
        try:
            return confine_user(Principal(self.user), user)
        except AccessDenied:
            self.trail.record_denied(at, of=user, **details)
            raise

    def _sanitise_key(self, key: TaskKey | str) -> TaskKey:
        """Return a task key as it may be stored."""
        return self.store.sanitiser.key(to_task_key(key))

    def _may_inherit(self, row: TaskRow, earlier: TaskRow) -> bool:
        from orihon.inheritance import may_inherit  # noqa: PLC0415 - a task that inherits nothing does not need it

        return may_inherit(row, earlier, self.settings.context_inheritance)

    def _choose_summariser(self, summariser: Summariser | str | None) -> tuple[Summariser | None, str]:
        """Return the callable, and the name that is stored of it."""
        if callable(summariser):
            return summariser, name_summariser(summariser)
        name = summariser or self.settings.context_storage.summariser or EXTRACTIVE
        if name != EXTRACTIVE:
            raise UsageError(
                f"There is no summariser {name!a} here.",
                hint="Give a callable from a prompt to a text, or `extractive`.",
            )
        return None, EXTRACTIVE


def _is_passing(error: Exception) -> bool:
    return isinstance(error, StoreUnavailable) and error.retryable


def _new_metadata(key: TaskKey, uuid: str | None, user: str | None, config: TaskConfig) -> Metadata:
    import uuid as uuids  # noqa: PLC0415 - it takes 0.4 MB, which a process that only reads saves

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


def _session_uuid(key: TaskKey, user: str | None, taken: set[str]) -> str:
    """Return the id of a new session. It follows from the key, so that two processes cannot both start one."""
    import uuid as uuids  # noqa: PLC0415 - as above

    namespace = uuids.UUID(SESSIONS)
    candidates = (str(uuids.uuid5(namespace, f"{user or ''}\n{key}\n{number}")) for number in count(len(taken)))
    return next(uuid for uuid in candidates if uuid not in taken)


def _describe(row: TaskRow) -> str:
    """Return what a task works on, as the log shows it: `github/acme/shop#27`."""
    place = "/".join(part for part in (row.task_source, row.owner, row.repo) if part)
    place += f"/{row.project_id}" if row.project_id is not None else ""
    return f"{place}#{row.task_id}"
