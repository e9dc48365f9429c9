"""The data of each kind of event: one schema, for what a program says, what a file brings, and what a store holds.

`problem` says what is wrong with an event. A task refuses to store such an event, and an import refuses the file. A
reader of a damaged store goes on without the event (`sound`), and so does an export. A kind that this version does not
know means nothing to it, and is sound; a note that it does not know may hold any value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from orihon.context.ranges import Number, Ranges
from orihon.context.sticky import StickyList
from orihon.context.view import Covered, Folded, State, Tangent, View
from orihon.records import Blob, Event
from orihon.tokens import MOST_SCALE

Scale = Annotated[float, Meta(ge=0.05, le=MOST_SCALE)]  # how many of the provider's tokens one of ours is
Texts = list[str]
Commit = Annotated[str, Meta(pattern=r"^([0-9a-f]{40}|[0-9a-f]{64})?\Z")]


class Rewind(Struct, frozen=True):
    """Nothing after `to` is visible."""

    to: Number


class Begun(Struct, frozen=True, rename={"start": "from"}):
    """A tangent began, perhaps after an earlier message; with checkpoints there is a commit."""

    start: Number = 0
    commit: Commit = ""
    began: str = ""  # the time, of one that was loaded


class Ended(Struct, frozen=True):
    """A tangent ended."""

    keep: Literal["none", "tail", "summary"]
    tail: tuple[Number, Number] | None = None


class Prompt(Struct, frozen=True):
    """The system prompt is now made of these messages, instead of the hidden ones."""

    first: Number
    last: Number
    hidden: Ranges = ()


class Leave(Struct, frozen=True):
    """The oldest messages left the view."""

    upto: Number


class Pinned(Struct, frozen=True):
    """A message is always shown, or no longer."""

    seq: Number


class Undone(Struct, frozen=True):
    """A step was taken back."""

    event: Number


class Checkpoint(Struct, frozen=True):
    """The state to come back to, and the commit of the files."""

    label: str = ""
    tag: str = ""
    commit: Commit | None = None
    state: State | None = None
    tangents: tuple[Tangent, ...] = ()


class Restoring(Struct, frozen=True):
    """The files begin to go back to a commit."""

    event: Number
    commit: Commit
    before: Commit
    hard: bool = False


class Restored(Struct, frozen=True):
    """Back to the state of a checkpoint."""

    state: State
    after: Number
    tangents: tuple[Tangent, ...] = ()
    before: Commit | None = None


class Said(Struct, frozen=True):
    """What went wrong, as the user was told."""

    text: str = ""


class Progress(Struct, frozen=True):
    """A partial update of the snapshot."""

    goal: str = ""
    completed_actions: Texts = []
    current_phase: str = ""
    key_observations: Texts = []
    earlier_actions: Number = 0
    earlier_observations: Number = 0
    acted: str | None = None
    observed: str | None = None
    max_actions: Number = 0


class About(Struct, frozen=True):
    """What a conversation was begun with."""

    name: str = ""
    directory: str = ""
    mcp_enabled: bool = True


class Waiting(Struct, frozen=True):
    """What was typed and is not sent yet."""

    text: str
    id: str = ""


class Seen(Struct, frozen=True):
    """Which comments were seen."""

    since: str = ""
    seen: dict[str, str] = {}


class Notes(Struct, frozen=True):
    """What a task keeps beside its log; a note that was taken away is null."""

    scale: Scale | None = None
    least_scale: Scale | None = None
    refusals: tuple[Number, int] | None = None
    frozen: dict[str, Any] | None = None
    ending: dict[str, Any] | None = None
    work: dict[str, Any] | None = None
    planning: dict[str, Any] | None = None
    progress: dict[str, Any] | None = None
    comments: Seen | None = None
    assigned: bool | None = None
    cut: Number | None = None
    conversation: About | None = None
    next_message: Waiting | None = None
    turn: Number | None = None
    steps: Number | None = None
    oldest_left: bool | None = None
    checkpoints: bool | None = None
    document: dict[str, Any] | None = None
    file_line_tracker: dict[str, Any] | None = None


class Kept(Struct, frozen=True):
    """A record of a session file, and the way to it."""

    at: list[Annotated[int, Meta(ge=0, le=100_000_000)] | str]
    record: Any


class Imported(Struct, frozen=True):
    """What a session file said beyond the messages before this event; a large one is in a blob."""

    messages: Number = 0
    records: list[Kept] = []
    blob: Blob | None = None


SCHEMAS: dict[str, type[Struct]] = {
    "rewind": Rewind,
    "clear": Struct,
    "tangent": Begun,
    "end": Ended,
    "prompt": Prompt,
    "folds": Folded,
    "summary": Covered,
    "pin": Pinned,
    "unpin": Pinned,
    "sticky": StickyList,
    "snapshot": Progress,
    "leave": Leave,
    "note": Notes,
    "restore": Restored,
    "undo": Undone,
    "view": View,
    "checkpoint": Checkpoint,
    "restoring": Restoring,
    "error": Said,
    "imported": Imported,
}


def problem(event: Event) -> str:
    """Return what is wrong with the data of an event; empty when it is as it should be."""
    schema = SCHEMAS.get(event.type)
    if schema is None or schema is Struct:
        return ""
    try:
        data = msgspec.convert(event.data, schema)
        for state in _states(data):
            msgspec.convert(state.notes, Notes)
    except (ValueError, RecursionError) as error:
        return f"event {event.id} ({event.type}) cannot be used: {error}"
    backwards = next((one for ranges in _ranges(data) for one in ranges if one[0] > one[1]), None)
    return f"event {event.id} ({event.type}) has a range that ends before it begins: {backwards}" if backwards else ""


def sound(events: Iterable[Event], tell: Callable[[Event, str], None] | None = None) -> Iterator[Event]:
    """Yield the events that can be used; `tell` hears of the others."""
    for event in events:
        reason = problem(event)
        if not reason:
            yield event
        elif tell is not None:
            tell(event, reason)


def _states(data: Struct) -> Iterator[State]:
    """Every state inside the data of an event."""
    if isinstance(data, State):
        yield data
    elif isinstance(data, View):
        yield data.state
        for undo in data.undos:
            yield undo.state
            yield from (tangent.state for tangent in undo.tangents)
        yield from (tangent.state for tangent in data.tangents)
    elif isinstance(data, Restored | Checkpoint):
        yield from [data.state] if data.state is not None else []
        yield from (tangent.state for tangent in data.tangents)


def _ranges(data: Struct) -> Iterator[Ranges]:
    """Every list of ranges inside the data of an event."""
    if isinstance(data, Covered):
        yield data.ranges
    elif isinstance(data, Folded):
        yield data.hidden
    elif isinstance(data, Prompt):
        yield ((data.first, data.last), *data.hidden)
    for state in _states(data):
        yield state.ranges
        yield from (covered.ranges for covered in state.summaries)
        if state.folds is not None:
            yield state.folds.hidden
