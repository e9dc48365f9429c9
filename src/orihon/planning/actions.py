"""Which action comes next, and how one went."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from orihon.context.repair import INTERRUPTED
from orihon.errors import ModelError
from orihon.planning.history.steps import DONE, norm, settled
from orihon.planning.schema import Action, Plan, Reflection, StepStatus, parse
from orihon.records import Message

ERROR_CHARS = 300


class Outcome(Struct, frozen=True, kw_only=True):
    """How an action went; `is_partial` says that something of it is left."""

    status: StepStatus = "completed"
    error: str = ""
    is_partial: bool = False


def outcome(words: str, messages: Iterable[Message]) -> Outcome:
    """How an action went: by what the model reports of it, else by what its last tool said."""
    try:
        report = parse(words, "reflection")
    except ModelError:
        report = None
    if isinstance(report, Reflection):
        why = report.root_cause or report.evaluation or "; ".join(report.issues_identified) or words
        failed = report.status == "failure"
        error = "" if report.status == "success" else _short(why)
        return Outcome(status="failed" if failed else "completed", error=error, is_partial=report.status == "partial")
    results = [message for message in messages if message.role == "tool" and message.text != INTERRUPTED]
    if results and (last := results[-1]).is_error:
        return Outcome(status="failed", error=_short(f"{last.tool_name}: {last.text}"))
    return Outcome()


def following(plan: Plan) -> tuple[int | None, tuple[int, ...]]:
    """The number of the action to do now, and those that cannot be done because what they need has failed.

    One that was begun comes first. Then comes the first one whose subtask waits for no other.
    """
    waiting = [number for number, action in enumerate(plan.actions) if action.status not in DONE]
    begun = next((number for number in waiting if plan.actions[number].status == "running"), None)
    if begun is not None:
        return begun, ()
    lost = tuple(number for number in waiting if _needs(plan, number) & _ended(plan, "failed", "skipped"))
    left = [number for number in waiting if number not in lost]
    open_ids = {plan.actions[number].task_id for number in left}
    ready = (number for number in left if not (_needs(plan, number) & open_ids))
    return next(ready, left[0] if left else None), lost


def arranged(plan: Plan) -> Plan:
    """The plan with its actions in the order of work, and no two of them alike."""
    order = {id_: place for place, id_ in enumerate(plan.action_plan.execution_order)}
    actions = list(plan.actions)
    if all(action.task_id in order for action in actions):
        actions.sort(key=lambda action: order[action.task_id])
    seen = Counter[tuple[str, str, str]]()
    for number, action in enumerate(actions):
        name = (action.task_id, action.tool, norm(action.purpose))
        seen[name] += 1
        if seen[name] > 1:  # what was done once would count as done twice
            actions[number] = replace(action, purpose=f"{action.purpose} ({seen[name]})")
    return replace(plan, action_plan=replace(plan.action_plan, actions=tuple(actions)))


def placed(plan: Plan, number: int, **changes: object) -> Plan:
    """The plan with one of its actions changed."""
    actions: list[Action] = list(plan.actions)
    actions[number] = replace(actions[number], **changes)
    return replace(plan, action_plan=replace(plan.action_plan, actions=tuple(actions)))


def _needs(plan: Plan, number: int) -> frozenset[str]:
    """The ids of the subtasks that come before the one of an action."""
    own = plan.actions[number].task_id
    needs = {need for part in plan.subtasks if part.id == own for need in part.dependencies}
    return frozenset(needs - {own})


def _ended(plan: Plan, *statuses: str) -> frozenset[str]:
    return frozenset(part.id for part in settled(plan).subtasks if part.status in statuses)


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= ERROR_CHARS else f"{text[: ERROR_CHARS - 1]}…"
