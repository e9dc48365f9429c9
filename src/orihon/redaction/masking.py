"""Replace the secrets in a text by masks such as `[PASSWORD]`.

Masked are tokens with the shape of a known provider's, values that look secret under a name that says so, private keys,
passwords in URLs and on command lines, e-mail addresses, and the exact values that the process was given.

Not masked are bare random strings without any context, secrets that their sender split in two, passwords made of plain
words in a sentence, and everything inside pictures and archives.

`scan` finds the places where a secret could be. Most text has none and is done after a few passes at C speed. It only
points; the detectors decide. It may point too often, but never too rarely. It works on UTF-8 bytes: there is one kind
of offset, and `bytes.find` is fast.
"""

from __future__ import annotations

import base64
import json
import re
from bisect import bisect, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import product
from operator import methodcaller
from typing import Any, NamedTuple

from orihon.redaction.detect_tokens import (
    MAX_BLOB,
    RUN_BYTES,
    SLASHES,
    SURE_STARTS,
    Span,
    find_blob_start,
    find_tokens,
    is_in_path,
    is_sure,
)
from orihon.redaction.entropy import is_placeholder
from orihon.redaction.escapes import TERMINAL_CODE, skip_escape
from orihon.redaction.key_names import looks_secret

_NAMES = (
    "GITHUB_TOKEN GITLAB_TOKEN OPENAI_KEY ANTHROPIC_KEY AWS_KEY GOOGLE_KEY SLACK_TOKEN STRIPE_KEY "
    "PRIVATE_KEY JWT EMAIL PASSWORD TOKEN API_KEY SECRET WEBHOOK DATABASE_URL"
)
MASKS = frozenset(_NAMES.split())
_MASK = re.compile(r"\[(?:" + "|".join(sorted(MASKS)) + r")\]")
_MASK_BYTES = re.compile(_MASK.pattern.encode())
_JSON_NUMBER = re.compile(rb"(?P<quote>\\{0,7}\")\s{0,8}:\s{0,8}$")
_MIN_TEXT = 6  # the length of a@b.cd
_MIN_KNOWN = 8
_LINE = 2000  # bytes around a terminal code that are examined
_ENCODED = re.compile(rb"%(?:20|22|27|3[ABDabd])")  # what separates a name from its value
_PERCENT = re.compile(rb"%[0-9A-Fa-f]{2}")
_TRIVIAL = re.compile(
    r"[A-Za-z]+|\d{1,11}|[\d.]+|[~./][\w./~-]*|(?:file|https?)://[^@]*|[\w.-]+\.(?:json|pem|key|crt|txt|ya?ml)"
)

# Each search for a word is a pass over the text. In this alphabet a, d, k, s, u and w are one letter, and so are e and
# t; h, n and y. Therefore one pass finds `pass`, `psk` and `pwd`, and one finds `key`, `token`, `auth`, `senha`,
# `contrasena` and `identified`.
_FOLDED = bytes(range(256)).lower().translate(bytes.maketrans(b"adsuwthn", b"kkkkkeyy"))
_NEEDLES = (b"cre", b"pkk", b"key")
# The three bytes that are found, in capitals or not, and whether they are enough; otherwise the expression decides.
_HEADS = {
    bytes(cased): head in (b"key", b"pwd")
    for head in (b"cre", b"pas", b"pwd", b"key", b"ken", b"uth", b"sen", b"den")
    for cased in product(*zip(head, head.upper(), strict=True))
} | {b"psk": True, b"PSK": True}
_STEM = re.compile(rb"(?i)cre[dt]|pass|(?<=to)ken|kennwort|(?<=a)uth|senha|(?<=contra)sena|(?<=i)dentified")
_OFFSETS = {b"ken": 2, b"uth": 1, b"sena": 6, b"dentified": 1}  # of what is found, in its word
_FLAG = re.compile(rb"-[kp]")
_COLON = re.compile(
    rb":(?:(?:\d{4,5}|\*):[\w*.-]{1,60}:[\w*.-]{1,60}:[^\s:]|//hooks?\.)"
)  # a line of .pgpass, a webhook
_get_start = methodcaller("start")
_BEFORE_FLAG = (b" ", b'"', b"'")
_AFTER_FLAG = (b" ", b'"', b"'", b"\\", b"=")

