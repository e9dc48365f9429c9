"""The view: which messages of the log are visible, computed from the events alone.

The log is never rewritten. A rewind, a clear, a tangent or a restore only says which numbers count from now on; folds,
summaries, pins, sticky files and the snapshot say how they are shown. Each event says after which message it happened,
and its effect is a step from one state to the next, so the view is a plain fold over the events.

    rewind    {to}                      nothing between `to` and here is visible or pinned
    clear     {}                        nothing before is visible, but the system prompt and the pins
    tangent   {from?}                   a side conversation begins, or began after the message `from`; tangents nest
    end       {keep, tail?}             it ends: nothing of it stays, or what is visible of a range of it
    folds     {first, last, hidden, …}  these stand-ins count from here on, and these messages are left out whole
    prompt    {first, last, hidden}     these messages are the system prompt from here on, instead of the hidden ones
    summary   {id, ranges, kept}        a summary of exactly these ranges, but for the units that are kept beside it
    pin unpin {seq}                     this message's unit is always shown, or no longer, from the next fold on
    sticky    {files, declared, …}      the whole list of sticky files, each with the version to show
    snapshot  {…}                       a partial update of goal, completed actions, phase, observations; or one more
                                        of them: {acted} or {observed}
    leave     {upto}                    the oldest messages leave the view, because there are too many
    note      {…}                       what a conversation keeps beside the log, such as the next message
    restore   {state, after}            back to the state that a checkpoint had saved
    undo      {event}                   takes back a rewind, a clear, a compression or a restore, and those after it
    view      {…}                       the whole view, so that reading can start here

Entering a tangent remembers the state and leaving puts it back, so nothing that happened inside is left but what was
asked to stay. An event of a kind, or with data, that this version does not understand changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from orihon.context.arrivals import Shared
from orihon.context.ranges import ALL, OPEN, Number, Ranges, after, contains, joined, last_of, upto, without
from orihon.context.snapshot import MAX_ACTIONS, acted, from_data, observed
from orihon.context.sticky import StickyList
from orihon.records import Event

RECORD_EVERY = 256  # events between two records of the whole view
MAX_UNDOS = 32
MAX_SUMMARIES = 32
MAX_NEWS = 64  # lists of sticky files that are told one after the other; then the newest one goes to the head


class Covered(msgspec.Struct, frozen=True, omit_defaults=True):
    """A summary, the ranges that it stands for, and what of them is so important that it is shown beside it."""

    id: Number
    ranges: Annotated[Ranges, Meta(min_length=1)]
    kept: tuple[Number, ...] = ()


class Folded(msgspec.Struct, frozen=True, omit_defaults=True):
    """One batch of folds: the records that stand in, what is left out whole, and the snapshot as it was then."""

    first: Number
    last: Number
    hidden: Ranges = ()
    snapshot: str = ""
    room: Number | None = None  # for sticky files, in tokens, when not all of them fitted
    settled: Number = 0  # up to this message the next batch changes nothing, if it can
    shared: Shared | None = None  # the room for later turns, if they are so large that they have to share it


class State(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is visible and how; this is what tangents and checkpoints remember."""

    ranges: Ranges = ALL
    pins: tuple[Number, ...] = ()
    held: tuple[Number, ...] = ()  # the pins as of the last fold: they hold until the next one, so that nothing moves
    folds: Folded | None = None
    summaries: tuple[Covered, ...] = ()
    sticky: Number = 0  # the event with the list of sticky files; each list has its whole place there
    prompt: tuple[Number, Number] | None = None  # the system prompt, if it is not what the log begins with
    standing: Number = 0  # the list as of the last fold: it stands at the head until the next one
    news: tuple[tuple[Number, Number], ...] = ()  # the lists since then, each with the message after which it is told
    snapshot: dict[str, Any] = {}
    notes: dict[str, Any] = {}

    def __post_init__(self) -> None:
        if None in self.notes.values():  # a note that is null was taken away
            kept = {name: value for name, value in self.notes.items() if value is not None}
            msgspec.structs.force_setattr(self, "notes", kept)

    @property
    def summary(self) -> Covered | None:
        """The newest summary that stands for exactly what is visible up to its end."""
        for covered in reversed(self.summaries):
            if upto(self.ranges, last_of(covered.ranges)) == covered.ranges:
                return covered
        return None


class Tangent(msgspec.Struct, frozen=True):
    """A side conversation that is open: its event, the message it began after, and the state to come back to."""

    event: Number
    after: Number
    state: State
    timestamp: str = ""


class Undo(msgspec.Struct, frozen=True):
    """A step that can be taken back: its event, where it happened, and what was there before."""

    event: Number
    after: Number
    type: str
    state: State
    tangents: tuple[Tangent, ...]


