"""The form of plans: in replies, in entries, and read back."""

import typing
from types import NoneType
from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orihon import codec
from orihon.errors import ModelError
from orihon.planning.parser import MAX_ITEMS, parse_reply, read_entry
from orihon.planning.schema import (
    Action,
    ActionPlan,
    Change,
    Criterion,
    Decomposition,
    Goal,
    Plan,
    Reflection,
    ReplanDecision,
    Revision,
    Subtask,
    Verification,
    json_schema,
    make_entry,
)
from orihon.records import PlanEntry

KINDS = {
    "plan": Plan,
    "revision": Revision,
    "reflection": Reflection,
    "verification": Verification,
    "replan_decision": ReplanDecision,
}
PLAN = {
    "phase": "planning",
    "goal_understanding": {
        "main_objective": "Fix the total",
        "success_criteria": ["the tests pass"],
        "constraints": ["no new dependency"],
        "context_analysis": "a shop",
    },
    "task_decomposition": {
        "reasoning": "small",
        "subtasks": [
            {
                "id": "task_1",
                "description": "Mend the sum",
                "dependencies": [],
                "estimated_complexity": "low",
                "required_tools": ["edit"],
            }
        ],
    },
    "action_plan": {
        "execution_order": ["task_1"],
        "actions": [
            {
                "task_id": "task_1",
                "action_type": "tool_call",
                "tool": "edit",
                "parameters": {"path": "cart.py"},
                "purpose": "Change the loop",
                "expected_outcome": "the right sum",
                "fallback_strategy": "write the file anew",
            }
        ],
    },
    "selected_environment": {"name": "python"},
    "comment": "計画です",
}

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)


