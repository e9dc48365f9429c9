"""The right to write one task: records, events and the row. Every other part of a task writes through it."""

from __future__ import annotations

import logging
import threading
from collections.abc import MutableMapping
from typing import Any

from orihon.context.events import problem
from orihon.context.frame import Batch
from orihon.context.view import RECORD_EVERY, View, record
from orihon.errors import Conflict, NotFound, OrihonError, StoreError, UsageError
from orihon.records import Event, Fold, Message, Record, TaskRow
from orihon.stores.base import Lease
from orihon.task.config import TaskConfig
from orihon.task.log import TaskLog, load_config, load_view


class TaskWriter:
    """Appends records and keeps the view up to date. One lock serialises all threads of the process."""

    def __init__(self, lease: Lease, *, view: View | None = None, config: TaskConfig | None = None) -> None:
        self.lease, self.uuid, self.sanitiser = lease, lease.uuid, lease.store.sanitiser
        self.lock = threading.RLock()
        self.logger = _TaskLogger(logging.getLogger("orihon"), {"short": lease.uuid[:8]})
        self.row: TaskRow = lease.read_row()
        view = load_view(lease.store, lease.uuid, lease.last(Event)) if view is None else view
        self._open_log(config or load_config(lease.metadata, view), view)
        self._view_is_uncertain = False
        self._is_suspended = False  # the task is a session that was given back
        lease.check = _check

    @property
    def config(self) -> TaskConfig:
        """The settings of the task."""
        return self.log.config

    def append(self, record: Record) -> int:
        """Store a record and return its number."""
        number = self.lease.append(record)
        if isinstance(record, Message) and number > self.log.last:
            newest = self.lease.newest
            if isinstance(newest, Message) and newest.seq == number == self.log.last + 1:
                self.log.remember(newest)
            else:  # the outcome of this append, or of an earlier one, was unknown
                self.log.catch_up()
            if record.tokens or self.lease.counter.name != self.log.counter.name:
                self.log.counted_from = number + 1  # another counter was used
        return number

    def event(self, type: str, **data: Any) -> int:
        """Store a change of the view. From time to time the whole view is stored, so that reading can start there."""
        self.reload_if_uncertain()
        before = self.log.view.state.notes.get("frozen")
        number = self._append_event(type, data)
        if number % RECORD_EVERY == 0:
            try:
                self._append_event("view", record(self.log.view))
            except OrihonError as error:  # the event itself is stored
                self.logger.warning("The view could not be recorded; reading it takes longer: %s", error)
        if self.log.view.state.notes.get("frozen") != before:  # a tangent or a restore can bring back another model
            self._open_log(load_config(self.lease.metadata, self.log.view), self.log.view)
        return number

    def note(self, **notes: Any) -> int:
        """Keep some values with the task; None removes one."""
        return self.event("note", **notes)

    def update(self, *, add: dict[str, int] | None = None, **changes: Any) -> None:
        """Change the row: `add` increments counters, the other columns are set."""
        self.row = self.lease.update(add=add, **changes)

    def store_folds(self, batch: Batch) -> None:
        """Store a batch of folds. Its event makes it count."""
        first = self.lease.last(Fold) + 1
        with self.lease.batch():
            for stand_in in batch.stand_ins:
                self.lease.append(
                    Fold(
                        id=0,
                        seq=stand_in.seq,
                        text=stand_in.text or "",
                        arguments=stand_in.arguments,
                        tokens=stand_in.tokens,
                        timestamp="",
                    )
                )
        self.event("folds", **batch.event(first, self.lease.last(Fold)))

    @property
    def is_writable(self) -> bool:
        """Whether the task is running, and this process holds it."""
        return self.row.status == "running" and not self._is_suspended and not self.lease.lost

    def suspend(self) -> None:
        """Let other processes take the task, and keep in memory what `retake` needs."""
        with self.lock:
            if not self.lease.is_counted:
                self.update()
            self.lease.suspend()
            self._is_suspended = True

    def retake(self) -> bool:
        """Take the suspended task again. Return False if that is only possible by reading it again."""
        with self.lock:
            try:
                self._is_suspended = not self.lease.retake()
            except NotFound:  # it was deleted
                return False
            return not self._is_suspended

    def release(self) -> None:
        """Release the lease; a failure is only logged."""
        with self.lock:
            try:
                if self.is_writable and not self.lease.is_counted:
                    self.update()
                self.lease.close()
            except StoreError as error:
                self.logger.warning("%s", error)
            self._is_suspended = True

    def check_running(self) -> None:
        """Raise Conflict unless the task is running and this process holds it."""
        if self._is_suspended:
            raise Conflict(
                f"The session {self.row.task_id} was given back.",
                hint="engine.session(id) takes it again.",
                retryable=False,
            )
        if self.row.status != "running":
            raise Conflict(
                f"Task {self.uuid} is {self.row.status}.",
                hint="engine.resume(uuid) continues a paused task.",
                retryable=False,
            )

    def reload_if_uncertain(self) -> None:
        """Read the view again after an event whose outcome is unknown."""
        if self._view_is_uncertain:
            self.log.view = load_view(self.lease.store, self.uuid, self.lease.last(Event) + 1)
            self._view_is_uncertain = False

    def _open_log(self, config: TaskConfig, view: View) -> None:
        self.log = TaskLog(self.lease.store, self.uuid, config, view, last=self.lease.last(Message))

    def _append_event(self, type: str, data: dict[str, Any]) -> int:
        event = Event(id=0, after=self.log.last, type=type, data=data, timestamp="")
        try:
            number = self.lease.append(event)
        except StoreError:
            self._view_is_uncertain = True  # the event may be stored all the same
            raise
        if isinstance(self.lease.newest, Event):
            self.log.apply(self.lease.newest)
        return number


class _TaskLogger(logging.LoggerAdapter[logging.Logger]):
    """Prefixes every line with the task's id."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        return f"[uuid:{self.extra['short']}] {msg}" if self.extra else msg, kwargs


def _check(record: Record) -> None:
    """Raise UsageError for an event whose data no reader could use."""
    if isinstance(record, Event) and (reason := problem(record)):
        raise UsageError(
            f"The event cannot be stored: {reason}.", hint="orihon.context.events describes the data of events."
        )
