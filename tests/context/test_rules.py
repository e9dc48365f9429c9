"""The rules of docs/windows.md that every window of the policy `fold` keeps, one property each."""

import json
import os
import re
from unittest.mock import ANY

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from orihon.context.tree import CUT, parse
from orihon.context.wire import openai
from support.fake_task import Desk
from support.made_sessions import play, sessions

DEEP = bool(os.environ.get("ORIHON_DEEP"))
PROPERTY = settings(max_examples=1_000 if DEEP else 20, deadline=None, derandomize=not DEEP)
LIMITS = st.sampled_from([2_000, 4_000, 8_000, 16_000])

MARK = re.compile(r"\[…(?P<what>(?:\d+ lines|1 line|\d+ characters), [\d,]+ tokens)(?:, (?P<handle>m\d+))?\]\n?")
HIDDEN = re.compile(r"\[…(?:1 message|(?P<count>[\d,]+) messages).*?, m(?P<first>\d+)(?:-m(?P<last>\d+))?\]")
TIMES = re.compile(r"^(?P<line>.*) \(× (?P<times>\d+)(?:, m\d+)?\)$", re.MULTILINE)
TIME_OR_COUNTER = re.compile(r"\d+(?:[-:T.]\d+)*Z?")

# the last question was hidden before its answer came; then a batch left it so, and showed the answer
ANSWERED_LATE = [
    ("question", "addresses", 59), ("answer", "short", 26), ("long question", "japanese", 11), ("call", "line", 39),
    ("answer", "addresses", 21), ("question", "japanese", 41), ("question", "japanese", 12), ("long answer", "line", 6),
    ("long question", "log", 51), ("call", "log", 46), ("answer", "log", 20), ("question", "line", 20),
]  # fmt: skip
ANSWERED_BEHIND_THE_BORDER = [
    ("list", "log", 6), ("list", "log", 1), ("long question", "line", 11), ("list", "addresses", 1),
    ("list", "short", 20), ("large", "addresses", 52), ("long answer", "japanese", 35), ("call", "japanese", 59),
]  # fmt: skip


def windows(moves, limit):
    """Yield the desk, the window and what was sent before, whenever the model would be asked."""
    desk, before = Desk(limit), []
    for _ in play(desk, moves):
        composed = desk.window()
        yield desk, composed, before
        before = openai(composed.messages)


def hidden_runs(composed):
    """The numbers that each mark in the window names, with the number of the message right before it."""
    before = 0
    for message in composed.messages:
        if not message.seq and (mark := HIDDEN.fullmatch(message.text)):
            first = int(mark["first"])
            yield before, first, int(mark["last"] or first), int((mark["count"] or "1").replace(",", ""))
        before = max(before, message.seq)


def parts(shown, text):
    """The gaps of a text that is shown with marks, each with its mark, and whether all the rest is verbatim."""
    at, gaps = 0, []
    pieces = MARK.split(shown)  # words, what, handle, words, what, handle, …, words
    for number in range(0, len(pieces), 3):
        words = pieces[number]
        last = number + 3 > len(pieces)
        place = len(text) - len(words) if last else text.find(words, at)
        if place < at or not text.startswith(words, place):
            return None
        if number:
            gaps.append((text[at:place], pieces[number - 2], pieces[number - 1]))
        at = place + len(words)
    return gaps


EXCHANGE = 64  # tokens


@PROPERTY
@given(sessions, LIMITS)
def test_1_the_users_words_are_verbatim(moves, limit):
    """A message of the user stands as it is, or with its beginning, its end, and a mark for all between."""
    for desk, composed, _ in windows(moves, limit):
        for message in composed.messages:
            if message.role != "user" or not message.seq:
                continue
            said = desk.log[message.seq - 1].text
            gaps = parts(message.text, said)
            assert gaps is not None, message.text
            for place, (gap, what, handle) in enumerate(gaps):
                assert handle == (f"m{message.seq}" if place == 0 else None)
                lines = gap.count("\n") + (not gap.endswith("\n"))
                size = re.match(r"(\d+) (line|char)", what)
                assert int(size[1]) == (lines if size[2] == "line" else len(gap))
            if gaps:
                assert said[0] == message.text[0]
                assert said[-1] == message.text[-1]


