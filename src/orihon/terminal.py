"""Text for a terminal: in the language of the user, without anything that steers the terminal, and no wider than it.

`HOSTILE` is the one list of characters that do something other than being seen: they move the cursor, write to the
clipboard (OSC 52), turn the direction of the text round, join what is apart, or take no room. They are shown as their
code. Characters of Chinese, Japanese and Korean take two columns, marks that stand over others none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal
from unicodedata import category, east_asian_width

import msgspec

Language = Literal["en", "ja"]

UNITS = {"ja": ("日", "時間", "分", "秒"), "en": ("d", "h", "m", "s")}
SIZES = (86_400, 3_600, 60, 1)
WIDE = ("W", "F")
MORE = "…"
MARKS = 4  # a line with more characters than so many to a column is cut anyway
CONTROL_PICTURES = 0x2400  # U+2400 is the picture of U+0000
NO_COLUMN = frozenset(("Mn", "Me", "Cf"))

HOSTILE = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 but for tab and newline, DEL, C1
    "\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff"  # direction, joins, invisible signs and tags
    "\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0"  # letters that are not seen
    "\ud800-\udfff\ue000-\uf8ff\ufffe\uffff\U000f0000-\U0010ffff"  # halves of characters, private ones, none
)
_HOSTILE = re.compile(f"[{HOSTILE}]")
_PAGE_HOSTILE = re.compile(f"(?![\u200c\u200d])[{HOSTILE}]")
_JOINER, _EMOJI = "\u200d", re.compile("[\u2190-\u2bff\ufe0f\U0001f000-\U0001faff]")
_BLANKS = str.maketrans("\n\t", "  ")


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
    return text if text.isprintable() else _HOSTILE.sub(_shown, text)


def _shown(found: re.Match[str]) -> str:
    return _JOINER if found[0] == _JOINER and _joins_emoji(found) else ascii(found[0])[1:-1]


def _joins_emoji(found: re.Match[str]) -> bool:
    around = found.string[max(0, found.start() - 1) : found.start()], found.string[found.end() : found.end() + 1]
    return all(_EMOJI.match(one) for one in around)


def escape_page_text(text: str) -> str:
    """Return text for a page: characters that would control a terminal or disorder the page are made visible.

    Joiners stay, because a page draws them as intended, in Persian and between emoji.
    """
    return _PAGE_HOSTILE.sub(_make_visible, text.replace("\r\n", "\n"))


def _make_visible(match: re.Match[str]) -> str:
    code = ord(match[0])
    return chr(CONTROL_PICTURES + code) if code < ord(" ") else f"\\u{code:04x}"


def flat(text: str) -> str:
    """A printable text on one line, its blanks as they are: no field from elsewhere begins a line of its own."""
    return printable(text).translate(_BLANKS)


def json_line(value: Any) -> str:
    """A value, or one that is JSON already, as JSON in which every character that steers a terminal is escaped."""
    text = (value if isinstance(value, bytes) else msgspec.json.encode(value)).decode()
    return text if text.isprintable() else _HOSTILE.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def one_line(text: str) -> str:
    """The words of a text, printable, in one line."""
    return " ".join(printable(text).split())


def columns(text: str) -> int:
    """How wide a line is."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def _columns(one: str) -> int:
    return 0 if category(one) in NO_COLUMN else 2 if east_asian_width(one) in WIDE else 1


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
