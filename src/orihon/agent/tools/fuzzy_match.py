"""Find the text that a model probably meant, in bounded time."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from difflib import SequenceMatcher, get_close_matches

MAX_PLACES = 10
MAX_LINES = 20_000  # of a file that is compared
MIN_SIMILARITY = 0.6
MAX_CANDIDATES = 20  # texts that are compared letter by letter
SHOWN_LINES = 12
SHOWN_CHARS = 200


def find_similar(word: str, texts: Iterable[str], *, limit: int) -> list[str]:
    """Return the texts most similar to a word, the best first; pairs of letters choose the candidates."""
    pairs = _split_pairs(word)

    def score(text: str) -> float:
        return len(pairs & _split_pairs(text)) / (len(word) + len(text) + 1)

    candidates = heapq.nlargest(MAX_CANDIDATES, dict.fromkeys(texts), key=score)
    return get_close_matches(word, candidates, n=limit, cutoff=MIN_SIMILARITY)


def suggest_piece(piece: str, data: bytes) -> str:
    """Return a sentence with the lines of a file that resemble a piece which is not in it."""
    lines = [line.strip() for line in data.decode("utf-8", "replace").split("\n")]
    wanted = [line.strip() for line in piece.strip("\n").split("\n")]
    if not any(wanted) or len(lines) > MAX_LINES:
        return "Read the file, and copy the piece from there."
    count = min(len(wanted), SHOWN_LINES)
    text = "\n".join(["", *lines, ""])
    offset = text.find("\n".join(["", *wanted, ""]))
    if offset >= 0:
        at = text.count("\n", 0, offset)
        return f"Only the white space differs:\n{number_lines(data, at + 1, at + count)}"
    best = _find_best_start(wanted, lines)
    if best is None:
        return "Nothing in it is similar; read it again."
    return f"The most similar lines are:\n{number_lines(data, best + 1, best + count)}"


def list_lines_with(piece: bytes, data: bytes) -> str:
    """Return the numbers of the lines where a piece begins."""
    numbers: list[str] = []
    at, line, previous = data.find(piece), 1, 0
    while at >= 0 and len(numbers) < MAX_PLACES:
        line += data.count(b"\n", previous, at)
        numbers.append(str(line))
        previous = at
        at = data.find(piece, at + len(piece))
    return ", ".join(numbers) + (" and more" if at >= 0 else "")


def number_lines(data: bytes, first: int, last: int) -> str:
    """Return a few lines of a text with their numbers."""
    lines = data.decode("utf-8", "replace").removesuffix("\n").split("\n")
    first = max(1, first)
    last = min(last, len(lines), first + SHOWN_LINES + 8)
    return "\n".join(f"{number:>6}\t{_shorten(lines[number - 1].rstrip(chr(13)))}" for number in range(first, last + 1))


def _find_best_start(wanted: list[str], lines: list[str]) -> int | None:
    """Return the line where the piece begins, judged by its longest line."""
    longest = max(range(len(wanted)), key=lambda number: len(wanted[number]))
    similar = find_similar(_shorten(wanted[longest]), map(_shorten, filter(None, lines)), limit=1)
    if not similar:
        return None
    numbers = [number for number, line in enumerate(lines) if _shorten(line) == similar[0]]
    starts = [max(0, number - longest) for number in numbers[:MAX_PLACES]]
    text = _join_start(wanted, 0)
    return max(starts, key=lambda start: SequenceMatcher(None, text, _join_start(lines, start)).ratio())


def _split_pairs(text: str) -> set[str]:
    return {text[index : index + 2] for index in range(len(text))}


def _join_start(lines: list[str], start: int) -> str:
    return "\n".join(map(_shorten, lines[start : start + SHOWN_LINES]))


def _shorten(line: str) -> str:
    return line if len(line) <= SHOWN_CHARS else f"{line[:SHOWN_CHARS]}…"
