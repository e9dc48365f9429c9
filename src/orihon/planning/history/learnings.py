"""What earlier runs teach: what worked, what failed and why, and what to look at before the work counts as done.

The runs come newest first, and where two of them disagree the newest counts. Lists hold `MOST` items at most.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TypeVar

from msgspec import Struct

from orihon.planning.history.outcomes import Outcome, outcomes
from orihon.planning.history.runs import Execution, ToolUse
from orihon.planning.history.steps import DONE, meant, norm
from orihon.planning.schema import Action, Complexity, Plan, Verification

MOST = 50

T = TypeVar("T")

_HARDER: dict[Complexity, Complexity] = {"low": "medium", "medium": "high", "high": "high"}


class Estimate(Struct, frozen=True, kw_only=True):
    """How hard a subtask was thought to be, how hard to think it now, and how often there was trouble with it."""

    estimated: Complexity = "medium"
    adjusted: Complexity = "medium"
    troubles: int = 0


class Issue(Struct, frozen=True, kw_only=True):
    """A problem that a reflection found, and its cause."""

    issue: str = ""
    root_cause: str = ""


class Judged(Struct, frozen=True, kw_only=True):
    """A criterion of success, and whether it was met; None when no verification says so."""

    criterion: str = ""
    met: bool | None = None


class Learnings(Struct, frozen=True, kw_only=True):
    """Values for a planner; dependencies and complexity are by the description of a subtask."""

    worked: tuple[Outcome, ...] = ()
    failed: tuple[Outcome, ...] = ()
    dependencies: dict[str, tuple[str, ...]] = {}
    complexity: dict[str, Estimate] = {}
    tools: tuple[ToolUse, ...] = ()
    revision_reasons: tuple[str, ...] = ()
    problems: tuple[Issue, ...] = ()
    placeholders: tuple[str, ...] = ()
    criteria: tuple[Judged, ...] = ()
    additional_work: tuple[str, ...] = ()
    verifications: tuple[Verification, ...] = ()  # every round of every run, the oldest first


def learnings(executions: Iterable[Execution]) -> Learnings:
    """What the runs teach together."""
    runs = sorted(executions, key=lambda run: run.completed_at or "", reverse=True)
    ended = [outcomes(run) for run in runs]
    rounds = [verification for run in runs for verification in reversed(run.verifications)]
    return Learnings(
        worked=_distinct((item for each in ended for item in each.worked), key=_name),
        failed=_distinct((item for each in ended for item in each.failed), key=_name),
        dependencies=_dependencies(runs),
        complexity=_complexity(runs),
        tools=_tools(runs),
        revision_reasons=_distinct(item.reason for run in runs for item in reversed(run.revisions) if item.reason),
        problems=_distinct(_issues(runs), key=lambda item: norm(item.issue)),
        placeholders=_distinct(place for item in rounds for place in item.placeholder_detected.locations),
        criteria=_distinct((item for run in runs for item in judged(run)), key=lambda item: norm(item.criterion)),
        additional_work=_distinct(
            action.purpose or action.tool for item in rounds for action in item.additional_actions
        ),
        verifications=tuple(reversed(rounds)),
    )


def relevant(learned: Learnings, action: Action) -> Learnings:
    """Only what concerns an action: the same tool, or the same purpose."""
    purpose = norm(action.purpose)

    def concerns(item: Outcome) -> bool:
        return bool(action.tool and item.tool == action.tool) or bool(purpose and norm(item.what) == purpose)

    return Learnings(
        worked=tuple(filter(concerns, learned.worked)),
        failed=tuple(filter(concerns, learned.failed)),
        tools=tuple(use for use in learned.tools if use.tool == action.tool),
    )


def judged(run: Execution) -> list[Judged]:
    """The criteria of a run: what the newest verification says of each, and all of them met when it passed."""
    said = {
        norm(item.criterion): Judged(criterion=item.criterion, met=item.met)
        for verification in run.verifications
        for item in verification.criteria
    }
    passed = bool(run.verifications) and run.verifications[-1].verification_passed
    planned = run.plan.goal_understanding.success_criteria if run.plan else ()
    unsaid = {norm(text): Judged(criterion=text, met=True if passed else None) for text in planned}
    return list((unsaid | said).values())


def troubles(run: Execution) -> Counter[int]:
    """How often each subtask of a run made trouble: it failed, went only half well, or had to be planned anew."""
    plan, found = run.plan or Plan(), Counter[int]()
    hints = [
        (item.action_evaluated, item.tool)
        for item in run.reflections
        if item.status != "success" or item.plan_revision_needed
    ]
    hints += [(text, "") for item in run.replans if item.replan_needed for text in item.affected_actions]
    for text, tool in hints:
        _, subtask = meant(plan, text, tool)
        found.update([] if subtask is None else [subtask])
    failed = {action.task_id for action in plan.actions if action.status == "failed"}
    for number, part in enumerate(plan.subtasks):
        if part.status == "failed" or part.id in failed:
            found[number] = max(found[number], 1)
    return found


def _dependencies(runs: list[Execution]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for plan in (run.plan for run in runs if run.plan):
        names = {subtask.id: subtask.description or subtask.id for subtask in plan.subtasks}
        for subtask in plan.subtasks:
            if subtask.dependencies and len(found) < MOST:
                needs = tuple(names.get(id_, id_) for id_ in subtask.dependencies)
                found.setdefault(subtask.description or subtask.id, needs)
    return found


def _complexity(runs: list[Execution]) -> dict[str, Estimate]:
    """The newest run that tried a subtask decides; without one, the newest estimate stands."""
    tried: dict[str, Estimate] = {}
    planned: dict[str, Estimate] = {}
    for run in runs:
        trouble = troubles(run)
        for number, subtask in enumerate(run.plan.subtasks if run.plan else ()):
            before = subtask.estimated_complexity
            now = _HARDER[before] if trouble[number] else before
            estimate = Estimate(estimated=before, adjusted=now, troubles=trouble[number])
            found = tried if trouble[number] or subtask.status in DONE else planned
            if len(found) < MOST:
                found.setdefault(subtask.description or subtask.id, estimate)
    return planned | tried


def _tools(runs: list[Execution]) -> tuple[ToolUse, ...]:
    """The tools of all runs, the most used first; the newest error counts."""
    found: dict[str, ToolUse] = {}
    for use in (use for run in runs for use in run.tools):
        had = found.get(use.tool, ToolUse(tool=use.tool))
        found[use.tool] = ToolUse(
            tool=use.tool,
            successes=had.successes + use.successes,
            failures=had.failures + use.failures,
            last_error=had.last_error or use.last_error,
        )
    return tuple(sorted(found.values(), key=lambda use: -use.successes - use.failures)[:MOST])


def _issues(runs: list[Execution]) -> Iterator[Issue]:
    for run in runs:
        for reflection in reversed(run.reflections):
            for issue in reflection.issues_identified:
                yield Issue(issue=issue, root_cause=reflection.root_cause)


def _name(item: Outcome) -> tuple[str, str]:
    return norm(item.what), item.tool


def _distinct(items: Iterable[T], key: Callable[[T], Hashable] | None = None) -> tuple[T, ...]:
    """The first of those that are the same, in order; nothing that is empty."""
    found: dict[Hashable, T] = {}
    for item in items:
        name = key(item) if key else norm(str(item))
        if name and len(found) < MOST:
            found.setdefault(name, item)
    return tuple(found.values())
