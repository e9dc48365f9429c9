"""A task by a plan: what is asked, what is done, what is counted, and when it does not end as a success."""

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
    Brain,
    World,
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
    return World(tmp_path / "world")


@pytest.fixture
def engine():
    with orihon.open("memory:", settings=Settings()) as engine:
        yield engine


def quiet(**sections):
    """An engine that reflects on nothing."""
    planning = Planning(**{"reflection": ReflectionSettings(enabled=False), **sections})
    return orihon.open("memory:", settings=Settings(planning=planning))


def of_kind(engine, row, kind):
    return [value for value in entries(engine, row.uuid) if isinstance(value, kind)]


def statuses(engine, row):
    return {one.purpose: one.status for one in read_run(engine.store, row).plan.actions}


# a plan from its beginning to its end


def test_a_plan_is_carried_out(engine, world):
    """Plan, actions in their order, verification; the task is completed, and the history says how each step ended."""
    brain = Brain(
        world,
        plan=[plan(action("read it"), action("mend it", "2", "write_file"))],
        acts={
            "read it": [[("read_file", {"path": "a.py"}), DONE]],
            "mend it": [[("write_file", {"path": "a.py", "content": "x = 1\n"}), DONE]],
        },
    )
    row = run(engine, brain)
    assert (row.status, row.error_message) == ("completed", None)
    assert [line.split()[0] for line in world.ran] == ["read_file", "write_file"]
    assert [type(value) for value in entries(engine, row.uuid)] == [Plan, Verification]
    assert statuses(engine, row) == {"read it": "completed", "mend it": "completed"}
    past = read_run(engine.store, row)
    assert [part.status for part in past.plan.subtasks] == ["completed", "completed"]
    assert progress(engine, row.uuid).actions == 2


def test_parameters_are_chosen_after_reading(engine, world):
    """The plan names one file, what was read names another, and that one is written."""
    (world.root / "index.txt").write_text("the price is in cart.py", "utf-8")
    seen = []

    def choose(since):
        seen.append(since[-1]["content"])
        return ("write_file", {"path": since[-1]["content"].split()[-1], "content": "x = 1\n"})

    brain = Brain(
        world,
        plan=[plan(action("mend the price", "1", "write_file", parameters={"path": "price.py"}))],
        acts={"mend the price": [[("read_file", {"path": "index.txt"}), choose, DONE]]},
    )
    row = run(engine, brain)
    assert row.status == "completed"
    assert seen == ["the price is in cart.py"]
    assert (world.root / "cart.py").exists()
    assert not (world.root / "price.py").exists()
    (told,) = prompts(engine, row.uuid, "action")
    assert 'Parameters (draft): {"path": "price.py"}' in told


def test_the_order_of_work(engine, world):
    """`execution_order` decides, and a subtask waits for what it depends on."""
    parts = [{"id": "a"}, {"id": "b", "dependencies": ["c"]}, {"id": "c"}]
    order = {"execution_order": ["b", "c", "a"]}
    brain = Brain(world, plan=[plan(action("A", "a"), action("B", "b"), action("C", "c"), subtasks=parts, **order)])
    row = run(engine, brain)
    told = [line for text in prompts(engine, row.uuid, "action") for line in text.splitlines() if "Purpose" in line]
    assert told == ["Purpose: C", "Purpose: B", "Purpose: A"]


def test_a_circle_of_dependencies_is_no_end(engine, world):
    """Subtasks that wait for each other are done all the same."""
    parts = [{"id": "a", "dependencies": ["b", "a"]}, {"id": "b", "dependencies": ["a"]}]
    row = run(engine, Brain(world, plan=[plan(action("A", "a"), action("B", "b"), subtasks=parts)]))
    assert statuses(engine, row) == {"A": "completed", "B": "completed"}


def test_two_actions_with_one_purpose_are_two(engine, world):
    """Doing the first does not do the second."""
    brain = Brain(world, plan=[plan(action("test"), action("test"))])
    row = run(engine, brain)
    assert statuses(engine, row) == {"test": "completed", "test (2)": "completed"}


