"""Find the places in a text where a secret could be. Most text has none and is done after a few passes at C speed.

The prefilter only points; the detectors decide. It may point too often, but never too rarely. It works on UTF-8 bytes:
there is one kind of offset, and `bytes.find` is fast.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import product
from operator import methodcaller
from typing import NamedTuple

from orihon.redaction.detect_tokens import (
    MAX_BLOB,
    RUN_BYTES,
    SLASHES,
    SURE_STARTS,
    Span,
    find_blob_start,
    is_in_path,
    is_sure,
)
from orihon.redaction.escapes import skip_escape

# Each search for a word is a pass over the text. In this alphabet a, d, k, s, u and w are one letter, and so are e and
# t; h, n and y. Therefore one pass finds `pass`, `psk` and `pwd`, and one finds `key`, `token`, `auth`, `senha`,
# `contrasena` and `identified`.
_FOLDED = bytes(range(256)).lower().translate(bytes.maketrans(b"adsuwthn", b"kkkkkeyy"))
_NEEDLES = (b"cre", b"pkk", b"key")
# The three bytes that are found, in capitals or not, and whether they are enough; otherwise the expression decides.
_HEADS = {
    bytes(cased): head in (b"key", b"pwd", b"psk")
    for head in (b"cre", b"pas", b"pwd", b"psk", b"key", b"ken", b"uth", b"sen", b"den")
    for cased in product(*zip(head, head.upper(), strict=True))
}
_STEM = re.compile(rb"(?i)cre[dt]|pass|(?<=to)ken|kennwort|(?<=a)uth|senha|(?<=contra)sena|(?<=i)dentified")
_OFFSETS = {b"ken": 2, b"uth": 1, b"sena": 6, b"dentified": 1}  # of what is found, in its word
_FLAG = re.compile(rb"-[kp]")
_COLON = re.compile(
    rb":(?:(?:\d{4,5}|\*):[\w*.-]{1,60}:[\w*.-]{1,60}:[^\s:]|//hooks?\.)"
)  # a line of .pgpass, a webhook
_get_start = methodcaller("start")
_BEFORE_FLAG = (b" ", b'"', b"'")
_AFTER_FLAG = (b" ", b'"', b"'", b"\\", b"=")

_RUN = 13  # bytes of the shortest token that is recognisable on its own
_CLASSES = bytes(120 if byte in RUN_BYTES else 32 for byte in range(256))  # x for the bytes of runs, else a space
_LONG_RUN = b"x" * _RUN
_RULER = b"---"
# Tokens that can lack a digit. Behind a name, nothing else points to them.
_LETTER_TOKEN = re.compile(rb"(?<=[_-])(?:hf_|api_org_|gh[oprsu]_|glpat-|tskey-|npm_|sk-ant-|[rs]k_live_)")
_TO_DIGIT = re.compile(rb"[A-Za-z_-]*+[0-9]")
_BLOB = re.compile(rb"[A-Za-z0-9+/]*")
_JOINTS = SLASHES | frozenset(b"\\%~\x1b\x9b")  # before a run: it begins with an escape, or continues something
_JOINTS_AND_BRACKET = _JOINTS | {ord("(")}  # ESC ( B selects a character set

_ASCII, _HIGH = bytes(range(128)), bytes(range(128, 256))
_SAMPLE = 256  # bytes that show the script of a text
# Words for a password, a key or a token, each with its mask, by a letter of theirs that is found quickly.
_FOREIGN = [
    (letter, [(word.encode(), mask) for word in words.split()])
    for letter, words, mask in (
        ("ワ", "パスワード", b"PASSWORD"),
        ("码", "密码", b"PASSWORD"),
        ("호", "비밀번호", b"PASSWORD"),
        ("л", "пароль Пароль", b"PASSWORD"),
        ("ñ", "contraseña Contraseña", b"PASSWORD"),
        ("キ", "キー", b"API_KEY"),
        ("ク", "トークン", b"TOKEN"),
    )
]
# The same words as JSON has them, and the first escape of each.
_ESCAPED = [(json.dumps(word.decode())[1:-1].encode(), mask) for _, words in _FOREIGN for word, mask in words]
_ESCAPED_LETTER = re.compile(rb"\\u(?:" + b"|".join({word.partition(b"\\u")[2][:4] for word, _ in _ESCAPED}) + rb")")


class Hits(NamedTuple):
    """Places to examine, each list in rising order."""

    stems: list[int]  # where a word begins that could name a secret
    runs: list[tuple[int, int]]  # long runs of letters, digits, _ and -
    ats: list[int]  # each @, also as %40
    flags: list[int]  # each flag or word of a command that announces a password
    known: list[Span]  # values that are known to be secret


def scan_text(text: str, data: bytes) -> tuple[list[tuple[bytes, bytes]], bool]:
    """Return the foreign words for passwords and tokens that a text may contain, and whether it has terminal codes."""
    found: list[tuple[bytes, bytes]] = []
    for letter, words in _FOREIGN:
        if letter in text:
            found += words
    if "\\u" in text and _ESCAPED_LETTER.search(data):
        found += [(word, mask) for word, mask in _ESCAPED if word in data]
    return found, "\x1b" in text or "\x9b" in text


def scan(data: bytes, known: Sequence[bytes] = ()) -> Hits | None:  # noqa: C901, PLR0912 - plain loops: each call costs
    """Return the places where a secret could be; None if there are none. `known` are values to search for."""
    stems: list[int] = []
    flags: list[int] = []
    ats: list[int] = []
    values: list[Span] = []
    rest = folded = data.translate(_FOLDED)
    if not data.isascii() and len(data[:_SAMPLE].translate(None, _HIGH)) * 2 < min(len(data), _SAMPLE):
        rest = folded.translate(None, _HIGH)  # Japanese: without its own letters it is short, and has none of the words
    find, find_head = folded.find, _HEADS.get
    for needle in _NEEDLES:
        at = find(needle) if rest is folded or needle in rest else -1
        while at >= 0:
            enough = find_head(data[at : at + 3])
            if enough:
                stems.append(at)
            elif enough is False and (stem := _STEM.match(data, at)):
                word = stem.group().lower()
                (flags if word == b"dentified" else stems).append(at - _OFFSETS.get(word, 0))
            at = find(needle, at + 1)
    for flag in _FLAG.finditer(folded if b"-" in rest else b""):
        at = flag.start()
        before, letter = data[at - 1 : at], data[at + 1]
        if letter in b"sS":
            if data[at + 1 : at + 13].lower() == b"securestring":
                flags.append(at + 1)
            elif letter in b"S" and data[at - 5 : at] == b"sudo ":
                flags.append(at)
        elif before in _BEFORE_FLAG:
            if letter in b"uUpP" or (letter in b"aAkKwW" and data[at + 2 : at + 3] in _AFTER_FLAG):
                flags.append(at)
        elif before == b"-" and data[at : at + 5].lower() == b"-user":
            flags.append(at)
    flags += map(_get_start, _COLON.finditer(data))
    for sign in (b"@", b"%40") if b"%" in data else (b"@",):
        at = data.find(sign)
        while at >= 0:
            ats.append(at)
            at = data.find(sign, at + 1)
    for value in known:
        at = data.find(value)
        while at >= 0:
            values.append((at, at + len(value), b"SECRET"))
            at = data.find(value, at + len(value))
    runs = _find_runs(data)
    if not (stems or runs or ats or flags or values):
        return None
    stems.sort()
    ats.sort()
    flags.sort()
    return Hits(stems, runs, ats, flags, values)


def _find_runs(data: bytes) -> list[tuple[int, int]]:
    """Return the runs that are long enough to be a token and are more than a name.

    A megabyte of code has thousands of long names, so what tells a token from a name is tested here: a digit, a known
    beginning, or a sign before it that makes it the later part of something.
    """
    runs: list[tuple[int, int]] = []
    classes = data.translate(_CLASSES)
    find, find_digit = classes.find, _TO_DIGIT.match
    joints = _JOINTS_AND_BRACKET if b"\x1b" in data else _JOINTS
    start, end = find(_LONG_RUN), -1
    while start >= 0:
        if start == end:  # a name that continues
            end = find(b" ", start + _RUN)
            end = len(data) if end < 0 else end
            if token := _LETTER_TOKEN.search(data, start - _RUN, end):
                runs.append((token.start(), end))
        elif data[start - 1] in joints and start:
            end = find(b" ", start + _RUN)
            end = _examine_joined(data, start, len(data) if end < 0 else end, runs)
        elif find_digit(data, start) or (data[start : start + 3] in SURE_STARTS and is_sure(data, start)):
            end = find(b" ", start + _RUN)
            end = len(data) if end < 0 else end
            runs.append((start, end))
        else:
            end = start + _RUN  # a name
        start = find(_LONG_RUN, end)
    return runs


def _examine_joined(data: bytes, start: int, end: int, runs: list[tuple[int, int]]) -> int:
    """Add a run behind a slash, a plus or an escape, unless it is a part of a path. Return where to continue."""
    if data.startswith(_RULER, start):
        return end
    begin, before, digit = start, data[start - 1], bool(_TO_DIGIT.match(data, start))
    if before in SLASHES:
        begin = find_blob_start(data, start)
        hook = b"hook" in data[max(0, start - 60) : start]
        if begin <= start - MAX_BLOB and not (hook or is_sure(data, start) or is_in_path(data, start)):
            return _find_blob_end(data, end)  # base64 that is too long for a token
        digit = digit or hook
    if digit or before in b"~" or is_sure(data, start) or is_sure(data, skip_escape(data, begin)):
        runs.append((start, end))
    return end


def _find_blob_end(data: bytes, end: int) -> int:
    """Return where base64 ends that continues behind a run, or the next word that could announce a token.

    Base64 with slashes has no `_` and no `-`. If such a sign ends it, a token may begin behind its last slash.
    """
    blob = _BLOB.match(data, end)
    blob_end = blob.end() if blob else end
    hook = data.find(b"hook", end, blob_end)
    if hook >= 0:
        return hook
    if data[blob_end : blob_end + 1] in (b"_", b"-"):
        return max(data.rfind(b"/", end, blob_end), data.rfind(b"+", end, blob_end), end - 1) + 1
    return blob_end
