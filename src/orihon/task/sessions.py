"""Tasks that stay open: each is shared inside a process, and released to other processes while it is not in use here.

A session that is given back keeps its view and its open files in memory, so that taking it again costs about as much as
one append. If another process wrote to it meanwhile, it is read again. At most `RESTING` sessions are kept like this.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from orihon.errors import LeaseHeld, StoreError, UsageError
from orihon.retry import Backoff
from orihon.stores.base import Store
from orihon.task.task import Task

RESTING = 32  # each has about ten open files
Place = tuple[str, str | None, str]  # the store, the user, the key


class Session:
    """One open task of this process, and how many hold it."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self.lock = threading.RLock()
        self.task: Task | None = None
        self.options: dict[str, Any] = {}  # that the last holder gave
        self.holds = 0
        self.is_dropped = False

    def take(self, open_task: Callable[[], Task]) -> bool:
        """Make the task ready to be written. Return False if it ended while others here hold it."""
        task = self.task
        if task is not None and task.writer.is_writable:
            return True
        if task is not None and self.holds:
            return False
        if task is not None and task.writer.retake():
            return True
        if task is not None:
            task.writer.release()
        self.task, self.options = open_task(), {}
        self.task.session = self
        return True

    def let_go(self) -> None:
        """Give up one hold. After the last one any process can take the task."""
        with self.lock:
            self.holds = max(0, self.holds - 1)
            if not self.holds:
                self._rest()
        _close_oldest()

    def drop(self) -> None:
        """Release the task and forget it."""
        with self.lock:
            self.is_dropped, self.holds = True, 0
            with _guard:
                if _sessions.get(self._place) is self:
                    del _sessions[self._place]
            if self.task is not None:
                self.task.writer.release()

    def _rest(self) -> None:
        if self.is_dropped or self.task is None:
            return
        if not self.task.writer.is_writable:  # it has ended, or another process has it
            self.drop()
            return
        try:
            self.task.writer.suspend()
        except StoreError as error:
            self.task.writer.logger.warning("The session could not be given back: %s", error)
            self.drop()


def hold(place: Place, open_task: Callable[[], Task], wait: float) -> Session:
    """Return the session of a place, opened if no one here has it; wait so many seconds for another process."""
    if isinstance(wait, bool) or not isinstance(wait, int | float) or not wait >= 0:
        raise UsageError(f"The wait for a session cannot be {wait!a:.40}.", hint="Give seconds, 0 or more.")
    backoff = Backoff(max_seconds=wait, first_seconds=0.005, longest_seconds=0.1)
    while True:
        with _guard:
            session = _sessions.setdefault(place, Session(place))
            _sessions.move_to_end(place)
        with session.lock:
            if session.is_dropped:
                continue
            with _dropped_on_error(session):
                if backoff.call(
                    lambda: session.take(open_task),  # noqa: B023 - it is called at once
                    should_retry=lambda error: isinstance(error, LeaseHeld),
                ):
                    session.holds += 1
                    return session
            session.drop()


def close_store(store: Store) -> None:
    """Give back all sessions of a store that is about to be closed."""
    for session in _all():
        if session.task is not None and session.task.log.store is store:
            session.drop()


def close_all() -> None:
    """Give back all sessions of this process."""
    for session in _all():
        session.drop()


@contextmanager
def _dropped_on_error(session: Session) -> Iterator[None]:
    try:
        yield
    except BaseException:
        if not session.holds:
            session.drop()
        raise


def _all() -> list[Session]:
    with _guard:
        return list(_sessions.values())


def _close_oldest() -> None:
    """Close the sessions that were given back longest ago, so that only so many files stay open."""
    resting = [session for session in _all() if not session.holds]
    for session in resting[:-RESTING]:
        if session.lock.acquire(blocking=False):  # else another thread is just taking it
            try:
                if not session.holds:
                    session.drop()
            finally:
                session.lock.release()


def _forget_all() -> None:
    global _guard  # noqa: PLW0603 - a thread of the parent may have held it
    _guard = threading.Lock()
    _sessions.clear()


_guard = threading.Lock()
_sessions: OrderedDict[Place, Session] = OrderedDict()
os.register_at_fork(after_in_child=_forget_all)
atexit.register(close_all)
