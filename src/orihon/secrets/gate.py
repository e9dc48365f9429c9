"""Where in a text could a secret be? A few passes at the speed of C that let almost all text go by.

The gate only points; `find` decides. So a gate may point too often but never too rarely, and every gate gives the
same masked text. Everything works on UTF-8 bytes: one kind of offset, and `bytes.find` is the fastest thing there is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from orihon.secrets.rules import STARTS

STEMS = (b"key", b"token", b"secret", b"pass", b"pwd", b"auth", b"cred", b"curl")
BUNDLER = b"BUNDLE_"  # only in capitals: a needle that ordinary text lets pass quickly
RUN = 13  # the shortest token that says itself what it is
IN_RUN = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"
_LETTERS = IN_RUN[:52] + b"_-"
JOINTS = frozenset(b"\\%.~|:")  # before a run: a part of the token, or what hides where it begins
QUOTES = frozenset(b"\"'`= \n\t(><")  # before a run: it is a value
MARKS = frozenset(b".|%")  # behind a run: the middle of a token without a beginning
_SLASH, _DOT = ord("/"), ord(".")
_HIDING = JOINTS - {_DOT}  # attributes stand behind dots, so behind a dot a digit is asked for
_PLACED = QUOTES | {_DOT}
_RUNS = bytes(120 if byte in IN_RUN else 32 for byte in range(256))


class Hits(NamedTuple):
    """Places to look at, each list in rising order."""

    stems: list[int]  # where a word begins that could name a secret
    runs: list[tuple[int, int]]  # long runs of letters, digits, _ and -
    ats: list[int]  # where an @ stands, also as %40


Gate = Callable[[bytes], Hits]


def pure(data: bytes) -> Hits:
    """Find the hits with the standard library alone."""
    lower = data.lower()
    stems = [at for stem in STEMS if stem in lower for at in _places(lower, stem)]
    if BUNDLER in data:
        stems += _places(data, BUNDLER)
    ats = _places(data, b"@") if b"@" in data else []
    if b"%" in data:
        ats += _places(data, b"%40")
    return Hits(sorted(stems), long_runs(data, 0, len(data)), sorted(ats))


def _places(data: bytes, needle: bytes) -> list[int]:
    found = []
    at = data.find(needle)
    while at >= 0:
        found.append(at)
        at = data.find(needle, at + len(needle))
    return found


def long_runs(data: bytes, low: int, high: int) -> list[tuple[int, int]]:
    """Where runs begin and end that are long enough to be a token and are more than the name of something.

    Code has thousands of long names in a megabyte, so what tells a token from a name is tested here, in line: a known
    beginning; a joint before it, so that it is the later part of something; a digit in what stands like a value.
    """
    classes = data[low:high].translate(_RUNS)
    needle = b"x" * RUN
    find, size = classes.find, len(data)
    found = []
    at = find(needle)
    while at >= 0:
        behind = find(b" ", at + RUN)
        start, end = low + at, low + behind if behind >= 0 else high
        before = data[start - 1] if start else 32
        if (
            data[start : start + 3] in STARTS
            or before in _HIDING
            or (before == _SLASH and b"hook" in data[max(0, start - 60) : start])
            or (
                (before in _PLACED or (end < size and data[end] in MARKS)) and data[start:end].translate(None, _LETTERS)
            )
        ):
            found.append((start, end))
        at = find(needle, end - low)
    return found
