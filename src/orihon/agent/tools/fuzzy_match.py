"""What a piece of text comes nearest to in a file, for a model that remembers it not quite right."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from difflib import SequenceMatcher, get_close_matches

MAX_PLACES = 10
MAX_LINES = 20_000  # of a file that is compared
LIKENESS = 0.6
LIKELY = 20  # texts that are compared letter by letter
SHOWN_LINES = 12
SHOWN_CHARS = 200


def lines_with(piece: bytes, data: bytes) -> str:
    """The numbers of the lines where a piece begins."""
    found: list[str] = []
    at, line = data.find(piece), 1
    last = 0
    while at >= 0 and len(found) < MAX_PLACES:
        line += data.count(b"\n", last, at)
        last = at
        found.append(str(line))
        at = data.find(piece, at + len(piece))
    return ", ".join(found) + (" and more" if at >= 0 else "")


def numbered(data: bytes, first: int, last: int) -> str:
    """Lines of a text with their numbers."""
    lines = data.decode("utf-8", "replace").split("\n")
    if lines and not lines[-1]:
        lines.pop()
    first = max(1, first)
    last = min(last, len(lines), first + SHOWN_LINES + 8)
    rows = (f"{number:>6}\t{_cut(lines[number - 1].rstrip(chr(13)))}" for number in range(first, last + 1))
    return "\n".join(rows)


def nearest(piece: str, data: bytes) -> str:
    """A sentence, and the lines that were perhaps meant."""
    lines = [line.strip() for line in data.decode("utf-8", "replace").split("\n")]
    wanted = [line.strip() for line in piece.strip("\n").split("\n")]
    if not any(wanted) or len(lines) > MAX_LINES:
        return "Read the file, and copy the piece from there."
    text = "\n".join(["", *lines, ""])
    place = text.find("\n".join(["", *wanted, ""]))
    if place >= 0:
        at = text.count("\n", 0, place)
        shown = numbered(data, at + 1, at + min(len(wanted), SHOWN_LINES))
        return f"Only the white space differs; there it is:\n{shown}"
    best = _best(wanted, lines)
    if best is None:
        return "Nothing in it is like that; read it again."
    return f"The nearest is:\n{numbered(data, best + 1, best + min(len(wanted), SHOWN_LINES))}"


def _best(wanted: list[str], lines: list[str]) -> int | None:
    """Where the piece begins, judged by the line of it that has limit to say."""
    telling = max(range(len(wanted)), key=lambda number: len(wanted[number]))
    near = find_similar(_cut(wanted[telling]), map(_cut, filter(None, lines)), limit=1)
    if not near:
        return None
    places = [number for number, line in enumerate(lines) if _cut(line) == near[0]]
    begins = [max(0, number - telling) for number in places[:MAX_PLACES]]
    text = _beginning(wanted, 0)
    return max(begins, key=lambda at: SequenceMatcher(None, text, _beginning(lines, at)).ratio())


def find_similar(word: str, texts: Iterable[str], *, limit: int) -> list[str]:
    """Return the texts most similar to a word; only the likeliest are compared letter by letter."""
    pairs = _pairs(word)

    def shared(text: str) -> float:
        return len(pairs & _pairs(text)) / (len(word) + len(text) + 1)

    likely = heapq.nlargest(LIKELY, dict.fromkeys(texts), key=shared)
    return get_close_matches(word, likely, n=limit, cutoff=LIKENESS)


def _pairs(text: str) -> set[str]:
    return {text[place : place + 2] for place in range(len(text))}


def _beginning(lines: list[str], at: int) -> str:
    return "\n".join(map(_cut, lines[at : at + SHOWN_LINES]))


def _cut(line: str) -> str:
    return line if len(line) <= SHOWN_CHARS else f"{line[:SHOWN_CHARS]}…"
