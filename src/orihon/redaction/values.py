"""Does a value look like a secret, given how much its name already said?

The hard part is not to find random strings, it is to leave alone everything that only stands where a secret could
stand: variables, templates, placeholders, words, calls, paths, versions. All expressions are linear in the value.
"""

from __future__ import annotations

import base64
import binascii
import re
from enum import Enum

from orihon.redaction.names import Kind
from orihon.redaction.words import is_odd, surprise


class Place(Enum):
    """Where a value stands, and so what else could stand there."""

    CODE = 0  # a name or an expression is as likely as a value
    SETTING = 1  # `name: value` on a line of its own: a setting, or code after all
    DATA = 2  # only a value can stand here: JSON, `NAME=value` of a shell, a flag, a connection string


_ALNUM = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789")
_HEX = re.compile(rb"[0-9a-fA-F]{20,}")
_UUID = re.compile(rb"[0-9a-zA-Z]{8}(?:-[0-9a-zA-Z]{4}){3}-[0-9a-zA-Z]{12}")
_OPAQUE = re.compile(rb"[\w+/=.~:@!#$%^&*|?-]+")
_CHUNK = re.compile(rb"[A-Z]?[a-z]+|[A-Z]+|\d+")

_CONSTANT = re.compile(rb"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+){2,}|0x[0-9a-fA-F]+[uUlL]{0,3}|[a-z_]+=")
_NAMESAKE = re.compile(rb"[a-z]+[A-Za-z]*(?:Password|Passwd|Pwd|Secret|Token|Key)")  # PASSWORD=userPassword
_OWNED = re.compile(rb"[*&!]{0,2}[a-z_]+(?:(?:\.|::|->|\?\.|!\.)#?[A-Za-z_]\w*)+")
_IDENTIFIER = re.compile(rb"[A-Za-z_$]*[A-Z_$][\w$]*")
_CALL = re.compile(rb"[*&!]{0,2}[A-Za-z_$][\w$]*(?:(?:\.|::|->|\?\.)[A-Za-z_]\w*)*!?[\[({].*", re.DOTALL)
_ATTRIBUTE = re.compile(rb"[*&!]{0,2}[A-Za-z_$][\w$]*(?:(?:\.|::|->|\?\.|!\.)[A-Za-z_]\w*)+|[*&!-]{1,2}[A-Za-z_]\w*")
_PLACE = re.compile(
    rb"[/~.]{0,2}(?:[\w.@+-]*/)+[\w.*@-]*|[A-Za-z]:[\\/].*|[a-z][a-z0-9+]*://.*|arn:.*|"
    rb"(?:[\w-]+\.)+[a-z]{2,6}(?::\d+)?(?:/.*)?",
    re.DOTALL,
)
_BASE64 = re.compile(rb"(?=.*[A-Z])(?=.*[a-z])(?=.*[0-9])[A-Za-z0-9+/]+=*")
_TEMPLATE = re.compile(
    rb"""
      \$\w+(?:[\s/.:@,;)\]"'-].{0,200})? | \$[({%].{0,200} | @?\{\{.* | <[^>]*>?.?              # wholly a variable
    | %[({%\w]\w*[)}%]?\w? | \#\{.* | \\?\(.*
    | [\w\ /:@.,=|-]*\$?\{\{?[^{}]{0,99}\}\}?[\w\ /:@.,{}$=|-]* | --[\w-]+=?                 # holds one, a flag
    | \[[A-Z_]+\].* | \[.*\] | [*.x\#_-]{3,}.{0,3} | X{3,}.* | ![A-Za-z]+                      # masked already, a tag
    """,
    re.VERBOSE | re.DOTALL,
)
_FILLER = re.compile(
    rb"(?i)your|example|change.?(?:me|it|this)|placeholder|(?-i:%[sdrvq])(?![0-9A-Za-z])|insert|dummy|redacted|todo\b|fixme|x{6}|\.\.\.|\*\*\*|[_-]here|not_a_|"
    rb"process\.env|environ|getenv|(?:^|[^a-z])(?:none|null|nil|undefined|true|false)(?:[^a-z]|$)"
)
_WORDS = frozenset(
    b"password passwd secret token string text hidden required optional default username admin root testing "
    b"production development staging value enabled disabled unknown invalid missing inherit number boolean object "
    b"integer plain bearer basic apikey hashed rehashed encrypted confirmed nullable array collection sensitive".split()
)
# Signs around random letters: `<k…>` is a password when a person could not read what it stands for.
_DRESSED = re.compile(rb"[<\[({%$#@~/*!&,]{1,2}(?P<core>[A-Za-z0-9]{8,64})[>\])}%]?")
_DIGIT_INSIDE = re.compile(rb"[A-Za-z]\d+[A-Za-z]")
_CASED = re.compile(rb"(?=.*[a-z])(?=.*[A-Z])(?=.*\d)")
_PHRASE = re.compile(rb"[a-z]{3,12}(?:-[a-z]{3,12}){3,7}")
_SAYING = frozenset(b"password passwd secret token key your the name from with must not use get set env var".split())
_GENERATED = re.compile(rb"(?=[^\d]*\d)[\w!@#$%^&*(=+)-]{40,80}")  # as Django draws its key
_POD = re.compile(
    rb"(?:[a-z][a-z0-9]*-)+[0-9a-z]{8,10}-[0-9a-z]{5}|(?:[a-z]+-){2,}[0-9a-z]{8,10}"
)  # as Kubernetes names what it starts
_HOST = re.compile(rb"(?:[\w-]+\.)+[a-z]{2,6}")
_NAMES = re.compile(rb"[A-Za-z_$.]+")
_BETWEEN = re.compile(rb"[|:,]")
_DIGIT = re.compile(rb"\d")
_LETTERS = re.compile(rb"[A-Za-z_.-]+")
_NUMBERED = re.compile(rb"[A-Za-z_]+\d{0,3}")
_DATES = re.compile(rb"\d+(?:[:./-]\d+)+")
_CHOSEN = re.compile(rb"[\w!@#$%^&*+=?~.-]+")
_STRANGE = frozenset(b"{}()[]<>$#!^*|~;")
_OPENED_BY = {ord(")"): ord("("), ord("]"): ord("["), ord("}"): ord("{")}

