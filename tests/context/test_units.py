"""What belongs together: calls with their results, and the items of one reply."""

import pytest

from orihon.context.units import is_waiting, questions_of, unit_at, units_of
from orihon.records import Call, Message


def log(script):
    """Messages from words such as `user`, `said`, `call:a,b` and `result:a`."""
    messages = []
    for seq, word in enumerate(script.split(), start=1):
        kind, _, ids = word.partition(":")
        role = {"said": "assistant", "call": "assistant", "result": "tool"}.get(kind, kind)
        calls = [Call(id=one, name="f") for one in ids.split(",")] if kind == "call" else []
        answers = ids if kind == "result" else None
        messages.append(
            Message(seq=seq, role=role, content=word, tool_calls=calls, tool_call_id=answers, timestamp="", tokens=1)
        )
    return messages


@pytest.mark.parametrize(
    ("script", "units"),
    [
        ("user said user said", [[1], [2], [3], [4]]),
        ("user call:a,b result:a result:b said", [[1], [2, 3, 4], [5]]),
        ("user call:a call:b result:a result:b", [[1], [2, 3, 4, 5]]),
        ("user said call:a call:b result:b result:a said", [[1], [2, 3, 4, 5, 6], [7]]),
        ("call:a said call:b result:a call:c result:b result:c", [[1, 2, 3, 4, 6], [5, 7]]),
        ("said said call:a result:a", [[1], [2, 3, 4]]),
        ("call:a result:a call:a result:a", [[1, 2], [3, 4]]),
        ("call:a user result:a", [[1, 3], [2]]),
    ],
)
def test_what_is_one_unit(script, units):
    """Neighbouring items of the assistant with no result between them are one unit; words alone are one each."""
    messages = log(script)
    assert [[message.seq for message in unit] for unit in units_of(messages)] == units
    for unit in units:
        assert [message.seq for message in unit_at(messages[unit[0] - 1 :])] == unit


def test_a_unit_waits_for_all_its_results():
    """Also for those of calls in its later items."""
    assert is_waiting(log("call:a call:b result:a"))
    assert not is_waiting(log("call:a call:b result:a result:b"))


@pytest.mark.parametrize(
    ("script", "questions"),
    [
        ("user said said user", {3: 1}),
        ("user said user call:a result:a", {2: 1, 4: 3}),
        ("user said call:a result:a call:b result:b", {2: 1, 5: 1}),
        ("user", {}),
    ],
)
def test_what_stands_with_a_question(script, questions):
    """Its answer, and the newest unit while an answer may still come."""
    assert questions_of(log(script)) == questions
