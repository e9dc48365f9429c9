"""The passages of a log that the next run is likely to need: a few lines around the names that it will likely write.

A name is worth more the more often and the more recently the agent wrote it, and if the first request has it. A passage
is the whole lines around a mention. Passages are chosen by value per byte; a name pays for one passage only. Lines that
say little, such as imports, listings and encoded data, are worth less.
"""

from __future__ import annotations

import heapq
import math
import re
from collections.abc import Collection, Iterator, Sequence

from orihon.context.ledger import Entry
from orihon.context.names import LONGEST, TOKEN, is_name, trim
from orihon.context.sheet import Page
from orihon.records import Message

AROUND = 60  # characters on each side of a name, and on to the ends of the lines
MAX_LINE_CHARS = 250
NAMES = 700  # the likeliest
MENTIONS = 4  # the newest of a name, and the oldest two
PER_MESSAGE = 2  # mentions of a name in one message
WORTHLESS = 1e-6  # per byte
SEARCHED_CHARS = 60_000  # of one message
PLAIN_PAYS = 0.4  # of a name's worth, if it stands in the text already
HOME_COUNTS = 0.0  # of a path below a home directory: its beginning names a person and is not handed on
OVERHEAD = 24

_DULL = re.compile(
    r"\s*(?:import |from \S+ import |#include|use [\w:]+;|package |require\(|@import|using |export \{|\}|//|/\*|\*)|"
    r"\s*(?:\$ )?(?:ls|cat|find|sed -n|head|tail|grep|rg|cd|git (?:status|log|diff|show))\b"
)
_HOME = re.compile(r"/(?:home|Users)/|[A-Za-z]:.Users")
_ENCODED = re.compile(r"[A-Za-z0-9+/=_-]{120,}")


class Name:
    """What the log says of a name."""

    __slots__ = ("last", "mentions", "messages", "requested", "written")

    def __init__(self) -> None:
        self.mentions: list[tuple[int, int]] = []  # message by place in the log, and place in its text
        self.messages = self.written = 0
        self.last = -1  # the newest message of the agent that has it
        self.requested = False

    def likelihood(self, count: int) -> float:
        """Return how likely the next run writes the name, after so many messages."""
        ago = math.log2(1 + count - self.last) if self.last >= 0 else 9.0
        score = -1 - 0.3 * ago + math.log2(1 + self.written) + 0.1 * math.log2(self.messages) + self.requested
        return 1 / (1 + math.exp(-score))


def find_passages(messages: Sequence[Message], *, max_chars: int, shown: str = "") -> list[Entry]:
    """Return the passages that are worth most, the best first, up to a number of characters.

    `shown` is the text that stands beside them; a name in it is worth a little less.
    """
    texts = [Page(message, 0, message.text).plain[:SEARCHED_CHARS] for message in messages]
    names = _survey(messages, texts)
    worth = {
        text: name.likelihood(len(messages)) * (HOME_COUNTS if _HOME.match(text) else 1.0)
        for text, name in names.items()
    }
    likely = heapq.nlargest(NAMES, worth, key=lambda text: (worth[text], text))
    spans: dict[tuple[int, int, int], set[str]] = {}
    for text in likely:
        mentions = names[text].mentions
        for place, at in dict.fromkeys((*mentions[-MENTIONS:], *mentions[:2])):
            span = _widen(texts[place], at, at + len(text))
            if span is not None:
                spans.setdefault((place, *span), set()).add(text)
    left = {text: worth[text] * ((1 - PLAIN_PAYS) if text in shown else 1.0) for text in likely}
    return list(_choose(spans, texts, messages, left, max_chars))


def _survey(messages: Sequence[Message], texts: Sequence[str]) -> dict[str, Name]:
    names: dict[str, Name] = {}
    known: dict[str, str] = {}  # the name that a token is, or ""
    first = next((place for place, message in enumerate(messages) if message.role == "user"), -1)
    for place, (message, text) in enumerate(zip(messages, texts, strict=True)):
        seen: dict[str, int] = {}
        for found in TOKEN.finditer(text):
            token = found.group()
            if token not in known:
                name = trim(token)
                known[token] = name if len(token) <= LONGEST and is_name(name) else ""
            if (name := known[token]) and seen.get(name, 0) < PER_MESSAGE:
                seen[name] = seen.get(name, 0) + 1
                names.setdefault(name, Name()).mentions.append((place, found.start() + token.find(name)))
        for name in seen:
            names[name].messages += 1
            if message.role == "assistant":
                names[name].written += 1
                names[name].last = place
            names[name].requested |= place == first
    return names


def _widen(text: str, start: int, end: int) -> tuple[int, int] | None:
    """Return the whole lines around a mention; None if they are too long or say nothing to a reader."""
    begin = text.rfind("\n", 0, max(0, start - AROUND)) + 1
    finish = text.find("\n", min(len(text), end + AROUND))
    finish = len(text) if finish < 0 else finish
    if finish - begin > MAX_LINE_CHARS + 2 * AROUND + end - start:
        begin, finish = max(begin, start - AROUND - 20), min(finish, end + AROUND + 20)
    if _ENCODED.search(text, begin, finish):
        return None
    return begin, finish


def _choose(
    spans: dict[tuple[int, int, int], set[str]],
    texts: Sequence[str],
    messages: Sequence[Message],
    left: dict[str, float],
    max_chars: int,
) -> Iterator[Entry]:
    """Yield the spans by value per byte. A value is computed again when its span is next, because names were paid."""
    mentioned = {span: _mentioned(texts[span[0]], span[1], span[2], left) for span in spans}

    def density(span: tuple[int, int, int]) -> float:
        place, begin, end = span
        value = sum(left[name] for name in mentioned[span])
        return value * _interest(texts[place], begin, end) / (len(texts[place][begin:end].encode()) + OVERHEAD)

    queue = [(-density(span), span) for span in spans]
    heapq.heapify(queue)
    room = max_chars
    while queue and room > 0:
        old, span = heapq.heappop(queue)
        now = density(span)
        if now < -old * 0.999:
            if now > WORTHLESS:
                heapq.heappush(queue, (-now, span))
            continue
        place, begin, end = span
        room -= end - begin + OVERHEAD
        yield Entry("passage", messages[place].seq, texts[place][begin:end], round(now, 6), begin)
        for name in mentioned[span]:
            left[name] = 0.0


def _mentioned(text: str, begin: int, end: int, wanted: Collection[str]) -> frozenset[str]:
    """Return the wanted names that a span shows with enough around them."""
    left, right = (begin + AROUND if begin else 0), (end - AROUND if end < len(text) else end)
    altered = [place.start() for place in _HOME.finditer(text, begin, end)]
    found = set()
    for token in TOKEN.finditer(text, begin, end):
        name = trim(token.group())
        if name not in wanted or token.start() + 1 < left or token.end() - 1 > right:
            continue
        if not any(token.start() - AROUND <= place <= token.end() + AROUND for place in altered):
            found.add(name)
    return frozenset(found)


def _interest(text: str, begin: int, end: int) -> float:
    lines = text[begin:end].split("\n")
    dull = sum(_DULL.match(line) is not None for line in lines)
    return 1.0 - 0.7 * dull / len(lines)
