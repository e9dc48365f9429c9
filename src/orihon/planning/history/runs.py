"""One run of a planned task, read back: its plan as it ended, and what was said about it on the way.

Memory stays bounded however long a run was: of each kind of entry the newest `KEPT` are held, with texts of at most
`MAX_TEXT` characters. Only the plan is held whole.
"""

from __future__ import annotations

import heapq
import logging
from collections import deque
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct

from orihon.errors import StoreError
from orihon.planning.history.progress import advanced, stored_progress
from orihon.planning.history.steps import marked, revised, settled
from orihon.planning.schema import Plan, Reflection, ReplanDecision, Revision, Value, Verification, value_of
from orihon.records import PlanEntry, Status, TaskRow, ToolCall
from orihon.stores.base import Query, Store
from orihon.task_key import TaskKey

log = logging.getLogger("orihon")

KEPT = 64
KEPT_ITEMS = 50
MAX_TEXT = 2000
MAX_TOOLS = 200
NEWEST_CALLS = 10_000


class ToolUse(Struct, frozen=True, kw_only=True):
    """How often a tool worked and failed, and what it said when it failed last."""

    tool: str
    successes: int = 0
    failures: int = 0
    last_error: str = ""


class Execution(Struct, frozen=True, kw_only=True):
    """One run: the plan as last revised, with the outcome of its steps, and the newest of all else, oldest first.

    The revisions are without the plans that they gave; `entries` counts all entries that could be understood.
    """

    uuid: str
    status: Status
    completed_at: str | None = None
    plan: Plan | None = None
    revisions: tuple[Revision, ...] = ()
    reflections: tuple[Reflection, ...] = ()
    verifications: tuple[Verification, ...] = ()
    replans: tuple[ReplanDecision, ...] = ()
    tools: tuple[ToolUse, ...] = ()
    entries: int = 0


class _Reading:
    """What is held while the entries go by."""

    def __init__(self) -> None:
        self.plan: Plan | None = None
        self.newest: dict[type[Value], deque[Any]] = {
            kind: deque(maxlen=KEPT) for kind in (Revision, Reflection, Verification, ReplanDecision)
        }
        self.entries = 0

    def take(self, value: Value | None) -> None:
        if value is None:
            return
        self.entries += 1
        if isinstance(value, Plan):  # a second one is a revision without a reason
            self.plan = revised(self.plan, Revision(updated_plan=value))
            return
        if isinstance(value, Revision):
            self.plan = revised(self.plan, value)
            value = msgspec.structs.replace(value, updated_plan=None)
        value = _small(value)
        if isinstance(value, Reflection):
            self.plan = marked(self.plan, value)
        self.newest[type(value)].append(value)


def execution(store: Store, row: TaskRow) -> Execution:
    """One run, as far as its records can be read; StoreError when it is not there."""
    reading = _Reading()
    for entry in store.read(row.uuid, PlanEntry):
        reading.take(value_of(entry))
    return Execution(
        uuid=row.uuid,
        status=row.status,
        completed_at=row.completed_at,
        plan=reading.plan and settled(advanced(reading.plan, stored_progress(store, row.uuid))),
        revisions=tuple(reading.newest[Revision]),
        reflections=tuple(reading.newest[Reflection]),
        verifications=tuple(reading.newest[Verification]),
        replans=tuple(reading.newest[ReplanDecision]),
        tools=_tool_use(store.read(row.uuid, ToolCall, first=-NEWEST_CALLS)),
        entries=reading.entries,
    )


def past_executions(
    store: Store,
    key: TaskKey | str,
    *,
    limit: int = 3,
    exclude: str = "",
    statuses: tuple[Status, ...] = ("completed", "stopped"),
    completed_from: str | None = None,
    user: str | None = None,
) -> list[Execution]:
    """The newest runs of exactly this key that have a plan or a part of its history; a broken one is skipped."""
    query = Query(key=str(key), status=statuses, completed_from=completed_from, user=user)
    found: list[Execution] = []
    for row in _newest_completed_first(store.find(query)):
        if len(found) >= limit:
            break
        if row.uuid == exclude:
            continue
        try:
            if next(store.read(row.uuid, PlanEntry), None) is None:
                continue
            run = execution(store, row)
        except StoreError as error:
            log.warning("[uuid:%s] The plan of this earlier run cannot be read: %s", row.uuid[:8], error.message)
            continue
        found += [run] if run.entries else []
    return found


def _newest_completed_first(rows: Iterable[TaskRow]) -> list[TaskRow]:
    """The rows without their summaries, which may be long."""
    light = [msgspec.structs.replace(row, final_summary=None) for row in rows]
    return sorted(light, key=lambda row: (row.completed_at or "", row.created_at, row.uuid), reverse=True)


def _tool_use(calls: Iterable[ToolCall]) -> tuple[ToolUse, ...]:
    """The tools of a run, the most used first."""
    uses: dict[str, ToolUse] = {}
    for call in calls:
        name = _short(call.tool, 200)
        if name not in uses and len(uses) >= MAX_TOOLS:
            continue
        use = uses.get(name) or ToolUse(tool=name)
        worked = call.status == "success"
        uses[name] = ToolUse(
            tool=name,
            successes=use.successes + worked,
            failures=use.failures + (not worked),
            last_error=use.last_error if worked else _short(call.error or str(call.result or ""), MAX_TEXT),
        )
    return tuple(heapq.nlargest(MAX_TOOLS, uses.values(), key=lambda use: use.successes + use.failures))


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _small(value: Any) -> Any:
    """The value with long texts and lists cut, at every level."""
    if isinstance(value, str):
        return _short(value, MAX_TEXT)
    if isinstance(value, Struct):
        return type(value)(**{name: _small(getattr(value, name)) for name in value.__struct_fields__})
    if isinstance(value, tuple):
        return tuple(_small(item) for item in value[:KEPT_ITEMS])
    if isinstance(value, dict | list):
        text = msgspec.json.encode(value).decode()
        return value if len(text) <= MAX_TEXT else type(value)()
    return value
