"""The classes of document 001, section 3.2."""

import pytest

import orihon
from orihon.compat import ContextInheritanceManager

KEY = orihon.TaskKey.github("notfolder", "coding_agent", issue=27)


@pytest.fixture
def place(tmp_path):
    with orihon.open(tmp_path / "contexts") as engine:
        for number, end in enumerate(("complete", "stop", "fail")):
            task = engine.start(KEY, inherit=False)
            task.add("user", f"Fix the bug number {number}.")
            task.add_reply("Done.")
            task.fail("broken") if end == "fail" else getattr(task, end)()
    return tmp_path / "contexts"


def test_completed_and_stopped_runs_are_found_the_newest_first(place):
    runs = ContextInheritanceManager(place, {}).find_previous_contexts(KEY)
    assert [run.status for run in runs] == ["stopped", "completed"]
    assert runs[0].completed_at > runs[1].completed_at
    assert "number 1" in runs[0].final_summary
    assert runs[0].metadata["uuid"] == runs[0].uuid
    assert runs[0].task_key == KEY


def test_a_run_begins_with_the_summary_and_the_request(place):
    manager = ContextInheritanceManager(place, {})
    context = manager.get_inheritance_context(str(KEY))
    assert context.final_summary == context.previous_context.final_summary
    first, second = manager.create_initial_context(context, "Fix the next one.")
    assert (first.role, first.text) == ("assistant", "前回の処理要約: " + context.final_summary)
    assert (second.role, second.text) == ("user", "Fix the next one.")


def test_other_issues_and_a_switched_off_inheritance_give_nothing(place):
    other = orihon.TaskKey.github("notfolder", "coding_agent", issue=28)
    assert ContextInheritanceManager(place, {}).get_inheritance_context(other) is None
    off = ContextInheritanceManager(place, {"context_inheritance": {"enabled": False}})
    assert off.get_inheritance_context(KEY) is None
