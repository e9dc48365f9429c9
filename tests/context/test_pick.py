"""What stays in the window when it is full."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from orihon.context.pick import FIRST_REQUEST, NEWEST, RECENT, UNANSWERED, Plan, StandIn, pick
from orihon.context.units import units_of
from orihon.records import Part
from support.transcripts import COUNTER, History, histories, total, window

MARK = re.compile(r"\[…(\d+) (?:lines?|characters)(?:, [\d,]+ tokens)?(?:, (m\d+))?\]")
LIMITS = st.sampled_from([120, 400, 1000, 3000])
PROPERTY = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def fold(messages, limit, **options):
    return pick(messages, budget=limit // 2, limit=limit, counter=COUNTER, **options)


def plan(messages, limit, pinned=frozenset()):
    return Plan(units_of(messages), budget=limit // 2, limit=limit, recent=RECENT, pinned=pinned)


@PROPERTY
@given(histories(), LIMITS)
def test_it_fits(messages, limit):
    """What is shown takes no more than is allowed, unless it is only what cannot be folded."""
    expected = plan(messages, limit)
    shown = window(messages, fold(messages, limit))
    units_left = {
        number for number, unit in enumerate(expected.units) if any(m.seq == s.seq for m in unit for s in shown)
    }
    stays = expected.whole | {expected.first, expected.newest}
    exchanges = [expected.exchanges.get(number, number) for number in range(len(expected.units))]
    bound = {exchanges[number] for number in units_left} <= {exchanges[number] for number in stays - {None}}
    assert total(shown) <= expected.allowed or bound
    assert expected.allowed <= max(limit // 2, NEWEST * limit)


@PROPERTY
@given(histories(), LIMITS)
def test_units_are_never_torn(messages, limit):
    """A call stands with all its results or not at all, and the order stays."""
    shown = window(messages, fold(messages, limit))
    seqs = [message.seq for message in shown]
    assert seqs == sorted(seqs)
    for unit in units_of(messages):
        here = [message.seq in seqs for message in unit]
        assert all(here) or not any(here)


@PROPERTY
@given(histories(), LIMITS)
def test_folding_a_window_again_changes_nothing(messages, limit):
    """A folded window is small enough, so nothing of it is folded."""
    shown = window(messages, fold(messages, limit))
    assume(total(shown) <= plan(shown, limit).allowed)
    assert fold(shown, limit) == {}


@PROPERTY
@given(histories(), LIMITS)
def test_arguments_stay_valid(messages, limit):
    """Shortened arguments are JSON with the same keys."""
    stand_ins = fold(messages, limit)
    for message in messages:
        stand_in = stand_ins.get(message.seq, StandIn(0, None))
        for call in message.tool_calls:
            if call.id in stand_in.arguments:
                shown = json.loads(stand_in.arguments[call.id])
                try:
                    assert list(shown) == list(msgspec.json.decode(call.arguments))
                except msgspec.DecodeError:  # no JSON, or some that a strict reader refuses
                    assert list(shown) == ["arguments"]


@PROPERTY
@given(histories(), LIMITS)
def test_nothing_grows(messages, limit):
    """A stand-in is never larger than its message."""
    stand_ins = fold(messages, limit)
    for message in messages:
        if (stand_in := stand_ins.get(message.seq)) and stand_in.text is not None:
            assert len(stand_in.text) <= len(message.text)
            assert stand_in.tokens <= message.tokens


@PROPERTY
@given(histories(), LIMITS, st.sets(st.integers(1, 12), max_size=2))
def test_what_must_stay_is_whole(messages, limit, pinned):
    """The system prompt, a first request that is not too large, pinned units and the newest unit stay as they are."""
    expected = plan(messages, limit, pinned)
    stand_ins = fold(messages, limit, pinned=pinned)
    for number, unit in enumerate(expected.units):
        system = unit[0].role == "system"
        first = number == expected.first and unit[0].tokens <= FIRST_REQUEST * limit
        if system or first or any(message.seq in pinned for message in unit):
            assert not any(message.seq in stand_ins for message in unit)
    if expected.newest in expected.whole:
        assert not any(message.seq in stand_ins for message in expected.units[-1])
    if stand_ins:
        assert next(message for message in window(messages, stand_ins) if message.role != "system").role == "user"


@PROPERTY
@given(histories(), LIMITS)
def test_kept_text_is_verbatim(messages, limit):
    """Between its marks a stand-in is the text of its message, in order, with no character cut."""
    stand_ins = fold(messages, limit)
    for message in messages:
        stand_in = stand_ins.get(message.seq)
        if stand_in is None or stand_in.text is None:
            continue
        at = 0
        for stretch in MARK.split(stand_in.text)[::3]:
            found = message.text.find(stretch.removeprefix("\n"), at)
            assert found >= 0
            assert not stretch.startswith(("\u0301", "\u3099", "\u200d"))
            at = found


@settings(max_examples=30, deadline=None)
@given(histories(), LIMITS)
def test_same_input_same_bytes(messages, limit):
    """The choice depends on nothing but its arguments."""
    assert fold(messages, limit) == fold(messages, limit)


def agent(turns, *, width=30):
    """An agent that reads files, one symbol of which it uses again and again."""
    history = History().add("system", "You are careful.").add("user", "Make the parser faster.")
    for turn in range(turns):
        lines = [f"{n:4} and then the value is multiplied by {n} once more" for n in range(width)]
        lines[width // 2] = f"{width // 2:4} def parse_header_{turn % 5}(stream): return stream.read()"
        history.unit(
            f"Looking at parse_header_{turn % 5}.", ("read", {"path": f"src/part_{turn}.py"}, "\n".join(lines))
        )
    return history.messages


def test_the_order_of_sets_does_not_matter():
    """Two processes with different hash seeds choose the same bytes."""
    code = "import hashlib, test_pick as t;print(hashlib.sha256(repr(t.fold(t.agent(60), 4000)).encode()).hexdigest())"
    here = Path(__file__).parent
    printed = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join([str(here), *sys.path])},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(printed) == 1


def test_a_window_that_fits_is_left_alone():
    """Nothing is folded as long as everything fits."""
    assert pick(agent(3), budget=10_000, limit=20_000, counter=COUNTER) == {}


def test_names_that_the_agent_wrote_are_kept_with_their_line():
    """Of a long file the line stays that defines what the agent speaks of; the rest becomes a mark with a handle."""
    messages = agent(40)
    shown = window(messages, fold(messages, 6000))
    text = "\n".join(message.text for message in shown)
    for turn in range(5):
        assert f"def parse_header_{turn}(stream): return stream.read()" in text
    assert re.search(r"\[…\d+ lines, m\d+\]", text)


def test_marks_name_the_handle_only_if_there_is_a_tool_for_it():
    """Without the tool, a mark says how much is hidden and nothing else."""
    messages = agent(40)
    named = "\n".join(message.text for message in window(messages, fold(messages, 4000)))
    plain = "\n".join(message.text for message in window(messages, fold(messages, 4000, handles=False)))
    assert any(handle for _, handle in MARK.findall(named))
    assert not any(handle for _, handle in MARK.findall(plain))


def test_a_file_that_was_read_again_shows_its_newest_text():
    """Lines of an older reading do not stand for a name that the newer one has too."""
    history = History().add("user", "Mend it.")
    for limit in (1, 2):
        code = "\n".join(["def other(): pass"] * 20 + [f"def read_header(stream, limit={limit}): return stream"] * 1)
        history.unit("What does read_header take?", ("read", {"path": "src/header.py"}, code))
    for turn in range(40):
        history.unit("", ("read", {"path": f"src/part_{turn}.py"}, "nothing of interest\n" * 30))
    text = "\n".join(message.text for message in window(history.messages, fold(history.messages, 4000)))
    assert "def read_header(stream, limit=2)" in text
    assert "def read_header(stream, limit=1)" not in text


def test_what_the_user_said_stays():
    """Short instructions stay whole, a long one keeps its beginning."""
    history = History().add("user", "Begin.")
    history.add("user", "Never touch the public API.")
    history.add(
        "user", "Here is the log:\n" + "\n".join(f"line {n} of a long log that says little" for n in range(200))
    )
    for turn in range(40):
        history.unit("", ("read", {"path": f"src/part_{turn}.py"}, f"def part_{turn}(): pass\n" * 20))
    shown = window(history.messages, fold(history.messages, 4000))
    said = [message.text for message in shown if message.role == "user"]
    assert said[:2] == ["Begin.", "Never touch the public API."]
    assert said[2].startswith("Here is the log:\nline 0 ")
    assert len(said[2]) < 500


def test_errors_stay():
    """A line that reports an error is kept although nobody spoke of it again."""
    history = History().add("user", "Run it.")
    for turn in range(30):
        noise = "\n".join(f"step {turn} {n} went well and took {n} ms" for n in range(40))
        error = "\nconnection refused: fatal error while starting up\n" if turn == 10 else "\n"
        history.unit("", ("bash", {"command": f"./run {turn}"}, noise + error + noise))
    text = "\n".join(message.text for message in window(history.messages, fold(history.messages, 4000)))
    assert "connection refused: fatal error while starting up" in text


def test_a_first_request_larger_than_a_quarter_is_cut():
    """It keeps its beginning and its end, and takes at most a quarter of the limit."""
    request = "Please do this.\n" + "\n".join(f"detail {n}: nothing special here" for n in range(2000)) + "\nThank you."
    history = History().add("user", request)
    for turn in range(5):
        history.unit("Working.", ("bash", {"command": f"echo {turn}"}, "ok"))
    stand_in = fold(history.messages, 4000)[1]
    assert stand_in.text.startswith("Please do this.\n")
    assert stand_in.text.endswith("\nThank you.")
    assert stand_in.tokens <= FIRST_REQUEST * 4000


def test_a_single_message_larger_than_the_window_is_cut():
    """Two million characters leave a beginning, an end and a mark, quickly."""
    history = History().add("user", "Read it.").unit("", ("read", {"path": "big.txt"}, "lorem ipsum dolor " * 111_111))
    begun = time.process_time()
    stand_ins = fold(history.messages, 8000)
    assert time.process_time() - begun < 2
    assert 0.7 * 8000 <= total(window(history.messages, stand_ins)) <= UNANSWERED * 8000
    assert stand_ins[3].text.startswith("lorem ipsum")


def test_a_large_newest_result_is_shown_whole_once():
    """What the agent just asked for is not cut as long as it fits beside the request."""
    messages = History().add("user", "Read it.").unit("", ("read", {"path": "a.txt"}, "a line\n" * 3000)).messages
    assert pick(messages, budget=3000, limit=6000, counter=COUNTER) == {}


def test_pictures_become_a_line():
    """An old picture leaves what it was, its size and its handle."""
    history = History().add("user", "Look.")
    history.unit(
        "dialog_box?",
        (
            "screenshot",
            {},
            [
                Part(type="text", text="dialog_box is open"),
                Part(type="image", media_type="image/png", data="A" * 4000, width=640, height=480),
            ],
        ),
    )
    for turn in range(30):
        history.unit("", ("read", {"path": f"src/part_{turn}.py"}, f"def part_{turn}(): pass\n" * 20))
    text = fold(history.messages, 3000)[3].text or ""
    assert "[image image/png, 640×480, 3 kB, m3]" in text


def test_a_very_long_log_costs_no_more_than_a_long_one():
    """Messages beyond the newest 400,000 tokens are left out without being looked at."""
    messages = agent(900, width=60)
    assert total(messages) > 600_000
    begun = time.process_time()
    stand_ins = fold(messages, 16_000)
    assert time.process_time() - begun < 3
    assert all(stand_ins[seq].text is None for seq in range(3, 400))


@pytest.mark.parametrize("limit", [16_000, 32_000])
def test_a_fold_is_quick(limit):
    """Sixty thousand tokens are folded in a tenth of a second (with room for a slow machine)."""
    messages = agent(110, width=45)
    assert total(messages) > 60_000
    times = []
    for _ in range(3):
        begun = time.process_time()
        fold(messages, limit)
        times.append(time.process_time() - begun)
    assert min(times) < 0.3
