"""The coordinator: its prompts, its phases, its counters and limits, and the runs that it fails."""

import json
import logging
from itertools import pairwise

import pytest

import orihon
from orihon.agent.control import PauseRequested
from orihon.agent.handler import TaskHandler, Work
from orihon.agent.loop import Limits, Loop, StopRequested
from orihon.errors import ModelError, VerificationFailed
from orihon.planning.coordinator import PlanningCoordinator
from orihon.planning.history import read_run
from orihon.planning.schema import Plan, Reflection, ReplanDecision, Revision, Verification, json_schema
from orihon.planning.verification import collect_written_lines, find_placeholders
from orihon.records import Call, Event, Message
from orihon.settings.schema import (
    ContextInheritance,
    InheritedPlanning,
    Planning,
    Replanning,
    Settings,
)
from orihon.settings.schema import Reflection as ReflectionSettings
from orihon.settings.schema import Revision as RevisionSettings
from orihon.settings.schema import Verification as VerificationSettings
from support.planned_runs import (
    DONE,
    FAILED,
    FINE,
    KEY,
    PASSED,
    QUIET,
    ScriptedPlanner,
    Workspace,
    action,
    decision,
    entries,
    plan,
    progress,
    prompts,
    revision,
    run,
)


@pytest.fixture
def world(tmp_path):
    return Workspace(tmp_path / "world")


@pytest.fixture
def engine():
    with orihon.open("memory:", settings=Settings()) as engine:
        yield engine


def quiet(**sections):
    """Open an engine that does not reflect."""
    planning = Planning(**{"reflection": ReflectionSettings(enabled=False), **sections})
    return orihon.open("memory:", settings=Settings(planning=planning))


def of_kind(engine, row, kind):
    return [value for value in entries(engine, row.uuid) if isinstance(value, kind)]


def statuses(engine, row):
    return {one.purpose: one.status for one in read_run(engine.store, row).plan.actions}


# a complete run


def test_a_plan_is_carried_out(engine, world):
    """The task is completed after all actions and the verification, and the history has the status of each step."""
    planner = ScriptedPlanner(
        world,
        plan=[plan(action("read it"), action("mend it", "2", "write_file"))],
        acts={
            "read it": [[("read_file", {"path": "a.py"}), DONE]],
            "mend it": [[("write_file", {"path": "a.py", "content": "x = 1\n"}), DONE]],
        },
    )
    row = run(engine, planner)
    assert (row.status, row.error_message) == ("completed", None)
    assert [line.split()[0] for line in world.ran] == ["read_file", "write_file"]
    assert [type(value) for value in entries(engine, row.uuid)] == [Plan, Verification]
    assert statuses(engine, row) == {"read it": "completed", "mend it": "completed"}
    past = read_run(engine.store, row)
    assert [part.status for part in past.plan.subtasks] == ["completed", "completed"]
    assert progress(engine, row.uuid).actions == 2


def test_parameters_are_chosen_after_reading(engine, world):
    """The plan names one file, the model reads that another one matters, and writes that one."""
    (world.root / "index.txt").write_text("the price is in cart.py", "utf-8")
    seen = []

    def choose(since):
        seen.append(since[-1]["content"])
        return ("write_file", {"path": since[-1]["content"].split()[-1], "content": "x = 1\n"})

    planner = ScriptedPlanner(
        world,
        plan=[plan(action("mend the price", "1", "write_file", parameters={"path": "price.py"}))],
        acts={"mend the price": [[("read_file", {"path": "index.txt"}), choose, DONE]]},
    )
    row = run(engine, planner)
    assert row.status == "completed"
    assert seen == ["the price is in cart.py"]
    assert (world.root / "cart.py").exists()
    assert not (world.root / "price.py").exists()
    (told,) = prompts(engine, row.uuid, "action")
    assert 'Parameters (draft): {"path": "price.py"}' in told


def test_the_order_of_work(engine, world):
    """Actions follow `execution_order`, and a subtask waits for its dependencies."""
    parts = [{"id": "a"}, {"id": "b", "dependencies": ["c"]}, {"id": "c"}]
    order = {"execution_order": ["b", "c", "a"]}
    planner = ScriptedPlanner(
        world, plan=[plan(action("A", "a"), action("B", "b"), action("C", "c"), subtasks=parts, **order)]
    )
    row = run(engine, planner)
    told = [line for text in prompts(engine, row.uuid, "action") for line in text.splitlines() if "Purpose" in line]
    assert told == ["Purpose: C", "Purpose: B", "Purpose: A"]


def test_circular_dependencies(engine, world):
    """Subtasks that depend on each other are carried out anyway."""
    parts = [{"id": "a", "dependencies": ["b", "a"]}, {"id": "b", "dependencies": ["a"]}]
    row = run(engine, ScriptedPlanner(world, plan=[plan(action("A", "a"), action("B", "b"), subtasks=parts)]))
    assert statuses(engine, row) == {"A": "completed", "B": "completed"}


def test_two_actions_with_one_purpose_are_two(engine, world):
    """Completing the first does not complete the second."""
    planner = ScriptedPlanner(world, plan=[plan(action("test"), action("test"))])
    row = run(engine, planner)
    assert statuses(engine, row) == {"test": "completed", "test (2)": "completed"}


def test_the_form_is_the_schema(engine, world):
    """Every prompt shows the schema of the reply, and a model with structured output receives it as a parameter."""
    planner = ScriptedPlanner(world, plan=[plan(action("A"))])
    row = run(engine, planner)
    (told,) = prompts(engine, row.uuid, "plan")
    assert json.loads(told.splitlines()[-1]) == json_schema("plan")
    assert planner.forms == [{}, {}, {}]
    structured = ScriptedPlanner(world, plan=[plan(action("A"))])
    structured.structured = True
    run(engine, structured)
    assert structured.forms == [{"schema": json_schema("plan")}, {}, {"schema": json_schema("verification")}]


