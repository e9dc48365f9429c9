"""The calls of a task in columns, so that tasks of 100,000 messages fit in memory, and the history of its view.

What was read of a task is remembered, and the next look reads only what was appended since.
"""

from __future__ import annotations

import math
import threading
from array import array
from bisect import bisect_left
from collections import OrderedDict
from typing import Any

import msgspec

from orihon.context.ranges import Ranges, contains, without
from orihon.context.view import View, step
from orihon.records import Event, Message, Usage
from orihon.task.reader import Reader, is_reply
from orihon.view.prices import price

REMEMBERED_TASKS = 8


class CallFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One call of the model: the reply that answers it, what was in its window, and what the provider counted."""

    number: int
    seq: int  # of the reply
    timestamp: str
    model: str
    event: int  # the newest event that counted for its window
    limit: int  # 0 if it was not recorded
    tokens: int  # of the window, by the counter of the task
    sources: dict[str, int]
    reasons: list[str]  # why the window was folded just then
    usage: Usage | None


class Loss(msgspec.Struct, frozen=True):
    """Messages that left the view: the event, and which ones."""

    event: int
    type: str
    ranges: Ranges


class FoldEvent(msgspec.Struct, frozen=True):
    """A batch of folds or a summary: its event, and the message after which it happened."""

    event: int
    type: str
    after: int
    first: int  # the first fold of a batch; the id of a summary


class Cost(msgspec.Struct, frozen=True):
    """Dollars. None means that no call has a price, and `unpriced` is how many have none."""

    dollars: float | None
    unpriced: int


class TaskCalls:
    """The calls of one task, and what happened to its view."""

    def __init__(self) -> None:
        self._columns = {name: array("q") for name in ("seq", "event", "limit", "tokens", "model")}
        self._usage = {name: array("q") for name in Usage.__struct_fields__ if name != "unknown"}
        self._sources: dict[str, array[int]] = {}
        self._reasons: dict[int, list[str]] = {}
        self._times: list[str] = []
        self._costs = array("d")
        self._models: list[str] = [""]
        self.last_message = 0
        self.errors = array("q")  # the numbers of results that are errors
        self.view = View()
        self.losses: list[Loss] = []
        self.folds: list[FoldEvent] = []
        self.lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._columns["seq"])

    def __getitem__(self, number: int) -> CallFacts:
        """Return call `number`; the first one is 1."""
        place = number - 1
        if not 0 <= place < len(self):
            raise IndexError(number)
        column = {name: values[place] for name, values in self._columns.items()}
        usage: dict[str, Any] = {name: values[place] for name, values in self._usage.items()}
        return CallFacts(
            number=number,
            seq=column["seq"],
            timestamp=self._times[place],
            model=self._models[column["model"]],
            event=column["event"],
            limit=column["limit"],
            tokens=column["tokens"],
            sources={name: values[place] for name, values in self._sources.items() if values[place]},
            reasons=self._reasons.get(place, []),
            usage=Usage(**usage) if any(usage.values()) else None,
        )

    def read(self, reader: Reader) -> None:
        """Read what was appended since the last time."""
        with self.lock:
            for message in reader.messages(first=self.last_message + 1):
                self.last_message = message.seq
                if is_reply(message):
                    self._add(message)
                elif message.role == "tool" and message.is_error:
                    self.errors.append(message.seq)
            for event in reader.store.read(reader.uuid, Event, first=self.view.last_event + 1):
                self._apply(event)

    def costs(self, model: str) -> array[float]:
        """Return the dollars of each call, NaN where they are not known; `model` answers where a reply names none."""
        with self.lock:
            for place in range(len(self._costs), len(self)):
                facts = self[place + 1]
                cost = price(facts.model or model, facts.usage, facts.timestamp) if facts.usage else None
                self._costs.append(math.nan if cost is None else cost)
            return self._costs

    def cost(self, model: str) -> Cost:
        """Return what all calls cost together."""
        costs = self.costs(model)
        known = [cost for cost in costs if not math.isnan(cost)]
        return Cost(math.fsum(known) if known else None, len(costs) - len(known))

    def buckets(self, count: int) -> list[CallFacts]:
        """Return all calls, or for many calls the fullest one of each of so many runs."""
        size = -(-len(self) // count) if self else 1
        tokens = self._columns["tokens"]
        starts = range(0, len(self), size)
        return [self[max(range(at, min(at + size, len(self))), key=tokens.__getitem__) + 1] for at in starts]

    @property
    def folded(self) -> list[int]:
        """The calls whose windows were folded or summarised just before."""
        after = {self.call_after(fold.event) for fold in self.folds}
        return sorted({call for call in after if call} | {place + 1 for place in self._reasons})

    def call_of(self, seq: int) -> int:
        """Return the number of the first call whose reply is message `seq` or a later one."""
        return bisect_left(self._columns["seq"], seq) + 1

    def number_of(self, seq: int) -> int:
        """Return the number of the call that message `seq` answers; 0 if it is no reply."""
        number = self.call_of(seq)
        return number if number <= len(self) and self._columns["seq"][number - 1] == seq else 0

    def visibility(self, seq: int) -> str:
        """Return why the next window does not show a message."""
        state = self.view.state
        if not contains(state.ranges, seq):
            loss = self.loss_of(seq, self.view.last_event)
            return loss.type if loss else "left out"
        return "summarised" if state.summary is not None and contains(state.summary.ranges, seq) else "left out"

    def loss_of(self, seq: int, event: int) -> Loss | None:
        """Return the loss by which a message was no longer visible as of an event."""
        losses = (loss for loss in reversed(self.losses) if loss.event <= event and contains(loss.ranges, seq))
        return next(losses, None)

    def fold_at(self, event: int) -> FoldEvent | None:
        """Return the newest batch of folds as of an event."""
        return next((fold for fold in reversed(self.folds) if fold.event <= event and fold.type == "folds"), None)

    def call_after(self, event: int) -> int | None:
        """Return the first call whose window an event counted for."""
        place = bisect_left(self._columns["event"], event)
        return place + 1 if place < len(self) else None

    def _add(self, message: Message) -> None:
        place = len(self)
        sent, usage = message.window, message.usage
        model = message.model or ""
        if model not in self._models:
            self._models.append(model)
        known_event = self._columns["event"][-1] if place else 0
        values = {
            "seq": message.seq,
            "event": sent.event if sent else known_event,
            "limit": sent.limit if sent else 0,
            "tokens": sent.tokens if sent else 0,
            "model": self._models.index(model),
        }
        for name, column in self._columns.items():
            column.append(values[name])
        for name, column in self._usage.items():
            column.append(getattr(usage, name) if usage else 0)
        sources = sent.sources if sent else {}
        for name in sources.keys() - self._sources.keys():
            self._sources[name] = array("q", bytes(8 * place))
        for name, column in self._sources.items():
            column.append(sources.get(name, 0))
        if sent and sent.reasons:
            self._reasons[place] = sent.reasons
        self._times.append(message.timestamp)

    def _apply(self, event: Event) -> None:
        before, self.view = self.view, step(self.view, event)
        gone = without(before.state.ranges, self.view.state.ranges)
        if gone:
            ranges = tuple((first, min(last, event.after)) for first, last in gone if first <= event.after)
            self.losses.append(Loss(event.id, event.type, ranges))
        if event.type in {"folds", "summary"}:
            number = event.data.get("first" if event.type == "folds" else "id")
            first = number if isinstance(number, int) else 0
            self.folds.append(FoldEvent(event.id, event.type, event.after, first))


class CallIndex:
    """The calls of the tasks that were looked at last."""

    def __init__(self) -> None:
        self._tasks: OrderedDict[str, TaskCalls] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, reader: Reader) -> TaskCalls:
        """Return the calls of a task as of now."""
        with self._lock:
            calls = self._tasks.setdefault(reader.uuid, TaskCalls())
            self._tasks.move_to_end(reader.uuid)
            while len(self._tasks) > REMEMBERED_TASKS:
                self._tasks.popitem(last=False)
        calls.read(reader)
        return calls
