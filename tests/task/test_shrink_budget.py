"""A provider finds a window too long that was not: the next one is shorter, in any policy, and this has an end."""

import itertools

import pytest

import orihon
from orihon.errors import BudgetTooSmall, Conflict
from orihon.settings.schema import Settings
from support.replies import KEY, TOOLS, calling, saying, turn


def long_task(engine, **options):
    """A task whose window holds some thousand tokens."""
    task = engine.start(KEY, tools=TOOLS, **options)
    task.add("system", "You fix bugs.")
    task.add("user", "Fix the basket.")
    for number in range(12):
        lines = [f"line {number}.{line}: the basket holds {line * 7} things of kind {number}" for line in range(60)]
        turn(task, calling(("read_file", {"path": f"src/part_{number}.py"})), ["\n".join(lines)])
    return task


@pytest.mark.parametrize("policy", ["fold", "importance", "plain"])
def test_the_next_window_is_shorter(engine, policy):
    """However small the window was beside the budget, the next one is clearly smaller, and the log is whole."""
    with long_task(engine, context_length=100_000, window=policy) as task:
        before = task.window().tokens
        task.shrink_budget()
        after = task.window().tokens
        assert after < 0.8 * before
        assert task.stats().messages == 26


def test_it_stays_tight_after_a_reply(engine):
    """A few good replies prove nothing: what was refused once is not sent again."""
    with long_task(engine, context_length=100_000) as task:
        task.window()
        task.shrink_budget()
        limit = task.log.limit
        for number in range(8):
            window = turn(task, calling(("run_tests", {"path": str(number)}), usage=(100, 5)))
            assert window.tokens <= limit
        assert task.log.limit == limit


def test_a_resume_knows_of_it(disk_url):
    """It is an event of the log, so another process makes the same window."""
    with orihon.open(disk_url, settings=Settings()) as engine:
        task = long_task(engine, context_length=100_000)
        task.window()
        task.shrink_budget()
        window = task.window().openai()
        task.close()
    with orihon.open(disk_url, settings=Settings()) as engine, engine.resume(task.uuid) as again:
        assert again.window().openai() == window


def test_four_refusals_in_a_row_are_enough(engine):
    """Then the sentence says what to change; a reply in between begins the count anew."""
    with long_task(engine, context_length=100_000) as task:
        sizes = []
        for _ in range(4):
            sizes.append(task.window().tokens)
            task.shrink_budget()
        assert all(later < earlier for earlier, later in itertools.pairwise(sizes))
        with pytest.raises(BudgetTooSmall, match="4 times in a row") as caught:
            task.shrink_budget()
        assert "context_length" in caught.value.hint
        assert not caught.value.retryable
        turn(task, saying("Done."))
        task.add("user", "And now the till.")
        task.window()
        task.shrink_budget()


def test_a_task_that_ended_cannot_be_tightened(engine):
    """As with everything else that is said to a task."""
    with long_task(engine) as task:
        task.complete()
        with pytest.raises(Conflict):
            task.shrink_budget()
