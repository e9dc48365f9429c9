"""One line on a terminal that says how far a long work has come; nothing when standard error is not a terminal."""

from __future__ import annotations

import shutil
import sys
import time
from typing import Self

from orihon.terminal import escape_line, truncate

INTERVAL_SECONDS = 0.1


class Progress:
    """The line; gone when the work is done."""

    def __init__(self) -> None:
        self._wanted = sys.stderr.isatty()
        self._shown_at = 0.0

    def show(self, text: str) -> None:
        """Replace the line, ten times a second at most."""
        if self._wanted and time.monotonic() - self._shown_at >= INTERVAL_SECONDS:
            self._shown_at = time.monotonic()
            width = shutil.get_terminal_size().columns - 1
            self._write(f"\r\x1b[K{truncate(escape_line(text), width)}")

    def clear(self) -> None:
        """Take the line away before something else is printed."""
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


def amount(size_bytes: float) -> str:
    """Bytes for people."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if size_bytes < 1000:  # noqa: PLR2004 - a kilobyte
            return f"{size_bytes:,.0f} {unit}" if unit == "bytes" else f"{size_bytes:,.1f} {unit}"
        size_bytes /= 1000
    return f"{size_bytes:,.1f} TB"