def test_prompts_and_structured_replies_are_marked(engine, world):
    """Their keys begin with `orihon:planning:`; the report of an action is conversation, and has no key."""
    row = run(engine, ScriptedPlanner(world, plan=[[("read_file", {"path": "a"}), plan(action("A"))]]))
    messages = [one for one in engine.store.read(row.uuid, Message) if one.role in {"user", "assistant"}]
    planned, report = [[one for one in messages if bool(one.key) is has_key] for has_key in (True, False)]
    assert [one.text for one in report] == [DONE]
    assert [one.key.removeprefix("orihon:") for one in planned if one.role == "user"] == [
        "request", "planning:1", "planning:2", "planning:3"
    ]  # fmt: skip
    replies = [one for one in planned if one.role == "assistant"]
    assert [one.key for one in replies] == [
        f"orihon:planning:{n}:{one.seq}" for n, one in zip((1, 1, 3), replies, strict=True)
    ]
    assert [json.loads(one.text) for one in replies[1:]] == [plan(action("A")), PASSED]


def test_an_answer_that_cannot_be_read_is_asked_for_again(engine, world):
    """The model is told twice what is missing; then its reply is found between other text."""
    whole = f"<think>hm</think>Here it is:\n```json\n{json.dumps(plan(action('A')))}\n```"
    row = run(
        engine, ScriptedPlanner(world, plan=["I will think.", {"goal_understanding": {"main_objective": "x"}}, whole])
    )
    assert row.status == "completed"
    first, second = prompts(engine, row.uuid, "again")
    assert "no JSON object" in first
    assert "lacks action_plan.actions" in second


def test_a_plan_that_cannot_be_read_fails_the_task(engine, world):
    """After the repeated requests the run fails and gives the reason."""
    row = run(engine, ScriptedPlanner(world, plan=["No."]))
    assert row.status == "failed"
    assert "no JSON object" in row.error_message
    assert len(prompts(engine, row.uuid)) == 3
    assert entries(engine, row.uuid) == []


def test_a_provider_that_is_away_is_no_unreadable_answer(engine, world):
    """A verification that could not be requested is not recorded as failed."""

    def away(_):
        raise ModelError("The provider is away.")

    row = run(engine, ScriptedPlanner(world, plan=[plan(action("A"))], verification=[away]))
    assert (row.status, row.error_message) == ("failed", "The provider is away.")
    assert of_kind(engine, row, Verification) == []


def test_steps_have_a_limit(world):
    """A plan takes no more actions than `max_subtasks`."""
    with quiet(max_subtasks=2) as engine:
        row = run(engine, ScriptedPlanner(world, plan=[plan(action("A"), action("B"), action("C"))]))
        assert (row.status, row.reason) == ("failed", "limit: actions")
        assert "its 2 actions" in row.error_message


# the result of an action


@pytest.mark.parametrize(
    ("steps", "status"),
    [
        ([DONE], "completed"),
        ([FAILED], "failed"),
        (["All went well."], "completed"),
        ([("run_tests", {"fails": "red"}), "Done, I think."], "failed"),
        ([("run_tests", {"fails": "red"}), ("run_tests", {}), "Green now."], "completed"),
        ([("run_tests", {"fails": "red"}), DONE], "completed"),
        (['{"status": "failure"}'], "failed"),
        (['Half. {"reflection": {"status": "partial"}}'], "completed"),
    ],
)
def test_the_outcome_of_an_action(world, steps, status):
    """The report of the model decides, in any form; without one, its last tool result."""
    with quiet(verification=VerificationSettings(enabled=False)) as engine:
        row = run(engine, ScriptedPlanner(world, plan=[plan(action("A"))], acts={"A": [steps]}))
        assert progress(engine, row.uuid).steps == (status,)
        assert row.status == ("completed" if status == "completed" else "failed")


def test_a_tool_that_keeps_failing_fails_the_action_alone(world):
    """Three failures in a row end a run without a plan. With a plan, they fail the action."""
    with quiet() as engine:
        planner = ScriptedPlanner(
            world,
            plan=[plan(action("A"))],
            acts={"A": [[("run_tests", {"fails": f"red {count}"}) for count in range(9)], [DONE]]},
            decision=[decision(replan_level=1)],
        )
        row = run(engine, planner)
        assert row.status == "completed"
        assert len(world.ran) == 3
        assert "run_tests failed 3 times" in prompts(engine, row.uuid, "decision")[0]


def test_what_needs_a_failed_part_is_skipped(world):
    """Actions that depend on a failed subtask are skipped. Without a verification the task fails."""
    parts = [{"id": "1"}, {"id": "2", "dependencies": ["1"]}, {"id": "3"}]
    steps = plan(action("A", "1"), action("B", "2"), action("C", "3"), subtasks=parts)
    with quiet(verification=VerificationSettings(enabled=False)) as engine:
        row = run(engine, ScriptedPlanner(world, plan=[steps], acts={"A": [[FAILED]]}))
        assert statuses(engine, row) == {"A": "failed", "B": "skipped", "C": "completed"}
        assert (row.status, row.reason) == ("failed", "VerificationFailed")


# reflection


def test_reflection_every_so_many_actions(world):
    """There is a reflection after every third action and no other."""
    with orihon.open("memory:", settings=Settings()) as engine:
        row = run(engine, ScriptedPlanner(world, plan=[plan(*(action(str(number)) for number in range(7)))]))
        assert len(of_kind(engine, row, Reflection)) == 2
        kinds = [text.split()[0] for text in prompts(engine, row.uuid)]
        assert kinds == ["Plan", *["Action"] * 3, "Reflect", *["Action"] * 3, "Reflect", "Action", "Verify"]


