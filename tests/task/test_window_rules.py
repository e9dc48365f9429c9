"""What a window promises: the user's words stay, room is used, nothing is hidden in silence, the prefix stays."""

import random

import pytest

import orihon
from orihon.task_key import TaskKey

KEY = TaskKey.local("t")
TOOLS = [{"name": "read", "input_schema": {"type": "object", "properties": {}}}]


@pytest.fixture
def engine():
    with orihon.open("memory:") as engine:
        yield engine


def start(engine, context_length, **options):
    return engine.start(KEY, context_length=context_length, tools=TOOLS, inherit=False, **options)


def call(task, number, result):
    task.add("assistant", f"Step {number}.", tool_calls=[{"id": f"c{number}", "name": "read", "arguments": "{}"}])
    task.add("tool", result, tool_call_id=f"c{number}")


def numbers(count, seed):
    chance = random.Random(seed)
    return "\n".join(f"line {number} {chance.random()}" for number in range(count))


def test_the_users_words_are_not_rewritten(engine):
    """A list of addresses keeps its beginning and its end; a mark says how much is hidden, and where it is."""
    addresses = [f"10.0.{number >> 8}.{number & 255}" for number in range(1500)]
    with start(engine, 8000) as task:
        task.add("user", "Block exactly these addresses:\n" + "\n".join(addresses))
        window = task.window()
        shown = next(message.text for message in window.messages if "Block exactly" in message.text)
        assert "(×" not in shown
        *kept, mark = sorted(shown.splitlines()[1:], key=lambda line: "[…" in line)
        assert mark.endswith(" tokens, m1]")
        assert set(kept) <= set(addresses)
        assert {addresses[0], addresses[-1]} <= set(kept)
        assert window.tokens > 0.6 * window.report.limit


@pytest.mark.parametrize("context_length", [8000, 32_000])
def test_a_large_result_gets_what_the_limit_leaves(engine, context_length):
    """One result that is larger than the window is shown as far as it fits."""
    with start(engine, context_length) as task:
        task.add("user", "Read it.")
        call(task, 0, numbers(20_000, 0))
        window = task.window()
        assert window.tokens > 0.7 * window.report.limit


def test_a_question_stands_with_its_answer(engine):
    """After a fold each question that is shown has its answer beside it, and what is hidden leaves a mark."""
    with start(engine, 128_000) as task:
        for number in range(30):
            task.add("user", f"Question {number}?")
            for part in range(2):
                call(task, 2 * number + part, numbers(200, number))
            task.add("assistant", f"Answer {number}.")
        window = task.window()
        text = "\n".join(message.text for message in window.messages)
        assert window.report.left_out or window.report.folded
        assert [n for n in range(30) if f"Question {n}?" in text] == [n for n in range(30) if f"Answer {n}." in text]


def test_every_hidden_run_leaves_a_mark(engine):
    """Shown messages and marks together account for the whole log, and the marks can be unfolded."""
    with start(engine, 8000) as task:
        task.add("user", "Fix it.")
        for number in range(40):
            call(task, number, numbers(100, number))
            window = task.window()
        marks = [
            message.text for message in window.messages if message.text.endswith("]") and "messages, m" in message.text
        ]
        assert marks
        handle = marks[0].rpartition(" ")[2].rstrip("]")
        first, last = (int(part.strip("m")) for part in handle.split("-"))
        hidden = sum(int(mark.split()[0].strip("[…").replace(",", "")) for mark in marks)
        assert hidden == window.report.left_out
        assert task.unfold(handle).count("Step") == (last - first + 1) // 2


@pytest.mark.parametrize(("context_length", "least"), [(8000, 36), (32_000, 38), (128_000, 38)])
def test_the_prefix_stays(engine, context_length, least):
    """With results of 11 kB most turns only append, also in a small window."""
    with start(engine, context_length) as task:
        task.add("user", "Fix it.")
        before, appended = [], 0
        for number in range(40):
            call(task, number, numbers(420, number))
            messages = task.window().openai()
            appended += messages[: len(before)] == before
            before = messages
        assert appended >= least


def test_a_page_that_was_asked_for_is_shown_whole(engine):
    """`unfold` gives pages that fit, and the window does not fold the page before the model has answered."""
    with start(engine, 8000) as task:
        task.add("user", "Fix it.")
        for number in range(12):
            call(task, number, numbers(420, number))
            task.window()
        task.add("assistant", "", tool_calls=[{"id": "u", "name": "unfold", "arguments": '{"handle": "m3"}'}])
        assert task.pending_calls() == []
        page = task.log.one(task.log.last).text
        assert 'unfold("m3", lines="' in page
        assert task.window().messages[-1].text == page


def agent(task):
    """An agent whose results differ much in size."""
    task.add("user", "Fix it.")
    for number in range(60):
        call(task, number, numbers((3, 420, 10, 60)[number % 4], number))
        yield task.window()


@pytest.mark.parametrize("context_length", [8000, 32_000])
def test_room_is_used(engine, context_length):
    """While anything is hidden, a window that was just folded fills at least 95 % of what folding goes down to."""
    with start(engine, context_length) as task:
        fresh = [window.report for window in agent(task) if window.report.reasons]
        assert fresh
        assert all(report.tokens >= 0.95 * task.config.fold_to * report.limit for report in fresh)


def test_a_batch_says_where_the_window_changed(engine):
    """The first changed byte lies behind the request, and further behind where the older part stays as it was."""
    with start(engine, 8000) as task:
        changed = [(window.report.changed_at, bool(window.report.reasons)) for window in agent(task)]
        assert all((at is not None) is is_batch for at, is_batch in changed)
        places = [at for at, is_batch in changed if is_batch]
        assert min(places) > len("Fix it.")
        assert max(places) > 4 * min(places)


def test_a_question_in_a_long_chat_stands_with_its_answer(engine):
    """Of 200 questions without tools each that is shown has its answer, in every window."""
    with start(engine, 4000) as task:
        for number in range(200):
            task.add("user", f"Question {number}: {'why is this so ' * (number % 9)}?")
            text = "\n".join(message.text for message in task.window().messages)
            asked = [n for n in range(number) if f"Question {n}:" in text]
            assert asked == [n for n in range(number) if f"Answer {n}:" in text]
            task.add("assistant", f"Answer {number}: {'because it was said ' * (number % 40)}.")
