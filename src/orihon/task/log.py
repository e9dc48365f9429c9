"""One task as its store holds it: the view, the messages, the stand-ins and the summaries, read for a window.

In memory are the newest messages, bounded in number and in bytes, the latest summaries, and what the last window
showed, which is no larger than a window. Everything else is read when it is needed. Nothing is written here.
"""

from __future__ import annotations

import logging
import sys
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import msgspec

from orihon.context import ranges as number_ranges
from orihon.context.events import sound
from orihon.context.frame import Composed, Report, Texts
from orihon.context.language import language_of
from orihon.context.pick import CONSIDERED_TOKENS, StandIn
from orihon.context.pieces import shortened
from orihon.context.ranges import Ranges, joined, without
from orihon.context.recall import NOTE
from orihon.context.repair import plain_name
from orihon.context.shelf import Shelf
from orihon.context.snapshot import from_data, render_snapshot
from orihon.context.units import is_same_reply, unit_at
from orihon.context.view import RECORD_EVERY, Covered, View, step, view
from orihon.context.window import compose
from orihon.errors import BudgetTooSmall, Corrupt, NotFound
from orihon.records import Blob, Event, Fold, Message, Metadata, Record, Summary
from orihon.stores.base import LISTS, Problem, Store
from orihon.task.config import TaskConfig, count_schemas, tool_name
from orihon.task.heap import give_back
from orihon.task.sticky import StickyTexts
from orihon.task.window import Window, raw_of
from orihon.tokens import MIN_PAIRS, MOST_SCALE, calibrate, counter

logger = logging.getLogger("orihon")

PAGE = 64  # messages per read on the way back
UNIT = 256  # messages among which the results of a call are searched
RECENT_BYTES = 1024 * 1024
MAX_INLINE_BYTES = 8 * 1024 * 1024  # a larger text is shown by its beginning
OPENING = 16  # messages among which the first request is searched
MAX_PAIRS = 16  # newest requests that the calibration considers
MIN_CHANGE = 0.05  # smaller differences are ignored
REFUSAL_FACTOR = 1.25  # a refused window was this much larger than the room it gets next
MAX_REFUSALS = 4  # in a row
SNAPSHOT_SHARE = 0.1  # of the limit
SUMMARY_SHARE = 0.25  # of the limit; a summary made for a larger window, or elsewhere, may be longer

_SUMMARY = {"en": "Summary of what came before{}:\n{}", "ja": "これまでの経過の要約{}:\n{}"}
_NOTHING = Covered(0, ())


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """The size of a task."""

    messages: int
    unsummarised_messages: int
    unsummarised_tokens: int
    summaries: int
    tool_calls: int
    llm_calls: int
    total_tokens: int
    compressions: int
    current_context_tokens: int
    completed_actions: int
    has_snapshot: bool


