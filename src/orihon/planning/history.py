"""Planned runs read back from the store, and the lessons that later runs draw from them.

A run is found by its complete task key, never by an issue's number alone. Memory stays bounded however long a run was:
of each kind of entry the newest `MAX_VALUES` are kept, with texts of at most `MAX_CHARS` characters.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from orihon.errors import StoreError
from orihon.inheritance.outline import ToolUse, count_tool_uses
from orihon.planning.parser import read_entry
from orihon.planning.plan_state import (
    DONE,
    apply_progress,
    apply_reflection,
    load_progress,
    locate_step,
    normalise,
    revise,
    settle_subtasks,
)
from orihon.planning.schema import (
    Action,
    Complexity,
    Plan,
    Reflection,
    ReplanDecision,
    Revision,
    StepStatus,
    Value,
    Verification,
)
from orihon.records import PlanEntry, TaskRow
from orihon.stores.base import Query, Store
from orihon.task_key import TaskKey

log = logging.getLogger("orihon")

MAX_VALUES = 64
MAX_VALUE_ITEMS = 50
MAX_CHARS = 2000

Topic = Literal[
    "worked", "failure", "dependency", "effort", "revision", "replan", "problem", "criterion", "placeholder", "work"
]
T = TypeVar("T")


class Run(Struct, kw_only=True):
    """One planned run: its plan with the status of each step, and the newest entries of each kind, oldest first."""

    uuid: str = ""
    status: str = ""
    completed_at: str = ""
    plan: Plan = Plan()
    revisions: list[Revision] = []  # without the plans that they hold
    reflections: list[Reflection] = []
    verifications: list[Verification] = []
    replans: list[ReplanDecision] = []
    tools: list[ToolUse] = []
    entries: int = 0  # all that could be understood

    def add(self, value: Value | None) -> None:
        """Take in the next entry of the run."""
        if value is None:
            return
        self.entries += 1
        if isinstance(value, Plan):  # a second plan is a revision without a reason
            self.plan = revise(self.plan, Revision(updated_plan=value))
        elif isinstance(value, Revision):
            self.plan = revise(self.plan, value)
            _keep(self.revisions, replace(value, updated_plan=None))
        elif isinstance(value, Reflection):
            self.plan = apply_reflection(self.plan, value)
            _keep(self.reflections, value)
        elif isinstance(value, Verification):
            _keep(self.verifications, value)
        else:
            _keep(self.replans, value)


class Lesson(Struct, frozen=True, kw_only=True):
    """One thing that a run teaches: what it is about, why, and what to do."""

    topic: Topic
    what: str
    tool: str = ""
    why: str = ""
    remedy: str = ""
    names: tuple[str, ...] = ()  # subtasks of a dependency; estimated and adjusted complexity of an effort
    ok: bool | None = None  # whether a failure was overcome, or a criterion was met

    def concerns(self, action: Action) -> bool:
        """Whether it is about the same tool or the same purpose as an action."""
        purpose = normalise(action.purpose)
        return bool(action.tool and self.tool == action.tool) or bool(purpose and normalise(self.what) == purpose)


def read_run(store: Store, row: TaskRow) -> Run:
    """Return a run as far as its records can be read. Raise StoreError if it is missing."""
    run = Run(uuid=row.uuid, status=row.status, completed_at=row.completed_at or "")
    for entry in store.read(row.uuid, PlanEntry):
        run.add(read_entry(entry))
    run.plan = settle_subtasks(apply_progress(run.plan, load_progress(store, row.uuid)))
    run.tools = count_tool_uses(store, row.uuid)
    return run


def past_executions(store: Store, key: TaskKey | str, *, limit: int = 3) -> list[Run]:
    """Return the newest completed or stopped runs of exactly this key that have a plan."""
    rows = list(store.find(Query(key=str(key), status=("completed", "stopped"))))
    rows.sort(key=lambda row: (row.completed_at or "", row.created_at, row.uuid), reverse=True)
    return list(select_runs(store, rows, limit))


def select_runs(store: Store, rows: Iterable[TaskRow], limit: int) -> Iterator[Run]:
    """Yield the first runs that have a plan. A run that cannot be read is skipped with a warning."""
    for row in rows:
        if limit <= 0:
            return
        try:
            if next(store.read(row.uuid, PlanEntry), None) is None:
                continue
            run = read_run(store, row)
        except StoreError as error:
            log.warning("[uuid:%s] The plan of this run is not readable: %s", row.uuid[:8], error.message)
            continue
        if run.entries:
            limit -= 1
            yield run


def learn(runs: Iterable[Run]) -> list[Lesson]:
    """Return the lessons of some runs, the newest first. Where two are about the same thing, the newer one counts."""
    lessons: dict[tuple[str, str, str], Lesson] = {}
    for run in sorted(runs, key=lambda run: run.completed_at, reverse=True):
        for lesson in (*_learn_from_steps(run), *_learn_from_subtasks(run), *_learn_from_entries(run)):
            if lesson.what:
                lessons.setdefault((lesson.topic, normalise(lesson.what), lesson.tool), lesson)
    return list(lessons.values())


def _learn_from_steps(run: Run) -> Iterator[Lesson]:
    """Yield the steps that worked and the steps that failed. A step that failed first and worked later is both."""
    reflections: dict[int | str, list[Reflection]] = {}
    for reflection in run.reflections:
        number, _ = locate_step(run.plan, reflection.action_evaluated, reflection.tool)
        name = normalise(reflection.action_evaluated or reflection.evaluation)
        reflections.setdefault(name if number is None else number, []).append(reflection)
    strategies: dict[int | None, str] = {}
    for replan in run.replans:
        for text in replan.affected_actions if replan.executed and replan.recovery_strategy else ():
            strategies[locate_step(run.plan, text)[0]] = replan.recovery_strategy
    for number, action in enumerate(run.plan.actions):
        yield from _learn_from_step(action, reflections.pop(number, []), strategies.get(number, ""))
    for others in reflections.values():  # about no step of the plan
        verdict = next((item.status for item in reversed(others) if item.status != "partial"), "")
        status: StepStatus = "completed" if verdict == "success" else "failed" if verdict == "failure" else "pending"
        yield from _learn_from_step(Action(status=status), others, "")


def _learn_from_step(action: Action, reflections: list[Reflection], strategy: str) -> Iterator[Lesson]:
    newest = reflections[-1] if reflections else Reflection()
    failure = next((item for item in reversed(reflections) if item.status == "failure"), None)
    what = action.purpose or newest.action_evaluated or action.tool or newest.evaluation or action.task_id
    tool = action.tool or newest.tool
    worked = action.status == "completed"
    if worked:
        yield Lesson(topic="worked", what=what, tool=tool)
    if failure is not None or action.status == "failed":
        failure = failure or Reflection()
        why = failure.root_cause or "; ".join(failure.issues_identified) or failure.evaluation or action.error
        remedy = next((item.remedy for item in reversed(reflections) if item.remedy), strategy)
        suggestion = "" if worked else action.fallback_strategy  # only a remedy that was used has helped
        yield Lesson(topic="failure", what=what, tool=tool, why=why, remedy=remedy or suggestion, ok=worked)


def _learn_from_subtasks(run: Run) -> Iterator[Lesson]:
    """Yield the dependencies of subtasks, and the complexity of those that were tried."""
    harder: dict[Complexity, Complexity] = {"low": "medium", "medium": "high", "high": "high"}
    texts = [
        (item.action_evaluated, item.tool)
        for item in run.reflections
        if item.status != "success" or item.plan_revision_needed
    ]
    texts += [(text, "") for item in run.replans if item.replan_needed for text in item.affected_actions]
    troubled = {locate_step(run.plan, text, tool)[1] for text, tool in texts}
    failed = {action.task_id for action in run.plan.actions if action.status == "failed"}
    names = {part.id: part.name for part in run.plan.subtasks}
    for number, part in enumerate(run.plan.subtasks):
        if part.dependencies:
            needed = tuple(names.get(id_, id_) for id_ in part.dependencies)
            yield Lesson(topic="dependency", what=part.name, names=needed)
        estimated = part.estimated_complexity
        if number in troubled or part.status == "failed" or part.id in failed:
            yield Lesson(topic="effort", what=part.name, names=(estimated, harder[estimated]))
        elif part.status in DONE:
            yield Lesson(topic="effort", what=part.name, names=(estimated, estimated))


def _learn_from_entries(run: Run) -> Iterator[Lesson]:
    """Yield what was recorded about the plan as a whole, the newest first."""
    for revision in reversed(run.revisions):
        yield Lesson(topic="revision", what=revision.reason)
    for replan in reversed(run.replans):
        if replan.executed:
            yield Lesson(topic="replan", what=replan.reasoning, remedy=replan.recovery_strategy)
    for reflection in reversed(run.reflections):
        for issue in reflection.issues_identified:
            yield Lesson(topic="problem", what=issue, why=reflection.root_cause)
    for text, met in _judge_criteria(run):
        yield Lesson(topic="criterion", what=text, ok=met)
    for verification in reversed(run.verifications):
        for place in verification.placeholder_detected.locations:
            yield Lesson(topic="placeholder", what=place)
        for action in verification.additional_actions:
            yield Lesson(topic="work", what=action.purpose or action.tool)


def _judge_criteria(run: Run) -> Iterable[tuple[str, bool]]:
    """Return the success criteria that were verified, and whether each is met.

    The newest verdict counts. A criterion without a verdict is met if the last verification passed.
    """
    passed = bool(run.verifications) and run.verifications[-1].verification_passed
    planned = run.plan.goal_understanding.success_criteria if passed else ()
    verdicts = [(item.criterion, item.met) for verification in run.verifications for item in verification.criteria]
    pairs = [*((text, True) for text in planned), *verdicts]
    return {normalise(text): (text, met) for text, met in pairs}.values()


def _keep(values: list[T], value: T) -> None:
    """Append a value in a bounded size to a list of bounded length."""
    values.append(_bound(value))
    del values[:-MAX_VALUES]


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
