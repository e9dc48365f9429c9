"""What the doctor says: one sentence about one place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal

from msgspec import Struct

MANY = 100  # sentences about one list; whoever has read so many does not need the rest

Level = Literal["ok", "note", "problem", "fixed"]


class Finding(Struct, frozen=True):
    """Something that was looked at; only a problem means that not all is well."""

    level: Level
    where: str
    sentence: str
    fixable: bool = False


def problem(where: str, sentence: str, *, fixable: bool = False) -> Finding:
    """Something is wrong."""
    return Finding("problem", where, sentence, fixable)


def note(where: str, sentence: str, *, fixable: bool = False) -> Finding:
    """Good to know; nothing is lost or in danger."""
    return Finding("note", where, sentence, fixable)


def not_too_many(where: str, findings: Iterable[Finding]) -> Iterator[Finding]:
    """The first findings, and how many more there are, so that a list with a million flaws costs no memory."""
    left_out = 0
    for count, finding in enumerate(findings):
        if count < MANY:
            yield finding
        else:
            left_out += 1
    if left_out:
        yield problem(where, f"{left_out:,} more findings like these are left out.")


def mended(
    found: list[Finding], repair: Callable[[], None], look_again: Callable[[], Iterable[Finding]]
) -> Iterator[Finding]:
    """Repair, look again, and tell what is still there from what is not."""
    repair()
    again = list(look_again())
    for finding in found:
        if finding.fixable and finding not in again:
            yield Finding("fixed", finding.where, finding.sentence)
    yield from again
