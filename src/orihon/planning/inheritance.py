"""The earlier runs that a plan uses: which runs, whether the last plan can be continued, and their lessons.

The runs are those that the core would inherit from, so expiry, users and linked keys follow one rule. A plan is
continued if it was stopped with work left and the request is still the same. Every other plan is only referred to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from orihon.errors import OrihonError
from orihon.inheritance.outline import ToolUse
from orihon.inheritance.sanitise import Names, names_of
from orihon.inheritance.search import may_inherit, search
from orihon.planning.digest import TOPIC_KINDS
from orihon.planning.history import Lesson, Run, learn, read_run, select_runs
from orihon.planning.plan_state import Applicability, normalise, revise
from orihon.planning.schema import Action, Complexity, Plan, Revision, Subtask
from orihon.records import Message, TaskRow
from orihon.settings.schema import ContextInheritance, InheritedPlanning
from orihon.stores.base import Store

MAX_ROWS = 20  # earlier runs that are searched for a plan
MAX_OPENING = 16  # messages that are searched for the request
COMPARED_CHARS = 4000
MIN_SIMILARITY = 0.8  # of two requests that ask for the same


class Inherited(Struct, frozen=True, kw_only=True):
    """Earlier runs, the newest first, their lessons, and the names that must not be shown."""

    runs: tuple[Run, ...] = ()
    lessons: tuple[Lesson, ...] = ()
    tools: tuple[ToolUse, ...] = ()
    names: Names = Names()


def find_runs(store: Store, row: TaskRow, settings: ContextInheritance) -> tuple[str, ...]:
    """Return the uuids of the newest earlier runs that have a plan."""
    found = search(store, row.task_key, settings=settings, user=row.user, exclude=row.uuid)
    rows = (found.previous.row, *found.older) if found.previous else ()
    return tuple(run.uuid for run in select_runs(store, rows[:MAX_ROWS], settings.planning.max_previous_plans))


def load_runs(store: Store, task: TaskRow, uuids: Iterable[str], settings: ContextInheritance) -> Inherited:
    """Return these runs, as far as they can be read and the task may inherit from them."""
    runs, names = list[Run](), Names()
    for uuid in uuids:
        try:
            row = store.row(uuid)
            if may_inherit(task, row, settings):
                runs.append(read_run(store, row))
                names |= names_of(store, row)
        except OrihonError:
            continue  # the run was deleted in the meantime
    planning = settings.planning
    allowed = {
        "plan": planning.inherit_plans,
        "reflection": planning.inherit_reflections,
        "verification": planning.inherit_verifications,
        "pattern": planning.reuse_successful_patterns,
    }
    lessons = tuple(lesson for lesson in learn(runs) if allowed[TOPIC_KINDS[lesson.topic]])
    tools = _sum_tool_uses(runs) if planning.reuse_successful_patterns else ()
    return Inherited(runs=tuple(runs), lessons=lessons, tools=tools, names=names)


def assess_applicability(
    store: Store, runs: Sequence[Run], task_uuid: str, settings: InheritedPlanning
) -> Applicability:
    """Return whether the newest plan is continued, only referred to, or missing."""
    if not runs:
        return "new"
    newest = runs[0]
    statuses = {*(part.status for part in newest.plan.subtasks), *(action.status for action in newest.plan.actions)}
    is_open = newest.status == "stopped" and bool(statuses - {"completed", "skipped"})
    if not settings.inherit_plans or not is_open:
        return "reference"
    return "continue" if _are_alike(_read_request(store, newest.uuid), _read_request(store, task_uuid)) else "reference"


def continue_plan(previous: Plan, new: Plan) -> Plan:
    """Return the new plan as the rest of the previous one: completed steps stay and are not repeated."""
    done = previous.with_subtasks(tuple(part for part in previous.subtasks if part.status == "completed"))
    done = done.with_actions(tuple(action for action in previous.actions if action.status == "completed"))
    done = replace(done, action_plan=replace(done.action_plan, execution_order=()), comment="")
    return revise(done, Revision(updated_plan=new))


def apply_lessons(plan: Plan, lessons: Sequence[Lesson]) -> Plan:
    """Return the plan with known dependencies, complexity, tools that worked and remedies of known failures."""
    ids = {normalise(part.description): part.id for part in plan.subtasks}
    subtasks = tuple(_apply_to_subtask(part, lessons, ids) for part in plan.subtasks)
    actions = tuple(_apply_to_action(action, lessons) for action in plan.actions)
    return plan.with_subtasks(subtasks).with_actions(actions)


def _apply_to_subtask(part: Subtask, lessons: Sequence[Lesson], ids: dict[str, str]) -> Subtask:
    levels: tuple[Complexity, ...] = ("low", "medium", "high")
    dependencies = list(part.dependencies)
    complexity = part.estimated_complexity
    for lesson in lessons:
        if normalise(lesson.what) != normalise(part.description):
            continue
        if lesson.topic == "dependency":
            known = (ids.get(normalise(name), "") for name in lesson.names)
            dependencies += [id_ for id_ in known if id_ and id_ != part.id and id_ not in dependencies]
        elif lesson.topic == "effort":
            complexity = levels[max(levels.index(complexity), levels.index(lesson.names[1]))]
    return replace(part, dependencies=tuple(dependencies), estimated_complexity=complexity)


def _apply_to_action(action: Action, lessons: Sequence[Lesson]) -> Action:
    known = [lesson for lesson in lessons if lesson.concerns(action)]
    tool = action.tool or next((item.tool for item in known if item.topic == "worked" and item.tool), "")
    remedy = next((item.remedy for item in known if item.topic == "failure" and item.remedy), "")
    return replace(action, tool=tool, fallback_strategy=action.fallback_strategy or remedy)


def _sum_tool_uses(runs: Iterable[Run]) -> tuple[ToolUse, ...]:
    """Return the tools of all runs, the most used first, each with its newest error."""
    sums: dict[str, ToolUse] = {}
    for use in (use for run in runs for use in run.tools):
        known = sums.get(use.tool, ToolUse(tool=use.tool))
        successes, failures = known.successes + use.successes, known.failures + use.failures
        error = known.last_error or use.last_error
        sums[use.tool] = ToolUse(tool=use.tool, successes=successes, failures=failures, last_error=error)
    return tuple(sorted(sums.values(), key=lambda use: -use.successes - use.failures))


def _read_request(store: Store, uuid: str) -> str:
    """Return the first message of the user."""
    try:
        opening = store.read(uuid, Message, last=MAX_OPENING)
        return next((message.text for message in opening if message.role == "user"), "")
    except OrihonError:
        return ""


def _are_alike(one: str, other: str) -> bool:
    """Return whether two requests ask for the same: equal texts, or nearly the same pairs of letters."""
    first, second = (" ".join(text.casefold().split())[:COMPARED_CHARS] for text in (one, other))
    pairs, others = Counter(pairwise(first)), Counter(pairwise(second))
    shared = 2 * (pairs & others).total() / max(1, pairs.total() + others.total())
    return bool(first and second) and (first == second or shared >= MIN_SIMILARITY)