# Measured on the samples: words change their kind of letter every five bytes or so, random strings every two.
_MIXED, _SCRAMBLED, _SCRAMBLED_LONG = 3.7, 2.9, 3.6
_FEWEST_CHUNKS, _FEWEST_LETTER_CHUNKS, _FEWEST_BYTES = 4, 5, 6
_LONG, _LONGER, _LONGEST = 14, 20, 40
_STRANGE_SIGNS, _SIGNS = 4, 6
_PASSPHRASE = 4
_SHORTEST_SCRAMBLED, _SHORTEST_PART, _MOST_WORDS = 8, 16, 3
_SHORTEST_PASSWORD, _SHORTEST_WORD, _SHORTEST_BARE_WORD = 5, 6, 10
_SHORTEST_NUMBER, _LONGEST_NUMBER = 15, 30
# Bits of surprise: below the first a value reads like names, above the last no name does.
_PLAIN, _LOOSE, _USUAL, _STRICT = 4.0, 4.8, 5.2, 5.6


def looks_random(value: bytes, *, least: int) -> bool:
    """Whether a machine made this: long enough, and unlike words, names and versions."""
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
    if is_odd(value):
        return True
    if digits:
        mixed = len(chunks) >= _FEWEST_CHUNKS and (letters < len(chunks) * _MIXED or len(value) >= _LONGEST)
        return mixed and surprise(value) >= _PLAIN + _FEWEST_BYTES / len(value)
    scrambled = _SCRAMBLED_LONG if letters >= _LONGER else _SCRAMBLED
    return letters >= max(_LONG, least) and len(chunks) >= _FEWEST_LETTER_CHUNKS and letters < len(chunks) * scrambled


def _is_strange(value: bytes) -> bool:
    """Whether there are more kinds of signs in this than in words, code or a path."""
    signs = set(value) - _ALNUM
    if len(signs & _STRANGE) >= _STRANGE_SIGNS or (len(signs) >= _SIGNS and not _ALNUM.isdisjoint(value)):
        return True
    return _is_generated(value)


def _is_generated(value: bytes) -> bool:
    """Whether this is a long key of letters, digits and signs, as Django draws one."""
    return bool(_GENERATED.fullmatch(value)) and len(set(value) - _ALNUM) > 1 and is_odd(value, base=_LOOSE)


