"""How far a long work has come."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct


class Tally(Struct):
    """How much was looked at so far; `tell` hears of it now and then."""

    tasks: int = 0
    records: int = 0
    size_bytes: int = 0
    tell: Callable[[Tally], None] | None = None

    def add(self, *, tasks: int = 0, records: int = 0, size_bytes: int = 0) -> None:
        """Count, and say so."""
        self.tasks, self.records, self.size_bytes = (
            self.tasks + tasks,
            self.records + records,
            self.size_bytes + size_bytes,
        )
        if self.tell is not None:
            self.tell(self)

    def __str__(self) -> str:
        return f"{counted(self.tasks, 'task')}, {counted(self.records, 'record')}, {self.size_bytes:,} bytes"


def counted(number: int, noun: str) -> str:
    """`1 task`, `1,234 tasks`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
