"""What a word announces some way off: PEM blocks, the keys of PuTTY, the Secret of Kubernetes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from orihon.redaction.values import is_placeholder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orihon.redaction.find import Span

_PEM = re.compile(
    rb"-----BEGIN[ A-Z0-9_-]{0,40}PRIVATE KEY(?: BLOCK)?-----"
    rb"(?P<body>(?:(?!-----)[\s\S]){0,20000}(?=-----END)|[A-Za-z0-9+/=\s\\:,.-]{0,20000})"
    rb"(?:-----END[ A-Z0-9_-]{0,40}-----)?"
)
# The lines of a key, each behind what `grep -n`, `diff` or a listing puts before it.
_KEY_LINES = re.compile(rb"(?:\r?\n[^\n]{0,100}?[A-Za-z0-9+/]{16,200}={0,2}(?=[ \t]{0,8}(?:\r?\n|$)))+")
_KEY_LINE = re.compile(rb"[^\n]{0,100}?(?P<key>[A-Za-z0-9+/]{1,100}={0,2})[ \t\r]*")
_PUTTY = re.compile(
    rb"Private-Lines: \d{1,3}(?P<end>\r?\n|(?:\\r)?\\n)"
    rb"(?P<body>(?:[A-Za-z0-9+/]{1,80}={0,2}(?:(?P=end)|$|(?=[\"']))){1,200})"
)
_BASE64 = re.compile(rb"[A-Za-z0-9+/]{24}")
_DATA_YAML = re.compile(rb"(?:^|\n)(?:data|stringData):[^\n]*\n(?P<body>(?:[ \t]+[^\n]*\n?|\n)+)")
_ENTRY_YAML = re.compile(
    rb"(?<=\s)(?P<entry>[\w.-]+:[ \t]*(?:[|>]-?\n[ \t]*)?[\"']?[A-Za-z0-9+/]{10,}={0,2}[\"']?)[ \t]*(?:\n|$)"
)
_DATA_JSON = re.compile(rb"\\{0,3}[\"'](?:data|stringData)\\{0,3}[\"']\s{0,20}:\s{0,20}\{(?P<body>[^{}]{0,20000})\}")
_ENTRY_JSON = re.compile(rb"(?P<quote>\\{0,3}[\"'])\s{0,20}:\s{0,20}(?P=quote)(?P<value>[^\"'\\]{4,20000})(?P=quote)")
_KIND_YAML = re.compile(rb"kind: *[\"']?$")
_KIND_JSON = re.compile(rb"kind\\{0,3}[\"']\s{0,8}:\s{0,8}\\{0,3}[\"']$")
_KEY_FILE = 6000  # how long the key of PuTTY is at most
_DOCUMENT = 20000  # how far a document reaches at most
_SHORTEST_LINE = 40  # of all lines of a key but the last
_FIRST = frozenset(b"Kc")


def announced(data: bytes, stems: list[int]) -> Iterator[Span]:
    """Blocks that a word announces; each stretch of text is searched once, however often it is announced."""
    done = 0
    for stem in stems:
        if data[stem] not in _FIRST or stem < done:
            continue
        first = data[stem]
        spans: list[Span] = []
        if first in b"K" and data[stem - 8 : stem + 3] == b"PRIVATE KEY":
            spans, done = _pem(data, stem)
        elif first in b"K" and data[stem - 11 : stem + 8] == b"PuTTY-User-Key-File":
            found = _PUTTY.search(data, stem, stem + _KEY_FILE)
            spans = [(*found.span("body"), b"PRIVATE_KEY")] if found else []
            done = found.end() if found else stem
        elif data[stem - 2 : stem + 4] in (b"Secret", b"secret"):
            spans, done = _secret(data, stem - 2)
        yield from spans


def _pem(data: bytes, stem: int) -> tuple[list[Span], int]:
    begin = data.rfind(b"-----BEGIN", max(0, stem - 60), stem)
    found = _PEM.match(data, begin) if begin >= 0 else None
    if not found:
        return _pem_without_begin(data, stem), stem
    end = found.end()
    if lines := _KEY_LINES.match(data, data.find(b"-----\n", begin + 5, begin + 100) + 5):
        end = max(end, lines.end())
    if data[end : end + 1] in (b'"', b"'"):
        end = begin + len(data[begin:end].rstrip(b"\\"))  # the quote that closes may be escaped
    real = _BASE64.search(data, found.start("body"), end)  # prose about keys quotes the first line too
    return [(begin, end, b"PRIVATE_KEY")] if real else [], max(end, found.end())


def _pem_without_begin(data: bytes, stem: int) -> list[Span]:
    """The lines of a key before its last line, when the first one was cut off."""
    last = data.rfind(b"-----END", max(0, stem - 60), stem)
    end = data.rfind(b"\n", max(0, last - 100), last) if last >= 0 else -1
    begin, at, low = end, end, max(0, end - _DOCUMENT)
    while at > low:
        line = max(data.rfind(b"\n", low, at) + 1, low)
        found = _KEY_LINE.fullmatch(data, line, at)
        if not found or (begin < end and len(found["key"]) < _SHORTEST_LINE):
            break
        begin = found.start("key")
        at = line - 1
    real = end >= 0 and _BASE64.search(data, begin, end)
    return [(begin, end, b"PRIVATE_KEY")] if real else []


def _secret(data: bytes, word: int) -> tuple[list[Span], int]:
    """The entries of a Secret of Kubernetes, if the word is its kind."""
    if _KIND_YAML.search(data, max(0, word - 12), word):
        return _kubernetes(data, word)
    return _kubernetes_json(data, word) if _KIND_JSON.search(data, max(0, word - 32), word) else ([], word)


def _kubernetes(data: bytes, stem: int) -> tuple[list[Span], int]:
    begin = max(data.rfind(b"\n---", max(0, stem - _DOCUMENT), stem), stem - _DOCUMENT, 0)
    end = data.find(b"\n---", stem, stem + _DOCUMENT)
    end = min(len(data), stem + _DOCUMENT) if end < 0 else end
    return [
        (*entry.span("entry"), b"SECRET")
        for block in _DATA_YAML.finditer(data, begin, end)
        for entry in _ENTRY_YAML.finditer(data, block.start("body") - 1, block.end("body"))
    ], end


def _kubernetes_json(data: bytes, stem: int) -> tuple[list[Span], int]:
    begin, end = max(0, stem - _DOCUMENT), min(len(data), stem + _DOCUMENT)
    return [
        (*entry.span("value"), b"SECRET")
        for block in _DATA_JSON.finditer(data, begin, end)
        for entry in _ENTRY_JSON.finditer(data, block.start("body"), block.end("body"))
        if not is_placeholder(entry["value"])
    ], end