class View(msgspec.Struct, frozen=True, omit_defaults=True):
    """The state now, the tangents that are open, and what can be taken back."""

    state: State = State()
    tangents: tuple[Tangent, ...] = ()
    undos: tuple[Undo, ...] = ()
    rests: bool = False  # a compression was taken back: the automatic one waits until it must
    last_event: Number = 0

    @property
    def undoable(self) -> tuple[Undo, ...]:
        """The steps that can be taken back from here: inside a tangent, those that were taken in it."""
        opened = self.tangents[-1].event if self.tangents else 0
        return tuple(undo for undo in self.undos if undo.event > opened)

    def shows(self, seq: int) -> bool:
        """Return whether a message is visible."""
        return contains(self.state.ranges, seq)


def view(events: Iterable[Event], start: View | None = None) -> View:
    """Return the view after these events; a record of the whole view among them replaces what came before it."""
    current = start or View()
    for event in events:
        if event.id > current.last_event:
            current = step(current, event)
    return current


def step(current: View, event: Event) -> View:
    """Return the view after one more event."""
    apply = _STEPS.get(event.type)
    if apply is not None:
        with suppress(KeyError, TypeError, ValueError):  # data that means nothing changes nothing
            current = apply(current, event)
    return msgspec.structs.replace(current, last_event=event.id)


def record(current: View) -> dict[str, Any]:
    """Return the data of a `view` event."""
    data: dict[str, Any] = msgspec.to_builtins(current)
    return data


def saved(current: View) -> dict[str, Any]:
    """Return what a checkpoint remembers."""
    return {"state": msgspec.to_builtins(current.state), "tangents": msgspec.to_builtins(current.tangents)}


def _changed(current: View, **changes: Any) -> View:
    return msgspec.structs.replace(current, state=msgspec.structs.replace(current.state, **changes))


def _undoable(current: View, event: Event, then: View) -> View:
    """Remember what was there before a step that can be taken back."""
    undo = Undo(event.id, event.after, event.type, current.state, current.tangents)
    return msgspec.structs.replace(then, undos=(*current.undos, undo)[-MAX_UNDOS:])


def _cut(ranges: Ranges, keep_to: int, event: Event, between: Ranges = ()) -> Ranges:
    """Return what was visible up to a number, perhaps something in between, and all that comes after the event."""
    return joined((*upto(ranges, keep_to), *between, (event.after + 1, OPEN)))


def _rewind(current: View, event: Event) -> View:
    to = min(_number(event.data["to"]), event.after)
    state = current.state
    pins, held = (tuple(seq for seq in of if not to < seq <= event.after) for of in (state.pins, state.held))
    then = _changed(current, ranges=_cut(state.ranges, to, event), pins=pins, held=held)
    return _undoable(current, event, then)


def _clear(current: View, event: Event) -> View:
    pins, ranges = current.state.pins, ((event.after + 1, OPEN),)
    then = _changed(_settled(current), ranges=ranges, held=pins, summaries=(), folds=None, snapshot={})
    return _undoable(current, event, then)


def _tangent(current: View, event: Event) -> View:
    state, began = current.state, event.after
    if "from" in event.data:
        began = min(_number(event.data["from"]), event.after)
        if current.tangents and began < current.tangents[-1].after:
            return current  # it would reach out of the one that is open
        state = _before(state, began)
    opened = Tangent(event.id, began, state, event.data.get("began") or event.timestamp)
    # what was done after the place where it began belongs to it, and cannot be taken back from outside
    undos = tuple(undo for undo in current.undos if undo.after <= began)
    return msgspec.structs.replace(current, tangents=(*current.tangents, opened), undos=undos)


def _before(state: State, place: int) -> State:
    """Return a state without what stands for later messages."""
    pins, held = (tuple(seq for seq in of if seq <= place) for of in (state.pins, state.held))
    summaries = tuple(covered for covered in state.summaries if last_of(covered.ranges) <= place)
    return msgspec.structs.replace(state, pins=pins, held=held, summaries=summaries)


def _leave(current: View, event: Event) -> View:
    """A summary goes on standing for the rest of what it covered; what a tangent comes back to is left alone."""
    place, state = min(_number(event.data["upto"]), event.after), current.state
    cut = (msgspec.structs.replace(covered, ranges=after(covered.ranges, place)) for covered in state.summaries)
    summaries = tuple(covered for covered in cut if covered.ranges)
    return _changed(current, ranges=after(state.ranges, place), summaries=summaries)


def _end(current: View, event: Event) -> View:
    if not current.tangents:
        return current
    *outer, tangent = current.tangents
    state = tangent.state
    between: Ranges = ()
    if event.data["keep"] != "none":
        first, last = event.data["tail"]
        visible = upto(current.state.ranges, min(_number(last), event.after))
        between = after(visible, max(_number(first) - 1, tangent.after))
    state = msgspec.structs.replace(state, ranges=_cut(state.ranges, tangent.after, event, between))
    # steps that were taken inside cannot be taken back from outside
    undos = tuple(undo for undo in current.undos if undo.event < tangent.event)
    return msgspec.structs.replace(current, state=state, tangents=tuple(outer), undos=undos)


def _folds(current: View, event: Event) -> View:
    folds = msgspec.convert(event.data, Folded)
    folds = msgspec.structs.replace(folds, hidden=joined(folds.hidden))
    return _changed(_settled(current), folds=folds, held=current.state.pins)


