"""What is asked before every turn: should the task pause, should it stop, did somebody say something new?"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from orihon import codec
from orihon.agent.loop import PauseAsked, StopAsked
from orihon.context.transcript import quoted
from orihon.keys import TaskKey
from orihon.settings import PauseResume, TaskStop
from orihon.task.task import Task

DRAINED = "drained"  # why a task paused that a worker takes up again
COMMENTS_SECONDS = 30.0  # forges count requests
SINCE = "comments_since"

_NEW_COMMENT = "New comment by {author}, written while you worked. Take it into account:\n{body}"


class Forge(Protocol):
    """The part of a source that is asked while a task runs."""

    def new_comments(self, key: TaskKey, since: str) -> list[Any]: ...

    def is_wanted(self, key: TaskKey) -> bool: ...


def pause_check(settings: PauseResume) -> Callable[[Task], None]:
    """Pause as long as a file is there; only people remove it."""
    signal, turns = Path(settings.signal_file), _every(settings.check_interval)

    def check(_: Task) -> None:
        if settings.enabled and turns() and signal.exists():
            raise PauseAsked(f"{signal} is there")

    return check


def stop_check(
    source: Forge, settings: TaskStop, clock: Callable[[], float] = time.monotonic
) -> Callable[[Task], None]:
    """Stop when the bot was taken off the assignees."""
    turns, seconds = _every(settings.check_interval), _seldom(settings.min_check_interval_seconds, clock)

    def check(task: Task) -> None:
        if settings.enabled and turns() and seconds() and not source.is_wanted(task.row.key):
            raise StopAsked("no longer assigned")

    return check


def comment_check(source: Forge, clock: Callable[[], float] = time.monotonic) -> Callable[[Task], None]:
    """New comments become messages; how far they were read is kept with the task."""
    seconds = _seldom(COMMENTS_SECONDS, clock)

    def check(task: Task) -> None:
        if not seconds():
            return
        since = str(task.history.view.state.notes.get(SINCE) or task.row.created_at)
        comments = source.new_comments(task.row.key, since)
        for comment in comments:
            said = _NEW_COMMENT.format(author=comment.author, body=quoted(comment.body))
            task.add("user", said, key=f"comment:{comment.id}:{comment.updated_at}")
        if comments:
            newest = max(str(comment.updated_at or comment.created_at or codec.now()) for comment in comments)
            task.event("note", **{SINCE: newest})

    return check


def _every(count: int) -> Callable[[], bool]:
    """True at the first call, and then at every so many."""
    calls = -1

    def is_due() -> bool:
        nonlocal calls
        calls += 1
        return calls % max(1, count) == 0

    return is_due


def _seldom(seconds: float, clock: Callable[[], float]) -> Callable[[], bool]:
    """True when that much time has gone by since it was true last."""
    last: float | None = None

    def is_due() -> bool:
        nonlocal last
        now = clock()
        if last is not None and now - last < seconds:
            return False
        last = now
        return True

    return is_due


class Drain:
    """Pause at the next turn once SIGTERM was heard; at once if it comes again."""

    def __init__(self) -> None:
        self.asked = False

    def __call__(self, _: Task) -> None:
        if self.asked:
            raise PauseAsked(DRAINED)

    def listen(self) -> None:
        """Hear SIGTERM and SIGINT from now on."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._hear)

    def _hear(self, number: int, _: object) -> None:
        if self.asked:
            sys.exit(128 + number)
        self.asked = True
