"""The chat without a terminal: lines in, answers on standard output, what happens meanwhile on standard error."""

from __future__ import annotations

import sys

from orihon.chat.terminal.face import Lines, write
from orihon.chat.terminal.words import Words


class Plain(Lines):
    """A pipe, or a terminal that is used as one."""

    def __init__(self, words: Words) -> None:
        self.words = words
        self.interactive = sys.stdin.isatty() and sys.stderr.isatty()

    def read(self, meter: str) -> str:
        """The next line; one that ends with a backslash goes on."""
        self.end()
        if self.interactive:
            self._say(f"{meter}\n> ")
        lines = [self._line()]
        while lines[-1].endswith("\\"):
            lines[-1] = lines[-1][:-1]
            lines.append(self._line(or_nothing=True))
        return "\n".join(lines)

    def note(self, text: str) -> None:
        """To standard error."""
        self.end()
        self._say(f"{text}\n")

    def error(self, message: str, hint: str) -> None:
        """As all commands of Orihon do."""
        self.note(f"orihon: {message}\n  {hint}")

    def ask(self, question: str) -> bool:
        """At a terminal."""
        self.end()
        self._say(f"{question}\n{self.words('allow')}")
        return self._line(or_nothing=True).strip().lower() in {"y", "yes"}

    def _say(self, text: str) -> None:
        write(sys.stderr, text)

    def _line(self, *, or_nothing: bool = False) -> str:
        line = sys.stdin.buffer.readline()
        if not line and not or_nothing:
            raise EOFError
        return line.decode("utf-8", "replace").rstrip("\r\n")
