"""Whether a decision to replan is executed: by its confidence, by the limits, and never in a loop.

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

from msgspec import Struct

from orihon.planning.plan_state import Progress
from orihon.planning.schema import Decomposition, Goal, Plan, ReplanDecision, ReplanType, Revision
from orihon.settings.schema import Replanning

SURE = 0.8  # no warning from here on
TOTAL = "total"

_TYPES: dict[int, ReplanType] = {
    1: "retry",
    2: "partial_replan",
    3: "action_regeneration",
    4: "task_redecomposition",
    5: "goal_revision",
}
_LEVELS: dict[ReplanType, int] = {
    **{kind: level for level, kind in _TYPES.items()},
    "plan_revision": 2,
    "full_replan": 5,
    "clarification_request": 1,
}
_PHASES = {1: "execution", 2: "action_sequence", 3: "action_sequence", 4: "task_decomposition", 5: "goal_understanding"}
_REDECOMPOSING: tuple[ReplanType, ...] = ("task_redecomposition", "goal_revision", "full_replan")  # share one limit


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


def judge_decision(decision: ReplanDecision, progress: Progress, settings: Replanning, *, action: str = "") -> Verdict:
    """Return whether a decision about an action is executed."""
    kind = _resolve_type(decision)
    if not decision.replan_needed or kind == "none":
        return Verdict()
    phase = decision.target_phase or _PHASES[_LEVELS[kind]]
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
        return "clarification_request" if decision.clarification_needed else _TYPES[decision.replan_level]
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
