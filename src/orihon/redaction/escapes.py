"""Escapes and terminal codes that stand directly before a word, so that their last letters look like its first ones.

The text `\\nghp_…` has a run `nghp_…`, `%20hvs.…` has a run `20hvs`, and of `[32mDB_PASSWORD` only `[` is no letter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

# What terminals take for a command: ESC and what follows it, and the same with one character for ESC [.
CODE = re.compile(
    rb"(?:\x1b\[|\xc2\x9b)[0-?]{0,40}[ -/]{0,4}[@-~]"
    rb"|\x1bP[0-9;]{0,20}[ -/]{0,4}[@-~]"
    rb"|\x1b[ -/]{0,4}[0-Z\\^-~]"
)
GLUES = frozenset(b"\\%[;:(\x1b\x9b")  # what stands before the letters of an escape or of a code
_RAW = frozenset(b"[;:(\x1b\x9b")
_ESCAPE = re.compile(rb"u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|x[0-9a-fA-F]{2}|0[0-7]{2}|[abefnrtv0]")
_PERCENT = re.compile(rb"[0-9a-fA-F]{2}")
# An escape that begins a code without a bracket of its own, or is the bracket or the semicolon of one.
_INTRODUCES = frozenset((b"x9b", b"u009b", b"9b", b"5b", b"3b"))
_COLOUR = re.compile(rb"(?:\d{1,3};)*\d{0,3}[mK]")
_COLOUR_BEFORE = re.compile(rb"(?i)(?:\[|\\x9b|\\u009b|%9b)[0-9;]{0,20}$")
_FARTHEST = 48


def behind_glue(data: bytes, at: int) -> Iterator[int]:
    """Where a word may begin instead of here, when the first of its letters belong to an escape or to a code."""
    sign = data[at - 1] if at else 32
    if sign in _RAW:
        if (end := _end_of_code(data, at)) > at:
            yield end
        elif (colour := _COLOUR.match(data, at)) and _COLOUR_BEFORE.search(data, max(0, at - _FARTHEST), at):
            yield colour.end()
    elif escape := (_ESCAPE if sign in b"\\" else _PERCENT).match(data, at):
        yield escape.end()
        if escape.group().lower() in _INTRODUCES and (colour := _COLOUR.match(data, escape.end())):
            yield colour.end()


def _end_of_code(data: bytes, at: int) -> int:
    """Where a raw code ends that began before this place."""
    low = max(0, at - _FARTHEST)
    begin = max(data.rfind(b"\x1b", low, at), data.rfind(b"\xc2\x9b", low, at))
    code = CODE.match(data, begin) if begin >= 0 else None
    return code.end() if code else -1


def past_glue(data: bytes, at: int) -> int:
    """The last of these places, or this one."""
    return max(behind_glue(data, at), default=at) if at and data[at - 1] in GLUES else at
