"""Decide whether a value looks like a secret, given what its name and its context already say.

A small model of names in source code measures how unlike a name a value is: how often one letter follows another, and
how often a name changes between small letters, capitals and digits. The model tells `rBwMRWOBf94d` from `newPassword`,
which entropy alone cannot do at this length. The rest of the module recognises the values that occur where a secret
could stand: variables, templates, placeholders, words, calls, paths, versions. All expressions are linear in the value.
"""

from __future__ import annotations

import base64
import binascii
import re
from array import array
from enum import Enum
from functools import cache
from itertools import pairwise, product
from string import ascii_lowercase, ascii_uppercase, digits

from orihon.redaction.key_names import Kind

# Row and column are letters; a digit is the cost in bits of the second letter after the first. Counted in 156,000 names
# from the standard library, installed packages and C headers.
_PAIRS = """
9544775a5a7344b5a34366766a 3757388834837647a457389a59 376637935d445726a45358977c 3674257638957747a54658896b
474465697b945375623386646a 476744892ca47636b45548996c 575818654b946457c445599888 288728984d775837c464698a6b
5644555a9b944235954386b6d6 48662789566767349836386b7b 5745176739867566974658687a 377527793c848736c844579b6a
2576278a4d754743985657a87c 484335394a668646a843569a8a 6544866969644254d34546579a 386637855d5486358354589a59
8877878a7dd277977556188cba 3856276a3d665637c444669b5d 595837744c547555673258796a 386727943c957836b355598649
5556466a4ca34374c33397c8ca 2768178a3da85754c77697868a 386637852b767437b3479989ac 574737974c974763a762859459
565656795ba544619633786977 387817874d966747a876899a66
"""
# The cost of going from one class to the next: small letter, capital, digit, sign.
_CHANGES = {"l": (0.3, 5.0, 7.2, 2.7), "u": (2.8, 0.6, 5.6, 2.5), "d": (4.2, 4.4, 1.3, 1.1), "s": (0.8, 1.5, 6.7, 3.7)}
_NEW_LETTER, _DIGIT_COST = 3.5, 2.0  # a letter that begins a word, a digit
_OTHER = 6.0  # a pair that contains any other byte
_SLACK = 9.0  # short strings deviate more from the average
# Bits per pair: below the first threshold a value reads like names, above the last no name does.
_PLAIN, _LOOSE, _USUAL, _STRICT = 4.0, 4.8, 5.2, 5.6


class Context(Enum):
    """Where a value stands, which decides what else could stand there."""

    CODE = 0  # a name or an expression is as likely as a value
    SETTING = 1  # `name: value` on its own line: a setting, or code
    DATA = 2  # only a value can stand here: JSON, `NAME=value` of a shell, a flag, a connection string