_RUN = 13  # bytes of the shortest token that is recognisable on its own
_CLASSES = bytes(120 if byte in RUN_BYTES else 32 for byte in range(256))  # x for the bytes of runs, else a space
_LONG_RUN = b"x" * _RUN
_RULER = b"---"
# Tokens that can lack a digit. Behind a name, nothing else points to them.
_LETTER_TOKEN = re.compile(rb"(?<=[_-])(?:hf_|api_org_|gh[oprsu]_|glpat-|tskey-|npm_|sk-ant-|[rs]k_live_)")
_TO_DIGIT = re.compile(rb"[A-Za-z_-]*+[0-9]")
_BLOB = re.compile(rb"[A-Za-z0-9+/]*")
_JOINTS = SLASHES | frozenset(b"\\%~\x1b\x9b")  # before a run: it begins with an escape, or continues something
_JOINTS_AND_BRACKET = _JOINTS | {ord("(")}  # ESC ( B selects a character set

_ASCII, _HIGH = bytes(range(128)), bytes(range(128, 256))
_SAMPLE = 256  # bytes that show the script of a text
# Words for a password, a key or a token, each with its mask, by a letter of theirs that is found quickly.
_FOREIGN = [
    (letter, [(word.encode(), mask) for word in words.split()])
    for letter, words, mask in (
        ("ワ", "パスワード", b"PASSWORD"),
        ("レ", "パスフレーズ", b"PASSWORD"),
        ("番", "暗証番号", b"PASSWORD"),
        ("口", "口令", b"PASSWORD"),
        ("ł", "hasło Hasło", b"PASSWORD"),
        ("ş", "şifre", b"PASSWORD"),
        ("秘", "秘密鍵", b"API_KEY"),
        ("码", "密码", b"PASSWORD"),
        ("호", "비밀번호", b"PASSWORD"),
        ("л", "пароль Пароль", b"PASSWORD"),
        ("ñ", "contraseña Contraseña", b"PASSWORD"),
        ("キ", "キー", b"API_KEY"),
        ("ク", "トークン", b"TOKEN"),
    )
]
# The same words as JSON has them, and the first escape of each.
_ESCAPED = [(json.dumps(word.decode())[1:-1].encode(), mask) for _, words in _FOREIGN for word, mask in words]
_ESCAPED_LETTER = re.compile(rb"\\u(?:" + b"|".join({word.partition(b"\\u")[2][:4] for word, _ in _ESCAPED}) + rb")")


class KnownSecrets:
    """Exact values to mask as `[SECRET]`, also when JSON-escaped, URL-encoded or inside base64."""

    def __init__(self, values: Iterable[str]) -> None:
        forms = {form for value in values for form in _iter_forms(value)}
        self.forms = sorted(forms, key=len, reverse=True)

    @classmethod
    def gather(cls, environ: Mapping[str, str], extra: Iterable[str] = ()) -> KnownSecrets:
        """Take the variables whose name looks secret and whose value could be a secret, and the extra values."""
        named = (value for name, value in environ.items() if looks_secret(name) and not _is_trivial(value))
        return cls([*named, *(value for value in extra if len(value) >= _MIN_KNOWN)])

    def __bool__(self) -> bool:
        return bool(self.forms)


def _is_trivial(value: str) -> bool:
    """Return whether a value is too short or too ordinary to search for: a path, a word, a number, a URL."""
    if len(value) < _MIN_KNOWN or _TRIVIAL.fullmatch(value):
        return True
    return is_placeholder(value.encode("utf-8", "surrogatepass"))


def _iter_forms(value: str) -> Iterator[bytes]:
    """Yield the forms in which a text can contain a value."""
    from urllib.parse import quote, quote_plus  # noqa: PLC0415 - 0.4 MB that only a process with a secret needs

    raw = value.encode("utf-8", "surrogatepass")
    yield raw
    for ascii_only in (True, False):
        yield json.dumps(value, ensure_ascii=ascii_only)[1:-1].encode("utf-8", "surrogatepass")
    yield quote(raw, safe="").encode()
    yield quote_plus(raw).encode()
    # Base64 of a longer text contains one of three forms of the value; the letters at its ends depend on the context.
    for shift in range(3):
        encoded = base64.b64encode(b"\0" * shift + raw).rstrip(b"=")
        core = encoded[(0, 2, 3)[shift] : len(encoded) - (1 if (shift + len(raw)) % 3 else 0)]
        if len(core) >= _MIN_KNOWN + 2:
            yield core


