"""Tasks that wait: put there by anybody, taken by one worker each, and given back when he dies.

A queued task is a task of status `pending` with a note that says what is to be done. Taking it is taking its lease, so
two workers never have the same one; two tasks with the same key never run at once. It is acknowledged by ending. One
whose worker died goes back, and has failed when that happened three times. What a worker had to pause is taken up
again: after a drain at once, after a pause when the pause file is gone, after a failure of a provider a while later.
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
from orihon.agent.sources.base import Source
from orihon.agent.tools.approval import Approve
from orihon.engine import Engine
from orihon.errors import Conflict, LeaseHeld, NotFound, SourceError, StoreError
from orihon.records import Event, TaskRow
from orihon.stores.base import Query
from orihon.task.history import last_number, load_view
from orihon.task.lifecycle import INTERRUPTED, ending_of
from orihon.task.task import Task
from orihon.task_key import TaskKey

log = logging.getLogger("orihon")

MAX_ATTEMPTS = 3
AGAIN_SECONDS = 300.0  # before a task is taken up again whose provider failed
WORK = "work"
BY_FILE, FAILED = "paused by file", "to be tried again: "  # why a worker paused a task, beside `DRAINED`


class Job(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a task is about, and how it is to be run: a text, a file, or an item of a forge."""

    request: str = ""  # a text
    file: str = ""  # of the source `local`
    workspace: str = "."
    model: str = ""
    plan: bool | None = None  # None means what the settings say
    approve: Approve = "ask"
    context_length: int | None = None
    calls: int | None = None
    seconds: float | None = None
    tokens: int | None = None
    cost: float | None = None
    prices: tuple[float, float] = (0.0, 0.0)
    queued: bool = False  # workers may take it, and give it back


def enqueue(
    engine: Engine, key: TaskKey, job: Job, *, user: str | None = None, priority: int = 0, uuid: str | None = None
) -> str:
    """Put a task in the queue; its id."""
    task = engine.start(key, uuid=uuid, user=user, queued=True)
    try:
        # the priority first: a task without its work is not taken yet
        task.update(priority=priority)
        task.event("note", **{WORK: msgspec.to_builtins(msgspec.structs.replace(job, queued=True))})
        task.lease.sync()
    finally:
        task.lease.close()
    return task.uuid


def has_open_task(engine: Engine, key: TaskKey) -> bool:
    """Whether a visible task on the same thing waits, runs or is paused."""
    known = str(engine.store.sanitiser.key(key))
    return any(True for _ in engine.rows(Query(status=("pending", "running", "paused"), key=known, limit=1)))


def _is_at_work(engine: Engine, key: str, *, but: str) -> bool:
    """Whether another task with this key runs, of whichever user."""
    return any(row.uuid != but for row in engine.store.find(Query(status=("running",), key=key)))


def enqueue_new_items(engine: Engine, source: Source, job: Job) -> list[str]:
    """Queue what a source has to do, but nothing twice; the ids of the new tasks."""
    made = []
    try:
        for item in source.find():
            if not has_open_task(engine, item.key):
                local = msgspec.structs.replace(job, file=item.url) if item.key.task_source == "local" else job
                made.append(enqueue(engine, item.key, local, user=source.user_of(item) or None))
    except SourceError as error:
        log.warning("New work could not be looked for: %s", error)
    return made


def load_job(engine: Engine, uuid: str) -> Job | None:
    """What a task is about; None if nobody noted it."""
    store, uuid = engine.store, engine.row(uuid).uuid
    notes = load_view(store, uuid, last_number(store, uuid, Event)).state.notes
    try:
        return msgspec.convert(notes.get(WORK), Job)
    except msgspec.ValidationError:
        return None


def iter_waiting(engine: Engine) -> Iterator[TaskRow]:
    """Tasks that can be taken, the most urgent first, users in turn; none whose key is at work.

    Among equally urgent ones it is the turn of whoever has least at work, so that a thousand tasks of one user do not
    keep another's one waiting; and of each user the oldest comes first.
    """
    store, settings = engine.store, engine.settings.pause_resume
    if settings.enabled and Path(settings.signal_file).exists():
        return
    running = list(store.find(Query(status=("running",))))
    busy = {row.task_key for row in running}
    paused = (row for row in store.find(Query(status=("paused",))) if _is_due(row, settings.paused_task_expiry_days))
    rows = sorted((*paused, *store.queue.waiting()), key=lambda row: (-row.priority, row.created_at, row.uuid))
    for row in _in_turn(rows, Counter(row.user for row in running)):
        if engine.user in {None, row.user} and row.task_key not in busy and find_pause_file(settings, row.uuid) is None:
            busy.add(row.task_key)
            yield row


