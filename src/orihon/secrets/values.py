"""Does a value look like a secret, given how much its name already said?

The hard part is not to find random strings, it is to leave alone everything that only stands where a secret could
stand: variables, templates, placeholders, words, calls, paths, versions. All expressions are linear in the value.
"""

from __future__ import annotations

import re

from orihon.secrets.names import Kind

_ALNUM = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789")
_HEX = re.compile(rb"[0-9a-fA-F]{20,}")
_UUID = re.compile(rb"[0-9a-zA-Z]{8}(?:-[0-9a-zA-Z]{4}){3}-[0-9a-zA-Z]{12}")
_OPAQUE = re.compile(rb"[\w+/=.~:@!#$%^&*|?-]+")
_CHUNK = re.compile(rb"[A-Z]?[a-z]+|[A-Z]+|\d+")
_HARSH = re.compile(rb"(?i)[b-df-hj-np-tv-xz]{5}|[a-z]\d+[a-z]+\d")  # no word has five consonants or scattered digits

_IDENTIFIER = re.compile(rb"[A-Za-z_]*[A-Z_]\w*")
_CALL = re.compile(rb"[A-Za-z_$][\w$]*(?:(?:\.|::|->|\?\.)[A-Za-z_]\w*)*[\[({].*", re.DOTALL)
_ATTRIBUTE = re.compile(rb"[A-Za-z_]\w*(?:(?:\.|::|->)[A-Za-z_]\w*)+")
_PLACE = re.compile(
    rb"[/~.]{0,2}(?:[\w.-]*/)+[\w.*-]*|[A-Za-z]:\\.*|[a-z][a-z0-9+]*://.*|arn:.*|(?:[\w-]+\.)+[a-z]{2,6}(?::\d+)?(?:/.*)?",
    re.DOTALL,
)
_BASE64 = re.compile(rb"(?=.*[A-Z])(?=.*[a-z])(?=.*[0-9])[A-Za-z0-9+/]+=*")
_TEMPLATE = re.compile(
    rb"""
      \$[\w({%].{0,200} | @?\{\{.* | <[^>]*>?.? | %[({%\w]\w*[)}%]?\w? | \#\{.* | \\?\(.*    # wholly a variable
    | [\w\ /:@.,=-]*\$?\{\{?[^{}]{0,99}\}\}?[\w\ /:@.,{}$=-]*                                # holds one
    | \[[A-Z_]+\].* | \[.*\] | [*.x\#_-]{3,}.{0,3} | X{3,}.*                                  # masked already
    """,
    re.VERBOSE | re.DOTALL,
)
_FILLER = re.compile(
    rb"(?i)your|example|change.?me|placeholder|insert|dummy|redacted|todo\b|fixme|x{6}|\.\.\.|\*\*\*|[_-]here|not_a_|"
    rb"process\.env|environ|getenv|(?:^|[^a-z])(?:none|null|nil|undefined|true|false)(?:[^a-z]|$)"
)
_WORDS = frozenset(
    b"password passwd secret token string text hidden required optional default username admin root testing "
    b"production development staging value enabled disabled unknown invalid missing inherit number boolean object "
    b"integer plain bearer basic apikey".split()
)
_STRANGE = frozenset(b"{}()[]<>$#!^*|~;")
_OPENED_BY = {ord(")"): ord("("), ord("]"): ord("["), ord("}"): ord("{")}

# Measured on the samples: words change their kind of letter every five bytes or so, random strings every two.
_MIXED, _SCRAMBLED, _SCRAMBLED_LONG = 3.7, 2.9, 3.6
_FEWEST_CHUNKS, _FEWEST_LETTER_CHUNKS, _FEWEST_DIGITS, _FEWEST_BYTES = 4, 5, 4, 6
_LONG, _LONGER, _LONGEST = 14, 20, 40
_STRANGE_SIGNS, _SIGNS = 4, 6
_PASSPHRASE = 4
_SHORTEST_PASSWORD, _SHORTEST_WORD, _SHORTEST_BARE_WORD = 5, 6, 10
_SHORTEST_NUMBER, _LONGEST_NUMBER = 15, 30


