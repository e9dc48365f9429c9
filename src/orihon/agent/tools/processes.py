"""End processes with everything they started, also what left their group.

Whoever is started gets a variable in its environment, and so does whatever it starts. On Linux the processes that
carry it are found in /proc, with their children; elsewhere only the process group is ended. What clears its
environment, leaves the session and lets its parents die is not found.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

MARKER = "ORIHON_SHELL"
GRACE_SECONDS = 1.0  # between the request to end and the end
ROUNDS = 200
_PAUSE = 0.02
_PROC = Path("/proc")


class _Seen(NamedTuple):
    pid: int
    parent: int
    session: int


def end(marker: bytes, session: int | None = None, *, grace: float = GRACE_SECONDS) -> None:
    """Ask all that carry the marker, or are of the session, to end; then end them."""
    if not _PROC.is_dir():
        _end_group(session, grace)
        return
    if _signal(_members(marker, session), signal.SIGTERM):
        deadline = time.monotonic() + grace
        while time.monotonic() < deadline and _members(marker, session):
            time.sleep(_PAUSE)
    for _ in range(ROUNDS):
        # Whoever is stopped can start nothing more, so one that multiplies is caught in the end.
        stopped: set[int] = set()
        while new := _members(marker, session, stopped) - stopped:
            _signal(new, signal.SIGSTOP)
            stopped |= new
        if not stopped:
            return
        _signal(stopped, signal.SIGKILL)
        time.sleep(_PAUSE)


def _end_group(session: int | None, grace: float) -> None:
    if session is None:
        return
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(session, signal.SIGTERM)
        deadline = time.monotonic() + grace
        while time.monotonic() < deadline:
            os.killpg(session, 0)
            time.sleep(_PAUSE)
        os.killpg(session, signal.SIGKILL)


def _signal(pids: set[int], number: int) -> bool:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
    return bool(pids)


def _members(marker: bytes, session: int | None, known: set[int] | None = None) -> set[int]:
    """Who is alive and belongs: of the session, with the marker, or a child of one that belongs."""
    seen = {one.pid: one for one in _alive()}
    mine = {one.pid for one in seen.values() if one.session == session or _carries(one.pid, marker)}
    mine |= (known or set()) & seen.keys()
    grown = True
    while grown:
        more = {one.pid for one in seen.values() if one.parent in mine} - mine
        mine |= more
        grown = bool(more)
    return mine - {os.getpid()}


def _alive() -> list[_Seen]:
    found = []
    for name in os.listdir(_PROC):
        if name.isdecimal():
            with suppress(OSError, ValueError, IndexError):
                # the name of the program may hold anything, so what counts begins behind the last bracket
                state, parent, _, session = (_PROC / name / "stat").read_bytes().rpartition(b")")[2].split()[:4]
                if state not in {b"Z", b"X"}:
                    found.append(_Seen(int(name), int(parent), int(session)))
    return found


def _carries(pid: int, marker: bytes) -> bool:
    try:
        environ = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return False
    return any(item.startswith(marker) for item in environ.split(b"\0"))
