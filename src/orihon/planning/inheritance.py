"""What a plan takes from earlier runs: which of them, whether the last plan can go on, and what they teach.

The runs are those that the handoff may use, so expiry, users and linked keys have one rule. A plan goes on when it was
stopped with something left to do and the request is still the same; every other plan is only looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from orihon.errors import OrihonError
from orihon.inheritance.sanitise import Names, names_of
from orihon.inheritance.search import may_inherit, search
from orihon.planning.history import Execution, Learnings, execution, learnings, relevant
from orihon.planning.history.progress import Applicability
from orihon.planning.history.steps import norm, revised
from orihon.planning.schema import Action, Decomposition, Plan, Revision, Subtask
from orihon.records import Message, PlanEntry, TaskRow
from orihon.settings.schema import ContextInheritance, InheritedPlanning
from orihon.stores.base import Store

MAX_LOOKED_AT = 20  # earlier runs that are asked for a plan
OPENING = 16  # the request is among so many messages
COMPARED_CHARS = 4000
ALIKE = 0.8  # of the pairs of letters of two requests


class Inherited(Struct, frozen=True, kw_only=True):
    """The earlier runs, the newest first, what they teach, and the names that nobody is told."""

    runs: tuple[Execution, ...] = ()
    learned: Learnings = Learnings()
    names: Names = Names()


def find(store: Store, row: TaskRow, settings: ContextInheritance) -> tuple[str, ...]:
    """The runs that a plan may learn from: those with a plan, the newest first."""
    found = search(store, row.task_key, settings=settings, user=row.user, exclude=row.uuid)
    rows = (found.previous.row, *found.older) if found.previous else ()
    planned = [one.uuid for one in rows[:MAX_LOOKED_AT] if _has_plan(store, one.uuid)]
    return tuple(planned[: settings.planning.max_previous_plans])


def load(store: Store, task: TaskRow, uuids: Iterable[str], settings: ContextInheritance) -> Inherited:
    """These runs, as far as they can still be read, the task may inherit from them, and the settings allow."""
    runs, names = list[Execution](), Names()
    for uuid in uuids:
        try:
            row = store.row(uuid)
            if may_inherit(task, row, settings):
                runs.append(execution(store, row))
                names |= names_of(store, row)
        except OrihonError:
            continue  # it was cleaned up meanwhile
    return Inherited(runs=tuple(runs), learned=_allowed(learnings(runs), settings.planning), names=names)


def applicability(store: Store, runs: Sequence[Execution], request: str, settings: InheritedPlanning) -> Applicability:
    """Whether the newest plan can go on, is only looked at, or is none at all."""
    if not runs:
        return "new"
    newest = runs[0]
    can_go_on = settings.inherit_plans and newest.status == "stopped" and _is_open(newest.plan)
    return "continue" if can_go_on and _alike(request_of(store, newest.uuid), request) else "reference"


def request_of(store: Store, uuid: str) -> str:
    """What a run was asked for."""
    try:
        opening = store.read(uuid, Message, last=OPENING)
        return next((message.text for message in opening if message.role == "user"), "")
    except OrihonError:
        return ""


def continued(previous: Plan, new: Plan) -> Plan:
    """The new plan as the rest of the previous one: what was completed stays so, and is not done again."""
    parts = tuple(part for part in previous.subtasks if part.status == "completed")
    actions = tuple(action for action in previous.actions if action.status == "completed")
    done = Plan(
        goal_understanding=previous.goal_understanding,
        task_decomposition=Decomposition(subtasks=parts),
        action_plan=replace(previous.action_plan, actions=actions, execution_order=()),
    )
    return revised(done, Revision(updated_plan=new)) or new


def merged(plan: Plan, learned: Learnings) -> Plan:
    """The plan with what was learned: dependencies, complexity, tools that worked, and ways out of known failures."""
    ids = {norm(part.description): part.id for part in plan.subtasks}
    parts = tuple(_taught(part, learned, ids) for part in plan.subtasks)
    actions = tuple(_prepared(action, learned) for action in plan.actions)
    return replace(
        plan,
        task_decomposition=replace(plan.task_decomposition, subtasks=parts),
        action_plan=replace(plan.action_plan, actions=actions),
    )


def _taught(part: Subtask, learned: Learnings, ids: dict[str, str]) -> Subtask:
    known = {norm(name): estimate for name, estimate in learned.complexity.items()}
    needs = {norm(name): texts for name, texts in learned.dependencies.items()}
    name, order = norm(part.description), ("low", "medium", "high")
    estimate = known.get(name)
    found = (ids.get(norm(text), "") for text in needs.get(name, ()))
    more = [id_ for id_ in found if id_ and id_ != part.id and id_ not in part.dependencies]
    harder = estimate is not None and order.index(estimate.adjusted) > order.index(part.estimated_complexity)
    return replace(
        part,
        dependencies=(*part.dependencies, *more),
        estimated_complexity=estimate.adjusted if estimate is not None and harder else part.estimated_complexity,
    )


def _prepared(action: Action, learned: Learnings) -> Action:
    known = relevant(learned, action)
    tool = action.tool or next((item.tool for item in known.worked if item.tool), "")
    remedy = action.fallback_strategy or next((item.remedy for item in known.failed if item.remedy), "")
    return replace(action, tool=tool, fallback_strategy=remedy)


def _allowed(learned: Learnings, settings: InheritedPlanning) -> Learnings:
    """Without what the settings keep back."""
    nothing = Learnings()
    kept_back = [
        *(() if settings.inherit_plans else ("dependencies", "complexity")),
        *(() if settings.inherit_reflections else ("failed", "revision_reasons", "problems")),
        *(() if settings.inherit_verifications else ("placeholders", "criteria", "additional_work", "verifications")),
        *(() if settings.reuse_successful_patterns else ("worked", "tools")),
    ]
    return replace(learned, **{name: getattr(nothing, name) for name in kept_back})


def _has_plan(store: Store, uuid: str) -> bool:
    try:
        return next(store.read(uuid, PlanEntry), None) is not None
    except OrihonError:
        return False


def _is_open(plan: Plan | None) -> bool:
    """Whether something of a plan is left to do."""
    if plan is None:
        return False
    statuses = {*(part.status for part in plan.subtasks), *(action.status for action in plan.actions)}
    return bool(statuses - {"completed", "skipped"})


def _alike(one: str, other: str) -> bool:
    """Whether two requests ask for the same thing: the same text, or nearly so."""
    first, second = (" ".join(text.casefold().split())[:COMPARED_CHARS] for text in (one, other))
    if not first or not second:
        return False
    pairs, others = (Counter(pairwise(text)) for text in (first, second))
    shared = 2 * sum((pairs & others).values())
    return first == second or shared >= ALIKE * (pairs.total() + others.total())