def test_reflection_on_errors(engine, world):
    """A failed or partly done action is followed by a reflection, unless a setting turns that off."""
    acts = {"A": [[FAILED]], "B": [['{"status": "partial"}']]}
    steps = plan(action("A", "1"), action("B", "2"))
    row = run(engine, ScriptedPlanner(world, plan=[steps], acts=acts))
    first, second = prompts(engine, row.uuid, "reflection")
    assert "Purpose: A" in first
    assert "Error: the port is taken" in first
    assert "Purpose: B" in second
    off = Planning(reflection=ReflectionSettings(trigger_on_error=False, trigger_interval=0))
    with orihon.open("memory:", settings=Settings(planning=off)) as other:
        row = run(other, ScriptedPlanner(world, plan=[steps], acts=acts))
        assert prompts(other, row.uuid, "reflection") == []


def test_a_reflection_corrects_the_status(engine, world):
    """A reflection can report that a failed action succeeded. Then nothing is replanned."""
    said = {"reflection": {"status": "success", "action_evaluated": "open the door"}}
    planner = ScriptedPlanner(
        world, plan=[plan(action("open the door"))], acts={"open the door": [[FAILED]]}, reflection=[said]
    )
    row = run(engine, planner)
    assert statuses(engine, row) == {"open the door": "completed"}
    assert prompts(engine, row.uuid, "decision") == []


def test_a_reflection_changes_the_plan(engine, world):
    """The revision is recorded with the complete plan, and completed actions are not repeated."""
    needed = {"reflection": {"status": "failure", "plan_revision_needed": True}}
    planner = ScriptedPlanner(
        world,
        plan=[plan(action("A"), action("B", "2"), action("C", "2"))],
        acts={"B": [[FAILED]]},
        reflection=[needed | revision(action("A"), action("D", "2"), reason="B is impossible"), FINE],
    )
    row = run(engine, planner)
    assert row.status == "completed"
    (kept,) = of_kind(engine, row, Revision)
    assert kept.reason == "B is impossible"
    assert [(one.purpose, one.status) for one in kept.updated_plan.actions] == [
        ("B", "failed"),
        ("A", "completed"),
        ("D", "pending"),
    ]
    assert statuses(engine, row) == {"A": "completed", "B": "failed", "D": "completed"}
    assert prompts(engine, row.uuid, "decision") == []
    assert progress(engine, row.uuid).revisions == 1


def test_a_revision_that_is_missing_is_asked_for(engine, world):
    """A reflection may say that the plan should change without giving a new one."""
    needed = {"reflection": {"status": "failure", "plan_revision_needed": True}}
    planner = ScriptedPlanner(
        world,
        plan=[plan(action("A"))],
        acts={"A": [[FAILED]]},
        reflection=[needed],
        revision=[revision(action("B"))],
    )
    row = run(engine, planner)
    assert statuses(engine, row) == {"A": "failed", "B": "completed"}


def test_revisions_have_a_limit(world):
    """After `max_revisions` the plan stays as it is."""
    needed = {"reflection": {"status": "partial", "plan_revision_needed": True}}
    again = [needed | revision(*(action(f"{turn}.{number}") for number in range(3))) for turn in range(9)]
    planning = Planning(reflection=ReflectionSettings(trigger_interval=1), revision=RevisionSettings(max_revisions=2))
    with orihon.open("memory:", settings=Settings(planning=planning)) as engine:
        row = run(engine, ScriptedPlanner(world, plan=[plan(action("A"), action("B"), action("C"))], reflection=again))
        assert row.status == "completed"
        assert len(of_kind(engine, row, Revision)) == progress(engine, row.uuid).revisions == 2
        assert progress(engine, row.uuid).actions == 5


def test_a_reflection_that_cannot_be_read_is_left_out(engine, world, caplog):
    """The run continues, and the log gives the reason."""
    planner = ScriptedPlanner(world, plan=[plan(*(action(str(number)) for number in range(3)))], reflection=["Fine."])
    row = run(engine, planner)
    assert row.status == "completed"
    assert of_kind(engine, row, Reflection) == []
    assert "There is no reflection" in caplog.text


# replanning


def failing(world, *decisions, again=DONE, **answers):
    """A planner whose first action fails, with its decisions after that."""
    return ScriptedPlanner(
        world,
        plan=[plan(action("A"), action("B", "2"))],
        acts={"A": [[FAILED], [again]]},
        decision=list(decisions),
        **answers,
    )


@pytest.mark.parametrize("fields", [{"replan_level": 1}, {"replan_type": "retry"}])
def test_level_1_tries_again(world, fields):
    """The action is retried with the recovery strategy, and the plan stays the same."""
    with quiet() as engine:
        row = run(engine, failing(world, decision(recovery_strategy="wait a little", **fields)))
        assert statuses(engine, row) == {"A": "completed", "B": "completed"}
        assert "For this attempt: wait a little" in prompts(engine, row.uuid, "action")[1]
        assert "For this try" not in prompts(engine, row.uuid, "action")[2]
        (kept,) = of_kind(engine, row, ReplanDecision)
        assert (kept.executed, kept.override_reason, kept.phase) == (True, "", "execution")
        assert kept.replan_counts == {"retry": 1, "total": 1}
        assert of_kind(engine, row, Revision) == []