class TaskLog:
    """The log of one task and the view over it."""

    def __init__(self, store: Store, uuid: str, config: TaskConfig, view: View, *, last: int) -> None:
        self.store, self.uuid, self.config, self.view = store, uuid, config, view
        self.last = last  # the newest message
        self.counter = counter(config.tokens)
        self.counted_from = last + 1  # later messages are counted by this process, with this counter
        self.schemas = config.schemas
        self.engine_tools = config.engine_tools
        self.schema_tokens = count_schemas(config, self.counter)
        self.tool_names = {plain_name(name): name for schema in config.tools or () if (name := tool_name(schema))}
        self._policy = config.policy
        self._recent: OrderedDict[int, Message] = OrderedDict()
        self._recent_bytes = 0
        self._shelf = Shelf()
        self._sticky = StickyTexts(store, uuid)
        self._stand_ins: tuple[int, int, dict[int, StandIn]] = (0, 0, {})
        self._summaries: dict[int, str] = {}
        self._language: str = "" if config.language == "auto" else config.language
        first = max(1, last - config.max_memory_messages + 1)
        for message in store.read(uuid, Message, first=first, last=last) if last else ():
            self.remember(message)

    # messages

    def remember(self, message: Message) -> None:
        """Keep a message that was just stored, and drop the oldest ones from memory."""
        self.last = max(self.last, message.seq)
        self._recent[message.seq] = message
        self._recent_bytes += _size(message)
        while len(self._recent) > self.config.max_memory_messages or self._recent_bytes > RECENT_BYTES:
            self._recent_bytes -= _size(self._recent.popitem(last=False)[1])

    def catch_up(self) -> None:
        """Read messages that were stored although the store could not confirm it."""
        for message in self.store.read(self.uuid, Message, first=self.last + 1):
            self.remember(message)

    def read(self, first: int, last: int) -> Iterator[Message]:
        """Yield the messages in a range, with their full texts."""
        if first >= next(iter(self._recent), self.last + 1):
            numbers = filter(self._recent.__contains__, range(first, min(last, self.last) + 1))
            return map(self._inline, map(self._recent.__getitem__, numbers))
        return map(self._inline, self.store.read(self.uuid, Message, first=first, last=min(last, self.last)))

    def backwards(self, ranges: Ranges) -> Iterator[Message]:
        """Yield the messages in some ranges, the newest first."""
        remembered = next(iter(self._recent), self.last + 1)
        for first, last in reversed(number_ranges.upto(ranges, self.last)):
            end = last
            while end >= first:
                begin = max(first, remembered) if end >= remembered else max(first, end - PAGE + 1)
                yield from reversed(list(self.read(begin, end)))
                end = begin - 1

    def one(self, seq: int) -> Message:
        """Return one message with its full text; raise NotFound if there is none."""
        for message in self.read(seq, seq) if isinstance(seq, int) and seq > 0 else ():
            return message
        raise NotFound(kind="message", id=f"m{seq!a:.40}")

    def unit(self, seq: int) -> list[Message]:
        """Return the unit that a message belongs to: a call with its results."""
        message = self.one(seq)
        if message.role == "tool":
            before = self.backwards(((max(1, seq - UNIT), seq - 1),))
            calls = (one for one in before if message.tool_call_id in {call.id for call in one.tool_calls})
            message = next(calls, message)
        for earlier in self.backwards(((max(1, message.seq - UNIT), message.seq - 1),)):
            if not is_same_reply(earlier, message):
                break
            message = earlier
        return unit_at(self.read(message.seq, min(self.last, message.seq + UNIT)))

    def load(self, blob: Blob) -> bytes:
        """Return the bytes of a blob."""
        return self.store.blob(self.uuid, blob.sha256)

    def raw(self, message: Message) -> Any:
        """Return the raw form of a message; None if it has none."""
        return raw_of(message, self.load)

    def load_all(self, message: Message) -> Message:
        """Return a message with everything that is kept in blobs: its text and the arguments of its calls."""
        calls = [
            msgspec.structs.replace(call, arguments=self.load(call.blob).decode("utf-8", "replace"), blob=None)
            if call.blob is not None
            else call
            for call in message.tool_calls
        ]
        text = self.load(message.blob).decode("utf-8", "replace") if message.blob is not None else message.content
        return msgspec.structs.replace(message, content=text, blob=None, tool_calls=calls)

    def hidden(self) -> Iterator[Message]:
        """Yield the messages of the conversation that the window does not show in full."""
        state = self.view.state
        cut = self._shelf.draft.cut if self._shelf.draft else ()
        folded = ((seq, seq) for seq in (*self._load_stand_ins(), *cut))
        out = joined((*folded, *(state.folds.hidden if state.folds else ()), *(state.summary or _NOTHING).ranges))
        for first, last in number_ranges.coarse(number_ranges.upto(out, self.last), PAGE):
            for message in self.read(first, last):
                if self.view.shows(message.seq) and number_ranges.contains(out, message.seq):
                    yield message

    def _inline(self, message: Message) -> Message:
        """Return a message with its full text, where the line holds only its beginning."""
        blob = message.blob
        if blob is None or not isinstance(message.content, str) or blob.size_bytes > MAX_INLINE_BYTES:
            return message
        try:
            text = self.load(blob).decode("utf-8", "replace")
        except (Corrupt, NotFound) as error:
            logger.warning("[uuid:%s] Message %s is shown by its beginning: %s", self.uuid[:8], message.seq, error)
            return message
        return msgspec.structs.replace(message, content=text, blob=None)

    # the view

    def apply(self, event: Event) -> None:
        """Update the view with an event that was just stored."""
        self.view = step(self.view, event)
        self._sticky.remember(event)

    @property
    def uncovered(self) -> Ranges:
        """The visible ranges that no summary covers."""
        covered = self.view.state.summary
        return without(self.view.state.ranges, covered.ranges if covered else ())

    def newest_uncovered(self, max_tokens: int = CONSIDERED_TOKENS) -> list[Message]:
        """Return the newest visible messages that no summary covers, in order, up to a number of tokens."""
        messages: list[Message] = []
        tokens = 0
        for message in self.backwards(self.uncovered):
            if tokens > max_tokens:
                break
            tokens += message.tokens
            messages.append(message)
        return messages[::-1]

    def count_uncovered(self, enough: int = sys.maxsize) -> tuple[int, int]:
        """Return the tokens and messages that no summary covers; counting stops when there are enough tokens."""
        tokens = messages = 0
        for message in self.backwards(self.uncovered):
            if message.role != "system":
                tokens, messages = tokens + message.tokens, messages + 1
            if tokens > enough and messages >= self.config.min_messages_to_summarize:
                break
        return tokens, messages

    def summary_text(self, id: int) -> str:
        """Return the text of a summary; the latest few are kept in memory."""
        if id not in self._summaries:
            summary = next(self.store.read(self.uuid, Summary, first=id, last=id), None)
            self._summaries = dict([*self._summaries.items()][-4:])
            self._summaries[id] = summary.summary if summary is not None else ""
        return self._summaries[id]

    # the window

    def has_tool(self, name: str) -> bool:
        """Return whether the task has a tool of this name, or does not say which tools there are."""
        return self.config.tools is None or plain_name(name) in self.tool_names

    @property
    def language(self) -> str:
        """The language of the task: the configured one, else that of the first request."""
        if not self._language:
            opening = [message for message in self.read(1, OPENING) if message.role == "user"]
            if not opening:
                return "en"
            issue = opening[0].issue
            self._language = issue.language if issue and issue.language else language_of(opening[:1])
        return self._language

    @property
    def scale(self) -> float:
        """How many of the provider's tokens one of ours is, as far as the provider's reports tell."""
        return float(self.view.state.notes.get("scale", 1.0))

    @property
    def limit(self) -> int:
        """What the messages of a window may cost."""
        return self.config.budget(self.scale, self.schema_tokens).limit

    @property
    def snapshot_text(self) -> str:
        """The snapshot as it is now, shortened to its share of the window."""
        if not self.view.state.snapshot:
            return ""
        text = render_snapshot(from_data(self.view.state.snapshot), self.language)
        return shortened(text, SNAPSHOT_SHARE * self.limit, self.counter.text)

    @property
    def sticky_texts(self) -> Texts:
        """What the window shows of sticky files."""
        return self._sticky.texts(self.view.state, self.language)

    @property
    def sticky(self) -> StickyTexts:
        """The lists of sticky files."""
        return self._sticky

    def compose(self) -> Composed:
        """Return the window now, and the folds that it needs and that are not stored yet."""
        tail = self._tail()
        policy = self._policy
        if tail is not None:
            policy = msgspec.structs.replace(policy, max_messages=max(1, policy.max_messages - 1))
        composed = compose(
            self.view,
            self.read,
            self.last,
            budget=self.config.budget(self.scale, self.schema_tokens, tail.tokens if tail else 0),
            counter=self.counter,
            texts=self._texts(),
            stand_ins=self._load_stand_ins(),
            handles="unfold" in self.engine_tools,
            policy=policy,
            shelf=self._shelf,
            load=self.load,
            counted_from=self.counted_from,
        )
        return composed if tail is None else _with_tail(composed, tail)

    def window(self, composed: Composed, *, folded: Report | None = None) -> Window:
        """Return a composed window as the caller gets it. After a fold, what making it took is given back."""
        report = composed.report
        if folded is not None:
            report = msgspec.structs.replace(report, reasons=folded.reasons, changed_at=folded.changed_at)
            give_back()
        return Window(
            composed.messages,
            report,
            whole=composed.whole,
            schemas=self.schemas,
            model=self.config.model,
            load=self.load,
            reserved_output=self.config.reserved_output,
        )

    def _tail(self) -> Message | None:
        """Return the live snapshot as the last message, if it is configured to stand there."""
        text = self.snapshot_text if self.config.snapshot == "tail" else ""
        if not text:
            return None
        message = Message(seq=0, role="user", content=text, timestamp="", tokens=0)
        return msgspec.structs.replace(message, tokens=self.counter.message(message))

    def _texts(self) -> Texts:
        return msgspec.structs.replace(
            self.sticky_texts,
            summary=self._summary() if self.view.state.summary else "",
            snapshot=self.snapshot_text if self.config.snapshot == "prefix" else "",
            note=NOTE[self.language] if "unfold" in self.engine_tools else "",
        )

    def _summary(self) -> str:
        covered = self.view.state.summary
        if covered is None:
            return ""
        handles = f" (m{covered.ranges[0][0]}-m{covered.ranges[-1][1]})" if "unfold" in self.engine_tools else ""
        text = shortened(self.summary_text(covered.id), SUMMARY_SHARE * self.limit, self.counter.text)
        return _SUMMARY[self.language].format(handles, text)

    def _load_stand_ins(self) -> dict[int, StandIn]:
        folds = self.view.state.folds
        if folds is None:
            return {}
        if self._stand_ins[:2] != (folds.first, folds.last):
            stored = self.store.read(self.uuid, Fold, first=folds.first, last=folds.last) if folds.last else ()
            stand_ins = {fold.seq: StandIn(fold.seq, fold.text, fold.arguments, fold.tokens) for fold in stored}
            self._stand_ins = (folds.first, folds.last, stand_ins)
        return self._stand_ins[2]


