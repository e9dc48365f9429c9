"""Checks before every turn: pause or stop the task, and pass new comments on to the model."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from orihon.agent.loop import PauseRequested, StopRequested
from orihon.agent.signals import install_handler
from orihon.agent.sources import SeenComments, Source
from orihon.context.transcript import quoted
from orihon.errors import SourceError
from orihon.settings.schema import PauseResume, TaskStop
from orihon.stores.files import disk_errors, make_directory, open_file
from orihon.task.task import Task

log = logging.getLogger("orihon")

DRAINED = "drained"  # reason of a pause after which a worker continues
MAX_REASON_CHARS = 500
COMMENTS_SECONDS = 30.0  # code hosts limit requests
COMMENTS, ASSIGNED = "comments", "assigned"  # notes of a task

_NEW_COMMENT = "New comment by {author}, written while you worked. Take it into account:\n{body}"

Check = Callable[[Task], None]


def pause_files(settings: PauseResume, uuid: str) -> list[Path]:
    """Return the files that pause a task: the one for all tasks, and its own."""
    general = Path(settings.signal_file)
    return [general, general.with_name(f"{general.name}.{uuid}")] if settings.enabled else []


def find_pause_file(settings: PauseResume, uuid: str) -> Path | None:
    """Return the file that pauses a task, if there is one. Only the user removes it."""
    return next((path for path in pause_files(settings, uuid) if path.exists()), None)


def stop_file_path(settings: PauseResume, uuid: str) -> Path:
    """Return the path of the file that stops a task; it is removed when the task has stopped."""
    return Path(settings.signal_file).with_name(f"stop_signal.{uuid}")


def write_signal_file(path: Path, text: str = "") -> None:
    """Create a file that pauses or stops a task, readable by its owner only."""
    with disk_errors(f"{path} cannot be written"):
        if not path.parent.exists():
            make_directory(path.parent)  # with the mode of a store, which it may be
        with os.fdopen(open_file(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "w", encoding="utf-8") as file:
            file.write(text)


def make_stop_file_check(settings: PauseResume) -> Check:
    """Return a check that stops the task when its stop file exists."""

    def check(task: Task) -> None:
        if not settings.enabled:
            return
        try:
            reason = stop_file_path(settings, task.uuid).read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return
        raise StopRequested(reason[:MAX_REASON_CHARS].strip() or "by the user")

    return check


def make_pause_check(settings: PauseResume, reason: str = "") -> Check:
    """Return a check that pauses the task while a pause file exists."""
    throttle = _Throttle(turns=settings.check_interval)

    def check(task: Task) -> None:
        path = find_pause_file(settings, task.uuid) if throttle.is_due() else None
        if path is not None:
            raise PauseRequested(reason or f"{path} is there")

    return check


def make_stop_check(source: Source, settings: TaskStop, clock: Callable[[], float] = time.monotonic) -> Check:
    """Return a check that stops the task when the bot is no longer assigned; the log tells whether it was."""
    throttle = _Throttle(settings.check_interval, settings.min_check_interval_seconds, clock)

    def check(task: Task) -> None:
        if not (settings.enabled and throttle.is_due()):
            return
        was_assigned = True if task.log.view.state.notes.get(ASSIGNED) is True else None
        if not source.is_wanted(task.row.key, was_assigned=was_assigned):
            raise StopRequested("no longer assigned")

    return check


def make_comment_check(source: Source, clock: Callable[[], float] = time.monotonic) -> Check:
    """Return a check that adds new and changed comments as messages, and notes which were read."""
    throttle = _Throttle(1, COMMENTS_SECONDS, clock)

    def check(task: Task) -> None:
        if not throttle.is_due():
            return
        seen = SeenComments(task.log.view.state.notes.get(COMMENTS))
        try:
            comments = source.list_comments(task.row.key, seen.since or task.row.created_at)
        except SourceError as error:
            log.warning("New comments on %s are unknown, so the task continues: %s", task.row.key, error)
            return
        new = seen.take_new(comments)
        for comment in new:
            text = _NEW_COMMENT.format(author=comment.author, body=quoted(comment.body))
            task.add("user", text, key=f"comment:{comment.id}:{comment.updated_at}")
        if new:
            task.writer.event("note", **{COMMENTS: seen.state()})

    return check


class _Throttle:
    """Is due at the first turn, then at every so many turns, but not before so many seconds have passed."""

    def __init__(self, turns: int, seconds: float = 0.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._turns, self._seconds, self._clock = max(1, turns), seconds, clock
        self._turn, self._next = -1, float("-inf")

    def is_due(self) -> bool:
        self._turn += 1
        if self._turn % self._turns or self._clock() < self._next:
            return False
        self._next = self._clock() + self._seconds
        return True


class Drain:
    """A check that pauses the task at the next turn after SIGTERM; a second signal ends the process at once."""

    def __init__(self) -> None:
        self.requested = False

    def __call__(self, _: Task) -> None:
        if self.requested:
            raise PauseRequested(DRAINED)

    def listen(self) -> None:
        """Handle SIGTERM, by which a worker pauses its children, and SIGINT from now on."""
        signal.signal(signal.SIGTERM, self._handle)
        install_handler(self._handle, signal.SIGINT)

    def _handle(self, number: int, _: object) -> None:
        if self.requested:
            sys.exit(128 + number)
        self.requested = True