_PART = re.compile(rb"[.()\[\]{},]")
_ALNUM = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789")
_HEX = re.compile(rb"[0-9a-fA-F]{20,}")
_UUID = re.compile(rb"[0-9a-zA-Z]{8}(?:-[0-9a-zA-Z]{4}){3}-[0-9a-zA-Z]{12}")
_OPAQUE = re.compile(rb"[\w+/=.~:@!#$%^&*|?-]+")
_CHUNK = re.compile(rb"[A-Z]?[a-z]+|[A-Z]+|\d+")
_CONSTANT = re.compile(
    rb"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+){2,}|0x[0-9a-fA-F]+[uUlL]{0,3}|[a-z_]+="
    rb"|[*&!]{0,2}[a-z_]+(?:(?:\.|::|->|\?\.|!\.)#?[A-Za-z_]\w*)+"  # self.password
    rb"|[a-z]+[A-Za-z]*(?:Password|Passwd|Pwd|Secret|Token|Key)"  # PASSWORD=userPassword
)
_IDENTIFIER = re.compile(rb"[A-Za-z_$]*[A-Z_$][\w$]*")
_CALL = re.compile(rb"[*&!@]{0,2}[A-Za-z_$][\w$]*(?:(?:\.|::|->|\?\.)[A-Za-z_]\w*)*!?[\[({].*", re.DOTALL)
_ATTRIBUTE = re.compile(rb"[*&!]{0,2}[A-Za-z_$][\w$]*(?:(?:\.|::|->|\?\.|!\.)[A-Za-z_]\w*)+|[*&!@-]{1,2}[A-Za-z_]\w*")
_PATH = re.compile(
    rb"[/~.]{0,2}(?:[\w.@+-]*/)+[\w.*@-]*|[A-Za-z]:[\\/].*|[a-z][a-z0-9+]*://.*|arn:.*|"
    rb"(?:[\w-]+\.)+[a-z]{2,6}(?::\d+)?(?:/.*)?",
    re.DOTALL,
)
_BASE64 = re.compile(rb"(?=.*[A-Z])(?=.*[a-z])(?=.*[0-9])[A-Za-z0-9+/]+=*")
_TEMPLATE = re.compile(
    rb"""
      \$\w+(?:[\s/.:@,;)\]"'-].{0,200})? | \$[({%].{0,200} | @?\{\{.* | <[^>]*>?.?          # a variable
    | %[({%\w]\w*[)}%]?\w? | \#\{.* | \\?\(.*
    | [\w\ /:@.,=|-]*\$?\{\{?[^{}]{0,99}\}\}?[\w\ /:@.,{}$=|-]* | --[\w-]+=?             # contains one, a flag
    | \[[A-Z_]+\].* | \[.*\] | [*.x\#_-]{3,}.{0,3} | X{3,}.* | ![A-Za-z]+                  # already masked, a tag
    """,
    re.VERBOSE | re.DOTALL,
)
_FILLER = re.compile(
    rb"(?i)your|example|change.?(?:me|it|this)|placeholder|(?-i:%[sdrvq])(?![0-9A-Za-z])|insert|dummy|redacted|todo\b"
    rb"|fixme|x{6}|\.\.\.|\*\*\*|[_-]here|not_a_|process\.env|environ|getenv"
    rb"|(?:^|[^a-z])(?:none|null|nil|undefined|true|false)(?:[^a-z]|$)"
)
_WORDS = frozenset(
    b"password passwd secret token string text hidden required optional default username admin root testing "
    b"production development staging value enabled disabled unknown invalid missing inherit number boolean object "
    b"integer plain bearer basic apikey hashed rehashed encrypted confirmed nullable array collection sensitive".split()
)
# Random letters between signs: `<k3…>` is a password if its content is not readable.
_DRESSED = re.compile(rb"[<\[({%$#@~/*!&,]{1,2}(?P<core>[A-Za-z0-9]{8,64})[>\])}%]?")
_DIGIT_INSIDE = re.compile(rb"[A-Za-z]\d+[A-Za-z]")
_HUMP = re.compile(rb"[a-z][A-Z]")
_CASED = re.compile(rb"(?=.*[a-z])(?=.*[A-Z])(?=.*\d)")
_PHRASE = re.compile(rb"[a-z]{3,12}(?:-[a-z]{3,12}){3,7}")
_PHRASE_WORDS = frozenset(
    b"password passwd secret token key your the name from with must not use get set env var".split()
)
_GENERATED = re.compile(rb"(?=[^\d]*\d)[\w!@#$%^&*(=+)-]{40,80}")  # as Django generates its key
_POD = re.compile(  # as Kubernetes names pods
    rb"(?:[a-z][a-z0-9]*-)+[0-9a-z]{8,10}-[0-9a-z]{5}|(?:[a-z]+-){2,}[0-9a-z]{8,10}"
)
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

# Measured on the samples: words change their class of letter every five bytes or so, random strings every two.
_MIXED, _SCRAMBLED, _SCRAMBLED_LONG = 3.7, 2.9, 3.6
_MIN_CHUNKS, _MIN_LETTER_CHUNKS, _MIN_BYTES = 4, 5, 6
_LONG, _LONGER, _LONGEST = 14, 20, 40
_STRANGE_SIGNS, _SIGNS = 4, 6
_PASSPHRASE, _MAX_WORDS = 4, 3
_MIN_SCRAMBLED, _MIN_PART = 8, 16
_MIN_PASSWORD, _MIN_WORD, _MIN_BARE_WORD, _MIN_TOKEN = 5, 6, 10, 10
_MIN_NUMBER, _MAX_NUMBER = 15, 30


_SIGNS_OF_NAMES = f"{ascii_lowercase}{ascii_uppercase}{digits}_-."
_CODES = bytes(_SIGNS_OF_NAMES.find(chr(sign)) % 66 for sign in range(256))  # 65 for every other sign


