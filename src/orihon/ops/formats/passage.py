"""A task as somebody reads it: its messages in order, each with what became of it, and the summaries where they end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from orihon.context.ranges import contains
from orihon.context.view import View
from orihon.errors import Corrupt, NotFound
from orihon.ops.blobs import load_blobs
from orihon.records import Event, Fold, Message, Summary
from orihon.task.history import last_number, load_view
from orihon.task.reader import Reader

Fate = Literal["shown", "folded", "summarised", "left out"]

EXPLAINED = {
    "folded": "folded: the model sees it shortened",
    "summarised": "summarised: the model sees the summary instead",
    "left out": "left out: it was rewound, cleared, or belongs to a tangent that ended",
}


class Passage(NamedTuple):
    """A message or a summary, and how the model sees it now."""

    record: Message | Summary
    fate: Fate


def passages(reader: Reader) -> Iterator[Passage]:
    """Messages whole, each summary behind the last message that it stands for."""
    state = view_of(reader)
    folds = state.state.folds
    shortened = {fold.seq for fold in _folds(reader, folds.first, folds.last)} if folds is not None else set()
    summaries = sorted(reader.summaries(), key=lambda summary: (summary.end_seq, summary.id))
    for message in reader.messages():
        while summaries and summaries[0].end_seq < message.seq:
            yield _summary(summaries.pop(0), state)
        yield Passage(_whole(reader, message), _fate(message.seq, state, shortened))
    yield from (_summary(summary, state) for summary in summaries)


def view_of(reader: Reader) -> View:
    """What is visible now."""
    return load_view(reader.store, reader.uuid, last_number(reader.store, reader.uuid, Event))


def _folds(reader: Reader, first: int, last: int) -> Iterator[Fold]:
    return reader.store.read(reader.uuid, Fold, first=first, last=last) if last else iter(())


def _whole(reader: Reader, message: Message) -> Message:
    try:
        return load_blobs(reader.store, reader.uuid, message)
    except (Corrupt, NotFound):  # a lost blob: its beginning, which is in the line, is still there to be read
        return message


def _fate(seq: int, view: View, shortened: set[int]) -> Fate:
    state = view.state
    if not view.shows(seq):
        return "left out"
    if state.summary is not None and contains(state.summary.ranges, seq) and seq not in state.summary.kept:
        return "summarised"
    hidden = state.folds is not None and contains(state.folds.hidden, seq)
    return "folded" if hidden or seq in shortened else "shown"


def _summary(summary: Summary, view: View) -> Passage:
    current = view.state.summary
    return Passage(summary, "shown" if current is not None and current.id == summary.id else "left out")
