"""Text with colour codes: what it says is looked at without them, and masked with them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING

from orihon.redaction.escapes import CODE

if TYPE_CHECKING:
    from orihon.redaction.find import Span

_CSI = "\x9b"  # the same as ESC [ in one character
_LINE = 2000  # how far from a code its line is looked at


def has_codes(text: str) -> bool:
    """Whether a text may hold colour codes."""
    return "\x1b" in text or (not text.isascii() and _CSI in text)


def uncoloured(data: bytes) -> Iterator[Uncoloured]:
    """The lines that hold colour codes, neighbours together."""
    first, last = 0, -1
    for code in CODE.finditer(data):
        start, end = code.span()
        if start >= last:
            line = data.rfind(b"\n", max(0, start - _LINE), start) + 1 or max(0, start - _LINE)
            if line > last >= 0:
                yield Uncoloured(data[first:last], first)
            first = line if line > last else first
        behind = data.find(b"\n", end, end + _LINE)
        last = max(last, behind + 1 if behind >= 0 else min(len(data), end + _LINE))
    if last >= 0:
        yield Uncoloured(data[first:last], first)


class Uncoloured:
    """A part of a text without its colour codes, and the way back."""

    def __init__(self, data: bytes, offset: int) -> None:
        self._plain = [0]  # where each kept piece begins without the codes
        self._coloured = [offset]  # and with them
        pieces, end = [], 0
        for code in CODE.finditer(data):
            pieces.append(data[end : code.start()])
            end = code.end()
            self._plain.append(self._plain[-1] + len(pieces[-1]))
            self._coloured.append(offset + end)
        self.data = b"".join([*pieces, data[end:]])

    def back(self, span: Span) -> Span:
        """Where a span of the plain text stands in the coloured one; codes inside it belong to it."""
        start, end, mask = span
        return self._back(start), self._back(end - 1) + 1, mask

    def _back(self, at: int) -> int:
        piece = bisect_right(self._plain, at) - 1
        return self._coloured[piece] + at - self._plain[piece]
