"""The outline of a run: a small plain dict that can be kept when the run's directory is gone.

It holds no sentences of ours, so that it can be shown in either language later.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import Struct

from orihon.planning.history.learnings import judged
from orihon.planning.history.outcomes import Outcome, outcomes
from orihon.planning.history.runs import Execution
from orihon.planning.history.steps import norm
from orihon.planning.schema import Plan, StepStatus, progress
from orihon.planning.schema.reading import built

Kind = Literal["finish", "resolve", "fill", "remedy", "avoid", "reuse"]


class Size(Struct, frozen=True, kw_only=True):
    """How much of a run is told."""

    subtasks: int
    failures: int
    issues: int
    advice: int  # of each kind
    chars: int


SMALL = Size(subtasks=20, failures=5, issues=10, advice=3, chars=200)
LARGE = Size(subtasks=50, failures=20, issues=30, advice=10, chars=500)


class Part(Struct, frozen=True, kw_only=True):
    """A subtask and how it ended."""

    description: str = ""
    status: StepStatus = "pending"


class Advice(Struct, frozen=True, kw_only=True):
    """What the next run should do about something; `more` is the reason, the remedy or the tool."""

    kind: Kind = "avoid"
    about: str = ""
    more: str = ""


class Outline(Struct, frozen=True, kw_only=True):
    """A run in a few lines."""

    uuid: str = ""
    status: str = ""
    completed_at: str = ""
    goal: str = ""
    subtasks: tuple[Part, ...] = ()
    subtask_counts: dict[str, int] = {}
    successful_actions: int = 0
    failed_actions: int = 0
    key_failures: tuple[Outcome, ...] = ()
    verification_rounds: int = 0
    verification_passed: bool | None = None
    issues_found: tuple[str, ...] = ()
    issues_resolved: tuple[str, ...] = ()
    recommendations: tuple[Advice, ...] = ()


def outline(execution: Execution) -> dict[str, Any]:
    """The outline of a run, as JSON data."""
    data: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(outlined(execution, SMALL)))
    return data


def outline_of(data: dict[str, Any]) -> Outline:
    """An outline that was kept, as far as it can be understood."""
    value: Outline = built(data, Outline)
    return value


def outlined(run: Execution, size: Size) -> Outline:
    """The outline of a run, as large as told."""
    plan, ended = run.plan or Plan(), outcomes(run)
    found, left = issues(run)
    failures = sorted(ended.failed, key=lambda item: item.recovered)
    return Outline(
        uuid=run.uuid,
        status=run.status,
        completed_at=run.completed_at or "",
        goal=line(plan.goal, size.chars),
        subtasks=tuple(
            Part(description=line(part.description or part.id, size.chars), status=part.status)
            for part in plan.subtasks[: size.subtasks]
        ),
        subtask_counts=dict(progress(plan)),
        successful_actions=len(ended.worked),
        failed_actions=sum(not item.recovered for item in ended.failed),
        key_failures=tuple(_short(item, size.chars) for item in failures[: size.failures]),
        verification_rounds=len(run.verifications),
        verification_passed=run.verifications[-1].verification_passed if run.verifications else None,
        issues_found=tuple(line(text, size.chars) for text in found[: size.issues]),
        issues_resolved=tuple(line(text, size.chars) for text in found if norm(text) not in left)[: size.issues],
        recommendations=tuple(_advice(run, size)),
    )


def issues(run: Execution) -> tuple[list[str], set[str]]:
    """The issues that the verifications of a run found, and those that the last one still found."""
    found = {norm(text): text for item in run.verifications for text in item.issues_found}
    left = {norm(text) for text in run.verifications[-1].issues_found} if run.verifications else set()
    return list(found.values()), left


def line(text: str, most: int) -> str:
    """A text in one line, so that it cannot look like a section of its own."""
    text = " ".join(text[: 2 * most].split())
    return text if len(text) <= most else text[: most - 1] + "…"


def _advice(run: Execution, size: Size) -> list[Advice]:
    """What a run leaves to do, what helped, what to keep away from and what to use again."""
    plan, ended, last = run.plan or Plan(), outcomes(run), run.verifications[-1:]
    found, left = issues(run)
    helped = [item for item in ended.failed if item.remedy]
    hopeless = [item for item in ended.failed if not item.remedy and not item.recovered]
    wanted: list[tuple[Kind, list[tuple[str, str]]]] = [
        ("finish", [(part.description or part.id, "") for part in plan.subtasks if part.status in _OPEN]),
        ("finish", [(item.criterion, "") for item in judged(run) if item.met is False]),
        ("resolve", [(text, "") for text in found if norm(text) in left]),
        ("fill", [(place, "") for item in last for place in item.placeholder_detected.locations]),
        ("remedy", [(item.what, item.remedy) for item in helped]),
        ("avoid", [(item.what, item.why) for item in hopeless]),
        ("reuse", [(item.what, item.tool) for item in ended.worked]),
    ]
    return [
        Advice(kind=kind, about=line(about, size.chars), more=line(more, size.chars))
        for kind, pairs in wanted
        for about, more in pairs[: size.advice]
    ]


_OPEN = frozenset(("pending", "running", "failed"))


def _short(item: Outcome, most: int) -> Outcome:
    texts = {name: line(getattr(item, name), most) for name in ("what", "tool", "why", "remedy")}
    return msgspec.structs.replace(item, **texts)
