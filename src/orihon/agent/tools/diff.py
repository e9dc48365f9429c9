"""What is different between two versions of a file: how many lines came and went, and which, in bounded time and size.

What is the same at the begin and at the end is left aside first. If what remains is too long to be compared line by
line, it counts as replaced whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from difflib import SequenceMatcher
from itertools import islice

import msgspec

MAX_COMPARED = 3000  # lines of each version that are compared one by one
MAX_LINES = 60  # of a difference that is shown
MAX_CHARS = 200  # of one line
AROUND = 2  # lines before and after a change

Hunk = tuple[int, int, int, int]  # which lines of the old version, from and to, became which of the new one


class Difference(msgspec.Struct, frozen=True):
    """Lines that came, lines that went, and the beginning of both as people read it."""

    added: int = 0
    removed: int = 0
    text: str = ""


def compute_diff(old: bytes, new: bytes) -> Difference:
    """What became of the old version."""
    before, after = old.split(b"\n"), new.split(b"\n")
    hunks = _hunks(before, after)
    added = sum(to - start for *_, start, to in hunks)
    removed = sum(to - start for start, to, *_ in hunks)
    if b"\0" in old or b"\0" in new:
        return Difference(added, removed)
    return Difference(added, removed, _text(_lines(before, after, hunks, _shown)))


def whole_lines(old: bytes, new: bytes) -> str:
    """The difference with its lines uncut, for a question that must not hide the end of one."""
    before, after = old.split(b"\n"), new.split(b"\n")
    return _text(_lines(before, after, _hunks(before, after), lambda line: line.decode("utf-8", "replace")))


def _text(lines: Iterator[str]) -> str:
    shown = list(islice(lines, MAX_LINES + 1))
    return "\n".join(shown[:MAX_LINES] + ["…"] * (len(shown) > MAX_LINES))


def count_lines(data: bytes) -> int:
    """How many lines a file has; the last one may have no end."""
    return data.count(b"\n") + (not data.endswith(b"\n") and bool(data))


def _hunks(before: list[bytes], after: list[bytes]) -> list[Hunk]:
    head = tail = 0
    shorter = min(len(before), len(after))
    while head < shorter and before[head] == after[head]:
        head += 1
    while tail < shorter - head and before[-1 - tail] == after[-1 - tail]:
        tail += 1
    old, new = before[head : len(before) - tail], after[head : len(after) - tail]
    if len(old) > MAX_COMPARED or len(new) > MAX_COMPARED:
        return [(head, head + len(old), head, head + len(new))]
    codes = SequenceMatcher(None, old, new).get_opcodes()
    return [(head + a, head + b, head + c, head + d) for kind, a, b, c, d in codes if kind != "equal"]


def _lines(before: list[bytes], after: list[bytes], hunks: list[Hunk], shown: Callable[[bytes], str]) -> Iterator[str]:
    """As `diff -u` writes it."""
    for group in _groups(hunks):
        start, end = max(0, group[0][0] - AROUND), min(len(before), group[-1][1] + AROUND)
        first = group[0][2] - (group[0][0] - start)
        last = group[-1][3] + (end - group[-1][1])
        yield f"@@ -{start + 1},{end - start} +{first + 1},{last - first} @@"
        for old_from, old_to, new_from, new_to in group:
            yield from (f" {shown(line)}" for line in before[start:old_from])
            yield from (f"-{shown(line)}" for line in before[old_from:old_to])
            yield from (f"+{shown(line)}" for line in after[new_from:new_to])
            start = old_to
        yield from (f" {shown(line)}" for line in before[start:end])


def _groups(hunks: list[Hunk]) -> Iterator[list[Hunk]]:
    """Hunks so near to each other that the lines around them would overlap."""
    group: list[Hunk] = []
    for hunk in hunks:
        if group and hunk[0] - group[-1][1] > 2 * AROUND:
            yield group
            group = []
        group.append(hunk)
    if group:
        yield group


def _shown(line: bytes) -> str:
    """A line that stays one line, whatever is in it."""
    text = line[: 4 * MAX_CHARS].decode("utf-8", "replace").rstrip("\r")
    plain = "".join(c if c.isprintable() or c == "\t" else "�" for c in text[:MAX_CHARS])
    return plain + "…" if len(text) > MAX_CHARS else plain
