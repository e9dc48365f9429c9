"""The same gate with Hyperscan, for those who installed `orihon[fast]`: all passes in one.

Hyperscan sees the beginnings and shapes themselves, so ordinary runs of letters never reach Python. Where it sees
one, the runs around it are cut exactly as the pure gate cuts them, and the finders decide as always.
"""

from __future__ import annotations

import re
from functools import cache
from threading import Lock
from typing import Any

from orihon.redaction.gate import COOKIE, FLAGS, IN_RUN, STEMS, Hits, long_runs
from orihon.redaction.providers import HOLDER_MARKS, MARKERS, SHAPE_MARKS
from orihon.redaction.rules import Rule, rules

_STEM, _AT, _FLAG, _TOKEN, _COOKIE = range(5)
_KINDS = 5
_BEFORE, _BEHIND = 200, 160  # how far from what Hyperscan saw a run can lie that the finders need
_LITERAL = 4
_FIRST_LETTERS = re.compile(rb"(?:^|\))(\[[^\]]+\]|\\\w)\{(\d+)(?:,\d*)?\}")
_LONGEST_TAIL = 20
_PAT = [f"{sign}pat{behind}".encode() for sign in "_.-" for behind in "=:\"'\\ ]"]  # a name that ends so
_RUN = re.compile(rb"[\w-]*")
_scratch = Lock()  # a database has one scratch space; two threads must not scan with it at once


def hits(data: bytes) -> Hits:
    """Find the hits with Hyperscan."""
    found: tuple[list[int], ...] = ([], [], [], [], [])

    def note(kind: int, _start: int, end: int, _flags: int, _context: object) -> None:
        found[kind % _KINDS].append(end - kind // _KINDS)

    with _scratch:
        _database().scan(data, match_event_handler=note)
    stems, ats, flags, tokens, cookies = found
    return Hits(
        sorted(stems), _runs_near(data, tokens, cookies) if tokens or cookies else [], sorted(ats), sorted(flags)
    )


def _runs_near(data: bytes, tokens: list[int], cookies: list[int]) -> list[tuple[int, int]]:
    ranges = [(place - _BEFORE, place + _BEHIND) for place in tokens]
    ranges += [(place, place + COOKIE + _BEHIND) for place in cookies]
    return _runs_in(data, sorted(ranges))


def _runs_in(data: bytes, ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Cut the runs in some ranges, each run whole and once."""
    runs: list[tuple[int, int]] = []
    done = 0
    for first, last in ranges:
        if last <= done:
            continue
        low = max(done, first)
        low = done + len(data[done:low].rstrip(IN_RUN))
        high = _RUN.match(data, min(last, len(data))).end()  # type: ignore[union-attr]
        runs += long_runs(data, low, high)
        done = high
    return runs


@cache
def _database() -> Any:
    """The database, compiled once in a process."""
    import hyperscan  # noqa: PLC0415 - an optional library is loaded when it is used

    caseless = hyperscan.HS_FLAG_CASELESS
    rows = [(re.escape(stem), _STEM + _KINDS * len(stem), caseless) for stem in STEMS]
    rows += [(flag, _FLAG + _KINDS * length, caseless) for flag, length in FLAGS]
    rows += [(sign, _AT + _KINDS * len(sign), 0) for sign in (b"@", b"%40", b"\xef\xbc\xa0")]
    rows += [(pattern, _TOKEN, 0) for pattern in [*_beginnings(), *SHAPE_MARKS.encode().split()]]
    rows += [(re.escape(mark), _TOKEN, caseless) for mark in [*HOLDER_MARKS.encode().split(), *_PAT]]
    rows += [(MARKERS.encode() + rb"[\w-]{20}", _TOKEN, 0), (b"ookie", _COOKIE, caseless)]
    expressions, ids, flags = zip(*rows, strict=True)
    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    database.compile(expressions=list(expressions), ids=list(ids), flags=list(flags), elements=len(rows))
    return database


def _beginnings() -> list[bytes]:
    """The beginnings; the short ones and those that are words only before what their tokens go on with."""
    plain = {rule.start for rule in rules() if rule.alone or len(rule.start) < _LITERAL}
    return sorted({re.escape(rule.start) + (_tail(rule) if rule.start in plain else b"") for rule in rules()})


def _tail(rule: Rule) -> bytes:
    """The first letters of a body, which Hyperscan can do; it may point too often."""
    found = _FIRST_LETTERS.search(rule.body)
    return found[1] + b"{%d}" % min(int(found[2]), _LONGEST_TAIL) if found else rb"[\w.:/-]{8}"
