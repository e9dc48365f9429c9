"""What is stored of a task, read for a window: the view, the messages, the stand-ins, the summaries.

In memory are the newest few messages, bounded in number and in bytes, the latest summary, and what the last window
showed, which is no larger than a window. Everything else is read when it is asked for.
"""

from __future__ import annotations

import logging
import sys
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import msgspec

from orihon.context import ranges as number_ranges
from orihon.context.frame import Batch, Composed, Texts
from orihon.context.language import language_of
from orihon.context.pick import CONSIDERED_TOKENS, StandIn
from orihon.context.pieces import shortened
from orihon.context.ranges import Ranges, joined, without
from orihon.context.recall import NOTE
from orihon.context.repair import named_among
from orihon.context.shelf import Shelf
from orihon.context.snapshot import from_data, rendered
from orihon.context.units import unit_at
from orihon.context.view import RECORD_EVERY, Covered, View, step, view
from orihon.context.window import compose
from orihon.errors import Corrupt, NotFound
from orihon.records import Blob, Event, Fold, Message, Metadata, Record, Summary
from orihon.stores.base import LISTS, Problem, Store
from orihon.task.config import TaskConfig, config_from_metadata, name_of, schema_tokens
from orihon.task.sticky import Stickies
from orihon.task.window import Window
from orihon.tokens import counter

log = logging.getLogger("orihon")

PAGE = 64  # messages that are read at once on the way back
UNIT = 256  # messages among which the results of a call are looked for
RECENT_BYTES = 1024 * 1024
WHOLE_BYTES = 8 * 1024 * 1024  # a larger text is shown by its beginning
OPENING = 16  # the first request is among so many messages
SNAPSHOT_SHARE = 0.1  # of the limit
SUMMARY_SHARE = 0.25  # of the limit; one that was made for a larger window, or elsewhere, may be longer

_SUMMARY = {"en": "Summary of what came before{}:\n{}", "ja": "これまでの経過の要約{}:\n{}"}

_NOTHING = Covered(0, ())


