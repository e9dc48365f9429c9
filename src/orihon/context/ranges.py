"""Ranges of message numbers: ascending and disjoint; the last one is usually open.

A range is a pair of first and last number, both included. `OPEN` as the last number
means "and all that follow".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta

OPEN = 2**53 - 1  # the largest number that every reader of JSON keeps exactly

Number = Annotated[int, Meta(ge=0, le=OPEN)]
Range = tuple[Number, Number]
Ranges = tuple[Range, ...]
ALL: Ranges = ((1, OPEN),)


def joined(ranges: Iterable[Range]) -> Ranges:
    """Return the same numbers in as few ranges as possible, without empty ones."""
    found: list[Range] = []
    for first, last in sorted(ranges):
        if first > last:
            continue
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return tuple(found)


def upto(ranges: Ranges, number: int) -> Ranges:
    """Return the numbers that are not larger than a number."""
    return tuple((first, min(last, number)) for first, last in ranges if first <= number)


def after(ranges: Ranges, number: int) -> Ranges:
    """Return the numbers that are larger than a number."""
    return tuple((max(first, number + 1), last) for first, last in ranges if last > number)


def without(ranges: Ranges, hidden: Ranges) -> Ranges:
    """Return the numbers that are in the first and not in the second. Each is read once."""
    found: list[Range] = []
    gaps = iter(joined(hidden))
    gap = next(gaps, None)
    for first, last in ranges:
        start = first
        while gap is not None and gap[0] <= last:
            found.append((start, gap[0] - 1))  # empty, when the gap began before
            start = max(start, gap[1] + 1)
            if gap[1] > last:
                break  # it reaches into the next range
            gap = next(gaps, None)
        found.append((start, last))
    return joined(found)


def contains(ranges: Ranges, number: int) -> bool:
    """Return whether a number is in the ranges."""
    return any(first <= number <= last for first, last in ranges)


def last_of(ranges: Ranges) -> int:
    """Return the largest number; 0 if there is none."""
    return ranges[-1][1] if ranges else 0


def coarse(ranges: Ranges, gap: int) -> Ranges:
    """Return fewer and larger ranges that also contain the small gaps between them."""
    found: list[Range] = []
    for first, last in ranges:
        if found and first - found[-1][1] <= gap:
            found[-1] = (found[-1][0], last)
        else:
            found.append((first, last))
    return tuple(found)
