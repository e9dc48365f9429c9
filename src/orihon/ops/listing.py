"""Lists of tasks, the overview of one task, and the tasks that resemble it. Reading needs no lease.

Tasks are alike by the words of the request, the outcome and the error. Rare words weigh more than common ones. A task
with the same key or repository gets a bonus. In a large store the newest tasks are compared; memory is bounded by their
number, not by the length of their texts.
"""

from __future__ import annotations

import heapq
import math
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from orihon.errors import NotFound
from orihon.ops.access import AuthorizedStore
from orihon.ops.progress import OnProgress, ProgressCounter
from orihon.records import Message, Record, Status, Summary, TaskRow
from orihon.stores.base import Query, Store, duration_seconds
from orihon.stores.lookup import describe_query
from orihon.task.lifecycle import ENDED
from orihon.task.reader import Reader

NEWEST = 10  # messages and summaries in an overview
POLL_SECONDS = 0.5
MAX_TASKS = 20_000  # that are compared
MAX_TERMS = 300  # of the given task
OPENING_MESSAGES, MESSAGE_CHARS = 8, 4000  # where the request is looked for
SHARED_WORDS = 5  # that are reported
SAME_KEY, SAME_REPOSITORY = 1.0, 0.1  # bonuses

# words of letters and digits, and pairs of characters in scripts without spaces
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{2,40}|[\u3040-\u30ff\u3400-\u9fff]{2,40}")

_COMPUTED = frozenset({"seconds", "interrupted"})  # of a listing; the others are columns
_COLUMNS = {
    "llm_calls": "llm_call_count",
    "tool_calls": "tool_call_count",
    "messages": "message_count",
    "tokens": "total_tokens",
    "error": "error_message",
}


class TaskListing(msgspec.Struct, frozen=True, kw_only=True):
    """One task in a list."""

    uuid: str
    status: Status
    task_key: str
    user: str | None
    created_at: str
    started_at: str | None
    completed_at: str | None
    seconds: float | None  # until now, if the task is running
    llm_calls: int
    tool_calls: int
    messages: int
    tokens: int
    size_bytes: int
    kept: bool
    reason: str | None
    error: str | None
    interrupted: bool  # it is running, but its process is gone


class TaskPage(msgspec.Struct, frozen=True):
    """A page of tasks, and whether more follow."""

    tasks: list[TaskListing]
    offset: int
    has_more: bool


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """The most important facts about one task."""

    row: TaskRow
    repository: str
    task: str
    seconds: float | None
    message_count: int
    messages: list[Message]  # the newest
    summary_count: int
    summaries: list[Summary]  # the newest


def list_tasks(authorized: AuthorizedStore, query: Query) -> TaskPage:
    """Return the tasks that match a query. The query has a limit."""
    limit = query.limit or 0
    rows = list(authorized.rows(msgspec.structs.replace(query, limit=limit + 1)))
    authorized.trail.record_query("tasks", ["rows"], query.user, query=describe_query(query))
    return TaskPage([make_listing(authorized.store, row) for row in rows[:limit]], query.offset, len(rows) > limit)


def make_listing(store: Store, row: TaskRow) -> TaskListing:
    """Return the listing of a row."""
    names = [name for name in TaskListing.__struct_fields__ if name not in _COMPUTED]
    own: dict[str, Any] = {name: getattr(row, _COLUMNS.get(name, name)) for name in names}
    interrupted = row.status == "running" and not row.is_session and store.is_abandoned(row)
    return TaskListing(seconds=_elapsed_seconds(row), interrupted=interrupted, **own)


def build_overview(reader: Reader) -> Overview:
    """Return the overview of a task."""
    messages = list(reader.messages(first=-NEWEST))
    summaries = list(reader.store.read(reader.uuid, Summary, first=-NEWEST))
    return Overview(
        row=reader.row,
        repository=format_repository(reader.row),
        task=f"{reader.row.task_type.replace('_', ' ')} #{reader.row.task_id}",
        seconds=_elapsed_seconds(reader.row),
        message_count=messages[-1].seq if messages else 0,
        messages=messages,
        summary_count=summaries[-1].id if summaries else 0,
        summaries=summaries,
    )


