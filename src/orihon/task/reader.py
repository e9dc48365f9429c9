"""A task to look at: everything that is stored of it, and the window the model would see now. Needs no lease."""

from __future__ import annotations

from collections.abc import Iterator

from orihon.errors import Corrupt, NotFound
from orihon.records import Event, Message, Metadata, PlanEntry, Summary, TaskRow, ToolCall
from orihon.stores.base import Store
from orihon.task.history import History, last_number, load_config
from orihon.task.window import Window


class Reader:
    """One task, read-only; what is written meanwhile is there when it is asked for again."""

    def __init__(self, store: Store, row: TaskRow) -> None:
        self.store, self.row, self.uuid = store, row, row.uuid
        metadata = next(store.read(row.uuid, Metadata), None)
        if metadata is None:
            raise Corrupt(f"The metadata of task {row.uuid} cannot be read.")
        self.metadata = metadata

    def messages(self, *, first: int = 1, last: int | None = None) -> Iterator[Message]:
        """The log; a negative `first` counts from the end."""
        return self.store.read(self.uuid, Message, first=first, last=last)

    def summaries(self) -> Iterator[Summary]:
        """All summaries, also those that no longer count."""
        return self.store.read(self.uuid, Summary)

    def tools(self) -> Iterator[ToolCall]:
        """Every run of a tool."""
        return self.store.read(self.uuid, ToolCall)

    def events(self) -> Iterator[Event]:
        """Every change of what is visible."""
        return self.store.read(self.uuid, Event)

    def plan(self) -> Iterator[PlanEntry]:
        """The history of its plans."""
        return self.store.read(self.uuid, PlanEntry)

    def window(self) -> Window:
        """What the model would see now; folds that it would need are made and not kept."""
        history = History(
            self.store,
            self.uuid,
            load_config(self.store, self.metadata),
            last=last_number(self.store, self.uuid, Message),
            last_event=last_number(self.store, self.uuid, Event),
        )
        return history.window(history.composed())

    def message(self, seq: int) -> Message:
        """One message of the log."""
        for found in self.messages(first=seq, last=seq):
            return found
        raise NotFound(kind="message", id=f"m{seq!a:.40}")
