"""Counts for the progress line of a long operation. Printing it is up to the caller."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct


class ProgressCounter(Struct):
    """How much an operation has processed so far. Each `add` calls `on_progress`."""

    on_progress: OnProgress = None
    tasks: int = 0
    records: int = 0
    size_bytes: int = 0

    def add(self, *, tasks: int = 0, records: int = 0, size_bytes: int = 0) -> None:
        """Increase the counts and report them."""
        self.tasks += tasks
        self.records += records
        self.size_bytes += size_bytes
        if self.on_progress is not None:
            self.on_progress(self)

    def __str__(self) -> str:
        return f"{format_count(self.tasks, 'task')}, {format_count(self.records, 'record')}, {self.size_bytes:,} bytes"


OnProgress = Callable[[ProgressCounter], None] | None


def format_count(number: int, noun: str) -> str:
    """Return `1 task` or `1,234 tasks`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