class History:
    """One task as its store knows it."""

    def __init__(self, store: Store, uuid: str, config: TaskConfig, *, last: int, last_event: int) -> None:
        self.store, self.uuid, self.config = store, uuid, config
        self.counter = counter(config.tokens)
        self.last = last
        self.counted_from = last + 1  # what is appended from now on is counted by this process, as it counts
        self.view = load_view(store, uuid, last_event)
        self.schema_tokens = schema_tokens(config, self.counter)
        self._named = named_among(map(name_of, config.schemas)) if config.tools is not None else None
        self._recent: OrderedDict[int, Message] = OrderedDict()
        self._recent_bytes = 0
        self.shelf = Shelf()
        self.stickies = Stickies(store, uuid)
        self._stand_ins: tuple[int, int, dict[int, StandIn]] = (0, 0, {})
        self._summaries: dict[int, str] = {}
        self._language: str = "" if config.language == "auto" else config.language
        for message in store.read(uuid, Message, first=-config.max_memory_messages) if last else ():
            self.remember(message)

    # messages

    def remember(self, message: Message) -> None:
        """Keep a message that was just stored, and let go of the oldest."""
        self.last = max(self.last, message.seq)
        self._recent[message.seq] = message
        self._recent_bytes += _size(message)
        while len(self._recent) > self.config.max_memory_messages or self._recent_bytes > RECENT_BYTES:
            self._recent_bytes -= _size(self._recent.popitem(last=False)[1])

    def catch_up(self) -> None:
        """Take in messages that were stored although the store could not say so."""
        for message in self.store.read(self.uuid, Message, first=self.last + 1):
            self.remember(message)

    def read(self, first: int, last: int) -> Iterator[Message]:
        """The messages from one number to another, whole."""
        if first >= next(iter(self._recent), self.last + 1):
            found = (self._recent.get(seq) for seq in range(first, min(last, self.last) + 1))
            return (self.whole(message) for message in found if message is not None)
        return map(self.whole, self.store.read(self.uuid, Message, first=first, last=last))

    def backwards(self, ranges: Ranges) -> Iterator[Message]:
        """Messages in these ranges, the newest first."""
        remembered = next(iter(self._recent), self.last + 1)
        for first, last in reversed(number_ranges.upto(ranges, self.last)):
            end = last
            while end >= first:
                begin = max(first, remembered) if end >= remembered else max(first, end - PAGE + 1)
                yield from reversed(list(self.read(begin, end)))
                end = begin - 1

    def whole(self, message: Message) -> Message:
        """A message with its whole text, where the line holds only the beginning."""
        if message.blob is None or not isinstance(message.content, str) or message.blob.size_bytes > WHOLE_BYTES:
            return message
        try:
            text = self.load(message.blob).decode("utf-8", "replace")
        except (Corrupt, NotFound) as error:
            log.warning("[uuid:%s] Message %s is shown by its beginning: %s", self.uuid[:8], message.seq, error)
            return message
        return msgspec.structs.replace(message, content=text, blob=None)

    def everything(self, message: Message) -> Message:
        """A message with all that lives in blobs, however large: its text, and the arguments of its calls."""
        calls = [
            msgspec.structs.replace(call, arguments=self.load(call.blob).decode("utf-8", "replace"), blob=None)
            if call.blob is not None
            else call
            for call in message.tool_calls
        ]
        text = self.load(message.blob).decode("utf-8", "replace") if message.blob is not None else message.content
        return msgspec.structs.replace(message, content=text, blob=None, tool_calls=calls)

    def load(self, blob: Blob) -> bytes:
        """The bytes of a blob."""
        return self.store.blob(self.uuid, blob.sha256)

    def one(self, seq: int) -> Message:
        """One message, whole."""
        for message in self.read(seq, seq) if isinstance(seq, int) and seq > 0 else ():
            return message
        raise NotFound(kind="message", id=f"m{seq!a:.40}")

    def unit(self, seq: int) -> list[Message]:
        """The unit that a message belongs to: a call with its results, found from any of them."""
        message = self.one(seq)
        if message.role == "tool":
            before = self.backwards(((max(1, seq - UNIT), seq - 1),))
            calls = (one for one in before if message.tool_call_id in {call.id for call in one.tool_calls})
            message = next(calls, message)
        return unit_at(self.read(message.seq, min(self.last, message.seq + UNIT)))

    def hidden(self) -> Iterator[Message]:
        """What belongs to the conversation and the window does not show whole."""
        state = self.view.state
        folded = ((seq, seq) for seq in self._stood_in())
        out = joined((*folded, *(state.folds.hidden if state.folds else ()), *(state.summary or _NOTHING).ranges))
        for first, last in number_ranges.coarse(number_ranges.upto(out, self.last), PAGE):
            for message in self.read(first, last):
                if self.view.shows(message.seq) and number_ranges.contains(out, message.seq):
                    yield message

    # the view

    def step(self, event: Event) -> None:
        """Take in an event that was just stored."""
        self.view = step(self.view, event)
        self.stickies.take(event)

    @property
    def uncovered(self) -> Ranges:
        """What is visible and stands in no summary."""
        covered = self.view.state.summary
        return without(self.view.state.ranges, covered.ranges if covered else ())

    def newest_uncovered(self, max_tokens: int = CONSIDERED_TOKENS) -> list[Message]:
        """The newest visible messages that no summary covers, in order; older ones than fit are left out unseen."""
        found: list[Message] = []
        tokens = 0
        for message in self.backwards(self.uncovered):
            if tokens > max_tokens:
                break
            tokens += message.tokens
            found.append(message)
        return found[::-1]

    def unsummarised(self, enough: int = sys.maxsize) -> tuple[int, int]:
        """Tokens and messages that are visible and stand in no summary; it stops counting when it is enough."""
        tokens = messages = 0
        for message in self.backwards(self.uncovered):
            if message.role != "system":
                tokens, messages = tokens + message.tokens, messages + 1
            if tokens > enough and messages >= self.config.min_messages_to_summarize:
                break
        return tokens, messages

    def summary_text(self, id: int) -> str:
        """The text of a summary; the latest ones are remembered."""
        if id not in self._summaries:
            found = next(self.store.read(self.uuid, Summary, first=id, last=id), None)
            self._summaries = dict([*self._summaries.items()][-4:])
            self._summaries[id] = found.summary if found is not None else ""
        return self._summaries[id]

    # the window

    @property
    def language(self) -> str:
        """The language of the task: what was set, else that of the first request."""
        if not self._language:
            opening = [message for message in self.read(1, OPENING) if message.role == "user"]
            if not opening:
                return "en"
            self._language = language_of(opening[:1])
        return self._language

    @property
    def scale(self) -> float:
        """How many of the provider's tokens one of ours is, as far as it was found out."""
        return float(self.view.state.notes.get("scale", 1.0))

    @property
    def limit(self) -> int:
        """What the messages of a window may cost."""
        return self.config.budget(self.scale, self.schema_tokens).limit

    @property
    def snapshot_text(self) -> str:
        """The snapshot as it is now, no longer than its share of the window."""
        text = rendered(from_data(self.view.state.snapshot), self.language)
        return shortened(text, SNAPSHOT_SHARE * self.limit, self.counter.text)

    def composed(self) -> Composed:
        """Return the window now, and the folds that it needs and that are not stored yet."""
        config = self.config
        tail = self._tail()
        policy = msgspec.structs.replace(
            config.policy, phase=str(self.view.state.snapshot.get("current_phase", ""))
        )  # planning is weighed otherwise
        made = compose(
            self.view,
            self.read,
            self.last,
            budget=config.budget(self.scale, self.schema_tokens, tail.tokens if tail else 0),
            counter=self.counter,
            texts=self._texts(),
            stand_ins=self._stood_in(),
            handles="unfold" in config.ours,
            policy=policy,
            shelf=self.shelf,
            named=self._named,
            load=self.load,
            counted_from=self.counted_from,
        )
        return made if tail is None else _with_tail(made, tail)

    def window(self, composed: Composed) -> Window:
        """What the model gets."""
        config = self.config
        return Window(
            composed.messages,
            composed.report,
            schemas=config.schemas,
            model=config.model,
            load=self.load,
            reserved_output=config.reserved_output,
        )

    @property
    def sticky_texts(self) -> Texts:
        """What the window shows of sticky files; it is remembered until they change."""
        return self.stickies.texts(self.view.state, self.language)

    def _tail(self) -> Message | None:
        """The live snapshot at the end, for those who want it there."""
        text = self.snapshot_text if self.config.snapshot == "tail" else ""
        if not text:
            return None
        said = Message(seq=0, role="user", content=text, timestamp="", tokens=0)
        return msgspec.structs.replace(said, tokens=self.counter.message(said))

    def _texts(self) -> Texts:
        state = self.view.state
        return msgspec.structs.replace(
            self.sticky_texts,
            summary=self._summary() if state.summary else "",
            snapshot=self.snapshot_text if self.config.snapshot == "prefix" else "",
            note=NOTE[self.language] if "unfold" in self.config.ours else "",
        )

    def _summary(self) -> str:
        covered = self.view.state.summary
        if covered is None:
            return ""
        handles = f" (m{covered.ranges[0][0]}-m{covered.ranges[-1][1]})" if "unfold" in self.config.ours else ""
        text = shortened(self.summary_text(covered.id), SUMMARY_SHARE * self.limit, self.counter.text)
        return _SUMMARY[self.language].format(handles, text)

    def _stood_in(self) -> dict[int, StandIn]:
        folds = self.view.state.folds
        if folds is None:
            return {}
        if self._stand_ins[:2] != (folds.first, folds.last):
            stored = self.store.read(self.uuid, Fold, first=folds.first, last=folds.last) if folds.last else ()
            found = {fold.seq: StandIn(fold.seq, fold.text, fold.arguments, fold.tokens) for fold in stored}
            self._stand_ins = (folds.first, folds.last, found)
        return self._stand_ins[2]


