"""The structs of a plan and of its history, and their JSON form.

The same form is shown to the model (`json_schema`), parsed from its replies (`orihon.planning.parse`), stored
(`make_entry`) and read back by the next run. Field names are the names in JSON and are defined only here.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from orihon.codec import clean_value
from orihon.records import PlanEntry, PlanKind

StepStatus = Literal["pending", "running", "completed", "failed", "skipped"]
Complexity = Literal["low", "medium", "high"]
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
TargetPhase = Literal["goal_understanding", "task_decomposition", "action_sequence", "execution", "reflection", ""]
Texts = tuple[str, ...]
Share = Annotated[float, Meta(ge=0, le=1)]

REQUIRED = Meta(extra_json_schema={"needed": True})  # a reply without this field is refused
INTERNAL = Meta(extra_json_schema={"ours": True})  # set by Orihon; the model is not asked for it


class Goal(Struct, frozen=True, kw_only=True):
    """The objective, and how to tell that it is reached."""

    main_objective: Annotated[str, REQUIRED] = ""
    success_criteria: Texts = ()
    constraints: Texts = ()
    context_analysis: str = ""


class Subtask(Struct, frozen=True, kw_only=True):
    """A part of the task. `dependencies` are the ids of the subtasks that come first."""

    id: str = ""
    description: str = ""
    dependencies: Texts = ()
    estimated_complexity: Complexity = "medium"
    required_tools: Texts = ()
    status: Annotated[StepStatus, INTERNAL] = "pending"

    @property
    def name(self) -> str:
        """The description, or the id of a subtask without one."""
        return self.description or self.id


class Decomposition(Struct, frozen=True, kw_only=True):
    """The task, divided into subtasks."""

    reasoning: str = ""
    subtasks: tuple[Subtask, ...] = ()


class Action(Struct, frozen=True, kw_only=True):
    """One step. `task_id` is the id of its subtask."""

    task_id: str = ""
    action_type: str = "tool_call"
    tool: str = ""
    parameters: dict[str, Any] = {}
    purpose: str = ""
    expected_outcome: str = ""
    fallback_strategy: str = ""
    status: Annotated[StepStatus, INTERNAL] = "pending"
    error: Annotated[str, INTERNAL] = ""


class ActionPlan(Struct, frozen=True, kw_only=True):
    """The actions. `execution_order` lists the ids of the subtasks in the order of work."""

    execution_order: Texts = ()
    actions: Annotated[tuple[Action, ...], REQUIRED] = ()


class Plan(Struct, frozen=True, kw_only=True):
    """The goal, the subtasks and the actions."""

    goal_understanding: Annotated[Goal, REQUIRED] = Goal()
    task_decomposition: Decomposition = Decomposition()
    action_plan: Annotated[ActionPlan, REQUIRED] = ActionPlan()
    comment: str = ""

    @property
    def goal(self) -> str:
        """The main objective."""
        return self.goal_understanding.main_objective

    @property
    def subtasks(self) -> tuple[Subtask, ...]:
        """The subtasks."""
        return self.task_decomposition.subtasks

    @property
    def actions(self) -> tuple[Action, ...]:
        """The actions, in order."""
        return self.action_plan.actions

    def with_subtasks(self, subtasks: tuple[Subtask, ...]) -> Plan:
        """Return the plan with other subtasks."""
        return replace(self, task_decomposition=replace(self.task_decomposition, subtasks=subtasks))

    def with_actions(self, actions: tuple[Action, ...]) -> Plan:
        """Return the plan with other actions."""
        return replace(self, action_plan=replace(self.action_plan, actions=actions))


class Change(Struct, frozen=True, kw_only=True):
    """One difference between two plans."""

    type: Literal["add_action", "remove_action", "modify_action"] = "modify_action"
    details: Any = ""


class Revision(Struct, frozen=True, kw_only=True):
    """A change of the plan: the reason, the differences, and the new parts."""

    reason: Annotated[str, REQUIRED] = ""
    changes: tuple[Change, ...] = ()
    updated_plan: Plan | None = None


class Reflection(Struct, frozen=True, kw_only=True):
    """How an action went. `remedy` is what helped or would help."""

    action_evaluated: str = ""
    status: Annotated[Literal["success", "failure", "partial"], REQUIRED] = "partial"
    evaluation: str = ""
    issues_identified: Texts = ()
    root_cause: str = ""
    plan_revision_needed: bool = False
    reasoning: str = ""
    tool: str = ""
    remedy: str = ""


class Placeholders(Struct, frozen=True, kw_only=True):
    """Unfinished code: TODO, FIXME, a bare pass, NotImplementedError."""

    count: Annotated[int, Meta(ge=0)] = 0
    locations: Texts = ()


class Criterion(Struct, frozen=True, kw_only=True):
    """A success criterion, and whether it is met."""

    criterion: str = ""
    met: bool = False


class Verification(Struct, frozen=True, kw_only=True):
    """Whether the work is done, and what is left."""

    round: Annotated[int, Meta(ge=0), INTERNAL] = 0
    verification_passed: Annotated[bool, REQUIRED] = False
    issues_found: Texts = ()
    placeholder_detected: Placeholders = Placeholders()
    criteria: tuple[Criterion, ...] = ()
    additional_work_needed: bool = False
    additional_actions: tuple[Action, ...] = ()
    completion_confidence: Share = 0.0
    comment: str = ""


class ReplanDecision(Struct, frozen=True, kw_only=True):
    """Whether to replan, and from where.

    Level 1 retries the action, 2 replans the rest, 3 rewrites the actions, 4 the subtasks, and 5 the goal.
    """

    replan_needed: Annotated[bool, REQUIRED] = False
    confidence: Share = 0.0
    reasoning: str = ""
    replan_type: ReplanType = "none"
    target_phase: TargetPhase = ""
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
    phase: Annotated[str, INTERNAL] = ""  # the phase in which it was decided
    executed: Annotated[bool, INTERNAL] = False
    override_reason: Annotated[str, INTERNAL] = ""  # why it was not executed
    replan_counts: Annotated[dict[str, int], INTERNAL] = {}


Value = Plan | Revision | Reflection | Verification | ReplanDecision

# the struct of each kind, the key that wraps it in JSON, and the key that older histories used
KINDS: dict[PlanKind, tuple[type[Value], str, str]] = {
    "plan": (Plan, "", "plan"),
    "revision": (Revision, "plan_revision", ""),
    "reflection": (Reflection, "reflection", "evaluation"),
    "verification": (Verification, "", "verification_result"),
    "replan_decision": (ReplanDecision, "replan_decision", "llm_decision"),
}
KIND_OF: dict[type[Struct], PlanKind] = {struct: kind for kind, (struct, _, _) in KINDS.items()}
OLD_NAMES: dict[type[Struct], dict[str, str]] = {
    Goal: {"goal_summary": "main_objective"},
    Subtask: {"task_id": "id"},
    Reflection: {"action_summary": "action_evaluated"},
    Revision: {"updated_action_plan": "updated_plan"},
}


def make_entry(value: Value, task_uuid: str = "") -> PlanEntry:
    """Return an entry for `Task.plan`, which fills in the number, the task and the time."""
    kind = KIND_OF[type(value)]
    wrapper = KINDS[kind][1]
    data: dict[str, Any] = clean_value(_to_data(value))
    return PlanEntry(id=0, type=kind, task_uuid=task_uuid, data={wrapper: data} if wrapper else data, timestamp="")


def json_schema(kind: PlanKind) -> dict[str, Any]:
    """Return the JSON schema of a reply, with references resolved."""
    struct, wrapper, _ = KINDS[kind]
    schema = msgspec.json.schema(struct)
    form: dict[str, Any] = _resolve(schema, schema["$defs"])
    return {"type": "object", "properties": {wrapper: form}, "required": [wrapper]} if wrapper else form


def _to_data(value: Any) -> Any:
    if isinstance(value, Struct):
        return {name: _to_data(getattr(value, name)) for name in value.__struct_fields__}
    return [_to_data(item) for item in value] if isinstance(value, tuple) else value


def _resolve(schema: Any, definitions: dict[str, Any]) -> Any:
    """Return the schema without references and without fields that the model is not asked for."""
    if isinstance(schema, list):
        return [_resolve(item, definitions) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _resolve(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    form = {name: _resolve(item, definitions) for name, item in schema.items() if name not in _HIDDEN}
    if "properties" in schema:
        shown = {name: item for name, item in schema["properties"].items() if not item.get("ours")}
        form["properties"] = {name: _resolve(item, definitions) for name, item in shown.items()}
        required = [name for name, item in shown.items() if item.get("needed")]
        form |= {"required": required} if required else {}
    return form


_HIDDEN = frozenset(("default", "title", "$defs", "needed", "ours", "required"))