@cache
def _pair_costs() -> array[float]:
    """Return the cost of every pair of signs, by their codes. Computed on first use."""
    bits = [[int(digit, 16) for digit in row] for row in _PAIRS.split()]
    classes = ["l"] * 26 + ["u"] * 26 + ["d"] * 10 + ["s"] * 3
    costs = array("d", [_OTHER]) * (66 * 66)
    for (one, before), (two, after) in product(enumerate(classes), repeat=2):
        cost = _CHANGES[before]["luds".index(after)]
        if before in "lu" and after in "lu" and (before, after) != ("l", "u"):
            cost += bits[one % 26][two % 26]
        elif after in "lu":
            cost += _NEW_LETTER
        elif after == "d":
            cost += _DIGIT_COST
        costs[66 * one + two] = cost
    return costs


def _surprise(value: bytes) -> float:
    """Return the mean cost of a pair in bits: about four for names, about seven for random letters and digits."""
    costs = _pair_costs()
    codes = value.translate(_CODES)
    return sum([costs[66 * one + two] for one, two in pairwise(codes)]) / (len(codes) - 1) if len(codes) > 1 else 0.0


def is_odd(value: bytes, *, base: float = _USUAL) -> bool:
    """Return whether a value is no name. One name in a hundred is odd, and nearly every random string of ten bytes."""
    return _surprise(value) >= base + _SLACK / max(1, len(value))


def is_random(value: bytes, *, min_length: int) -> bool:
    """Return whether a value looks generated: long enough, and unlike words, names and versions."""
    if len(value) < min_length or b" " in value:
        return False
    if _is_strange(value) or _HEX.fullmatch(value):
        return True
    chunks = _CHUNK.findall(value)
    letters = sum(map(len, chunks))
    digit_count = sum([len(chunk) for chunk in chunks if chunk.isdigit()])
    too_plain = letters * 5 < len(value) * 3 or digit_count == letters or len(set(value)) < min(_MIN_BYTES, min_length)
    if too_plain or not _OPAQUE.fullmatch(value):
        return False
    if is_odd(value):
        return True
    if digit_count:
        mixed = len(chunks) >= _MIN_CHUNKS and (letters < len(chunks) * _MIXED or len(value) >= _LONGEST)
        return mixed and _surprise(value) >= _PLAIN + _MIN_BYTES / len(value)
    scrambled = _SCRAMBLED_LONG if letters >= _LONGER else _SCRAMBLED
    return letters >= max(_LONG, min_length) and len(chunks) >= _MIN_LETTER_CHUNKS and letters < len(chunks) * scrambled


def _is_strange(value: bytes) -> bool:
    """Return whether a value has more kinds of signs than words, code or a path."""
    signs = set(value) - _ALNUM
    if len(signs & _STRANGE) >= _STRANGE_SIGNS or (len(signs) >= _SIGNS and not _ALNUM.isdisjoint(value)):
        return True
    return _is_generated(value)


def _is_generated(value: bytes) -> bool:
    """Return whether a value is a long key of letters, digits and signs, as Django generates one."""
    return bool(_GENERATED.fullmatch(value)) and len(set(value) - _ALNUM) > 1 and is_odd(value, base=_LOOSE)


def is_placeholder(value: bytes) -> bool:
    """Return whether a value stands in for a secret: a variable, a template, a mask, a row of x."""
    if _TEMPLATE.fullmatch(value) or _FILLER.search(value):
        return not _is_generated(value)
    return len(set(value.strip(b"-_."))) <= 2  # noqa: PLR2004


def is_dressed(value: bytes) -> bool:
    """Return whether a value is random, but surrounded by signs or words that would make a placeholder of a word."""
    dressed = _DRESSED.fullmatch(value)
    core = dressed["core"] if dressed else b"" if _TEMPLATE.fullmatch(value) else _FILLER.sub(b"", value)
    return _is_scrambled(core) and not core.isupper()


def _is_scrambled(core: bytes) -> bool:
    """Return whether digits stand between letters as in no word and no name."""
    inside = _DIGIT_INSIDE.search(core) or (_CASED.match(core) and not _STRANGE.isdisjoint(core))
    return len(core) >= _MIN_SCRAMBLED and bool(inside) and is_odd(core, base=_LOOSE)


