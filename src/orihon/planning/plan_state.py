"""The state of a plan: which steps are done, which comes next, how far the run is, and whether it may replan.

`Progress` is stored as the note `planning` of the task, so a pause or a crash loses nothing. The other functions are
pure: each takes a plan and returns a new one. A model refers to steps in its own words; `locate_step` matches them
with a step only if exactly one can be meant.

Whether a decision to replan is executed depends on its confidence and on limits, so that no run goes round in a loop:

    level 1   retry the action                     retry
    level 2   replan the rest                      partial_replan, plan_revision
    level 3   rewrite all actions                  action_regeneration
    level 4   divide the task again                task_redecomposition
    level 5   reconsider the goal                  goal_revision, full_replan

A confident decision is executed, a less confident one with a warning. Below `min_confidence_threshold` the user is
asked, and below `user_confirmation_threshold` the decision is ignored. Executed decisions are counted, and no new plan
resets a counter.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from orihon.context.repair import INTERRUPTED
from orihon.errors import ModelError, StoreError
from orihon.planning.parser import MAX_ITEMS, parse_reply
from orihon.planning.schema import (
    Action,
    ActionPlan,
    Decomposition,
    Goal,
    Plan,
    Reflection,
    ReplanDecision,
    ReplanType,
    Revision,
    StepStatus,
    Subtask,
)
from orihon.records import Event, Message
from orihon.settings.schema import Replanning
from orihon.stores.base import Store
from orihon.task.log import last_number, load_view
from orihon.terminal import shorten

NOTE = "planning"
COMPARED_CHARS = 500
MIN_MATCH_CHARS = 8  # a shorter text is not searched for inside another
ERROR_CHARS = 300
DONE = frozenset(("completed", "failed", "skipped"))
SURE = 0.8  # no warning from here on
TOTAL = "total"

_LEVELS: dict[ReplanType, int] = {
    "retry": 1,
    "partial_replan": 2,
    "action_regeneration": 3,
    "task_redecomposition": 4,
    "goal_revision": 5,
    "clarification_request": 1,
    "plan_revision": 2,
    "full_replan": 5,
}
_TYPES = tuple(_LEVELS)[:5]  # the type of a decision that names only its level
_PHASES = ("execution", "action_sequence", "action_sequence", "task_decomposition", "goal_understanding")
_REDECOMPOSING: tuple[ReplanType, ...] = ("task_redecomposition", "goal_revision", "full_replan")  # share one limit

Phase = Literal["inheritance", "planning", "execution", "reflection", "replanning", "verification", "mending", "done"]
Applicability = Literal["new", "reference", "continue"]
Step = TypeVar("Step", Action, Subtask)


class Question(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Questions to the user, the answer if there was one, and the assumptions if there was none."""

    questions: tuple[str, ...] = ()
    answer: str | None = None
    assumptions: tuple[str, ...] = ()


