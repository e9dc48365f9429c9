"""Calls and their results: ids of any kind, arguments that are known or not, and keys that are said again."""

import json

import pytest

import orihon
from orihon.context.repair import INTERRUPTED
from orihon.errors import OutcomeUnknown, StoreError
from orihon.settings.schema import Settings
from support.faults import Fault, Faults
from support.replies import KEY, TOOLS, calling, saying, turn
from support.wire_rules import violations

TOKEN = "ghp_" + "a1B2c3D4" * 4 + "e5F6"


def begun(engine, **options):
    task = engine.start(KEY, tools=TOOLS, inherit=False, **options)
    task.add("system", "You fix bugs.")
    task.add("user", "Fix the basket.")
    return task


def asking(*calls):
    """A reply whose calls have these ids and arguments."""
    return saying(
        "",
        tool_calls=[
            {"id": given, "type": "function", "function": {"name": "read_file", "arguments": json.dumps(arguments)}}
            for given, arguments in calls
        ],
    )


def answer_all(task):
    """Run what waits; the result is the arguments."""
    for call in task.pending_calls():
        with task.tool(call) as run:
            run.result = call.arguments
    assert task.pending_calls() == []


def results(task):
    window = task.window()
    for api in ("openai", "anthropic", "gemini", "responses"):
        assert violations(api, getattr(window, api)()) == []
    return [message["content"] for message in window.openai() if message["role"] == "tool"]


@pytest.mark.parametrize("id", ["", " ", "\0", "\ud800", "x" * 300_000, "日本", "a b/c", "call_3_1"])
def test_every_call_is_run_once_with_its_own_arguments(engine, id):
    """Whatever ids a provider gives, twice the same in one reply and again in the next."""
    with begun(engine) as task:
        for number in range(2):
            task.add_reply(asking((id, {"path": f"{number}a", "token": TOKEN}), (id, {"path": f"{number}b"})))
            assert [call.arguments.get("token") for call in task.pending_calls()] == [TOKEN, None]
            answer_all(task)
        assert [json.loads(result)["path"] for result in results(task)] == ["0a", "0b", "1a", "1b"]
        assert engine.row(task.uuid).tool_call_count == 4


def test_masked_arguments_are_never_run(engine):
    """Back at an older reply, what the model wrote there is not known any more."""
    with begun(engine) as task:
        task.add_reply(asking(("call_0", {"token": TOKEN})))
        task.add("user", "Another one.")
        task.add_reply(asking(("call_0", {"path": "newer"})))
        task.rewind(3)
        assert task.pending_calls() == []
        assert results(task) == [INTERRUPTED]


def test_a_result_by_hand(engine):
    """Without an id it answers the first call that waits; with one that nobody knows it is the user's text."""
    with begun(engine) as task:
        task.add_reply(calling(("read_file", {}), ("run_tests", {})))
        task.add("tool", "2 passed", tool_name="run_tests")
        task.add("tool", "stray", tool_call_id="nobody")
        assert [call.name for call in task.pending_calls()] == ["read_file"]
        task.add("tool", "text")
        assert task.pending_calls() == []
        assert results(task) == ["text", "2 passed"]


def test_a_reply_with_a_key_counts_once(engine):
    """Said again, it changes neither the sums nor what waits."""
    reply = asking(("", {"token": TOKEN}))
    with begun(engine) as task:
        first = task.add_reply(reply, key="k")
        task.add("user", "Wait.")
        task.rewind(first)
        assert task.add_reply(reply, key="k") == first
        assert engine.row(task.uuid).llm_call_count == 1
        assert [call.arguments for call in task.pending_calls()] == [{"token": TOKEN}]


@pytest.mark.parametrize("key", ["k", None])
def test_a_write_of_unknown_outcome(tmp_path, key):
    """Repeated with its key it is there once; in both cases the window shows what is stored."""
    with orihon.open(tmp_path, settings=Settings()) as engine, begun(engine) as task:
        reply = asking(("a", {"path": "x"}))
        written, not_taken_back = Fault(at=1, how="fail after", errno=5), Fault(at=2, how="fail", errno=5)
        with Faults(written), Faults(not_taken_back), pytest.raises(OutcomeUnknown):
            task.add_reply(reply, key=key)
        task.add_reply(reply, key=key)
        answer_all(task)
        assert results(task)[-1] == '{"path": "x"}'
        stored = [message.seq for message in engine.read(task.uuid).messages() if message.role == "assistant"]
        assert stored == ([3] if key else [3, 4])
        assert engine.row(task.uuid).llm_call_count == 1
        assert task.window().openai() == engine.read(task.uuid).window().openai()


