"""What at a place the gate pointed to is a secret? Each finder looks at a bounded neighbourhood and yields spans."""

from __future__ import annotations

import re
from bisect import bisect
from itertools import pairwise
from typing import TYPE_CHECKING

from orihon.secrets.gate import JOINTS, MARKS, QUOTES
from orihon.secrets.names import Kind, kind_of
from orihon.secrets.rules import MASK, SHAPE, STARTS, VENDORS
from orihon.secrets.values import is_placeholder, is_secret, is_uuid, looks_random

if TYPE_CHECKING:
    from collections.abc import Iterator

Span = tuple[int, int, bytes]

_NAME = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-."
_FARTHEST_NAME = 64
_FEWEST_BYTES = 4
_LONGEST_VALUE = 600
_ASSIGN = re.compile(
    rb"""
    (?:\[\w{0,8}\])?                                          # char secret[25]
    (?P<close>(?:\\{0,6}["'`]|&quot;|%22)?) [\])]{0,2}
    (?: [ \t]{1,8}(?:string|String|str) (?=[ \t]*=)           # var token string = ...
      | [ \t]?:[ \t]?[A-Za-z][\w.|\[\], ]{1,30}[ \t](?==[ \t]) )?   # token: str = ...
    (?P<op>
        :[ \t]*[|>][+-]?[ \t]*\r?\n[ \t]*                     # a YAML block
      | [ \t]{0,40}(?:[:?+.!|=]{0,3}=>?|:{1,3}|%3[AaDd])[ \t]{0,40}
      | >\s{0,40}                                             # <token> ...
      | [ \t]*,?\s{0,40}["']?value["']?[ \t]*[=:][ \t]*       # name="TOKEN" value="..."
      | [ \t]*,[ \t]*(?=["'`])                                # setProperty("TOKEN", "...")
      | [ \t]{1,40}(?=["'`])                                  # password "..."
      | [ \t]+(?!-)                                           # --token ...
    )
    (?:(?P<prefix>[@bBrRuUfF]{0,2})(?P<quote>\\{0,6}(?:"{3}|'{3}|["'`])|&quot;|%22))?
    (?P<scheme>(?i:bearer|basic|token|apikey|api-key|api-token|digest|negotiate|ssws|key|oauth)[ \t]{1,4})?
    """,
    re.VERBOSE,
)
_BARE = re.compile(rb"[^\s\"'`,;<&\\]+(?:,(?![\w \"'-]{0,40}[=:])[^\s\"'`,;<&\\]+)*")
_QUOTE = frozenset((b'"', b"'"))
_ENDINGS = frozenset((b".", b":", b";", b")", b"]", b"}"))
_CLOSING = {b")": b"(", b"]": b"[", b"}": b"{"}
_CREDENTIAL = re.compile(rb"(?=.*\d)[\w.~+/=-]{8,}|[\w.~+/=-]{24,}")
_CLOSES = re.compile(rb"[^<>\n]{1,600}\s{0,40}</")
_NETRC = re.compile(rb"\blogin\s+\S+\s+$")
_COMPARED = re.compile(rb"([\"'`])(?P<value>[^\"'`\n]{5,200})\1[ \t]{0,4}[!=]=+[ \t]{0,4}$")
_VENDOR = re.compile(rb"(?i)(?:" + VENDORS.encode() + rb")[\"']?[ \t]*[:=]{1,4}[ \t]*[\"'`]?$")
_MASKED = re.compile(MASK.pattern.encode())
_LETTERS = _NAME[:52] + b"_-"
_WORDS = re.compile(rb"(?=.*[a-z])[A-Za-z_]+|X+")
_BLOB = re.compile(rb"[A-Za-z0-9+/]{20}")


def tokens(data: bytes, runs: list[tuple[int, int]]) -> Iterator[Span]:
    """Tokens that say themselves what they are, wherever they stand."""
    for run, end in runs:
        # Most runs are the names of things; these few tests let them go in half a microsecond.
        if data[run : run + 3] in STARTS:
            yield from _told(data, run)
        elif run and (data[run - 1] in JOINTS or data[run - 1] in b"/"):
            start = _begin(data, run, data[run - 1])
            if data[start : start + 3] in STARTS or data[run - 1] in b"~:\\%" or b"~" in data[start:run]:
                yield from _told(data, start)
            elif data[start : start + 4] == b"http":
                yield from _of_shape(data, start)
        if data[run:end].translate(None, _LETTERS):
            yield from _shaped(data, run, end)


