"""Health checks of a store. Tasks whose process died are recovered first.

    check           warning                          critical
    interrupted     the process of a task died
    long_running    a task runs longer than 6 h
    disk            the store is larger than 10 GB   50 GB
    failure_rate    more than 10 % of the tasks that ended in the last 7 days failed, and at least 10 ended
    backlog         more than 100 tasks are running or pending

The limits are settings (`monitor`). A task whose process died gets its final summary and fails as `interrupted`, or
goes back into the queue, as with a worker; it is reported once.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Literal

import msgspec

from orihon.agent.queue import RecoveredTask, recover
from orihon.codec import format_time
from orihon.engine import Engine
from orihon.ops.access import AuthorizedStore
from orihon.ops.progress import format_count
from orihon.ops.stats import count_by_status, sum_totals
from orihon.records import Status
from orihon.settings.schema import Monitor, Settings
from orihon.stores.base import Query
from orihon.task.lifecycle import ENDED

Level = Literal["ok", "warning", "critical"]
LEVELS: tuple[Level, ...] = ("ok", "warning", "critical")  # the index is the exit code
GB = 1_000_000_000
MAX_NAMED = 10  # tasks that a sentence names


class Check(msgspec.Struct, frozen=True):
    """The result of one check."""

    name: str
    level: Level
    value: float
    limit: float
    sentence: str


class MonitorReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of all checks."""

    at: str
    level: Level
    checks: list[Check]
    tasks: dict[Status, int]
    disk_bytes: int
    active_bytes: int  # of the records in `running/` and of others that have not ended
    ended_bytes: int  # of those in `completed/`, archived ones at their compressed size
    failure_rate: float  # of the last `failure_days`
    average_seconds: float | None  # of tasks that started and ended
    long_running: list[str]
    interrupted: list[str]

    @property
    def exit_code(self) -> int:
        """0 for ok, 1 for a warning, 2 for critical."""
        return LEVELS.index(self.level)


def check_store(
    authorized: AuthorizedStore,
    settings: Settings,
    *,
    now: datetime | None = None,
    on_recovered: Callable[[RecoveredTask], object] | None = None,
) -> MonitorReport:
    """Recover tasks whose process died, then run all checks. The caller must be an administrator."""
    authorized.require_admin("watch a store")
    now = now or datetime.now(UTC)
    recovered = recover(Engine(authorized.store, settings))
    for task in recovered:
        if on_recovered is not None:
            on_recovered(task)
    totals = authorized.totals(Query(), "status")
    tasks = count_by_status(totals)
    ended = sum_totals(totals[status] for status in ENDED if status in totals)
    recent = count_by_status(authorized.totals(_ended_since(now, settings.monitor), "status"))
    recently_ended = sum(recent[status] for status in ENDED)
    since = format_time(now - timedelta(hours=settings.monitor.long_running_hours))
    running = authorized.rows(Query(status=("running",)))
    disk_bytes = authorized.store.disk_bytes()
    failure_rate = recent["failed"] / recently_ended if recently_ended else 0.0
    interrupted = [task.row.uuid for task in recovered]
    long_running = [row.uuid for row in running if not row.is_session and (row.started_at or row.created_at) < since]
    checks = [
        _check_interrupted(interrupted),
        _check_long_running(long_running, settings.monitor),
        _check_disk(disk_bytes / GB, settings.monitor),
        _check_failures(failure_rate, recently_ended, settings.monitor),
        _check_backlog(tasks["running"] + tasks["pending"], settings.monitor),
    ]
    authorized.record_access("monitor", ["rows"])
    return MonitorReport(
        at=format_time(now),
        level=max((check.level for check in checks), key=LEVELS.index),
        checks=checks,
        tasks=tasks,
        disk_bytes=disk_bytes,
        active_bytes=sum_totals(totals.values()).size_bytes - ended.size_bytes,
        ended_bytes=ended.packed_bytes,
        failure_rate=failure_rate,
        average_seconds=ended.seconds / ended.timed if ended.timed else None,
        long_running=long_running,
        interrupted=interrupted,
    )


def _check_interrupted(uuids: list[str]) -> Check:
    sentence = f"{format_count(len(uuids), 'task')} with a dead process{_list_ids(uuids)}."
    return Check("interrupted", "warning" if uuids else "ok", len(uuids), 0, sentence)


def _check_long_running(uuids: list[str], limits: Monitor) -> Check:
    hours = f"more than {limits.long_running_hours:g} hours"
    sentence = f"{format_count(len(uuids), 'task')} running for {hours}{_list_ids(uuids)}."
    return Check("long_running", "warning" if uuids else "ok", len(uuids), 0, sentence)


def _check_disk(gigabytes: float, limits: Monitor) -> Check:
    warning, critical = limits.disk_warning_gb, limits.disk_critical_gb
    level: Level = "critical" if gigabytes > critical else "warning" if gigabytes > warning else "ok"
    sentence = f"{gigabytes:,.1f} GB on disk; warning above {warning:g} GB, critical above {critical:g} GB."
    return Check("disk", level, round(gigabytes, 3), critical if gigabytes > warning else warning, sentence)


def _ended_since(now: datetime, limits: Monitor) -> Query:
    return Query(status=ENDED, ended_from=format_time(now - timedelta(days=limits.failure_days)))


def _check_failures(rate: float, ended: int, limits: Monitor) -> Check:
    sentence = (
        f"{rate:.1%} of {format_count(ended, 'task')} that ended in the last {limits.failure_days:g} days failed; "
    )
    enough = ended >= limits.failure_least
    sentence += (
        f"the limit is {limits.failure_rate:.0%}." if enough else f"fewer than {limits.failure_least} are not judged."
    )
    level: Level = "warning" if enough and rate > limits.failure_rate else "ok"
    return Check("failure_rate", level, round(rate, 4), limits.failure_rate, sentence)


def _check_backlog(tasks: int, limits: Monitor) -> Check:
    sentence = f"{format_count(tasks, 'task')} running or pending; the limit is {limits.backlog:,}."
    return Check("backlog", "warning" if tasks > limits.backlog else "ok", tasks, limits.backlog, sentence)


def _list_ids(uuids: list[str]) -> str:
    if not uuids:
        return ""
    more = f" and {len(uuids) - MAX_NAMED:,} more" if len(uuids) > MAX_NAMED else ""
    return f" ({', '.join(uuids[:MAX_NAMED])}{more})"
