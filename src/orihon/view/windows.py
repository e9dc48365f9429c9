"""The window of a call, item by item: whole, folded, marked, summarised or not there, each with the reason.

The window itself comes from `Reader.window`, byte for byte as it was sent. This module says what each of its messages
is, and what became of the messages of the log that are not in it. It compares two windows as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from orihon.context.matter import INHERITED
from orihon.context.ranges import Ranges, contains, joined, without
from orihon.context.recall import NOTE
from orihon.records import Fold, Message
from orihon.task.log import TaskLog
from orihon.task.reader import Reader
from orihon.task.window import Window
from orihon.view.calls import CallFacts, TaskCalls

State = Literal["whole", "folded", "changed", "engine", "mark", "missing"]

_MARK = re.compile(r"\[…[\d,]+ messages?, m(\d+)(?:-m(\d+))?\]")
_NOTES = frozenset(NOTE.values())


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """A message of the window, or a run of messages of the log that are not in it."""

    state: State
    source: str  # of whom it is: a role, or what the engine says
    tokens: int
    message: Message | None = None  # as it was sent
    original_tokens: int = 0  # of the message in the log
    first: int = 0  # the messages of the log that it hides, or that are missing here
    last: int = 0
    count: int = 0
    reason: str = ""  # the name of the reason
    event: int = 0  # that made it so
    call: int = 0  # the first call with a window like that


class SeenWindow(msgspec.Struct, frozen=True, kw_only=True):
    """A window with its report, item by item in order."""

    call: int  # 0 for the window that the model would get now
    before: int | None
    after: int  # its newest message
    limit: int
    tokens: int
    reserved: int
    by_source: dict[str, int]
    reasons: list[str]
    whole: int
    folded: int
    left_out: int
    items: list[Item]


def look_at(reader: Reader, calls: TaskCalls, facts: CallFacts | None) -> tuple[SeenWindow, Window]:
    """Return the window of a call, or the window that the model would get now, with what each of its messages is."""
    log = reader.log(before=facts.seq if facts else None)
    window = log.window(log.compose())
    return describe(reader, calls, facts, log, window), window


def describe(reader: Reader, calls: TaskCalls, facts: CallFacts | None, log: TaskLog, window: Window) -> SeenWindow:
    """Return a window item by item."""
    items = list(_items(_Scene(reader, calls, log, window)))
    report = window.report
    return SeenWindow(
        call=facts.number if facts else 0,
        before=facts.seq if facts else None,
        after=log.last,
        limit=report.limit,
        tokens=report.tokens,
        reserved=window.reserved_output,
        by_source=by_source(report.by_source, items),
        reasons=list(facts.reasons if facts else report.reasons),
        whole=sum(item.state == "whole" for item in items),
        folded=sum(item.state == "folded" for item in items),
        left_out=sum(item.count for item in items if item.state in {"missing", "mark"}),
        items=items,
    )


def by_source(reported: dict[str, int], items: list[Item]) -> dict[str, int]:
    """Return the tokens by source. What was inherited is not the assistant's own."""
    inherited = sum(item.tokens for item in items if item.source == "inherited")
    if not inherited:
        return reported
    rest = reported | {"assistant": reported.get("assistant", 0) - inherited, "inherited": inherited}
    return {name: tokens for name, tokens in rest.items() if tokens > 0}


class _Scene:
    """Everything that explains one window."""

    def __init__(self, reader: Reader, calls: TaskCalls, log: TaskLog, window: Window) -> None:
        self.reader, self.calls, self.log, self.window = reader, calls, log, window
        state = log.view.state
        self.summary, self.folds = state.summary, state.folds
        self.event = log.view.last_event
        self.sent = {message.seq: message for message in window.messages if message.seq}
        self.stored = self._stored()
        stand_ins: set[int] = set()
        if self.folds is not None and self.folds.last:
            read = reader.store.read(reader.uuid, Fold, first=self.folds.first, last=self.folds.last)
            stand_ins = {fold.seq for fold in read}
        self.stand_ins = stand_ins
        fold = calls.fold_at(self.event)
        self.fold_event = fold.event if fold else 0
        self.fold_call = (calls.call_after(fold.event) if fold else None) or 0

    def _stored(self) -> dict[int, Message]:
        wanted = joined((seq, seq) for seq in self.sent)
        return {
            message.seq: message for first, last in wanted for message in self.reader.messages(first=first, last=last)
        }

    @property
    def missing(self) -> Ranges:
        """The messages of the log that are not in the window."""
        everything = ((1, self.log.last),) if self.log.last else ()
        return without(everything, joined((seq, seq) for seq in self.sent))

    def source_of(self, message: Message) -> str:
        """Return what the engine says with a message of its own."""
        text = message.text
        texts = self.log.sticky_texts
        if message.seq:
            return message.role
        if text in _NOTES:
            return "note"
        if _MARK.fullmatch(text):
            return "marks"
        if text in {self.folds.snapshot if self.folds else "", self.log.snapshot_text}:
            return "snapshot"
        if text == texts.sticky.text or text in {news.text for news in texts.news}:
            return "sticky files"
        return "summary" if self.summary is not None else "engine"