def looks_random(value: bytes, *, least: int) -> bool:
    """Whether a machine made this: long enough, and its letters and digits change places too often for words."""
    if len(value) < least or b" " in value:
        return False
    if _is_strange(value) or _HEX.fullmatch(value):
        return True
    chunks = _CHUNK.findall(value)
    letters = sum(len(chunk) for chunk in chunks)
    digits = sum(len(chunk) for chunk in chunks if chunk.isdigit())
    too_plain = letters * 5 < len(value) * 3 or digits == letters or len(set(value)) < min(_FEWEST_BYTES, least)
    if too_plain or not _OPAQUE.fullmatch(value):
        return False
    if digits:
        mixed = len(chunks) >= _FEWEST_CHUNKS and (letters < len(chunks) * _MIXED or len(value) >= _LONGEST)
        odd = digits >= _FEWEST_DIGITS or _HARSH.search(value)
        return mixed or (value.isalnum() and len(value) >= _LONG and bool(odd))
    scrambled = _SCRAMBLED_LONG if letters >= _LONGER else _SCRAMBLED
    return letters >= max(_LONG, least) and len(chunks) >= _FEWEST_LETTER_CHUNKS and letters < len(chunks) * scrambled


def _is_strange(value: bytes) -> bool:
    """Whether there are more kinds of signs in this than in words, code or a path."""
    signs = set(value) - _ALNUM
    return len(signs & _STRANGE) >= _STRANGE_SIGNS or (len(signs) >= _SIGNS and not _ALNUM.isdisjoint(value))


def is_placeholder(value: bytes) -> bool:
    """Whether this only marks the place of a secret: a variable, a template, a mask, a row of x."""
    return bool(_TEMPLATE.fullmatch(value) or _FILLER.search(value)) or len(set(value.strip(b"-_."))) <= 2  # noqa: PLR2004


def is_uuid(value: bytes) -> bool:
    """Whether this has the shape of a UUID, which is an id unless its name says otherwise."""
    return bool(_UUID.fullmatch(value))


def is_place(value: bytes) -> bool:
    """Whether this is a path, a URL or a host; base64 has slashes too, but no words between them."""
    if not _PLACE.fullmatch(value):
        return False
    rooted = value[:1] in b"/.~" and len(value) != _LONGEST  # a secret key of AWS has 40 bytes and may begin so
    return rooted or not _BASE64.fullmatch(value) or len(value) > 2.4 * len(_CHUNK.findall(value))


def _is_code(value: bytes) -> bool:
    """Whether an unquoted value is an expression or a name: `get(x)`, `self.token`, `OAuth2Token`."""
    if value[:1] in b"()[]{}|?<>,.:;" or _ATTRIBUTE.fullmatch(value) or (_CALL.fullmatch(value) and _nests(value)):
        return True
    return bool(_IDENTIFIER.fullmatch(value)) and not looks_random(value, least=_LONG - 1)


def _nests(value: bytes) -> bool:
    """Whether no bracket closes another kind of bracket; the end may be cut off."""
    pending = []
    for byte in value:
        if byte in b"([{":
            pending.append(byte)
        elif byte in _OPENED_BY and (not pending or pending.pop() != _OPENED_BY[byte]):
            return False
    return True


def is_secret(value: bytes, kind: Kind, *, quoted: bool, data: bool) -> bool:  # noqa: PLR0911 - one line a kind
    """Whether a value under a name of this kind is a secret.

    `quoted`: it stood between quotes. `data`: its place is a setting (JSON, `NAME=value`), not code.
    """
    if is_placeholder(value) or (not quoted and _is_code(value)):
        return False
    if b" " in value:
        words = value.split(b" ")
        spoken = quoted and kind not in (Kind.TOKEN, Kind.KEY) and len(words) >= _PASSPHRASE
        return spoken and all(word.isalpha() and word.islower() for word in words)
    if kind is Kind.PASSWORD:
        return _is_password(value, quoted=quoted, data=data)
    if kind is Kind.SECRET:
        return _is_password(value, quoted=quoted, data=False) and (quoted or looks_random(value, least=8))
    if value.isdigit():
        return kind is not Kind.KEY and _SHORTEST_NUMBER <= len(value) <= _LONGEST_NUMBER
    if is_uuid(value):
        return kind is not Kind.KEY
    return looks_random(value, least=_LONGER if kind is Kind.KEY else 10) and not is_place(value)


def _is_password(value: bytes, *, quoted: bool, data: bool) -> bool:
    """Whether a person could have chosen this: odder than a word, or a plain word where only data stands."""
    if len(value) < _SHORTEST_PASSWORD or value.lower() in _WORDS or (value.isdigit() and not data):
        return False
    if not quoted and re.fullmatch(rb"\d+(?:[:./-]\d+)+", value):
        return False  # `Password: 2025-11-01 ERROR` in a log
    if _ALNUM.isdisjoint(value) or is_place(value):
        return looks_random(value, least=_LONGER)
    if not re.fullmatch(rb"[A-Za-z_.-]+", value):
        return quoted or data or not re.fullmatch(rb"[A-Za-z_]+\d{0,3}", value)
    if value.isalpha() and (data or (quoted and value.islower())):
        return len(value) >= (_SHORTEST_WORD if data else _SHORTEST_BARE_WORD)
    return looks_random(value, least=12)
