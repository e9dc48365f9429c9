"""Everything that commands print goes through this module, which escapes characters that control a terminal.

`say` prints text of one or more lines, `say_line` one line that contains values from outside, `say_json` JSON for
programs. Colours come from `Styled` only. A test checks that no command prints in another way.
"""

from __future__ import annotations

import logging
import shutil
import sys
import time
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import click

from orihon.cli._format import format_size
from orihon.terminal import encode_json_line, escape, escape_line, truncate

if TYPE_CHECKING:
    from orihon.ops.progress import ProgressCounter

PROGRESS_SECONDS = 0.1  # between two changes of the progress line


class Styled(NamedTuple):
    """A text in a colour."""

    text: str
    colour: str | None = None


def say(*pieces: str | Styled, err: bool = False, nl: bool = True) -> None:
    """Print text of one or more lines."""
    click.echo("".join(map(_render, pieces)), err=err, nl=nl)


def say_line(*pieces: str | Styled, err: bool = False) -> None:
    """Print one line. Newlines in the text become blanks."""
    flattened = (
        escape_line(piece) if isinstance(piece, str) else piece._replace(text=escape_line(piece.text))
        for piece in pieces
    )
    say(*flattened, err=err)


def say_json(value: Any) -> None:
    """Print a value, or bytes that already are JSON, on one line."""
    click.echo(_mask(encode_json_line(value)))


def say_notes(notes: list[str]) -> None:
    """Print notes to standard error, one per line."""
    for note in notes:
        say_line(f"note     {note}", err=True)


def say_problems(problems: list[str]) -> None:
    """Print problems to standard error, one per line."""
    for problem in problems:
        say_line(f"problem  {problem}", err=True)


def say_error(message: str, hint: str = "") -> None:
    """Print an error and its hint to standard error."""
    say(f"orihon: {message}" + (f"\n  {hint}" if hint else ""), err=True)


def say_traceback() -> None:
    """Print the traceback of the current exception to standard error."""
    say(traceback.format_exc(), err=True, nl=False)


def _mask(text: str) -> str:
    """Mask secrets: the text may quote the user's input or an old store without masking."""
    from orihon.ingest import shown  # noqa: PLC0415 - `--help` does not need it

    return shown(text)


def _render(piece: str | Styled) -> str:
    if isinstance(piece, Styled):
        return click.style(escape(_mask(piece.text)), fg=piece.colour)
    return escape(_mask(piece))


class Progress:
    """A line on standard error that shows the progress of a command. It is shown on a terminal only."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._shown_at = 0.0

    def show(self, text: str, *, at_once: bool = False) -> None:
        """Replace the line, at most ten times a second unless `at_once` is set."""
        if self._is_terminal and (at_once or time.monotonic() - self._shown_at >= PROGRESS_SECONDS):
            self._shown_at = time.monotonic()
            width = shutil.get_terminal_size().columns - 1
            self._write(f"\r\x1b[K{truncate(escape_line(text), width)}")

    def show_counts(self, template: str) -> Callable[[ProgressCounter], None]:
        """Return a callback that shows counts, in a template such as "{tasks:,} tasks, {size}"."""

        def show(counter: ProgressCounter) -> None:
            size = format_size(counter.size_bytes)
            self.show(template.format(tasks=counter.tasks, records=counter.records, size=size))

        return show

    def clear(self) -> None:
        """Remove the line before other output."""
        if self._shown_at:
            self._shown_at = 0.0
            self._write("\r\x1b[K")

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()


class LogFormatter(logging.Formatter):
    """Formats log records, including tracebacks, without characters that control a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        return escape(super().format(record))


def guard_streams() -> None:
    """Escape log records that no handler formats, and characters that the encoding of the terminal lacks."""
    handler = logging.StreamHandler()
    handler.setFormatter(LogFormatter("%(message)s"))
    handler.setLevel(logging.WARNING)
    logging.lastResort = handler
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
