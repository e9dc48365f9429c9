"""Passwords on command lines that no name announces: `curl -u`, `mysql -p`, `sshpass`, and those of SQL.

A command line stands in a text as people type it, or as a list of words in JSON: `["curl", "-u", "user:…"]`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from orihon.redaction.names import Kind
from orihon.redaction.values import Place, is_placeholder, is_secret, looks_random

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orihon.redaction.find import Span


def _commands(names: bytes) -> re.Pattern[bytes]:
    """The names of commands where a command can stand, with a space or the quote of a list behind them."""
    return re.compile(rb"(?i)(?:^|[\s;|&\"'`(/$])(?:" + names + rb")(?:\.exe)?(?:\s|\\{0,3}[\"'],)")


# A command, its flag, and what the flag holds. The command stands before the flag on the same line.
_USER = _commands(rb"curl|wget|https?|xhs?|httpie|svn|mongosh?|lftp")
_GLUED = _commands(rb"mysql\w*|mariadb[\w-]*|7za?|rar|unrar")
_SPACED = _commands(
    rb"sshpass|sqlcmd|bcp|unzip|zip|mosquitto_\w+|mongo\w*|influx|cqlsh|vncpasswd|useradd|usermod|"
    rb"(?:docker|podman|nerdctl|helm|oras|crane|az|buildah|skopeo|npm|oc|registry|cf)\b[^\n]{0,120}?\blogin"
)
_HOLDING = {
    b"-a": _commands(rb"(?:redis|valkey|keydb)-(?:cli|benchmark)"),
    b"-w": _commands(rb"ldap(?:search|add|modify|delete|compare|passwd|whoami|modrdn|exop)"),
    b"-k": _commands(rb"openssl"),
}
_JSON = rb"(?:\\{0,3}[\"'],\s{0,40})?"  # the end of one word of a list and the beginning of the next
_PAIR = re.compile(
    rb"(?:-u|-a|--user)" + _JSON + rb"[ =]?[ \t]{0,4}"
    rb"(?P<pair>\\?(?P<quote>[\"'])(?P<inner>[^\"'\\\n]{1,200})\\?(?P=quote)(?::\\?[\"'][^\"'\\\s,]{1,200}\\?[\"'])?|"
    rb"[^\s\"'\\]{1,200}(?:(?<=:)(?:\"[^\"\s,]{1,200}\"|'[^'\s,]{1,200}'))?)"
)
_AFTER_GLUED = re.compile(rb"-[pP](?:\\?[\"'])?(?P<value>[^\s\"'\\`]{1,200})")
_AFTER_SPACED = re.compile(rb"-[pPwak]" + _JSON + rb"[ \t=]{0,4}(?:\\{0,3}[\"'])?(?P<value>[^\s\"'\\`]{1,200})")
_SPACE = frozenset((b" ", b"\t", b"=", b'"', b"'", b"\\"))
_IDENTIFIED = re.compile(
    rb"(?i)identified\s{1,8}(?:with\s{1,8}\S{1,40}\s{1,8})?(?:by|as)\s{1,8}(?:password\s{1,8})?"
    rb"\\?(?P<quote>[\"'])(?P<value>[^\"'\\\n]{1,200})\\?(?P=quote)"
)
_ACCOUNT = re.compile(rb"(?i)\b(?:user|role|grant|to|login|account)\b")
_SECURE = re.compile(
    rb"(?i)securestring(?:[ \t]+-(?:string|asplaintext|force))*[ \t]+\(?[ \t]*\\?(?P<quote>[\"'])"
    rb"(?P<value>[^\"'\\\n]{1,200})\\?(?P=quote)"
)
_ECHOED_PAIR = re.compile(
    rb"\b(?:echo|printf)[ \t]+(?:-\w+[ \t]+)?[\"']?[\w.@-]{1,60}:(?P<value>[^\s\"'|\\:]{1,200})(?:\\n)?"
    rb"[\"']?[ \t]*\|[^\n|]{0,60}$"
)
_WRITTEN = re.compile(
    rb"htpasswd(?:\.exe)?[ \t]{1,8}-(?=\w*b)(?P<flags>\w{1,8})(?:[ \t]{1,8}-\w{1,9}(?:[ \t]{1,8}\d{1,3})?){0,4}"
    rb"(?P<words>(?:[ \t]{1,8}[^\s\"'`|;&]{1,200}){2,3})"
)
_SETS = re.compile(rb"(?i)secrets?[ \t]+(?:set|put|add|create)\b|secret[ \t]+generic\b|secret/[\w./-]{1,80}[ \t]")
_GIVEN = re.compile(
    rb"[ \t](?:--body[= \t]|-b[ \t]|--value[= \t]|--from-literal[= \t][\"']?[\w.-]{1,80}=|[A-Za-z_][\w.-]{0,80}=)"
    rb"[ \t]{0,4}\\?[\"']?(?P<value>[^\s\"'\\`]{1,200})"
)
_REST = re.compile(rb"(?:[^\n|;&]|\\\n){0,400}")
_WRITERS = (b"ch", b"ht")
_LINE = 300  # how far before a flag its command stands
_SHORTEST = 6


def on_lines(data: bytes, flags: list[int]) -> Iterator[Span]:
    """Passwords behind the flags and words that the gate saw."""
    for flag in flags:
        if span := _behind(data, flag, data[flag : flag + 2].lower()):
            yield span


def _behind(data: bytes, flag: int, first: bytes) -> Span | None:
    if first == b"-p":
        return _password(data, flag)
    if first == b"-u":
        return _pair(data, flag - 1 if data[flag - 1 : flag] == b"-" else flag)
    if first in _HOLDING:
        span = _by(_AFTER_SPACED, data, flag)
        if span and _command(data, flag, _HOLDING[first]):
            return span
        return _pair(data, flag) if first == b"-a" else None
    if first == b"se":
        return _by(_SECURE, data, flag)
    return _by(_IDENTIFIED, data, flag) if _ACCOUNT.search(data, max(0, flag - 120), flag) else None


def named(data: bytes, stems: list[int]) -> Iterator[Span]:
    """The values that a command stores as secrets: `gh secret set`, `kubectl create secret`, `vault kv put`."""
    done = 0
    for stem in stems:
        if stem >= done and data[stem - 2 : stem + 4] == b"secret" and _SETS.match(data, stem - 2):
            rest = _REST.match(data, stem)
            done = rest.end() if rest else stem
            for given in _GIVEN.finditer(data, stem, done):
                if _is_password(given["value"]):
                    yield *given.span("value"), b"SECRET"


def written(data: bytes, stems: list[int]) -> Iterator[Span]:
    """The passwords that `chpasswd` and `htpasswd` write."""
    for stem in stems:
        if data[stem - 2 : stem] in _WRITERS and data[stem : stem + 6] == b"passwd":
            span = _by(_ECHOED_PAIR, data, stem) if data[stem - 2] in b"c" else _written(data, stem - 2)
            if span:
                yield span


def _written(data: bytes, start: int) -> Span | None:
    """The password that `htpasswd -b file user password` is given; with -n there is no file."""
    found = _WRITTEN.match(data, start)
    words = found["words"].split() if found else []
    if not found or len(words) < (2 if b"n" in found["flags"] else 3):
        return None
    last = words[1] if b"n" in found["flags"] else words[2]
    end = data.index(last, found.start("words") + sum(len(word) + 1 for word in words[:1])) + len(last)
    return (end - len(last), end, b"PASSWORD") if _is_password(last) else None


def _command(data: bytes, flag: int, commands: re.Pattern[bytes]) -> bool:
    """Whether one of the commands stands before a flag on its line; a backslash joins lines, and a list goes on."""
    quoted = data[flag - 1 : flag] in (b'"', b"'")
    if not quoted and not data[flag - 1 : flag].isspace():
        return False
    low = max(0, flag - _LINE)
    at = flag
    while True:
        line = data.rfind(b"\n", low, at)
        if line < 0 or data[line - 1 : line] not in ((b"\\", b",") if quoted else (b"\\",)):
            break
        at = line
    return bool(commands.search(data, max(low, line), flag))


def _pair(data: bytes, flag: int) -> Span | None:
    found = _PAIR.match(data, flag)
    if not found or b":" not in found["pair"] or not _command(data, flag, _USER):
        return None
    user, _, password = found["pair"].translate(None, b"\"'\\").partition(b":")
    secret = (password or user).strip(b"<>")
    if secret[:1] == b"{" and secret[:2] != b"{{":
        secret = secret.strip(b"{}")
    odd = not secret.isalpha() or looks_random(secret, least=12)
    if len(secret) < _SHORTEST or not odd or is_placeholder(secret):
        return None
    whole = "pair" if not found["inner"] or b":" not in found["inner"] else "inner"
    return (*found.span(whole), b"PASSWORD")


def _password(data: bytes, flag: int) -> Span | None:
    glued = data[flag + 2 : flag + 3] not in _SPACE
    span = _by(_AFTER_GLUED if glued else _AFTER_SPACED, data, flag)
    if span and ((glued and _command(data, flag, _GLUED)) or _command(data, flag, _SPACED)):
        return span
    return None


def _by(expression: re.Pattern[bytes], data: bytes, at: int) -> Span | None:
    """What an expression finds behind a place, or before it, if it is a password."""
    if expression.pattern.endswith(b"$"):
        found = expression.search(data, max(0, at - _LINE), at)
    else:
        found = expression.match(data, at)
    return (*found.span("value"), b"PASSWORD") if found and _is_password(found["value"]) else None


def _is_password(value: bytes) -> bool:
    return not value.isdigit() and is_secret(value, Kind.PASSWORD, quoted=True, place=Place.DATA)
