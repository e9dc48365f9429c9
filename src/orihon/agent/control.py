"""What is asked before every turn: should the task pause, should it stop, did somebody say something new?"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from orihon.agent.loop import PauseRequested, StopRequested
from orihon.agent.signals import install_handler
from orihon.agent.sources.base import Arrivals
from orihon.context.transcript import quoted
from orihon.errors import SourceError
from orihon.settings.schema import PauseResume, TaskStop
from orihon.stores.files import disk_errors, make_directory, open_file
from orihon.task.task import Task
from orihon.task_key import TaskKey

log = logging.getLogger("orihon")

DRAINED = "drained"  # why a task paused that a worker takes up again
MAX_REASON = 500  # characters of why somebody wants a task to stop
COMMENTS_SECONDS = 30.0  # forges count requests
COMMENTS, ASSIGNED = "comments", "assigned"  # notes of a task

_NEW_COMMENT = "New comment by {author}, written while you worked. Take it into account:\n{body}"


class Forge(Protocol):
    """The part of a source that is asked while a task runs."""

    def new_comments(self, key: TaskKey, since: str) -> list[Any]: ...

    def is_wanted(self, key: TaskKey, *, was_assigned: bool | None = None) -> bool: ...


def pause_files(settings: PauseResume, uuid: str) -> list[Path]:
    """The files that ask a task to pause: the one for all, and its own beside it."""
    everybody = Path(settings.signal_file)
    return [everybody, everybody.with_name(f"{everybody.name}.{uuid}")] if settings.enabled else []


def find_pause_file(settings: PauseResume, uuid: str) -> Path | None:
    """The file that asks a task to pause, if there is one; only people remove it."""
    return next((path for path in pause_files(settings, uuid) if path.exists()), None)


def stop_file_path(settings: PauseResume, uuid: str) -> Path:
    """The file that asks a task to stop; it goes when the task has stopped."""
    return Path(settings.signal_file).with_name(f"stop_signal.{uuid}")


def write_signal_file(path: Path, text: str = "") -> None:
    """Create a file that asks a task to pause or to stop, for its owner alone."""
    with disk_errors(f"{path} cannot be written"):
        if not path.parent.exists():
            make_directory(path.parent)  # it may be that of a store
        with os.fdopen(open_file(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "w", encoding="utf-8") as file:
            file.write(text)


def make_stop_file_check(settings: PauseResume) -> Callable[[Task], None]:
    """Stop when the file asks for it."""

    def check(task: Task) -> None:
        if not settings.enabled:
            return
        try:
            reason = stop_file_path(settings, task.uuid).read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return
        raise StopRequested(reason[:MAX_REASON].strip() or "by the user")

    return check


def make_pause_check(settings: PauseResume, reason: str = "") -> Callable[[Task], None]:
    """Pause as long as a file asks for it."""
    turns = _every(settings.check_interval)

    def check(task: Task) -> None:
        found = find_pause_file(settings, task.uuid) if turns() else None
        if found is not None:
            raise PauseRequested(reason or f"{found} is there")

    return check


def make_stop_check(
    source: Forge, settings: TaskStop, clock: Callable[[], float] = time.monotonic
) -> Callable[[Task], None]:
    """Stop when the bot was taken off the assignees; that it was one of them is known from the log."""
    turns, seconds = _every(settings.check_interval), _seldom(settings.min_check_interval_seconds, clock)

    def check(task: Task) -> None:
        if not (settings.enabled and turns() and seconds()):
            return
        was_assigned = True if task.history.view.state.notes.get(ASSIGNED) is True else None
        if not source.is_wanted(task.row.key, was_assigned=was_assigned):
            raise StopRequested("no longer assigned")

    return check


def make_comment_check(source: Forge, clock: Callable[[], float] = time.monotonic) -> Callable[[Task], None]:
    """New and changed comments become messages; which were read is kept with the task."""
    seconds = _seldom(COMMENTS_SECONDS, clock)

    def check(task: Task) -> None:
        if not seconds():
            return
        arrivals = Arrivals(task.history.view.state.notes.get(COMMENTS))
        try:
            comments = source.new_comments(task.row.key, arrivals.since or task.row.created_at)
        except SourceError as error:
            log.warning("New comments at %s are not known now, so it goes on: %s", task.row.key, error)
            return
        found = arrivals.fresh(comments)
        for comment in found:
            said = _NEW_COMMENT.format(author=comment.author, body=quoted(comment.body))
            task.add("user", said, key=f"comment:{comment.id}:{comment.updated_at}")
        if found:
            task.event("note", **{COMMENTS: arrivals.state()})

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
            raise PauseRequested(DRAINED)

    def listen(self) -> None:
        """Hear SIGTERM, by which a worker asks its children to pause, and SIGINT from now on."""
        signal.signal(signal.SIGTERM, self._hear)
        install_handler(self._hear, signal.SIGINT)

    def _hear(self, number: int, _: object) -> None:
        if self.asked:
            sys.exit(128 + number)
        self.asked = True
