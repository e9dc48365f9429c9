"""Tokens that say themselves what they are, wherever they stand, and values that a provider's habit explains."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from orihon.redaction.escapes import GLUES, behind_glue, past_glue
from orihon.redaction.gate import COOKIE, IN_RUN, JOINTS, MARKS, begin_of_blob
from orihon.redaction.providers import HOLDERS, IDS, MARKERS, STRONG_MARKERS
from orihon.redaction.rules import Rule, shape, signed, starts, tails
from orihon.redaction.values import is_placeholder, is_token, is_uuid, looks_random

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orihon.redaction.find import Span

_LONGEST = 4096  # a body is judged by this much of it
_MOST_INNER = 16  # beginnings that are tried inside one run
_LONGEST_GLUE = 24  # what stands before it in the run is a name, not base64
_FARTHEST_HOLDER, _FARTHEST_WORD = 48, 200
_SHORTEST_MARKED, _SHORTEST_GLUED = 24, 16
_WALLET_SIZE = 66
_NAME = IN_RUN + b"."
_LETTERS = IN_RUN[:52] + b"_-"
_SLASHES = frozenset(b"+/")
_PGPASS = re.compile(rb":5432:[\w*.-]{1,60}:[\w*.-]{1,60}:$")
_COOKIE_HEADER = re.compile(
    rb"ookies?(?:\\{0,3}[\"']?\s{0,4}[:=]|\\{0,3}[\"']\s{0,4},|\()\s{0,4}\\{0,3}[\"'`]?[\w.$-]{1,80}="
)
_COOKIE_NAME = re.compile(rb"[\w.$-]{1,60}=$")
_COOKIE_VALUE = re.compile(rb"[^\s;,\"'\\&`]{13,}")
_SESSION = re.compile(rb"(?i)sess|sid=|auth|login|remember|token|jwt")
_ENDLESS = re.compile(rb"[\w-]{%d}" % _LONGEST)
_SEPARATOR = re.compile(rb"[_-]")
_BLOB = re.compile(rb"[A-Za-z0-9+/]{20}")
_CREDENTIAL = re.compile(rb"(?=[\w.~+/=-]*\d)[\w.~+/=-]{8,}|[\w.~+/=-]{24,}")
_HOLDER = re.compile(b"|".join(HOLDERS.encode().split()))
_HOLDER_ENDS = frozenset(b"rer sws unk key pat ion are gin eam sid nid ure _id rid".split())
_SCHEMES = frozenset((b"bearer", b"ssws", b"splunk", b"geniekey"))
_AROUND = b"\"'\\ \t=:`]"
_HELD_BEHIND = frozenset(b"\"'`= \t:\\")
_MARKED = re.compile(
    rb"(?i)(?!(?:%b)[_-])(?:[a-z0-9]{1,20}[_-]){0,3}?(?:(?P<strong>%b)[_-]|%b)(?:v?\d{1,2}[_-])?(?P<body>[\w-]{20,})"
    % (IDS.encode(), STRONG_MARKERS.encode(), MARKERS.encode())
)
_SIGNATURE = re.compile(rb"JQQJ99|AZDO|\+A[A-Z]|ACDb|AIoT|Az[A-Z]|APIM|AAMC|msh|NRAL")
_MIXED = re.compile(rb"(?=[\w-]*[a-z])(?=[\w-]*[A-Z])(?=[\w-]*\d)[\w-]+")
_ENCODED = re.compile(rb"(?:[\w.~+/=-]|%[0-9A-Fa-f]{2}){20,400}")
_WALLET_KEY = re.compile(rb"0x[0-9a-fA-F]{64}")
_WALLET = re.compile(rb"(?i)private|wallet|secret|signer|mnemonic")
_AWS_SECRET = re.compile(rb"[\s,;:|\"']{1,12}(?P<secret>[A-Za-z0-9+/]{40})(?![A-Za-z0-9+/=])")
_WEB_KEY = re.compile(rb"[\"']kty\\?[\"']")


def tokens(data: bytes, runs: list[tuple[int, int]]) -> Iterator[Span]:
    """The tokens in and around the runs that the gate cut."""
    done = 0
    for run, end in runs:
        if run >= done and (span := _token(data, run, end)):
            yield span
            done = span[1]
            if span[2] == b"AWS_KEY" and (secret := _AWS_SECRET.match(data, done)):
                yield *secret.span("secret"), b"AWS_KEY"


def _token(data: bytes, run: int, end: int) -> Span | None:
    """The first token of a run, whose first letters may belong to an escape."""
    before = data[run - 1] if run else 32
    if before in GLUES:
        for start in sorted(behind_glue(data, run), reverse=True):
            if span := _token_at(data, start, max(start, end), 32):
                return span
    return _token_at(data, run, end, before)


def _token_at(data: bytes, run: int, end: int, before: int) -> Span | None:
    """The token that begins here. Most runs are the names of things, so the tests are in the order of their cost."""
    begin = begin_of_blob(data, run) if before in _SLASHES else run
    span = _told(data, run) if data[run : run + 3] in starts() else None
    if not span and (begin != run or before in JOINTS):
        span = _joined(data, run, before) or (_told(data, past_glue(data, begin)) if begin != run else None)
    if not span and end - begin >= _SHORTEST_GLUED and data[begin + 8 : begin + 9] != b"-":  # not a UUID
        span = _inside(data, begin, end)
    if not span and ((end < len(data) and data[end] in MARKS) or b"-us" in data[end - 5 : end]):
        span = _of_shape(data, run)
    if not span and data[begin:end].translate(None, _LETTERS):
        long = end - begin >= _SHORTEST_MARKED or data[end : end + 1] in (b"+", b"/")
        span = (_signed(data, begin, end) if long else None) or _held(data, begin, end)
    return span


def _told(data: bytes, start: int) -> Span | None:
    """The token that begins here by its beginning."""
    for rule in starts().get(data[start : start + 3], ()):
        if (span := _by_rule(data, start, rule)) and not _in_hash(data, start):
            return span
    return None


def _by_rule(data: bytes, start: int, rule: Rule, *, glued: bool = False) -> Span | None:
    found = rule.match(data, start, start + _LONGEST)
    if not found and _ENDLESS.fullmatch(data, start, start + _LONGEST):
        found = rule.match(data, start, len(data))
    if not found or not (rule.even_filler or is_token(found.group()[:_LONGEST], alone=rule.alone or glued)):
        return None
    if found.end() == start + _LONGEST:
        found = rule.match(data, start, len(data)) or found
    first, last = found.span("secret") if "secret" in found.re.groupindex else (start, found.end())
    return first, last, rule.mask


def _in_hash(data: bytes, start: int) -> bool:
    """Whether this is a stretch of base64 that only happens to go on like a token: a picture, a checksum."""
    blob = start > 0 and data[start - 1] in _SLASHES and _BLOB.match(data, max(0, start - 20), start)
    return bool(blob) or data[start - 7 : start] == b"sha256="


def _joined(data: bytes, run: int, before: int) -> Span | None:
    """The token of which the run is a later part, or that begins behind an escape."""
    start = _begin(data, run, before)
    if data[start : start + 4] == b"http":
        return _of_shape(data, start)
    if before in b"%" and (span := _encoded(data, run)):
        return span
    if data[start : start + 3] in starts() and (span := _told(data, start)):
        return span
    return _of_shape(data, start) if start != run and _is_joint(data, start, run, before) else None


def _is_joint(data: bytes, start: int, run: int, before: int) -> bool:
    """Whether one of the shapes can go on behind this joint: most dots and colons are those of a path or a time."""
    if before in b":":
        return data[run] in b"A"
    return (
        before not in b"."
        or data[run - 8 : run - 7] == b"."
        or data[run - 8 : run] == b"atlasv1."
        or data[run : run + 2] == b"eJ"
        or b"~" in data[start:run]
    )


def _begin(data: bytes, run: int, before: int) -> int:
    """Where the token begins whose letters the gate saw: behind an escape, or before a joint."""
    if before in b"\\%":
        return past_glue(data, run)
    if before in _SLASHES:
        hook = b"hook" in data[max(0, run - 60) : run]
        return max(data.rfind(b"http", max(0, run - 160), run), 0) if hook else run
    head = data[max(0, run - 48) : run]
    if head.endswith(b"SG."):
        return run - 3
    return past_glue(data, run - len(head) + len(head.rstrip(_NAME + b"~:|!")))


def _encoded(data: bytes, run: int) -> Span | None:
    """The rest of a percent-encoded value whose name stands before its first part: `sig=`, `connect.sid=`."""
    name = max(data.rfind(b"sig=", max(0, run - 60), run), data.rfind(b".sid=", max(0, run - 16), run))
    first = data.find(b"=", name) + 1 if name >= 0 else 0
    found = _ENCODED.match(data, first) if first else None
    return (
        (first, found.end(), b"TOKEN")
        if found and found.end() > run and looks_random(found.group(), least=20)
        else None
    )


def _inside(data: bytes, begin: int, end: int) -> Span | None:
    """A token glued to other letters: a colour code, an instance's own prefix, a name."""
    index = tails()
    tried = 0
    for found in _SEPARATOR.finditer(data, begin + 3, end):
        at = found.end()
        for rule in index.get(data[at - 4 : at], ()):
            start = at - len(rule.start)
            tried += 1
            apart = begin < start <= begin + _LONGEST_GLUE and not data[start - 1 : start].islower()
            if apart and tried <= _MOST_INNER and (span := _by_rule(data, start, rule, glued=True)):
                return span
    return None


