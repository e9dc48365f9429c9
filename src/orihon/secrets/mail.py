"""What stands around an @: a mail address, the password of a URL, or neither."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from orihon.secrets.values import is_placeholder, looks_random

if TYPE_CHECKING:
    from collections.abc import Iterator

Span = tuple[int, int, bytes]

_LOCAL = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.+"
_DOMAIN = re.compile(
    rb"(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,62})\.){1,8}(?P<top>[A-Za-z]{2,24})(?![\w(-])(?P<remote>:[\w~./]|/)?"
)
# File names such as icon@2x.png and units such as getty@tty1.service have the shape of an address.
_NOT_TOP = frozenset(
    b"png jpg jpeg gif svg webp ico js mjs ts tsx jsx css json lock html pdf dist whl gz zip service socket target "
    b"timer mount dot reshape sum mean".split()
)
_HEX_USER = re.compile(rb"[0-9a-f]{8,}")
# A connection string is one credential: where the database is belongs to it as much as the password does.
_DATABASE = re.compile(
    rb"(?:jdbc:)?(?:mongodb|mysql|mariadb|postgres|postgresql|redis|rediss|amqps?|mssql|sqlserver|oracle)(?:\+\w+)?://$"
)
_REST = re.compile(rb"[^\s\"'<>`\\();,]*")
_FARTHEST = 300


def around(data: bytes, ats: list[int]) -> Iterator[Span]:
    """Passwords in URLs, and addresses."""
    done = 0
    for at in ats:
        if at < done:
            continue
        link = data.rfind(b"://", max(0, at - _FARTHEST), at)
        if link >= 0 and not _breaks(data[link + 3 : at]):
            spans, done = _credentials(data, link + 3, at)
            yield from spans
        elif span := _address(data, at):
            yield span


def _breaks(between: bytes) -> bool:
    """Whether the part before an @ is not the userinfo of the URL before it."""
    return any(byte in b" \t\r\n\"'<>/?#`\\();," for byte in between)


def _credentials(data: bytes, first: int, at: int) -> tuple[list[Span], int]:
    """The password between `//user:` and `@`; a password may hold an @ itself, so the last one counts."""
    host = re.compile(rb"[^\s\"'<>/?#`\\();,]{0,300}").match(data, at + 1)
    end = host.end() if host else at
    last = data.rfind(b"@", at, end)
    user, colon, password = data[first:last].partition(b":")
    spans: list[Span] = []
    if colon and password and not is_placeholder(password) and last + 1 < end:
        if scheme := _DATABASE.search(data, max(0, first - 24), first):
            rest = _REST.match(data, end)
            return [(scheme.start(), rest.end() if rest else end, b"DATABASE_URL")], end
        keep = first + len(user) + 1
        if _HEX_USER.fullmatch(user) or looks_random(user, least=12):
            keep = first
        spans.append((keep, last, b"PASSWORD"))
    elif not colon and looks_random(user, least=16):
        spans.append((first, last, b"TOKEN"))
    return spans, end


def _address(data: bytes, at: int) -> Span | None:
    width = 1 if data[at : at + 1] == b"@" else 3
    found = _DOMAIN.match(data, at + width)
    if not found or found["top"].lower() in _NOT_TOP or found["remote"]:
        return None
    head = data[max(0, at - 64) : at]
    start = at - len(head) + len(head.rstrip(_LOCAL))
    if data[start - 1 : start] == b"\\" and data[start : start + 1] in (b"n", b"t", b"r"):
        start += 1
    local = data[start:at].lstrip(b".-+_")
    if not local or local == b"git" or data[start - 1 : start] in (b"/", b"@", b"$", b"{"):
        return None
    return at - len(local), found.end("top"), b"EMAIL"
