"""Names in a text: paths, symbols, error classes, hashes, URLs, tests. What a reader would search for later.

A name is known by its shape, not by a language: `src/app.py`, `parser.parse`, `max_size`, `HttpServer`,
`crate::module::item`, `3f2a9bc`, `https://…`, `「設定画面」`. Ordinary words have no such shape and are never names.
A longer name also mentions the shorter ones in it, if they stand alone somewhere: `src/app.py` mentions `app.py`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from itertools import pairwise

SHORTEST, LONGEST = 6, 200

TOKEN = re.compile(
    r"https?://[^\s\"'<>()\[\]{}`\\|,;*]{3,200}"
    r"|[A-Za-z0-9_./~-]{6,}(?:::[A-Za-z0-9_./-]+)*"
    r"|[A-Za-z0-9_]+(?:::[A-Za-z0-9_]+)+"
    r"|(?<=[「『])[^「」『』\n]{2,40}(?=[」』])"
)
_TWO_LETTERS = re.compile(r"[A-Za-z]{2}")
_HASH = re.compile(r"(?=[0-9-]*[a-f])(?=[a-f-]*[0-9])(?:[0-9a-f]{7,40}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})")
_FILE = re.compile(r"[\w-][\w.-]*\.[A-Za-z]\w{0,5}", re.ASCII)
_DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+", re.ASCII)
_SNAKE = re.compile(r"\d*_*[A-Za-z0-9]*[A-Za-z][A-Za-z0-9]*_\w*|_+[A-Za-z]\w*|\d+_\w*[A-Za-z]\w*", re.ASCII)
_CAMEL = re.compile(r"[a-z][a-z0-9]*[A-Z]\w*|[A-Z][a-z0-9]+[A-Z]\w*|[A-Z]{2,}[a-z]\w*", re.ASCII)
_SEAM = re.compile(r"::|[/.-]")


def is_name(token: str) -> bool:
    """Return whether a token names something. Short tokens do not, unless they were quoted in another script."""
    if not token.isascii():
        return True
    return SHORTEST <= len(token) <= LONGEST and ("://" in token or _has_shape(token))


def _has_shape(token: str) -> bool:
    if "/" in token or "::" in token:
        last = token.rsplit("/", 1)[-1]
        lasting = "::" in token or token.count("/") > 1 or _FILE.fullmatch(last) is not None
        return lasting and _TWO_LETTERS.search(token) is not None
    if "." in token:
        return (_DOTTED.fullmatch(token) or _FILE.fullmatch(token)) is not None
    if "_" in token:
        return _SNAKE.fullmatch(token.rstrip("_")) is not None
    return (_CAMEL.fullmatch(token) or _HASH.fullmatch(token)) is not None


def _is_word(token: str) -> bool:
    return token.isascii() and token.isalpha() and token[1:].islower()


def trim(token: str) -> str:
    """Return the token without the punctuation of the sentence it stood in."""
    return token.rstrip(".:/") if "://" in token else token.strip(".-").rstrip("/")


def inner(token: str) -> set[str]:
    """Return what a token is made of: its parts, and what stands before and after each seam."""
    seams = [seam.span() for seam in _SEAM.finditer(token)][:16]
    if not seams:
        return set()
    found = {token[:start] for start, _ in seams} | {token[end:] for _, end in seams}
    found.update(token[left[1] : right[0]] for left, right in pairwise(seams))
    return {part for part in found if len(part) >= SHORTEST}


def index(tokens: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the names that each token mentions, for the tokens that mention any."""
    tokens = [token for token in tokens if may_mention(token)]
    return {token: names for token, names in zip(tokens, mentions(tokens), strict=True) if names}


def may_mention(token: str) -> bool:
    """Return whether a token is worth a closer look: it is no ordinary word, and not too long."""
    return len(token) <= LONGEST and not _is_word(token)


def mentions(tokens: Collection[str]) -> Iterator[tuple[str, ...]]:
    """Yield the names that each token mentions, one token after the other.

    A part of a token counts only if it also stands alone among the tokens, or names something by a hyphen's side
    (`linux-f527f264`): otherwise every directory above a file would be a name.
    """
    trimmed = set(map(trim, tokens))
    alone = set(filter(is_name, trimmed))
    trimmed -= alone
    for name in trimmed:
        alone.update(part for part in inner(name) if is_name(part))
    del trimmed
    for token in tokens:
        name = trim(token)
        names = inner(name) & alone if "://" not in name else set()
        if name in alone:
            names.add(name)
        yield tuple(sorted(names))