def masks_in(text: str) -> frozenset[str]:
    """Return the masks in a text, with their brackets."""
    return frozenset(_MASK.findall(text)) if "[" in text else frozenset()


def has_mask(text: str) -> bool:
    """Return whether a text contains a mask."""
    return bool(masks_in(text))


def mask(text: str, *, known: KnownSecrets | None = None, kinds: frozenset[str] | None = None) -> str:
    """Replace every secret in a text by a mask. A text without a secret is returned as the same object.

    `kinds` are the masks to use, by default all. Known values are masked in any case.
    """
    if len(text) < _MIN_TEXT:
        return text
    data = masked = text.encode("utf-8", "surrogatepass")
    forms = () if known is None else known.forms
    special = not text.isascii() or "\x1b" in text or ("\\" in text and "\\u" in text)
    words, coded = scan_text(text, data) if special else ([], False)
    codes = [TERMINAL_CODE] if coded else []
    if "%" in text and _ENCODED.search(data):
        codes.append(_PERCENT)
    # A mask changes the context of its neighbours, so repeat until nothing changes: masking twice is masking once.
    while (hits := scan(masked, forms)) or words or codes:
        spans = _find_spans(masked, hits, words, codes)
        if kinds is not None:
            spans = [span for span in spans if span[2].decode() in kinds]
        if hits and hits.known:
            spans = [*hits.known, *spans]
        before, masked = masked, _replace(masked, spans) if spans else masked
        if masked is before:
            break
    return text if masked is data else masked.decode("utf-8", "surrogatepass")


def _find_spans(
    data: bytes, hits: Hits | None, words: list[tuple[bytes, bytes]], codes: list[re.Pattern[bytes]]
) -> list[Span]:
    spans = _detect(data, hits) if hits else []
    if words:
        spans += _load_detectors().find_foreign(data, words)
    for part in (part for pattern in codes for part in _strip_codes(data, pattern)):
        part_hits = scan(part.data)
        spans += [part.locate(span) for span in _detect(part.data, part_hits)] if part_hits else []
    return spans


def _detect(data: bytes, hits: Hits) -> list[Span]:
    """Return the secrets at the places that the prefilter found."""
    spans = find_tokens(data, hits.runs) if hits.runs else []
    if hits.stems:
        spans += _load_detectors().find_announced(data, hits.stems)
    if hits.ats or hits.flags:
        spans += _load_detectors().find_logins(data, hits.ats, hits.flags)
    return spans


@cache
def _load_detectors() -> Any:
    """Load the detectors when they are needed: compiling their expressions takes 15 ms."""
    from orihon.redaction import detect_assignments  # noqa: PLC0415

    return detect_assignments


def _replace(data: bytes, spans: list[Span]) -> bytes:
    """Replace spans by masks; overlapping spans by one mask, that of the longest. Masks in the data are left alone."""
    masks = [found.span() for found in _MASK_BYTES.finditer(data)] if spans and b"[" in data else []
    if len(spans) > 1:
        spans = sorted(spans, key=lambda span: (span[0], -span[1]))
    merged: list[Span] = []
    for start, end, name in spans:
        at = bisect(masks, (start, 0))
        if masks and any(first < end and start < last for first, last in masks[max(0, at - 1) : at + 1]):
            continue
        if merged and start < merged[-1][1]:
            first, last, other = merged[-1]
            merged[-1] = (first, max(last, end), other if last - first >= end - start else name)
        else:
            merged.append((start, end, name))
    parts, done = [], 0
    for start, end, name in merged:
        # A mask in place of a JSON number needs quotes.
        number = _JSON_NUMBER.search(data, max(0, start - 24), start) if data[start:end].isdigit() else None
        quote = number["quote"] if number else b""
        parts += [data[done:start], quote, b"[", name, b"]", quote]
        done = end
    return b"".join([*parts, data[done:]]) if merged else data


