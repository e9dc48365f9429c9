"""Texts in pieces: lines, and parts of lines that are too long to be kept for one word in them.

What is left out leaves one short mark, `[…132 lines, m57]`. The first mark of a message names its handle, and a mark
is always shorter than what it stands for: otherwise that stays. No cut parts a character from its accents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

LONG_LINE = 360  # characters; a longer line is cut into parts
PART = 120

_CLINGING = frozenset(
    chr(code)
    for first, end in (
        (0x300, 0x370),  # accents
        (0x200D, 0x200E),  # the joiner of emoji
        (0x20D0, 0x2100),
        (0x3099, 0x309B),  # the voiced marks of kana
        (0xDC00, 0xE000),  # the second half of a surrogate pair
        (0xFE00, 0xFE30),  # variants
        (0x1F3FB, 0x1F400),  # skin tones
    )
    for code in range(first, end)
)


def whole_character(text: str, at: int) -> int:
    """Return the first place from `at` on where a cut parts no character from its accents, joiners or second half."""
    while 0 < at < len(text) and (text[at] in _CLINGING or text[at - 1] == "\u200d"):
        at += 1
    return at


def shortened(text: str, most: float, count: Callable[[str], int]) -> str:
    """Return the text, or as much of its beginning as costs at most `most`; nothing if not even a character does."""
    shown, kept = text, len(text)
    while shown and count(shown) > most:
        kept = kept * 3 // 4
        shown = f"{text[:kept]}…" if kept else ""
    return shown


def size_bytes(text: str) -> int:
    """Return the number of bytes of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def lay(text: str, at: int = 0) -> tuple[list[int], list[bool]]:
    """Return where each piece begins, counted from `at`, and whether it continues the line of the previous one."""
    starts, joined = [], []
    for line in text.split("\n"):
        starts.append(at)
        joined.append(False)
        if len(line) > LONG_LINE:
            for cut in _parts(line):
                starts.append(at + cut)
                joined.append(True)
        at += len(line) + 1
    return starts, joined


def _parts(line: str) -> Iterator[int]:
    start = 0
    while len(line) - start > PART * 3 // 2:
        space = line.rfind(" ", start + PART // 2, start + PART) + 1
        start = whole_character(line, space or start + PART)
        if start < len(line):
            yield start


class Mark:
    """Says how much was left out; names the handle once. With a rate of tokens per character it says both."""

    def __init__(self, handle: str, rate: float = 0) -> None:
        self._handle, self._rate = handle, rate

    def lines(self, gap: str) -> int:
        """Return the number of lines that a gap hides."""
        return gap.count("\n") + (not gap.endswith("\n"))

    def __call__(self, gap: str, *, inside: bool = False) -> str:
        """Return the mark for a gap, or the gap itself if that is not longer. `inside` means that it cuts a line."""
        end = "\n" if gap.endswith("\n") else ""
        lines = self.lines(gap)
        what = f"{len(gap)} characters" if inside and lines == 1 else f"{lines} lines" if lines > 1 else "1 line"
        what += f", {round(len(gap) * self._rate):,} tokens" if self._rate else ""
        mark = f"[…{what}{self._handle and ', '}{self._handle}]{end}"
        if len(mark) >= len(gap) or size_bytes(mark) >= size_bytes(gap):
            return gap
        self._handle = ""
        return mark


def join(text: str, starts: Sequence[int], joined: Sequence[int], kept: Sequence[int], mark: Mark) -> str:
    """Return the text with only the kept pieces. `starts` has one entry more than there are pieces: the end."""
    if all(kept):
        return text
    out: list[str] = []
    first, count, begun = 0, len(kept), starts[0]
    while first < count:
        end = first + 1
        while end < count and kept[end] == kept[first]:
            end += 1
        stretch = text[starts[first] - begun : starts[end] - begun]
        inside = bool(joined[first] or (end < count and joined[end]))
        out.append(stretch if kept[first] else mark(stretch, inside=inside))
        first = end
    return "".join(out)
