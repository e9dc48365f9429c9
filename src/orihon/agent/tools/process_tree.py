"""End a command with every process that it started, including those that left its session.

A command gets a marker in its environment, which its children inherit. On Linux, members are the processes with the
marker, those of the session, and their children; elsewhere only the process group is ended. A process that clears its
environment, leaves the session and outlives its parent is not found. docs/adr/0012 explains why this is not psutil.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

GRACE_SECONDS = 1.0  # between SIGTERM and SIGKILL
MAX_ROUNDS = 2000
QUIET_ROUNDS = 8  # scans without a new member before the tree counts as stopped
_PAUSE = 0.005
_PROC = Path("/proc")


class _Process(NamedTuple):
    pid: int
    start: bytes  # a pid is used again, with another start

    def send(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(self.pid, number)


def end_processes(marker: bytes, session: int | None = None, *, grace_seconds: float = GRACE_SECONDS) -> None:
    """End all processes of a session, or with an environment variable that starts with `marker`."""
    if not _PROC.is_dir():
        _end_group(session, grace_seconds)
        return
    tree = _ProcessTree(marker, session)
    asked: set[_Process] = set()
    deadline = time.monotonic() + grace_seconds
    while time.monotonic() < deadline and _send_to_new(tree, asked, signal.SIGTERM):
        time.sleep(_PAUSE)
    # A stopped process can start nothing, so that even processes that keep forking are caught.
    stopped: set[_Process] = set()
    quiet = 0
    for _ in range(MAX_ROUNDS):
        before = len(stopped)
        _send_to_new(tree, stopped, signal.SIGSTOP)
        quiet = quiet + 1 if len(stopped) == before else 0
        if quiet >= QUIET_ROUNDS:
            break
        time.sleep(_PAUSE)
    for process in stopped:
        process.send(signal.SIGKILL)
    deadline = time.monotonic() + grace_seconds
    while time.monotonic() < deadline and any(True for _ in tree.iter_members()):
        time.sleep(_PAUSE)


def _send_to_new(tree: _ProcessTree, reached: set[_Process], number: signal.Signals) -> bool:
    """Send a signal to the members that have not got it yet. Return whether there are members."""
    is_alive = False
    for process in tree.iter_members():
        is_alive = True
        if process not in reached:
            reached.add(process)
            process.send(number)
    return is_alive


class _ProcessTree:
    """Finds the living members of a tree, scan by scan. A process that is no member is examined once."""

    def __init__(self, marker: bytes, session: int | None) -> None:
        self._marker, self._session = marker, session
        self._members: set[_Process] = set()
        self._others = {os.getpid()}

    def iter_members(self) -> Iterator[_Process]:
        """Yield each member as soon as it is found, the newest first: it may be gone a moment later."""
        candidates: dict[_Process, int] = {}
        for pid in sorted((int(name) for name in os.listdir(_PROC) if name.isdecimal()), reverse=True):
            try:
                if pid in self._others:
                    continue
                process, parent, session = _read_stat(pid)
            except (OSError, ValueError, IndexError):
                continue
            if process in self._members or session == self._session or self._is_marked(pid):
                self._members.add(process)
                yield process
            else:
                candidates[process] = parent
        pids = {process.pid for process in self._members}
        while children := {process for process, parent in candidates.items() if parent in pids}:
            self._members |= children
            pids = {process.pid for process in children}
            candidates = {process: parent for process, parent in candidates.items() if process not in children}
            yield from children
        # a child of this process may not have its environment yet
        self._others |= {process.pid for process, parent in candidates.items() if parent != os.getpid()}

    def _is_marked(self, pid: int) -> bool:
        with suppress(OSError):
            return any(
                item.startswith(self._marker) for item in (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
            )
        return False


def _read_stat(pid: int) -> tuple[_Process, int, int]:
    """Return a living process, its parent and its session. Raise ProcessLookupError for a dead one."""
    # the program's name may contain anything, so the fields count from the last bracket
    state, parent, _, session, *rest = (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
    if state in {b"Z", b"X"}:
        raise ProcessLookupError
    return _Process(pid, rest[15]), int(parent), int(session)


def _end_group(session: int | None, grace_seconds: float) -> None:
    if session is None:
        return
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(session, signal.SIGTERM)
        deadline = time.monotonic() + grace_seconds
        while time.monotonic() < deadline:
            os.killpg(session, 0)
            time.sleep(_PAUSE)
        os.killpg(session, signal.SIGKILL)
