"""How a plan moves on: what a revision makes of it, and what a reflection says about its steps.

A model names what it reflects on in its own words. They are matched with a step when they hold its purpose, or name its
subtask or its tool and only one step can be meant. What cannot be matched changes no step.
"""

from __future__ import annotations

import functools
from typing import TypeVar

from msgspec.structs import replace

from orihon.planning.schema import MAX_ITEMS, Action, Plan, Reflection, Revision, StepStatus, Subtask

COMPARED_CHARS = 500
TELLING_CHARS = 8  # a shorter text says too little to be found inside another

DONE = frozenset(("completed", "failed", "skipped"))
_SAYS: dict[str, StepStatus] = {"success": "completed", "failure": "failed"}

Step = TypeVar("Step", Action, Subtask)


def norm(text: str) -> str:
    """A text as it is compared with others."""
    return _norm(text[:COMPARED_CHARS])


@functools.lru_cache(maxsize=4 * MAX_ITEMS)  # a long run compares the same steps again and again
def _norm(text: str) -> str:
    return " ".join(text.casefold().split())


def revised(plan: Plan | None, revision: Revision) -> Plan | None:
    """The plan after a revision: what it gives is new, what it leaves out stays, and what was done stays done."""
    new = revision.updated_plan
    if plan is None or new is None:
        return new or plan
    subtasks = _carried(plan.subtasks, new.subtasks) if new.subtasks else plan.subtasks
    actions = _carried(plan.actions, new.actions) if new.actions else plan.actions
    order = new.action_plan.execution_order or plan.action_plan.execution_order
    reasoning = new.task_decomposition.reasoning or plan.task_decomposition.reasoning
    return Plan(
        goal_understanding=new.goal_understanding if new.goal else plan.goal_understanding,
        task_decomposition=replace(new.task_decomposition, subtasks=subtasks, reasoning=reasoning),
        action_plan=replace(new.action_plan, actions=actions, execution_order=order),
        comment=new.comment or plan.comment,
    )


def marked(plan: Plan | None, reflection: Reflection) -> Plan | None:
    """The plan with what a reflection says about one of its steps."""
    status = _SAYS.get(reflection.status)
    if plan is None or status is None:
        return plan
    action, subtask = meant(plan, reflection.action_evaluated, reflection.tool)
    if action is not None:
        why = (reflection.root_cause or reflection.evaluation) if status == "failed" else ""
        step = replace(plan.actions[action], status=status, error=why)
        actions = (*plan.actions[:action], step, *plan.actions[action + 1 :])
        return replace(plan, action_plan=replace(plan.action_plan, actions=actions))
    if subtask is not None:
        part = replace(plan.subtasks[subtask], status=status)
        parts = (*plan.subtasks[:subtask], part, *plan.subtasks[subtask + 1 :])
        return replace(plan, task_decomposition=replace(plan.task_decomposition, subtasks=parts))
    return plan


def settled(plan: Plan) -> Plan:
    """The plan whose open subtasks have the outcome of their steps: the last step decides, once all were tried."""
    by_subtask: dict[str, list[Action]] = {}
    for action in plan.actions:
        by_subtask.setdefault(action.task_id, []).append(action)
    subtasks = tuple(_settled(subtask, by_subtask.get(subtask.id, [])) for subtask in plan.subtasks)
    return replace(plan, task_decomposition=replace(plan.task_decomposition, subtasks=subtasks))


def meant(plan: Plan, text: str, tool: str = "") -> tuple[int | None, int | None]:
    """The numbers of the action and of the subtask that a text is about, as far as that is certain."""
    said = norm(text)
    about = _holding(said, plan.actions)
    if not about and (number := _named(said, plan.subtasks)) is not None:
        of_it = {index for index, action in enumerate(plan.actions) if action.task_id == plan.subtasks[number].id}
        return _only(plan, of_it, tool), number
    if not about:
        tool = tool or text.strip()
        about = {number for number, action in enumerate(plan.actions) if tool and action.tool == tool}
    action = _only(plan, about, tool)
    if action is None:
        return None, None
    ids = [subtask.id for subtask in plan.subtasks]
    owner = plan.actions[action].task_id
    return action, ids.index(owner) if owner in ids else None


def _only(plan: Plan, numbers: set[int], tool: str) -> int | None:
    """The one action among some; with its tool, when there are several."""
    if len(numbers) > 1:
        numbers = {number for number in numbers if plan.actions[number].tool == tool}
    return next(iter(numbers)) if len(numbers) == 1 else None


def _holding(said: str, actions: tuple[Action, ...]) -> set[int]:
    """The actions whose purpose a text is; when it is none, those whose purpose it holds."""
    holding = {number for number, action in enumerate(actions) if _holds(said, norm(action.purpose))}
    return {number for number in holding if norm(actions[number].purpose) == said} or holding


def _holds(said: str, purpose: str) -> bool:
    return bool(said and purpose) and (said == purpose or (len(purpose) >= TELLING_CHARS and purpose in said))


def _named(said: str, subtasks: tuple[Subtask, ...]) -> int | None:
    """The subtask whose id the text is or begins with, or else whose description it holds."""
    by_id = [number for number, subtask in enumerate(subtasks) if _begins(said, norm(subtask.id))]
    if by_id:
        return max(by_id, key=lambda number: len(subtasks[number].id))
    return next((number for number, part in enumerate(subtasks) if _holds(said, norm(part.description))), None)


def _begins(said: str, id_: str) -> bool:
    """`task_2 edit the file` and `2: edit the file` name a subtask; `2 files were edited` does not."""
    if not id_ or not said.startswith(id_):
        return False
    after = said[len(id_) : len(id_) + 1]
    return after in ":.,)]-" or (after == " " and not id_.isdigit())


def _identity(step: Action | Subtask) -> tuple[str, str, str]:
    if isinstance(step, Action):
        return step.task_id, step.tool, norm(step.purpose)
    return step.id, "", norm(step.description)


def _carried(old: tuple[Step, ...], new: tuple[Step, ...]) -> tuple[Step, ...]:
    """The new steps; those that were completed before are so still, and those that were tried are not forgotten."""
    completed = {_identity(step) for step in old if step.status == "completed"}
    names = {_identity(step) for step in new}
    steps: list[Step] = [
        replace(step, status="completed") if step.status == "pending" and _identity(step) in completed else step
        for step in new
    ]
    tried: list[Step] = [step for step in old if step.status in DONE and _identity(step) not in names]
    return tuple((tried + steps)[-MAX_ITEMS:])


def _settled(subtask: Subtask, actions: list[Action]) -> Subtask:
    if subtask.status in DONE or not actions or any(action.status not in DONE for action in actions):
        return subtask
    return replace(subtask, status=actions[-1].status)