def test_the_form_is_the_schema(engine, world):
    """Every prompt for an answer shows the schema itself; a model that can hold to a form is given it."""
    brain = Brain(world, plan=[plan(action("A"))])
    row = run(engine, brain)
    (told,) = prompts(engine, row.uuid, "plan")
    assert json.loads(told.splitlines()[-1]) == json_schema("plan")
    assert brain.forms == [{}, {}, {}]
    structured = Brain(world, plan=[plan(action("A"))])
    structured.structured = True
    run(engine, structured)
    assert structured.forms == [{"schema": json_schema("plan")}, {}, {"schema": json_schema("verification")}]


def test_an_answer_that_cannot_be_read_is_asked_for_again(engine, world):
    """Twice the model is told what is missing; then its answer, wrapped in words, is understood."""
    whole = f"<think>hm</think>Here it is:\n```json\n{json.dumps(plan(action('A')))}\n```"
    row = run(engine, Brain(world, plan=["I will think.", {"goal_understanding": {"main_objective": "x"}}, whole]))
    assert row.status == "completed"
    first, second = prompts(engine, row.uuid, "again")
    assert "no JSON object" in first
    assert "lacks action_plan.actions" in second


def test_a_plan_that_cannot_be_read_fails_the_task(engine, world):
    """After the repeats the run ends as failed, with the reason."""
    row = run(engine, Brain(world, plan=["No."]))
    assert row.status == "failed"
    assert "no JSON object" in row.error_message
    assert len(prompts(engine, row.uuid)) == 3
    assert entries(engine, row.uuid) == []


def test_a_provider_that_is_away_is_no_unreadable_answer(engine, world):
    """A verification that cannot be asked for is not one that found something."""

    def away(_):
        raise ModelError("The provider is away.")

    row = run(engine, Brain(world, plan=[plan(action("A"))], verification=[away]))
    assert (row.status, row.error_message) == ("failed", "The provider is away.")
    assert of_kind(engine, row, Verification) == []


def test_steps_have_a_limit(world):
    """A plan takes no more actions than `max_subtasks`."""
    with quiet(max_subtasks=2) as engine:
        row = run(engine, Brain(world, plan=[plan(action("A"), action("B"), action("C"))]))
        assert (row.status, row.reason) == ("failed", "limit: actions")
        assert "its 2 actions" in row.error_message


# how an action went


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
    """The model's own word decides, in any form; without one, what its last tool said."""
    with quiet(verification=VerificationSettings(enabled=False)) as engine:
        row = run(engine, Brain(world, plan=[plan(action("A"))], acts={"A": [steps]}))
        assert progress(engine, row.uuid).steps == (status,)
        assert row.status == ("completed" if status == "completed" else "failed")


def test_a_tool_that_keeps_failing_fails_the_action_alone(world):
    """Three failures in a row end a run without a plan; with one, the plan is made again."""
    with quiet() as engine:
        brain = Brain(
            world,
            plan=[plan(action("A"))],
            acts={"A": [[("run_tests", {"fails": f"red {count}"}) for count in range(9)], [DONE]]},
            decision=[decision(replan_level=1)],
        )
        row = run(engine, brain)
        assert row.status == "completed"
        assert len(world.ran) == 3
        assert "run_tests failed 3 times" in prompts(engine, row.uuid, "decision")[0]


def test_what_needs_a_failed_part_is_skipped(world):
    """Nothing is built on what failed; without a verification that is a failure."""
    parts = [{"id": "1"}, {"id": "2", "dependencies": ["1"]}, {"id": "3"}]
    steps = plan(action("A", "1"), action("B", "2"), action("C", "3"), subtasks=parts)
    with quiet(verification=VerificationSettings(enabled=False)) as engine:
        row = run(engine, Brain(world, plan=[steps], acts={"A": [[FAILED]]}))
        assert statuses(engine, row) == {"A": "failed", "B": "skipped", "C": "completed"}
        assert (row.status, row.reason) == ("failed", "VerificationFailed")


