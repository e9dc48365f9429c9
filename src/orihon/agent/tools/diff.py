"""The difference between two versions of a file, in bounded time and size.

Equal lines at both ends are skipped first. A remainder that is too long to compare line by line counts as replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from difflib import SequenceMatcher
from itertools import islice

import msgspec

MAX_COMPARED = 3000  # lines of each version that are compared
MAX_LINES = 60  # of a rendered difference
MAX_CHARS = 200  # of a rendered line
CONTEXT = 2  # lines before and after a change

Opcode = tuple[str, int, int, int, int]  # kind, a range of old lines, and a range of new lines


class Difference(msgspec.Struct, frozen=True):
    """Numbers of added and removed lines, and the start of the difference as text."""

    added: int = 0
    removed: int = 0
    text: str = ""


def compute_diff(old: bytes, new: bytes) -> Difference:
    """Return the difference between two versions."""
    before, after = old.split(b"\n"), new.split(b"\n")
    groups = _find_changes(before, after)
    changes = [code for group in groups for code in group if code[0] != "equal"]
    added = sum(end - start for *_, start, end in changes)
    removed = sum(end - start for _, start, end, *_ in changes)
    if b"\0" in old or b"\0" in new:
        return Difference(added, removed)
    return Difference(added, removed, _render(before, after, groups, _shorten_line))


def render_full_lines(old: bytes, new: bytes) -> str:
    """Return the difference with its lines uncut: a question must not hide the end of one."""
    before, after = old.split(b"\n"), new.split(b"\n")
    return _render(before, after, _find_changes(before, after), lambda line: line.decode("utf-8", "replace"))


def count_lines(data: bytes) -> int:
    """Return the number of lines; the last one may have no end."""
    return data.count(b"\n") + (not data.endswith(b"\n") and bool(data))


def _find_changes(before: list[bytes], after: list[bytes]) -> list[list[Opcode]]:
    """Return groups of changes, each with the equal lines around it."""
    head = tail = 0
    shorter = min(len(before), len(after))
    while head < shorter and before[head] == after[head]:
        head += 1
    while tail < shorter - head and before[-1 - tail] == after[-1 - tail]:
        tail += 1
    old_end, new_end = len(before) - tail, len(after) - tail
    start, rest = max(0, head - CONTEXT), min(tail, CONTEXT)
    if max(old_end, new_end) - head > MAX_COMPARED:
        return [
            [
                ("equal", start, head, start, head),
                ("replace", head, old_end, head, new_end),
                ("equal", old_end, old_end + rest, new_end, new_end + rest),
            ]
        ]
    matcher = SequenceMatcher(None, before[start : old_end + rest], after[start : new_end + rest])
    return [
        [(kind, start + a, start + b, start + c, start + d) for kind, a, b, c, d in group]
        for group in matcher.get_grouped_opcodes(CONTEXT)
    ]


def _render(
    before: list[bytes], after: list[bytes], groups: list[list[Opcode]], render_line: Callable[[bytes], str]
) -> str:
    """Return the first lines that `diff -u` would write."""

    def iter_lines() -> Iterator[str]:
        for group in groups:
            (_, first, _, new_first, _), (_, _, last, _, new_last) = group[0], group[-1]
            yield f"@@ -{first + 1},{last - first} +{new_first + 1},{new_last - new_first} @@"
            for kind, start, end, new_start, new_end in group:
                yield from (f"{' ' if kind == 'equal' else '-'}{render_line(line)}" for line in before[start:end])
                if kind != "equal":
                    yield from (f"+{render_line(line)}" for line in after[new_start:new_end])

    lines = list(islice(iter_lines(), MAX_LINES + 1))
    return "\n".join(lines[:MAX_LINES] + ["…"] * (len(lines) > MAX_LINES))


def _shorten_line(line: bytes) -> str:
    text = line[: 4 * MAX_CHARS].decode("utf-8", "replace").rstrip("\r")
    printable = "".join(c if c.isprintable() or c == "\t" else "�" for c in text[:MAX_CHARS])
    return printable + "…" if len(text) > MAX_CHARS else printable
