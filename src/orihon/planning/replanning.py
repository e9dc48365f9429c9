"""Whether a decision to plan again is carried out: by its confidence, by the limits, and not in circles.

    level 1   try the action again                 retry
    level 2   plan the rest again                  partial_replan, plan_revision
    level 3   write all actions again              action_regeneration
    level 4   split the task again                 task_redecomposition
    level 5   look at the goal again               goal_revision, full_replan

A confident decision is carried out, a less confident one with a warning; below that a person is asked, and a mere
guess is ignored. What was carried out is counted, and no new plan sets a counter back.
"""

from __future__ import annotations

from msgspec import Struct

from orihon.planning.history.progress import Progress
from orihon.planning.schema import Plan, ReplanDecision, Revision
from orihon.planning.schema.values import ReplanType
from orihon.settings.schema import Replanning

SURE = 0.8  # from here on nobody is warned
TOTAL = "total"

BY_LEVEL: dict[int, ReplanType] = {
    1: "retry",
    2: "partial_replan",
    3: "action_regeneration",
    4: "task_redecomposition",
    5: "goal_revision",
}
LEVELS: dict[ReplanType, int] = {
    **{kind: level for level, kind in BY_LEVEL.items()},
    "plan_revision": 2,
    "full_replan": 5,
    "clarification_request": 1,
}
_PLACES = {1: "execution", 2: "action_sequence", 3: "action_sequence", 4: "task_decomposition", 5: "goal_understanding"}
_AGAIN = ("task_redecomposition", "goal_revision", "full_replan")  # all of them decompose again


class Verdict(Struct, frozen=True, kw_only=True):
    """What becomes of a decision; `reason` says why it is not carried out."""

    kind: ReplanType = "none"
    place: str = ""
    is_done: bool = False
    asks: bool = False
    warns: bool = False
    reason: str = ""

    @property
    def level(self) -> int:
        """How far back it goes."""
        return LEVELS.get(self.kind, 0)


def judge(decision: ReplanDecision, progress: Progress, settings: Replanning, *, action: str = "") -> Verdict:
    """What becomes of a decision about an action."""
    kind = _kind(decision)
    if not decision.replan_needed or kind == "none":
        return Verdict(reason="")
    place = _place(decision, kind, action)
    confidence, least, asking = (
        decision.confidence,
        settings.min_confidence_threshold,
        settings.user_confirmation_threshold,
    )
    if confidence < asking:
        return Verdict(kind=kind, place=place, reason=f"The confidence {confidence:g} is below {asking:g}.")
    asks = confidence < least or kind == "clarification_request"
    if refusal := _refusal(kind, place, progress, settings, asks=asks):
        return Verdict(kind=kind, place=place, reason=refusal)
    return Verdict(kind=kind, place=place, is_done=True, asks=asks, warns=not asks and confidence < SURE)


def counted(progress: Progress, verdict: Verdict) -> dict[str, dict[str, int]]:
    """The counters after a decision was carried out."""
    replans, pairs = dict(progress.replans), dict(progress.pairs)
    for name in (verdict.kind, TOTAL):
        replans[name] = replans.get(name, 0) + 1
    pair = _pair(verdict.place, verdict.kind)
    pairs[pair] = pairs.get(pair, 0) + 1
    return {"replans": replans, "pairs": pairs}


def narrowed(revision: Revision, level: int) -> Revision:
    """A revision with only those parts that its level may change."""
    new = revision.updated_plan or Plan()
    kept = Plan(
        goal_understanding=new.goal_understanding if level >= LEVELS["goal_revision"] else Plan().goal_understanding,
        task_decomposition=new.task_decomposition
        if level >= LEVELS["task_redecomposition"]
        else Plan().task_decomposition,
        action_plan=new.action_plan,
        comment=new.comment,
    )
    return Revision(reason=revision.reason, changes=revision.changes, updated_plan=kept)


def _kind(decision: ReplanDecision) -> ReplanType:
    """The type that was named, else what the level means."""
    if decision.replan_type == "none" and decision.replan_needed:
        return "clarification_request" if decision.clarification_needed else BY_LEVEL[decision.replan_level]
    return decision.replan_type


def _place(decision: ReplanDecision, kind: ReplanType, action: str) -> str:
    """Where it applies: a phase, and for another try the action itself."""
    phase = decision.target_phase or _PLACES[LEVELS[kind]]
    return f"{phase}/{action}" if kind == "retry" and action else phase


def _refusal(kind: ReplanType, place: str, progress: Progress, settings: Replanning, *, asks: bool) -> str:
    """Why it must not be done; empty when it may."""
    counts, used = progress.replans, progress.pairs.get(_pair(place, kind), 0)
    limits = {
        "clarification_request": (len(progress.questions), settings.max_clarification_requests),
        "retry": (used, settings.max_action_retries),
        "partial_replan": (counts.get("partial_replan", 0), settings.max_partial_replans),
        "action_regeneration": (counts.get("action_regeneration", 0), settings.max_regeneration_attempts),
        "plan_revision": (counts.get("plan_revision", 0), settings.max_plan_revisions),
        **dict.fromkeys(_AGAIN, (sum(counts.get(name, 0) for name in _AGAIN), settings.max_redecomposition_attempts)),
        TOTAL: (counts.get(TOTAL, 0), settings.max_total_replans),
    }
    for name in (TOTAL, kind, *(("clarification_request",) if asks else ())):
        done, most = limits[name]
        if done >= most:
            return f"The limit of {most:,} for {name} is reached."
    if used >= settings.same_trigger_max_count:
        return f"It is a loop: {_pair(place, kind)} was done {used:,} times."
    return ""


def _pair(place: str, kind: str) -> str:
    return f"{place}:{kind}"