def is_placeholder(value: bytes) -> bool:
    """Whether this only marks the place of a secret: a variable, a template, a mask, a row of x."""
    if _TEMPLATE.fullmatch(value) or _FILLER.search(value):
        return not _is_generated(value)
    return len(set(value.strip(b"-_."))) <= 2  # noqa: PLR2004


def is_dressed(value: bytes) -> bool:
    """Whether random letters and digits stand between signs or words that would make a placeholder of words."""
    found = _DRESSED.fullmatch(value)
    core = found["core"] if found else b"" if _TEMPLATE.fullmatch(value) else _FILLER.sub(b"", value)
    return _is_scrambled(core) and not core.isupper()


def _is_scrambled(core: bytes) -> bool:
    """Whether digits stand between letters as no word and no name has them."""
    inside = _DIGIT_INSIDE.search(core) or (_CASED.match(core) and not _STRANGE.isdisjoint(core))
    return len(core) >= _SHORTEST_SCRAMBLED and bool(inside) and is_odd(core, base=_LOOSE)


def is_template(value: bytes) -> bool:
    """Whether this is a variable, a template or a mask, and no text at all."""
    return bool(_TEMPLATE.fullmatch(value))


def is_uuid(value: bytes) -> bool:
    """Whether this has the shape of a UUID, which is an id unless its name says otherwise."""
    return bool(_UUID.fullmatch(value))


def is_place(value: bytes) -> bool:
    """Whether this is a path, a URL or a host; base64 has slashes too, but no words between them."""
    if not _PLACE.fullmatch(value):
        return False
    if len(value) == _LONGEST and _BASE64.fullmatch(value):
        return False  # a secret key of AWS has 40 bytes and may begin with a slash
    return value[:1] in b"/.~" or not _BASE64.fullmatch(value) or not is_odd(value.replace(b"/", b""), base=_LOOSE)


def is_basic(value: bytes) -> bool:
    """Whether this is `user:password` in base64, as HTTP and Docker carry it."""
    try:
        text = base64.b64decode(value + b"=" * (-len(value) % 4), validate=True)
    except (binascii.Error, ValueError):
        return False
    return b":" in text[1:] and text.isascii() and text.decode("ascii").isprintable()


def is_token(body: bytes, *, alone: bool) -> bool:
    """Whether the body of a token was drawn by a machine; `hf_` begins tokens and also the names of variables.

    `alone`: its beginning proves little, so the body must prove all.
    """
    if len(set(body)) < _PASSPHRASE or body.endswith((b"HERE", b"Here")) or (alone and _POD.fullmatch(body)):
        return False
    digits = sum(48 <= byte <= 57 for byte in body)  # noqa: PLR2004 - the digits of ASCII
    if digits * 3 >= len(body) or (digits and _HEX.search(body)):
        return True
    if alone:
        mixed = not body.islower() and not body.isupper()
        return (digits > 0 or mixed) and is_odd(body, base=_USUAL if digits else _STRICT)
    return surprise(body) >= (_PLAIN if digits else _LOOSE)


def _is_code(value: bytes, place: Place) -> bool:
    """Whether an unquoted value is an expression or a name: `get(x)`, `self.token`, `OAuth2Token`."""
    if any(len(part) >= _SHORTEST_PART and _is_scrambled(part) for part in value.split(b".")):
        return False
    if value[:1] in b"()[]{}|?<>,.:;" or (_CALL.fullmatch(value) and _nests(value)):
        return True
    if _CONSTANT.fullmatch(value) or _OWNED.fullmatch(value) or _NAMESAKE.fullmatch(value):
        return True
    dotted = _ATTRIBUTE.fullmatch(value)
    if dotted and not _DIGIT.search(value):
        return True
    name = dotted or (place is not Place.DATA and _IDENTIFIER.fullmatch(value))
    base = _LOOSE if place is Place.SETTING else _USUAL
    return bool(name) and not is_odd(value, base=base)


def _nests(value: bytes) -> bool:
    """Whether no bracket closes another kind of bracket; the end may be cut off."""
    pending = []
    for byte in value:
        if byte in b"([{":
            pending.append(byte)
        elif byte in _OPENED_BY and (not pending or pending.pop() != _OPENED_BY[byte]):
            return False
    return True


