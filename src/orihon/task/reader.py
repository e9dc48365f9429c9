"""A task that is only read: everything that is stored of it, and the window that the model would get now."""

from __future__ import annotations

from collections.abc import Iterator

from orihon.errors import Corrupt, NotFound
from orihon.records import Event, Message, Metadata, PlanEntry, Summary, TaskRow, ToolCall
from orihon.stores.base import Store
from orihon.task.config import TaskConfig
from orihon.task.log import TaskLog, last_number, load_config, load_view
from orihon.task.window import Window


class Reader:
    """One task, read-only. It needs no lease; each call sees what is stored at that moment."""

    def __init__(self, store: Store, row: TaskRow) -> None:
        self.store, self.row, self.uuid = store, row, row.uuid
        metadata = next(store.read(row.uuid, Metadata), None)
        if metadata is None:
            raise Corrupt(f"The metadata of task {row.uuid} cannot be read.")
        self.metadata = metadata

    @property
    def config(self) -> TaskConfig:
        """The settings of the task, with the options that were changed since its start."""
        return load_config(self.metadata, load_view(self.store, self.uuid, last_number(self.store, self.uuid, Event)))

    def messages(self, *, first: int = 1, last: int | None = None) -> Iterator[Message]:
        """Yield the log; a negative `first` counts from the end."""
        return self.store.read(self.uuid, Message, first=first, last=last)

    def message(self, seq: int) -> Message:
        """Return one message of the log."""
        for message in self.messages(first=seq, last=seq):
            return message
        raise NotFound(kind="message", id=f"m{seq!a:.40}")

    def summaries(self) -> Iterator[Summary]:
        """Yield all summaries, including those that no longer count."""
        return self.store.read(self.uuid, Summary)

    def tools(self) -> Iterator[ToolCall]:
        """Yield every tool run."""
        return self.store.read(self.uuid, ToolCall)

    def events(self) -> Iterator[Event]:
        """Yield every change of the view."""
        return self.store.read(self.uuid, Event)

    def plan(self) -> Iterator[PlanEntry]:
        """Yield the planning history."""
        return self.store.read(self.uuid, PlanEntry)

    def log(self) -> TaskLog:
        """Return the log with the view over it, as of now."""
        view = load_view(self.store, self.uuid, last_number(self.store, self.uuid, Event))
        config = load_config(self.metadata, view)
        return TaskLog(self.store, self.uuid, config, view, last=last_number(self.store, self.uuid, Message))

    def window(self) -> Window:
        """Return what the model would get now; folds that it needs are made and not stored."""
        log = self.log()
        return log.window(log.compose())
