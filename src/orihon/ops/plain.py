"""Text for a page: what would steer a terminal or disorder the page is made visible."""

from __future__ import annotations

import re

from orihon.terminal import HOSTILE

_JOINERS = "\u200c\u200d"  # a page draws them as they are meant, in Persian and between emoji
_STEERING = re.compile(f"(?![{_JOINERS}])[{HOSTILE}]")
_PICTURES = 0x2400


def plain(text: str) -> str:
    """The text with a picture or a mark for each character that is an instruction rather than a letter."""
    return _STEERING.sub(_shown, text.replace("\r\n", "\n"))


def _shown(found: re.Match[str]) -> str:
    code = ord(found[0])
    return chr(_PICTURES + code) if code < 0x20 else f"\\u{code:04x}"  # noqa: PLR2004 - C0 has pictures