def is_secret(value: bytes, kind: Kind, *, quoted: bool, place: Place) -> bool:  # noqa: PLR0911 - one line a kind
    """Whether a value under a name of this kind is a secret."""
    if kind is Kind.PASSWORD and place is Place.DATA and is_dressed(value):
        return True
    if is_placeholder(value) or (not quoted and _is_code(value, place)):
        return False
    if b" " in value:
        return quoted and kind not in (Kind.TOKEN, Kind.KEY) and _is_spoken(value.split(b" "), kind)
    if kind is Kind.PASSWORD:
        return _is_password(value, quoted=quoted, place=place)
    if kind is Kind.PASS:
        return is_chosen(value)
    if kind is Kind.SECRET:
        return _is_kept_secret(value, quoted=quoted, place=place)
    if value.isdigit():
        return kind is not Kind.KEY and _SHORTEST_NUMBER <= len(value) <= _LONGEST_NUMBER
    if is_uuid(value):
        return kind is not Kind.KEY
    if not quoted and place is not Place.DATA and _NAMES.fullmatch(value) and not is_odd(value, base=_STRICT):
        return False  # more often the name of a function or a type
    return looks_random(value, least=_LONGER if kind is Kind.KEY else 10) and not is_place(value)


def _is_kept_secret(value: bytes, *, quoted: bool, place: Place) -> bool:
    """Whether this stands under `secret`, whose values machines make and people choose."""
    if place is Place.DATA and not quoted and value.isalpha() and value.islower():
        return len(value) >= _SHORTEST_BARE_WORD + 2 and value not in _WORDS
    place = min(place, Place.SETTING, key=lambda each: each.value)
    return _is_password(value, quoted=quoted, place=place) and (
        quoted or is_chosen(value) or (looks_random(value, least=8) and not is_place(value))
    )


def _is_spoken(words: list[bytes], kind: Kind) -> bool:
    """Whether words are a passphrase, or two or three of them a password with a space."""
    if len(words) >= _PASSPHRASE:
        return all(word.isalpha() and word.islower() for word in words)
    cased = any(not word.islower() and not word.isupper() and _DIGIT_INSIDE.search(word) for word in words)
    return kind is Kind.PASSWORD and len(words) <= _MOST_WORDS and cased and _is_scrambled(b"".join(words))


def is_chosen(value: bytes) -> bool:
    """Whether this was made up as a password: letters and digits as no word and no name has them."""
    if len(value) < _SHORTEST_WORD or not _CHOSEN.fullmatch(value) or is_place(value):
        return False
    return looks_random(value, least=8) or is_odd(value, base=_LOOSE)


def is_odd_word(value: bytes) -> bool:
    """The same where a word would do as well: letters alone must be very odd."""
    return is_chosen(value) and (not value.isalpha() or is_odd(value))


def _is_password(value: bytes, *, quoted: bool, place: Place) -> bool:
    """Whether a person could have chosen this: odder than a word, or a plain word where only data stands."""
    data = place is Place.DATA
    if (
        len(value) < _SHORTEST_PASSWORD
        or _WORDS.issuperset(_BETWEEN.split(value.lower()))
        or (value.isdigit() and not data)
    ):
        return False
    foreign = not value.isascii() and value.decode("utf-8", "replace").isalpha()  # a word of another language
    if foreign or (_DATES.fullmatch(value) and not (quoted and data)):
        return False  # `Password: 2025-11-01 ERROR` in a log
    host = _HOST.fullmatch(value) and any(map(_is_scrambled, value.split(b".")))
    if _ALNUM.isdisjoint(value) or (is_place(value) and not host):
        return looks_random(value, least=_LONGER)
    if not _LETTERS.fullmatch(value):
        return quoted or place is not Place.CODE or not _NUMBERED.fullmatch(value)
    if value.isalpha() and (data or (quoted and value.islower())):
        return len(value) >= (_SHORTEST_WORD if data else _SHORTEST_BARE_WORD)
    phrase = data and _PHRASE.fullmatch(value) and _SAYING.isdisjoint(value.split(b"-"))
    named = data and quoted and b"." not in value and not value.islower() and not value.isupper()
    return bool(phrase) or named or is_odd(value, base=_LOOSE)
