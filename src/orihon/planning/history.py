"""Earlier planned runs, read back from the store.

A run is found by its complete task key, never by an issue's number alone. Memory stays bounded however long a run was:
of each kind of entry the newest `MAX_VALUES` are kept, with texts of at most `MAX_CHARS` characters.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Iterable
from itertools import pairwise
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from orihon.errors import OrihonError, StoreError
from orihon.inheritance.outline import ToolUse, count_tool_uses
from orihon.planning import plan_state
from orihon.planning.parser import read_entry
from orihon.planning.schema import Plan, Reflection, Revision, Value
from orihon.records import Message, PlanEntry, TaskRow
from orihon.stores.base import Query, Store
from orihon.task_key import TaskKey

log = logging.getLogger("orihon")

MAX_VALUES = 64
MAX_VALUE_ITEMS = 50
MAX_CHARS = 2000
MAX_OPENING = 16  # messages that are searched for the request
COMPARED_CHARS = 4000
MIN_SIMILARITY = 0.8  # of two requests that ask for the same

V = TypeVar("V", bound=Value)


class Run(Struct, kw_only=True):
    """One planned run: its plan with the status of each step, and its newest entries."""

    uuid: str = ""
    status: str = ""
    completed_at: str = ""
    plan: Plan = Plan()
    tools: list[ToolUse] = []
    entries: int = 0  # all that could be understood
    values: dict[type[Struct], deque[Any]] = {}

    def add(self, value: Value | None) -> None:
        """Take in the next entry of the run."""
        if value is None:
            return
        self.entries += 1
        if isinstance(value, Plan):  # a second plan is a revision without a reason
            value = Revision(updated_plan=value)
        if isinstance(value, Revision):
            self.plan = plan_state.revise(self.plan, value)
            value = replace(value, updated_plan=None)
        elif isinstance(value, Reflection):
            self.plan = plan_state.apply_reflection(self.plan, value)
        self.values.setdefault(type(value), deque(maxlen=MAX_VALUES)).append(_bound(value))

    def newest(self, kind: type[V]) -> list[V]:
        """Return the newest entries of a kind, oldest first. Revisions are without their plans."""
        return list(self.values.get(kind, ()))


def read_run(store: Store, row: TaskRow) -> Run:
    """Return a run as far as its records can be read. Raise StoreError if it is missing."""
    run = Run(uuid=row.uuid, status=row.status, completed_at=row.completed_at or "")
    for entry in store.read(row.uuid, PlanEntry):
        run.add(read_entry(entry))
    progress = plan_state.load_progress(store, row.uuid)
    run.plan = plan_state.settle_subtasks(plan_state.apply_progress(run.plan, progress))
    run.tools = count_tool_uses(store, row.uuid)
    return run


def past_executions(store: Store, key: TaskKey | str, *, limit: int = 3) -> list[Run]:
    """Return the newest completed or stopped runs of exactly this key that have a plan."""
    rows = list(store.find(Query(key=str(key), status=("completed", "stopped"))))
    rows.sort(key=lambda row: (row.completed_at or "", row.created_at, row.uuid), reverse=True)
    return select_runs(store, rows, limit)


def select_runs(store: Store, rows: Iterable[TaskRow], limit: int) -> list[Run]:
    """Return the first runs that have a plan. A run that cannot be read is skipped with a warning."""
    runs: list[Run] = []
    for row in rows:
        if len(runs) >= limit:
            break
        try:
            if next(store.read(row.uuid, PlanEntry), None) is not None and (run := read_run(store, row)).entries:
                runs.append(run)
        except StoreError as error:
            log.warning("[uuid:%s] The plan of this run is not readable: %s", row.uuid[:8], error.message)
    return runs


def can_continue(store: Store, run: Run, task_uuid: str) -> bool:
    """Return whether a run was stopped with work left, and the task's request is still the same."""
    statuses = {*(part.status for part in run.plan.subtasks), *(action.status for action in run.plan.actions)}
    if run.status != "stopped" or not statuses - {"completed", "skipped"}:
        return False
    first, second = (_read_request(store, uuid) for uuid in (run.uuid, task_uuid))
    pairs, others = Counter(pairwise(first)), Counter(pairwise(second))
    shared = 2 * (pairs & others).total() / max(1, pairs.total() + others.total())
    return bool(first and second) and (first == second or shared >= MIN_SIMILARITY)


def _read_request(store: Store, uuid: str) -> str:
    """Return the first message of the user in the form in which requests are compared."""
    try:
        opening = store.read(uuid, Message, last=MAX_OPENING)
        text = next((message.text for message in opening if message.role == "user"), "")
    except OrihonError:
        return ""
    return " ".join(text.casefold().split())[:COMPARED_CHARS]


def _bound(value: Any) -> Any:
    """Return the value with long texts and lists cut, at every level."""
    if isinstance(value, str):
        return value if len(value) <= MAX_CHARS else value[: MAX_CHARS - 1] + "…"
    if isinstance(value, Struct):
        return type(value)(**{name: _bound(getattr(value, name)) for name in value.__struct_fields__})
    if isinstance(value, tuple):
        return tuple(_bound(item) for item in value[:MAX_VALUE_ITEMS])
    if isinstance(value, dict | list):
        return value if len(msgspec.json.encode(value)) <= MAX_CHARS else type(value)()
    return value
