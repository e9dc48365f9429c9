"""Tasks that wait: put there by anybody, taken by one worker each, and given back when he dies.

A queued task is a task of status `pending` with a note that says what is to be done. Taking it is taking its lease, so
two workers never have the same one; two tasks with the same key never run at once. It is acknowledged by ending. One
whose worker died goes back, three times at most; then it has failed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import msgspec

from orihon.agent.checks import DRAINED
from orihon.engine import Orihon
from orihon.errors import Conflict, LeaseHeld, NotFound
from orihon.keys import TaskKey
from orihon.records import TaskRow
from orihon.stores.base import Query
from orihon.task.lifecycle import INTERRUPTED
from orihon.task.task import Task

log = logging.getLogger("orihon")

MAX_ATTEMPTS = 3
WORK = "work"


class Job(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a queued task is about: a text, or an item that its source can be asked for."""

    request: str = ""
    source: str = "local"
    workspace: str = ""
    model: str = ""
    plan: bool = False


def enqueue(
    engine: Orihon, key: TaskKey, job: Job, *, user: str | None = None, priority: int = 0, uuid: str | None = None
) -> str:
    """Put a task in the queue; its id."""
    task = engine.start(key, uuid=uuid, user=user, queued=True)
    try:
        task.event("note", **{WORK: msgspec.to_builtins(job)})
        task.update(priority=priority)
        task.lease.sync()
    finally:
        task.lease.close()
    return task.uuid


def job_of(task: Task) -> Job | None:
    """What a task was queued for; None if it was not."""
    try:
        return msgspec.convert(task.history.view.state.notes.get(WORK), Job)
    except msgspec.ValidationError:
        return None


def waiting(engine: Orihon) -> Iterator[TaskRow]:
    """Tasks that can be taken, the most urgent and then the oldest first; none whose key is at work."""
    store = engine.store
    busy = {row.task_key for row in store.find(Query(status=("running",)))}
    drained = (row for row in store.find(Query(status=("paused",))) if row.reason == DRAINED)
    rows = sorted(
        (*drained, *store.find(Query(status=("pending",)))), key=lambda row: (-row.priority, row.created_at, row.uuid)
    )
    for row in rows:
        if row.task_key not in busy:
            busy.add(row.task_key)
            yield row


def claim(engine: Orihon, uuid: str, **options: Any) -> Task | None:
    """Take a task that waits; None when somebody else was first, or works on the same thing."""
    try:
        row = engine.row(uuid)
        if row.status not in {"pending", "paused"}:
            return None
        task = engine.resume(uuid, **(options if row.status == "pending" else {}))
    except (LeaseHeld, NotFound, Conflict):
        return None
    if any(row.uuid != uuid for row in engine.tasks(status="running", key=task.row.task_key)):
        give_back(task)  # two took two tasks with one key at the same moment: both try again later
        return None
    return task


def give_back(task: Task) -> None:
    """Put a task back into the queue, as it is."""
    task.update(status="pending", activity="")
    task.lease.close()


def recover(engine: Orihon) -> list[str]:
    """Tasks whose worker died: back into the queue, or failed after three times. The ids of those that went back."""
    back = []
    for row in list(engine.tasks(status="running")):
        try:
            lease = engine.store.lease(row.uuid)
        except (LeaseHeld, NotFound):
            continue
        with lease:
            task = engine.taken(lease)
            if task.row.status != "running" or job_of(task) is None:
                continue
            if task.row.attempts + 1 >= MAX_ATTEMPTS:
                task.fail(f"The worker died {MAX_ATTEMPTS} times.", reason=INTERRUPTED)
                continue
            task.update(add={"attempts": 1}, status="pending", activity="")
            back.append(row.uuid)
            log.warning("[uuid:%s] Its worker died; it is back in the queue.", row.uuid[:8])
    return back