# looking back


def test_reflection_every_so_many_actions(world):
    """After every third action, and not in between."""
    with orihon.open("memory:", settings=Settings()) as engine:
        row = run(engine, Brain(world, plan=[plan(*(action(str(number)) for number in range(7)))]))
        assert len(of_kind(engine, row, Reflection)) == 2
        kinds = [text.split()[0] for text in prompts(engine, row.uuid)]
        assert kinds == ["Plan", *["Action"] * 3, "Reflect", *["Action"] * 3, "Reflect", "Action", "Verify"]


def test_reflection_on_errors(engine, world):
    """A failed action is looked back on at once, and so is one that was done by half; a setting turns it off."""
    acts = {"A": [[FAILED]], "B": [['{"status": "partial"}']]}
    steps = plan(action("A", "1"), action("B", "2"))
    row = run(engine, Brain(world, plan=[steps], acts=acts))
    first, second = prompts(engine, row.uuid, "reflection")
    assert "Purpose: A" in first
    assert "Error: the port is taken" in first
    assert "Purpose: B" in second
    off = Planning(reflection=ReflectionSettings(trigger_on_error=False, trigger_interval=0))
    with orihon.open("memory:", settings=Settings(planning=off)) as other:
        row = run(other, Brain(world, plan=[steps], acts=acts))
        assert prompts(other, row.uuid, "reflection") == []


def test_a_reflection_knows_better(engine, world):
    """What was thought to have failed worked after all, so nothing is planned again."""
    said = {"reflection": {"status": "success", "action_evaluated": "open the door"}}
    brain = Brain(world, plan=[plan(action("open the door"))], acts={"open the door": [[FAILED]]}, reflection=[said])
    row = run(engine, brain)
    assert statuses(engine, row) == {"open the door": "completed"}
    assert prompts(engine, row.uuid, "decision") == []


def test_a_reflection_changes_the_plan(engine, world):
    """The change is recorded with the whole plan; what was done is not done again, and the rest is new."""
    needed = {"reflection": {"status": "failure", "plan_revision_needed": True}}
    brain = Brain(
        world,
        plan=[plan(action("A"), action("B", "2"), action("C", "2"))],
        acts={"B": [[FAILED]]},
        reflection=[needed | revision(action("A"), action("D", "2"), reason="B is impossible"), FINE],
    )
    row = run(engine, brain)
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
    """A reflection that only says that the plan should change."""
    needed = {"reflection": {"status": "failure", "plan_revision_needed": True}}
    brain = Brain(
        world,
        plan=[plan(action("A"))],
        acts={"A": [[FAILED]]},
        reflection=[needed],
        revision=[revision(action("B"))],
    )
    row = run(engine, brain)
    assert statuses(engine, row) == {"A": "failed", "B": "completed"}


def test_revisions_have_a_limit(world):
    """After `max_revisions` the plan stays as it is."""
    needed = {"reflection": {"status": "partial", "plan_revision_needed": True}}
    again = [needed | revision(*(action(f"{turn}.{number}") for number in range(3))) for turn in range(9)]
    planning = Planning(reflection=ReflectionSettings(trigger_interval=1), revision=RevisionSettings(max_revisions=2))
    with orihon.open("memory:", settings=Settings(planning=planning)) as engine:
        row = run(engine, Brain(world, plan=[plan(action("A"), action("B"), action("C"))], reflection=again))
        assert row.status == "completed"
        assert len(of_kind(engine, row, Revision)) == progress(engine, row.uuid).revisions == 2
        assert progress(engine, row.uuid).actions == 5


def test_a_reflection_that_cannot_be_read_is_left_out(engine, world, caplog):
    """The run goes on, and the log says why."""
    brain = Brain(world, plan=[plan(*(action(str(number)) for number in range(3)))], reflection=["Fine."])
    row = run(engine, brain)
    assert row.status == "completed"
    assert of_kind(engine, row, Reflection) == []
    assert "There is no reflection" in caplog.text


