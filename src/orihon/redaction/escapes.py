"""Terminal codes and escapes, whose letters stand directly before a word and hide where it begins."""

from __future__ import annotations

import re

# Control sequences of terminals: ESC and its parameters, or the single character for ESC [.
TERMINAL_CODE = re.compile(
    rb"\x1b\[[0-?]{0,40}[ -/]{0,4}[@-~]|\x1bP[0-9;]{0,20}[ -/]{0,4}[@-~]"
    rb"|\xc2\x9b[0-?]{0,40}[ !#-/]{0,4}[@-\[\]-~]"  # may stand in a JSON string, so no quote and no backslash
    rb"|\x1b[ -/]{0,4}[0-Z\\^-~]"
)
ESCAPE_SIGNS = frozenset(b"\\%[;:(\x1b\x9b")  # what stands before the letters of an escape or of a terminal code
_CODE_SIGNS = frozenset(b"[;:(\x1b\x9b")
_MAX_CODE = 48
_ESCAPE = re.compile(rb"u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|x[0-9a-fA-F]{2}|0[0-7]{2}|[abefnrtv0]")
_PERCENT = re.compile(rb"[0-9a-fA-F]{2}")
# Escapes that begin a terminal code without a bracket, or that are its bracket or its semicolon.
_INTRODUCERS = frozenset((b"x9b", b"u009b", b"9b", b"5b", b"3b"))
_COLOUR = re.compile(rb"(?:\d{1,3};)*\d{0,3}[mK]")
_COLOUR_BEFORE = re.compile(rb"(?i)(?:\[|\\x9b|\\u009b|%9b)[0-9;]{0,20}$")


def skip_escape(data: bytes, at: int) -> int:
    """Return where a word begins if its first letters may belong to an escape or a terminal code; else `at`."""
    starts = find_word_starts(data, at) if at and data[at - 1] in ESCAPE_SIGNS else ()
    return starts[0] if starts else at


def find_word_starts(data: bytes, at: int) -> list[int]:
    """Return where a word may begin instead of at `at`, the farthest first.

    The text `\\nghp_…` has a run `nghp_…`, `%20hvs.…` a run `20hvs`, and in `[32mDB_PASSWORD` only `[` is no letter.
    """
    sign = data[at - 1] if at else 32
    if sign in _CODE_SIGNS:
        low = max(0, at - _MAX_CODE)
        begin = max(data.rfind(b"\x1b", low, at), data.rfind(b"\xc2\x9b", low, at))
        code = TERMINAL_CODE.match(data, begin) if begin >= 0 else None
        if code and code.end() > at:
            return [code.end()]
        colour = _COLOUR.match(data, at)
        return [colour.end()] if colour and _COLOUR_BEFORE.search(data, low, at) else []
    escape = (_ESCAPE if sign in b"\\" else _PERCENT).match(data, at)
    if not escape:
        return []
    colour = _COLOUR.match(data, escape.end()) if escape.group().lower() in _INTRODUCERS else None
    return [colour.end(), escape.end()] if colour else [escape.end()]
