"""How the chat reads and writes: the common interface, and its form for pipes.

In a pipe, replies and the output of commands go to standard output, and everything else to standard error.
"""

from __future__ import annotations

import os
import signal
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TextIO

from orihon.chat.i18n import Texts
from orihon.chat.registry import ConversationListing
from orihon.terminal import escape


class ChatUI(ABC):
    """A user interface on standard output, where a reply may leave a line unfinished."""

    interactive = True  # whether a user can answer questions

    def __init__(self, texts: Texts) -> None:
        self.texts = texts
        self._is_mid_line = False

    @abstractmethod
    def read(self, meter: str) -> str:
        """Return the next input; raise EOFError at the end, and KeyboardInterrupt if the user presses Ctrl-C."""

    @abstractmethod
    def note(self, text: str) -> None:
        """Show a message about what happens."""

    @abstractmethod
    def ask(self, question: str) -> bool:
        """Ask the user to allow a tool call."""

    def write_piece(self, text: str) -> None:
        """Write a piece of a reply at once."""
        write(sys.stdout, text)
        self._is_mid_line = not text.endswith("\n") if text else self._is_mid_line

    def end_line(self) -> None:
        """End an unfinished line."""
        if self._is_mid_line:
            self.write_piece("\n")

    def show(self, text: str) -> None:
        """Show the output of a command."""
        self.end_line()
        self.write_piece(f"{text}\n")

    def show_error(self, message: str, hint: str) -> None:
        """Show an error as all commands of Orihon do."""
        self.note(f"orihon: {message}\n  {hint}")


class PipeUI(ChatUI):
    """Lines in, lines out; also for a terminal with `--plain`."""

    def __init__(self, texts: Texts) -> None:
        super().__init__(texts)
        self.interactive = sys.stdin.isatty() and sys.stderr.isatty()

    def read(self, meter: str) -> str:
        """Return the next line. A line that ends with a backslash continues on the next one."""
        self.end_line()
        if self.interactive:
            write(sys.stderr, f"{meter}\n> ")
        lines = [_read_line()]
        if not lines[0]:
            raise EOFError
        while lines[-1].rstrip("\r\n").endswith("\\"):
            lines[-1] = lines[-1].rstrip("\r\n")[:-1]
            lines.append(_read_line())
        return "\n".join(line.rstrip("\r\n") for line in lines)

    def note(self, text: str) -> None:
        self.end_line()
        write(sys.stderr, f"{text}\n")

    def ask(self, question: str) -> bool:
        self.end_line()
        write(sys.stderr, f"{question}\n{self.texts('allow')} ")
        return is_yes(_read_line())


def _read_line() -> str:
    return sys.stdin.buffer.readline().decode("utf-8", "replace")


def is_yes(answer: str) -> bool:
    """Return whether an answer means yes; anything else means no."""
    return answer.strip().lower() in {"y", "yes"}


def write(stream: TextIO, text: str) -> None:
    """Write printable text at once; exit if the terminal is gone, which may precede SIGHUP."""
    try:
        stream.write(escape(text))
        stream.flush()
    except BrokenPipeError:
        raise
    except OSError:
        raise make_hangup() from None


def make_hangup() -> SystemExit:
    """Return the exit for a terminal that is gone, and redirect output so that flushing does not fail again."""
    null_fd = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(null_fd, stream.fileno())
    return SystemExit(128 + signal.SIGHUP)


def format_listings(listings: Sequence[ConversationListing], texts: Texts, *, current: str = "") -> str:
    """Return conversations, one per line; the current one is marked."""
    lines = []
    for listing in listings:
        row, is_current = listing.row, listing.uuid == current
        values = {
            "mark": "*" if is_current else "-",
            "name": listing.name,
            "uuid": listing.uuid[:8],
            "updated": (row.updated_at or row.created_at)[:16].replace("T", " "),
            "replies": row.llm_call_count,
            "tokens": row.total_tokens,
            "status": texts("in use") if row.status == "running" and not is_current else "",
        }
        lines.append(texts("listing", **values))
    return "\n".join(lines) or texts("no conversations")