# planning again


def failing(world, *decisions, again=DONE, **answers):
    """A brain whose first action fails, and what it decides then."""
    return Brain(
        world,
        plan=[plan(action("A"), action("B", "2"))],
        acts={"A": [[FAILED], [again]]},
        decision=list(decisions),
        **answers,
    )


@pytest.mark.parametrize("fields", [{"replan_level": 1}, {"replan_type": "retry"}])
def test_level_1_tries_again(world, fields):
    """The same action, with the strategy that the decision names; no other plan is made."""
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
    """The rest, the actions, the subtasks, the goal: each level changes what it may, and the change is recorded."""
    with quiet() as engine:
        row = run(engine, failing(world, decision(replan_level=level), revision=[new]))
        past = read_run(engine.store, row)
        assert statuses(engine, row) == ended
        assert (past.plan.goal, len(past.plan.subtasks)) == (goal, parts)
        assert progress(engine, row.uuid).replans == {kind: 1, "total": 1}
        assert [type(value) for value in entries(engine, row.uuid)][1:3] == [ReplanDecision, Revision]


@pytest.mark.parametrize("kind", ["plan_revision", "full_replan"])
def test_other_types_do_what_they_say(world, kind):
    """No type is counted and then ignored."""
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
    """Sure: done. Less sure: with a warning. Unsure: a person is asked. A guess: ignored."""
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
    """Who wants to be asked less says so."""
    with quiet(replanning=Replanning(min_confidence_threshold=0.2, user_confirmation_threshold=0.1)) as engine:
        row = run(engine, failing(world, decision(0.25, replan_level=1)))
        assert of_kind(engine, row, ReplanDecision)[0].executed
        assert progress(engine, row.uuid).questions == ()


def test_a_person_answers(world):
    """The answer is told to the model with the next try, and kept."""
    with quiet() as engine:
        made = decision(0.9, replan_type="clarification_request", clarification_questions=["Which port?"])
        row = run(engine, failing(world, made), ask_user=lambda _: "8080")
        assert "Answer of the user: 8080" in prompts(engine, row.uuid, "action")[1]
        (question,) = progress(engine, row.uuid).questions
        assert (question.questions, question.answer) == (("Which port?",), "8080")


@pytest.mark.parametrize("ask_user", [None, lambda _: None])
def test_nobody_answers(world, ask_user):
    """The run goes on with what the model assumes, and that is noted."""
    with quiet() as engine:
        made = decision(0.4, replan_level=2, assumptions_to_make=["it is 8080"])
        row = run(engine, failing(world, made, revision=[revision(action("C"))]), ask_user=ask_user)
        assert "The user did not answer; assume: it is 8080" in prompts(engine, row.uuid, "revision")[0]
        (question,) = progress(engine, row.uuid).questions
        assert (question.questions, question.answer, question.assumptions) == (("it failed",), None, ("it is 8080",))
        assert statuses(engine, row) == {"A": "failed", "C": "completed"}


def test_a_loop_is_refused(world):
    """The same step back at the same place is taken twice; the third time it is refused, and the run goes on."""
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
    """Each kind has its limit, and all together have one."""
    settings = Replanning(same_trigger_max_count=9, **{setting: most})
    new = revision(action("A"), task_decomposition={"subtasks": [{"id": "1"}]})
    with quiet(replanning=settings) as engine:
        brain = Brain(
            world,
            plan=[plan(action("A"))],
            acts={"A": [[FAILED]]},
            decision=[decision(replan_type=kind)],
            revision=[new],
        )
        row = run(engine, brain)
        kept = of_kind(engine, row, ReplanDecision)
        assert [one.executed for one in kept] == [True] * most + [False]
        assert f"The limit of {most} for" in kept[-1].override_reason
        assert progress(engine, row.uuid).replans.get("total", 0) == most


