"""Earlier planned runs: read back from the store, and turned into lessons for a new plan.

A run is found by its complete task key, never by an issue's number alone. Memory stays bounded however long a run was:
of each kind of entry the newest `MAX_VALUES` are kept, with texts of at most `MAX_CHARS` characters.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from orihon.errors import OrihonError, StoreError
from orihon.inheritance.outline import ToolUse, count_tool_uses
from orihon.planning import plan_state
from orihon.planning.parser import read_entry
from orihon.planning.plan_state import DONE, locate_step, normalise, revise
from orihon.planning.schema import (
    Action,
    Complexity,
    Plan,
    Reflection,
    ReplanDecision,
    Revision,
    StepStatus,
    Subtask,
    Value,
    Verification,
)
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

Topic = Literal[
    "worked", "failure", "dependency", "effort", "revision", "replan", "problem", "criterion", "placeholder", "work"
]
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
            self.plan = revise(self.plan, value)
            value = replace(value, updated_plan=None)
        elif isinstance(value, Reflection):
            self.plan = plan_state.apply_reflection(self.plan, value)
        self.values.setdefault(type(value), deque(maxlen=MAX_VALUES)).append(_bound(value))

    def newest(self, kind: type[V]) -> list[V]:
        """Return the newest entries of a kind, oldest first. Revisions are without their plans."""
        return list(self.values.get(kind, ()))


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


# runs


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


# lessons


def learn(runs: Iterable[Run]) -> list[Lesson]:
    """Return the lessons of some runs, the newest first. Where two are about the same thing, the newer one counts."""
    lessons: dict[tuple[str, str, str], Lesson] = {}
    for run in sorted(runs, key=lambda run: run.completed_at, reverse=True):
        for lesson in (*_learn_from_steps(run), *_learn_from_subtasks(run), *_learn_from_entries(run)):
            if lesson.what:
                lessons.setdefault((lesson.topic, normalise(lesson.what), lesson.tool), lesson)
    return list(lessons.values())


def apply_lessons(plan: Plan, lessons: Sequence[Lesson]) -> Plan:
    """Return the plan with known dependencies, complexity, tools that worked and remedies of known failures."""
    ids = {normalise(part.description): part.id for part in plan.subtasks}
    subtasks = tuple(_improve_subtask(part, lessons, ids) for part in plan.subtasks)
    actions = tuple(_improve_action(action, lessons) for action in plan.actions)
    return plan.with_subtasks(subtasks).with_actions(actions)


def _improve_subtask(part: Subtask, lessons: Sequence[Lesson], ids: dict[str, str]) -> Subtask:
    levels: tuple[Complexity, ...] = ("low", "medium", "high")
    dependencies, complexity = list(part.dependencies), part.estimated_complexity
    for lesson in lessons:
        if normalise(lesson.what) != normalise(part.description):
            continue
        if lesson.topic == "dependency":
            known = (ids.get(normalise(name), "") for name in lesson.names)
            dependencies += [id_ for id_ in known if id_ and id_ != part.id and id_ not in dependencies]
        elif lesson.topic == "effort":
            complexity = levels[max(levels.index(complexity), levels.index(lesson.names[1]))]
    return replace(part, dependencies=tuple(dependencies), estimated_complexity=complexity)


def _improve_action(action: Action, lessons: Sequence[Lesson]) -> Action:
    known = [lesson for lesson in lessons if lesson.concerns(action)]
    tool = action.tool or next((item.tool for item in known if item.topic == "worked" and item.tool), "")
    remedy = next((item.remedy for item in known if item.topic == "failure" and item.remedy), "")
    return replace(action, tool=tool, fallback_strategy=action.fallback_strategy or remedy)


def _learn_from_steps(run: Run) -> Iterator[Lesson]:
    """Yield the steps that worked and the steps that failed. A step that failed first and worked later is both."""
    reflections: dict[int | str, list[Reflection]] = {}
    for reflection in run.newest(Reflection):
        number, _ = locate_step(run.plan, reflection.action_evaluated, reflection.tool)
        name = normalise(reflection.action_evaluated or reflection.evaluation)
        reflections.setdefault(name if number is None else number, []).append(reflection)
    strategies: dict[int | None, str] = {}
    for replan in run.newest(ReplanDecision):
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
    names = {part.id: part.name for part in run.plan.subtasks}
    failed = {action.task_id for action in run.plan.actions if action.status == "failed"}
    troubled = set[int | None]()
    for reflection in run.newest(Reflection):
        if reflection.status != "success" or reflection.plan_revision_needed:
            troubled.add(locate_step(run.plan, reflection.action_evaluated, reflection.tool)[1])
    for replan in run.newest(ReplanDecision):
        troubled.update(locate_step(run.plan, text)[1] for text in replan.affected_actions if replan.replan_needed)
    for number, part in enumerate(run.plan.subtasks):
        if part.dependencies:
            needed = tuple(names.get(id_, id_) for id_ in part.dependencies)
            yield Lesson(topic="dependency", what=part.name, names=needed)
        is_harder = number in troubled or part.status == "failed" or part.id in failed
        if is_harder or part.status in DONE:
            estimated = part.estimated_complexity
            adjusted = harder[estimated] if is_harder else estimated
            yield Lesson(topic="effort", what=part.name, names=(estimated, adjusted))


def _learn_from_entries(run: Run) -> Iterator[Lesson]:
    """Yield what was recorded about the plan as a whole, the newest first."""
    for revision in reversed(run.newest(Revision)):
        yield Lesson(topic="revision", what=revision.reason)
    for replan in reversed(run.newest(ReplanDecision)):
        if replan.executed:
            yield Lesson(topic="replan", what=replan.reasoning, remedy=replan.recovery_strategy)
    for reflection in reversed(run.newest(Reflection)):
        for issue in reflection.issues_identified:
            yield Lesson(topic="problem", what=issue, why=reflection.root_cause)
    verifications = run.newest(Verification)
    for text, met in _judge_criteria(run.plan, verifications).items():
        yield Lesson(topic="criterion", what=text, ok=met)
    for verification in reversed(verifications):
        for place in verification.placeholder_detected.locations:
            yield Lesson(topic="placeholder", what=place)
        for action in verification.additional_actions:
            yield Lesson(topic="work", what=action.purpose or action.tool)


def _judge_criteria(plan: Plan, verifications: list[Verification]) -> dict[str, bool]:
    """Return the success criteria that were verified, and whether each is met.

    The newest verdict counts. A criterion without a verdict is met if the last verification passed.
    """
    passed = bool(verifications) and verifications[-1].verification_passed
    verdicts = {normalise(text): (text, True) for text in plan.goal_understanding.success_criteria if passed}
    for item in (item for verification in verifications for item in verification.criteria):
        verdicts[normalise(item.criterion)] = (item.criterion, item.met)
    return dict(verdicts.values())
