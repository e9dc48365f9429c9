"""Passwords in URLs. A connection string is one credential: where the database is belongs to it too."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from orihon.redaction.values import is_placeholder, is_template, looks_random

if TYPE_CHECKING:
    from orihon.redaction.find import Span

_DATABASE = re.compile(
    rb"(?:jdbc:)?(?:mongodb|mysql|mariadb|postgres|postgresql|redis|rediss|amqps?|mssql|sqlserver|oracle(?::thin)?|"
    rb"cockroachdb|clickhouse|snowflake|cassandra|neo4j|couchbase|db2|presto|trino)(?:\+\w+)?:(?:@?//)$"
)
_HOST = re.compile(rb"[^\s\"'<>/?#`\\();,]{0,300}")
_REST = re.compile(rb"[^\s\"'<>`\\;]*")
_HEX_USER = re.compile(rb"[0-9a-f]{8,}")
_ORACLE = re.compile(
    rb"(?i)(?:jdbc:oracle:(?:thin|oci8?):|\b(?:sqlplus|sqlldr|sqlcl|expdp|impdp)(?:[ \t]+-\w+)*[ \t]+[\"']?)"
    rb"[\w$#.]{1,60}/(?P<value>[^\s\"'@/]{1,100})$"
)
_BREAKS = frozenset(b" \t\r\n\"'<>/?#`\\();,")
_TRAILING = b",.)]}"
_FARTHEST, _FARTHEST_SCHEME = 300, 24


def before(data: bytes, at: int) -> int:
    """Where the user of a URL begins whose @ stands here, or -1."""
    link = data.rfind(b"://", max(0, at - _FARTHEST), at)
    if link < 0:
        return -1
    if _BREAKS.isdisjoint(data[link + 3 : at]):
        return link + 3
    return link + 3 if _is_quoted_database(data, link + 3, at) else -1


def _is_quoted_database(data: bytes, first: int, at: int) -> bool:
    """Whether quotes hold a connection string together although its password has a space."""
    scheme = _DATABASE.search(data, max(0, first - _FARTHEST_SCHEME), first)
    sign = data[scheme.start() - 1 : scheme.start()] if scheme and scheme.start() else b""
    between = data[first:at]
    return sign in (b'"', b"'") and sign not in between and not any(byte in b"\n/<>\\" for byte in between)


def credentials(data: bytes, first: int, at: int) -> tuple[Span | None, int]:
    """The password between `//user:` and `@`; a password may hold an @ itself, so the last one counts."""
    host = _HOST.match(data, at + 1)
    end = host.end() if host else at
    last = data.rfind(b"@", at, end)
    user, colon, password = data[first:last].partition(b":")
    if colon and password and not is_template(password) and not _is_masked(password) and last + 1 < end + 1:
        if span := _connection(data, first, end):
            return span, span[1]
        keep = first if _HEX_USER.fullmatch(user) or looks_random(user, least=12) else first + len(user) + 1
        return (keep, last, b"PASSWORD"), end
    if not colon and looks_random(user, least=16) and not is_placeholder(user):
        return (first, last, b"TOKEN"), end
    return None, end


def behind_slash(data: bytes, at: int) -> Span | None:
    """The password of `user/password@`, as the tools of Oracle write it."""
    low = max(0, at - _FARTHEST)
    found = _ORACLE.search(data, low, at) if data.find(b"/", max(0, at - 101), at) >= 0 else None
    return (*found.span("value"), b"PASSWORD") if found and not is_placeholder(found["value"]) else None


def _is_masked(password: bytes) -> bool:
    return len(set(password)) == 1 and password[:1] in b"*x.X-"


def _connection(data: bytes, first: int, end: int) -> Span | None:
    """The whole of a connection string whose user begins here."""
    scheme = _DATABASE.search(data, max(0, first - _FARTHEST_SCHEME), first)
    if not scheme:
        return None
    rest = _REST.match(data, end, end + 2 * _FARTHEST)
    last = rest.end() if rest else end
    while data[last - 1] in _TRAILING and not _opens(data[scheme.start() : last], data[last - 1]):
        last -= 1
    return scheme.start(), last, b"DATABASE_URL"


def _opens(text: bytes, close: int) -> bool:
    """Whether a closing bracket belongs to the text before it."""
    pair = {41: 40, 93: 91, 125: 123}.get(close)
    return pair is not None and text.count(pair) >= text.count(close)


def connection_around(data: bytes, first: int, last: int) -> Span | None:
    """The connection string in which a password stands as a parameter, if it stands in one."""
    link = data.rfind(b"//", max(0, first - _FARTHEST), first)
    if link < 0 or any(byte in b" \t\r\n\"'<>`\\" for byte in data[link:first]):
        return None
    return _connection(data, link + 2, last)
