"""Words of a text for the index, and terms of a query.

    The 設定画面 of max_retries   ->   the 設定 定画 画面 面 of max retries

Scripts without spaces (Japanese, Chinese, Korean, Thai and others) are split into overlapping pairs of characters, so
that any part of a run is found, even a single character. Letters are compared without case, width and accents. A query
consists of words, all of which must occur, `"exact phrases"`, and `prefixes*`. No part of it is ever an FTS5 operator.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from msgspec import Struct

from orihon.errors import UsageError

MAX_WORD_CHARS = 64  # of a longer word, such as base64, only the beginning is indexed
MAX_TERMS = 32

_DENSE = (  # scripts without spaces
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3041-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
)
_RUN = re.compile(rf"([{_DENSE}]+)|([^\W_{_DENSE}]+)")
_ACCENTS = re.compile("[\u0300-\u036f]")
_TERM = re.compile(r'"([^"]*)(?:"|$)|(\S+)')


class Term(Struct, frozen=True):
    """Consecutive words. The last one may be a prefix."""

    words: tuple[str, ...]
    text: str  # as the user wrote it
    is_prefix: bool = False


def split_words(text: str) -> Iterator[str]:
    """Yield the words of a text in order."""
    for dense, word in _RUN.findall(_normalise(text)):
        if word:
            yield word[:MAX_WORD_CHARS]
        else:
            yield from (dense[index : index + 2] for index in range(len(dense)))


def _normalise(text: str) -> str:
    if text.isascii():
        return text.lower()
    text = unicodedata.normalize("NFKC", text).casefold()
    without_accents = _ACCENTS.sub("", unicodedata.normalize("NFKD", text))  # of Latin, Greek and Cyrillic letters
    return unicodedata.normalize("NFC", without_accents)


def parse_terms(query: str) -> list[Term]:
    """Return the terms of a query. Raise UsageError if there is no word in it."""
    terms = []
    for phrase, word in _TERM.findall(query)[:MAX_TERMS]:
        text = (phrase or word).strip('"')
        is_prefix = bool(word) and text.endswith("*")
        words = list(split_words(text))
        if len(words) > 1 and _is_dense(words[-1]) and words[-2][1:] == words[-1]:
            words.pop()  # the last character of a run, which may continue in the text
        elif words and _is_dense(words[-1]):
            is_prefix = True
        if words:
            terms.append(Term(tuple(words), text.rstrip("*"), is_prefix))
    if not terms:
        raise UsageError(f"There is no word to look for in {query!a}.", hint="Give words, or a phrase in quotes.")
    return terms


def _is_dense(word: str) -> bool:
    return bool(re.fullmatch(f"[{_DENSE}]", word))


def build_fts_query(terms: list[Term], tags: list[str]) -> str:
    """Return an FTS5 query for documents that have all terms and all tags. Every word is quoted."""
    conditions = [f'who : "{tag}"' for tag in tags]
    for term in terms:
        phrase = " + ".join(f'"{word}"' for word in term.words)
        conditions.append(f"body : {phrase}{' *' if term.is_prefix else ''}")
    return " AND ".join(conditions)


def compile_pattern(term: Term) -> re.Pattern[str]:
    """Return a pattern for the term in an original text. Normalised characters can hide a match."""
    inner = r"[\W_]+".join(re.escape(part) for part in re.split(r"[\W_]+", term.text) if part)
    before = "" if re.match(f"[{_DENSE}]", term.text) else r"(?<![^\W_])"
    after = "" if term.is_prefix or re.search(f"[{_DENSE}]$", term.text) else r"(?![^\W_])"
    return re.compile(f"{before}{inner}{after}", re.IGNORECASE)
