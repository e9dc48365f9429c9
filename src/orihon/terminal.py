"""Prepare text for a terminal or a page: escape control characters, shorten lines, format durations.

`HOSTILE` lists the characters that are not simply displayed: they move the cursor, write to the clipboard (OSC 52),
reverse the text direction, join other characters, or are invisible. They are shown as their code.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

Language = Literal["en", "ja"]

UNITS = {"ja": ("日", "時間", "分", "秒"), "en": ("d", "h", "m", "s")}
SIZES = (86_400, 3_600, 60, 1)
CONTROL_PICTURES = 0x2400  # U+2400 is the symbol for U+0000

HOSTILE = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 except tab and newline, DEL, C1
    "\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff"  # direction controls, joiners, invisible characters and tags
    "\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0"  # invisible letters
    "\ud800-\udfff\ue000-\uf8ff\ufffe\uffff\U000f0000-\U0010ffff"  # surrogates, private use, noncharacters
)
_HOSTILE = re.compile(f"[{HOSTILE}]")
_PAGE_HOSTILE = re.compile(f"(?![\u200c\u200d])[{HOSTILE}]")
_JOINER, _EMOJI = "\u200d", re.compile("[\u2190-\u2bff\ufe0f\U0001f000-\U0001faff]")
_BLANKS = str.maketrans("\n\t", "  ")


def detect_language(environ: Mapping[str, str]) -> Language:
    """Return the language of the first locale variable that is set: LC_ALL, LC_MESSAGES or LANG."""
    names = (environ.get(name) for name in ("LC_ALL", "LC_MESSAGES", "LANG"))
    return "ja" if next(filter(None, names), "").startswith("ja") else "en"


def format_duration(seconds: float, lang: Language) -> str:
    """Return a duration in its two largest units, such as `15m 23s` or `15分23秒`."""
    left = max(0, round(seconds))
    parts: list[str] = []
    for size, unit in zip(SIZES, UNITS[lang], strict=True):
        count, left = divmod(left, size)
        if count or parts or size == 1:
            parts.append(f"{count}{unit}")
    return ("" if lang == "ja" else " ").join(parts[:2])


def shorten(text: str, max_chars: int) -> str:
    """Return the text on one line of at most `max_chars` characters."""
    line = " ".join(text[: 4 * max_chars].split())
    return line if len(line) <= max_chars else f"{line[: max_chars - 1]}…"


def escape(text: str) -> str:
    """Replace characters that would control a terminal with their codes. Newlines and tabs stay."""
    return text if text.isprintable() else _HOSTILE.sub(_escape_match, text)


def _escape_match(match: re.Match[str]) -> str:
    return _JOINER if match[0] == _JOINER and _joins_emoji(match) else ascii(match[0])[1:-1]


def _joins_emoji(match: re.Match[str]) -> bool:
    neighbours = match.string[max(0, match.start() - 1) : match.start()], match.string[match.end() : match.end() + 1]
    return all(map(_EMOJI.match, neighbours))


def escape_page_text(text: str) -> str:
    """Return text for an HTML or Markdown page, with control characters made visible.

    Joiners stay, because a page renders them correctly, as in Persian and between emoji.
    """
    return _PAGE_HOSTILE.sub(_make_visible, text.replace("\r\n", "\n"))


def _make_visible(match: re.Match[str]) -> str:
    code = ord(match[0])
    return chr(CONTROL_PICTURES + code) if code < ord(" ") else f"\\u{code:04x}"


def escape_line(text: str) -> str:
    """Escape a text and replace newlines and tabs with spaces, so that it cannot start a line of its own."""
    return escape(text).translate(_BLANKS)


def encode_json_line(value: Any) -> str:
    """Encode a value as JSON with all terminal control characters escaped. Bytes are taken as encoded JSON."""
    text = (value if isinstance(value, bytes) else msgspec.json.encode(value)).decode()
    return text if text.isprintable() else _HOSTILE.sub(_escape_json_match, text)


def _escape_json_match(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def collapse(text: str) -> str:
    """Escape a text and collapse its whitespace to single spaces."""
    return " ".join(escape(text).split())
