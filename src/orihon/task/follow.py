"""Follow a list of messages that the caller keeps: frameworks pass the complete list before each call.

The beginning that the list has in common with the log is kept, the messages after it are hidden by a rewind, and the
rest is appended. A fingerprint of every item that was followed is kept in memory, so that only what is new is looked
at. After a resume, or when the log was changed by other means, the items are compared with what is stored.
"""

from __future__ import annotations

import base64
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from orihon.coerce import to_text
from orihon.context.matter import INHERITED
from orihon.context.ranges import Ranges, upto
from orihon.context.units import after_prompt
from orihon.parts import load_part
from orihon.records import Call, Message, Part
from orihon.task.entries import SYSTEM, Entry, read_entries, to_items
from orihon.task.log import OPENING
from orihon.task.summaries import TANGENT_KEY
from orihon.task.timeline import Timeline
from orihon.task.window import Window
from orihon.task.writer import TaskWriter

_MARK = b'"cache_control":'
_encode = msgspec.json.Encoder().encode
_stop = attrgetter("stop")


class Span(NamedTuple):
    """Items of the list, from `start` to before `stop`, and the messages of the log that they are."""

    start: int
    stop: int
    seqs: tuple[int, ...]


class Followed(NamedTuple):
    """What became of a list: items that were kept, messages that were hidden, items that were added."""

    kept: int
    rewound: int
    added: int
    spans: tuple[Span, ...] = ()

    def pieces(self, window: Window) -> Iterator[slice | list[Message]]:
        """Yield a window as slices of the list, where it shows its items whole, and messages of the engine's making."""
        span_of = {seq: span for span in self.spans for seq in span.seqs}
        items = list(window.items())
        made: list[Message] = []
        place = 0
        while place < len(items):
            span = span_of.get(items[place].seq)
            beside = items[place : place + len(span.seqs)] if span else []
            if span and tuple(item.seq for item in beside if item.form == "whole") == span.seqs:
                if made:
                    yield made
                    made = []
                yield slice(span.start, span.stop)
                place += len(beside)
            else:
                made.append(items[place].message)
                place += 1
        if made:
            yield made