def is_template(value: bytes) -> bool:
    """Return whether a value is a variable, a template or a mask."""
    return bool(_TEMPLATE.fullmatch(value))


def is_uuid(value: bytes) -> bool:
    """Return whether a value has the shape of a UUID, which is an id unless its name says otherwise."""
    return bool(_UUID.fullmatch(value))


def is_path(value: bytes) -> bool:
    """Return whether a value is a path, a URL or a host. Base64 contains slashes too, but no words between them."""
    if not _PATH.fullmatch(value):
        return False
    if len(value) == _LONGEST and _BASE64.fullmatch(value):
        return False  # an AWS secret key has 40 bytes and may begin with a slash
    return value[:1] in b"/.~" or not _BASE64.fullmatch(value) or not is_odd(value.replace(b"/", b""), base=_LOOSE)


def is_basic_auth(value: bytes) -> bool:
    """Return whether a value is `user:password` in base64, as HTTP and Docker write it."""
    try:
        text = base64.b64decode(value + b"=" * (-len(value) % 4), validate=True)
    except (binascii.Error, ValueError):
        return False
    return b":" in text[1:] and text.isascii() and text.decode("ascii").isprintable()


def is_token_body(body: bytes, *, alone: bool) -> bool:
    """Return whether the body of a token looks generated; `hf_` begins tokens and also the names of variables.

    `alone` says that the beginning proves little, so the body must be conclusive.
    """
    if len(set(body)) < _PASSPHRASE or body.endswith((b"HERE", b"Here")) or (alone and _POD.fullmatch(body)):
        return False
    digit_count = len(_DIGIT.findall(body))
    if digit_count * 3 >= len(body) or (digit_count and _HEX.search(body)):
        return True
    if alone:
        mixed = not body.islower() and not body.isupper()
        return (digit_count > 0 or mixed) and is_odd(body, base=_USUAL if digit_count else _STRICT)
    return _surprise(body) >= (_PLAIN if digit_count else _LOOSE)


def _is_code(value: bytes, context: Context) -> bool:
    """Return whether an unquoted value is an expression or a name: `get(x)`, `self.token`, `OAuth2Token`."""
    if any(len(part) >= _MIN_PART and _is_scrambled(part) for part in _PART.split(value)):
        return False
    if value[:1] in b"()[]{}|?<>,.:;" or _CONSTANT.fullmatch(value) or (_CALL.fullmatch(value) and _nests(value)):
        return True
    if is_attribute(value):
        return True
    if context is Context.SETTING and len(value) < _MIN_TOKEN and _is_short_token(value):
        return False
    name = _ATTRIBUTE.fullmatch(value) or (context is not Context.DATA and _IDENTIFIER.fullmatch(value))
    return bool(name) and not is_odd(value, base=_LOOSE if context is Context.SETTING else _USUAL)


def is_attribute(value: bytes) -> bool:
    """Return whether a value is an attribute or a variable without a digit: `self.token`."""
    return bool(_ATTRIBUTE.fullmatch(value)) and not _DIGIT.search(value)


def _nests(value: bytes) -> bool:
    """Return whether every closing bracket matches its opening bracket. The end may be cut off."""
    pending = []
    for byte in value:
        if byte in b"([{":
            pending.append(byte)
        elif byte in _OPENED_BY and (not pending or pending.pop() != _OPENED_BY[byte]):
            return False
    return True


def is_secret(  # noqa: C901, PLR0911 - one line per kind
    value: bytes, kind: Kind, *, quoted: bool, context: Context
) -> bool:
    """Return whether a value under a name of this kind is a secret."""
    if kind is Kind.PASSWORD and context is Context.DATA and is_dressed(value):
        return True
    if is_placeholder(value) or (not quoted and _is_code(value, context)):
        return False
    if b" " in value:
        return quoted and kind not in (Kind.TOKEN, Kind.KEY) and _is_passphrase(value.split(b" "), kind)
    if kind is Kind.PASSWORD:
        return _is_password(value, quoted=quoted, context=context)
    if kind is Kind.PASS:
        return _is_chosen(value)
    if kind is Kind.SECRET:
        return _is_stored_secret(value, quoted=quoted, context=context)
    if value.isdigit():
        return kind is not Kind.KEY and _MIN_NUMBER <= len(value) <= _MAX_NUMBER
    if is_uuid(value):
        return kind is not Kind.KEY
    if not quoted and context is not Context.DATA and _reads_like_name(value, context):
        return False  # more often the name of a function or a type
    if kind is not Kind.KEY and len(value) < _MIN_TOKEN:
        return (quoted or context is not Context.CODE) and _is_short_token(value)
    return is_random(value, min_length=_LONGER if kind is Kind.KEY else _MIN_TOKEN) and not is_path(value)


