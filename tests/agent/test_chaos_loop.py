"""A whole task with a provider that misbehaves between all its replies: the right status, and nothing lost."""

import json

import pytest

import orihon
from orihon.errors import BudgetTooSmall, ContextOverflow, ModelError
from orihon.settings.schema import Settings
from support.failing_server import cut, raw, says, stalls, status, unfinished
from support.replies import KEY, TOOLS
from support.wire_rules import violations

OVERFLOW = status(400, "prompt is too long: 60000 tokens > 50000 maximum", code="context_length_exceeded")


def work(task, model):
    """The loop of an agent."""
    while task.wants_reply():
        try:
            reply = model.reply(task.window())
        except ContextOverflow:
            task.shrink_budget()
            continue
        except ModelError as error:
            if not error.retryable:
                raise
            task.pause(error.message)
            return
        task.add_reply(reply)
        for call in task.pending_calls():
            with task.tool(call) as run:
                run.result = "\n".join(f"{call.arguments['path']} {line}: value {line * 7}" for line in range(80))


def begun(engine):
    task = engine.start(KEY, tools=TOOLS, context_length=50_000)
    task.add("system", "You fix bugs.")
    task.add("user", "Fix the basket.")
    return task


def reading(number):
    return says(f"Step {number}.", ("read_file", json.dumps({"path": f"part_{number}.py"})))


def steps_of(engine, uuid):
    """What the model said, in the order of the log."""
    return [message.text for message in engine.read(uuid).messages() if message.role == "assistant"]


@pytest.fixture(params=["jsonl", "sqlite"])
def url(request, tmp_path):
    return str(tmp_path / "contexts") if request.param == "jsonl" else f"sqlite:///{tmp_path}/contexts.db"


def test_a_task_through_the_storm(bench, url):
    """Every kind of failure once, and two overflows: each step is in the log once, and the task is completed."""
    bench.server.acts = [
        status(429, headers={"Retry-After": "30"}), reading(1),
        status(500), cut(0.6), reading(2),
        stalls(2), reading(3),
        raw(b"<html>", "text/html"), unfinished(3, "Step 4."), reading(4),
        OVERFLOW, reading(5),
        status(529), OVERFLOW, cut(0.9, "Step 6."), reading(6),
        raw(b'{"cho', "application/json"), says("Done."),
    ]  # fmt: skip
    with orihon.open(url, settings=Settings()) as engine:
        with begun(engine) as task:
            work(task, bench.model(stall_seconds=1.0))
        row = engine.row(task.uuid)
        assert (row.status, row.llm_call_count, row.tool_call_count) == ("completed", 7, 6)
        assert steps_of(engine, task.uuid) == [*(f"Step {number}." for number in range(1, 7)), "Done."]
        assert sum(1 for _ in engine.read(task.uuid).tools()) == 6
    assert bench.server.acts == []
    for body in bench.server.bodies:
        assert not violations(bench.provider, body["messages"] if bench.provider == "openai" else body)
    lengths = [len(json.dumps(body["messages"])) for body in bench.server.bodies]
    assert all(lengths[refused + 1] < 0.9 * lengths[refused] for refused in (10, 13))


def test_a_provider_that_stays_away_pauses_the_task_and_a_resume_goes_on(bench, url):
    """What was said before is all there, and the second run needs nothing twice."""
    bench.server.acts = [reading(1), reading(2), *[status(503, "We are away.")] * 4, reading(3), says("Done.")]
    with orihon.open(url, settings=Settings()) as engine:
        model = bench.model()
        with begun(engine) as task:
            work(task, model)
        row = engine.row(task.uuid)
        assert row.status == "paused"
        assert "We are away" in row.reason
        assert steps_of(engine, task.uuid) == ["Step 1.", "Step 2."]
        with engine.resume(task.uuid) as again:
            work(again, model)
        assert engine.row(task.uuid).status == "completed"
        assert steps_of(engine, task.uuid) == ["Step 1.", "Step 2.", "Step 3.", "Done."]
    assert bench.server.bodies[5] == bench.server.bodies[6]  # the resumed window is the one that failed


def test_a_provider_that_refuses_fails_the_task(bench, url):
    """A wrong key does not become right by waiting."""
    bench.server.acts = [reading(1), status(401, "Invalid key")]
    with orihon.open(url, settings=Settings()) as engine:
        with pytest.raises(ModelError), begun(engine) as task:
            work(task, bench.model())
        row = engine.row(task.uuid)
        assert row.status == "failed"
        assert "401: Invalid key" in row.error_message
        assert steps_of(engine, task.uuid) == ["Step 1."]


def test_a_window_that_never_fits_ends_in_the_right_words(bench, url):
    """After four shorter windows the error says what to set."""
    bench.server.acts = [*map(reading, range(6)), *[OVERFLOW] * 9]
    with orihon.open(url, settings=Settings()) as engine:
        with pytest.raises(BudgetTooSmall) as caught, begun(engine) as task:
            work(task, bench.model())
        assert "context_length" in caught.value.hint
        assert engine.row(task.uuid).status == "failed"
        assert len(steps_of(engine, task.uuid)) == 6
    assert len(bench.server.bodies) <= 6 + 5
