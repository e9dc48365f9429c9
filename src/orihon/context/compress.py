"""When older messages are summarised, and which: the trigger, and a cut that tears no unit."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from orihon.context.importance import importance
from orihon.context.ranges import Ranges, joined, upto
from orihon.context.summary import Limits, Outcome, Summariser, summarise
from orihon.context.units import after_prompt, is_waiting, units_of
from orihon.context.view import View
from orihon.records import Message
from orihon.tokens import Counter

KEPT_IMPORTANCE = 0.8
KEPT_SHARE = 0.05  # of the context length, for what stays beside a summary


def should_compress(
    tokens: int, messages: int, *, context_length: int, limit: int, threshold: float = 0.7, minimum: int = 10
) -> bool:
    """Too many tokens that no summary covers, in enough messages to be worth one; over the hard limit always."""
    return tokens > limit or (tokens > threshold * context_length and messages >= minimum)


def to_cover(messages: Sequence[Message], *, keep_recent: int = 5) -> list[Message]:
    """Return the messages that a summary would stand for: all but the system prompt and at least the newest few.

    The cut falls between units, so one result more may stay, never one less; a call that waits for its result stays.
    """
    units = units_of(after_prompt(messages))
    kept = 0
    while units and (kept < keep_recent or (not kept and is_waiting(units[-1]))):
        kept += len(units.pop())
    return sorted((message for unit in units for message in unit), key=lambda message: message.seq)


def covered_ranges(view: View, covered: Sequence[Message]) -> Ranges:
    """Return what the new summary stands for: everything visible up to the last message that it covers."""
    if not covered:
        return ()
    last = max(message.seq for message in covered)
    return joined(upto(view.state.ranges, last))


def important(covered: Sequence[Message], *, max_tokens: int) -> tuple[int, ...]:
    """Return the units that a summary should not swallow, by their first messages: the newest first, as many as fit."""
    found: list[int] = []
    room = max_tokens
    for unit in reversed(units_of(covered)):
        tokens = sum(message.tokens for message in unit)
        if tokens <= room and max(map(importance, unit)) >= KEPT_IMPORTANCE:
            found.append(unit[0].seq)
            room -= tokens
    return tuple(sorted(found))


class Compression(msgspec.Struct, frozen=True, kw_only=True):
    """What a compression would change: nothing counts before the caller stores it."""

    outcome: Outcome
    ranges: Ranges  # that it stands for, with what the previous summary stood for
    new: tuple[int, int]  # the first and the last message that no summary stood for before
    messages: int
    kept: tuple[int, ...] = ()  # units that stay beside the summary, by their first messages
    left: int = 0  # newer messages that stay as they are

    @property
    def saved(self) -> int:
        """The tokens that the window would be smaller by."""
        return self.outcome.original_tokens - self.outcome.tokens


def compress(
    view: View,
    messages: Sequence[Message],
    *,
    counter: Counter,
    limits: Limits,
    summariser: Summariser | None = None,
    previous: str = "",
    focus: str = "",
    keep_recent: int = 5,
    language: str = "auto",
    template: str = "",
) -> Compression | None:
    """Return a summary of the older messages with the ranges it stands for; None when there is nothing to gain."""
    covered = to_cover(messages, keep_recent=keep_recent)
    if not covered:
        return None
    outcome = summarise(
        covered,
        counter=counter,
        limits=limits,
        summariser=summariser,
        previous=previous,
        focus=focus,
        language=language,
        template=template,
    )
    kept = important(covered, max_tokens=int(limits.context_length * KEPT_SHARE))
    made = Compression(
        outcome=outcome,
        ranges=covered_ranges(view, covered),
        new=(covered[0].seq, covered[-1].seq),
        messages=len(covered),
        kept=kept,
        left=len(after_prompt(messages)) - len(covered),
    )
    return made if made.saved > 0 and outcome.text else None
