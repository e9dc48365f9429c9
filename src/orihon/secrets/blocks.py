"""What is known by its surroundings: PEM blocks, `curl -u`, the Secret of Kubernetes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from orihon.secrets.values import is_placeholder, looks_random

if TYPE_CHECKING:
    from collections.abc import Iterator

Span = tuple[int, int, bytes]

_PEM = re.compile(
    rb"-----BEGIN[ A-Z0-9_-]{0,40}PRIVATE KEY(?: BLOCK)?-----(?P<body>(?:(?!-----)[\s\S]){0,20000})"
    rb"(?:-----END[ A-Z0-9_-]{0,40}-----)?"
)
_CURL_USER = re.compile(rb"(?:\s-u|--user)[ =]?[ \t]{0,4}(?P<pair>(?:\"[^\"\n]*\"|'[^'\n]*'|[^\s\"'])+)")
_SECRET_DATA = re.compile(rb"(?:^|\n)(?:data|stringData):[^\n]*\n(?P<body>(?:[ \t]+[^\n]*\n?|\n)+)")
_SECRET_ENTRY = re.compile(
    rb"(?<=\s)(?P<entry>[\w.-]+:[ \t]*(?:[|>]-?\n[ \t]*)?[\"']?[A-Za-z0-9+/]{10,}={0,2}[\"']?)[ \t]*(?:\n|$)"
)
_BASE64 = re.compile(rb"[A-Za-z0-9+/]{24}")
_KIND = re.compile(rb"kind: *[\"']?$")
_SHORTEST = 6
_COMMAND, _DOCUMENT = 2000, 20000  # how far a command and a document reach at most


def announced(data: bytes, stems: list[int]) -> Iterator[Span]:
    """Blocks that a word announces; each stretch of text is searched once, however often it is announced."""
    done = 0
    for stem in stems:
        if stem < done:
            continue
        first = data[stem : stem + 1]
        spans: list[Span] = []
        if first == b"K" and data[stem - 8 : stem + 3] == b"PRIVATE KEY":
            spans, done = _pem(data, stem)
        elif first in b"cC" and data[stem : stem + 4].lower() == b"curl":
            spans, done = _curl(data, stem)
        elif first in b"sS" and _KIND.search(data, max(0, stem - 12), stem):
            spans, done = _kubernetes(data, stem)
        yield from spans


def _pem(data: bytes, stem: int) -> tuple[list[Span], int]:
    begin = data.rfind(b"-----BEGIN", max(0, stem - 60), stem)
    found = _PEM.match(data, begin) if begin >= 0 else None
    if not found:
        return [], stem
    real = _BASE64.search(found["body"])  # prose about keys quotes the first line too
    return [(begin, found.end(), b"PRIVATE_KEY")] if real else [], found.end()


def _curl(data: bytes, stem: int) -> tuple[list[Span], int]:
    spans: list[Span] = []
    for found in _CURL_USER.finditer(data, stem, stem + _COMMAND):
        user, colon, password = found["pair"].translate(None, b"\"'").partition(b":")
        secret = (password or user).strip(b"<>")
        if secret[:1] == b"{" and secret[:2] != b"{{":
            secret = secret.strip(b"{}")
        odd = not secret.isalpha() or looks_random(secret, least=12)
        if colon and len(secret) >= _SHORTEST and odd and not is_placeholder(secret):
            spans.append((*found.span("pair"), b"PASSWORD"))
    return spans, stem + _COMMAND


def _kubernetes(data: bytes, stem: int) -> tuple[list[Span], int]:
    begin = max(data.rfind(b"\n---", max(0, stem - _DOCUMENT), stem), stem - _DOCUMENT, 0)
    end = data.find(b"\n---", stem, stem + _DOCUMENT)
    end = min(len(data), stem + _DOCUMENT) if end < 0 else end
    return [
        (*entry.span("entry"), b"SECRET")
        for block in _SECRET_DATA.finditer(data, begin, end)
        for entry in _SECRET_ENTRY.finditer(data, block.start("body") - 1, block.end("body"))
    ], end
