"""What stands around an @: a mail address, the password of a URL, or neither."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from orihon.redaction import urls
from orihon.redaction.escapes import past_glue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orihon.redaction.find import Span

_LOCAL = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.+"
_LOCAL_SIGNS = _LOCAL.decode()
_DOMAIN = re.compile(
    rb"(?:[A-Za-z0-9\x80-\xff](?:[A-Za-z0-9\x80-\xff-]{0,62})\.){1,8}"
    rb"(?P<top>[A-Za-z]{2,24}|xn--[a-z0-9-]{2,40})(?![\w(-])(?P<remote>:[\w~./]|/)?"
)
# File names such as icon@2x.png and units such as getty@tty1.service have the shape of an address.
_NOT_TOP = frozenset(
    b"png jpg jpeg gif svg webp ico js mjs cjs ts tsx jsx css json lock html pdf dist whl gz tgz zip service socket "
    b"target timer mount dot reshape sum mean yml yaml toml xml txt csv log conf cfg java cpp hpp ipynb map wasm "
    b"scss less".split()
)
# The letters of Japanese, Chinese and Korean, in classes: a name in front of an @ does not change its class.
_SCRIPTS = (
    (0x3041, 0x309F, "hiragana"),
    (0x30A0, 0x30FF, "katakana"),
    (0x3400, 0x9FFF, "han"),
    (0xAC00, 0xD7A3, "hangul"),
    (0x00C0, 0x024F, "latin"),
    (0x0370, 0x052F, "greek"),
)
_FARTHEST = 64


def around(data: bytes, ats: list[int]) -> Iterator[Span]:
    """Passwords in URLs, and addresses."""
    done = 0
    for at in ats:
        if at < done:
            continue
        first = urls.before(data, at)
        if first >= 0:
            span, done = urls.credentials(data, first, at)
        else:
            span = urls.behind_slash(data, at) or _address(data, at)
        if span:
            yield span


def _address(data: bytes, at: int) -> Span | None:
    width = 1 if data[at : at + 1] == b"@" else 3
    found = _DOMAIN.match(data, at + width)
    if not found or found["top"].lower() in _NOT_TOP or found["remote"]:
        return None
    first = _begin_of_domain(data, at + width, found.start("top"))
    start = _begin_of_local(data, at)
    local = data[start:at].lstrip(b".-+_")
    if first is None or not local or local == b"git" or data[start - 1 : start] in (b"/", b"@", b"$", b"{"):
        return None
    return at - len(local), found.end("top"), b"EMAIL"


def _begin_of_domain(data: bytes, first: int, last: int) -> int | None:
    """Check a domain with other letters: they are letters, not the signs of a sentence."""
    name = data[first:last]
    if name.isascii():
        return first
    text = name.decode("utf-8", "replace")
    return first if all(sign.isalnum() or sign in "-.ー" for sign in text) else None


def _begin_of_local(data: bytes, at: int) -> int:
    """Where the part before an @ begins: behind an escape, and with letters of one script at most."""
    head = data[max(0, at - _FARTHEST) : at]
    start = at - len(head) + len(head.rstrip(_LOCAL))
    if start and data[start - 1] >= 0x80:  # noqa: PLR2004 - not ASCII
        start = _begin_of_letters(data, start)
    return min(past_glue(data, start), at)


def _begin_of_letters(data: bytes, end: int) -> int:
    """Where letters of other scripts begin that stand before a place; Japanese does not set words apart."""
    low = max(0, end - _FARTHEST)
    while low < end and data[low] & 0xC0 == 0x80:  # noqa: PLR2004 - not where a letter begins
        low += 1
    text = data[low:end].decode("utf-8", "surrogatepass")
    script = _script(text[-1])
    size = 0
    for sign in reversed(text):
        if not script or (_script(sign) != script and not (script == "latin" and sign in _LOCAL_SIGNS)):
            break
        size += len(sign.encode("utf-8", "surrogatepass"))
    return end - size


def _script(sign: str) -> str:
    point = ord(sign)
    return next((name for low, high, name in _SCRIPTS if low <= point <= high), "")
