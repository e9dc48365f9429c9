"""`clean(desk, settings)`: old tasks are deleted, younger ones compressed, and what a later task inherits stays.

    older than     completed, stopped                       failed
    7 days         compressed                               compressed
    30 days        cut down to what a later task inherits   deleted
    90 days        deleted

The days are settings (`retention`, `context_inheritance.context_expiry_days`). A task that is kept, or that somebody
writes, is never touched; whoever keeps or resumes one while this works gets ahead of it. What an earlier clean began
and did not finish is finished. Tasks whose process died are settled as a worker does it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from orihon.errors import Conflict, LeaseHeld, NotFound, StoreError, UsageError
from orihon.ops.access import Desk
from orihon.ops.search import purge
from orihon.ops.tally import Tally
from orihon.records import Status, TaskRow
from orihon.settings.schema import Settings
from orihon.stores.base import Query
from orihon.task.lifecycle import ENDED

if TYPE_CHECKING:
    from orihon.agent.queue import RecoveredTask

Action = Literal["deleted", "reduced", "compressed"]

INHERITABLE: tuple[Status, ...] = ("completed", "stopped")
GAIN = 0.7  # what gzip saves of a log, at a guess
MANY = 1000  # sentences that are kept


class Step(NamedTuple):
    """One thing to do, and with which tasks."""

    action: Action
    query: Query


class Cleaned(msgspec.Struct, kw_only=True):
    """What was done; in a dry run, what would be."""

    store: str
    dry_run: bool
    emergency: bool
    delete_after_days: int
    compress_after_days: int
    keep_stub_days: int
    deleted: int = 0  # whole, their rows too
    reduced: int = 0  # to what a later task inherits
    compressed: int = 0
    interrupted: int = 0  # whose process died: failed, or back in the queue
    held: int = 0  # due, but somebody writes them
    kept: int = 0  # due, but kept
    freed_bytes: int = 0  # of records and blobs; in a dry run a compressed one is taken to lose 70 %
    left: dict[Status, int] = {}
    failures: list[str] = []
    seconds: float = 0


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """After how many days what happens."""

    delete_days: int
    compress_days: int
    stub_days: int
    compresses: bool

    def steps(self, now: datetime) -> Iterator[Step]:
        """What is to be done, what makes most room first; no task is in two of them."""
        delete, compress = self._before(now, self.delete_days), self._before(now, self.compress_days)
        expiry = self._before(now, max(self.stub_days, self.delete_days))
        yield Step("deleted", Query(status=("failed",), ended_before=delete, kept=False))
        yield Step("deleted", Query(status=INHERITABLE, ended_before=expiry, kept=False))
        whole = Query(status=INHERITABLE, ended_from=expiry, ended_before=delete, kept=False)
        yield Step("reduced", msgspec.structs.replace(whole, archived=("", "gzip", "going")))
        if self.compresses:
            younger = Query(status=ENDED, ended_from=delete, ended_before=compress, kept=False, archived=("",))
            yield Step("compressed", younger)

    def kept(self, now: datetime) -> Query:
        """Tasks that would be due if nobody had kept them."""
        days = min(self.delete_days, self.compress_days) if self.compresses else self.delete_days
        return Query(status=ENDED, ended_before=self._before(now, days), kept=True)

    @staticmethod
    def _before(now: datetime, days: int) -> str:
        try:
            return (now - timedelta(days=days)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        except OverflowError:
            return ""  # nothing is that old


def rules_of(settings: Settings, *, compresses: bool, older_than: int | None = None, emergency: bool = False) -> Rules:
    """The days that the settings say, or that somebody asks for."""
    retention, inheritance = settings.retention, settings.context_inheritance
    days = retention.emergency_after_days if emergency else retention.delete_after_days
    return Rules(
        delete_days=days if older_than is None else older_than,
        compress_days=0 if emergency else retention.compress_after_days,
        stub_days=inheritance.context_expiry_days if inheritance.enabled else 0,
        compresses=compresses,
    )


def clean(
    desk: Desk,
    settings: Settings,
    *,
    dry_run: bool = False,
    older_than: int | None = None,
    emergency: bool = False,
    now: datetime | None = None,
    recovered: Callable[[RecoveredTask], object] | None = None,
    tell: Callable[[Tally], None] | None = None,
) -> Cleaned:
    """Do it, for the tasks that this person may see; a task that cannot be cleaned does not stop the rest."""
    if older_than is not None and older_than < 0:
        raise UsageError(f"A task cannot be older than {older_than} days.", hint="Give 0 or more days.")
    began, now = time.monotonic(), now or datetime.now(UTC)
    rules = rules_of(settings, compresses=desk.store.archives, older_than=older_than, emergency=emergency)
    cleaned = Cleaned(
        store=desk.store.url,
        dry_run=dry_run,
        emergency=emergency,
        delete_after_days=rules.delete_days,
        compress_after_days=rules.compress_days,
        keep_stub_days=rules.stub_days,
    )
    user = None if desk.who.admin else desk.who.user
    cleaned.interrupted = _silent(desk, settings, now) if dry_run else _recovered(desk, settings, user, recovered)
    tally = Tally(tell=tell)
    for action, query in rules.steps(now):
        own = msgspec.structs.replace(query, user=user)
        if dry_run:
            count, size_bytes = desk.store.count(own)
            setattr(cleaned, action, getattr(cleaned, action) + count)
            cleaned.freed_bytes += size_bytes if action != "compressed" else round(size_bytes * GAIN)
        else:
            for row in desk.store.find(own):
                _act(desk, row, action, cleaned)
                tally.add(tasks=1)
    cleaned.kept, _ = desk.store.count(msgspec.structs.replace(rules.kept(now), user=user))
    if not dry_run:
        desk.store.tidy()
        if cleaned.deleted or cleaned.reduced:
            purge(desk.store)  # what is gone is not found any more
        desk.looked("clean", deleted=cleaned.deleted, reduced=cleaned.reduced, compressed=cleaned.compressed)
    cleaned.left = left(desk, user)
    cleaned.seconds = time.monotonic() - began
    return cleaned


def left(desk: Desk, user: str | None) -> dict[Status, int]:
    """How many tasks there are of each status."""
    found = desk.store.totals(Query(user=user), "status")
    statuses: tuple[Status, ...] = ("pending", "running", "paused", *ENDED)
    return {status: found[status].tasks if status in found else 0 for status in statuses}


def _act(desk: Desk, row: TaskRow, action: Action, cleaned: Cleaned) -> None:
    store = desk.store
    try:
        before, after = row.size_bytes if row.packed_bytes is None else row.packed_bytes, 0
        if action == "compressed":
            before, after = store.archive(row.uuid, fence=row.fence)
        else:
            store.delete(row.uuid, fence=row.fence, stub=action == "reduced")
    except (LeaseHeld, Conflict):
        cleaned.held += 1  # or was written since it was looked at, which is the same to us
    except NotFound:
        pass  # somebody else was first
    except StoreError as error:
        if len(cleaned.failures) < MANY:
            cleaned.failures.append(f"Task {row.uuid}: {error.message}")
    else:
        setattr(cleaned, action, getattr(cleaned, action) + 1)
        cleaned.freed_bytes += max(0, before - after)


def _recovered(
    desk: Desk, settings: Settings, user: str | None, heard: Callable[[RecoveredTask], object] | None
) -> int:
    from orihon.agent.queue import recover  # noqa: PLC0415 - a dry run need not load them
    from orihon.engine import Engine  # noqa: PLC0415

    found = recover(Engine(desk.store, settings, user=desk.who.scope), user)
    for one in found:
        if heard is not None:
            heard(one)
    return len(found)


def _silent(desk: Desk, settings: Settings, now: datetime) -> int:
    """Running tasks whose holder was not heard of for so long that he seems to be dead."""
    since = (now - timedelta(seconds=settings.lease.expiry_seconds)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    rows = desk.rows(Query(status=("running",)))
    return sum(max(row.heartbeat_at or "", row.updated_at or row.created_at) < since for row in rows)
