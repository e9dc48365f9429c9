"""Replace the secrets in a text by masks such as `[PASSWORD]`.

Masked are tokens with the shape of a known provider's, values that look secret under a name that says so, private keys,
passwords in URLs and on command lines, e-mail addresses, and the exact values that the process was given.

Not masked are bare random strings without any context, secrets that their sender split in two, passwords made of plain
words in a sentence, and everything inside pictures and archives.
"""

from __future__ import annotations

import base64
import json
import re
from bisect import bisect, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from orihon.redaction.detect_tokens import Span, find_tokens
from orihon.redaction.entropy import is_placeholder
from orihon.redaction.escapes import TERMINAL_CODE
from orihon.redaction.key_names import looks_secret
from orihon.redaction.prefilter import Hits, scan, scan_text

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