def test_no_new_plan_sets_a_counter_back(world):
    """Even a new goal: the total, the kinds, the pairs and the actions only grow."""
    new = revision(
        action("A"), goal_understanding={"main_objective": "x"}, task_decomposition={"subtasks": [{"id": "1"}]}
    )
    with quiet(replanning=Replanning(same_trigger_max_count=9, max_redecomposition_attempts=9)) as engine:
        brain = Brain(
            world,
            plan=[plan(action("A"))],
            acts={"A": [[FAILED]]},
            decision=[decision(replan_level=level) for level in (1, 5, 1, 4, 5, 1, 2, 3, 5, 5, 5)],
            revision=[new],
        )
        row = run(engine, brain)
        kept = of_kind(engine, row, ReplanDecision)
        totals = [one.replan_counts.get("total", 0) for one in kept]
        assert totals == [*range(1, 11), 10]
        for before, after in pairwise(kept):
            assert all(after.replan_counts[name] >= count for name, count in before.replan_counts.items())
        assert progress(engine, row.uuid).actions == 11


def test_replanning_can_be_off(world):
    """Then a failed action stays failed, and nobody is asked about it."""
    with quiet(replanning=Replanning(enabled=False)) as engine:
        row = run(engine, failing(world, decision()))
        assert prompts(engine, row.uuid, "decision") == []
        assert statuses(engine, row) == {"A": "failed", "B": "completed"}


def test_a_decision_that_brings_no_plan_is_not_counted(world):
    """A new plan that cannot be read leaves the old one, and the record says why."""
    with quiet() as engine:
        row = run(engine, failing(world, decision(replan_level=3), revision=["I cannot."]))
        (kept,) = of_kind(engine, row, ReplanDecision)
        assert (kept.executed, kept.replan_counts) == (False, {})
        assert "no JSON object" in kept.override_reason
        assert statuses(engine, row) == {"A": "failed", "B": "completed"}


def test_a_decision_that_cannot_be_read_is_none(world):
    """The run goes on without it."""
    with quiet() as engine:
        row = run(engine, failing(world, "Hm."))
        assert of_kind(engine, row, ReplanDecision) == []
        assert statuses(engine, row) == {"A": "failed", "B": "completed"}


# verifying


def test_a_failing_verification_is_no_success(engine, world):
    """Two rounds, additional work in between; then the task is failed and says what is left."""
    left = {"verification_passed": False, "issues_found": ["The door is shut."]}
    brain = Brain(world, plan=[plan(action("A"))], verification=[left | {"additional_actions": [action("B")]}, left])
    row = run(engine, brain)
    assert (row.status, row.reason) == ("failed", "VerificationFailed")
    assert row.error_message == "The verification failed 2 times. The door is shut."
    rounds = of_kind(engine, row, Verification)
    assert [(one.round, one.verification_passed) for one in rounds] == [(1, False), (2, False)]
    assert statuses(engine, row) == {"A": "completed", "B": "completed"}
    assert VerificationFailed().hint


def test_more_rounds(world):
    """`max_rounds` says how often the work is checked and mended."""
    left = {"verification_passed": False, "issues_found": ["The door is shut."]}
    with quiet(verification=VerificationSettings(max_rounds=3)) as engine:
        row = run(engine, Brain(world, plan=[plan(action("A"))], verification=[left, left, PASSED]))
        assert row.status == "completed"
        assert [one.round for one in of_kind(engine, row, Verification)] == [1, 2, 3]


def test_what_a_verification_finds_is_mended(engine, world):
    """Without actions of its own, the issues are the work; the change of the plan is recorded."""
    left = {"verification_passed": False, "issues_found": ["The door is shut."]}
    row = run(engine, Brain(world, plan=[plan(action("A"))], verification=[left, PASSED]))
    assert row.status == "completed"
    (kept,) = of_kind(engine, row, Revision)
    assert [one.purpose for one in kept.updated_plan.actions][1:] == [
        "Resolve what the verification found: The door is shut."
    ]
    assert [one.type for one in kept.changes] == ["add_action"]


