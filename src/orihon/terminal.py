"""Text that comes from elsewhere, for a terminal: it cannot move the cursor or hide, and it fits.

Characters of Chinese, Japanese and Korean take two columns, marks that stand over others none.
"""

from __future__ import annotations

from unicodedata import combining, east_asian_width

WIDE = ("W", "F")
MORE = "…"
MARKS = 4  # a line with more characters than so many to a column is cut anyway


def visible(text: str) -> str:
    """The text with everything shown that a terminal would do instead; lines and tabs stay."""
    return "".join(one if one.isprintable() or one in "\n\t" else ascii(one)[1:-1] for one in text)


def one_line(text: str) -> str:
    """The words of a text, visible, in one line."""
    return " ".join(visible(text).split())


def columns(text: str) -> int:
    """How wide a line is."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def _columns(one: str) -> int:
    return 0 if combining(one) else 2 if east_asian_width(one) in WIDE else 1


def fitted(text: str, width: int) -> str:
    """A line that is no wider; one that is cut ends with a mark."""
    if len(text) <= MARKS * width and columns(text) <= width:
        return text
    used = 0
    for place, one in enumerate(text):
        used += _columns(one)
        if used > width - 1 or place > MARKS * width:
            return text[:place] + MORE
    return text


def padded(text: str, width: int, *, right: bool = False) -> str:
    """A line that is at least so wide."""
    blanks = " " * (width - columns(text))
    return blanks + text if right else text + blanks