def _in_turn(rows: list[TaskRow], at_work: Counter[str | None]) -> list[TaskRow]:
    turns = []
    for row in rows:
        turns.append((-row.priority, at_work[row.user]))
        at_work[row.user] += 1
    return [row for _, row in sorted(zip(turns, rows, strict=True), key=lambda one: one[0])]


def _is_due(row: TaskRow, expiry_days: int) -> bool:
    """Whether a paused task is to be taken up again by itself."""
    reason, paused_at = row.reason or "", row.updated_at or row.created_at
    if paused_at < _ago(days=expiry_days) or not is_resumed_by_workers(reason):
        return False
    return not reason.startswith(FAILED) or paused_at < _ago(seconds=AGAIN_SECONDS)


def is_resumed_by_workers(reason: str | None) -> bool:
    """Whether workers take up again what was paused for this reason."""
    return reason in {DRAINED, BY_FILE} or (reason or "").startswith(FAILED)


def _ago(**time: float) -> str:
    return (datetime.now(UTC) - timedelta(**time)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def claim(engine: Engine, uuid: str, **options: Any) -> Task | None:
    """Take a task that waits; None when somebody else was first, or works on the same thing."""
    try:
        before = engine.row(uuid)
        if before.status not in {"pending", "paused"}:
            return None
        fresh = before.status == "pending" and before.started_at is None
        summariser = options.pop("summariser", None)
        task = engine.resume(uuid, summariser=summariser, **(options if fresh else {}))
    except (LeaseHeld, NotFound, Conflict):
        return None
    if _is_at_work(engine, task.row.task_key, but=uuid):
        return_to_queue(task, before)  # two took two tasks with one key at the same moment: both try again later
        return None
    return task


def stop_idle_task(engine: Engine, uuid: str, reason: str) -> TaskRow | None:
    """End a task that nobody works on; None when somebody does."""
    uuid = engine.row(uuid).uuid
    try:
        with engine.store.lease(uuid) as lease:
            task = engine.taken(lease)
            ending = ending_of(task.history.view.state.notes)
            if task.row.status == "running" and ending is not None:
                task.finish(ending)  # it was about to, when its process died
            else:
                task.drop(reason)
            return task.row
    except LeaseHeld:
        return None


def return_to_queue(task: Task, before: TaskRow) -> None:
    """Put a task back into the queue, as it was."""
    task.update(status=before.status, reason=before.reason, activity="")
    task.lease.close()


class RecoveredTask(msgspec.Struct, frozen=True):
    """What became of a task whose process died."""

    row: TaskRow
    job: Job | None


def recover(engine: Engine, user: str | None = None) -> list[RecoveredTask]:
    """Tasks whose process died: an ending that was begun is finished, a queued one goes back or fails.

    One that nobody queued has failed as interrupted: whoever started it can resume it. With a `user`, only his.
    """
    found = []
    for row in list(engine.store.queue.abandoned()):
        if {engine.user, user} - {None, row.user}:
            continue  # not his
        try:
            with engine.store.lease(row.uuid) as lease:
                task = engine.taken(lease)
                if task.row.status == "running":
                    job = load_job(engine, row.uuid)
                    _settle(task, job)
                    found.append(RecoveredTask(task.row, job))
        except (LeaseHeld, NotFound):
            continue
        except StoreError as error:
            log.warning("[uuid:%s] Its process died, and it cannot be taken up: %s", row.uuid[:8], error)
    return found


def _settle(task: Task, job: Job | None) -> None:
    ending = ending_of(task.history.view.state.notes)
    if ending is not None:
        task.finish(ending)
    elif job is None or not job.queued:
        task.fail("The process that ran it died.", reason=INTERRUPTED)
    elif task.row.attempts + 1 >= MAX_ATTEMPTS:
        task.fail(f"The worker died {MAX_ATTEMPTS} times.", reason=INTERRUPTED)
    else:
        task.interrupt_lost()
        task.update(add={"attempts": 1}, status="pending", activity="")
        task.log.warning("Its worker died; it is back in the queue.")
