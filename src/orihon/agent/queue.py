"""The task queue: tasks are enqueued by anyone, claimed by one worker each, and requeued when a worker dies.

A queued task has the status `pending` and a note with its job. Claiming it is taking its lease, so that two workers
never have the same task; two tasks with the same key never run at once. Its end acknowledges it. A task whose worker
died goes back to the queue, and fails the third time. A task that a worker paused is continued: after a drain at once,
after a pause when the pause file is gone, after a failure of a provider some minutes later.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from orihon.agent.control import DRAINED, find_pause_file
from orihon.agent.sources import Source
from orihon.agent.tools.approval import Approve
from orihon.engine import Engine
from orihon.errors import Conflict, LeaseHeld, NotFound, SourceError, StoreError
from orihon.records import Event, TaskRow
from orihon.stores.base import Query
from orihon.task.lifecycle import INTERRUPTED, read_ending
from orihon.task.log import last_number, load_view
from orihon.task.task import Task
from orihon.task_key import TaskKey

log = logging.getLogger("orihon")

MAX_ATTEMPTS = 3
RETRY_SECONDS = 300.0  # before a task is continued whose provider failed
WORK = "work"  # note with the job
BY_FILE, FAILED = "paused by file", "to be tried again: "  # reasons of pauses by a worker, like `DRAINED`


class Job(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a task works on, and how: a text, a file, or an item of a code host."""

    request: str = ""
    file: str = ""  # of the source `local`
    workspace: str = "."
    model: str = ""
    plan: bool | None = None  # None for the setting
    approve: Approve = "ask"
    reply_cache: str = ""
    context_length: int | None = None
    calls: int | None = None
    seconds: float | None = None
    tokens: int | None = None
    cost: float | None = None
    prices: tuple[float, float] = (0.0, 0.0)
    queued: bool = False  # whether workers may take it


def enqueue(
    engine: Engine, key: TaskKey, job: Job, *, user: str | None = None, priority: int = 0, uuid: str | None = None
) -> str:
    """Add a task to the queue. Return its id."""
    task = engine.start(key, uuid=uuid, user=user, queued=True)
    try:
        task.writer.update(priority=priority)  # before the job, without which it is not taken
        task.writer.event("note", **{WORK: msgspec.to_builtins(msgspec.structs.replace(job, queued=True))})
        task.writer.lease.sync()
    finally:
        task.writer.lease.close()
    return task.uuid


def has_open_task(engine: Engine, key: TaskKey) -> bool:
    """Return whether a visible task with this key is pending, running or paused."""
    text = str(engine.store.sanitiser.key(key))
    return any(True for _ in engine.rows(Query(status=("pending", "running", "paused"), key=text, limit=1)))


def enqueue_new_items(engine: Engine, source: Source, job: Job) -> list[str]:
    """Enqueue the items of a source that have no open task. Return the ids of the new tasks."""
    uuids = []
    try:
        for item in source.find():
            if not has_open_task(engine, item.key):
                is_file = item.key.task_source == "local"
                item_job = msgspec.structs.replace(job, file=item.url) if is_file else job
                uuids.append(enqueue(engine, item.key, item_job, user=source.find_user(item) or None))
    except SourceError as error:
        log.warning("The source could not be searched for new work: %s", error)
    return uuids


def load_job(engine: Engine, uuid: str) -> Job | None:
    """Return the job of a task, or None if it has none."""
    store, uuid = engine.store, engine.row(uuid).uuid
    notes = load_view(store, uuid, last_number(store, uuid, Event)).state.notes
    try:
        return msgspec.convert(notes.get(WORK), Job)
    except msgspec.ValidationError:
        return None


def iter_waiting(engine: Engine) -> Iterator[TaskRow]:
    """Yield the tasks that can be claimed, by priority, then users in turn; none whose key is running.

    Among equal priorities the user with the fewest running tasks comes first, so that a thousand tasks of one user do
    not block another's; of each user the oldest task comes first.
    """
    store, settings = engine.store, engine.settings.pause_resume
    if settings.enabled and Path(settings.signal_file).exists():
        return
    running = [row for row in store.find(Query(status=("running",))) if not row.is_session]
    busy_keys = {row.task_key for row in running}
    paused = (row for row in store.find(Query(status=("paused",))) if _is_due(row, settings.paused_task_expiry_days))
    rows = sorted((*paused, *store.queue.waiting()), key=lambda row: (-row.priority, row.created_at, row.uuid))
    for row in _take_turns(rows, Counter(row.user for row in running)):
        is_visible = engine.user in {None, row.user}
        if is_visible and row.task_key not in busy_keys and find_pause_file(settings, row.uuid) is None:
            busy_keys.add(row.task_key)
            yield row


