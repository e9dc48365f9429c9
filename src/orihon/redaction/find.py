"""Spans: what the finders yield, put in order, and replaced by masks."""

from __future__ import annotations

import re
from bisect import bisect
from itertools import pairwise

from orihon.redaction.rules import MASK

Span = tuple[int, int, bytes]

_MASKED = re.compile(MASK.pattern.encode())
_IN_JSON = re.compile(rb"(?P<quote>\\{0,7}\")\s{0,8}:\s{0,8}$")


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
    parts = [data[left[1] : right[0]] + _written(data, right) for left, right in pairwise(edges)]
    return b"".join(parts) + data[edges[-1][1] :]


def _written(data: bytes, span: Span) -> bytes:
    """A mask in its brackets, and in quotes where it stands for a number of JSON."""
    start, end, mask = span
    number = _IN_JSON.search(data, max(0, start - 24), start) if data[start:end].isdigit() else None
    quote = number["quote"] if number else b""
    return quote + b"[" + mask + b"]" + quote
