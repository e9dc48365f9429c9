"""What many tasks add up to: the same sums from any store, by SQL where there is some, else row by row."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Literal

import msgspec

from orihon.records import TaskRow

By = Literal["status", "user", "day"]


class Totals(msgspec.Struct, kw_only=True):
    """The sums over some tasks."""

    tasks: int = 0
    messages: int = 0
    tokens: int = 0
    llm_calls: int = 0
    tool_calls: int = 0
    compressions: int = 0
    timed: int = 0  # tasks that began and ended, which is what `seconds` adds up
    seconds: float = 0
    size_bytes: int = 0
    packed_bytes: int = 0  # the same, where it is compressed as it is now
    summaries: int = 0
    summary_failures: int = 0
    summarised_tokens: int = 0
    summary_tokens: int = 0

    def add(self, other: Totals) -> None:
        """Count those as well."""
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


def summed(rows: Iterable[TaskRow], by: By) -> dict[str, Totals]:
    """The sums of each group, row by row, in memory for the groups alone."""
    found: dict[str, Totals] = {}
    for row in rows:
        found.setdefault(_group(row, by), Totals()).add(_of(row))
    return found


def seconds_of(row: TaskRow) -> float | None:
    """How long a task took; None while it has not begun and ended."""
    try:
        began, ended = (datetime.fromisoformat(moment or "") for moment in (row.started_at, row.completed_at))
        return (ended - began).total_seconds()
    except (ValueError, TypeError):  # there is none, or somebody wrote it by hand
        return None


def _group(row: TaskRow, by: By) -> str:
    return {"status": row.status, "user": row.user or "", "day": row.created_at[:10]}[by]


def _of(row: TaskRow) -> Totals:
    seconds = seconds_of(row)
    return Totals(
        tasks=1,
        messages=row.message_count,
        tokens=row.total_tokens,
        llm_calls=row.llm_call_count,
        tool_calls=row.tool_call_count,
        compressions=row.compression_count,
        timed=seconds is not None,
        seconds=seconds or 0,
        size_bytes=row.size_bytes,
        packed_bytes=row.size_bytes if row.packed_bytes is None else row.packed_bytes,
        summaries=row.summary_count,
        summary_failures=row.summary_failures,
        summarised_tokens=row.summarised_tokens,
        summary_tokens=row.summary_tokens,
    )
