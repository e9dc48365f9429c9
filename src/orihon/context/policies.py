"""The two older policies for choosing what the model sees: `importance`, and `plain`, which keeps the newest.

Both choose whole units, so that a call keeps its results, and both choose again for every window.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from orihon.context.importance import importance
from orihon.context.units import units_of
from orihon.records import Message

RECENT_SHARE = 0.4  # of the messages: the newest, which stay whatever they are


def most_important(messages: Sequence[Message], *, max_messages: int, recent: int) -> Choice:
    """Choose the newest messages and the most important of the others, `max_messages` in all.

    The newest units stay as far as they fit, at least `recent` messages of them, and the newest one in any case. Of the
    others none stays that is less important than one that is left out.
    """
    units = units_of(messages)
    newest: list[list[Message]] = []
    room = max_messages
    while units and (not newest or (sum(map(len, newest)) < recent and len(units[-1]) <= room)):
        newest.append(units.pop())
        room -= len(newest[-1])
    chosen = {message.seq for unit in newest for message in unit}
    least = 0.0  # the importance of the first unit that does not fit: nothing below it stays
    for unit in sorted(units, key=_rank, reverse=True):
        score, _ = _rank(unit)
        if score < least:
            break
        if len(unit) <= room:
            chosen |= {message.seq for message in unit}
            room -= len(unit)
        else:
            least = score
    return Choice(chosen, newest[-1][0].seq if newest else 0)


class Choice(NamedTuple):
    """The numbers of the messages that stay, and the first one of the newest, which stay for that alone."""

    kept: set[int]
    newest_from: int

    def worth(self, unit: Sequence[Message]) -> tuple[bool, float, int]:
        """Return how late a unit is left out, if the window is too full even so."""
        return unit[0].seq >= self.newest_from, *_rank(unit)


def newest_that_fit(messages: Sequence[Message], *, max_tokens: int) -> set[int]:
    """Return the newest units that fit, by their numbers; the newest one always."""
    chosen: set[int] = set()
    room = max_tokens
    for unit in reversed(units_of(messages)):
        room -= sum(message.tokens for message in unit)
        if room < 0 and chosen:
            break
        chosen |= {message.seq for message in unit}
    return chosen


def _rank(unit: Iterable[Message]) -> tuple[float, int]:
    """By importance, then the newer."""
    messages = list(unit)
    return max(map(importance, messages)), messages[0].seq