def _strip_codes(data: bytes, codes: re.Pattern[bytes]) -> Iterator[_PlainPart]:
    """Yield the lines that contain codes, without the codes. Neighbouring lines are one part."""
    first, last = 0, -1
    for code in codes.finditer(data):
        start, end = code.span()
        if start >= last:
            line = data.rfind(b"\n", max(0, start - _LINE), start) + 1 or max(0, start - _LINE)
            if line > last >= 0:
                yield _PlainPart(data[first:last], first, codes)
            first = line if line > last else first
        line_end = data.find(b"\n", end, end + _LINE)
        last = max(last, line_end + 1 if line_end >= 0 else min(len(data), end + _LINE))
    if last >= 0:
        yield _PlainPart(data[first:last], first, codes)


class _PlainPart:
    """A part of a text without its terminal codes, or with its percent-encoding decoded."""

    def __init__(self, data: bytes, offset: int, codes: re.Pattern[bytes]) -> None:
        self._plain = [0]  # where each piece begins without the codes
        self._coded = [offset]  # and with them
        pieces, end = [], 0
        for code in codes.finditer(data):
            pieces.append(data[end : code.start()])
            end = code.end()
            if codes is _PERCENT:
                self._add_piece(pieces[-1], offset + code.start())
                pieces.append(bytes((int(code.group()[1:], 16),)))
            self._add_piece(pieces[-1], offset + end)
        self.data = b"".join([*pieces, data[end:]])

    def _add_piece(self, before: bytes, coded: int) -> None:
        self._plain.append(self._plain[-1] + len(before))
        self._coded.append(coded)

    def locate(self, span: Span) -> Span:
        """Return where a span is in the original text. Codes inside the span belong to it."""
        start, end, mask_name = span
        piece = bisect_right(self._plain, end - 1) - 1
        last = self._coded[piece] + end - self._plain[piece]
        if piece + 1 < len(self._plain) and self._plain[piece + 1] == end == self._plain[piece] + 1:
            last = self._coded[piece + 1]  # a decoded byte
        return self._locate(start), last, mask_name

    def _locate(self, at: int) -> int:
        piece = bisect_right(self._plain, at) - 1
        return self._coded[piece] + at - self._plain[piece]


# the places where a secret could be


class Hits(NamedTuple):
    """Places to examine, each list in rising order."""

    stems: list[int]  # where a word begins that could name a secret
    runs: list[tuple[int, int]]  # long runs of letters, digits, _ and -
    ats: list[int]  # each @, also as %40
    flags: list[int]  # each flag or word of a command that announces a password
    known: list[Span]  # values that are known to be secret


def scan_text(text: str, data: bytes) -> tuple[list[tuple[bytes, bytes]], bool]:
    """Return the foreign words for passwords and tokens that a text may contain, and whether it has terminal codes."""
    found: list[tuple[bytes, bytes]] = []
    for letter, words in _FOREIGN:
        if letter in text:
            found += words
    if "\\u" in text and _ESCAPED_LETTER.search(data):
        found += [(word, mask) for word, mask in _ESCAPED if word in data]
    return found, "\x1b" in text or "\x9b" in text