def _items(scene: _Scene) -> Iterator[Item]:
    """Yield the items; a run of missing messages comes where the first of them would stand."""
    gaps = list(_gaps(scene))
    for message in scene.window.messages:
        if message.role != "tool":
            while message.seq and gaps and gaps[0].first < message.seq:
                yield gaps.pop(0)
        yield _item(scene, message, gaps)
    yield from gaps


def _item(scene: _Scene, message: Message, gaps: list[Item]) -> Item:
    source = scene.source_of(message)
    if not message.seq:
        return _own_item(message, source, gaps)
    stored = scene.stored.get(message.seq)
    if (message.key or "").startswith(INHERITED) or (stored is not None and (stored.key or "").startswith(INHERITED)):
        source = "inherited"
    if stored is None or stored.role != message.role:
        return Item(state="changed", source=source, tokens=message.tokens, message=message, reason="repaired")
    state: State = "whole"
    if message.seq in scene.stand_ins:
        state = "folded"
    elif message.content != stored.content and stored.blob is None:
        state = "changed"
    return Item(
        state=state,
        source=source,
        tokens=message.tokens,
        message=message,
        original_tokens=stored.tokens,
        reason={"folded": "folded", "changed": "repaired"}.get(state, ""),
        event=scene.fold_event if state == "folded" else 0,
        call=scene.fold_call if state == "folded" else 0,
    )


def _own_item(message: Message, source: str, gaps: list[Item]) -> Item:
    """Return an item for what the engine says. A mark and a summary take the place of the gaps that they stand for."""
    item = Item(state="engine", source=source, tokens=message.tokens, message=message)
    mark = _MARK.fullmatch(message.text) if source == "marks" else None
    if mark:
        first, last = int(mark[1]), int(mark[2] or mark[1])
        stood_for = [gap for gap in gaps if gap.reason == "left out" and first <= gap.first and gap.last <= last]
    elif source == "summary":
        stood_for = [gap for gap in gaps if gap.reason == "summarised"]
    else:
        return item
    gaps[:] = [gap for gap in gaps if gap not in stood_for]
    if not stood_for:
        return item
    return msgspec.structs.replace(
        item,
        state="mark",
        first=stood_for[0].first,
        last=stood_for[-1].last,
        count=sum(gap.count for gap in stood_for),
        original_tokens=sum(gap.original_tokens for gap in stood_for),
        reason=stood_for[0].reason,
        event=stood_for[0].event,
        call=stood_for[0].call,
    )


def _gaps(scene: _Scene) -> Iterator[Item]:
    """Yield the runs of missing messages, each with one reason."""
    for first, last in scene.missing:
        begin = first
        while begin <= last:
            reason, event, end = _why(scene, begin, last)
            call = scene.fold_call if reason == "left out" else scene.calls.call_after(event) if event else 0
            yield Item(
                state="missing",
                source="",
                tokens=0,
                first=begin,
                last=end,
                count=end - begin + 1,
                reason=reason,
                event=event,
                call=call or 0,
            )
            begin = end + 1


def _why(scene: _Scene, seq: int, last: int) -> tuple[str, int, int]:
    """Return why a message is missing, by which event, and up to which message that is so."""
    state = scene.log.view.state
    if not contains(state.ranges, seq):
        loss = scene.calls.loss_of(seq, scene.event)
        hidden_to = _end_of(without(((seq, last),), state.ranges), seq)
        if loss is None:
            return "rewind", 0, hidden_to
        return loss.type, loss.event, min(hidden_to, _end_of(loss.ranges, seq))
    if scene.summary is not None and contains(scene.summary.ranges, seq):
        event = next((fold.event for fold in scene.calls.folds if fold.first == scene.summary.id
                      and fold.type == "summary"), 0)  # fmt: skip
        return "summarised", event, min(last, _end_of(scene.summary.ranges, seq))
    if scene.folds is not None and contains(scene.folds.hidden, seq):
        return "left out", scene.fold_event, min(last, _end_of(scene.folds.hidden, seq))
    nothing = joined((*(scene.folds.hidden if scene.folds else ()), *without(((seq, last),), state.ranges)))
    return "not chosen", 0, _end_of(without(((seq, last),), nothing), seq)