def any_of(kind: Any) -> st.SearchStrategy[Any]:  # noqa: PLR0911 - one line per kind
    """Any value that a field of this type can have."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        return any_number(kind) if arguments[0] in (int, float) else any_of(arguments[0])
    if NoneType in arguments:
        return st.none() | any_of(arguments[0])
    if origin is tuple:
        return st.lists(any_of(arguments[0]), max_size=3).map(tuple)
    if origin is dict:
        return st.dictionaries(texts, values if arguments[1] is Any else st.integers(0, 99), max_size=3)
    if origin is Literal:
        return st.sampled_from(arguments)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        hints = typing.get_type_hints(kind, include_extras=True)
        return st.builds(kind, **{name: any_of(hint) for name, hint in hints.items()})
    return {str: texts, bool: st.booleans(), Any: values}[kind]


def any_number(kind: Any) -> st.SearchStrategy[Any]:
    number, *notes = typing.get_args(kind)
    least = max((note.ge for note in notes if note.ge is not None), default=0)
    most = min((note.le for note in notes if note.le is not None), default=1000)
    return st.integers(least, most) if number is int else st.floats(least, most)


@settings(max_examples=150, deadline=None)
@given(st.one_of(*map(any_of, KINDS.values())))
def test_one_shape_all_the_way(value):
    """A value is the same after it was stored and read back."""
    unstamped = make_entry(value, "550e8400")
    assert (unstamped.id, unstamped.timestamp, KINDS[unstamped.type]) == (0, "", type(value))
    stamped = msgspec.structs.replace(unstamped, id=1, timestamp="t")
    read = codec.decode_line(codec.encode_line(stamped), PlanEntry)
    assert read.data == unstamped.data
    assert read_entry(read) == value


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(list(KINDS)), st.dictionaries(st.sampled_from(["reflection", *PLAN, "status"]) | texts, values))
def test_garbage_never_raises(kind, data):
    """Any entry gives a value or None."""
    assert isinstance(
        read_entry(PlanEntry(id=1, type=kind, task_uuid="u", data=data, timestamp="")), KINDS[kind] | None
    )


def test_the_names_are_those_of_the_prompts():
    """A plan is stored and read back under the names that the model writes."""
    plan = parse_reply(msgspec.json.encode(PLAN).decode(), Plan)
    assert plan.goal == "Fix the total"
    assert plan.goal_understanding.success_criteria == ("the tests pass",)
    assert plan.subtasks == (
        Subtask(id="task_1", description="Mend the sum", estimated_complexity="low", required_tools=("edit",)),
    )
    assert plan.actions[0].parameters == {"path": "cart.py"}
    data = make_entry(plan).data
    assert data["goal_understanding"] == PLAN["goal_understanding"]
    assert data["task_decomposition"]["subtasks"][0]["id"] == "task_1"
    assert PLAN["action_plan"]["actions"][0].items() <= data["action_plan"]["actions"][0].items()
    assert read_entry(make_entry(plan)) == plan


@pytest.mark.parametrize(
    "around",
    [
        "{}",
        "<think>{{ maybe</think>\n{}",
        "cut off thoughts</think>{}",
        "Here it is:\n```json\n{}\n```\nDone.",
        "So: {}!",
    ],
)
def test_answers_are_found(around):
    """Thoughts are dropped, and the whole text, a fenced block and the outermost braces are tried."""
    text = msgspec.json.encode(PLAN).decode()
    assert parse_reply(around.replace("{{", "{").replace("{}", text), Plan).goal == "Fix the total"


def test_a_fence_inside_a_text_is_no_fence():
    """Code in a purpose does not end the reply."""
    action = {"tool": "edit", "purpose": "write ```py\nx\n``` there"}
    text = msgspec.json.encode({"main_objective": "g", "actions": [action]}).decode()
    assert parse_reply(f"```json\n{text}\n```", Plan).actions[0].purpose == action["purpose"]


@pytest.mark.parametrize(
    ("text", "kind", "sentence"),
    [
        ("", "plan", "The model's answer holds no JSON object with a plan."),
        ("I cannot do that {", "plan", "no JSON object with a plan"),
        ("[" * 100_000, "plan", "no JSON object with a plan"),
        ('{"a":' * 100_000, "plan", "no JSON object with a plan"),
        ('{"answer": 42}', "replan_decision", "no JSON object with a replan decision"),
        ('{"comment": "x"}', "plan", "lacks goal_understanding.main_objective and action_plan.actions."),
        ('{"main_objective": "g", "actions": []}', "plan", "lacks action_plan.actions."),
        ('{"reflection": {"status": "fine"}}', "reflection", "lacks reflection.status."),
        ('{"issues_found": []}', "verification", "lacks verification_passed."),
        ('{"replan_decision": {"confidence": 0.9}}', "replan_decision", "lacks replan_decision.replan_needed."),
        ('{"plan_revision": {"changes": []}}', "revision", "lacks plan_revision.reason."),
    ],
)
def test_what_is_missing_is_named(text, kind, sentence):
    """The error names the missing fields and can be retried."""
    with pytest.raises(ModelError) as caught:
        parse_reply(text, KINDS[kind])
    assert sentence in caught.value.message
    assert caught.value.retryable


def test_one_answer_holds_a_reflection_and_a_revision():
    """The prompt for reflections asks for both. `plan_revision_needed` may stand inside or outside."""
    text = (
        '{"plan_revision_needed": true, "reflection": {"action_evaluated": "a", "status": "Success"},'
        ' "plan_revision": {"reason": "r", "changes": [{"type": "add_action", "details": {"tool": "t"}}],'
        ' "updated_action_plan": {"actions": [{"task_id": 3, "tool": "t"}]}}}'
    )
    reflection = parse_reply(text, Reflection)
    assert reflection == Reflection(action_evaluated="a", status="success", plan_revision_needed=True)
    revision = parse_reply(text, Revision)
    assert revision.changes == (Change(type="add_action", details={"tool": "t"}),)
    assert revision.updated_plan == Plan(action_plan=ActionPlan(actions=(Action(task_id="3", tool="t"),)))


@pytest.mark.parametrize(
    ("kind", "data", "value"),
    [
        ("plan", {"plan": PLAN}, parse_reply(msgspec.json.encode(PLAN).decode(), Plan)),
        ("plan", {"goal_summary": "g"}, Plan(goal_understanding=Goal(main_objective="g"))),
        (
            "plan",
            {"main_objective": "g", "subtasks": [{"task_id": 1, "description": "d"}, "x", None]},
            Plan(
                goal_understanding=Goal(main_objective="g"),
                task_decomposition=Decomposition(subtasks=(Subtask(id="1", description="d"),)),
            ),
        ),
        ("reflection", {"evaluation": {"reflection": {"status": "success"}}}, Reflection(status="success")),
        ("reflection", {"status": "failure", "new": 1}, Reflection(status="failure")),
        (
            "verification",
            {"verification_result": {"verification_passed": True}},
            Verification(verification_passed=True),
        ),
        (
            "replan_decision",
            {"phase": "execution", "llm_decision": {"replan_decision": {"replan_level": 2}}, "executed": True},
            ReplanDecision(phase="execution", replan_level=2, executed=True),
        ),
        ("revision", {"reason": "r", "updated_plan": 7}, Revision(reason="r")),
        ("plan", {}, None),
        ("plan", {"goal": "nobody's name"}, None),
        ("reflection", {"reflection": "fine"}, None),
    ],
)
def test_older_and_flat_shapes(kind, data, value):
    """Entries of other versions and flat replies are understood as far as possible."""
    assert read_entry(PlanEntry(id=1, type=kind, task_uuid="u", data=data, timestamp="")) == value


def test_wrong_types_have_their_default():
    """A wrong field gets its default. Numbers may be texts, and a single item may stand for a list."""
    data = {
        "verification_passed": "true",
        "round": "2",
        "issues_found": "one",
        "placeholder_detected": {"count": -1, "locations": [{"file": "a.py", "line": 7}, 5, None, ["x"]]},
        "criteria": {"criterion": "c", "met": "maybe"},
        "completion_confidence": 85,
        "additional_actions": [{"tool": ["x"], "parameters": "none", "status": "unheard", "purpose": "p"}],
        "comment": {"a": 1},
    }
    value = read_entry(PlanEntry(id=1, type="verification", task_uuid="u", data=data, timestamp=""))
    assert (value.verification_passed, value.round, value.issues_found, value.comment) == (True, 2, ("one",), "")
    assert (value.placeholder_detected.count, value.placeholder_detected.locations) == (0, ("file: a.py; line: 7", "5"))
    assert value.criteria == (Criterion(criterion="c"),)
    assert value.completion_confidence == 0
    assert value.additional_actions == (Action(purpose="p"),)


@pytest.mark.parametrize("number", ["NaN", "Infinity", -1, 2, True, None, "high"])
def test_a_confidence_is_a_share(number):
    """Anything but a number from 0 to 1 is no confidence."""
    data = {"replan_decision": {"replan_needed": True, "confidence": number}}
    assert read_entry(PlanEntry(id=1, type="replan_decision", task_uuid="u", data=data, timestamp="")).confidence == 0


def test_huge_and_deep():
    """Long lists are cut, and deep parameters are kept to the depth that a store supports."""
    deep: Any = "bottom"
    for _ in range(100_000):
        deep = {"a": deep}
    plan = Plan(action_plan=ActionPlan(actions=(Action(tool="t", parameters=deep),)))
    assert codec.TOO_DEEP in str(make_entry(plan).data)
    data = {"issues_identified": ["x"] * 50_000, "status": "failure"}
    read = read_entry(PlanEntry(id=1, type="reflection", task_uuid="u", data=data, timestamp=""))
    assert len(read.issues_identified) == MAX_ITEMS
    while deep != "bottom":  # taken apart by hand: Python's own way of freeing it is deep too
        deep = deep["a"]


def test_dirty_text_is_clean_data():
    """NUL and lone surrogates are replaced."""
    data = make_entry(Reflection(evaluation="a\0b\ud800c")).data
    assert data["reflection"]["evaluation"] == "a\u2400b\ufffdc"


@pytest.mark.parametrize("kind", KINDS)
def test_the_form_for_the_prompt(kind):
    """The schema has no references and no fields that Orihon fills in."""
    form = json_schema(kind)
    text = msgspec.json.encode(form).decode()
    assert "$" not in text
    assert form["type"] == "object"
    assert form["required"]
    for ours in ("executed", "replan_counts", "override_reason", '"round"', '"default"', '"ours"', '"needed"'):
        assert ours not in text
    if kind == "plan":
        parts = form["properties"]["task_decomposition"]["properties"]["subtasks"]["items"]["properties"]
        assert "status" not in parts
        assert set(parts["estimated_complexity"]["enum"]) == {"low", "medium", "high"}
