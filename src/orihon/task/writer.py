"""The right to write one task, with the view over it kept up to date: the steps that everything else is made of."""

from __future__ import annotations

import logging
import threading
from collections.abc import MutableMapping
from typing import Any

from orihon.context.frame import Batch
from orihon.context.view import RECORD_EVERY, record
from orihon.errors import Conflict, OrihonError, StoreError, UsageError
from orihon.records import Event, Fold, Message, Record, TaskRow
from orihon.stores.base import Lease
from orihon.task.config import TaskConfig
from orihon.task.history import History, fold_records, load_view


class _Tagged(logging.LoggerAdapter[logging.Logger]):
    """Every line says which task it is about."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        return f"[uuid:{self.extra['short']}] {msg}" if self.extra else msg, kwargs


class Writer:
    """Appends records and takes in what they change; one lock for all threads of the process."""

    def __init__(self, lease: Lease, config: TaskConfig) -> None:
        self.lease, self.config, self.uuid, self.sanitiser = lease, config, lease.uuid, lease.store.sanitiser
        self.lock = threading.RLock()
        self.log = _Tagged(logging.getLogger("orihon"), {"short": lease.uuid[:8]})
        self.row: TaskRow = lease.store.row(lease.uuid)
        self.history = History(lease.store, lease.uuid, config, last=lease.last(Message), last_event=lease.last(Event))
        self._in_doubt = False
        lease.check = _check

    def append(self, record: Record) -> int:
        """Store a record and return its number."""
        number = self.lease.append(record)
        if isinstance(record, Message) and number > self.history.last:
            newest = self.lease.newest
            if isinstance(newest, Message) and newest.seq == number == self.history.last + 1:
                self.history.remember(newest)
            else:  # it, or one before it, was in doubt
                self.history.catch_up()
            if record.tokens or self.lease.counter.name != self.history.counter.name:
                self.history.counted_from = number + 1  # another one counted
        return number

    def event(self, type: str, **data: Any) -> int:
        """Change what is visible; every so often the whole view is written, so that reading can start there."""
        self.settle()
        number = self._event(type, data)
        if number % RECORD_EVERY == 0:
            try:
                self._event("view", record(self.history.view))
            except OrihonError as error:  # the event itself is there
                self.log.warning("The view could not be recorded; reading it takes longer: %s", error)
        return number

    def _event(self, type: str, data: dict[str, Any]) -> int:
        event = Event(id=0, after=self.history.last, type=type, data=data, timestamp="")
        try:
            number = self.lease.append(event)
        except StoreError:
            self._in_doubt = True  # it may be there all the same
            raise
        if isinstance(self.lease.newest, Event):
            self.history.step(self.lease.newest)
        return number

    def settle(self) -> None:
        """After an event of unknown outcome: look at what is stored."""
        if self._in_doubt:
            self.history.view = load_view(self.lease.store, self.uuid, self.lease.last(Event) + 1)
            self._in_doubt = False

    def keep(self, batch: Batch) -> None:
        """Store a batch of folds; its event is what makes it count."""
        first = self.lease.last(Fold) + 1
        with self.lease.batch():
            for fold in fold_records(batch):
                self.lease.append(fold)
        self.event("folds", **batch.event(first, self.lease.last(Fold)))

    def update(self, *, add: dict[str, int] | None = None, **changes: Any) -> None:
        """Change the row and its readable mirror."""
        self.row = self.lease.update(add=add, **changes)

    def check_running(self) -> None:
        """Refuse to go on with a task that is not running here."""
        if self.row.status != "running":
            raise Conflict(
                f"Task {self.uuid} is {self.row.status}.",
                hint="engine.resume(uuid) goes on with a paused task.",
                retryable=False,
            )


def _check(record: Record) -> None:
    """Refuse an event whose data no reader could use."""
    if not isinstance(record, Event):
        return
    from orihon.context.events import problem  # noqa: PLC0415 - only events need the schemas

    if reason := problem(record):
        raise UsageError(f"It cannot be stored: {reason}.", hint="orihon.context.events describes the data of events.")
