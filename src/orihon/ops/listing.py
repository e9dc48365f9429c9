"""Lists of tasks, and the overview of one task. Reading needs no lease."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec

from orihon.ops.access import AuthorizedStore
from orihon.records import Message, Record, Status, Summary, TaskRow
from orihon.stores.base import Query, Store, duration_seconds
from orihon.stores.lookup import describe_query
from orihon.task.lifecycle import ENDED
from orihon.task.reader import Reader

NEWEST = 10  # messages and summaries in an overview
POLL_SECONDS = 0.5
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
    interrupted = row.status == "running" and store.is_abandoned(row)
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
