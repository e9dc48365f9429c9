"""What long operations report: how far they are, and what failed. Showing it is up to the caller."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

from msgspec import Struct, field

from orihon.errors import StoreError, UsageError

MAX_SENTENCES = 1000


class ProgressCounter(Struct):
    """How much an operation has processed so far. Each `add` calls `on_progress`."""

    on_progress: OnProgress = None
    total: int | None = None  # how much there is to do; None if that is unknown
    unit: Literal["tasks", "size_bytes"] = "tasks"  # of the total
    tasks: int = 0
    records: int = 0
    size_bytes: int = 0
    started: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """The time since the operation began."""
        return time.monotonic() - self.started

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


@contextmanager
def collect_failure(failures: list[str], uuid: str) -> Iterator[None]:
    """Turn an error about one task into a sentence, so that it does not stop the others."""
    try:
        yield
    except (StoreError, UsageError) as error:
        add_sentence(failures, f"Task {uuid}: {error.message}")


def add_sentence(sentences: list[str], sentence: str) -> None:
    """Add a sentence to a list, up to a limit."""
    if len(sentences) < MAX_SENTENCES:
        sentences.append(sentence)