@pytest.mark.parametrize(
    ("level", "kind", "new", "ended", "goal", "parts"),
    [
        (2, "partial_replan", revision(action("C")), {"A": "failed", "C": "completed"}, "Mend the shop", 2),
        (
            3,
            "action_regeneration",
            revision(action("A"), action("B", "2"), action("C", "2")),
            dict.fromkeys("ABC", "completed"),
            "Mend the shop",
            2,
        ),
        (
            4,
            "task_redecomposition",
            revision(
                action("C", "9"),
                goal_understanding={"main_objective": "Another"},
                task_decomposition={"subtasks": [{"id": "9", "description": "whole"}]},
            ),
            {"A": "failed", "C": "completed"},
            "Mend the shop",
            1,
        ),
        (
            5,
            "goal_revision",
            revision(
                action("C", "9"),
                goal_understanding={"main_objective": "Another"},
                task_decomposition={"subtasks": [{"id": "9", "description": "whole"}]},
            ),
            {"A": "failed", "C": "completed"},
            "Another",
            1,
        ),
    ],
)
def test_levels_2_to_5_change_more_and_more(*, world, level, kind, new, ended, goal, parts):
    """Each level changes only the parts that it may change, and the revision is recorded."""
    with quiet() as engine:
        row = run(engine, failing(world, decision(replan_level=level), revision=[new]))
        past = read_run(engine.store, row)
        assert statuses(engine, row) == ended
        assert (past.plan.goal, len(past.plan.subtasks)) == (goal, parts)
        assert progress(engine, row.uuid).replans == {kind: 1, "total": 1}
        assert [type(value) for value in entries(engine, row.uuid)][1:3] == [ReplanDecision, Revision]


@pytest.mark.parametrize("kind", ["plan_revision", "full_replan"])
def test_other_types_do_what_they_say(world, kind):
    """Every replan type is executed, not only counted."""
    new = revision(action("C", "1"), goal_understanding={"main_objective": "Another"})
    with quiet() as engine:
        row = run(engine, failing(world, decision(replan_type=kind), revision=[new]))
        assert statuses(engine, row) == {"A": "failed", "C": "completed"}
        assert read_run(engine.store, row).plan.goal == ("Another" if kind == "full_replan" else "Mend the shop")
        assert progress(engine, row.uuid).replans[kind] == 1


@pytest.mark.parametrize(
    ("confidence", "done", "warned", "asked"),
    [
        (0.8, True, False, False),
        (0.79, True, True, False),
        (0.5, True, True, False),
        (0.49, True, False, True),
        (0.3, True, False, True),
        (0.29, False, False, False),
        (0.0, False, False, False),
    ],
)
def test_confidence(*, world, caplog, confidence, done, warned, asked):
    """A confident decision is executed, a less confident one with a warning or a question, and a guess is ignored."""
    questions = []
    with quiet() as engine, caplog.at_level(logging.WARNING, "orihon"):
        made = decision(confidence, replan_level=1, clarification_questions=["Which port?"])
        row = run(engine, failing(world, made), ask_user=lambda texts: questions.extend(texts) or "8080")
        (kept,) = of_kind(engine, row, ReplanDecision)
        assert kept.executed is done
        assert statuses(engine, row)["A"] == ("completed" if done else "failed")
        assert (f"with a confidence of {confidence:g}" in caplog.text) is warned
        assert questions == ["Which port?"] * asked
        assert bool(progress(engine, row.uuid).questions) is asked
        assert ("below 0.3" in kept.override_reason) is not done


def test_the_thresholds_are_settings(world):
    """Lower thresholds lead to fewer questions."""
    with quiet(replanning=Replanning(min_confidence_threshold=0.2, user_confirmation_threshold=0.1)) as engine:
        row = run(engine, failing(world, decision(0.25, replan_level=1)))
        assert of_kind(engine, row, ReplanDecision)[0].executed
        assert progress(engine, row.uuid).questions == ()


def test_the_user_answers(world):
    """The answer is stored and given to the model with the next attempt."""
    with quiet() as engine:
        made = decision(0.9, replan_type="clarification_request", clarification_questions=["Which port?"])
        row = run(engine, failing(world, made), ask_user=lambda _: "8080")
        assert "Answer of the user: 8080" in prompts(engine, row.uuid, "action")[1]
        (question,) = progress(engine, row.uuid).questions
        assert (question.questions, question.answer) == (("Which port?",), "8080")


@pytest.mark.parametrize("ask_user", [None, lambda _: None])
def test_the_user_does_not_answer(world, ask_user):
    """The run continues with the assumptions of the model, which are stored."""
    with quiet() as engine:
        made = decision(0.4, replan_level=2, assumptions_to_make=["it is 8080"])
        row = run(engine, failing(world, made, revision=[revision(action("C"))]), ask_user=ask_user)
        assert "The user did not answer; assume: it is 8080" in prompts(engine, row.uuid, "revision")[0]
        (question,) = progress(engine, row.uuid).questions
        assert (question.questions, question.answer, question.assumptions) == (("it failed",), None, ("it is 8080",))
        assert statuses(engine, row) == {"A": "failed", "C": "completed"}


def test_a_loop_is_refused(world):
    """The same replan at the same place is refused the third time, and the run continues."""
    with quiet() as engine:
        row = run(engine, failing(world, decision(replan_level=1), again=FAILED))
        kept = of_kind(engine, row, ReplanDecision)
        assert [one.executed for one in kept] == [True, True, False]
        assert kept[-1].override_reason == "It is a loop: execution/1 A:retry was done 2 times."
        assert statuses(engine, row) == {"A": "failed", "B": "completed"}
        assert progress(engine, row.uuid).pairs == {"execution/1 A:retry": 2}


