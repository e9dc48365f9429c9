"""Tables with a column of passwords: CSV with a head, and the tables of Markdown."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from orihon.redaction.names import Kind, kind_of
from orihon.redaction.values import Place, is_odd_word, is_secret

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orihon.redaction.find import Span

_END_OF_CELL = re.compile(rb"[\w.-]{0,40}+[ \t\"'`*]{0,3}+(?P<end>[,|;\t]|\r?\n|\\[rn])")
_BEFORE_CELL = re.compile(rb"(?P<before>^|[,|;\t]|\n|\\n)[ \t\"'`*]{0,3}[\w.-]{0,40}$")
_OPENED = re.compile(rb"\\n|[:\[] ?\\{0,3}\"")
_LINE_END = re.compile(rb"\r?\n|(?:\\r)?\\n")
_TITLE = re.compile(rb"[\w .%/#\"'`*-]{1,60}")
_RULE = re.compile(rb"[\s|:-]+")
_SIGNED = re.compile(rb"(?=.*\d)(?=.*[!@#$%^&*?]).{6,}")
_SIGNS = (b"|", b",", b";", b"\t")
_AROUND = b" \t\"'`*"
_FIRST = frozenset(b"pP")
_LONGEST_HEAD, _LONGEST_ROW, _MOST_ROWS = 400, 2000, 1000


def in_tables(data: bytes, stems: list[int]) -> Iterator[Span]:
    """The cells of a column whose title names a password."""
    done = 0
    for stem in stems:
        if data[stem] not in _FIRST or stem < done:
            continue
        end = _END_OF_CELL.match(data, stem)
        before = _BEFORE_CELL.search(data, max(0, stem - 44), stem) if end else None
        if end and before and (sign := _sign(before["before"], end["end"])):
            spans, done = _column(data, stem, sign)
            yield from spans


def _sign(before: bytes, behind: bytes) -> bytes:
    """What separates the cells of a row, by what stands around one of them; empty when that is no cell."""
    signs = {side for side in (before, behind) if side in _SIGNS}
    return signs.pop() if len(signs) == 1 else b""


def _column(data: bytes, stem: int, sign: bytes) -> tuple[list[Span], int]:
    """The secrets of a column, and where the rows end that were looked at."""
    start = _begin_of_line(data, stem)
    found = _LINE_END.search(data, stem, start + _LONGEST_HEAD) if start >= 0 else None
    if not found:
        return [], stem
    head = data[start : found.start()]
    titles = [title.strip(_AROUND) for title in head.split(sign)]
    column = head.count(sign, 0, stem - start)
    kind = kind_of(titles[column].decode("ascii", "replace")) if _is_head(titles) else Kind.NOTHING
    if kind is Kind.NOTHING:
        return [], stem
    spans, at = [], found.end()
    for _ in range(_MOST_ROWS):
        end = _LINE_END.search(data, at, at + _LONGEST_ROW)
        row = data[at : end.start() if end else at + _LONGEST_ROW]
        cells = row.split(sign)
        if len(cells) != len(titles):
            break
        if not _RULE.fullmatch(row) and _is_cell(value := cells[column].strip(_AROUND), kind):
            first = at + sum(len(cell) + 1 for cell in cells[:column]) + cells[column].index(value)
            spans.append((first, first + len(value), kind.mask))
        if not end:
            break
        at = end.end()
    return spans, at


def _begin_of_line(data: bytes, at: int) -> int:
    """Where a line begins; -1 when it is too long for a head."""
    low = max(0, at - _LONGEST_HEAD)
    end = data.rfind(b"\n", low, at)
    opened = [found.end() for found in _OPENED.finditer(data, max(low, end), at)]  # in a string of JSON
    return opened[-1] if opened else end + 1 if end >= 0 or low == 0 else -1


def _is_head(titles: list[bytes]) -> bool:
    """Whether a row has titles alone; those of Markdown have nothing before the first bar and behind the last one."""
    inner = titles[1:-1] if titles and not titles[0] and not titles[-1] else titles
    return len(inner) > 1 and all(map(_TITLE.fullmatch, inner))


def _is_cell(value: bytes, kind: Kind) -> bool:
    odd = is_odd_word(value) or (kind is Kind.PASSWORD and b" " not in value and bool(_SIGNED.fullmatch(value)))
    return odd and is_secret(value, kind, quoted=True, place=Place.DATA)
