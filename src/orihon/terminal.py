"""Text for a terminal: in the person's language; what comes from elsewhere cannot move the cursor or hide; it fits.

Characters of Chinese, Japanese and Korean take two columns, marks that stand over others none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal
from unicodedata import category, combining, east_asian_width

Language = Literal["en", "ja"]

UNITS = {"ja": ("日", "時間", "分", "秒"), "en": ("d", "h", "m", "s")}
SIZES = (86_400, 3_600, 60, 1)
WIDE = ("W", "F")
MORE = "…"
MARKS = 4  # a line with more characters than so many to a column is cut anyway


def language_of(environ: Mapping[str, str]) -> Language:
    """The language of messages, as every program finds it: the first of these that is set."""
    names = (environ.get(name) for name in ("LC_ALL", "LC_MESSAGES", "LANG"))
    return "ja" if next(filter(None, names), "").startswith("ja") else "en"


def duration(seconds: float, lang: Language) -> str:
    """`15分23秒`, `15m 23s`: the two largest units."""
    left = max(0, round(seconds))
    parts: list[str] = []
    for size, unit in zip(SIZES, UNITS[lang], strict=True):
        count, left = divmod(left, size)
        if count or parts or size == 1:
            parts.append(f"{count}{unit}")
    return ("" if lang == "ja" else " ").join(parts[:2])


def printable(text: str) -> str:
    """A text that a terminal only writes: what could do something else is shown as its code; lines and tabs stay."""
    return text if text.isprintable() else "".join(map(_shown, text))


def _shown(one: str) -> str:
    harmless = one.isprintable() or one in "\n\t\u200d" or category(one) == "Zs"
    return one if harmless else ascii(one)[1:-1]


def one_line(text: str) -> str:
    """The words of a text, printable, in one line."""
    return " ".join(printable(text).split())


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
