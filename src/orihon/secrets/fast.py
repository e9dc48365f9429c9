"""The same gate with Hyperscan, for those who installed `orihon[fast]`: all passes in one.

Hyperscan sees the beginnings and shapes themselves, so ordinary runs of letters never reach Python. Where it sees
one, the runs around it are cut exactly as the pure gate cuts them, and the finders decide as always.
"""

from __future__ import annotations

import re
from functools import cache
from threading import Lock
from typing import Any

from orihon.secrets.gate import BUNDLER, IN_RUN, STEMS, Hits, long_runs
from orihon.secrets.rules import SHAPES, TABLE, VENDORS

_STEM, _AT, _TOKEN = range(3)
_BEFORE, _BEHIND = 200, 100  # how far from what Hyperscan saw a run can lie that the finders need
_RUN = re.compile(rb"[\w-]*")
_scratch = Lock()  # a database has one scratch space; two threads must not scan with it at once


def hits(data: bytes) -> Hits:
    """Find the hits with Hyperscan."""
    found: tuple[list[int], list[int], list[int]] = ([], [], [])

    def note(kind: int, _start: int, end: int, _flags: int, _context: object) -> None:
        found[kind % 3].append(end - kind // 3)

    with _scratch:
        _database().scan(data, match_event_handler=note)
    stems, ats, tokens = found
    return Hits(sorted(stems), _runs_near(data, sorted(tokens)), sorted(ats))


def _runs_near(data: bytes, places: list[int]) -> list[tuple[int, int]]:
    """Cut the runs around some places, each run whole and once."""
    runs: list[tuple[int, int]] = []
    done = 0
    for place in places:
        if place + _BEHIND <= done:
            continue
        low = max(done, place - _BEFORE)
        low = done + len(data[done:low].rstrip(IN_RUN))
        high = _RUN.match(data, min(place + _BEHIND, len(data))).end()  # type: ignore[union-attr]
        runs += long_runs(data, low, high)
        done = high
    return runs


@cache
def _database() -> Any:
    """Compile once in a process and not before the first text; it takes a tenth of a second."""
    import hyperscan  # noqa: PLC0415 - an optional library is loaded when it is used

    caseless, dotall = hyperscan.HS_FLAG_CASELESS, hyperscan.HS_FLAG_DOTALL
    rows = [(stem, _STEM + 3 * len(stem), caseless) for stem in STEMS]
    rows += [(BUNDLER, _STEM + 3 * len(BUNDLER), 0), (rb"@", _AT + 3, 0), (rb"%40", _AT + 9, 0)]
    rows += [(pattern, _TOKEN, dotall) for pattern in _beginnings() + _shapes()]
    rows += [(b"(?:" + VENDORS.encode() + rb")[\"']?\s*[:=]", _TOKEN, caseless)]
    expressions, ids, flags = zip(*rows, strict=True)
    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    database.compile(expressions=list(expressions), ids=list(ids), flags=list(flags), elements=len(rows))
    return database


def _beginnings() -> list[bytes]:
    """The beginnings with no word about what stands before them, which would make compiling ten times as long."""
    starts = {start for line in TABLE.strip().splitlines() for start in line.split()[1:-1]}
    return [re.escape(start).encode() + rb"[\w.=~:+/\\-]{8}" for start in sorted(starts)]


def _shapes() -> list[bytes]:
    """The shapes without what looks ahead, which Hyperscan cannot do; it may point too often."""
    bodies = (line.split(maxsplit=1)[1] for line in SHAPES.strip().splitlines())
    return [re.sub(r"\(\?![^)]*\)", "", re.sub(r"\{(\d+),\d*\}$", r"{\1}", body)).encode() for body in bodies]
