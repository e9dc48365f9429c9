"""Where in a text could a secret be? A cheap prefilter; most text has no candidate and is skipped.

The gate only points; the finders decide. So a gate may point too often but never too rarely, and every gate gives the
same masked text. Everything works on UTF-8 bytes: one kind of offset, and `bytes.find` is the fastest thing there is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from itertools import chain
from typing import NamedTuple

from orihon.redaction.escapes import past_glue
from orihon.redaction.rules import sure

# Words, in small letters, that could be a part of a name or announce a secret; `secret` and `cred` share `cre`.
STEMS = (b"key", b"token", b"cre", b"pass", b"pwd", b"auth", b"senha", b"contrasena", b"kennwort")
# Flags of commands and words that announce a password, as expressions in any case, and how long the flag or word is.
FLAGS = (
    (rb"[ \"']-[up]", 2),
    (rb"[ \"']-[akw][ \"'=\\]", 3),
    (rb"--user", 5),
    (rb"identified", 10),
    (rb"securestring", 12),
)
COOKIE = 300  # how far behind the word a cookie stands
RUN = 13  # the shortest token that says itself what it is
IN_RUN = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"
IN_BLOB = IN_RUN + b"+/"
JOINTS = frozenset(b"\\%.~|:!")  # before a run: a part of the token, or what hides where it begins
MARKS = frozenset(b".|%:!~")  # behind a run: the middle of a token without a beginning
BLOB = 48  # how far before a run the beginning of its base64 is looked for
_BLOB = re.compile(rb"[A-Za-z0-9_+/-]*")
_LETTERS = IN_RUN[:52] + b"_-"
_SLASHES = frozenset(b"+/")
_SPECIAL = _SLASHES | frozenset(
    b"\\%~\x1b\x9b"
)  # before a run: it begins with an escape, or is the later part of something
_BRACKET = 40  # ESC ( B chooses a character set
_RUNS = bytes(120 if byte in IN_RUN else 32 for byte in range(256))
_HIGH = bytes(range(128, 256))
_SAMPLE = 256


class Hits(NamedTuple):
    """Places to look at, each list in rising order."""

    stems: list[int]  # where a word begins that could name a secret
    runs: list[tuple[int, int]]  # long runs of letters, digits, _ and -
    ats: list[int]  # where an @ stands, also as %40
    flags: list[int]  # where a flag or a word of a command stands


Gate = Callable[[bytes], Hits]


# Searching for a word is a pass over the text. In this alphabet a, h and w, s and d, u and p, and y and n are one
# letter each, so that one pass finds `pass` and `pwd`, one `key` and `token`, one `senha` and `contrasena`, and one
# all flags.
_FOLDED = bytes(range(256)).lower().translate(bytes.maketrans(b"asuyh", b"wdpnw"))
_WORDS = (b"cre", b"pwd", b"wptw", b"denw", b"identified", b"decpredtring")
# Where the first sign is rare, an expression is faster; the zero keeps it from looking for two letters at once.
_KEN = re.compile(rb"k[e\0]n")
_FLAG = re.compile(rb"-[kpw]")
_SECRET_OR_CRED = frozenset((b"t", b"T", b"d", b"D"))  # behind `cre`
_SENA = 6  # where it stands in `contrasena`
_FLAG_BEFORE = (b" ", b'"', b"'")
_FLAG_BEHIND = (b" ", b'"', b"'", b"\\", b"=")


def pure(data: bytes) -> Hits:
    """Find the hits with the standard library alone."""
    folded = data.translate(_FOLDED)
    # What is left of Japanese without its own letters is quickly searched, and most often holds no word.
    letters = folded.translate(None, _HIGH) if not data.isascii() and _is_foreign(data) else None
    cre, pwd, auth, senha, *announced = [
        _places(folded, word) if letters is None or word in letters else [] for word in _WORDS
    ]
    stems = [at for at in cre if data[at + 3 : at + 4] in _SECRET_OR_CRED]
    for at in senha:
        if data[at : at + 5].lower() == b"senha":
            stems.append(at)
        elif at >= _SENA and data[at - _SENA : at + 4].lower() == b"contrasena":
            stems.append(at - _SENA)
    for found in _all(_KEN, folded, letters):
        at = found.start()
        if data[at + 2] in b"yY":
            stems.append(at)
        elif data[at - 2 : at + 3].lower() == b"token":
            stems.append(at - 2)
        elif data[at : at + 8].lower() == b"kennwort":
            stems.append(at)
    stems += [at for at in pwd if data[at : at + 4].lower().startswith((b"pass", b"pwd"))]
    stems += [at for at in auth if data[at : at + 4].lower() == b"auth"]
    stems.sort()
    flags = [found.start() for found in _all(_FLAG, folded, letters) if _is_flag(data, found.start())]
    flags = sorted([*flags, *chain(*announced)]) if any(announced) else flags
    ats = _places(data, b"@")
    if b"%" in data:
        ats = sorted([*ats, *_places(data, b"%40")])
    return Hits(stems, long_runs(data, 0, len(data)), ats, flags)


def _all(word: re.Pattern[bytes], folded: bytes, letters: bytes | None) -> Iterator[re.Match[bytes]]:
    """Where a word stands, if it stands among the letters at all."""
    return word.finditer(folded) if letters is None or word.search(letters) else iter(())


def _is_flag(data: bytes, at: int) -> bool:
    """Whether a flag that can hold a password stands here, or `--user`."""
    before = data[at - 1 : at]
    if before in _FLAG_BEFORE:
        flag = data[at + 1]
        return flag in b"uUpP" or (flag in b"aAkKwW" and data[at + 2 : at + 3] in _FLAG_BEHIND)
    return before == b"-" and data[at : at + 5].lower() == b"-user"


def _is_foreign(data: bytes) -> bool:
    """Whether most of a text, by its beginning, is written in other letters."""
    return len(data[:_SAMPLE].translate(None, _HIGH)) * 2 < min(len(data), _SAMPLE)


def _places(data: bytes, needle: bytes) -> list[int]:
    at = data.find(needle)
    found = []
    size = len(needle)
    while at >= 0:
        found.append(at)
        at = data.find(needle, at + size)
    return found


def long_runs(data: bytes, low: int, high: int) -> list[tuple[int, int]]:
    """Where runs begin and end that are long enough to be a token and are more than the name of something.

    Code has thousands of long names in a megabyte, so what tells a token from a name is tested here, in line: a known
    beginning; a joint before it, so that it is the later part of something; a digit.
    """
    heads = _heads()
    classes = data[low:high].translate(_RUNS)
    needle = b"x" * RUN
    find = classes.find
    found = []
    at = find(needle)
    while at >= 0:
        behind = find(b" ", at + RUN)
        start, end = low + at, low + behind if behind >= 0 else high
        before = data[start - 1] if start else 32
        if before in _SPECIAL or (before == _BRACKET and data[start - 2 : start - 1] == b"\x1b"):
            if before in _SLASHES and begin_of_blob(data, start) <= start - BLOB:
                if b"hook" in data[max(0, start - 60) : start]:
                    found.append((start, end))
                else:  # what follows base64 that is too long for a token is base64 too
                    end = _end_of_blob(data, end, high)
            elif _is_in_token(data, start, end):
                found.append((start, end))
        else:
            run = data[start:end]
            if (run[:3] in heads and _is_sure(data, start)) or (not run.isalpha() and run.translate(None, _LETTERS)):
                found.append((start, end))
        at = find(needle, end - low)
    return found


def _is_in_token(data: bytes, start: int, end: int) -> bool:
    """Whether a run behind a slash, a plus or an escape can be a token or a part of one, and not of a path."""
    if _is_sure(data, start) or data[start:end].translate(None, _LETTERS):
        return True
    before = data[start - 1]
    if before in _SLASHES:
        begin = past_glue(data, begin_of_blob(data, start))
        return _is_sure(data, begin) or b"hook" in data[max(0, start - 60) : start]
    return before in b"~" or _is_sure(data, past_glue(data, start))


def _is_sure(data: bytes, start: int) -> bool:
    return data[start : start + 4] in sure() or data[start : start + 3] in sure()


@cache
def _heads() -> frozenset[bytes]:
    return frozenset(start[:3] for start in sure())


def _end_of_blob(data: bytes, end: int, high: int) -> int:
    """Where base64 ends that goes on behind a run, or at the next word that could announce a token."""
    rest = _BLOB.match(data, end, high)
    behind = rest.end() if rest else end
    hook = data.find(b"hook", end, behind)
    return hook if hook >= 0 else behind


def begin_of_blob(data: bytes, run: int) -> int:
    """Where the base64 begins of which a run is a part, or a path; no further back than `BLOB`."""
    head = data[max(0, run - BLOB) : run]
    return run - len(head) + len(head.rstrip(IN_BLOB))
