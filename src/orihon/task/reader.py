"""A task that is only read: everything that is stored of it, and any window that the model got or would get now."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, takewhile

from orihon.context.matter import INHERITED
from orihon.errors import Corrupt, NotFound, UsageError
from orihon.records import Event, Message, Metadata, PlanEntry, Summary, TaskRow, ToolCall
from orihon.stores.base import Store
from orihon.task.config import TaskConfig
from orihon.task.log import TaskLog, last_number, load_config, load_view
from orihon.task.summaries import TANGENT_KEY
from orihon.task.window import Window


def is_reply(message: Message) -> bool:
    """Return whether a model said this; the engine says some things in the assistant's name."""
    return message.role == "assistant" and not (message.key or "").startswith((INHERITED, TANGENT_KEY))


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

    def replies(self) -> Iterator[Message]:
        """Yield the replies of the model: call N was answered by the Nth of them."""
        return (message for message in self.messages() if is_reply(message))

    def log(self, *, before: int | None = None) -> TaskLog:
        """Return the log with the view over it, as of now or as of the time just before a message.

        Before a reply this is what its window was made of. A task from before windows were recorded counts what
        happened up to the reply.
        """
        last, last_event = self._now() if before is None else self._before(self.message(before))
        view = load_view(self.store, self.uuid, last_event)
        return TaskLog(self.store, self.uuid, load_config(self.metadata, view), view, last=last)

    def window(self, *, before: int | None = None, call: int | None = None) -> Window:
        """Return what the model would get now; folds that it needs are made and not stored.

        With the number of a reply as `before`, or the number of a `call`, return the window as it was sent.
        """
        if call is not None:
            if before is not None:
                raise UsageError("A window is chosen by `before` or by `call`.", hint="Give one of them.")
            before = self._reply(call).seq
        log = self.log(before=before)
        return log.window(log.compose())

    def _reply(self, call: int) -> Message:
        reply = next(islice(self.replies(), call - 1, None), None) if isinstance(call, int) and call > 0 else None
        if reply is None:
            raise NotFound(kind="call", id=f"{call!a:.40}", hint="The first call is number 1.")
        return reply

    def _now(self) -> tuple[int, int]:
        """Return the numbers of the newest message and the newest event."""
        return last_number(self.store, self.uuid, Message), last_number(self.store, self.uuid, Event)

    def _before(self, message: Message) -> tuple[int, int]:
        """Return the numbers of the newest message and the newest event that counted just before a message."""
        if message.window is not None:
            return message.window.after, message.window.event
        events = takewhile(lambda event: event.after < message.seq, self.events())
        return message.seq - 1, max((event.id for event in events), default=0)
