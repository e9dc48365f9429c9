"""Access to hidden messages: `unfold` returns a message in full, `recall` searches what the window leaves out.

Both are tools of the model, and their answers are bounded: a large message is returned in pages of lines, a search
returns the few best passages with their handles. Messages that were rewound or discarded are for people only; the
caller decides which messages may be read.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from orihon.codec import safe_str
from orihon.errors import UsageError
from orihon.records import Message

PAGE_CHARS = 8_000  # of one answer
ROW_CHARS = 400  # a longer line counts as several
MAX_HITS = 8
CONTEXT_CHARS = 160  # on each side of a hit

UNFOLD: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "unfold",
        "description": "Show a folded part of this conversation whole. Marks such as […61 lines, m4] name its handle.",
        "parameters": {
            "type": "object",
            "properties": {
                "handle": {"type": "string", "description": "such as m4 or m4-m9"},
                "lines": {"type": "string", "description": "which lines, such as 40-90; all if left out"},
            },
            "required": ["handle"],
        },
    },
}
RECALL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "recall",
        "description": "Search what is folded or summarised in this conversation, or the previous run of this task.",
        "parameters": {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "words to look for"},
                "of": {
                    "type": "string",
                    "enum": ["task", "previous"],
                    "description": "task if left out",
                },
            },
            "required": ["query"],
        },
    },
}
NOTE = {
    "en": 'Marks such as […61 lines, m4] stand for text that is kept: unfold("m4") shows it, recall("words") finds it.',
    "ja": '[…61 lines, m4] のような印は保存済みの本文を示します。unfold("m4") で表示、recall("語句") で検索します。',
}

_HANDLE = re.compile(r"m([1-9][0-9]{0,15})(?:\s*-\s*m?([1-9][0-9]{0,15}))?")
_LINES = re.compile(r"\s*+([0-9]{1,9})\s*+(?:-\s*+([0-9]{1,9})?\s*+)?")  # possessive: no blanks are tried twice
_WORD = re.compile(r"[A-Za-z0-9_./:-]{2,}|[぀-ヿ一-鿿]{2,}")


class Hit(msgspec.Struct, frozen=True):
    """A passage that was found."""

    seq: int
    role: str
    score: float
    passage: str


def hidden_mark(count: int, first: int, last: int, *, handles: bool) -> str:
    """Return the line that stands in the window for a run of hidden messages."""
    what = "1 message" if count == 1 else f"{count:,} messages"
    handle = f"m{first}" if first == last else f"m{first}-m{last}"
    return f"[…{what}, {handle}]" if handles else f"[…{what}]"


def parse_handle(handle: str) -> tuple[int, int]:
    """Return the numbers of the first and the last message that a handle names."""
    found = _HANDLE.fullmatch(handle.strip()) if isinstance(handle, str) else None
    first = int(found[1]) if found else 0
    last = int(found[2] or first) if found else -1
    if last < first:
        raise UsageError(
            f"There is no handle {safe_str(handle)[:40]!a}.", hint="A handle is m and a number, such as m4 or m4-m9."
        )
    return first, last


def whole(message: Message) -> str:
    """Return everything that a message says: its text and its calls."""
    parts = [message.text, *(f"{call.name}({call.arguments})" for call in message.tool_calls)]
    return "\n".join(part for part in parts if part)


class _Row(NamedTuple):
    """A line of a message with its line break, or a part of a line that is very long."""

    message: Message
    number: int  # in the message, from 1
    of: int  # as many
    text: str


def unfold(
    messages: Iterable[Message],
    *,
    last: int = 0,
    lines: str = "",
    room: float = PAGE_CHARS,
    cost: Callable[[str], float] = len,
) -> str:
    """Return the text of a message, or of all up to the message `last`, or some lines of it, byte for byte.

    Lines that would cost more than the room are left for the next page, which the answer names. A line of more than
    400 characters counts as several, so that no part of it is out of reach.
    """
    first, end = _range(lines)
    shown: list[str] = []
    for row in islice(_rows(messages), first - 1, end):
        text = row.text
        if last and (not shown or row.number == 1):
            text = f"{_line_end(shown)}[m{row.message.seq}, {row.message.role}]\n{text}"
        room -= cost(text)
        if shown and room < 0:
            until = end - (first + len(shown)) + row.number if end < sys.maxsize else 0
            goes_on = row.number > 1 and not shown[-1].endswith("\n")
            return "".join(shown) + _line_end(shown) + _next_page(row, last, until, goes_on=goes_on)
        shown.append(text)
    if not shown:
        raise UsageError(f"There is no line {first:,}.", hint="Give a range of lines that there are, such as 1-40.")
    return "".join([*shown[:-1], shown[-1].removesuffix("\n")])


def _rows(messages: Iterable[Message]) -> Iterator[_Row]:
    for message in messages:
        lines = whole(message).split("\n")
        ended = [*(f"{line}\n" for line in lines[:-1]), lines[-1]]
        texts = [line[at : at + ROW_CHARS] for line in ended for at in range(0, len(line) or 1, ROW_CHARS)]
        for number, text in enumerate(texts, 1):
            yield _Row(message, number, len(texts), text)


def _line_end(shown: Sequence[str]) -> str:
    """Return the line break that is missing at the end of what is shown."""
    return "" if not shown or shown[-1].endswith("\n") else "\n"


def _next_page(row: _Row, last: int, until: int, *, goes_on: bool) -> str:
    """Return the line that ends a page before a row: how much is left, and the call that shows it."""
    seq = row.message.seq
    more = last > seq
    end = until if more else min(until or row.of, row.of)
    handle = f"m{seq}-m{last}" if more else f"m{seq}"
    lines = f', lines="{row.number}-{end or ""}"' if row.number > 1 or until else ""
    left = f"{(end or row.of) - row.number + 1:,} more lines"
    rest = f" and all up to m{last}" if more and not end else ""
    return f'[… {"the line goes on, " if goes_on else ""}{left}{rest}: unfold("{handle}"{lines})]'


def recall(messages: Iterable[Message], query: str, *, max_hits: int = MAX_HITS) -> list[Hit]:
    """Return the passages that say most about the query, the best first, and of equal ones the newer first."""
    folded = _folded(query)
    words = sorted(set(_WORD.findall(folded)), key=len, reverse=True)[:16] or [folded.strip()]
    best: list[Hit] = []
    for message in messages:
        hit = _hit(message, [word for word in words if word])
        if hit is not None:
            best.append(hit)
            best.sort(key=lambda one: (-one.score, -one.seq))
            del best[max_hits:]
    return best


def render_hits(hits: Iterable[Hit]) -> str:
    """Return the hits as the model reads them."""
    return "\n".join(f"[m{hit.seq}, {hit.role}] {hit.passage}" for hit in hits) or "Nothing was found."


def _hit(message: Message, words: list[str]) -> Hit | None:
    text = "\n".join([message.text, *(call.arguments for call in message.tool_calls)])
    folded = _folded(text)
    places = {word: folded.find(word) for word in words}
    found = {word: place for word, place in places.items() if place >= 0}
    if not found:
        return None
    # a long word says more than a short one, and a short message more about it than a long one
    score = sum(len(word) ** 0.5 for word in found) / (1 + len(text) / 20_000)
    place = found[max(found, key=len)]
    start, end = max(0, place - CONTEXT_CHARS), place + CONTEXT_CHARS
    passage = " ".join(text[start:end].split())
    return Hit(message.seq, message.role, round(score, 4), passage)


def _folded(text: str) -> str:
    """Return the text in the form for searching. Its length stays, so offsets are valid in the text itself."""
    lower = text.lower()
    if not text.isascii():
        narrow = unicodedata.normalize("NFKC", lower)
        lower = narrow if len(narrow) == len(text) else lower
    return lower if len(lower) == len(text) else text


def _range(lines: str) -> tuple[int, int]:
    """Return the first and the last of the lines that are asked for."""
    if not lines.strip():
        return 1, sys.maxsize
    found = _LINES.fullmatch(lines)
    first = max(1, int(found[1])) if found else 0
    last = int(found[2] or (sys.maxsize if "-" in lines else first)) if found else -1
    if last < first:
        raise UsageError(f"Lines cannot be {lines[:40]!a}.", hint="Give a range such as 40-90.")
    return first, last