class Follower:
    """The list as it was followed last. Callers hold the writer's lock."""

    def __init__(self, writer: TaskWriter, timeline: Timeline, append: Callable[[Message], int]) -> None:
        self._writer, self._timeline, self._append = writer, timeline, append
        self._api = ""
        self._fingerprints: list[int] = []
        self._prompt: list[Span] = []  # the system messages that begin the list
        self._spans: list[Span] = []  # the others
        self._state: tuple[Ranges, Any] = ((), None)  # what was visible
        self._tools: dict[str, str] = {}  # of the calls in the list, by their ids

    def follow(self, messages: Any, api: str) -> Followed:
        """Make the conversation what the list says."""
        items, api = to_items(messages), to_text(api, "api")
        fingerprints = list(map(_fingerprint, items))
        if (fingerprints, api, self._visible_state()) == (self._fingerprints, self._api, self._state):
            return Followed(len(items), 0, 0, (*self._prompt, *self._spans))
        head = next((place for place, item in enumerate(items) if item.get("role") not in SYSTEM), len(items))
        known = self._spans[: self._known(fingerprints, api, head)]
        begin, model = known[-1].stop if known else head, self._writer.config.model
        prompt = list(read_entries(items[:head], api, model=model))
        rest = list(read_entries(items[begin:], api, model=model))
        self._fingerprints, self._spans = [], known  # nothing else is known until all is stored
        added = self._follow_prompt(prompt)
        kept, rewound = self._keep(rest, begin)
        for entry in rest[kept:]:
            added += entry.size
            self._note(entry, begin, [self._append(self._named(message)) for message in entry.messages])
        self._api, self._fingerprints, self._state = api, fingerprints, self._visible_state()
        return Followed(len(items) - added, rewound, added, (*self._prompt, *self._spans))

    def _known(self, fingerprints: list[int], api: str, head: int) -> int:
        """Return how many spans are as they were. The last one is looked at again: an item more may belong to it."""
        if not self._spans or api != self._api or head != len(self._prompt) or not self._fingerprints:
            return 0
        last = max(self._spans[-1].seqs, default=0)
        if upto(self._visible(), last) != upto(self._state[0], last):
            return 0
        pairs = enumerate(zip(fingerprints[head:], self._fingerprints[head:], strict=False), start=head)
        shorter = min(len(fingerprints), len(self._fingerprints))
        same = next((place for place, (one, other) in pairs if one != other), shorter)
        return max(0, bisect_right(self._spans, same, key=_stop) - 1)

    def _visible(self) -> Ranges:
        return upto(self._writer.log.view.state.ranges, self._writer.log.last)

    def _visible_state(self) -> tuple[Ranges, Any]:
        return self._visible(), self._writer.log.view.state.prompt

    def _note(self, entry: Entry, begin: int, seqs: Sequence[int]) -> None:
        start = self._spans[-1].stop if self._spans else begin
        self._spans.append(Span(start, start + entry.size, tuple(seqs)))

    # what is stored

    def _follow_prompt(self, entries: Sequence[Entry]) -> int:
        """Let the system messages that begin a list be the system prompt; return how many of them are new.

        A list that begins with none leaves the prompt as it is.
        """
        stored = self._stored_prompt()
        messages = [message for entry in entries for message in entry.messages]
        is_new = bool(messages) and not self._are_same(stored, messages)
        seqs = [self._append(message) for message in messages] if is_new else [message.seq for message in stored]
        if is_new and seqs[0] > 1:
            self._writer.event("prompt", first=seqs[0], last=seqs[-1], hidden=_as_ranges(stored))
        self._prompt = [Span(place, place + 1, (seq,)) for place, seq in enumerate(seqs[: len(messages)])]
        return len(messages) if is_new else 0

    def _stored_prompt(self) -> list[Message]:
        log = self._writer.log
        if log.view.state.prompt is not None:
            return list(log.read(*log.view.state.prompt))
        opening = list(log.read(1, OPENING))
        return opening[: len(opening) - len(after_prompt(opening))]

    def _keep(self, entries: Sequence[Entry], begin: int) -> tuple[int, int]:
        """Return how many entries are stored as they are, and how many messages after them were hidden."""
        stored = self._conversation(max((seq for span in self._spans for seq in span.seqs), default=0))
        kept, found = 0, list(islice(stored, len(entries[0].messages) if entries else 1))
        while kept < len(entries) and self._are_same(found, entries[kept].messages):
            for message in entries[kept].messages:
                self._named(message)
            self._note(entries[kept], begin, [message.seq for message in found])
            kept += 1
            found = list(islice(stored, len(entries[kept].messages) if kept < len(entries) else 1))
        if not found:
            return kept, 0
        hidden = len(found) + sum(1 for _ in stored)
        self._timeline.rewind(found[0].seq - 1, exact=True)
        return kept, hidden

    def _conversation(self, after: int) -> Iterator[Message]:
        """Yield the visible messages after one, without the prompt and what the engine said."""
        log = self._writer.log
        prompt = {message.seq for message in self._stored_prompt()}
        for first, last in self._visible():
            for message in log.read(max(first, after + 1), last) if last > after else ():
                if message.seq not in prompt and not (message.key or "").startswith((INHERITED, TANGENT_KEY)):
                    yield message

    def _named(self, message: Message) -> Message:
        """Return a result with the name of its tool, as its call in the list has it."""
        self._tools |= {call.id: call.name for call in message.tool_calls}
        if message.role != "tool" or message.tool_name or message.tool_call_id not in self._tools:
            return message
        return msgspec.structs.replace(message, tool_name=self._tools[message.tool_call_id])

    # comparing

    def _are_same(self, stored: Sequence[Message], given: Sequence[Message]) -> bool:
        return len(stored) == len(given) and all(map(self._is_same, stored, given))

    def _is_same(self, stored: Message, given: Message) -> bool:
        if stored.role != given.role or len(stored.tool_calls) != len(given.tool_calls):
            return False
        given = self._writer.sanitiser.record(given)
        stored = self._writer.log.load_all(stored)
        if given.tool_call_id and given.tool_call_id != stored.tool_call_id:
            return False
        if self._essence(given) != self._essence(stored):
            return False
        calls = zip(stored.tool_calls, given.tool_calls, strict=True)
        return all(_is_same_call(one, other, stored.seq) for one, other in calls)

    def _essence(self, message: Message) -> Any:
        """Return what a content says, however it is stored."""
        if isinstance(message.content, str):
            return message.content
        parts = [self._part(part) for part in message.content]
        return parts if len(parts) > 1 or not parts or parts[0][0] != "text" else parts[0][1]

    def _part(self, part: Part) -> Any:
        whole = load_part(part, self._writer.log.load)
        data: Any = whole.data
        if whole.blob is not None:
            data = self._writer.log.load(whole.blob)
        elif data:
            with suppress(ValueError):  # what is no base64 is stored as it is
                data = base64.b64decode(data, validate=True)
        return whole.type, whole.text, whole.name, whole.media_type, whole.url, data


def _is_same_call(stored: Call, given: Call, seq: int) -> bool:
    is_made = not given.id.strip() or stored.id.startswith(f"call_{seq}_")  # the id, because there was none of its own
    return (stored.name, stored.arguments) == (given.name, given.arguments) and (is_made or stored.id == given.id)


def _as_ranges(messages: Sequence[Message]) -> list[tuple[int, int]]:
    return [(message.seq, message.seq) for message in messages]


def _fingerprint(item: Any) -> int:
    """Return what an item is compared by from call to call of one process; cache marks, which move, do not count."""
    line = _encode(item)
    if _MARK in line:
        line = _encode(_without_marks(msgspec.json.decode(line)))
    return hash(line)


def _without_marks(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_marks(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {name: _without_marks(item) for name, item in value.items() if name != "cache_control"}