def test_the_same_work_again_is_done_again(engine, world):
    """An additional action that looks like one that was done is not taken for it."""
    left = {"verification_passed": False, "additional_actions": [action("test")]}
    brain = Brain(world, plan=[plan(action("test"))], acts={"test": [[("run_tests", {}), DONE], [("run_tests", {"again": 1}), DONE]]}, verification=[left, PASSED])  # fmt: skip  # noqa: E501
    row = run(engine, brain)
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
    """A criterion that is not met, a placeholder, more work, or no verdict at all: that is not done."""
    with quiet(verification=VerificationSettings(max_rounds=1)) as engine:
        row = run(engine, Brain(world, plan=[plan(action("A"))], verification=[answer]))
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
    """We look ourselves, whatever the model says: in what was written, and nowhere else."""
    with quiet(verification=VerificationSettings(max_rounds=1)) as engine:
        acts = {"A": [[("write_file", {"path": name, "content": text}), DONE]]}
        row = run(engine, Brain(world, plan=[plan(action("A"))], acts=acts))
        (kept,) = of_kind(engine, row, Verification)
        assert list(kept.placeholder_detected.locations) == found
        assert row.status == ("failed" if found else "completed")
        (told,) = prompts(engine, row.uuid, "verification")
        assert ("Found in the files that you wrote:" in told) is bool(found)


def test_what_stood_in_a_file_before_is_not_ours(world):
    """Only lines that were given to a tool count, so an edit beside an old TODO leaves no placeholder."""
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
    """Then a plan whose parts all worked is done."""
    with quiet(verification=VerificationSettings(enabled=False)) as engine:
        row = run(engine, Brain(world, plan=[plan(action("A"))]))
        assert row.status == "completed"
        assert prompts(engine, row.uuid, "verification") == []


# what earlier runs give


def stopped(engine, world, request="Mend the shop."):
    """A run that is stopped after its first action."""
    brain = Brain(
        world,
        plan=[plan(action("read it all"), action("mend the price", "2"), action("test the shop", "3"))],
        acts={"read it all": [[("read_file", {"path": "a.py"}), DONE]]},
    )

    def check(task):
        state = task.history.view.state.notes.get("planning", {})
        if state.get("actions", 0) >= 1:
            raise StopRequested("no longer assigned")

    handler = TaskHandler(engine, brain, world, planning=True, checks=(check,))
    row = handler.handle(Work(key=KEY, request=request))
    assert row.status == "stopped"
    return row


def test_a_stopped_plan_goes_on(engine, world):
    """The same request: the old plan is shown with how it stands, and what was completed is not done again."""
    stopped(engine, world)
    brain = Brain(world, plan=[plan(action("read it all"), action("mend the price", "2"))])
    row = run(engine, brain)
    assert progress(engine, row.uuid).applicability == "continue"
    (told,) = prompts(engine, row.uuid, "plan")
    assert "Continue its plan" in told
    assert "1. [completed] (1) read_file: read it all" in told
    assert "2. [pending] (2) read_file: mend the price" in told
    done = [line for text in prompts(engine, row.uuid, "action") for line in text.splitlines() if "Purpose" in line]
    assert done == ["Purpose: mend the price"]
    assert statuses(engine, row) == {"read it all": "completed", "mend the price": "completed"}


@pytest.mark.parametrize("why", ["request", "completed", "setting"])
def test_else_a_plan_is_only_looked_at(world, why):
    """Another request, a run that was completed, or a setting: the new plan is one of its own."""
    inherit = ContextInheritance(planning=InheritedPlanning(inherit_plans=why != "setting"))
    with orihon.open("memory:", settings=Settings(context_inheritance=inherit)) as engine:
        if why == "completed":
            run(engine, Brain(world, plan=[plan(action("read it all"))]))
        else:
            stopped(engine, world, "Close the shop for ever, please." if why == "request" else "Mend the shop.")
        row = run(engine, Brain(world, plan=[plan(action("read it all"))]))
        assert progress(engine, row.uuid).applicability == "reference"
        (told,) = prompts(engine, row.uuid, "plan")
        assert "make a plan of your own" in told
        assert "[completed]" not in told
        assert len(prompts(engine, row.uuid, "action")) == 1