def _of_shape(data: bytes, start: int) -> Span | None:
    found = shape().match(data, start, start + _LONGEST)
    return (start, found.end(), str(found.lastgroup).encode()) if found else None


def _signed(data: bytes, begin: int, end: int) -> Span | None:
    """A key with its provider's signature inside, or with a word such as `_live_` before the random part."""
    signature = _SIGNATURE.search(data, begin, begin + 120)
    if signature and (found := signed().match(data, begin, begin + 200)):
        return begin, found.end(), str(found.lastgroup).encode()
    if not (marked := _MARKED.match(data, begin, end)):
        return None
    body = marked["body"]
    # A hexadecimal body is often a hash of something, and a UUID an id.
    plain = not marked["strong"] and (not _MIXED.fullmatch(body) or is_uuid(body))
    return None if plain or not is_token(body, alone=True) else (begin, marked.end(), b"API_KEY")


def _held(data: bytes, begin: int, end: int) -> Span | None:
    """A random value behind a name that only its provider knows to be secret, or behind a scheme of HTTP."""
    if data[begin - 4 : begin] == b"sig=":
        return _encoded(data, end - 1)
    if data.rfind(b":5432:", max(0, begin - 80), begin) >= 0:
        listed = _PGPASS.search(data, max(0, begin - _FARTHEST_WORD), begin)
        return (begin, end, b"PASSWORD") if listed else None
    if begin and data[begin - 1] in _HELD_BEHIND:
        span = _cookie(data, begin) if data[begin - 1] in b"=" else None
        if span or (span := _behind_name(data, begin, end)):
            return span
    if end - begin == _WALLET_SIZE and _WALLET_KEY.fullmatch(data, begin, end) and _near(data, begin, _WALLET):
        return begin, end, b"PRIVATE_KEY"
    return None