def _end_of(ranges: Ranges, seq: int) -> int:
    return next(last for first, last in ranges if first <= seq <= last)


# the difference of two windows


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A message that is in one of two windows, or in both but not the same."""

    change: Literal["same", "new", "gone", "folded", "unfolded", "changed"]
    tokens_before: int
    tokens_after: int
    before: Item | None = None
    after: Item | None = None


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """What changed from one window to another, and how much of a provider's cache stays usable."""

    before: SeenWindow
    after: SeenWindow
    first_byte: int | None  # the first byte of the later request that differs; None if it only grew
    shared_bytes: int
    bytes_before: int
    bytes_after: int
    shared_messages: int
    shared_tokens: int  # of the messages that both begin with
    lost_tokens: int  # of the earlier window that cannot be read from a cache
    changes: list[Change]


def request_bytes(window: Window) -> list[bytes]:
    """Return the messages of a window as they go over the wire of OpenAI's chat completions, one by one."""
    return [msgspec.json.encode(message) for message in window.openai()]


def compare(one: tuple[SeenWindow, Window], other: tuple[SeenWindow, Window]) -> Difference:
    """Compare two windows and the requests that they made."""
    (before, window_before), (after, window_after) = one, other
    old, new = b",".join(request_bytes(window_before)), b",".join(request_bytes(window_after))
    shared = _shared_bytes(old, new)
    kept = _shared_items(before, after)
    shared_tokens = sum(item.tokens for item in kept)
    return Difference(
        before=before,
        after=after,
        first_byte=None if shared == len(old) else shared,
        shared_bytes=shared,
        bytes_before=len(old),
        bytes_after=len(new),
        shared_messages=len(kept),
        shared_tokens=shared_tokens,
        lost_tokens=max(0, before.tokens - shared_tokens),
        changes=list(_changes(before, after)),
    )


def _shared_bytes(old: bytes, new: bytes) -> int:
    """Return how many bytes two requests begin with in common."""
    low, high = 0, min(len(old), len(new))
    while low < high:
        middle = (low + high + 1) // 2
        if old[:middle] == new[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _shown(window: SeenWindow) -> list[Item]:
    return [item for item in window.items if item.message is not None]


def _shared_items(before: SeenWindow, after: SeenWindow) -> list[Item]:
    shared = []
    pairs = zip(_shown(before), _shown(after), strict=False)
    for one, other in pairs:
        if one.message is None or other.message is None or not _alike(one.message, other.message):
            break
        shared.append(one)
    return shared


def _alike(one: Message, other: Message) -> bool:
    """Return whether two messages are sent as the same bytes."""
    return (one.role, one.content, one.tool_calls) == (other.role, other.content, other.tool_calls)


def _identity(item: Item) -> tuple[Any, ...]:
    message = item.message
    assert message is not None  # noqa: S101 - only items with a message are compared
    if message.seq:
        return message.seq, message.role, message.tool_call_id or ""
    return item.source, message.text if item.source in {"marks", "sticky files"} else ""


def _changes(before: SeenWindow, after: SeenWindow) -> Iterator[Change]:
    """Yield all messages of both windows in order: those of the earlier one, with the new ones where they stand."""
    old = {_identity(item): item for item in _shown(before)}
    new = {_identity(item): item for item in _shown(after)}
    waiting = [identity for identity in old if identity not in new]
    position = {identity: place for place, identity in enumerate(old)}
    for identity, item in new.items():
        if identity in old:
            while waiting and position[waiting[0]] < position[identity]:
                yield _gone(old[waiting.pop(0)])
            yield _kept(old[identity], item)
        else:
            yield Change(change="new", tokens_before=0, tokens_after=item.tokens, after=item)
    yield from (_gone(old[identity]) for identity in waiting)


def _gone(item: Item) -> Change:
    return Change(change="gone", tokens_before=item.tokens, tokens_after=0, before=item)


def _kept(before: Item, after: Item) -> Change:
    kind: Literal["same", "folded", "unfolded", "changed"] = "same"
    if before.message is not None and after.message is not None and not _alike(before.message, after.message):
        kind = "changed"
        if after.state == "folded":
            kind = "folded"
        elif before.state == "folded":
            kind = "unfolded"
    return Change(change=kind, tokens_before=before.tokens, tokens_after=after.tokens, before=before, after=after)