# how many of the provider's tokens one of ours is, learned from the usage it reports and the windows it refuses


class Calibration:
    """The newest requests of a task: what we counted, and what the provider reported.

    A refusal counts for good: no later report takes the scale below what the refusals taught.
    """

    def __init__(self) -> None:
        self._pairs: list[tuple[int, int]] = []
        self._config: object = None

    def report(self, log: TaskLog, counted: int, reported: int) -> dict[str, Any]:
        """Return the notes to store after a reply with usage; none if the scale changes little."""
        if self._config is not log.config:  # another model counts differently
            self._pairs, self._config = [], log.config
        self._pairs = [*self._pairs, (counted + log.schema_tokens, reported)][-MAX_PAIRS:]
        if len(self._pairs) < MIN_PAIRS:
            return {}  # the scale from before a resume holds until there are as many pairs again
        scale = max(1.0, float(log.view.state.notes.get("least_scale", 1.0)), calibrate(self._pairs))
        return {"scale": round(scale, 3)} if abs(scale - log.scale) > MIN_CHANGE else {}


def refuse(log: TaskLog, *, sent: int, calls: int) -> dict[str, Any]:
    """Return the notes to store after the provider refused a window of `sent` tokens in a task with `calls` replies."""
    times, at = log.view.state.notes.get("refusals", (0, -1))
    times = times + 1 if at == calls else 1
    if times > MAX_REFUSALS:
        raise BudgetTooSmall(
            f"The provider refuses the request as too long, even after it was folded {MAX_REFUSALS} times in a row to "
            f"{sent:,} tokens.",
            needed=sent,
            allowed=log.limit,
            hint="Set context_length to what the server really offers, and use fewer tools or a shorter system prompt.",
        )
    scale = round(min(max(REFUSAL_FACTOR * log.scale, _scale_below(log, sent)), MOST_SCALE), 3)
    return {"scale": scale, "least_scale": scale, "refusals": [times, calls]}


