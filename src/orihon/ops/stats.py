"""`statistics(desk, query)`: what the tasks add up to, each figure beside the target that it should meet.

Everything comes from the rows, so a store of 100,000 tasks takes no longer than one of ten. Sizes are those of the
records as they were appended; `orihon.ops.disk` measures what the files take.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import msgspec

from orihon.ops.access import Desk
from orihon.stores.base import Query
from orihon.stores.lookup import asked
from orihon.stores.totals import Totals
from orihon.task.lifecycle import ENDED

MONTH_DAYS = 30
TARGETS = {
    "failure_rate": ("< 5%", operator.lt, 0.05),
    "summary_success": ("> 95%", operator.gt, 0.95),
    "compression_ratio": ("<= 40%", operator.le, 0.4),
    "bytes_per_month": ("< 5 GB", operator.lt, 5 * 10**9),
    "duration_growth": ("< 10%", operator.lt, 0.1),  # of a month, against the month before
    "memory_saved": (">= 80%", operator.ge, 0.8),  # no row knows it; a benchmark does
}


class User(msgspec.Struct, frozen=True):
    """What one user's tasks add up to."""

    user: str
    tasks: int
    share: float
    tokens: int
    average_seconds: float | None


class Measure(msgspec.Struct, frozen=True):
    """A figure with its target; the value is None when the rows do not know it."""

    name: str
    value: float | None
    target: str
    is_met: bool | None


class Statistics(msgspec.Struct, frozen=True, kw_only=True):
    """All of it."""

    tasks: int
    by_status: dict[str, int]
    active_bytes: int
    ended_bytes: int
    ended_packed_bytes: int  # where it is compressed as it is now
    tokens: int
    average_messages: float | None
    average_tokens: float | None
    average_seconds: float | None
    average_compressions: float | None
    users: list[User]  # the busiest first
    days: dict[str, int]  # tasks that were made, by day (UTC)
    measures: list[Measure]


def statistics(desk: Desk, query: Query, *, today: datetime | None = None) -> Statistics:
    """The figures of the tasks that somebody may see and that a query asks for."""
    statuses = desk.totals(query, "status")
    users, days = desk.totals(query, "user"), desk.totals(query, "day")
    desk.trail.asked("statistics", query.user, query=asked(query))
    all_of_them = _sum(statuses.values())
    ended = _sum(totals for status, totals in statuses.items() if status in ENDED)
    return Statistics(
        tasks=all_of_them.tasks,
        by_status={status: totals.tasks for status, totals in sorted(statuses.items())},
        active_bytes=all_of_them.size_bytes - ended.size_bytes,
        ended_bytes=ended.size_bytes,
        ended_packed_bytes=ended.packed_bytes,
        tokens=all_of_them.tokens,
        average_messages=_ratio(all_of_them.messages, all_of_them.tasks),
        average_tokens=_ratio(all_of_them.tokens, all_of_them.tasks),
        average_seconds=_ratio(all_of_them.seconds, all_of_them.timed),
        average_compressions=_ratio(all_of_them.compressions, all_of_them.tasks),
        users=_users(users, all_of_them.tasks),
        days={day: totals.tasks for day, totals in sorted(days.items())},
        measures=_measures(statuses, ended, all_of_them, days, today or datetime.now(UTC)),
    )


def _users(users: dict[str, Totals], tasks: int) -> list[User]:
    busiest = sorted(users.items(), key=lambda item: (-item[1].tasks, item[0]))
    return [
        User(user, totals.tasks, totals.tasks / tasks, totals.tokens, _ratio(totals.seconds, totals.timed))
        for user, totals in busiest
    ]


def _measures(
    statuses: dict[str, Totals], ended: Totals, every: Totals, days: dict[str, Totals], today: datetime
) -> list[Measure]:
    """The measures of success, as far as rows can tell."""
    now, before = (_month(days, today - timedelta(days=MONTH_DAYS * months)) for months in (0, 1))
    seconds, earlier = _ratio(now.seconds, now.timed), _ratio(before.seconds, before.timed)
    values = {
        "failure_rate": _ratio(statuses.get("failed", Totals()).tasks, ended.tasks),
        "summary_success": _ratio(every.summaries - every.summary_failures, every.summaries),
        "compression_ratio": _ratio(every.summary_tokens, every.summarised_tokens),
        "bytes_per_month": now.packed_bytes,
        "duration_growth": seconds / earlier - 1 if seconds is not None and earlier else None,
        "memory_saved": None,
    }
    return [_measure(name, value) for name, value in values.items()]


def _measure(name: str, value: float | None) -> Measure:
    target, is_met, limit = TARGETS[name]
    return Measure(name, value, target, None if value is None else is_met(value, limit))


def _month(days: dict[str, Totals], last: datetime) -> Totals:
    first = (last - timedelta(days=MONTH_DAYS)).date().isoformat()
    return _sum(totals for day, totals in days.items() if first < day <= last.date().isoformat())


def _sum(many: Iterable[Totals]) -> Totals:
    total = Totals()
    for one in many:
        total.add(one)
    return total


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None
