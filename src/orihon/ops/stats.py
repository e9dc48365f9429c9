"""Statistics over the tasks of a store, each measure compared with its target.

The figures come from the rows, so a store of 100,000 tasks takes no longer than one of ten. Sizes are those of the
appended records; `measure_disk` measures the files themselves.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import get_args

import msgspec

from orihon.errors import NotFound, UsageError
from orihon.ops.access import AuthorizedStore
from orihon.ops.progress import OnProgress, ProgressCounter
from orihon.records import Status
from orihon.stores.base import RETENTION_PARTS, Query, Totals
from orihon.stores.files import Refused, directory_handle, disk_errors, make_directory, replace_file
from orihon.stores.jsonl.archive import measure_directory
from orihon.stores.jsonl.store import JsonlStore
from orihon.stores.lookup import describe_query
from orihon.task.lifecycle import ENDED

MONTH_DAYS = 30
TARGETS = {
    "failure_rate": ("< 5%", operator.lt, 0.05),
    "summary_success": ("> 95%", operator.gt, 0.95),
    "retention": (">= 90%", operator.ge, 0.9),
    "compression_ratio": ("<= 40%", operator.le, 0.4),
    "bytes_per_month": ("< 5 GB", operator.lt, 5 * 10**9),
    "duration_growth": ("< 10%", operator.lt, 0.1),  # the last 30 days against the 30 before
    "memory_saved": (">= 80%", operator.ge, 0.8),  # not in the rows; a benchmark measures it
}


class User(msgspec.Struct, frozen=True):
    """The totals of one user."""

    user: str
    tasks: int
    share: float
    tokens: int
    average_seconds: float | None


class Measure(msgspec.Struct, frozen=True):
    """A figure with its target. The value is None if the rows do not have it."""

    name: str
    value: float | None
    target: str
    is_met: bool | None


class Statistics(msgspec.Struct, frozen=True, kw_only=True):
    """The statistics of a store."""

    tasks: int
    by_status: dict[str, int]
    active_bytes: int
    ended_bytes: int
    ended_packed_bytes: int  # the archived size, where a task is archived
    tokens: int
    average_messages: float | None
    average_tokens: float | None
    average_seconds: float | None
    average_compressions: float | None
    users: list[User]  # the busiest first
    days: dict[str, int]  # tasks created per day (UTC)
    measures: list[Measure]


class DiskUsage(msgspec.Struct):
    """Bytes on disk of the tasks that have not ended, and of those that have."""

    active_bytes: int = 0
    ended_bytes: int = 0


def compute_statistics(authorized: AuthorizedStore, query: Query, *, today: datetime | None = None) -> Statistics:
    """Return the statistics of the tasks that match a query."""
    by_status = authorized.totals(query, "status")
    by_user, by_day = authorized.totals(query, "user"), authorized.totals(query, "day")
    authorized.trail.record_query("statistics", ["totals"], query.user, query=describe_query(query))
    total = sum_totals(by_status.values())
    ended = sum_totals(totals for status, totals in by_status.items() if status in ENDED)
    return Statistics(
        tasks=total.tasks,
        by_status={status: totals.tasks for status, totals in sorted(by_status.items())},
        active_bytes=total.size_bytes - ended.size_bytes,
        ended_bytes=ended.size_bytes,
        ended_packed_bytes=ended.packed_bytes,
        tokens=total.tokens,
        average_messages=_ratio(total.messages, total.tasks),
        average_tokens=_ratio(total.tokens, total.tasks),
        average_seconds=_ratio(total.seconds, total.timed),
        average_compressions=_ratio(total.compressions, total.tasks),
        users=_users(by_user, total.tasks),
        days={day: totals.tasks for day, totals in sorted(by_day.items())},
        measures=_measures(by_status, ended, total, by_day, today or datetime.now(UTC)),
    )


def write_report(authorized: AuthorizedStore) -> str | None:
    """Replace `statistics.json` next to the store, and return its path; None if the store has no place for it."""
    path = authorized.store.sidecar_path("statistics.json")
    if path is None:
        return None
    statistics = msgspec.json.format(msgspec.json.encode(compute_statistics(authorized, Query())), indent=2)
    with disk_errors(f"{path} cannot be written"):
        make_directory(path.parent)
        with directory_handle(path.parent) as directory:
            replace_file(path.name, statistics + b"\n", directory, durable=False)
    return str(path)


def count_by_status(totals: dict[str, Totals]) -> dict[Status, int]:
    """Return the number of tasks for every status, given the totals by status."""
    return {status: totals[status].tasks if status in totals else 0 for status in get_args(Status)}


def measure_disk(authorized: AuthorizedStore, query: Query, *, on_progress: OnProgress = None) -> DiskUsage:
    """Measure the files of the tasks that match a query. Raise UsageError unless the store keeps plain files."""
    store = authorized.store
    if not isinstance(store, JsonlStore):
        raise UsageError("Only a store of plain files knows the disk usage of its tasks.", hint="Leave out --disk.")
    usage, progress = DiskUsage(), ProgressCounter(on_progress)
    for row in authorized.rows(query):
        # the task was deleted or moved meanwhile, or its directory is a link, which the doctor reports
        with suppress(NotFound, FileNotFoundError, Refused):
            with directory_handle(store.task_path(row.uuid)) as directory:
                size = measure_directory(directory)
            if row.status in ENDED:
                usage.ended_bytes += size
            else:
                usage.active_bytes += size
            progress.add(tasks=1, size_bytes=size)
    return usage


def _users(by_user: dict[str, Totals], tasks: int) -> list[User]:
    busiest = sorted(by_user.items(), key=lambda item: (-item[1].tasks, item[0]))
    return [
        User(user, totals.tasks, totals.tasks / tasks, totals.tokens, _ratio(totals.seconds, totals.timed))
        for user, totals in busiest
    ]


def _measures(
    by_status: dict[str, Totals], ended: Totals, total: Totals, by_day: dict[str, Totals], today: datetime
) -> list[Measure]:
    month, month_before = (_month(by_day, today - timedelta(days=MONTH_DAYS * months)) for months in (0, 1))
    seconds, seconds_before = _ratio(month.seconds, month.timed), _ratio(month_before.seconds, month_before.timed)
    values = {
        "failure_rate": _ratio(by_status.get("failed", Totals()).tasks, ended.tasks),
        "summary_success": _ratio(total.summaries - total.summary_failures, total.summaries),
        "retention": _ratio(total.retention_sum / RETENTION_PARTS, total.retention_count),
        "compression_ratio": _ratio(total.summary_tokens, total.summarised_tokens),
        "bytes_per_month": month.packed_bytes,
        "duration_growth": seconds / seconds_before - 1 if seconds is not None and seconds_before else None,
        "memory_saved": None,
    }
    return [_measure(name, value) for name, value in values.items()]


def _measure(name: str, value: float | None) -> Measure:
    target, is_met, limit = TARGETS[name]
    return Measure(name, value, target, None if value is None else is_met(value, limit))


def _month(by_day: dict[str, Totals], last: datetime) -> Totals:
    first = (last - timedelta(days=MONTH_DAYS)).date().isoformat()
    return sum_totals(totals for day, totals in by_day.items() if first < day <= last.date().isoformat())


def sum_totals(groups: Iterable[Totals]) -> Totals:
    total = Totals()
    for totals in groups:
        total.add(totals)
    return total


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None
