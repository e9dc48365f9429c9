"""The scores, from structure first and words second."""

import pytest

from orihon.context.importance import importance
from orihon.records import Call, Message, Native, Part


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


def test_words_of_users_and_tools_do_not_count():
    """A request that speaks of errors is a request, and a tool's success is one whatever it prints."""
    assert importance(message("user", "Fix the ValueError in basket.py")) == 0.5
    assert importance(message("tool", "grep found: raise ValueError", tool_name="grep")) == 0.5


def test_thinking_counts_in_the_planning_phase_only():
    """+0.2 while the plan is made."""
    thought = message("assistant", "…", native=Native(api="anthropic", items=[{"type": "thinking"}]))
    assert importance(thought, phase="planning") == 0.7
    assert importance(thought, phase="executing") == 0.5
    assert importance(message("assistant", "", tool_calls=[Call(id="c", name="think")]), phase="planning") == 0.7


def test_scores_stay_between_0_and_1():
    """Signals add up, but not beyond."""
    made = message(
        "assistant", [Part(type="image"), Part(type="text", text="FatalError")], tool_calls=[Call(id="c", name="done")]
    )
    assert importance(made, phase="planning") == 1.0
