"""The one way from a command to the terminal: nothing that is printed can steer it, whatever a store or a file says.

`say` is for text that may have several lines, `say_line` for one line with fields from elsewhere in it, `say_json`
for programs. No command prints in any other way; a test holds this. Colours are ours alone: see `Styled`.
"""

from __future__ import annotations

import logging
import sys
import traceback
from typing import Any, NamedTuple

import click

from orihon.terminal import encode_json_line, escape, escape_line


class Styled(NamedTuple):
    """A text in a colour."""

    text: str
    colour: str | None = None


def say(*pieces: str | Styled, err: bool = False, nl: bool = True) -> None:
    """Print a text, of one or more lines."""
    click.echo("".join(map(_printed, pieces)), err=err, nl=nl)


def say_line(*pieces: str | Styled, err: bool = False) -> None:
    """Print one line; a newline inside is a blank."""
    flattened = (
        escape_line(piece) if isinstance(piece, str) else piece._replace(text=escape_line(piece.text))
        for piece in pieces
    )
    say(*flattened, err=err)


def say_json(value: Any) -> None:
    """Print a value, or JSON that is encoded already, on one line."""
    click.echo(_masked(encode_json_line(value)))


def say_error(message: str, hint: str = "") -> None:
    """Print what went wrong, and a way out."""
    say(f"orihon: {message}" + (f"\n  {hint}" if hint else ""), err=True)


def say_traceback() -> None:
    """Print where the error that is being handled came from."""
    say(traceback.format_exc(), err=True, nl=False)


def _masked(text: str) -> str:
    """Mask a text: it may quote what the user gave, or a store that was written before it was masked."""
    from orihon.ingest import shown  # noqa: PLC0415 - `--help` needs nothing of it

    return shown(text)


def _printed(piece: str | Styled) -> str:
    if isinstance(piece, Styled):
        return click.style(escape(_masked(piece.text)), fg=piece.colour)
    return escape(_masked(piece))


class LogLines(logging.Formatter):
    """Log records as lines that a terminal only writes, with the tracebacks in them."""

    def format(self, record: logging.LogRecord) -> str:
        return escape(super().format(record))


def guard_streams() -> None:
    """Let nothing get past: neither what no command handles in the log, nor a character that the encoding lacks."""
    handler = logging.StreamHandler()
    handler.setFormatter(LogLines("%(message)s"))
    handler.setLevel(logging.WARNING)
    logging.lastResort = handler
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
