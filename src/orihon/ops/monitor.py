"""`look(desk, settings)`: is there something that a person should know? And what died is settled.

    check           warning                          critical
    interrupted     a task's process died
    long_running    a task runs longer than 6 h
    disk            the store is larger than 10 GB   50 GB
    failure_rate    more than 10 % of tasks failed
    backlog         more than 100 tasks wait

The numbers are settings (`monitor`). A task whose process died gets its final summary and has failed as `interrupted`,
or goes back into the queue, as a worker does it; it is told of once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Literal

import msgspec

from orihon.agent.queue import RecoveredTask, recover
from orihon.engine import Engine
from orihon.ops.access import Desk
from orihon.ops.tally import counted
from orihon.records import Status
from orihon.settings.schema import Monitor, Settings
from orihon.stores.base import Query
from orihon.stores.totals import Totals
from orihon.task.lifecycle import ENDED

Level = Literal["ok", "warning", "critical"]
LEVELS: tuple[Level, ...] = ("ok", "warning", "critical")  # each worse than the one before; its place is the exit code
GB = 1_000_000_000
NAMED = 10  # tasks that a sentence names


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was looked at."""

    name: str
    level: Level
    value: float
    limit: float
    sentence: str


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """One look at a store."""

    at: str
    level: Level
    checks: list[Check]
    tasks: dict[Status, int]
    disk_bytes: int
    failure_rate: float
    average_seconds: float | None  # of tasks that began and ended
    long_running: list[str]
    interrupted: list[str]

    @property
    def exit_code(self) -> int:
        """0 when all is well, 1 for a warning, 2 when it is critical."""
        return LEVELS.index(self.level)


def look(
    desk: Desk,
    settings: Settings,
    *,
    now: datetime | None = None,
    recovered: Callable[[RecoveredTask], object] | None = None,
) -> Report:
    """Settle what died, and look at the rest. Only an administrator may."""
    desk.require_admin("watch a store")
    now = now or datetime.now(UTC)
    dead = recover(Engine(desk.store, settings))
    for one in dead:
        if recovered is not None:
            recovered(one)
    totals = desk.totals(Query(), "status")
    tasks: dict[Status, int] = {
        status: _of(totals, status).tasks for status in ("pending", "running", "paused", *ENDED)
    }
    ended = sum(tasks[status] for status in ENDED)
    timed = sum(_of(totals, status).timed for status in ENDED)
    since = (now - timedelta(hours=settings.monitor.long_running_hours)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    running = desk.rows(Query(status=("running",)))
    figures = _Figures(
        interrupted=[one.row.uuid for one in dead],
        long_running=[row.uuid for row in running if (row.started_at or row.created_at) < since],
        disk_bytes=desk.store.disk_bytes(),
        failure_rate=tasks["failed"] / ended if ended else 0.0,
        backlog=tasks["pending"],
    )
    checks = list(_checks(figures, settings.monitor))
    desk.looked("monitor")
    return Report(
        at=now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        level=max((check.level for check in checks), key=LEVELS.index),
        checks=checks,
        tasks=tasks,
        disk_bytes=figures.disk_bytes,
        failure_rate=figures.failure_rate,
        average_seconds=sum(_of(totals, status).seconds for status in ENDED) / timed if timed else None,
        long_running=figures.long_running,
        interrupted=figures.interrupted,
    )


class _Figures(msgspec.Struct, frozen=True, kw_only=True):
    interrupted: list[str]
    long_running: list[str]
    disk_bytes: int
    failure_rate: float
    backlog: int


def _checks(found: _Figures, limits: Monitor) -> Iterator[Check]:
    dead, long, hours = len(found.interrupted), len(found.long_running), limits.long_running_hours
    gigabytes, warning, critical = found.disk_bytes / GB, limits.disk_warning_gb, limits.disk_critical_gb
    yield Check(
        name="interrupted",
        level="warning" if dead else "ok",
        value=dead,
        limit=0,
        sentence=f"The process of {counted(dead, 'task')} died{_named(found.interrupted)}.",
    )
    yield Check(
        name="long_running",
        level="warning" if long else "ok",
        value=long,
        limit=0,
        sentence=f"{counted(long, 'task')} run for more than {hours:g} hours{_named(found.long_running)}.",
    )
    yield Check(
        name="disk",
        level="critical" if gigabytes > critical else "warning" if gigabytes > warning else "ok",
        value=round(gigabytes, 3),
        limit=critical if gigabytes > warning else warning,
        sentence=f"The store takes {gigabytes:,.1f} GB; {warning:g} GB are much, {critical:g} GB too much.",
    )
    yield Check(
        name="failure_rate",
        level="warning" if found.failure_rate > limits.failure_rate else "ok",
        value=round(found.failure_rate, 4),
        limit=limits.failure_rate,
        sentence=f"{found.failure_rate:.1%} of the tasks that ended failed; {limits.failure_rate:.0%} are allowed.",
    )
    yield Check(
        name="backlog",
        level="warning" if found.backlog > limits.backlog else "ok",
        value=found.backlog,
        limit=limits.backlog,
        sentence=f"{counted(found.backlog, 'task')} wait to be taken; {limits.backlog:,} are allowed.",
    )


def _named(uuids: list[str]) -> str:
    if not uuids:
        return ""
    more = f" and {len(uuids) - NAMED:,} more" if len(uuids) > NAMED else ""
    return f" ({', '.join(uuids[:NAMED])}{more})"


def _of(totals: dict[str, Totals], status: Status) -> Totals:
    return totals.get(status) or Totals()