def _summary(current: View, event: Event) -> View:
    covered = msgspec.convert(event.data, Covered)
    covered = msgspec.structs.replace(covered, id=_number(covered.id), ranges=joined(covered.ranges))
    if not covered.ranges:
        return current  # it stands for nothing
    summaries = (*current.state.summaries, covered)[-MAX_SUMMARIES:]
    then = _changed(_settled(current), summaries=summaries, held=current.state.pins)
    return msgspec.structs.replace(_undoable(current, event, then), rests=False)


def _prompt(current: View, event: Event) -> View:
    """Nothing else moves: a summary goes on standing for the rest of what it covered."""
    first, last = map(_number, (event.data["first"], event.data["last"]))
    hidden = joined(((first, last), *msgspec.convert(event.data.get("hidden", ()), Ranges)))
    state = current.state
    cut = (msgspec.structs.replace(one, ranges=without(one.ranges, hidden)) for one in state.summaries)
    summaries = tuple(covered for covered in cut if covered.ranges)
    return _changed(current, ranges=without(state.ranges, hidden), summaries=summaries, prompt=(first, last))


def _pin(current: View, event: Event) -> View:
    pins = {*current.state.pins, _number(event.data["seq"])}
    return _changed(current, pins=tuple(sorted(pins)))


def _unpin(current: View, event: Event) -> View:
    pins = {*current.state.pins} - {_number(event.data["seq"])}
    return _changed(current, pins=tuple(sorted(pins)))


def _sticky(current: View, event: Event) -> View:
    listed = msgspec.convert(event.data, StickyList)
    news = (*current.state.news, (event.id, event.after))
    then = _changed(current, sticky=event.id, news=news)
    return _settled(then) if listed.at_once or len(news) > MAX_NEWS else then


def _settled(current: View) -> View:
    """The head of the window changes anyway: the newest list of sticky files goes there, with nothing left to tell."""
    return _changed(current, standing=current.state.sticky, news=())


def _snapshot(current: View, event: Event) -> View:
    data = dict(event.data)
    acts, sees, most = data.pop("acted", None), data.pop("observed", None), data.pop("max_actions", MAX_ACTIONS)
    known = {**current.state.snapshot, **data}
    if acts is not None:
        known |= msgspec.to_builtins(acted(from_data(known), str(acts), max_actions=_number(most)))
    if sees is not None:
        known |= msgspec.to_builtins(observed(from_data(known), str(sees)))
    return _changed(current, snapshot=known)


def _note(current: View, event: Event) -> View:
    notes = {**current.state.notes, **event.data}
    return _changed(current, notes=notes)


def _restore(current: View, event: Event) -> View:
    state = msgspec.convert(event.data["state"], State)
    tangents = msgspec.convert(event.data.get("tangents", ()), tuple[Tangent, ...])
    place = min(_number(event.data["after"]), event.after)
    state = msgspec.structs.replace(state, ranges=_cut(state.ranges, place, event))
    return _undoable(current, event, msgspec.structs.replace(current, state=state, tangents=tangents))


def _undo(current: View, event: Event) -> View:
    number = _number(event.data["event"])
    undo = next((undo for undo in current.undoable if undo.event == number), None)
    if undo is None:
        return current
    now, then = current.state, undo.state
    # what was visible then up to that moment, and what is visible now after it
    ranges = joined((*upto(then.ranges, undo.after), *after(now.ranges, undo.after)))
    taken_back = {one.type for one in current.undos if one.event >= number}
    notes = then.notes if "restore" in taken_back else now.notes  # nothing else had put other ones in place
    state = msgspec.structs.replace(then, ranges=ranges, notes=notes)
    if "restore" not in taken_back and now.sticky != then.sticky:
        # the others leave the sticky files alone, and so does taking them back
        state = msgspec.structs.replace(state, sticky=now.sticky, news=(*then.news, (now.sticky, event.after)))
    if taken_back <= {"rewind", "summary"}:
        # these leave the snapshot and the other pins alone too
        pins = {*now.pins, *(seq for seq in then.pins if not contains(now.ranges, seq))}
        state = msgspec.structs.replace(state, snapshot=now.snapshot, pins=tuple(sorted(pins)))
    return msgspec.structs.replace(
        current,
        state=state,
        tangents=undo.tangents,
        undos=tuple(one for one in current.undos if one.event < number),
        rests=current.rests or undo.type == "summary",
    )


def _view(current: View, event: Event) -> View:  # noqa: ARG001 - it replaces whatever came before
    return msgspec.convert(event.data, View)


def _number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(value)
    return value


_STEPS: dict[str, Callable[[View, Event], View]] = {
    "rewind": _rewind,
    "clear": _clear,
    "tangent": _tangent,
    "end": _end,
    "leave": _leave,
    "folds": _folds,
    "prompt": _prompt,
    "summary": _summary,
    "pin": _pin,
    "unpin": _unpin,
    "sticky": _sticky,
    "snapshot": _snapshot,
    "note": _note,
    "restore": _restore,
    "undo": _undo,
    "view": _view,
}