def _cookie(data: bytes, begin: int) -> Span | None:
    """A cookie that opens a session: a random value in a header of cookies, or one with the name of a session."""
    word = data.rfind(b"ookie", max(0, begin - COOKIE), begin)
    if word < 0 or data.find(b"\n", word, begin) >= 0 or not _COOKIE_HEADER.match(data, word):
        return None
    name = _COOKIE_NAME.search(data, max(word, begin - 80), begin)
    found = _COOKIE_VALUE.match(data, begin, begin + _LONGEST)
    if not name or not found or is_placeholder(found.group()):
        return None
    session = _SESSION.search(name.group())
    opens = looks_random(found.group(), least=16) or (session and not found.group().isalpha())
    return (begin, found.end(), b"TOKEN") if opens else None


def _behind_name(data: bytes, begin: int, end: int) -> Span | None:
    head = data[max(0, begin - _FARTHEST_HOLDER) : begin]
    bare = head.rstrip(_AROUND)
    if bare[-3:].lower() not in _HOLDER_ENDS and bare[-1:] not in b"dD":
        return None
    start = past_glue(data, begin - len(head) + len(bare.rstrip(_NAME)))
    name = data[start : begin - len(head) + len(bare)].lower()
    if not _HOLDER.fullmatch(name):
        return None
    value = data[begin:end]
    if name == b"d":
        private = looks_random(value, least=20) and _near(data, begin, _WEB_KEY)
        return (begin, end, b"PRIVATE_KEY") if private else None
    if not head[len(bare) :].strip(b" \t"):
        found = _CREDENTIAL.match(data, begin)  # Bearer ...
        scheme = found and name in _SCHEMES and not is_placeholder(found.group())
        return (begin, found.end(), b"TOKEN") if found and scheme else None
    return (begin, end, b"API_KEY") if looks_random(value, least=12) or is_uuid(value) else None


def _near(data: bytes, at: int, words: re.Pattern[bytes]) -> bool:
    return bool(words.search(data, max(0, at - _FARTHEST_WORD), at + _FARTHEST_WORD + 66))