def _with_tail(made: Composed, tail: Message) -> Composed:
    report = made.report
    by_source = report.by_source | {"snapshot": tail.tokens}
    report = msgspec.structs.replace(
        report, tokens=report.tokens + tail.tokens, limit=report.limit + tail.tokens, by_source=by_source
    )
    return msgspec.structs.replace(made, messages=[*made.messages, tail], report=report)


def load_config(store: Store, metadata: Metadata) -> TaskConfig:
    """What a task keeps: its metadata, and what it was given when it left the queue."""
    given = load_view(store, metadata.uuid, last_number(store, metadata.uuid, Event)).state.notes.get("frozen")
    return config_from_metadata(metadata.config | given if isinstance(given, dict) else metadata.config)


def last_number(store: Store, uuid: str, kind: type[Record]) -> int:
    """The number of the newest record of a kind; 0 when there is none."""
    newest = next(store.read(uuid, kind, first=-1), None)
    return int(getattr(newest, LISTS[kind][1])) if newest is not None else 0


def load_view(store: Store, uuid: str, last_event: int) -> View:
    """The view after all events; a record of the whole view among the newest ones saves reading the others."""
    from orihon.context.events import sound  # noqa: PLC0415 - only reading needs the schemas

    if not last_event:
        return View()

    def tell(event: Event, reason: str) -> None:
        store.report(Problem(uuid, LISTS[Event][0], event.id, reason))

    newest = list(store.read(uuid, Event, first=max(1, last_event - RECORD_EVERY)))
    if any(event.type == "view" for event in newest) or (newest and newest[0].id == 1):
        return view(sound(newest, tell))
    return view(sound(store.read(uuid, Event), tell))


def fold_records(batch: Batch) -> list[Fold]:
    """The records of a batch of folds."""
    return [
        Fold(id=0, seq=one.seq, text=one.text or "", arguments=one.arguments, tokens=one.tokens, timestamp="")
        for one in batch.stand_ins
    ]


def _size(message: Message) -> int:
    content: Any = message.content
    texts = content if isinstance(content, str) else "".join(part.text or part.data or "" for part in content)
    return len(texts) + sum(len(call.arguments) for call in message.tool_calls) + 512
