"""The scores, from structure first and words second."""

import pytest

import orihon
from orihon.context.importance import importance
from orihon.records import Call, Message, Native, Part
from orihon.task_key import TaskKey


def message(role="assistant", content="", **fields):
    return Message(seq=1, role=role, content=content, timestamp="t", tokens=1, **fields)


def test_the_base_score():
    """Nothing special is 0.5."""
    assert importance(message("user", "Please go on.")) == 0.5
    assert importance(message("tool", "12 files", tool_name="ls")) == 0.5


@pytest.mark.parametrize(
    ("made", "score"),
    [
        (message("tool", "boom", is_error=True), 0.8),
        (message("assistant", "ValueError: no such basket"), 0.8),
        (message("assistant", "エラーが発生しました"), 0.8),
        (message("assistant", "", tool_calls=[Call(id="c", name="done")]), 0.8),
        (message("assistant", '{"done": true, "comment": "Completed"}'), 0.8),
        (message("assistant", "作業は完了しました"), 0.8),
        (message("user", [Part(type="image", media_type="image/png")]), 0.6),
        (message("tool", "{}", tool_name="elementsJson"), 0.4),
        (message("tool", "{}", tool_name="browser_webElements"), 0.4),
        (message("tool", '{"elements":[1],"children": [{"role":"AXButton"}]}', tool_name="x"), 0.4),
        (message("tool", "{}", tool_name="elementsJson", is_error=True), 0.7),
        (message("tool", '{"views": [{"class": "View", "bounds": [0, 0]}]}', tool_name="x"), 0.4),
        (message("tool", '{"error": "no such file"}'), 0.8),
        (message("tool", '{"success": false, "data": null}'), 0.8),
        (message("tool", '{"status": "failed"}'), 0.8),
        (message("tool", '{"exit_code": 2, "stdout": ""}'), 0.8),
        (message("tool", "Error: no such file"), 0.8),
        (message("tool", "エラー: ファイルがありません"), 0.8),
        (message("tool", "ファイルの読み込みに失敗しました"), 0.8),
        (message("tool", 'Traceback (most recent call last):\n  File "a.py"\nValueError: x'), 0.8),
        (message("tool", "1 test ran\nProcess exited with code 1"), 0.8),
        (message("assistant", "The task is now complete."), 0.8),
        (message("assistant", "All steps have been completed successfully."), 0.8),
        (message("assistant", "Done. The basket is fixed."), 0.8),
        (message("assistant", "すべて終わりました"), 0.8),
    ],
)
def test_each_signal(made, score):
    """Errors and ends +0.3, pictures +0.1, trees of the interface -0.1."""
    assert importance(made) == score


@pytest.mark.parametrize(
    "text",
    [
        "There are no errors.",
        "0 failures, 12 passed",
        "All good without any errors",
        "errors: 0",
        "エラーはありません",
        "Fixed the error",
    ],
)
def test_no_errors_is_not_an_error(text):
    """A sentence about the absence of errors is not one."""
    assert importance(message("assistant", text)) == 0.5


@pytest.mark.parametrize(
    "made",
    [
        message("tool", '{"error": null, "errors": [], "success": true, "exit_code": 0, "status": "ok"}'),
        message("tool", "Process exited with code 0"),
        message("tool", "src/errors.py:12: class ValueError(Exception)"),
        message("assistant", "The work is not done yet."),
        message("assistant", "Once the task is complete, I will report."),
        message("assistant", "まだ完了していません"),
        message("assistant", "未完了です"),
        message("assistant", "完了したら知らせます"),
    ],
)
def test_what_only_looks_like_a_signal(made):
    """A success that names its error field, an end that has not come."""
    assert importance(made) == 0.5


def test_words_of_users_and_tools_do_not_count():
    """A request that speaks of errors is a request, and a tool's success is one whatever it prints."""
    assert importance(message("user", "Fix the ValueError in basket.py")) == 0.5
    assert importance(message("tool", "grep found: raise ValueError", tool_name="grep")) == 0.5


@pytest.mark.parametrize(
    "thought",
    [
        message("assistant", "…", native=Native(api="anthropic", items=[{"type": "thinking"}])),
        message("assistant", "…", native=Native(api="openai", items=[{"reasoning_content": "because"}])),
        message("assistant", "…", native=Native(api="gemini", items=[{"thought": True, "text": "because"}])),
        message("assistant", "", tool_calls=[Call(id="c", name="think")]),
        message("assistant", "Plan:\n1. Read basket.py"),
        message("assistant", "まず basket.py を読みます"),
    ],
)
@pytest.mark.parametrize("phase", ["planning", "計画"])
def test_thinking_counts_in_the_planning_phase_only(thought, phase):
    """+0.2 while the plan is made, by reasoning, by tools for it, and by words."""
    assert importance(thought, phase=phase) == 0.7
    assert importance(thought, phase="executing") == 0.5
    assert importance(message("assistant", "Hm.", native=Native(api="anthropic", items=[])), phase=phase) == 0.5


def test_the_phase_is_that_of_the_moment(tmp_path):
    """A plan keeps its importance when the work begins, and words of the work do not become a plan."""
    with orihon.open(tmp_path / "store") as engine, engine.start(TaskKey.local("t"), inherit=False) as task:
        task.add("user", "Fix it.")
        task.snapshot(current_phase="planning")
        task.add("assistant", "Plan: read, then fix.")
        task.snapshot(current_phase="executing")
        task.add("assistant", "Plan: fix the second one.")
        assert [importance(made) for made in task.log.read(1, 3)] == [0.5, 0.7, 0.5]
        task.snapshot(current_phase="planning")
        assert [importance(made) for made in task.log.read(1, 3)] == [0.5, 0.7, 0.5]
        assert [made.importance for made in engine.read(task.uuid).messages()] == [None, 0.7, None]


def test_scores_stay_between_0_and_1():
    """Signals add up, but not beyond."""
    made = message(
        "assistant", [Part(type="image"), Part(type="text", text="FatalError")], tool_calls=[Call(id="c", name="done")]
    )
    assert importance(made, phase="planning") == 1.0
