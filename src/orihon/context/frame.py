"""The frame of a window: what it may cost, what goes into it beside the log, and the result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from orihon.context.arrivals import Shared
from orihon.context.pick import FOLD_AT, FOLD_TO, StandIn
from orihon.context.ranges import Ranges
from orihon.context.sticky import Head, News
from orihon.context.tree import Limits
from orihon.context.view import Folded
from orihon.records import Message, Role


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """What the window may cost, and when it is folded."""

    context_length: int
    reserved_output: int = 0
    schema_tokens: int = 0
    fold_at: float = FOLD_AT
    fold_to: float = FOLD_TO

    @property
    def limit(self) -> int:
        """What is left for the messages."""
        return self.context_length - self.reserved_output - self.schema_tokens


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """How the messages of a window are chosen."""

    name: Literal["fold", "importance", "plain"] = "fold"
    max_messages: int = 24
    compression_threshold: float = 0.7
    ui: Limits = Limits()  # how much is shown of a tree of user interface elements


class Texts(msgspec.Struct, frozen=True, kw_only=True):
    """What stands in the window beside the messages of the log."""

    sticky: Head = Head()  # as of the last fold
    news: tuple[News, ...] = ()  # the changes announced since
    files: Head = Head()  # as they are now; the window shows them from the next fold on
    summary: str = ""
    snapshot: str = ""  # as it is now; the window shows the one of the last fold
    note: str = ""  # how to unfold, said once


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What is in the window, what is not, and why."""

    limit: int
    tokens: int
    by_source: dict[str, int]
    whole: int
    folded: int
    left_out: int
    reserved: int = 0  # tokens that are left for the reply
    reasons: tuple[str, ...] = ()
    changed_at: int | None = None  # where the first byte of the window changed, if a batch of folds was made


class Batch(msgspec.Struct, frozen=True):
    """A batch of folds that must be stored before its window counts."""

    stand_ins: tuple[StandIn, ...]
    hidden: Ranges
    snapshot: str
    room: int | None = None  # tokens for sticky files, when not all of them fit
    settled: int = 0  # up to this message the next batch changes nothing, if it can
    shared: Shared | None = None  # the room for later turns, if they are so large that they have to share it

    def event(self, first: int, last: int) -> dict[str, Any]:
        """Return the data of the event that makes the batch count, given the numbers of its records."""
        folded = Folded(first, last, self.hidden, self.snapshot, self.room, self.settled, self.shared)
        data: dict[str, Any] = msgspec.to_builtins(folded)
        return data


class Composed(msgspec.Struct, frozen=True, kw_only=True):
    """A window, and the folds that it needed."""

    messages: list[Message]
    report: Report
    batch: Batch | None = None
    whole: Mapping[int, Role] = {}  # the messages of the log that are shown as they are stored, with their roles
