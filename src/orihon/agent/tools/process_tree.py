"""End processes with everything they started, also what left their group.

Whoever is started gets a variable in its environment, and so does whatever it starts. On Linux the processes that
carry it are found in /proc, with their children; elsewhere only the process group is ended. What clears its
environment, leaves the session and lets its parents die is not found.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

MARKER = "ORIHON_SHELL"
GRACE_SECONDS = 1.0  # between the request to end and the end
ROUNDS = 2000
QUIET_ROUNDS = 8  # looks that find nobody new, before we believe it
_PAUSE = 0.005
_PROC = Path("/proc")


def end(marker: bytes, session: int | None = None, *, grace: float = GRACE_SECONDS) -> None:
    """Ask all that carry the marker, or are of the session, to end; then end them."""
    if not _PROC.is_dir():
        _end_group(session, grace)
        return
    hunt = _Hunt(marker, session)
    asked: set[int] = set()
    deadline = time.monotonic() + grace
    while time.monotonic() < deadline:
        alive = False
        for pid in hunt.members():
            alive = True
            if pid not in asked:
                asked.add(pid)
                _signal(pid, signal.SIGTERM)
        if not alive:
            break
        time.sleep(_PAUSE)
    # Whoever is stopped can start nothing more, so one that multiplies is caught in the end.
    stopped = _each_once(hunt, signal.SIGSTOP)
    for pid in stopped:
        _signal(pid, signal.SIGKILL)
    deadline = time.monotonic() + grace
    while time.monotonic() < deadline and any(True for _ in hunt.members()):
        time.sleep(_PAUSE)


def _each_once(hunt: _Hunt, number: int) -> set[int]:
    """Send a signal to every member, until there are no new ones."""
    reached: set[int] = set()
    quiet = 0
    for _ in range(ROUNDS):
        before = len(reached)
        for pid in hunt.members():
            if pid not in reached:
                reached.add(pid)
                _signal(pid, number)
        quiet = quiet + 1 if len(reached) == before else 0
        if quiet >= QUIET_ROUNDS:
            break
        time.sleep(_PAUSE)
    return reached


class _Seen(NamedTuple):
    parent: int
    session: int
    start: bytes


class _Hunt:
    """Looks for the members of a family again and again; who once was found to be a stranger is not looked at twice."""

    def __init__(self, marker: bytes, session: int | None) -> None:
        self._marker, self._session = marker, session
        self._mine: dict[int, bytes] = {}  # with the time of their start, because numbers are used again
        self._strangers = {os.getpid()}

    def members(self) -> Iterator[int]:
        """Who is alive and belongs, the newest first and each at once, because it may be gone the moment after."""
        doubtful: dict[int, _Seen] = {}
        for pid in sorted((int(name) for name in os.listdir(_PROC) if name.isdecimal()), reverse=True):
            if pid in self._strangers or (seen := _look(pid)) is None:
                continue
            known = self._mine.get(pid) == seen.start
            if known or seen.session == self._session or _carries(pid, self._marker):
                self._mine[pid] = seen.start
                yield pid
            else:
                doubtful[pid] = seen
        while found := {pid: seen for pid, seen in doubtful.items() if seen.parent in self._mine}:
            self._mine |= {pid: seen.start for pid, seen in found.items()}
            doubtful = {pid: seen for pid, seen in doubtful.items() if pid not in found}
            yield from found
        # a child of our own may still be on its way to its program and its environment
        self._strangers |= {pid for pid, seen in doubtful.items() if seen.parent != os.getpid()}


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


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _look(pid: int) -> _Seen | None:
    """A process that is alive."""
    try:
        # the name of the program may hold anything, so what counts begins behind the last bracket
        fields = (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
        state, parent, session, start = fields[0], int(fields[1]), int(fields[3]), fields[19]
    except (OSError, ValueError, IndexError):
        return None
    return None if state in {b"Z", b"X"} else _Seen(parent, session, start)


def _carries(pid: int, marker: bytes) -> bool:
    try:
        environ = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return False
    return any(item.startswith(marker) for item in environ.split(b"\0"))