@pytest.mark.parametrize(
    ("kind", "setting", "most"),
    [
        ("retry", "max_action_retries", 1),
        ("partial_replan", "max_partial_replans", 1),
        ("action_regeneration", "max_regeneration_attempts", 2),
        ("task_redecomposition", "max_redecomposition_attempts", 1),
        ("goal_revision", "max_redecomposition_attempts", 2),
        ("plan_revision", "max_plan_revisions", 1),
        ("clarification_request", "max_clarification_requests", 1),
        ("retry", "max_total_replans", 2),
        ("partial_replan", "max_total_replans", 0),
    ],
)
def test_limits(world, kind, setting, most):
    """Each replan type has a limit, and so has their total."""
    settings = Replanning(same_trigger_max_count=9, **{setting: most})
    new = revision(action("A"), task_decomposition={"subtasks": [{"id": "1"}]})
    with quiet(replanning=settings) as engine:
        planner = ScriptedPlanner(
            world,
            plan=[plan(action("A"))],
            acts={"A": [[FAILED]]},
            decision=[decision(replan_type=kind)],
            revision=[new],
        )
        row = run(engine, planner)
        kept = of_kind(engine, row, ReplanDecision)
        assert [one.executed for one in kept] == [True] * most + [False]
        assert f"The limit of {most} for" in kept[-1].override_reason
        assert progress(engine, row.uuid).replans.get("total", 0) == most


def test_no_new_plan_resets_a_counter(world):
    """All counters only grow, even with a new goal."""
    new = revision(
        action("A"), goal_understanding={"main_objective": "x"}, task_decomposition={"subtasks": [{"id": "1"}]}
    )
    with quiet(replanning=Replanning(same_trigger_max_count=9, max_redecomposition_attempts=9)) as engine:
        planner = ScriptedPlanner(
            world,
            plan=[plan(action("A"))],
            acts={"A": [[FAILED]]},
            decision=[decision(replan_level=level) for level in (1, 5, 1, 4, 5, 1, 2, 3, 5, 5, 5)],
            revision=[new],
        )
        row = run(engine, planner)
        kept = of_kind(engine, row, ReplanDecision)
        totals = [one.replan_counts.get("total", 0) for one in kept]
        assert totals == [*range(1, 11), 10]
        for before, after in pairwise(kept):
            assert all(after.replan_counts[name] >= count for name, count in before.replan_counts.items())
        assert progress(engine, row.uuid).actions == 11


def test_replanning_can_be_off(world):
    """A failed action stays failed, and the model is not asked for a decision."""
    with quiet(replanning=Replanning(enabled=False)) as engine:
        row = run(engine, failing(world, decision()))
        assert prompts(engine, row.uuid, "decision") == []
        assert statuses(engine, row) == {"A": "failed", "B": "completed"}


def test_a_decision_that_brings_no_plan_is_not_counted(world):
    """Without a readable new plan the old one stays, and the record gives the reason."""
    with quiet() as engine:
        row = run(engine, failing(world, decision(replan_level=3), revision=["I cannot."]))
        (kept,) = of_kind(engine, row, ReplanDecision)
        assert (kept.executed, kept.replan_counts) == (False, {})
        assert "no JSON object" in kept.override_reason
        assert statuses(engine, row) == {"A": "failed", "B": "completed"}


def test_a_decision_that_cannot_be_read_is_none(world):
    """The run continues without it."""
    with quiet() as engine:
        row = run(engine, failing(world, "Hm."))
        assert of_kind(engine, row, ReplanDecision) == []
        assert statuses(engine, row) == {"A": "failed", "B": "completed"}


# verification


def test_a_failing_verification_is_no_success(engine, world):
    """After two rounds with additional work in between, the task fails and says what is left."""
    left = {"verification_passed": False, "issues_found": ["The door is shut."]}
    planner = ScriptedPlanner(
        world, plan=[plan(action("A"))], verification=[left | {"additional_actions": [action("B")]}, left]
    )
    row = run(engine, planner)
    assert (row.status, row.reason) == ("failed", "VerificationFailed")
    assert row.error_message == "The verification failed 2 times. The door is shut."
    rounds = of_kind(engine, row, Verification)
    assert [(one.round, one.verification_passed) for one in rounds] == [(1, False), (2, False)]
    assert statuses(engine, row) == {"A": "completed", "B": "completed"}
    assert VerificationFailed().hint


def test_more_rounds(world):
    """`max_rounds` limits how often the work is verified."""
    left = {"verification_passed": False, "issues_found": ["The door is shut."]}
    with quiet(verification=VerificationSettings(max_rounds=3)) as engine:
        row = run(engine, ScriptedPlanner(world, plan=[plan(action("A"))], verification=[left, left, PASSED]))
        assert row.status == "completed"
        assert [one.round for one in of_kind(engine, row, Verification)] == [1, 2, 3]


def test_issues_of_a_verification_are_resolved(engine, world):
    """Without additional actions the issues become an action, and the revision is recorded."""
    left = {"verification_passed": False, "issues_found": ["The door is shut."]}
    row = run(engine, ScriptedPlanner(world, plan=[plan(action("A"))], verification=[left, PASSED]))
    assert row.status == "completed"
    (kept,) = of_kind(engine, row, Revision)
    assert [one.purpose for one in kept.updated_plan.actions][1:] == [
        "Resolve what the verification found: The door is shut."
    ]
    assert [one.type for one in kept.changes] == ["add_action"]


def test_the_same_work_again_is_done_again(engine, world):
    """An additional action with the purpose of a completed one is carried out."""
    left = {"verification_passed": False, "additional_actions": [action("test")]}
    planner = ScriptedPlanner(world, plan=[plan(action("test"))], acts={"test": [[("run_tests", {}), DONE], [("run_tests", {"again": 1}), DONE]]}, verification=[left, PASSED])  # fmt: skip  # noqa: E501
    row = run(engine, planner)
    assert row.status == "completed"
    assert len(world.ran) == 2


