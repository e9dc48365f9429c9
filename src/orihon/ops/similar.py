"""`similar(desk, uuid)`: tasks like this one, by the words of what was asked, done and learned.

Rare words count more than common ones, a task on the same thing or in the same repository a little more. Of a large
store the newest tasks are compared; memory is bounded by their number, not by what they say.
"""

from __future__ import annotations

import heapq
import math
import re
from collections.abc import Callable, Iterator
from itertools import islice

import msgspec

from orihon.errors import NotFound
from orihon.ops.access import Desk
from orihon.ops.ls import Listed, listed
from orihon.ops.show import repository
from orihon.ops.tally import Tally
from orihon.records import TaskRow
from orihon.task.reader import Reader

COMPARED = 20_000  # tasks at most
TERMS = 300  # of the task that others are compared with
OPENING, SAID = 8, 4000  # messages that are looked at for what was asked, and characters of each
SHARED = 5  # words that are named
SAME_KEY, SAME_REPOSITORY = 1.0, 0.1  # what is added to the score

# words of letters and digits, and pairs of characters where words are not set apart
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{2,40}|[\u3040-\u30ff\u3400-\u9fff]{2,40}")


class Similar(msgspec.Struct, frozen=True):
    """A task that is like another one."""

    task: Listed
    score: float  # of 0 to 1 for the words, and what is added
    shared: list[str]  # the words that tell most


class _Other(msgspec.Struct, frozen=True):
    row: Listed
    has: int  # which of the terms, as bits
    bonus: float


def similar(desk: Desk, uuid: str, limit: int = 10, *, tell: Callable[[Tally], None] | None = None) -> list[Similar]:
    """The tasks that are most like this one, of those that somebody may see."""
    reader = desk.reader(uuid, "messages", "summary")
    terms = list(islice(dict.fromkeys(_terms(_text_of(reader))), TERMS))
    bits = {term: 1 << place for place, term in enumerate(terms)}
    tally, others = Tally(tell=tell), []
    for row in islice(desk.rows(), COMPARED):
        tally.add(tasks=1)
        if row.uuid != reader.uuid:
            has = 0
            for term in set(_terms(_text_of_row(row))) & bits.keys():
                has |= bits[term]
            others.append(_Other(listed(row), has, _bonus(row, reader.row)))
    weights = _weights(terms, others)
    whole = sum(weights) or 1.0
    best = heapq.nlargest(limit, others, key=lambda other: (_score(other, weights, whole), other.row.created_at))
    return [
        Similar(other.row, round(score, 4), _shared(other, terms, weights))
        for other in best
        if (score := _score(other, weights, whole)) > 0
    ]


def _weights(terms: list[str], others: list[_Other]) -> list[float]:
    """A word that many have tells little; one that nobody else has tells nothing."""
    counts = [sum(other.has >> place & 1 for other in others) for place in range(len(terms))]
    return [math.log((1 + len(others)) / count) if count else 0.0 for count in counts]


def _score(other: _Other, weights: list[float], whole: float) -> float:
    return sum(weight for place, weight in enumerate(weights) if other.has >> place & 1) / whole + other.bonus


def _shared(other: _Other, terms: list[str], weights: list[float]) -> list[str]:
    places = [place for place in range(len(terms)) if other.has >> place & 1]
    return [terms[place] for place in sorted(places, key=lambda place: -weights[place])[:SHARED]]


def _bonus(row: TaskRow, like: TaskRow) -> float:
    if row.task_key == like.task_key:
        return SAME_KEY
    return SAME_REPOSITORY if repository(row) == repository(like) and row.repo else 0.0


def _text_of(reader: Reader) -> str:
    """What was asked first, and what came of it."""
    try:
        asked = [one.text[:SAID] for one in reader.messages(last=OPENING) if one.role == "user"]
    except NotFound:  # its records are gone; the row still says what came of it
        asked = []
    return "\n".join((*asked, _text_of_row(reader.row)))


def _text_of_row(row: TaskRow) -> str:
    return "\n".join(filter(None, (row.final_summary, row.error_message)))


def _terms(text: str) -> Iterator[str]:
    for word in _WORD.findall(text):
        if word[0].isascii():
            yield word.lower()
        else:
            yield from (word[place : place + 2] for place in range(len(word) - 1))