def _begin(data: bytes, run: int, before: int) -> int:
    """Where the token begins whose letters the gate saw: behind an escape, or before a joint."""
    if before in b"\\":
        return run + (5 if data[run] in b"u" else 1 if data[run] in b"nrtfb" else 0)
    if before in b"%":
        return run + 2
    if before in b"/":
        hook = b"hook" in data[max(0, run - 60) : run]
        return max(data.rfind(b"http", max(0, run - 120), run), 0) if hook else run
    head = data[max(0, run - 48) : run]
    if head.endswith(b"SG."):
        return run - 3
    return run - len(head) + len(head.rstrip(_NAME + b"~:|"))


def _told(data: bytes, start: int) -> Iterator[Span]:
    for rule in STARTS.get(data[start : start + 3], ()):
        if found := rule.match(data, start):
            if not _in_hash(data, start) and (rule.even_filler or not _is_filler(found.group())):
                yield start, found.end(), rule.mask
            return
    yield from _of_shape(data, start)


def _in_hash(data: bytes, start: int) -> bool:
    """Whether this is a stretch of base64 that only happens to go on like a token: a picture, a checksum."""
    blob = start > 0 and data[start - 1] in b"+/" and _BLOB.match(data, max(0, start - 20), start)
    return bool(blob) or data[start - 7 : start] == b"sha256="


def _of_shape(data: bytes, start: int) -> Iterator[Span]:
    if found := SHAPE.match(data, start):
        yield start, found.end(), str(found.lastgroup).encode()


def _shaped(data: bytes, run: int, end: int) -> Iterator[Span]:
    """A token with a mark in it, or a random value under a name that only its provider knows to be secret."""
    if (end < len(data) and data[end] in MARKS) or b"-us" in data[end - 5 : end]:
        yield from _of_shape(data, run)
        return
    value = data[run:end]
    named = run and data[run - 1] in QUOTES and _VENDOR.search(data, max(0, run - 80), run)
    if named and (looks_random(value, least=12) or is_uuid(value)):
        yield run, end, b"API_KEY"


def _is_filler(body: bytes) -> bool:
    """Whether a body is a row of x, or words: `hf_` begins tokens and also the names of variables."""
    words = _WORDS.fullmatch(body) and not looks_random(body, least=12)
    return bool(words) or len(set(body)) < _FEWEST_BYTES or body.endswith((b"HERE", b"Here"))


def assigned(data: bytes, stems: list[int]) -> Iterator[Span]:
    """Values that stand under a name that names a secret."""
    done = 0
    for stem in stems:
        if stem < done:
            continue
        head = data[max(0, stem - _FARTHEST_NAME) : stem]
        start = stem - len(head) + len(head.rstrip(_NAME))
        tail = data[stem : stem + _FARTHEST_NAME]
        done = stem + len(tail) - len(tail.lstrip(_NAME))
        kind = kind_of(data[start:done].decode("ascii"))
        if kind is not Kind.NOTHING and not _is_mask(data, start, done) and (span := _value(data, start, done, kind)):
            yield span
            done = max(done, span[1])


def _is_mask(data: bytes, start: int, end: int) -> bool:
    return data[start - 1 : start] == b"[" and data[end : end + 1] == b"]" and data[start:end].isupper()