def test_a_reply_whose_sums_could_not_be_written_is_counted_when_it_is_repeated(tmp_path):
    """The key finds the message, and the sums are made up for."""
    with orihon.open(tmp_path, settings=Settings()) as engine, begun(engine) as task:
        task.add_reply(saying("Hm."))
        with Faults(Fault(at=2, how="fail", errno=28, onwards=True)), pytest.raises(StoreError):
            task.add_reply(saying("Well."), key="k")
        for _ in range(2):
            task.add_reply(saying("Well."), key="k")
        assert engine.row(task.uuid).llm_call_count == 2


def test_a_call_that_a_summary_swallowed_does_not_wait(engine):
    """Going back to it with a summary in its place, there is nobody to answer."""
    task = engine.start(KEY, tools=TOOLS, inherit=False)
    task.add("user", "Go.")
    turn(task, saying("Going on. " + "It is a long way. " * 40))
    task.add("user", "Go on.")
    left = task.add_reply(calling(("read_file", {}), ("read_file", {})))
    with task.tool(task.pending_calls()[0]) as run:
        run.result = "half"
    task.add("user", "Leave it.")
    turn(task, saying("Left. " + "It was too long. " * 40))
    task.add("user", "Good.")
    assert task.compact(keep_recent=3) is not None
    task.rewind(left + 1)
    assert task.pending_calls() == []
    task.writer.lease.close()
    with engine.resume(task.uuid) as again:
        assert INTERRUPTED not in str(again.window().openai())


@pytest.mark.parametrize("context_length", [8_000, 32_000])
def test_parallel_calls_that_come_one_by_one(engine, context_length):
    """They wait together, under equal ids too, and both fresh results are in the window however large they are."""
    with begun(engine, context_length=context_length) as task:
        for number in range(6):
            task.add("assistant", "Look.")
            for path in "ab":
                task.add_reply(asking((f"c{number % 2}", {"path": f"{number}{path}", "token": TOKEN})))
            waiting = task.pending_calls()
            assert [call.arguments["path"] for call in waiting] == [f"{number}a", f"{number}b"]
            assert {call.arguments["token"] for call in waiting} == {TOKEN}
            for call in waiting:
                with task.tool(call) as run:
                    run.result = f"{call.arguments['path']} " + "\n".join(f"line {n}" for n in range(3_000))
            assert task.pending_calls() == []
            first, second = results(task)[-2:]
            assert first.startswith(f"{number}a line 0\n")
            assert second.startswith(f"{number}b line 0\n")


def test_hundreds_of_items_of_one_reply():
    """What is more than the window holds is left out, whole items at a time, and the rest can be sent."""
    with orihon.open("memory:") as engine, begun(engine, context_length=4_000) as task:
        for number in range(500):
            task.add_reply(asking((f"c{number}", {"path": f"{number}"})))
        assert task.window().tokens <= task.window().report.limit
        assert results(task)


def test_a_tool_that_does_not_exist(engine):
    """A call to a name that the model invented keeps it; the answer lists the tools. Without tools nobody knows."""
    with begun(engine) as task:
        called = [{"id": "c", "type": "function", "function": {"name": "invented.tool", "arguments": "{}"}}]
        task.add_reply(saying("", tool_calls=called))
        assert task.pending_calls() == []
        answer = task.window().messages[-1]
        assert answer.is_error
        assert answer.text == (
            "There is no tool named 'invented.tool'. The tools are: read_file, run_tests, unfold, recall. "
            "Call one of them instead."
        )
        assert next(task.log.read(3, 3)).tool_calls[0].name == "invented.tool"
        assert task.window().openai()[2]["tool_calls"][0]["function"]["name"].startswith("invented_tool")
    with engine.start(KEY, inherit=False) as task:
        task.add_reply(saying("", tool_calls=called))
        assert [call.name for call in task.pending_calls()] == ["invented.tool"]
