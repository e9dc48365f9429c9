"""The calls of a task in columns, so that tasks of 100,000 messages fit in memory, and the history of its view.

What was read of a task is remembered, and the next look reads only what was appended since.
"""

from __future__ import annotations

import math
import threading
from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, cast

import msgspec

from orihon import codec
from orihon.context.ranges import Ranges, contains, without
from orihon.context.view import View, step
from orihon.errors import Corrupt
from orihon.records import Event, Message, Sent, Usage
from orihon.task.reader import Reader, is_reply
from orihon.view.prices import load_rates, make_key, multiply

REMEMBERED_TASKS = 8
DAY = 86_400
PRICED_AT_ONCE = 5_000  # calls whose keys are in memory
_PRICED = ("cache_read_tokens", "cache_write_tokens", "output_tokens")


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


class _Line(msgspec.Struct):
    """What counts here of a message. Its text is not decoded, which is most of the time."""

    seq: int
    role: str
    timestamp: str = ""
    key: str | None = None
    model: str | None = None
    usage: Usage | None = None
    window: Sent | None = None
    is_error: bool = False


_NO_USAGE = Usage()
_decode = msgspec.json.Decoder(_Line).decode


def _lines(reader: Reader, first: int) -> Iterator[_Line | Message]:
    """Yield the messages from a number on; a line of another version is decoded in full."""
    for _, line in reader.store.lines(reader.uuid, "messages", first, None):
        try:
            yield _decode(line)
        except msgspec.MsgspecError:
            with suppress(Corrupt):  # the reader reports it
                yield codec.decode_line(line, Message)


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
        self._times = array("d")  # seconds; a string of each would take most of the memory
        self._costs = array("d")
        self._models: list[str] = [""]
        self.last_message = 0
        self.errors = array("q")  # the numbers of results that are errors
        self.view = View()
        self.losses: list[Loss] = []
        self.folds: list[FoldEvent] = []
        self.states: tuple[int, int, dict[int, str]] = (0, 0, {})  # of the next window, as of a message and an event
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
            timestamp=_format_time(self._times[place]),
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
            for line in _lines(reader, self.last_message + 1):
                if line.seq <= self.last_message:
                    continue  # the reader reports such a line
                self.last_message = line.seq
                if is_reply(cast("Message", line)):  # it has what is asked for
                    self._add(line)
                elif line.role == "tool" and line.is_error:
                    self.errors.append(line.seq)
            for event in reader.store.read(reader.uuid, Event, first=self.view.last_event + 1):
                self._apply(event)

    def costs(self, model: str) -> array[float]:
        """Return the dollars of each call, NaN where they are not known; `model` answers where a reply names none."""
        with self.lock:
            while len(self._costs) < len(self):
                begin = len(self._costs)
                self._price(range(begin, min(begin + PRICED_AT_ONCE, len(self))), model)
            return self._costs

    def _price(self, places: range, model: str) -> None:
        inputs = self._usage["input_tokens"]
        days = (_format_time(self._times[place] // DAY * DAY) for place in places)
        models = (self._models[self._columns["model"][place]] or model for place in places)
        keys = [make_key(*one) for one in zip(models, inputs[places.start : places.stop], days, strict=True)]
        load_rates(keys)
        for place, key in zip(places, keys, strict=True):
            read, written, output = (self._usage[name][place] for name in _PRICED)
            counts = (inputs[place] - read - written, read, written, output)
            cost = multiply(key, counts) if any(counts) else None
            self._costs.append(math.nan if cost is None else cost)

    @property
    def is_priced(self) -> bool:
        """Whether the costs of all calls are known already."""
        return len(self._costs) == len(self)

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

    def _add(self, message: _Line | Message) -> None:
        place = len(self)
        sent, usage, model = message.window, message.usage or _NO_USAGE, message.model or ""
        if model not in self._models:
            self._models.append(model)
        columns = self._columns
        columns["seq"].append(message.seq)
        columns["event"].append(sent.event if sent else columns["event"][-1] if place else 0)
        columns["limit"].append(sent.limit if sent else 0)
        columns["tokens"].append(sent.tokens if sent else 0)
        columns["model"].append(self._models.index(model))
        for name, column in self._usage.items():
            column.append(getattr(usage, name))
        sources = sent.sources if sent else {}
        for name in sources.keys() - self._sources.keys():
            self._sources[name] = array("q", bytes(8 * place))
        for name, column in self._sources.items():
            column.append(sources.get(name, 0))
        if sent and sent.reasons:
            self._reasons[place] = sent.reasons
        self._times.append(_parse_time(message.timestamp))

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


def _parse_time(stored: str) -> float:
    try:
        return datetime.fromisoformat(stored).timestamp()
    except ValueError:
        return 0.0


def _format_time(seconds: float) -> str:
    return codec.format_time(datetime.fromtimestamp(seconds, UTC)) if seconds else ""


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