def format_repository(row: TaskRow) -> str:
    """Return `github/acme/shop`, or `gitlab/5` if only the number of the project is known."""
    parts = (row.task_source, row.owner, row.repo, "" if row.project_id is None else str(row.project_id))
    return "/".join(filter(None, parts))


def follow_messages(
    authorized: AuthorizedStore, uuid: str, first: int = 1, *, sleep: Callable[[float], None] = time.sleep
) -> Iterator[Message]:
    """Yield messages from number `first` on as they are appended, until the task has ended."""
    while True:
        ended = authorized.row(uuid).status in ENDED  # read before the messages, so that none is missed
        for message in authorized.store.read(uuid, Message, first=first):
            yield message
            first = message.seq + 1
        if ended:
            return
        sleep(POLL_SECONDS)


def load_full_text(reader: Reader, record: Record) -> Record:
    """Return the record with its full text, if the text is stored in a blob."""
    if not isinstance(record, Message) or record.blob is None or not isinstance(record.content, str):
        return record
    text = reader.store.blob(reader.uuid, record.blob.sha256).decode("utf-8", "replace")
    return msgspec.structs.replace(record, content=text)


def _elapsed_seconds(row: TaskRow) -> float | None:
    """Return how long the task took or has taken so far; None before it starts."""
    if row.completed_at is None:
        now = datetime.now(UTC).isoformat()
        row = msgspec.structs.replace(row, completed_at=now if row.status == "running" else row.updated_at)
    return duration_seconds(row)


# tasks that resemble another


class Similar(msgspec.Struct, frozen=True):
    """A task that resembles the given one."""

    task: TaskListing
    score: float  # 0 to 1 for the words, plus the bonus
    shared: list[str]  # the heaviest words that both have


class _Candidate(NamedTuple):
    listing: TaskListing
    shared: frozenset[str]  # the terms that the given task has too
    bonus: float


def find_similar(
    authorized: AuthorizedStore, uuid: str, limit: int = 10, *, on_progress: OnProgress = None
) -> list[Similar]:
    """Return the tasks that resemble a task most, among those that the caller may see."""
    reader = authorized.reader(uuid, "messages", "summary")
    terms = set(islice(dict.fromkeys(_split(_task_text(reader))), MAX_TERMS))
    progress = ProgressCounter(on_progress, total=min(authorized.count(Query()), MAX_TASKS))
    candidates = []
    for row in islice(authorized.rows(), MAX_TASKS):
        progress.add(tasks=1)
        if row.uuid != reader.uuid:
            shared = frozenset(terms.intersection(_split(_row_text(row))))
            candidates.append(_Candidate(make_listing(authorized.store, row), shared, _bonus(row, reader.row)))
    weights = _weigh(candidates)
    scored = [(math.fsum(weights[term] for term in one.shared) + one.bonus, one) for one in candidates]
    best = heapq.nlargest(limit, scored, key=lambda item: (item[0], item[1].listing.created_at))
    return [
        Similar(
            one.listing, round(score, 4), sorted(one.shared, key=lambda term: (-weights[term], term))[:SHARED_WORDS]
        )
        for score, one in best
        if score > 0
    ]


def _weigh(candidates: list[_Candidate]) -> dict[str, float]:
    """Weigh each term by its rarity, all together 1. A term that no candidate has weighs nothing."""
    counts = Counter(term for candidate in candidates for term in candidate.shared)
    weights = {term: math.log((1 + len(candidates)) / count) for term, count in counts.items()}
    total = sum(weights.values()) or 1.0
    return {term: weight / total for term, weight in weights.items()}


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
