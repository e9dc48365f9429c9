"""`tasks(desk, query)`: a page of the tasks that somebody may see."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from orihon.ops.access import Desk
from orihon.records import Status, TaskRow
from orihon.stores.base import Query
from orihon.stores.lookup import asked
from orihon.stores.totals import seconds_of


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """A task as a list shows it."""

    uuid: str
    status: Status
    task_key: str
    user: str | None
    created_at: str
    started_at: str | None
    completed_at: str | None
    seconds: float | None  # so far, if it has not ended
    llm_calls: int
    tool_calls: int
    messages: int
    tokens: int
    size_bytes: int
    kept: bool
    reason: str | None
    error: str | None


class Page(msgspec.Struct, frozen=True):
    """Some tasks, and whether there are more behind them."""

    tasks: list[Listed]
    offset: int
    has_more: bool


def tasks(desk: Desk, query: Query) -> Page:
    """The tasks that a query with a limit asks for."""
    limit = query.limit or 0
    found = list(desk.rows(msgspec.structs.replace(query, limit=limit + 1)))
    desk.trail.asked("tasks", query.user, query=asked(query))
    return Page([listed(row) for row in found[:limit]], query.offset, len(found) > limit)


def listed(row: TaskRow) -> Listed:
    """A row as a list shows it."""
    return Listed(
        uuid=row.uuid,
        status=row.status,
        task_key=row.task_key,
        user=row.user,
        created_at=row.created_at,
        started_at=row.started_at,
        completed_at=row.completed_at,
        seconds=seconds_so_far(row),
        llm_calls=row.llm_call_count,
        tool_calls=row.tool_call_count,
        messages=row.message_count,
        tokens=row.total_tokens,
        size_bytes=row.size_bytes,
        kept=row.kept,
        reason=row.reason,
        error=row.error_message,
    )


def seconds_so_far(row: TaskRow) -> float | None:
    """How long a task took, or has taken until it paused, or until now; None before it begins."""
    if row.completed_at is None:
        now = datetime.now(UTC).isoformat()
        row = msgspec.structs.replace(row, completed_at=now if row.status == "running" else row.updated_at)
    return seconds_of(row)
