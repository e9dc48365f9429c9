"""The one comment that shows how far a task is: written once, edited in place, never a reason to stop.

It is edited at most once in `min_seconds`, and less often while the source fails; what came in between is in the next
edit. The end is always written, with a few attempts. Nothing here raises what the source raises: it is logged. Where
somebody deleted the comment, a new one is made. `state()` is what a resumed task needs to go on with the same comment.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from orihon import codec
from orihon.agent.sources.base import Source
from orihon.agent.sources.issue_prompt import seen, shortened, word
from orihon.errors import SourceError
from orihon.ingest import shown
from orihon.settings.schema import ProgressComment
from orihon.task_key import TaskKey

log = logging.getLogger("orihon")

MIN_SECONDS = 15.0
MAX_BACKOFF_SECONDS = 300.0
MAX_CHARS = 50_000
MAX_SAID_CHARS = 4_000
MAX_STEPS = 100
LAST_PAUSES = (2.0, 4.0, 8.0)
DELETED = frozenset({404, 410})


class Report(Struct, frozen=True, kw_only=True):
    """How far a task is."""

    title: str = ""
    status: str = ""
    phases: tuple[str, ...] = ()
    phase: str = ""
    said: str = ""
    done: int = 0
    total: int = 0
    calls: int = 0
    steps: tuple[tuple[str, bool], ...] = ()


class Progress:
    """Shows reports in one comment."""

    def __init__(
        self,
        source: Source,
        key: TaskKey,
        settings: ProgressComment | None = None,
        *,
        state: Mapping[str, Any] | None = None,
        min_seconds: float = MIN_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.source, self.key, self.settings = source, key, settings or ProgressComment()
        self.min_seconds, self._clock, self._sleep = min_seconds, clock, sleep
        self.report = Report()
        self.comment_id: str = (state or {}).get("comment_id", "")
        self._entries = deque[str]((state or {}).get("entries", ()), maxlen=self.settings.max_history_entries)
        self._shown = ""
        self._next = clock()
        self._failures = 0

    def show(self, report: Report | None = None, entry: str = "") -> None:
        """Take a report and a line of history; the comment follows when it may."""
        self._take(report, entry)
        if self._clock() >= self._next:
            self._write()

    def finish(self, report: Report | None = None, entry: str = "") -> None:
        """Write the end, whenever the last edit was."""
        self._take(report, entry)
        for pause in (*LAST_PAUSES, 0.0):
            error = self._write()
            if error is None or not getattr(error, "retryable", False) or not pause:
                return
            self._sleep(pause)

    def state(self) -> dict[str, Any]:
        """What a resumed task needs."""
        return {"comment_id": self.comment_id, "entries": list(self._entries)}

    def _take(self, report: Report | None, entry: str) -> None:
        self.report = report or self.report
        if entry.strip():
            self._entries.append(f"`{codec.now()[11:19]}` {_line(entry)}")

    def _write(self) -> Exception | None:
        """Bring the comment up to date; what went wrong is logged and given back."""
        if not self.settings.enabled:
            return None
        text = rendered(self.report, list(self._entries))
        if text == self._shown:
            return None
        try:
            self._put(text)
        except Exception as error:  # noqa: BLE001 - whatever a source does, the run goes on
            self._failures += 1
            self._next = self._clock() + min(self.min_seconds * 2**self._failures, MAX_BACKOFF_SECONDS)
            log.warning("The progress of %s is not shown: %s", self.key, error)
            return error
        self._shown, self._failures, self._next = text, 0, self._clock() + self.min_seconds
        return None

    def _put(self, text: str) -> None:
        if self.comment_id:
            try:
                self.source.edit(self.key, self.comment_id, text)
            except SourceError as error:
                if error.status not in DELETED:
                    raise
                self.comment_id = ""
        if not self.comment_id:
            self.comment_id = self.source.say(self.key, text)


def rendered(report: Report, entries: list[str]) -> str:
    """The text of the comment; of a long history the oldest lines go first."""
    counts = [
        f"{report.done} of {report.total} actions" if report.total else "",
        f"{report.calls} model calls" if report.calls else "",
    ]
    status = " · ".join(filter(None, [f"**{_line(report.status)}**" if report.status else "", *counts]))
    said = "\n".join(
        f"> {line}" for line in shortened(seen(shown(report.said)).strip(), MAX_SAID_CHARS).split("\n") if line
    )
    steps = "\n".join(f"- [{'x' if done else ' '}] {_line(step)}" for step, done in report.steps[:MAX_STEPS])
    heading = f"## {_line(report.title)}" if report.title else ""
    head = "\n\n".join(filter(None, [heading, status, _phases(report), said, steps]))
    kept, room = [], MAX_CHARS - len(head)
    for entry in reversed(entries):
        room -= len(entry) + 3
        if room < 0:
            break
        kept.append(f"- {entry}")
    if not kept:
        return head
    history = "\n".join(reversed(kept))
    return f"{head}\n\n<details><summary>History ({len(kept)})</summary>\n\n{history}\n\n</details>".lstrip()


def _phases(report: Report) -> str:
    """`✅ planning → ▶️ execution → verification`."""
    if report.phase not in report.phases:
        return ""
    at = report.phases.index(report.phase)
    marks = [("✅ " if number < at else "▶️ " if number == at else "") for number in range(len(report.phases))]
    return " → ".join(mark + _line(phase) for mark, phase in zip(marks, report.phases, strict=True))


def _line(text: str) -> str:
    """One line that cannot end the section it stands in, masked before it is cut."""
    return word(shown(text)).replace("<", "&lt;")
