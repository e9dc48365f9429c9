"""Text as the index sees it: words, and for scripts that do not part them, every two letters that stand together.

    The 設定画面 of max_retries   ->   the 設定 定画 画面 面 of max retries

A run of Japanese, Chinese, Korean, Thai and the like is found by any part of it, two letters or one included. Letters
are compared without case, width and accents. A query is words, all of which must occur, `"exact phrases"`, and
`beginnings*`; nothing in it is ever an operator of the database.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from msgspec import Struct

from orihon.errors import UsageError

MAX_WORD = 64  # longer ones, such as base64, are found by their beginning
MAX_TERMS = 32

_DENSE = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3041-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
)
_RUN = re.compile(rf"([{_DENSE}]+)|([^\W_{_DENSE}]+)")
_ACCENTS = re.compile("[\u0300-\u036f]")
_TERM = re.compile(r'"([^"]*)(?:"|$)|(\S+)')


class Term(Struct, frozen=True):
    """Words that stand together; the last one may be only a beginning."""

    words: tuple[str, ...]
    text: str  # as it was asked for
    begins: bool = False


def folded(text: str) -> str:
    """The text without case, width and accents."""
    if text.isascii():
        return text.lower()
    text = unicodedata.normalize("NFKC", text).casefold()
    plain = _ACCENTS.sub("", unicodedata.normalize("NFKD", text))  # of Latin, Greek and Cyrillic letters only
    return unicodedata.normalize("NFC", plain)


def words_of(text: str) -> Iterator[str]:
    """The words of a text, in order."""
    for dense, word in _RUN.findall(folded(text)):
        if word:
            yield word[:MAX_WORD]
        else:
            yield from (dense[place : place + 2] for place in range(len(dense)))


def terms_of(query: str) -> list[Term]:
    """What somebody looks for; UsageError when there is no letter in it."""
    terms = []
    for phrase, word in _TERM.findall(query)[:MAX_TERMS]:
        text = (phrase or word).strip('"')
        begins = bool(word) and text.endswith("*")
        words = list(words_of(text))
        if len(words) > 1 and _is_end(words):  # in the text, the run may go on behind what is looked for
            words.pop()
        elif words and _is_dense(words[-1]):
            begins = True
        if words:
            terms.append(Term(tuple(words), text.rstrip("*"), begins))
    if not terms:
        raise UsageError(f"There is no word to look for in {query!a}.", hint="Give words, or a phrase in quotes.")
    return terms


def match_of(terms: list[Term], **having: str) -> str:
    """The terms in the language of FTS5, every word quoted; `having` names what else a document must have."""
    named = [f'who : "{name}{value}"' for name, value in having.items()]
    return " AND ".join([*named, *(_match(term) for term in terms)])


def _match(term: Term) -> str:
    quoted = " + ".join(f'"{word}"' for word in term.words)
    return f"body : {quoted}{' *' if term.begins else ''}"


def _is_dense(word: str) -> bool:
    return len(word) == 1 and bool(re.fullmatch(f"[{_DENSE}]", word))


def _is_end(words: list[str]) -> bool:
    """Whether the last word is the last letter of a run that the word before it holds too."""
    return _is_dense(words[-1]) and len(words[-2]) == 2 and words[-2].endswith(words[-1])  # noqa: PLR2004 - two letters


def pattern_of(term: Term) -> re.Pattern[str]:
    """Where a term stands in a text as it was written; what was folded away may hide it."""
    inner = r"[\W_]+".join(re.escape(part) for part in re.split(r"[\W_]+", term.text) if part)
    dense = f"[{_DENSE}]"
    before = "" if re.match(dense, term.text) else r"(?<![^\W_])"
    after = "" if term.begins or re.search(f"{dense}$", term.text) else r"(?![^\W_])"
    return re.compile(f"{before}{inner}{after}", re.IGNORECASE)
