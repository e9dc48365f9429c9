"""The window fits, is valid, stays put between two folds, and gives everything back."""

import os

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orihon.context import wire
from orihon.context.frame import Policy, Texts
from orihon.context.pick import FOLD_AT, FOLD_TO, StandIn
from orihon.context.wire import openai
from orihon.errors import BudgetTooSmall
from orihon.records import Call
from orihon.settings.schema import Settings
from support.fake_task import Desk
from support.histories import history, seeded
from support.wire_rules import violations

DEEP = bool(os.environ.get("ORIHON_DEEP"))
CASES = 5_000 if DEEP else 250

SYSTEM = "You fix bugs in a shop."
REQUEST = "The total of an empty basket is wrong; see src/shop/basket.py."
STICKY = (
    "The user keeps these files in view:\n"
    "--- CONTEXT ENTRY BEGIN ---\n[STYLE.md]\nBe brief.\n--- CONTEXT ENTRY END ---\n\n"
)


def work(desk, turns, size=1500, start=0):
    """A plausible stretch of work: say, call, see."""
    for turn in range(start, start + turns):
        call = Call(id=f"c{turn}", name="read_file", arguments=f'{{"path":"src/shop/module_{turn % 9}.py"}}')
        desk.add("assistant", f"Step {turn}: look at compute_total_{turn % 7}.", tool_calls=[call])
        lines = [f"def total_{turn}_{line}(items): return {line} * rate_{turn}" for line in range(size // 45)]
        desk.add("tool", "\n".join(lines), tool_call_id=f"c{turn}", tool_name="read_file")


def started(context_length=16_000, **options):
    desk = Desk(context_length, **options)
    desk.add("system", SYSTEM)
    desk.add("user", REQUEST)
    return desk


def sent(composed):
    return openai(composed.messages)


def check(desk, composed):
    """Inside the limit by the counter in use, and valid for every provider."""
    counted = desk.counted(composed)
    assert counted == composed.report.tokens
    assert counted <= desk.budget.limit
    for api in wire.APIS:
        assert violations(api, getattr(wire, api)(composed.messages)) == []


def test_the_settings_and_the_frame_agree():
    """The figures that were tuned are the defaults of the settings."""
    assert (Settings().fold_at, Settings().fold_to) == (FOLD_AT, FOLD_TO)


def test_nothing_is_folded_while_it_fits():
    """A short log is its own window, in order and whole."""
    desk = started()
    work(desk, 3)
    composed = desk.window()
    assert [message.content for message in composed.messages] == [message.content for message in desk.log]
    assert composed.batch is None
    assert composed.report.by_source.keys() == {"system", "user", "assistant", "tool"}


def test_a_long_log_is_folded_and_says_so():
    """Far more than the window holds: it fits, the ends are whole, the report gives reasons and figures."""
    desk = started()
    work(desk, 120)
    composed = desk.window()
    check(desk, composed)
    report = composed.report
    assert composed.messages[0].content == SYSTEM
    assert composed.messages[1].content == REQUEST
    assert composed.messages[-1].content == desk.log[-1].content
    assert report.folded > 0
    assert report.left_out + report.whole + report.folded == len(desk.log)
    assert "more than 97% of 16,000" in report.reasons[0]
    assert report.tokens <= 0.6 * desk.budget.limit


@pytest.mark.slow
def test_between_two_folds_the_prefix_stays():
    """Each window begins with the messages of the one before, until the next fold; folds are rare."""
    desk = started()
    before, folds = [], 0
    for turn in range(150):
        work(desk, 1, start=turn)
        composed = desk.window()
        check(desk, composed)
        now = sent(composed)
        if composed.batch is None:
            assert now[: len(before)] == before
        else:
            folds += 1
        before = now
    assert 2 <= folds <= 15


def test_a_resumed_task_sends_the_same_bytes():
    """The window follows from log, events and folds alone, in another process or another day."""
    desk = started()
    work(desk, 80)
    desk.window()
    work(desk, 2, start=80)
    other = Desk(16_000)
    other.log, other.folds = desk.log, desk.folds
    for event in desk.events:
        other.event(event.type, **event.data)
    assert sent(other.window()) == sent(desk.window())


def test_the_shelf_changes_nothing_but_the_reading():
    """With what the last window left on the shelf the bytes are the same, and only new messages are read."""
    desk = started()
    for turn in range(60):
        work(desk, 1, start=turn)
        desk.event("snapshot", acted=f"step {turn}")
        composed = desk.window()
        fresh = Desk(16_000)
        fresh.log, fresh.folds, fresh.view = desk.log, desk.folds, desk.view
        assert sent(fresh.window()) == sent(desk.window())
    read = []
    desk.read = lambda first, last: read.append((first, last)) or desk.log[first - 1 : last]
    desk.add("user", "one more")
    desk.event("snapshot", acted="one more step")
    desk.window()
    assert composed.report.whole > 10
    assert read == [(len(desk.log), len(desk.log))]


@pytest.mark.parametrize("seed", range(20))
def test_a_window_that_is_folded_again_is_the_same_as_one_made_anew(seed):
    """Calls with long and short arguments, folds that hide, shorten and bring back: what the shelf held is right."""
    rng = seeded(seed)
    desk = started(5_000)
    folds = 0
    for turn in range(90):
        texts = [f"def total_{rng.choice(range(40))}(items): return {line}" for line in range(rng.choice((1, 9, 50)))]
        arguments = msgspec.json.encode({"path": f"src/{turn % 9}.py", "text": "\n".join(texts)}).decode()
        call = Call(id=f"c{turn}", name="write_file", arguments=arguments)
        desk.add("assistant", f"Step {turn}: total_{rng.choice(range(40))}.", tool_calls=[call])
        desk.add("tool", "\n".join(texts[::-1]), tool_call_id=f"c{turn}", tool_name="write_file")
        folds += desk.window().batch is not None
        fresh = Desk(5_000)
        fresh.log, fresh.folds, fresh.view = desk.log, desk.folds, desk.view
        now, anew = desk.window(), fresh.window()
        assert now.messages == anew.messages
        assert now.report == anew.report
        assert desk.shelf.messages.keys() <= {message.seq for message in now.messages}
    assert folds > 4


@pytest.mark.parametrize(
    ("then", "shown"),
    [
        ({}, '{"path":"src/shop/module_0.py"}'),  # the second fold shows what the first one hid
        ({"c0": '{"path":"…"}'}, '{"path":"…"}'),
    ],
)
def test_what_an_earlier_fold_cut_is_not_taken_for_whole(then, shown):
    """Arguments that the new stand-in leaves alone are those of the log, not those of the last window."""
    desk = started()
    work(desk, 2)
    for number, arguments in enumerate(({"c0": "{}"}, then), 1):
        desk.folds.append(StandIn(3, "Step 0.", arguments, 20))
        desk.event("folds", first=number, last=number, hidden=[], snapshot="")
        (message,) = [message for message in desk.window().messages if message.seq == 3]
        assert message.text == "Step 0."
    assert message.tool_calls[0].arguments == shown


@pytest.mark.parametrize("seed", range(40))
def test_a_window_that_grows_is_the_same_as_one_made_anew(seed):
    """Message by message, with results that are missing, late, doubled or strange, and ids that come again."""
    rng = seeded(seed)
    desk = Desk(1_000_000)
    for message in [*history(rng), *history(rng)]:
        desk.add_message(message)
        fresh = Desk(1_000_000)
        fresh.log = desk.log
        now, anew = desk.window(), fresh.window()
        assert now.messages == anew.messages
        assert now.report == anew.report


def test_everything_that_is_hidden_can_be_had_by_its_handle():
    """Each mark names a message of the log, and what is left out whole is in the report."""
    desk = started()
    work(desk, 120)
    composed = desk.window()
    shown = {message.seq for message in composed.messages} - {0}
    hidden = {seq for first, last in composed.batch.hidden for seq in range(first, last + 1)}
    assert hidden | shown == {message.seq for message in desk.log}
    assert not hidden & shown


@pytest.mark.parametrize("keep", ["none", "tail", "summary"])
def test_leaving_a_tangent(keep):
    """With nothing kept the window from before is back, byte for byte; else only what was asked to stay is added."""
    desk = started()
    work(desk, 60)
    desk.window()
    before = sent(desk.window())
    desk.event("tangent")
    desk.add("user", "Why is CI slow?")
    work(desk, 30, start=60)
    desk.window()
    desk.add("assistant", "Because of the cache.")
    last = len(desk.log)
    desk.event("end", keep=keep, tail=[last, last])
    now = sent(desk.window())
    if keep == "none":
        assert now == before
    else:
        assert now[: len(before)] == before
        assert "cache" in now[-1]["content"]
        assert len(now) == len(before) + 1


def test_undo_of_a_rewind_gives_back_the_same_bytes():
    """What was cut is back as it was."""
    desk = started()
    work(desk, 60)
    desk.window()
    before = sent(desk.window())
    rewind = desk.event("rewind", to=40)
    assert sent(desk.window()) != before
    desk.event("undo", event=rewind)
    assert sent(desk.window()) == before


def test_clear_leaves_the_system_prompt_and_the_pins():
    """Nothing else from before is there."""
    desk = started()
    work(desk, 5)
    desk.event("pin", seq=5)
    desk.event("clear")
    desk.add("user", "Start over.")
    contents = [message.content for message in desk.window().messages]
    assert contents[0] == SYSTEM
    assert "Start over." in contents
    assert REQUEST not in contents
    assert any("compute_total_1" in str(content) for content in contents)


@pytest.mark.slow
def test_ten_folds_leave_what_must_stay():
    """System prompt, first request and pins are byte-equal after ten forced folds."""
    desk = started(8_000)
    work(desk, 2)
    pinned = desk.log[3]
    desk.event("pin", seq=3)
    for turn in range(10):
        work(desk, 40, start=2 + turn * 40)
        composed = desk.window()
        assert composed.batch is not None
        check(desk, composed)
        contents = [message.content for message in composed.messages]
        assert contents[:2] == [SYSTEM, REQUEST]
        assert pinned.content in contents


def test_one_result_of_two_million_characters():
    """A single message larger than the window is folded, not refused."""
    desk = started(8_000)
    call = Call(id="c", name="cat", arguments="{}")
    desk.add("assistant", "Look.", tool_calls=[call])
    desk.add("tool", "line of a gigantic log\n" * 90_000, tool_call_id="c", tool_name="cat")
    composed = desk.window()
    check(desk, composed)
    assert composed.messages[-1].role == "tool"
    assert "m4" in composed.messages[-1].content


def test_a_history_of_user_messages_only():
    """Instructions are kept as far as there is room, the first and the newest first."""
    desk = Desk(4_000)
    for number in range(400):
        desk.add("user", f"Instruction {number}: " + "please mind this. " * 10)
    composed = desk.window()
    check(desk, composed)
    text = str(sent(composed))
    assert "Instruction 0:" in text
    assert "Instruction 399:" in text


def test_what_cannot_fit_is_said_with_figures():
    """A system prompt larger than the window is an error that says by how much."""
    desk = Desk(1_000)
    desk.add("system", "rule " * 2_000)
    desk.add("user", "hello")
    with pytest.raises(BudgetTooSmall) as caught:
        desk.window()
    assert caught.value.needed > caught.value.allowed == 1_000
    assert f"{caught.value.needed - 1_000:,} more" in caught.value.message


def test_texts_beside_the_log_stand_where_they_should():
    """Sticky files after the system prompt; summary and note after the request; the snapshot of the last fold."""
    desk = started()
    desk.stick({"STYLE.md": "Be brief."})
    desk.texts = Texts(summary="SUMMARY", snapshot="SNAPSHOT 1", note="NOTE")
    work(desk, 4)
    assert [message.content for message in desk.window().messages][:4] == [SYSTEM, STICKY, REQUEST, "SUMMARY"]
    work(desk, 120, start=4)
    desk.window()
    desk.texts = msgspec.structs.replace(desk.texts, snapshot="SNAPSHOT 2")
    contents = [message.content for message in desk.window().messages]
    assert contents[:6] == [SYSTEM, STICKY, REQUEST, "NOTE", "SUMMARY", "SNAPSHOT 1"]


def test_a_summary_stands_for_its_ranges():
    """What a valid summary covers is not shown again, but for the request and the pins."""
    desk = started()
    work(desk, 10)
    desk.texts = Texts(summary="We looked at ten modules.")
    desk.event("pin", seq=6)
    desk.event("summary", id=1, ranges=[[1, 18]])
    shown = [message.seq for message in desk.window().messages]
    assert shown == [1, 2, 0, 6, *range(19, 23)] or shown == [1, 2, 0, 5, 6, *range(19, 23)]


def test_errors_stay_beside_a_summary():
    """A unit that the compression kept is shown after the summary that covers it."""
    desk = started()
    work(desk, 10)
    desk.texts = Texts(summary="We looked at ten modules.")
    desk.event("summary", id=1, ranges=[[1, 18]], kept=[7])
    assert [message.seq for message in desk.window().messages] == [1, 2, 0, 7, 8, *range(19, 23)]


def test_the_policy_importance():
    """24 messages at most, the newest 40 % among them, errors before chatter, no pair torn."""
    desk = started(200_000)
    desk.policy = Policy(name="importance", max_messages=24)
    work(desk, 40)
    desk.log[21] = msgspec.structs.replace(desk.log[21], is_error=True)
    work(desk, 20, start=40)
    composed = desk.window()
    check(desk, composed)
    shown = [message.seq for message in composed.messages]
    assert len(shown) <= 24
    assert {1, 2, 22} <= set(shown)
    assert shown[-10:] == list(range(len(desk.log) - 9, len(desk.log) + 1))


def test_the_policy_plain():
    """System prompt, summary, and the newest messages inside 0.7 of the context length."""
    desk = started(10_000)
    desk.policy = Policy(name="plain")
    work(desk, 60)
    composed = desk.window()
    check(desk, composed)
    assert composed.report.tokens <= 7_000
    assert composed.messages[0].content == SYSTEM
    assert composed.messages[-1].content == desk.log[-1].content


@pytest.mark.parametrize("chunk", range(5))
def test_any_history_fits_and_is_valid(chunk):
    """Whatever happened before, after every fold and event, in every format, with the counter in use."""
    for seed in range(chunk, CASES, 5):
        rng = seeded(seed)
        desk = Desk(rng.choice((600, 1_500, 4_000)), tokens=rng.choice(("bytes4", "estimate", "chars4")))
        for _ in range(rng.randrange(1, 5)):
            for message in history(rng):
                desk.add_message(msgspec.structs.replace(message, content=_smaller(message.content)))
            if rng.random() < 0.4:
                desk.event(*rng.choice((("tangent",), ("clear",))))
            if rng.random() < 0.4:
                desk.event("rewind", to=rng.randrange(1, len(desk.log) + 2))
            try:
                check(desk, desk.window())
            except BudgetTooSmall as error:
                assert error.needed > error.allowed


def _smaller(content):
    return content[:200] if isinstance(content, str) else content


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.7, 1.3))
def test_a_counter_that_is_off_changes_nothing_but_the_size(seed, factor):
    """With a counter that is 30 % off the window still fits by that counter."""
    desk = started(6_000)
    rng = seeded(seed)
    work(desk, rng.randrange(1, 60), size=rng.choice((100, 1500, 6000)))
    for place, message in enumerate(desk.log):
        desk.log[place] = msgspec.structs.replace(message, tokens=max(1, int(message.tokens * factor)))
    composed = desk.window()
    assert composed.report.tokens <= desk.budget.limit
