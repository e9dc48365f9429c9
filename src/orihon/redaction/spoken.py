"""Passwords and tokens in other languages than English, whose words for them no gate looks for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from orihon.redaction.values import is_odd_word, is_placeholder, looks_random

if TYPE_CHECKING:
    from orihon.redaction.find import Span

# One letter of each word, which is quickly looked for, the word, and its mask.
_WORDS = (
    ("ワ", ("パスワード",), b"PASSWORD"),
    ("码", ("密码",), b"PASSWORD"),
    ("호", ("비밀번호",), b"PASSWORD"),
    ("л", ("пароль", "Пароль"), b"PASSWORD"),
    ("ñ", ("contraseña", "Contraseña"), b"PASSWORD"),
    ("キ", ("キー",), b"API_KEY"),
    ("ク", ("トークン",), b"TOKEN"),
)
_VALUE = re.compile(
    "[\"'`”」*]{0,2}(?:[ \t　]*(?:는|은|は|を|が|是|为|為|：|:|=|＝|→|es )[ \t　]*|[ \t　]+)"  # noqa: RUF001
    "[\"'`「『（(]?(?P<value>[!-~]{6,200})".encode()  # noqa: RUF001
)
_END = re.compile(rb"[\"'`,;<&\\]")
_TRAILING = b".:;)]}!?"
_SHORTEST_TOKEN = 16


def words_in(text: str) -> list[tuple[bytes, bytes]]:
    """The words for passwords and tokens that a text may hold, in UTF-8, and their masks."""
    if text.isascii():
        return []
    found = [(words, mask) for letter, words, mask in _WORDS if letter in text]
    return [(word.encode(), mask) for words, mask in found for word in words] if found else []


def spoken(data: bytes, words: list[tuple[bytes, bytes]]) -> Iterator[Span]:
    """Passwords and tokens behind these words."""
    for word, mask in words:
        at = data.find(word)
        while at >= 0:
            at += len(word)
            found = _VALUE.match(data, at)
            value = _END.split(found["value"], maxsplit=1)[0].rstrip(_TRAILING) if found else b""
            if found and _is_secret(value, mask):
                yield found.start("value"), found.start("value") + len(value), mask
            at = data.find(word, at)


def _is_secret(value: bytes, mask: bytes) -> bool:
    odd = is_odd_word(value) if mask == b"PASSWORD" else looks_random(value, least=_SHORTEST_TOKEN)
    return odd and not is_placeholder(value)
