"""The two older ways to choose what the model sees, for those who want them: by importance, and plainly the newest.

Both choose whole units, so that no call is torn from its results, and both are chosen anew for every window.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil

from orihon.context.importance import importance
from orihon.context.units import units_of
from orihon.records import Message

RECENT_SHARE = 0.4


def most_important(messages: Sequence[Message], *, max_messages: int, phase: str = "") -> set[int]:
    """The newest 40 % and the most important of the others, `max_messages` in all, by their numbers.

    A unit that would be one too many is left out, unless it is the newest. Instructions come before everything else.
    """
    units = units_of(messages)
    newest: list[list[Message]] = []
    room = max_messages
    recent = ceil(max_messages * RECENT_SHARE)
    while units and (not newest or sum(map(len, newest)) + len(units[-1]) <= recent):
        newest.append(units.pop())
    room -= sum(map(len, newest))
    chosen = [message.seq for unit in newest for message in unit]
    for unit in sorted(units, key=lambda unit: _rank(unit, phase), reverse=True):
        if len(unit) <= room:
            chosen += [message.seq for message in unit]
            room -= len(unit)
    return set(chosen)


def newest_that_fit(messages: Sequence[Message], *, max_tokens: int) -> set[int]:
    """The newest units that fit, by their numbers; the newest one always."""
    chosen: set[int] = set()
    room = max_tokens
    for unit in reversed(units_of(messages)):
        room -= sum(message.tokens for message in unit)
        if room < 0 and chosen:
            break
        chosen |= {message.seq for message in unit}
    return chosen


def _rank(unit: Iterable[Message], phase: str) -> tuple[bool, float, int]:
    """Instructions first, then by importance, then the newer."""
    messages = list(unit)
    score = max(importance(message, phase=phase) for message in messages)
    return messages[0].role in {"system", "user"}, score, messages[0].seq