def _take_turns(rows: list[TaskRow], running: Counter[str | None]) -> list[TaskRow]:
    ranks = []
    for row in rows:
        ranks.append((-row.priority, running[row.user]))
        running[row.user] += 1
    return [row for _, row in sorted(zip(ranks, rows, strict=True), key=lambda pair: pair[0])]


def _is_due(row: TaskRow, expiry_days: int) -> bool:
    """Return whether workers continue a paused task now."""
    reason, paused_at = row.reason or "", row.updated_at or row.created_at
    if paused_at < _render_past(days=expiry_days) or not is_resumed_by_workers(reason):
        return False
    return not reason.startswith(FAILED) or paused_at < _render_past(seconds=RETRY_SECONDS)


def is_resumed_by_workers(reason: str | None) -> bool:
    """Return whether workers continue a task that was paused for this reason."""
    return reason in {DRAINED, BY_FILE} or (reason or "").startswith(FAILED)


def _render_past(**duration: float) -> str:
    return (datetime.now(UTC) - timedelta(**duration)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def claim(engine: Engine, uuid: str, **options: Any) -> Task | None:
    """Take a waiting task. Return None if another process was first, or runs a task with the same key."""
    try:
        before = engine.row(uuid)
        if before.status not in {"pending", "paused"}:
            return None
        is_new = before.status == "pending" and before.started_at is None
        summariser = options.pop("summariser", None)
        task = engine.resume(uuid, summariser=summariser, **(options if is_new else {}))
    except (LeaseHeld, NotFound, Conflict):
        return None
    running = engine.store.find(Query(status=("running",), key=task.row.task_key))
    if any(row.uuid != uuid for row in running):
        # two workers took two tasks with one key at the same moment: both try again later
        task.writer.update(status=before.status, reason=before.reason, activity="")
        task.writer.lease.close()
        return None
    return task


def stop_idle_task(engine: Engine, uuid: str, reason: str) -> TaskRow | None:
    """Stop a task that no process runs. Return None if one does."""
    uuid = engine.row(uuid).uuid
    try:
        with engine.store.lease(uuid) as lease:
            task = engine.open_leased(lease)
            ending = read_ending(task.log.view.state.notes)
            if task.row.status == "running" and ending is not None:
                task._finish(ending)  # its process died while the task ended
            else:
                task._drop(reason)
            return task.row
    except LeaseHeld:
        return None


class RecoveredTask(msgspec.Struct, frozen=True):
    """A task whose process died, and its job."""

    row: TaskRow
    job: Job | None


def recover(engine: Engine, user: str | None = None) -> list[RecoveredTask]:
    """Settle the tasks whose process died: finish an ending, requeue or fail a queued task, fail the others.

    A task that was not queued fails as interrupted and can be resumed. With a `user`, only that user's tasks.
    """
    recovered = []
    for row in list(engine.store.queue.abandoned()):
        if {engine.user, user} - {None, row.user}:
            continue
        try:
            with engine.store.lease(row.uuid) as lease:
                task = engine.open_leased(lease)
                if task.row.status == "running":
                    job = load_job(engine, row.uuid)
                    _settle(task, job)
                    recovered.append(RecoveredTask(task.row, job))
        except (LeaseHeld, NotFound):
            continue
        except StoreError as error:
            log.warning("[uuid:%s] Its process died, and it cannot be recovered: %s", row.uuid[:8], error)
    return recovered


def _settle(task: Task, job: Job | None) -> None:
    ending = read_ending(task.log.view.state.notes)
    if ending is not None:
        task._finish(ending)
    elif job is None or not job.queued:
        task.fail("The process that ran it died.", reason=INTERRUPTED)
    elif task.row.attempts + 1 >= MAX_ATTEMPTS:
        task.fail(f"The worker died {MAX_ATTEMPTS} times.", reason=INTERRUPTED)
    else:
        task._interrupt_lost_calls()
        task.writer.update(add={"attempts": 1}, status="pending", activity="")
        task.writer.logger.warning("Its worker died; it is back in the queue.")