def test_nothing_to_inherit(engine, world):
    """The first run of a key, and one that was told not to inherit."""
    first = run(engine, Brain(world, plan=[plan(action("A"))]))
    second = run(engine, Brain(world, plan=[plan(action("A"))]), options={"inherit": False})
    for row in (first, second):
        assert progress(engine, row.uuid).applicability == "new"
        assert "earlier run" not in prompts(engine, row.uuid, "plan")[0]


def taught(engine, world):
    """A run with trouble: a failure that a retry mended, a revision, a placeholder, a criterion that was not met."""
    parts = [{"id": "1", "description": "the tests"}, {"id": "2", "description": "the price", "dependencies": ["1"]}]
    needed = {"reflection": {"status": "failure", "action_evaluated": "mend the price", "root_cause": "no lock file",
                             "issues_identified": ["the cache is stale"], "remedy": "make clean",
                             "plan_revision_needed": True}}  # fmt: skip
    brain = Brain(
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
    row = run(engine, brain)
    assert row.status == "completed"
    return row


def test_what_was_learned_is_told(engine, world):
    """When planning, before each action, when looking back and when verifying: what concerns it, and from where."""
    taught(engine, world)
    parts = [{"id": "p", "description": "the price"}, {"id": "t", "description": "the tests"}]
    again = plan(action("mend the price", "p"), action("paint", "t", "write_file"), subtasks=parts)
    row = run(engine, Brain(world, plan=[again], acts={"mend the price": [[FAILED]]}), "Mend the shop once more.")
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


def test_what_was_learned_is_merged(engine, world):
    """Dependencies, complexity, a way out of a known failure and the tool that worked come into the new plan."""
    taught(engine, world)
    parts = [{"id": "p", "description": "the price"}, {"id": "t", "description": "the tests"}]
    again = plan(action("mend the price", "p"), action("run the tests", "t", ""), subtasks=parts)
    row = run(engine, Brain(world, plan=[again]), "Mend the shop once more.")
    made = of_kind(engine, row, Plan)[0]
    price, _ = made.subtasks
    assert (price.dependencies, price.estimated_complexity) == (("t",), "high")
    mend, tests = made.actions
    assert (mend.fallback_strategy, tests.tool) == ("make clean", "run_tests")
    told = [line for text in prompts(engine, row.uuid, "action") for line in text.splitlines() if "Purpose" in line]
    assert told == ["Purpose: run the tests", "Purpose: mend the price"]


def test_settings_keep_things_back(world):
    """Each switch of `context_inheritance.planning` takes its part out of the prompts."""
    switches = InheritedPlanning(
        inherit_plans=False, inherit_verifications=False, inherit_reflections=False, reuse_successful_patterns=False
    )
    settings = Settings(context_inheritance=ContextInheritance(planning=switches))
    with orihon.open("memory:", settings=settings) as engine:
        taught(engine, world)
        row = run(engine, Brain(world, plan=[plan(action("mend the price"))], acts={"mend the price": [[FAILED]]}))
        said = "\n".join(prompts(engine, row.uuid))
        for text in ("make clean", "clean first", "price.py:7", "run_tests", "harder"):
            assert text not in said


def test_names_of_people_are_not_told(engine, world):
    """What an earlier run says comes without the name of who ran it."""
    brain = Brain(world, plan=[plan(action("ask marianne_k about it"))])
    TaskHandler(engine, brain, world, planning=True).handle(Work(key=KEY, request="Mend.", user="marianne_k"))
    row = run(engine, Brain(world, plan=[plan(action("A"))]))
    (told,) = prompts(engine, row.uuid, "plan")
    assert "- Worked: ask [name] about it" in told


def test_a_run_that_ends_meanwhile_changes_nothing(engine, world):
    """What is inherited is chosen once."""
    taught(engine, world)
    looks = iter(range(100))

    def check(_):
        if next(looks) == 4:
            raise PauseRequested("now")

    brain = Brain(world, plan=[plan(action("mend the price"))])
    handler = TaskHandler(engine, brain, world, planning=True, checks=(check,))
    row = handler.handle(Work(key=KEY, request="Again."))
    chosen = progress(engine, row.uuid).inherited
    run(engine, Brain(world, plan=[plan(action("B"))]), "In between.")
    ended = handler.resume(row.uuid)
    assert ended.status == "completed"
    assert progress(engine, row.uuid).inherited == chosen


# other ways


def test_japanese(engine, world):
    """A task in Japanese is planned, done and verified in Japanese."""
    brain = Brain(
        world,
        plan=["うーん。", plan(action("価格を直す"), goal="店を直す")],
        acts={"価格を直す": [[FAILED], [DONE]]},
        decision=[decision(0.4, replan_level=1)],
        verification=[{"verification_passed": False, "issues_found": ["看板がない"]}, PASSED],
    )
    row = run(engine, brain, "店の価格計算を直してください。")
    assert row.status == "completed"
    said = prompts(engine, row.uuid)
    told = ["アクション 1 / 1", "目標: 店を直す", "もう一度出力して", "次に進む前に", "ユーザーの回答がないため"]
    for text in (*told, "検証で見つかった問題を解決する: 看板がない"):
        assert any(text in one for one in said), text
    assert not [one for one in said if "Purpose" in one or "Answer " in one]


def test_compression_while_planning(world):
    """A small window is summarised and folded on the way; the plan is followed all the same."""
    long = "x = 'a long line of a file that nobody needs again'\n" * 200
    (world.root / "long.py").write_text(long, "utf-8")
    names = [f"step {number}" for number in range(12)]
    acts = {name: [[("read_file", {"path": "long.py", "n": name}), DONE]] for name in names}
    brain = Brain(world, plan=[plan(*map(action, names))], acts=acts)
    with orihon.open("memory:", settings=QUIET) as engine:
        row = run(engine, brain, options={"context_length": 9000, "reserved_output": 500})
        assert row.status == "completed"
        assert len(world.ran) == 12
        tokens = sum(one.tokens for one in engine.store.read(row.uuid, Message))
        assert tokens > 2 * 9000
        assert max(len(json.dumps(window)) for window in brain.windows) < 5 * 9000


def test_the_snapshot_follows(engine, world):
    """Goal and phase are in the snapshot, so that no compression loses them."""
    row = run(engine, Brain(world, plan=[plan(action("A"))]))
    notes = [event.data for event in engine.store.read(row.uuid, Event) if event.type == "snapshot"]
    assert [*dict.fromkeys(data["goal"] for data in notes if data.get("goal"))] == ["Mend the shop"]
    phases = [data["current_phase"] for data in notes if "current_phase" in data]
    assert [*dict.fromkeys(phases)] == ["planning", "execution", "verification"]


def test_the_seeds_names(engine, world):
    """The four methods of the seed are there under their names, and used."""
    taught(engine, world)
    with engine.start(KEY) as task:
        task.add("user", "Mend the shop.")
        coordinator = PlanningCoordinator(Loop(task, Brain(world), world), engine)
        assert coordinator.inherited == []
        coordinator._inherit()
        coordinator._load_inherited_planning_context()
        assert len(coordinator.inherited) == 1
        assert coordinator._evaluate_previous_plan_applicability() == "reference"
        assert "make clean" in coordinator._build_initial_context_with_inheritance()
        merged = coordinator._merge_with_previous_learnings(Plan())
        assert merged == Plan()


def test_limits_of_the_loop_hold(engine, world):
    """A planned run ends at the limit of calls like any other."""
    brain = Brain(world, plan=[plan(action("A"), action("B"))])
    row = TaskHandler(engine, brain, world, planning=True, limits=Limits(calls=2)).handle(Work(key=KEY, request="x"))
    assert (row.status, row.reason) == ("failed", "limit: calls")
