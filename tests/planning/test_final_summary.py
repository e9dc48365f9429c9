"""The final summary of a planned run: its conversation and its records, not the prompts of the planner."""

import pytest

import orihon
from orihon.context.ledger import parse
from orihon.inheritance.outline import cut_sections
from orihon.planning.digest import describe, learn, read_words
from orihon.planning.history import Run
from orihon.planning.schema import ReplanDecision
from orihon.settings.schema import ContextInheritance, InheritedPlanning, Settings
from support.planned_runs import KEY, OPENINGS, Workspace, run, story


@pytest.fixture
def engine():
    with orihon.open("memory:", settings=Settings()) as engine:
        yield engine


@pytest.fixture
def row(engine, tmp_path):
    return run(engine, story(Workspace(tmp_path / "world")), "Mend the shop. Never paint it green.")


def test_it_is_written_from_the_records_of_the_plan(row):
    """Goal, what was done, what failed and the remedy, replanning with its reason, verification by criterion."""
    for text in (
        "## Previous Plan Summary\n- Goal: Mend the shop",
        "- Worked: look at the shop (read_file)",
        "open the door (run_tests): no key (worked later) → what helped: use the key",
        "- Plan revised: another way",
        "- Criterion met: the tests pass",
        "## Recommendations for Current Processing",
    ):
        assert text in row.final_summary
    assert row.final_summary.index("Never paint it green.") < row.final_summary.index("## Previous Plan Summary")


def test_it_has_nothing_of_prompts_and_answers_in_json(row):
    """Neither what the planner asked, nor the keys of the schema, nor the report at the end of a step."""
    for key in ("goal_understanding", "verification_passed", "plan_revision", '"reflection"', "replan_needed"):
        assert key not in row.final_summary
    for opening in OPENINGS.values():
        assert not any(text in row.final_summary for text in opening)


def test_a_model_is_shown_the_conversation_only(tmp_path):
    """The records follow its summary as they are."""
    asked = []

    def summariser(prompt):
        asked.append(prompt)
        return "The shop was mended: the door is open, the sign is written and the floor is swept. Nothing is left."

    with orihon.open("memory:", settings=Settings()) as engine:
        row = run(engine, story(Workspace(tmp_path / "world")), summariser=summariser)
        assert row.final_summary.startswith("The shop was mended")
        assert "- Criterion met: the tests pass" in row.final_summary
    assert "goal_understanding" not in asked[0]
    assert OPENINGS["plan"][0] not in asked[0]
    assert '"reflection"' not in asked[0]


def test_a_setting_can_keep_the_records_out_of_the_next_run(engine, row):
    """They stand in the summary, but the block takes them from the outline, where the settings can switch them off."""
    assert "Criterion met" in engine.inheritance(KEY).text
    assert engine.inheritance(KEY).text.count("## Previous Plan Summary") == 1
    planning = InheritedPlanning(
        inherit_plans=False, inherit_verifications=False, inherit_reflections=False, reuse_successful_patterns=False
    )
    engine.settings = Settings(context_inheritance=ContextInheritance(planning=planning))
    text = engine.inheritance(KEY).text
    assert "Never paint it green." in text
    for record in ("Criterion met", "Plan revised", "Worked:", "Goal:"):
        assert record not in text
    ledger = parse(cut_sections(row.final_summary))[1]
    assert ledger
    assert all(entry.text.split("\n")[0] in text for entry in ledger)


def test_the_strategy_of_a_decision_reaches_the_next_run():
    """A replan is told with its reason and its remedy."""
    planned = Run()
    planned.add(
        ReplanDecision(replan_needed=True, executed=True, reasoning="port 80 is taken", recovery_strategy="use 8080")
    )
    lines = [describe(lesson, read_words("en")) for lesson in learn([planned])]
    assert lines == ["Replanned: port 80 is taken → use 8080"]