def _scale_below(log: TaskLog, sent: int) -> float:
    """Return the scale at which there is clearly less room than a window of `sent` tokens took; 1 if none was sent."""
    if not sent:
        return 1.0
    config = log.config
    return (config.context_length - config.reserved_output) / max(1.0, sent / REFUSAL_FACTOR + log.schema_tokens)


# what a store holds of a task


def load_config(metadata: Metadata, view: View) -> TaskConfig:
    """Return the config of a task: its metadata, and the options that were changed since."""
    options = view.state.notes.get("frozen")
    return TaskConfig.from_metadata(metadata.config | options if isinstance(options, dict) else metadata.config)


def last_number(store: Store, uuid: str, kind: type[Record]) -> int:
    """Return the number of the newest record of a kind; 0 if there is none."""
    newest = next(store.read(uuid, kind, first=-1), None)
    return int(getattr(newest, LISTS[kind][1])) if newest is not None else 0


def load_view(store: Store, uuid: str, last_event: int) -> View:
    """Return the view as of an event. Reading begins at a record of the whole view, if a recent one exists."""
    if not last_event:
        return View()

    def report(event: Event, reason: str) -> None:
        store.report(Problem(uuid, LISTS[Event][0], event.id, reason))

    newest = list(store.read(uuid, Event, first=max(1, last_event - RECORD_EVERY), last=last_event))
    if any(event.type == "view" for event in newest) or (newest and newest[0].id == 1):
        return view(sound(newest, report))
    return view(sound(store.read(uuid, Event, last=last_event), report))


def _with_tail(composed: Composed, tail: Message) -> Composed:
    report = composed.report
    report = msgspec.structs.replace(
        report,
        tokens=report.tokens + tail.tokens,
        limit=report.limit + tail.tokens,
        by_source=report.by_source | {"snapshot": tail.tokens},
    )
    return msgspec.structs.replace(composed, messages=[*composed.messages, tail], report=report)


def _size(message: Message) -> int:
    content = message.content
    text = content if isinstance(content, str) else "".join(part.text or part.data or "" for part in content)
    raw = len(msgspec.json.encode(message.raw)) if message.raw is not None else 0
    return len(text) + raw + sum([len(call.arguments) for call in message.tool_calls]) + 512
