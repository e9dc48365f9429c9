"""The structs of a plan and of its history. The names of their fields are the names in JSON, and stand only here."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from orihon.records import PlanKind

StepStatus = Literal["pending", "running", "completed", "failed", "skipped"]
Complexity = Literal["low", "medium", "high"]
Texts = tuple[str, ...]
Share = Annotated[float, Meta(ge=0, le=1)]

NEEDED = Meta(extra_json_schema={"needed": True})  # an answer without it is no answer
OURS = Meta(extra_json_schema={"ours": True})  # we fill it in; the model is not asked for it


class Goal(Struct, frozen=True, kw_only=True):
    """What is to be reached, and how one can tell."""

    main_objective: Annotated[str, NEEDED] = ""
    success_criteria: Texts = ()
    constraints: Texts = ()
    context_analysis: str = ""


class Subtask(Struct, frozen=True, kw_only=True):
    """A part of the task; `dependencies` are the ids of those that come first."""

    id: str = ""
    description: str = ""
    dependencies: Texts = ()
    estimated_complexity: Complexity = "medium"
    required_tools: Texts = ()
    status: Annotated[StepStatus, OURS] = "pending"


class Decomposition(Struct, frozen=True, kw_only=True):
    """The task in parts."""

    reasoning: str = ""
    subtasks: tuple[Subtask, ...] = ()


class Action(Struct, frozen=True, kw_only=True):
    """One step; `task_id` is the id of the subtask that it belongs to."""

    task_id: str = ""
    action_type: str = "tool_call"
    tool: str = ""
    parameters: dict[str, Any] = {}
    purpose: str = ""
    expected_outcome: str = ""
    fallback_strategy: str = ""
    status: Annotated[StepStatus, OURS] = "pending"
    error: Annotated[str, OURS] = ""


class ActionPlan(Struct, frozen=True, kw_only=True):
    """The steps; `execution_order` names the subtasks in the order of work."""

    execution_order: Texts = ()
    actions: Annotated[tuple[Action, ...], NEEDED] = ()


class Plan(Struct, frozen=True, kw_only=True):
    """The goal, the parts and the steps."""

    goal_understanding: Annotated[Goal, NEEDED] = Goal()
    task_decomposition: Decomposition = Decomposition()
    action_plan: Annotated[ActionPlan, NEEDED] = ActionPlan()
    comment: str = ""

    @property
    def goal(self) -> str:
        """The main objective."""
        return self.goal_understanding.main_objective

    @property
    def subtasks(self) -> tuple[Subtask, ...]:
        """The parts of the task."""
        return self.task_decomposition.subtasks

    @property
    def actions(self) -> tuple[Action, ...]:
        """The steps, in order."""
        return self.action_plan.actions


class Change(Struct, frozen=True, kw_only=True):
    """One difference between two plans."""

    type: Literal["add_action", "remove_action", "modify_action"] = "modify_action"
    details: Any = ""


class Revision(Struct, frozen=True, kw_only=True):
    """Why the plan changed, how, and the parts of it that are new."""

    reason: Annotated[str, NEEDED] = ""
    changes: tuple[Change, ...] = ()
    updated_plan: Plan | None = None


class Reflection(Struct, frozen=True, kw_only=True):
    """How an action went; `remedy` is what helped, or would."""

    action_evaluated: str = ""
    status: Annotated[Literal["success", "failure", "partial"], NEEDED] = "partial"
    evaluation: str = ""
    issues_identified: Texts = ()
    root_cause: str = ""
    plan_revision_needed: bool = False
    reasoning: str = ""
    tool: str = ""
    remedy: str = ""


class Placeholders(Struct, frozen=True, kw_only=True):
    """Where something stands that was to be filled in: TODO, FIXME, a bare pass, NotImplementedError."""

    count: Annotated[int, Meta(ge=0)] = 0
    locations: Texts = ()


class Criterion(Struct, frozen=True, kw_only=True):
    """A criterion of success, and whether it is met."""

    criterion: str = ""
    met: bool = False


class Verification(Struct, frozen=True, kw_only=True):
    """Whether the work is done, and what is left."""

    round: Annotated[int, Meta(ge=0), OURS] = 0
    verification_passed: Annotated[bool, NEEDED] = False
    issues_found: Texts = ()
    placeholder_detected: Placeholders = Placeholders()
    criteria: tuple[Criterion, ...] = ()
    additional_work_needed: bool = False
    additional_actions: tuple[Action, ...] = ()
    completion_confidence: Share = 0.0
    comment: str = ""


ReplanType = Literal[
    "clarification_request",
    "goal_revision",
    "task_redecomposition",
    "action_regeneration",
    "partial_replan",
    "full_replan",
    "plan_revision",
    "retry",
    "none",
]
Phase = Literal["goal_understanding", "task_decomposition", "action_sequence", "execution", "reflection", ""]


class ReplanDecision(Struct, frozen=True, kw_only=True):
    """Whether to plan again, and from where. Levels: 1 retry, 2 a part, 3 the actions, 4 the subtasks, 5 the goal."""

    replan_needed: Annotated[bool, NEEDED] = False
    confidence: Share = 0.0
    reasoning: str = ""
    replan_type: ReplanType = "none"
    target_phase: Phase = ""
    replan_level: Annotated[int, Meta(ge=1, le=5)] = 1
    issues_found: Texts = ()
    recommended_actions: Texts = ()
    clarification_needed: bool = False
    clarification_questions: Texts = ()
    error_classification: Literal["transient", "persistent", "fatal", ""] = ""
    recovery_strategy: str = ""
    affected_actions: Texts = ()
    evaluation_result: Literal["success", "partial_success", "failure", ""] = ""
    achievement_rate: Annotated[float, Meta(ge=0, le=100)] = 0.0
    additional_actions: tuple[Action, ...] = ()
    assumptions_to_make: Texts = ()
    phase: Annotated[str, OURS] = ""  # where it was decided
    executed: Annotated[bool, OURS] = False
    override_reason: Annotated[str, OURS] = ""  # why it was not done although the model wanted it
    replan_counts: Annotated[dict[str, int], OURS] = {}


Value = Plan | Revision | Reflection | Verification | ReplanDecision

# each kind, the name that it stands under in JSON, and the name that older histories used
KINDS: dict[PlanKind, tuple[type[Value], str, str]] = {
    "plan": (Plan, "", "plan"),
    "revision": (Revision, "plan_revision", ""),
    "reflection": (Reflection, "reflection", "evaluation"),
    "verification": (Verification, "", "verification_result"),
    "replan_decision": (ReplanDecision, "replan_decision", "llm_decision"),
}
KIND_OF = {struct: kind for kind, (struct, _, _) in KINDS.items()}
OLD_NAMES: dict[type[Struct], dict[str, str]] = {
    Goal: {"goal_summary": "main_objective"},
    Subtask: {"task_id": "id"},
    Reflection: {"action_summary": "action_evaluated"},
    Revision: {"updated_action_plan": "updated_plan"},
}
