"""Detect the language of a conversation: Japanese or English."""

from __future__ import annotations

import re
from collections.abc import Iterable

from orihon.records import Message

JAPANESE_SHARE = 0.1
LOOK_CHARS = 2000

_KANA = re.compile(r"[぀-ヿ]")
_LETTER = re.compile(r"[A-Za-z぀-ヿ一-鿿]")


def language_of(messages: Iterable[Message]) -> str:
    """Return `ja` if the people in it write Japanese, else `en`. Output of tools does not count."""
    kana = letters = 0
    for message in messages:
        if message.role in {"user", "assistant"}:
            text = message.text[:LOOK_CHARS]
            kana += len(_KANA.findall(text))
            letters += len(_LETTER.findall(text))
    return "ja" if letters and kana / letters > JAPANESE_SHARE else "en"