def scan(data: bytes, known: Sequence[bytes] = ()) -> Hits | None:  # noqa: C901, PLR0912 - plain loops: each call costs
    """Return the places where a secret could be; None if there are none. `known` are values to search for."""
    stems: list[int] = []
    flags: list[int] = []
    ats: list[int] = []
    values: list[Span] = []
    rest = folded = data.translate(_FOLDED)
    if not data.isascii() and len(data[:_SAMPLE].translate(None, _HIGH)) * 2 < min(len(data), _SAMPLE):
        rest = folded.translate(None, _HIGH)  # Japanese: without its own letters it is short, and has none of the words
    find, find_head = folded.find, _HEADS.get
    for needle in _NEEDLES:
        at = find(needle) if rest is folded or needle in rest else -1
        while at >= 0:
            enough = find_head(data[at : at + 3])
            if enough:
                stems.append(at)
            elif enough is False and (stem := _STEM.match(data, at)):
                word = stem.group().lower()
                (flags if word == b"dentified" else stems).append(at - _OFFSETS.get(word, 0))
            at = find(needle, at + 1)
    for flag in _FLAG.finditer(folded if b"-" in rest else b""):
        at = flag.start()
        before, letter = data[at - 1 : at], data[at + 1]
        if letter in b"sS":
            if data[at + 1 : at + 13].lower() == b"securestring":
                flags.append(at + 1)
            elif letter in b"S" and data[at - 5 : at] == b"sudo ":
                flags.append(at)
        elif before in _BEFORE_FLAG:
            if letter in b"uUpP" or (letter in b"aAkKwW" and data[at + 2 : at + 3] in _AFTER_FLAG):
                flags.append(at)
        elif data[at : at + 5].lower() == b"-user" and (before == b"-" or data[at - 7 : at] == b"--proxy"):
            flags.append(at)
    flags += map(_get_start, _COLON.finditer(data))
    for sign in (b"@", b"%40") if b"%" in data else (b"@",):
        at = data.find(sign)
        while at >= 0:
            ats.append(at)
            at = data.find(sign, at + 1)
    for value in known:
        at = data.find(value)
        while at >= 0:
            values.append((at, at + len(value), b"SECRET"))
            at = data.find(value, at + len(value))
    runs = _find_runs(data)
    if not (stems or runs or ats or flags or values):
        return None
    stems.sort()
    ats.sort()
    flags.sort()
    return Hits(stems, runs, ats, flags, values)


def _find_runs(data: bytes) -> list[tuple[int, int]]:
    """Return the runs that are long enough to be a token and are more than a name.

    A megabyte of code has thousands of long names, so what tells a token from a name is tested here: a digit, a known
    beginning, or a sign before it that makes it the later part of something.
    """
    runs: list[tuple[int, int]] = []
    classes = data.translate(_CLASSES)
    find, find_digit = classes.find, _TO_DIGIT.match
    joints = _JOINTS_AND_BRACKET if b"\x1b" in data else _JOINTS
    start, end = find(_LONG_RUN), -1
    while start >= 0:
        if start == end:  # a name that continues
            end = find(b" ", start + _RUN)
            end = len(data) if end < 0 else end
            if token := _LETTER_TOKEN.search(data, start - _RUN, end):
                runs.append((token.start(), end))
        elif data[start - 1] in joints and start:
            end = find(b" ", start + _RUN)
            end = _examine_joined(data, start, len(data) if end < 0 else end, runs)
        elif find_digit(data, start) or (data[start : start + 3] in SURE_STARTS and is_sure(data, start)):
            end = find(b" ", start + _RUN)
            end = len(data) if end < 0 else end
            runs.append((start, end))
        else:
            end = start + _RUN  # a name
        start = find(_LONG_RUN, end)
    return runs


def _examine_joined(data: bytes, start: int, end: int, runs: list[tuple[int, int]]) -> int:
    """Add a run behind a slash, a plus or an escape, unless it is a part of a path. Return where to continue."""
    if data.startswith(_RULER, start):
        return end
    begin, before, digit = start, data[start - 1], bool(_TO_DIGIT.match(data, start))
    if before in SLASHES:
        begin = find_blob_start(data, start)
        hook = b"hook" in data[max(0, start - 60) : start]
        if begin <= start - MAX_BLOB and not (hook or is_sure(data, start) or is_in_path(data, start)):
            return _find_blob_end(data, end)  # base64 that is too long for a token
        digit = digit or hook
    if digit or before in b"~" or is_sure(data, start) or is_sure(data, skip_escape(data, begin)):
        runs.append((start, end))
    return end


def _find_blob_end(data: bytes, end: int) -> int:
    """Return where base64 ends that continues behind a run, or the next word that could announce a token.

    Base64 with slashes has no `_` and no `-`. If such a sign ends it, a token may begin behind its last slash.
    """
    blob = _BLOB.match(data, end)
    blob_end = blob.end() if blob else end
    hook = data.find(b"hook", end, blob_end)
    if hook >= 0:
        return hook
    if data[blob_end : blob_end + 1] in (b"_", b"-"):
        return max(data.rfind(b"/", end, blob_end), data.rfind(b"+", end, blob_end), end - 1) + 1
    return blob_end
