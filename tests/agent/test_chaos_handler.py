"""A handler's task with a provider that misbehaves, for a while or for good: the right status, and nothing lost."""

import json
from types import SimpleNamespace

import pytest

import orihon
from orihon.agent.handler import TaskHandler, Work
from orihon.settings.schema import Settings
from support.failing_server import cut, fails_midway, raw, says, stalls, status, unfinished
from support.replies import KEY, TOOLS
from support.wire_rules import violations

TRIES = 2
PASSING = {
    "429": status(429, "Slow down.", headers={"Retry-After": "30"}),
    "500": status(500),
    "503": status(503, "We are away."),
    "cut": cut(0.6, "Step 3.", ("read_file", '{"path": "part_3.py"}')),
    "without an end": unfinished(3, "Step 3.", ("read_file", '{"path": "part_3.py"}')),
    "stall before": stalls(),
    "stall midway": stalls(2),
    "failure midway": fails_midway({"type": "overloaded_error", "message": "Overloaded"}),
    "half a JSON": raw(b'{"cho', "application/json"),
    "a page": raw(b"<html>", "text/html"),
    "nothing": raw(b""),
}
LASTING = {
    "wrong key": (status(401, "Invalid key."), "Invalid key"),
    "no such model": (status(404, "No such model."), "No such model"),
    "refused": (status(400, "It is malformed."), "malformed"),
    "no credit": (status(429, "No credit.", code="insufficient_quota", type="insufficient_quota"), "No credit"),
}


class Tools:
    """Reads, and counts what it read."""

    schemas = TOOLS

    def __init__(self):
        self.read = []

    def run(self, call):
        self.read.append(call.arguments["path"])
        return "\n".join(f"{call.arguments['path']} {line}: value {line * 7}" for line in range(40))


class Source:
    """Hears the labels; nobody says anything."""

    def __init__(self):
        self.marks = []

    def mark(self, _, outcome):
        self.marks.append(outcome)

    def add_comment(self, *_):
        return "1"

    def edit_comment(self, *_):
        pass

    def list_comments(self, *_):
        return []

    def is_wanted(self, *_, **__):
        return True

    def find_linked(self, _):
        return None


@pytest.fixture
def desk(bench, tmp_path):
    """A handler, and all that it works with."""
    with orihon.open(tmp_path / "contexts", settings=Settings()) as engine:
        tools, source = Tools(), Source()
        patience = {"tries": TRIES, "stall_seconds": 0.4}
        handler = TaskHandler(engine, bench.model(**patience), tools, source=source)
        yield SimpleNamespace(engine=engine, server=bench.server, tools=tools, source=source, handler=handler)
        for body in bench.server.bodies:
            assert not violations(bench.provider, body["messages"] if bench.provider == "openai" else body)


def reading(number):
    return says(f"Step {number}.", ("read_file", json.dumps({"path": f"part_{number}.py"})))


def run(desk, *acts):
    desk.server.acts = list(acts)
    return desk.handler.handle(Work(key=KEY, request="Fix the basket."))


def check_log(desk, uuid, *said):
    """Every reply that was whole is in the log once, each call was carried out once, and each result is there."""
    messages = list(desk.engine.read(uuid).messages())
    roles = {message.role: [one for one in messages if one.role == message.role] for message in messages}
    assert len(roles["system"]) == 1
    assert [message.text for message in roles["user"]] == ["Fix the basket."]
    assert [message.text for message in roles.get("assistant", [])] == list(said)
    asked = [f"part_{text.split()[1][:-1]}.py" for text in said if text.startswith("Step")]
    assert desk.tools.read == asked
    assert [message.text.split()[0] for message in roles.get("tool", [])] == asked
    assert sum(1 for _ in desk.engine.read(uuid).tools()) == len(asked)


@pytest.mark.parametrize("act", PASSING.values(), ids=PASSING)
def test_a_failure_that_passes_is_not_seen_in_the_end(desk, act):
    """Once in the middle and once at the last reply: the task is completed."""
    row = run(desk, reading(1), reading(2), act, reading(3), act, says("Done."))
    assert (row.status, row.llm_call_count, row.tool_call_count) == ("completed", 4, 3)
    assert desk.source.marks == ["processing", "done"]
    check_log(desk, row.uuid, "Step 1.", "Step 2.", "Step 3.", "Done.")
    assert desk.server.acts == []


@pytest.mark.parametrize(
    ("act", "status", "mark"),
    [
        (act, *(("failed", "failed") if name.startswith("stall") else ("paused", "paused")))
        for name, act in PASSING.items()
    ],
    ids=PASSING,
)
@pytest.mark.parametrize("before", [0, 2])
def test_a_failure_that_lasts_ends_the_run_and_a_resume_completes(desk, act, status, mark, before):
    """A silent model is a timeout. What was said is there; the resumed task asks what failed, and nothing twice."""
    steps = [f"Step {number}." for number in range(1, before + 1)]
    row = run(desk, *map(reading, range(1, before + 1)), *[act] * TRIES)
    assert (row.status, row.llm_call_count) == (status, before)
    assert row.reason == "timeout" if status == "failed" else row.reason
    assert desk.source.marks == ["processing", mark]
    check_log(desk, row.uuid, *steps)
    desk.server.acts = [reading(before + 1), says("Done.")]
    row = desk.handler.resume(row.uuid)
    assert (row.status, row.llm_call_count, row.tool_call_count) == ("completed", before + 2, before + 1)
    assert desk.source.marks == ["processing", mark, "processing", "done"]
    check_log(desk, row.uuid, *steps, f"Step {before + 1}.", "Done.")
    assert desk.server.bodies[before] == desk.server.bodies[before + TRIES]


@pytest.mark.parametrize(("act", "words"), LASTING.values(), ids=LASTING)
def test_a_refusal_fails_the_task_at_once(desk, act, words):
    """Waiting would not help: the reason is in the row, what was said is in the log, and nothing is asked again."""
    row = run(desk, reading(1), act)
    assert (row.status, row.reason, row.llm_call_count) == ("failed", "ModelError", 1)
    assert words in row.error_message
    assert desk.source.marks == ["processing", "failed"]
    check_log(desk, row.uuid, "Step 1.")
    assert len(desk.server.bodies) == 2