def _reads_like_name(value: bytes, context: Context) -> bool:
    """Return whether a value of letters could be a name. A short setting with several humps is none."""
    humped = context is Context.SETTING and len(value) < _MIN_TOKEN and len(_HUMP.findall(value)) > 1
    return bool(_NAMES.fullmatch(value)) and not is_odd(value, base=_USUAL if humped else _STRICT)


def _is_short_token(value: bytes) -> bool:
    """Return whether a short value has the mixture of a generated one; a word or a numbered name has not."""
    if len(value) < _MIN_WORD or value[:1] == b"#" or not _CHOSEN.fullmatch(value) or is_path(value):
        return False
    mixed = _DIGIT_INSIDE.search(value) or _CASED.match(value)
    plain = value.islower() or value.isupper() or value.istitle()
    base = _PLAIN if mixed else _USUAL if value.isalpha() else _LOOSE
    return is_odd(value, base=base) and (bool(mixed) or not plain)


def _is_stored_secret(value: bytes, *, quoted: bool, context: Context) -> bool:
    """Return whether a value under `secret` is one. Machines generate them, and people choose them."""
    if context is Context.DATA and not quoted and value.isalpha() and value.islower():
        return len(value) >= _MIN_BARE_WORD + 2 and value not in _WORDS
    context = Context.SETTING if context is Context.DATA else context
    return _is_password(value, quoted=quoted, context=context) and (
        quoted or _is_chosen(value) or (is_random(value, min_length=8) and not is_path(value))
    )


def _is_passphrase(words: list[bytes], kind: Kind) -> bool:
    """Return whether words are a passphrase, or two or three of them a password with spaces."""
    if len(words) >= _PASSPHRASE:
        return all(word.isalpha() and word.islower() for word in words)
    cased = any(not word.islower() and not word.isupper() and _DIGIT_INSIDE.search(word) for word in words)
    return kind is Kind.PASSWORD and len(words) <= _MAX_WORDS and cased and _is_scrambled(b"".join(words))


def _is_chosen(value: bytes) -> bool:
    """Return whether a value is a made-up password: letters and digits as in no word and no name."""
    if len(value) < _MIN_WORD or not _CHOSEN.fullmatch(value) or is_path(value):
        return False
    return is_random(value, min_length=8) or is_odd(value, base=_LOOSE)


def is_odd_word(value: bytes) -> bool:
    """Return whether a value is a made-up password where a word could stand as well: letters alone must be very odd."""
    return _is_chosen(value) and (not value.isalpha() or is_odd(value))


def _is_password(value: bytes, *, quoted: bool, context: Context) -> bool:
    """Return whether people could have chosen this: odder than a word, or a plain word where only data stands."""
    data = context is Context.DATA
    listed = _WORDS.issuperset(_BETWEEN.split(value.lower()))
    if len(value) < _MIN_PASSWORD or listed or (value.isdigit() and not data):
        return False
    foreign = not value.isascii() and value.decode("utf-8", "replace").isalpha()  # a word of another language
    if foreign or (_DATES.fullmatch(value) and not (quoted and data)):
        return False  # `Password: 2025-11-01 ERROR` in a log
    host = _HOST.fullmatch(value) and any(map(_is_scrambled, value.split(b".")))
    if _ALNUM.isdisjoint(value) or (is_path(value) and not host):
        return is_random(value, min_length=_LONGER)
    if not _LETTERS.fullmatch(value):
        return quoted or context is not Context.CODE or not _NUMBERED.fullmatch(value) or is_odd(value)
    if value.isalpha() and (data or (quoted and value.islower())):
        return len(value) >= (_MIN_WORD if data else _MIN_BARE_WORD)
    phrase = data and _PHRASE.fullmatch(value) and _PHRASE_WORDS.isdisjoint(value.split(b"-"))
    named = data and quoted and b"." not in value and not value.islower() and not value.isupper()
    return bool(phrase) or named or is_odd(value, base=_LOOSE)