@pytest.mark.parametrize(
    "answer",
    [
        PASSED | {"criteria": [{"criterion": "the tests pass", "met": False}]},
        PASSED | {"placeholder_detected": {"count": 1, "locations": ["a.py:3"]}},
        PASSED | {"additional_actions": [action("more")]},
        "It looks good to me.",
    ],
)
def test_what_contradicts_itself_does_not_pass(world, answer):
    """A passed verification with an unmet criterion, a placeholder or more work does not pass."""
    with quiet(verification=VerificationSettings(max_rounds=1)) as engine:
        row = run(engine, ScriptedPlanner(world, plan=[plan(action("A"))], verification=[answer]))
        assert (row.status, row.reason) == ("failed", "VerificationFailed")
        assert not of_kind(engine, row, Verification)[0].verification_passed


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("a.py", "def pay():\n    pass\n", ["a.py:2: pass"]),
        ("a.py", "def pay():\n    '''Pay.'''\n    ...\n", ["a.py:3: ..."]),
        (
            "a.py",
            "def pay():\n    raise NotImplementedError('later')\n",
            ["a.py:2: raise NotImplementedError('later')"],
        ),
        ("a.py", "x = 1  # TODO: the rest\n", ["a.py:1: x = 1  # TODO: the rest"]),
        ("a.js", "// FIXME\nlet x = 1\n", ["a.js:1: // FIXME"]),
        ("a.go", "func pay() {\n\t// your code here\n}\n", ["a.go:2: // your code here"]),
        ("a.py", "# ここに実装\n", ["a.py:1: # ここに実装"]),
        ("a.ts", "throw new Error('not implemented')\n", ["a.ts:1: throw new Error('not implemented')"]),
        ("a.md", "# TODO list app\n", []),
        ("a.py", "try:\n    x()\nexcept OSError:\n    pass\n", []),
        ("a.py", "class A(Protocol):\n    def pay(self): ...\n", []),
        ("a.py", "@abstractmethod\ndef pay(self):\n    raise NotImplementedError\n", []),
        ("a.py", "def pay():\n    '''It does nothing, and says so.'''\n", []),
        ("a.py", "name = 'todo'\n", []),
        ("a.bin", "\0TODO", []),
        ("../out.py", "# TODO\n", []),
    ],
)
def test_placeholders_in_files(world, name, text, found):
    """Placeholders in written files are found, whatever the model says."""
    with quiet(verification=VerificationSettings(max_rounds=1)) as engine:
        acts = {"A": [[("write_file", {"path": name, "content": text}), DONE]]}
        row = run(engine, ScriptedPlanner(world, plan=[plan(action("A"))], acts=acts))
        (kept,) = of_kind(engine, row, Verification)
        assert list(kept.placeholder_detected.locations) == found
        assert row.status == ("failed" if found else "completed")
        (told,) = prompts(engine, row.uuid, "verification")
        assert ("Found in the files that you wrote:" in told) is bool(found)


def test_older_placeholders_do_not_count(world):
    """Only lines that a tool was given count, so an edit next to an old TODO is fine."""
    (world.root / "a.py").write_text("x = 1  # TODO: old\ny = 2\n", "utf-8")
    call = Call(id="c", name="edit_file", arguments=json.dumps({"path": "a.py", "old": "y = 1", "new": "y = 2"}))
    asked = Message(seq=1, role="assistant", content="", tool_calls=[call], timestamp="", tokens=0)
    said = Message(seq=2, role="tool", tool_call_id="c", content="ok", timestamp="", tokens=0)
    files = collect_written_lines([asked, said], load=lambda _: b"")
    assert files == {"a.py": {"y = 1", "y = 2"}}
    assert find_placeholders(world.root, files) == []
    (world.root / "a.py").write_text("y = 2  # TODO: new\n", "utf-8")
    assert find_placeholders(world.root, files | {"a.py": {"y = 2  # TODO: new"}}) == ["a.py:1: y = 2  # TODO: new"]


def test_verification_can_be_off(world):
    """A plan whose steps all worked is done."""
    with quiet(verification=VerificationSettings(enabled=False)) as engine:
        row = run(engine, ScriptedPlanner(world, plan=[plan(action("A"))]))
        assert row.status == "completed"
        assert prompts(engine, row.uuid, "verification") == []


# earlier runs


def stopped(engine, world, request="Mend the shop."):
    """A run that is stopped after its first action."""
    planner = ScriptedPlanner(
        world,
        plan=[plan(action("read it all"), action("mend the price", "2"), action("test the shop", "3"))],
        acts={"read it all": [[("read_file", {"path": "a.py"}), DONE]]},
    )

    def check(task):
        state = task.log.view.state.notes.get("planning", {})
        if state.get("actions", 0) >= 1:
            raise StopRequested("no longer assigned")

    handler = TaskHandler(engine, planner, world, planning=True, checks=(check,))
    row = handler.handle(Work(key=KEY, request=request))
    assert row.status == "stopped"
    return row


def test_a_stopped_plan_is_continued(engine, world):
    """With the same request the old plan is shown with its status, and completed actions are not repeated."""
    stopped(engine, world)
    planner = ScriptedPlanner(world, plan=[plan(action("read it all"), action("mend the price", "2"))])
    row = run(engine, planner)
    assert progress(engine, row.uuid).applicability == "continue"
    (told,) = prompts(engine, row.uuid, "plan")
    assert "Continue its plan" in told
    assert "1. [completed] (1) read_file: read it all" in told
    assert "2. [pending] (2) read_file: mend the price" in told
    done = [line for text in prompts(engine, row.uuid, "action") for line in text.splitlines() if "Purpose" in line]
    assert done == ["Purpose: mend the price"]
    assert statuses(engine, row) == {"read it all": "completed", "mend the price": "completed"}


