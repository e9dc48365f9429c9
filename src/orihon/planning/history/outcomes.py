"""How the steps of a run ended, from what was recorded: the status of an action, and what reflections say about it."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

from orihon.planning.history.runs import Execution
from orihon.planning.history.steps import meant, norm
from orihon.planning.schema import Action, Plan, Reflection


class Outcome(Struct, frozen=True, kw_only=True):
    """A step that worked, or one that failed: then why, what to do about it, and whether it worked in the end.

    `helped` says that the remedy was used and the step worked after it; else the remedy is only a suggestion.
    """

    what: str = ""
    tool: str = ""
    why: str = ""
    remedy: str = ""
    recovered: bool = False
    helped: bool = False


class Outcomes(NamedTuple):
    """The steps of a run; one that failed first and worked later is in both."""

    worked: list[Outcome]
    failed: list[Outcome]


def outcomes(run: Execution) -> Outcomes:
    """What worked and what failed in a run."""
    plan, found = run.plan or Plan(), Outcomes([], [])
    said: dict[int | str, list[Reflection]] = {}
    for reflection in run.reflections:
        number, _ = meant(plan, reflection.action_evaluated, reflection.tool)
        name = norm(reflection.action_evaluated or reflection.evaluation)
        said.setdefault(name if number is None else number, []).append(reflection)
    remedies = _remedies(run, plan)
    for number, action in enumerate(plan.actions):
        _tell(found, said.pop(number, []), action, action.status, remedies.get(number, ""))
    for reflections in said.values():  # about no step of the plan
        last = next((item.status for item in reversed(reflections) if item.status != "partial"), "")
        _tell(found, reflections, Action(), {"success": "completed", "failure": "failed"}.get(last, ""), "")
    return found


def _tell(found: Outcomes, reflections: list[Reflection], action: Action, status: str, remedy: str) -> None:
    newest = reflections[-1] if reflections else Reflection()
    failure = next((item for item in reversed(reflections) if item.status == "failure"), None)
    what = action.purpose or newest.action_evaluated or action.tool or newest.evaluation or action.task_id
    tool = action.tool or newest.tool
    recovered = status == "completed"
    if recovered:
        found.worked.append(Outcome(what=what, tool=tool))
    if failure is None and status != "failed":
        return
    failure = failure or Reflection()
    why = failure.root_cause or "; ".join(failure.issues_identified) or failure.evaluation or action.error
    known = next((item.remedy for item in reversed(reflections) if item.remedy), remedy)
    outcome = Outcome(
        what=what,
        tool=tool,
        why=why,
        remedy=known or action.fallback_strategy,
        recovered=recovered,
        helped=recovered and bool(known),
    )
    found.failed.append(outcome)


def _remedies(run: Execution, plan: Plan) -> dict[int, str]:
    """The strategies that were carried out for an action."""
    found: dict[int, str] = {}
    for replan in run.replans:
        for text in replan.affected_actions if replan.executed and replan.recovery_strategy else ():
            number, _ = meant(plan, text)
            found |= {number: replan.recovery_strategy} if number is not None else {}
    return found