@PROPERTY
@given(sessions, LIMITS)
def test_1_only_equal_lines_of_tools_are_counted(moves, limit):
    """`(× n)` stands in results alone, for n lines that differ in nothing but times and one counter."""
    for desk, composed, _ in windows(moves, limit):
        for message in composed.messages:
            for found in TIMES.finditer(message.text):
                lines = desk.log[message.seq - 1].text.splitlines()
                assert message.role == "tool"
                at = lines.index(found["line"])
                run = lines[at : at + int(found["times"])]
                assert len(run) == int(found["times"])
                assert len({TIME_OR_COUNTER.sub("0", line) for line in run}) == 1
                assert not any(line.startswith("10.") for line in run), "addresses are no counters"


@PROPERTY
@given(sessions, LIMITS)
def test_3_nothing_is_left_out_in_silence(moves, limit):
    """Each run of hidden messages has one line in its place, with how many there are and their handle."""
    for desk, composed, _ in windows(moves, limit):
        shown = {message.seq for message in composed.messages}
        marked = set()
        for before, first, last, count in hidden_runs(composed):
            named = set(range(first, last + 1)) - shown
            assert len(named) == count
            assert before < first
            assert not named & marked
            marked |= named
        assert marked == {message.seq for message in desk.log} - shown


@PROPERTY
@example(ANSWERED_LATE, 2_000)
@example(ANSWERED_BEHIND_THE_BORDER, 8_000)
@given(sessions, LIMITS)
def test_3_a_question_stands_with_its_answer(moves, limit):
    """A question that was answered is shown with the answer, or neither is."""
    for desk, composed, _ in windows(moves, limit):
        shown = {message.seq for message in composed.messages}
        question, answer = 0, 0
        for message in [*desk.log, desk.log[0]]:
            if message.role == "user":
                if question > 1 and answer:
                    assert (question in shown) == (answer in shown), (question, answer)
                question, answer = message.seq, 0
            elif message.role == "assistant" and not message.tool_calls:
                answer = message.seq


@PROPERTY
@given(sessions, LIMITS)
def test_2_room_is_used(moves, limit):
    """While anything is hidden, a window that was just folded fills at least 95 % of `fold_to`.

    In the smallest windows less may be left than a hidden question takes with its answer.
    """
    for desk, composed, _ in windows(moves, limit):
        if composed.batch is not None and (composed.report.folded or composed.report.left_out):
            assert composed.report.tokens + EXCHANGE >= 0.95 * desk.budget.fold_to * desk.budget.limit


@PROPERTY
@given(sessions, LIMITS)
def test_5_between_two_batches_only_appends(moves, limit):
    """What was sent is the beginning of what is sent next, until the next batch."""
    for _, composed, before in windows(moves, limit):
        if composed.batch is None:
            assert openai(composed.messages)[: len(before)] == before


@PROPERTY
@given(sessions, LIMITS)
def test_7_trees_stay_trees(moves, limit):
    """A result that was JSON is JSON in every window: a tree with its root, or a mark where there is no room."""
    for desk, composed, _ in windows(moves, limit):
        for message in composed.messages:
            if message.role == "tool" and parse(desk.log[message.seq - 1].text) is not None:
                shown = json.loads(message.text)
                assert shown.get("role") == "RootWebArea" or shown == {CUT: {"nodes": ANY, "unfold": f"m{message.seq}"}}


@pytest.mark.parametrize("length", [8_000, 32_000, 128_000])
def test_5_most_turns_only_append(length):
    """With results of 11 kB the prefix stays in nearly every turn, at any size of the window."""
    desk = Desk(length, reserved_output=min(4_096, length // 8))
    desk.add("user", "Find out why the total is wrong.")
    moves = [("question", "code", 1), *[("call", "code", 135)] * 40]
    before, appended = [], -1
    for _ in play(desk, moves):
        sent = openai(desk.window().messages)
        appended += sent[: len(before)] == before
        before = sent
    assert appended >= (36 if length == 8_000 else 38)


@pytest.mark.parametrize("windows", [0, 1])
def test_6_a_fold_reads_no_more_than_it_looks_at(windows):
    """However much was said since the last window, or before the first one, most of it is never read."""
    desk = Desk(16_000)
    desk.add("user", "Fix it.")
    for _ in range(windows):
        desk.window()
    for _ in range(2_000):
        desk.add("assistant", "We look at src/shop.py. " * 160)
    read = []
    desk.read = lambda first, last: read.extend(range(first, last + 1)) or desk.log[first - 1 : last]
    composed = desk.window()
    assert composed.report.left_out > 1_500
    assert len(read) < 700
