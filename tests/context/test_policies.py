"""The policy `importance`: the newest 40 %, then by score, never more than was asked for, in the order of time."""

from math import ceil

from hypothesis import given, settings
from hypothesis import strategies as st

from orihon.context.frame import Policy, Texts
from orihon.context.importance import importance
from orihon.context.policies import RECENT_SHARE
from orihon.context.units import units_of
from orihon.records import Call
from support.fake_task import Desk

KINDS = ("chat", "question", "error", "picture", "done", "tree", "parallel", "one by one", "note")


def log_of(desk, kinds):
    """A log of these kinds of steps, each with its own importance."""
    desk.add("system", "You fix bugs.")
    desk.add("user", "Fix the basket.")
    for number, kind in enumerate(kinds):
        if kind in {"question", "note"}:
            desk.add("user" if kind == "question" else "system", f"Number {number}?")
        elif kind == "chat":
            desk.add("assistant", f"Number {number}.")
        elif kind == "done":
            desk.add("assistant", "作業は完了しました")
        else:
            ids = [f"c{number}-{place}" for place in range(3 if kind in {"parallel", "one by one"} else 1)]
            calls = [Call(id=one, name="elementsJson" if kind == "tree" else "look") for one in ids]
            for group in [calls] if kind == "parallel" else [[call] for call in calls]:
                desk.add("assistant", "", tool_calls=group)
            for call in calls:
                desk.add("tool", f"result {number}", tool_call_id=call.id, is_error=kind == "error")


@settings(max_examples=120, deadline=None)
@given(st.lists(st.sampled_from(KINDS), max_size=40), st.integers(2, 30), st.booleans(), st.integers(0, 3))
def test_any_log(kinds, max_messages, summary, pins):
    """No unit is left out while a less important one outside the newest 40 % stays; the goal and the pins do."""
    desk = Desk(60_000)
    desk.policy = Policy(name="importance", max_messages=max_messages)
    desk.texts = Texts(snapshot="State of the task: open", summary="Before." if summary else "")
    log_of(desk, kinds)
    pinned = [seq for seq in (3, 5, 9)[:pins] if seq <= len(desk.log) and desk.log[seq - 1].role != "tool"]
    for seq in pinned:
        desk.event("pin", seq=seq)
    messages = desk.window().messages
    seqs = [message.seq for message in messages if message.seq]
    always = {1, 2, *pinned}
    assert always <= set(seqs)
    said = [message.seq for message in messages if message.seq and message.role != "tool"]
    assert said == sorted(said)
    units = [unit for unit in units_of(desk.log[2:]) if not always & {message.seq for message in unit}]
    fixed = len(messages) - len(set(seqs) & {message.seq for unit in units for message in unit})
    if units:
        assert len(messages) <= max(max_messages, fixed + 1 + len(units[-1]))
        if not pinned and max_messages >= fixed + 6:
            assert len(messages) <= max_messages
    shown = [unit for unit in units if unit[0].seq in seqs or unit[-1].seq in seqs]
    recent, count = set(), 0
    for unit in reversed(units):
        if count < ceil(RECENT_SHARE * max_messages):
            recent.add(unit[0].seq)
        count += len(unit)
    older = [unit for unit in shown if unit[0].seq not in recent]
    gone = [unit for unit in units if unit not in shown]
    if older and gone:
        assert max(map(score, gone)) <= min(map(score, older))


def score(unit):
    return max(map(importance, unit))


def test_what_the_user_said_is_not_privileged():
    """Only the goal and the pins are: an error before them stays, a later question does not."""
    desk = Desk(60_000)
    desk.policy = Policy(name="importance", max_messages=10)
    log_of(desk, ["error", "question", "error", "question", *["chat"] * 20])
    shown = [message.seq for message in desk.window().messages]
    assert shown == [1, 2, 3, 4, 6, 7, 25, 26, 27, 28]


def test_a_newest_unit_that_is_too_large():
    """Of fifty parallel calls as many are shown as the limit allows, with their results."""
    desk = Desk(60_000)
    desk.policy = Policy(name="importance", max_messages=12)
    log_of(desk, ["error"])
    calls = [Call(id=f"p{number}", name="look") for number in range(50)]
    desk.add("assistant", "", tool_calls=calls)
    for call in calls:
        desk.add("tool", "seen", tool_call_id=call.id)
    messages = desk.window().messages
    assert len(messages) <= 12
    assert messages[-1].seq == len(desk.log)


def test_too_few_tokens_leave_out_the_least_important():
    """An old error outlives newer chatter when not even the chosen messages fit."""
    desk = Desk(700)
    desk.policy = Policy(name="importance", max_messages=30)
    log_of(desk, ["error", *["parallel"] * 6])
    assert {3, 4} <= {message.seq for message in desk.window().messages}
