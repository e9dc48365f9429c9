"""Text from anybody, for a terminal or a page: what would steer the one or disorder the other is made visible."""

from __future__ import annotations

import re

# C0 and C1 but for tab and newline, and what reorders or hides text around it
_STEERING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]"
)
_PICTURES = 0x2400


def plain(text: str) -> str:
    """The text with a picture or a mark for each character that is an instruction rather than a letter."""
    return _STEERING.sub(_shown, text.replace("\r\n", "\n"))


def _shown(found: re.Match[str]) -> str:
    code = ord(found[0])
    return chr(_PICTURES + code) if code < 0x20 else f"\\u{code:04x}"  # noqa: PLR2004 - C0 has pictures