def _value(data: bytes, start: int, end: int, kind: Kind) -> Span | None:
    if found := _COMPARED.search(data, max(0, start - 220), start):
        secret = is_secret(found["value"], kind, quoted=True, data=False)
        return (*found.span("value"), _mask(kind)) if secret else None
    assign = _ASSIGN.match(data, end)
    if not assign or not _fits(data, start, assign):
        return None
    first = assign.end()
    quote = assign["quote"] or b""
    last = _end_of_value(data, first, quote)
    value = data[first:last]
    if not quote:
        value = _trimmed(value, assign["op"])
        last = first + len(value)
    if assign["scheme"] and kind is Kind.TOKEN and _CREDENTIAL.fullmatch(value) and not is_placeholder(value):
        return first, last, b"TOKEN"
    loose = not assign["op"].strip(b" \t,") and data[start : start + 2] != b"--"
    if loose and not looks_random(value, least=8) and not value.isdigit():
        return None  # `pass "words"`, `("password", "words")`
    header = value.isalnum() and data[last : last + 1] in _QUOTE  # -H "X-Token: abc"
    quoted = bool(quote) or header or assign["op"].strip() == b">"
    if is_secret(value, kind, quoted=quoted, data=_is_setting(data, start, last, assign)):
        return first, last, _mask(kind)
    return None


def _mask(kind: Kind) -> bytes:
    return b"API_KEY" if kind is Kind.KEY else kind.value


def _trimmed(value: bytes, op: bytes) -> bytes:
    """An unquoted value without what the sentence, the call or the query around it adds."""
    if op.startswith(b"%"):
        value = value.partition(b"%26")[0]
    while value[-1:] in _ENDINGS and (
        value[-1:] not in _CLOSING or value.count(_CLOSING[value[-1:]]) < value.count(value[-1:])
    ):
        value = value[:-1]
    return value


def _is_setting(data: bytes, start: int, last: int, assign: re.Match[bytes]) -> bool:
    """Whether a value stands in data, as in `"name": "x"`, `NAME=x`, `--name x`, `name=x1`; `f(name=x1)` is code."""
    plain = data[assign.end() : last].isalpha()
    if assign["close"] or data[start : start + 2] == b"--":
        return bool(assign["quote"]) or not plain
    if assign["quote"] or data[last : last + 1] in (b")", b","):
        return False
    shell = assign["op"] == b"=" and data[start : assign.start()].isupper()
    return shell or (assign["op"] in (b"=", b":", b": ") and not plain)


def _fits(data: bytes, start: int, assign: re.Match[bytes]) -> bool:
    """Whether the operator is one in this place, and the value is written out."""
    op, quote, before = assign["op"].strip(), assign["quote"], data[start - 2 : start]
    if assign["prefix"] and assign["prefix"].lower() != b"b" and assign["prefix"] != b"@":
        return False  # an f-string holds a variable, an r-string an expression
    if op == b",":
        return bool(assign["close"]) and before[:1] == b"("
    if op == b">":
        return bool(_CLOSES.match(data, assign.end()))
    if op == b":":
        return before[1:] != b":"  # arn:aws:...:secret:name
    if not op:
        flag = before == b"--" or data[start : start + 2] == b"--" or _NETRC.search(data, max(0, start - 80), start)
        return not assign["close"] and bool(quote or flag)
    return True


def _end_of_value(data: bytes, first: int, quote: bytes) -> int:
    limit = first + _LONGEST_VALUE
    if quote:
        close = data.find(quote, first, limit)
        newline = data.find(b"\n", first, limit)
        if close >= 0 and not 0 <= newline < close:
            return close
    bare = _BARE.match(data, first, limit)
    return bare.end() if bare else first


def merged(data: bytes, spans: list[Span]) -> list[Span]:
    """Put spans in order and join those that overlap; the longest one lends its mask. What is masked stays."""
    masks = [found.span() for found in _MASKED.finditer(data)]
    out: list[Span] = []
    for span in sorted(spans, key=lambda span: (span[0], -span[1])):
        at = bisect(masks, (span[0], 0))
        if any(start < span[1] and span[0] < end for start, end in masks[max(0, at - 1) : at + 1]):
            continue
        if out and span[0] < out[-1][1]:
            start, end, mask = out[-1]
            longer = mask if end - start >= span[1] - span[0] else span[2]
            out[-1] = (start, max(end, span[1]), longer)
        else:
            out.append(span)
    return out


def replaced(data: bytes, spans: list[Span]) -> bytes:
    """Put the masks in the place of the spans, which are in order and apart."""
    edges = [(0, 0, b""), *spans]
    parts = [data[left[1] : right[0]] + b"[" + right[2] + b"]" for left, right in pairwise(edges)]
    return b"".join(parts) + data[edges[-1][1] :]
