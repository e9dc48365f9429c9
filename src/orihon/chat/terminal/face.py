"""What the chat needs of a terminal, or of a pipe."""

from __future__ import annotations

import os
import signal
import sys
from typing import Protocol, TextIO

from orihon.terminal import printable


class Face(Protocol):
    """Where the person is."""

    @property
    def interactive(self) -> bool:
        """Whether somebody sits there who can answer a question."""

    def read(self, meter: str) -> str:
        """What is typed next; EOFError when there is no more, KeyboardInterrupt when the line is given up."""

    def piece(self, text: str) -> None:
        """A piece of the answer, as it comes."""

    def end(self) -> None:
        """The answer is over; what comes next begins on a line of its own."""

    def show(self, text: str) -> None:
        """What a command gives."""

    def note(self, text: str) -> None:
        """What happens meanwhile."""

    def error(self, message: str, hint: str) -> None:
        """What went wrong, and a way out."""

    def ask(self, question: str) -> bool:
        """Whether the model may do something."""


class Lines:
    """Standard output, where an answer may have left a line unfinished."""

    _within = False  # whether the last line is not at its end

    def piece(self, text: str) -> None:
        """At once."""
        write(sys.stdout, text)
        self._within = not text.endswith("\n") if text else self._within

    def end(self) -> None:
        """A line that was begun ends."""
        if self._within:
            self.piece("\n")

    def show(self, text: str) -> None:
        """On lines of its own."""
        self.end()
        self.piece(f"{text}\n")


def write(stream: TextIO, text: str) -> None:
    """Text to a terminal or a pipe, at once; a terminal that is gone has hung up, also before the signal comes."""
    try:
        stream.write(printable(text))
        stream.flush()
    except BrokenPipeError:
        raise
    except OSError:
        raise hung_up() from None


def hung_up() -> SystemExit:
    """The end when the terminal is gone; what is still to be flushed must not fail again."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for lost in (sys.stdout, sys.stderr):
        os.dup2(nowhere, lost.fileno())
    return SystemExit(128 + signal.SIGHUP)
