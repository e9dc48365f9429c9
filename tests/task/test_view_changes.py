"""What a person can do to the view, in odd orders: tangents, rewinds, pins, undo, and what each leaves behind."""

import pytest

from orihon.errors import UsageError
from support.replies import KEY, TOOLS, calling, saying, turn


def begun(engine, **options):
    task = engine.start(KEY, tools=TOOLS, inherit=False, **options)
    task.add("system", "You fix bugs.")
    task.add("user", "Fix the basket.")
    return task


def shown(task):
    return [message["content"] for message in task.window().openai()]


def chat(task, rounds=12):
    """Enough words to be worth a summary."""
    for number in range(rounds):
        task.add("user", f"question {number} " * 20)
        turn(task, saying(f"answer {number} " * 30))


def test_what_was_rewound_in_a_tangent_does_not_stay(engine):
    """The tail is what is visible of the last exchange."""
    with begun(engine) as task:
        with task.tangent("Why is CI slow?", keep="tail"):
            turn(task, saying("The cache is off."))
            here = task.stats().messages
            task.add("user", "A wrong turn.")
            turn(task, saying("A wrong answer."))
            task.rewind(here)
        assert shown(task)[2:] == ["Why is CI slow?", "The cache is off."]


@pytest.mark.parametrize("before", ["nothing", "a tangent", "a rewind"])
def test_the_summary_of_a_tangent_is_shown_wherever_it_was_opened(engine, before):
    """It is a message like any other, also right after what is hidden, and the turn stays with whoever had it."""
    with begun(engine) as task:
        turn(task, saying("I will."))
        here = task.stats().messages
        if before == "a tangent":
            with task.tangent("What is for lunch?"):
                turn(task, saying("Soup."))
        elif before == "a rewind":
            task.add("user", "Wrong.")
            task.rewind(here)
        with task.tangent("Why is the sky blue?", keep="summary"):
            turn(task, saying("It scatters the light."))
        assert len(shown(task)) == 4
        assert "It scatters the light." in shown(task)[-1]
        assert not task.wants_reply()
        task.add("user", "Go on.")
        task.add("system", "Be brief.")
        assert task.wants_reply()
        with task.tangent("And at night?", keep="summary"):
            turn(task, saying("There is no light."))
        assert task.wants_reply()


def test_the_summary_of_a_tangent_is_summarised_with_the_rest(engine):
    """What was asked to stay is not lost with the messages around it."""
    prompts = []
    with begun(engine, summariser=lambda prompt: prompts.append(prompt) or "They talked.") as task:
        with task.tangent("Why is the sky blue?", keep="summary"):
            turn(task, saying("It scatters."))
        prompts.clear()
        chat(task)
        assert task.compact() is not None
        assert "[side conversation, summarised]" in prompts[0]


def test_a_tangent_of_which_nothing_is_left(engine):
    """There is nothing to sum up."""
    with begun(engine) as task:
        before = shown(task)
        with task.tangent("Why?", keep="summary"):
            task.rewind(2)
        assert shown(task) == before
        assert list(engine.read(task.uuid).summaries()) == []


def test_a_pin_goes_with_what_is_rewound(engine):
    """Rewound text is for people only, pinned or not; an undo brings both back."""
    with begun(engine) as task:
        task.add("user", "Never touch the till.", pinned=True)
        task.rewind(2)
        assert shown(task) == ["You fix bugs.", "Fix the basket."]
        with pytest.raises(UsageError, match="m3 is no longer part"):
            task.pin(3)
        task.undo()
        assert task.log.view.state.pins == (3,)
        assert shown(task)[-1] == "Never touch the till."


def test_a_pinned_result_keeps_its_call(engine):
    """Whichever message of a unit is pinned, all of it is shown, and nothing of the next unit with the same id."""
    with begun(engine, summariser=lambda _: "They talked.") as task:
        reply = calling(("read_file", {"path": "a.py"}))
        turn(task, reply, ["first result"])
        turn(task, reply, ["second result"])
        task.pin(4)
        task.unpin(3)
        task.pin(4)
        chat(task)
        task.compact()
        window = task.window().openai()
        (place,) = [place for place, message in enumerate(window) if message["content"] == "first result"]
        assert window[place - 1]["tool_calls"][0]["id"] == window[place]["tool_call_id"]
        assert "second result" not in str(window)


def test_a_call_that_was_left_out_whole_waits_no_longer(engine):
    """Going back to it does not bring it back into the window, so nobody answers it, also not on a resume."""
    task = begun(engine)
    task.add_reply(calling(("read_file", {"path": "a.py"}), text="First."))
    task.add("user", "Never mind.")
    task.writer.event("folds", first=1, last=0, hidden=[[3, 3]])
    task.rewind(3)
    before = shown(task)
    assert "First." not in str(before)
    assert task.pending_calls() == []
    task.close()
    with engine.resume(task.uuid) as task:
        assert shown(task) == before


def test_undo_takes_back_nothing_else(engine):
    """The snapshot and the pins of the time since stay as they are."""
    with begun(engine, summariser=lambda _: "They talked.") as task:
        chat(task)
        task.compact()
        task.snapshot(goal="Fix the till too")
        pin = task.add("user", "Mind the till.", pinned=True)
        task.undo()
        assert "They talked." not in str(shown(task))
        assert task.snapshot().goal == "Fix the till too"
        assert task.log.view.state.pins == (pin,)


def test_undo_stays_inside_a_tangent(engine):
    """What was done before it was opened cannot be taken back from inside."""
    with begun(engine) as task:
        task.add("user", "Wrong.")
        task.rewind(2)
        before = shown(task)
        with task.tangent("Why?"):
            with pytest.raises(UsageError, match="nothing to undo"):
                task.undo()
            task.rewind(3)
            task.undo()
        assert shown(task) == before
        task.undo()
        assert shown(task)[-1] == "Wrong."


@pytest.mark.parametrize("change", ["pin", "unpin"])
@pytest.mark.parametrize("made_by", ["fold", "summary"])
def test_a_pin_moves_nothing_before_the_next_fold(engine, change, made_by):
    """What is hidden now stays hidden, and what is shown stays, until the window changes anyway."""
    with begun(engine, context_length=6000, reserved_output=0, tokens="bytes4") as task:
        pin = task.add("user", "Mind the till. " * 20, pinned=change == "unpin")
        number = folds = 0
        while not folds:
            text = "\n".join(f"line {line} of {number}" for line in range(60))
            folds += bool(turn(task, calling(("read_file", {"path": f"{number}.py"})), [text]).report.reasons)
            number += 1
        if made_by == "summary":
            assert task.compact() is not None
        before = task.window().openai()
        hidden = next(seq for seq in range(4, 4 + 2 * number) if f"line 30 of {(seq - 4) // 2}" not in str(before))
        getattr(task, change)(hidden if change == "pin" else pin)
        assert task.window().openai() == before
        turn(task, saying("Hm."))
        task.add("user", "Well?")
        assert task.window().openai()[: len(before)] == before
        task.compact(keep_recent=0)
        words = [str(message["content"]) for message in task.window().openai()]
        if change == "pin":
            assert any(f"line 30 of {(hidden - 4) // 2}" in text for text in words)
        else:
            assert not any(text.startswith("Mind the till.") for text in words)  # but the summary may quote it