@pytest.mark.parametrize("why", ["request", "completed", "setting"])
def test_otherwise_a_plan_is_a_reference(world, why):
    """After another request, after a completed run, or by a setting, a new plan is made."""
    inherit = ContextInheritance(planning=InheritedPlanning(inherit_plans=why != "setting"))
    with orihon.open("memory:", settings=Settings(context_inheritance=inherit)) as engine:
        if why == "completed":
            run(engine, ScriptedPlanner(world, plan=[plan(action("read it all"))]))
        else:
            stopped(engine, world, "Close the shop for ever, please." if why == "request" else "Mend the shop.")
        row = run(engine, ScriptedPlanner(world, plan=[plan(action("read it all"))]))
        assert progress(engine, row.uuid).applicability == "reference"
        (told,) = prompts(engine, row.uuid, "plan")
        assert "make a plan of your own" in told
        assert "[completed]" not in told
        assert len(prompts(engine, row.uuid, "action")) == 1


def test_nothing_to_inherit(engine, world):
    """The first run of a key inherits nothing, and neither does a run with `inherit=False`."""
    first = run(engine, ScriptedPlanner(world, plan=[plan(action("A"))]))
    second = run(engine, ScriptedPlanner(world, plan=[plan(action("A"))]), options={"inherit": False})
    for row in (first, second):
        assert progress(engine, row.uuid).applicability == "new"
        assert "earlier run" not in prompts(engine, row.uuid, "plan")[0]


def taught(engine, world):
    """A run with a failure that was overcome, a revision, a placeholder and an unmet criterion."""
    parts = [{"id": "1", "description": "the tests"}, {"id": "2", "description": "the price", "dependencies": ["1"]}]
    needed = {"reflection": {"status": "failure", "action_evaluated": "mend the price", "root_cause": "no lock file",
                             "issues_identified": ["the cache is stale"], "remedy": "make clean",
                             "plan_revision_needed": True}}  # fmt: skip
    planner = ScriptedPlanner(
        world,
        plan=[plan(action("run the tests", "1", "run_tests"), action("mend the price", "2"), subtasks=parts)],
        acts={
            "run the tests": [[("run_tests", {}), DONE]],
            "mend the price": [[("read_file", {"fails": "no such file"}), FAILED], [DONE]],
        },
        reflection=[needed | revision(action("mend the price", "2"), reason="clean first"), FINE],
        verification=[
            {
                "verification_passed": False,
                "placeholder_detected": {"count": 1, "locations": ["price.py:7"]},
                "criteria": [{"criterion": "the tests pass", "met": False}],
                "additional_actions": [action("fill in price.py")],
            },
            PASSED,
        ],
    )
    row = run(engine, planner)
    assert row.status == "completed"
    return row


def test_lessons_are_in_the_prompts(engine, world):
    """Each prompt quotes the lessons that concern it."""
    taught(engine, world)
    parts = [{"id": "p", "description": "the price"}, {"id": "t", "description": "the tests"}]
    again = plan(action("mend the price", "p"), action("paint", "t", "write_file"), subtasks=parts)
    row = run(
        engine, ScriptedPlanner(world, plan=[again], acts={"mend the price": [[FAILED]]}), "Mend the shop once more."
    )
    (told,) = prompts(engine, row.uuid, "plan")
    assert "- Worked: run the tests (run_tests)" in told
    assert "- Failed: mend the price (read_file): no lock file (worked later) → what helped: make clean" in told
    assert "- Dependency: the price ← the tests" in told
    assert "- Harder than estimated: the price (medium → high)" in told
    first, second = prompts(engine, row.uuid, "action")
    paint, mend = sorted((first, second), key=len)
    assert "- Failed: mend the price (read_file): no lock file (worked later) → what helped: make clean" in mend
    assert "- Tool: read_file: 0 worked, 1 failed" in mend
    assert "Earlier runs" not in paint
    reflection = prompts(engine, row.uuid, "reflection")[0]
    assert "- Plan revised: clean first" in reflection
    assert "- Problem: the cache is stale (cause: no lock file)" in reflection
    assert "- Failed: mend the price (read_file): no lock file (worked later) → what helped: make clean" in reflection
    verification = prompts(engine, row.uuid, "verification")[0]
    assert "- Placeholder found: price.py:7" in verification
    assert "- Criterion not met: the tests pass" in verification
    assert "- Additional work: fill in price.py" in verification


def test_lessons_are_merged_into_the_plan(engine, world):
    """Dependencies, complexity, remedies and tools of earlier runs are merged into the new plan."""
    taught(engine, world)
    parts = [{"id": "p", "description": "the price"}, {"id": "t", "description": "the tests"}]
    again = plan(action("mend the price", "p"), action("run the tests", "t", ""), subtasks=parts)
    row = run(engine, ScriptedPlanner(world, plan=[again]), "Mend the shop once more.")
    made = of_kind(engine, row, Plan)[0]
    price, _ = made.subtasks
    assert (price.dependencies, price.estimated_complexity) == (("t",), "high")
    mend, tests = made.actions
    assert (mend.fallback_strategy, tests.tool) == ("make clean", "run_tests")
    told = [line for text in prompts(engine, row.uuid, "action") for line in text.splitlines() if "Purpose" in line]
    assert told == ["Purpose: run the tests", "Purpose: mend the price"]


def test_settings_keep_things_back(world):
    """Each switch of `context_inheritance.planning` removes its lessons from the prompts."""
    switches = InheritedPlanning(
        inherit_plans=False, inherit_verifications=False, inherit_reflections=False, reuse_successful_patterns=False
    )
    settings = Settings(context_inheritance=ContextInheritance(planning=switches))
    with orihon.open("memory:", settings=settings) as engine:
        taught(engine, world)
        row = run(
            engine, ScriptedPlanner(world, plan=[plan(action("mend the price"))], acts={"mend the price": [[FAILED]]})
        )
        said = "\n".join(prompts(engine, row.uuid))
        for text in ("make clean", "clean first", "price.py:7", "run_tests", "harder"):
            assert text not in said


