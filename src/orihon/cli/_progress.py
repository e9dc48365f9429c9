"""What a command shows while it works: bars with rate and remaining time, and a line that changes.

Both are shown on standard error, on a terminal only, and disappear before other output.
"""

from __future__ import annotations

import time
from typing import Self

from rich.live import Live
from rich.progress import BarColumn, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress
from rich.spinner import Spinner
from rich.text import Text

from orihon.cli._format import format_size
from orihon.cli._output import make_console, truncate
from orihon.ops.progress import OnProgress, ProgressCounter, format_count
from orihon.terminal import escape_line

FIRST_SECONDS = 1.0  # before a bar appears
REFRESH_SECONDS = 0.1


class Progress:
    """A bar or a line at the bottom of the terminal."""

    def __init__(self) -> None:
        self._console = make_console(err=True)
        self._bar: RichProgress | None = None
        self._line: Live | None = None
        self._spinner = Spinner("dots")
        self._next_at = 0.0

    def show(self, what: str) -> OnProgress:
        """Return a callback that shows how far an operation is. It begins after a second."""
        self._next_at = time.monotonic() + FIRST_SECONDS

        def update(counter: ProgressCounter) -> None:
            if time.monotonic() >= self._next_at:
                self._next_at = time.monotonic() + REFRESH_SECONDS
                self._update_bar(what, counter)

        return update

    def _update_bar(self, what: str, counter: ProgressCounter) -> None:
        done = counter.tasks if counter.unit == "tasks" else counter.size_bytes
        if self._bar is None:
            columns = (TextColumn("{task.description}"), BarColumn(20), _Amount(), TimeRemainingColumn(compact=True))
            self._bar = RichProgress(*columns, console=self._console, transient=True, auto_refresh=False)
            self._bar.add_task(what, counter=counter)
            self._bar.start()
        (task,) = self._bar.task_ids
        self._bar.update(task, completed=done, total=counter.total, counter=counter)
        self._bar.refresh()

    def show_line(self, text: str) -> None:
        """Show a line and a spinner. Another call replaces the line."""
        self._spinner.update(text=Text(truncate(escape_line(text), self._console.width - 3)))
        if self._line is None:
            self._line = Live(self._spinner, console=self._console, transient=True)
            self._line.start(refresh=True)
        else:
            self._line.refresh()

    def clear(self) -> None:
        """Remove the bar or the line before other output."""
        for shown in (self._bar, self._line):
            if shown is not None:
                shown.stop()
        self._bar = self._line = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()


class _Amount(ProgressColumn):
    """How much is done, and how much of it in a second."""

    def render(self, task: Task) -> Text:
        counter: ProgressCounter = task.fields["counter"]
        seconds = max(counter.seconds, 0.001)
        parts = []
        if counter.tasks and counter.unit == "tasks":
            total = "" if counter.total is None else f" of {counter.total:,}"
            parts = [f"{counter.tasks:,}{total} tasks", f"{counter.tasks / seconds:,.0f} tasks/s"]
        elif counter.records:
            parts = [format_count(counter.records, "record"), f"{counter.records / seconds:,.0f} records/s"]
        parts += [format_size(counter.size_bytes)] if counter.size_bytes else []
        return Text(" · ".join(parts))
