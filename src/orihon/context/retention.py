"""Retention: how much of what a conversation came back to its summary still holds.

A name that stood in a message and that a later reply used again was needed later. Retention is the share of such names
that the summary of these messages holds. It is measured, not aimed at: nothing here changes a summary.
"""

from __future__ import annotations

from collections.abc import Sequence

from orihon.context.check import find_names
from orihon.records import Message


def find_reused_names(messages: Sequence[Message]) -> set[str]:
    """Return the names in replies that an earlier message had."""
    seen: set[str] = set()
    reused: set[str] = set()
    for message in messages:
        names = find_names(message)
        if message.role == "assistant":
            reused |= names & seen
        seen |= names
    return reused


def measure_retention(text: str, messages: Sequence[Message]) -> float | None:
    """Return the share of the reused names that a summary holds; None if no name was used again."""
    reused = find_reused_names(messages)
    return round(sum(name in text for name in reused) / len(reused), 4) if reused else None