def test_a_strategy_is_inherited(world):
    """What helped after a failure is in the block of the next run, although the model named no affected action."""
    with quiet() as engine:
        run(engine, failing(world, decision(replan_level=1, recovery_strategy="wait a little")))
        block = engine.inheritance(KEY).text
    assert "Replanned: it failed → wait a little" in block
    assert "A (read_file): it failed (worked later) → what helped: wait a little" in block
    assert "If this fails again: A → wait a little" in block


def test_names_of_users_are_removed(world):
    """The name of the user of an earlier run is not in a prompt, where runs of other users are inherited."""
    settings = Settings(context_inheritance=ContextInheritance(across_users=True))
    with orihon.open("memory:", settings=settings) as engine:
        planner = ScriptedPlanner(world, plan=[plan(action("ask marianne_k about it"))])
        TaskHandler(engine, planner, world, planning=True).handle(Work(key=KEY, request="Mend.", user="marianne_k"))
        row = run(engine, ScriptedPlanner(world, plan=[plan(action("A"))]))
        (told,) = prompts(engine, row.uuid, "plan")
    assert "- Worked: ask [name] about it" in told


def test_a_run_that_ends_meanwhile_changes_nothing(engine, world):
    """The runs to learn from are chosen once."""
    taught(engine, world)
    looks = iter(range(100))

    def check(_):
        if next(looks) == 4:
            raise PauseRequested("now")

    planner = ScriptedPlanner(world, plan=[plan(action("mend the price"))])
    handler = TaskHandler(engine, planner, world, planning=True, checks=(check,))
    row = handler.handle(Work(key=KEY, request="Again."))
    chosen = progress(engine, row.uuid).inherited
    run(engine, ScriptedPlanner(world, plan=[plan(action("B"))]), "In between.")
    ended = handler.resume(row.uuid)
    assert ended.status == "completed"
    assert progress(engine, row.uuid).inherited == chosen


# languages, windows and limits


def test_japanese(engine, world):
    """A task in Japanese is planned, carried out and verified in Japanese."""
    planner = ScriptedPlanner(
        world,
        plan=["うーん。", plan(action("価格を直す"), goal="店を直す")],
        acts={"価格を直す": [[FAILED], [DONE]]},
        decision=[decision(0.4, replan_level=1)],
        verification=[{"verification_passed": False, "issues_found": ["看板がない"]}, PASSED],
    )
    row = run(engine, planner, "店の価格計算を直してください。")
    assert row.status == "completed"
    said = prompts(engine, row.uuid)
    told = ["アクション 1 / 1", "目標: 店を直す", "もう一度出力して", "次に進む前に", "ユーザーの回答がないため"]
    for text in (*told, "検証で見つかった問題を解決する: 看板がない"):
        assert any(text in one for one in said), text
    assert not [one for one in said if "Purpose" in one or "Answer " in one]


def test_compression_while_planning(world):
    """The plan is followed although the window is summarised and folded on the way."""
    long = "x = 'a long line of a file that nobody needs again'\n" * 200
    (world.root / "long.py").write_text(long, "utf-8")
    names = [f"step {number}" for number in range(12)]
    acts = {name: [[("read_file", {"path": "long.py", "n": name}), DONE]] for name in names}
    planner = ScriptedPlanner(world, plan=[plan(*map(action, names))], acts=acts)
    with orihon.open("memory:", settings=QUIET) as engine:
        row = run(engine, planner, options={"context_length": 9000, "reserved_output": 500})
        assert row.status == "completed"
        assert len(world.ran) == 12
        tokens = sum(one.tokens for one in engine.store.read(row.uuid, Message))
        assert tokens > 2 * 9000
        assert max(len(json.dumps(window)) for window in planner.windows) < 5 * 9000


def test_the_snapshot_follows(engine, world):
    """Goal and phase are in the snapshot, so no compaction loses them."""
    row = run(engine, ScriptedPlanner(world, plan=[plan(action("A"))]))
    notes = [event.data for event in engine.store.read(row.uuid, Event) if event.type == "snapshot"]
    assert [*dict.fromkeys(data["goal"] for data in notes if data.get("goal"))] == ["Mend the shop"]
    phases = [data["current_phase"] for data in notes if "current_phase" in data]
    assert [*dict.fromkeys(phases)] == ["planning", "execution", "verification"]


def test_the_names_of_the_specification(engine, world):
    """The four methods of the specification have its names, and are used."""
    taught(engine, world)
    with engine.start(KEY) as task:
        task.add("user", "Mend the shop.")
        coordinator = PlanningCoordinator(Loop(task, ScriptedPlanner(world), world), engine)
        assert coordinator.inherited == []
        coordinator._inherit()
        coordinator._load_inherited_planning_context()
        assert len(coordinator.inherited) == 1
        assert coordinator._evaluate_previous_plan_applicability() == "reference"
        assert "make clean" in coordinator._build_initial_context_with_inheritance()
        merged = coordinator._merge_with_previous_learnings(Plan())
        assert merged == Plan()


def test_limits_of_the_loop_hold(engine, world):
    """A planned run ends at the limit of model calls like any other run."""
    planner = ScriptedPlanner(world, plan=[plan(action("A"), action("B"))])
    row = TaskHandler(engine, planner, world, planning=True, limits=Limits(calls=2)).handle(Work(key=KEY, request="x"))
    assert (row.status, row.reason) == ("failed", "limit: calls")