class Progress(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far a planned run is. Its counters only grow: a new plan does not reset them."""

    phase: Phase = "inheritance"
    applicability: Applicability = "new"  # of the previous run's plan
    inherited: tuple[str, ...] = ()  # uuids of the runs that are learned from
    asked: int = 0  # prompts so far
    entries: int = 0  # entries of the planning history so far
    steps: tuple[StepStatus, ...] = ()  # of the plan's actions, in order
    errors: dict[str, str] = {}  # by the number of the action
    step: int = 0  # the current or last action
    since: int = 0  # the last message before this piece of work
    advice: str = ""  # for the next try of the action
    actions: int = 0
    revisions: int = 0
    replans: dict[str, int] = {}  # by type, and in total
    pairs: dict[str, int] = {}  # by place and type
    questions: tuple[Question, ...] = ()
    open_question: int = 0  # `asked` when the user was asked in this piece of work
    round: int = 0  # of verification


class ActionResult(Struct, frozen=True, kw_only=True):
    """How an action went. `is_partial` says that part of it is left."""

    status: StepStatus = "completed"
    error: str = ""
    is_partial: bool = False


class Verdict(Struct, frozen=True, kw_only=True):
    """The result for a decision. `reason` says why it is not executed."""

    kind: ReplanType = "none"
    place: str = ""
    is_executed: bool = False
    asks: bool = False
    warns: bool = False
    reason: str = ""

    @property
    def level(self) -> int:
        """How far back it goes, from 1 to 5; 0 for none."""
        return _LEVELS.get(self.kind, 0)


def read_progress(notes: dict[str, Any]) -> Progress | None:
    """Return the progress in a task's notes, or None."""
    try:
        return msgspec.convert(notes[NOTE], Progress) if NOTE in notes else None
    except msgspec.ValidationError:
        return None


def load_progress(store: Store, uuid: str) -> Progress | None:
    """Return the progress of any run from its newest events, or None if they cannot be read."""
    try:
        return read_progress(load_view(store, uuid, last_number(store, uuid, Event)).state.notes)
    except StoreError:
        return None


def apply_progress(plan: Plan, progress: Progress | None) -> Plan:
    """Return the plan with the recorded status of its actions."""
    if progress is None or len(progress.steps) != len(plan.actions):
        return plan
    actions = (
        replace(action, status=status, error=progress.errors.get(str(number), ""))
        for number, (action, status) in enumerate(zip(plan.actions, progress.steps, strict=True))
    )
    return plan.with_actions(tuple(actions))


# the next action


def choose_action(plan: Plan) -> tuple[int | None, tuple[int, ...]]:
    """Return the number of the next action, and the actions that cannot run because a dependency failed.

    An action that was begun comes first, then the first one whose subtask waits for no other.
    """
    waiting = [number for number, action in enumerate(plan.actions) if action.status not in DONE]
    running = next((number for number in waiting if plan.actions[number].status == "running"), None)
    if running is not None:
        return running, ()
    lost = {part.id for part in settle_subtasks(plan).subtasks if part.status in ("failed", "skipped")}
    blocked = tuple(number for number in waiting if _dependencies(plan, number) & lost)
    left = [number for number in waiting if number not in blocked]
    open_ids = {plan.actions[number].task_id for number in left}
    ready = (number for number in left if not (_dependencies(plan, number) & open_ids))
    return next(ready, left[0] if left else None), blocked


def order_actions(plan: Plan) -> Plan:
    """Return the plan with its actions in the order of work, each with a purpose of its own."""
    order = {id_: position for position, id_ in enumerate(plan.action_plan.execution_order)}
    actions = list(plan.actions)
    if all(action.task_id in order for action in actions):
        actions.sort(key=lambda action: order[action.task_id])
    seen = Counter[tuple[str, str, str]]()
    for number, action in enumerate(actions):
        seen[_identify(action)] += 1
        if (count := seen[_identify(action)]) > 1:  # otherwise completing one would complete both
            actions[number] = replace(action, purpose=f"{action.purpose} ({count})")
    return plan.with_actions(tuple(actions))


def update_action(plan: Plan, number: int, **changes: Any) -> Plan:
    """Return the plan with one action changed."""
    action = replace(plan.actions[number], **changes)
    return plan.with_actions((*plan.actions[:number], action, *plan.actions[number + 1 :]))


def assess_action(reply: str, messages: Iterable[Message]) -> ActionResult:
    """Return how an action went: from the model's own report, else from its last tool result."""
    try:
        report = parse_reply(reply, Reflection)
    except ModelError:
        results = [message for message in messages if message.role == "tool" and message.text != INTERRUPTED]
        if results and (last := results[-1]).is_error:
            return ActionResult(status="failed", error=shorten(f"{last.tool_name}: {last.text}", ERROR_CHARS))
        return ActionResult()
    if report.status == "success":
        return ActionResult()
    reason = report.root_cause or report.evaluation or "; ".join(report.issues_identified) or reply
    return ActionResult(
        status="failed" if report.status == "failure" else "completed",
        error=shorten(reason, ERROR_CHARS),
        is_partial=report.status == "partial",
    )


def _dependencies(plan: Plan, number: int) -> set[str]:
    own = plan.actions[number].task_id
    return {id_ for part in plan.subtasks if part.id == own for id_ in part.dependencies} - {own}


# changes of a plan


def revise(plan: Plan, revision: Revision) -> Plan:
    """Return the plan after a revision. Parts that the revision leaves out stay, and completed steps stay completed."""
    new = revision.updated_plan
    if new is None or plan == Plan():
        return new or plan
    return Plan(
        goal_understanding=new.goal_understanding if new.goal else plan.goal_understanding,
        task_decomposition=replace(
            new.task_decomposition,
            subtasks=_carry_over(plan.subtasks, new.subtasks) if new.subtasks else plan.subtasks,
            reasoning=new.task_decomposition.reasoning or plan.task_decomposition.reasoning,
        ),
        action_plan=replace(
            new.action_plan,
            actions=_carry_over(plan.actions, new.actions) if new.actions else plan.actions,
            execution_order=new.action_plan.execution_order or plan.action_plan.execution_order,
        ),
        comment=new.comment or plan.comment,
    )


def continue_plan(previous: Plan, new: Plan) -> Plan:
    """Return the new plan as the rest of the previous one: completed steps stay and are not repeated."""
    done = Plan(
        goal_understanding=previous.goal_understanding,
        task_decomposition=Decomposition(subtasks=_keep_completed(previous.subtasks)),
        action_plan=ActionPlan(actions=_keep_completed(previous.actions)),
    )
    return revise(done, Revision(updated_plan=new))


def apply_reflection(plan: Plan, reflection: Reflection) -> Plan:
    """Return the plan with the status that a reflection gives to one of its steps."""
    statuses: dict[str, StepStatus] = {"success": "completed", "failure": "failed"}
    status = statuses.get(reflection.status)
    action, subtask = locate_step(plan, reflection.action_evaluated, reflection.tool)
    if status is None:
        return plan
    if action is not None:
        error = (reflection.root_cause or reflection.evaluation) if status == "failed" else ""
        return update_action(plan, action, status=status, error=error)
    if subtask is not None:
        part = replace(plan.subtasks[subtask], status=status)
        return plan.with_subtasks((*plan.subtasks[:subtask], part, *plan.subtasks[subtask + 1 :]))
    return plan


def settle_subtasks(plan: Plan) -> Plan:
    """Return the plan with the status of its subtasks: once all actions of a subtask were tried, the last decides."""
    statuses: dict[str, list[StepStatus]] = {}
    for action in plan.actions:
        statuses.setdefault(action.task_id, []).append(action.status)

    def settle(part: Subtask) -> Subtask:
        tried = statuses.get(part.id, [])
        is_open = part.status in DONE or not tried or any(status not in DONE for status in tried)
        return part if is_open else replace(part, status=tried[-1])

    return plan.with_subtasks(tuple(map(settle, plan.subtasks)))


def _keep_completed(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    return tuple(step for step in steps if step.status == "completed")


def _carry_over(old: tuple[Step, ...], new: tuple[Step, ...]) -> tuple[Step, ...]:
    """Return the new steps after the old ones that were tried. Steps that were completed before stay completed."""
    completed = {_identify(step) for step in old if step.status == "completed"}
    names = {_identify(step) for step in new}
    steps: list[Step] = [
        replace(step, status="completed") if step.status == "pending" and _identify(step) in completed else step
        for step in new
    ]
    tried: list[Step] = [step for step in old if step.status in DONE and _identify(step) not in names]
    return tuple((tried + steps)[-MAX_ITEMS:])


def _identify(step: Action | Subtask) -> tuple[str, str, str]:
    if isinstance(step, Action):
        return step.task_id, step.tool, normalise(step.purpose)
    return step.id, "", normalise(step.description)


# whether a decision to replan is executed


def judge_decision(decision: ReplanDecision, progress: Progress, settings: Replanning, *, action: str = "") -> Verdict:
    """Return whether a decision about an action is executed."""
    kind = _resolve_type(decision)
    if not decision.replan_needed or kind == "none":
        return Verdict()
    phase = decision.target_phase or _PHASES[_LEVELS[kind] - 1]
    place = f"{phase}/{action}" if kind == "retry" and action else phase
    confidence, threshold = decision.confidence, settings.user_confirmation_threshold
    if confidence < threshold:
        return Verdict(kind=kind, place=place, reason=f"The confidence {confidence:g} is below {threshold:g}.")
    asks = confidence < settings.min_confidence_threshold or kind == "clarification_request"
    if refusal := _find_refusal(kind, place, progress, settings, asks=asks):
        return Verdict(kind=kind, place=place, reason=refusal)
    return Verdict(kind=kind, place=place, is_executed=True, asks=asks, warns=not asks and confidence < SURE)


def count_replan(progress: Progress, verdict: Verdict) -> dict[str, dict[str, int]]:
    """Return the counters after a decision was executed."""
    replans, pairs = dict(progress.replans), dict(progress.pairs)
    pair = f"{verdict.place}:{verdict.kind}"
    for counters, name in ((replans, verdict.kind), (replans, TOTAL), (pairs, pair)):
        counters[name] = counters.get(name, 0) + 1
    return {"replans": replans, "pairs": pairs}


def limit_revision(revision: Revision, level: int) -> Revision:
    """Return a revision with only the parts that its level may change."""
    new = revision.updated_plan or Plan()
    plan = Plan(
        goal_understanding=new.goal_understanding if level >= _LEVELS["goal_revision"] else Goal(),
        task_decomposition=new.task_decomposition if level >= _LEVELS["task_redecomposition"] else Decomposition(),
        action_plan=new.action_plan,
        comment=new.comment,
    )
    return Revision(reason=revision.reason, changes=revision.changes, updated_plan=plan)


def _resolve_type(decision: ReplanDecision) -> ReplanType:
    """Return the type that the decision names, or else the type of its level."""
    if decision.replan_type == "none" and decision.replan_needed:
        return "clarification_request" if decision.clarification_needed else _TYPES[decision.replan_level - 1]
    return decision.replan_type


def _find_refusal(kind: ReplanType, place: str, progress: Progress, settings: Replanning, *, asks: bool) -> str:
    """Return why a decision must not be executed; empty if it may."""
    counts, pair = progress.replans, f"{place}:{kind}"
    used = progress.pairs.get(pair, 0)
    redecomposed = sum(counts.get(name, 0) for name in _REDECOMPOSING)
    limits: dict[str, tuple[int, int]] = {
        "clarification_request": (len(progress.questions), settings.max_clarification_requests),
        "retry": (used, settings.max_action_retries),
        "partial_replan": (counts.get("partial_replan", 0), settings.max_partial_replans),
        "action_regeneration": (counts.get("action_regeneration", 0), settings.max_regeneration_attempts),
        "plan_revision": (counts.get("plan_revision", 0), settings.max_plan_revisions),
        **dict.fromkeys(_REDECOMPOSING, (redecomposed, settings.max_redecomposition_attempts)),
        TOTAL: (counts.get(TOTAL, 0), settings.max_total_replans),
    }
    for name in (TOTAL, kind, *(["clarification_request"] if asks else [])):
        count, limit = limits[name]
        if count >= limit:
            return f"The limit of {limit:,} for {name} is reached."
    if used >= settings.same_trigger_max_count:
        return f"It is a loop: {pair} was done {used:,} times."
    return ""


# which step a text is about


def locate_step(plan: Plan, text: str, tool: str = "") -> tuple[int | None, int | None]:
    """Return the numbers of the action and of the subtask that a text is about, as far as they are certain."""
    wording = normalise(text)
    numbers = _match_purposes(wording, plan.actions)
    if not numbers and (subtask := _match_subtask(wording, plan.subtasks)) is not None:
        own = {number for number, action in enumerate(plan.actions) if action.task_id == plan.subtasks[subtask].id}
        return _choose_one(plan, own, tool), subtask
    if not numbers:
        tool = tool or text.strip()
        numbers = {number for number, action in enumerate(plan.actions) if tool and action.tool == tool}
    action = _choose_one(plan, numbers, tool)
    if action is None:
        return None, None
    ids = [part.id for part in plan.subtasks]
    owner = plan.actions[action].task_id
    return action, ids.index(owner) if owner in ids else None


def normalise(text: str) -> str:
    """Return the text in the form in which texts are compared."""
    return _normalise(text[:COMPARED_CHARS])


@functools.lru_cache(maxsize=4 * MAX_ITEMS)  # a long run compares the same steps many times
def _normalise(text: str) -> str:
    return " ".join(text.casefold().split())


def _choose_one(plan: Plan, numbers: set[int], tool: str) -> int | None:
    """Return the only action among these; if there are several, the only one with this tool."""
    if len(numbers) > 1:
        numbers = {number for number in numbers if plan.actions[number].tool == tool}
    return next(iter(numbers)) if len(numbers) == 1 else None


def _match_purposes(wording: str, actions: tuple[Action, ...]) -> set[int]:
    """Return the actions whose purpose equals the text, or else those whose purpose it contains."""
    containing = {number for number, action in enumerate(actions) if _contains(wording, normalise(action.purpose))}
    return {number for number in containing if normalise(actions[number].purpose) == wording} or containing


def _match_subtask(wording: str, subtasks: tuple[Subtask, ...]) -> int | None:
    """Return the subtask whose id begins the text, or else whose description it contains."""
    by_id = [number for number, part in enumerate(subtasks) if _begins_with_id(wording, normalise(part.id))]
    if by_id:
        return max(by_id, key=lambda number: len(subtasks[number].id))
    return next(
        (number for number, part in enumerate(subtasks) if _contains(wording, normalise(part.description))), None
    )


def _contains(wording: str, text: str) -> bool:
    return bool(wording and text) and (wording == text or (len(text) >= MIN_MATCH_CHARS and text in wording))


def _begins_with_id(wording: str, id_: str) -> bool:
    """Return True for `task_2 edit the file` and `2: edit the file`, and False for `2 files were edited`."""
    if not id_ or not wording.startswith(id_):
        return False
    after = wording[len(id_) : len(id_) + 1]
    return after in ":.,)]-" or (after == " " and not id_.isdigit())
