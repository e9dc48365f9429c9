"""Tasks that resemble a given one, by the words of the request, the outcome and the error.

Rare words weigh more than common ones. A task with the same key or repository gets a bonus. In a large store the newest
tasks are compared; memory is bounded by their number, not by the length of their texts.
"""

from __future__ import annotations

import heapq
import math
import operator
import re
from collections.abc import Iterator
from itertools import islice

import msgspec

from orihon.errors import NotFound
from orihon.ops.access import AuthorizedStore
from orihon.ops.listing import TaskListing, format_repository, make_listing
from orihon.ops.progress import OnProgress, ProgressCounter
from orihon.records import TaskRow
from orihon.task.reader import Reader

MAX_TASKS = 20_000  # that are compared
MAX_TERMS = 300  # of the given task
OPENING_MESSAGES, MESSAGE_CHARS = 8, 4000  # where the request is looked for
SHARED_WORDS = 5  # that are reported
SAME_KEY, SAME_REPOSITORY = 1.0, 0.1  # bonuses

# words of letters and digits, and pairs of characters in scripts without spaces
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{2,40}|[\u3040-\u30ff\u3400-\u9fff]{2,40}")


class Similar(msgspec.Struct, frozen=True):
    """A task that resembles the given one."""

    task: TaskListing
    score: float  # 0 to 1 for the words, plus the bonus
    shared: list[str]  # the heaviest words that both have


class _Candidate(msgspec.Struct, frozen=True):
    listing: TaskListing
    terms: int  # bit n is set if the task has term n
    bonus: float


def find_similar(
    authorized: AuthorizedStore, uuid: str, limit: int = 10, *, on_progress: OnProgress = None
) -> list[Similar]:
    """Return the tasks that resemble a task most, among those that the caller may see."""
    reader = authorized.reader(uuid, "messages", "summary")
    terms = list(islice(dict.fromkeys(_split(_task_text(reader))), MAX_TERMS))
    bits = {term: 1 << index for index, term in enumerate(terms)}
    progress = ProgressCounter(on_progress)
    candidates = []
    for row in islice(authorized.rows(), MAX_TASKS):
        progress.add(tasks=1)
        if row.uuid != reader.uuid:
            shared = set(_split(_row_text(row))) & bits.keys()
            mask = sum(bits[term] for term in shared)
            candidates.append(_Candidate(make_listing(authorized.store, row), mask, _bonus(row, reader.row)))
    weights = _weigh(terms, candidates)
    scored = ((_score(candidate, weights), candidate.listing.created_at, candidate) for candidate in candidates)
    best = heapq.nlargest(limit, scored, key=operator.itemgetter(0, 1))
    return [
        Similar(candidate.listing, round(score, 4), _shared_words(candidate, terms, weights))
        for score, _, candidate in best
        if score > 0
    ]


def _weigh(terms: list[str], candidates: list[_Candidate]) -> list[float]:
    """Weigh each term by its rarity, all together 1. A term that no candidate has weighs nothing."""
    counts = [sum(candidate.terms >> index & 1 for candidate in candidates) for index in range(len(terms))]
    weights = [math.log((1 + len(candidates)) / count) if count else 0.0 for count in counts]
    total = sum(weights) or 1.0
    return [weight / total for weight in weights]


def _score(candidate: _Candidate, weights: list[float]) -> float:
    return sum(weight for index, weight in enumerate(weights) if candidate.terms >> index & 1) + candidate.bonus


def _shared_words(candidate: _Candidate, terms: list[str], weights: list[float]) -> list[str]:
    indexes = [index for index in range(len(terms)) if candidate.terms >> index & 1]
    return [terms[index] for index in sorted(indexes, key=lambda index: -weights[index])[:SHARED_WORDS]]


def _bonus(row: TaskRow, reference: TaskRow) -> float:
    if row.task_key == reference.task_key:
        return SAME_KEY
    return SAME_REPOSITORY if format_repository(row) == format_repository(reference) and row.repo else 0.0


def _task_text(reader: Reader) -> str:
    """Return the request and the outcome of a task."""
    try:
        messages = reader.messages(last=OPENING_MESSAGES)
        request = [message.text[:MESSAGE_CHARS] for message in messages if message.role == "user"]
    except NotFound:  # the records were deleted; the row still has the outcome
        request = []
    return "\n".join((*request, _row_text(reader.row)))


def _row_text(row: TaskRow) -> str:
    return "\n".join(filter(None, (row.final_summary, row.error_message)))


def _split(text: str) -> Iterator[str]:
    for word in _WORD.findall(text):
        if word[0].isascii():
            yield word.lower()
        else:
            yield from (word[index : index + 2] for index in range(len(word) - 1))
