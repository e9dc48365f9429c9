"""What a person can do to the view, in odd orders: tangents, rewinds, pins, undo, and what each leaves behind."""

import pytest

from rounds import KEY, TOOLS, saying, turn


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
        assert task.compress() is not None
        assert "[side conversation, summarised]" in prompts[0]


def test_a_tangent_of_which_nothing_is_left(engine):
    """There is nothing to sum up."""
    with begun(engine) as task:
        before = shown(task)
        with task.tangent("Why?", keep="summary"):
            task.rewind(2)
        assert shown(task) == before
        assert list(engine.read(task.uuid).summaries()) == []
