"""Retention: delete old tasks, archive younger ones, and keep what later tasks inherit.

    older than     completed, stopped                     failed
    7 days         archived                               archived
    30 days        reduced to what a later task inherits  deleted
    90 days        deleted

The ages are settings (`retention`, `context_inheritance.context_expiry_days`). A task that is kept or has a writer is
never touched, also if it is kept or resumed while `clean` runs. Deletions that an earlier run left unfinished are
finished. Tasks whose process died are recovered in the same way as by a worker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from orihon.codec import format_time
from orihon.errors import Conflict, LeaseHeld, NotFound, StoreError, UsageError
from orihon.ops.access import AuthorizedStore
from orihon.ops.progress import OnProgress, ProgressCounter, add_sentence
from orihon.ops.search.index import purge
from orihon.ops.stats import count_by_status, write_report
from orihon.records import Status, TaskRow
from orihon.settings.schema import Settings
from orihon.stores.base import Query, Store
from orihon.task.lifecycle import ENDED

if TYPE_CHECKING:
    from orihon.agent.queue import RecoveredTask

Action = Literal["deleted", "reduced", "compressed"]

INHERITABLE: tuple[Status, ...] = ("completed", "stopped")
ARCHIVE_GAIN = 0.7  # share of a log that gzip saves, for the estimate of a dry run


class Step(NamedTuple):
    """One action and the tasks it applies to."""

    action: Action
    query: Query


class Cleaned(msgspec.Struct, kw_only=True):
    """The result of `clean`; in a dry run, the expected result."""

    store: str
    dry_run: bool
    emergency: bool
    delete_after_days: int
    compress_after_days: int
    keep_stub_days: int
    deleted: int = 0  # with their rows
    reduced: int = 0  # to what a later task inherits
    compressed: int = 0
    interrupted: int = 0  # their process died; they failed or are queued again
    held: int = 0  # due, but they have a writer
    kept: int = 0  # due, but kept
    freed_bytes: int = 0  # records and blobs; a dry run assumes that archiving saves 70 %
    left: dict[Status, int] = {}
    report: str | None = None  # the file with the statistics after it
    failures: list[str] = []
    seconds: float = 0


def clean(
    authorized: AuthorizedStore,
    settings: Settings,
    *,
    dry_run: bool = False,
    older_than: int | None = None,
    emergency: bool = False,
    now: datetime | None = None,
    on_recovered: Callable[[RecoveredTask], object] | None = None,
    on_progress: OnProgress = None,
) -> Cleaned:
    """Clean the tasks that the caller may see. A task that cannot be cleaned does not stop the others."""
    if older_than is not None and older_than < 0:
        raise UsageError(f"A task cannot be older than {older_than} days.", hint="Give 0 or more days.")
    progress, now = ProgressCounter(on_progress), now or datetime.now(UTC)
    store, user = authorized.store, authorized.principal.scope
    retention, inheritance = settings.retention, settings.context_inheritance
    delete_days = retention.emergency_after_days if emergency else retention.delete_after_days
    cleaned = Cleaned(
        store=store.url,
        dry_run=dry_run,
        emergency=emergency,
        delete_after_days=delete_days if older_than is None else older_than,
        compress_after_days=0 if emergency else retention.compress_after_days,
        keep_stub_days=inheritance.context_expiry_days if inheritance.enabled else 0,
    )
    if dry_run:
        running = authorized.rows(Query(status=("running",)))
        cleaned.interrupted = sum(store.is_abandoned(row) for row in running if not row.is_session)
    else:
        cleaned.interrupted = _recover(authorized, settings, on_recovered)
    plan = _plan(cleaned, now, archives=store.archives)
    steps = [Step(action, msgspec.structs.replace(query, user=user)) for action, query in plan]
    if on_progress is not None:
        progress.total = sum(store.count(query)[0] for _, query in steps)
    for action, query in steps:
        if dry_run:
            count, size_bytes = store.count(query)
            setattr(cleaned, action, getattr(cleaned, action) + count)
            cleaned.freed_bytes += size_bytes if action != "compressed" else round(size_bytes * ARCHIVE_GAIN)
        else:
            for row in store.find(query):
                _apply(authorized, row, action, cleaned)
                progress.add(tasks=1)
    days = cleaned.delete_after_days
    if store.archives:
        days = min(days, cleaned.compress_after_days)
    cleaned.kept, _ = store.count(Query(status=ENDED, ended_before=_days_before(now, days), kept=True, user=user))
    if not dry_run:
        _free_space(store, cleaned)
    figures = {"deleted": cleaned.deleted, "reduced": cleaned.reduced, "compressed": cleaned.compressed}
    authorized.record_access("clean", ["rows"], **figures, **({"dry_run": True} if dry_run else {}))
    cleaned.left = count_by_status(authorized.totals(Query(), "status"))
    cleaned.report = None if dry_run else write_report(authorized)
    cleaned.seconds = progress.seconds
    return cleaned


def _free_space(store: Store, cleaned: Cleaned) -> None:
    store.vacuum()
    if cleaned.deleted or cleaned.reduced:
        purge(store)


def _plan(ages: Cleaned, now: datetime, *, archives: bool) -> Iterator[Step]:
    """Yield the steps, the one that frees most first. No task matches two of them."""
    delete, archive = _days_before(now, ages.delete_after_days), _days_before(now, ages.compress_after_days)
    expiry = _days_before(now, max(ages.keep_stub_days, ages.delete_after_days))
    yield Step("deleted", Query(status=("failed",), ended_before=delete, kept=False))
    yield Step("deleted", Query(status=INHERITABLE, ended_before=expiry, kept=False))
    inheritable = Query(status=INHERITABLE, ended_from=expiry, ended_before=delete, kept=False)
    yield Step("reduced", msgspec.structs.replace(inheritable, archived=("", "gzip", "going")))
    if archives:
        yield Step(
            "compressed", Query(status=ENDED, ended_from=delete, ended_before=archive, kept=False, archived=("",))
        )


def keep_task(authorized: AuthorizedStore, uuid: str, *, kept: bool = True) -> TaskRow:
    """Exempt a task from cleaning, or end the exemption, and return its row. An archived task stays archived."""
    row = authorized.row(uuid)
    authorized.record_access("task", ["row"], uuid=row.uuid)
    if row.kept == kept:
        return row
    try:
        with authorized.store.lease(row.uuid) as lease:
            return lease.update(kept=kept)
    except LeaseHeld as error:
        raise LeaseHeld(
            f"{error.message} Nothing was changed.",
            owner=error.owner,
            hint="Try again when the task has ended. A task that has a writer is not cleaned.",
        ) from error


def _apply(authorized: AuthorizedStore, row: TaskRow, action: Action, cleaned: Cleaned) -> None:
    store = authorized.store
    try:
        before, after = row.size_bytes if row.packed_bytes is None else row.packed_bytes, 0
        if action == "compressed":
            before, after = store.archive(row.uuid, fence=row.fence)
        else:
            store.delete(row.uuid, fence=row.fence, stub=action == "reduced")
    except (LeaseHeld, Conflict):
        cleaned.held += 1  # it has a writer, or had one since the row was read
    except NotFound:
        pass  # another process deleted it first
    except StoreError as error:
        add_sentence(cleaned.failures, f"Task {row.uuid}: {error.message}")
    else:
        setattr(cleaned, action, getattr(cleaned, action) + 1)
        cleaned.freed_bytes += max(0, before - after)


def _recover(
    authorized: AuthorizedStore, settings: Settings, on_recovered: Callable[[RecoveredTask], object] | None
) -> int:
    from orihon.agent.queue import recover  # noqa: PLC0415 - a dry run need not load them
    from orihon.engine import Engine  # noqa: PLC0415

    recovered = recover(Engine(authorized.store, settings, user=authorized.principal.scope))
    for task in recovered:
        if on_recovered is not None:
            on_recovered(task)
    return len(recovered)


def _days_before(now: datetime, days: int) -> str:
    try:
        return format_time(now - timedelta(days=days))
    except OverflowError:
        return ""  # earlier than any task
