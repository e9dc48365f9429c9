"""The tables of the seeds about the state of a task, cell by cell, read from the real `state.json`.

Document 000 §3.2 lists the fields, the values of the status and the moments at which the file is written. The row of
`tasks.db` has the status of documents 001 and 002.
Document 001 §2.4 lists the statuses, which of them are inherited, and which leave a final summary.
"""

import json
import os
import time

import pytest

import orihon
from orihon.settings.schema import Lease, Settings
from orihon.stores.jsonl.layout import DIRECTORIES, decode_status
from support.replies import KEY, TOOLS, calling, saying, turn

LONG = "I changed the total in basket.py. " * 60  # more than is told whole in a final summary


@pytest.fixture
def place(tmp_path):
    return tmp_path / "contexts"


@pytest.fixture
def engine(place):
    with orihon.open(place, settings=Settings()) as engine:
        yield engine


@pytest.fixture
def state(place):
    """What `state.json` says now, wherever the task is."""

    def read(task):
        (found,) = place.glob(f"*/{task.uuid}/state.json")
        return json.loads(found.read_text("utf-8"))

    return read


def begun(engine, **options):
    task = engine.start(KEY, tools=TOOLS, user="alice", **options)
    task.add("system", "You fix bugs.")
    task.add("user", "Fix the basket.")
    return task


def long_enough(task):
    """So much has been said that a summary is worth it."""
    for number in range(8):
        turn(task, calling(("read_file", {"path": f"{number}.py"})), [LONG])


# 000 §3.2: the fields


def test_state_json_3_2_has_every_field_of_the_example(engine, state):
    """The names are those of the seed, from the first moment on."""
    with begun(engine) as task:
        assert state(task).keys() >= {
            "status",
            "started_at",
            "updated_at",
            "completed_at",
            "llm_call_count",
            "tool_call_count",
            "total_tokens_used",
            "current_context_tokens",
            "compression_count",
            "last_activity",
            "error",
        }


def test_state_json_3_2_field_started_at(engine, state):
    """When it began; a pause and a resume do not change it."""
    task = begun(engine)
    began = state(task)["started_at"]
    assert began == engine.read(task.uuid).metadata.created_at
    task.pause()
    with engine.resume(task.uuid):
        assert state(task)["started_at"] == began
    assert state(task)["started_at"] == began


def test_state_json_3_2_field_updated_at(engine, state):
    """It moves with every write."""
    with begun(engine) as task:
        times = [state(task)["updated_at"]]
        turn(task, calling(("read_file", {})))
        times.append(state(task)["updated_at"])
        task.compact()
    times.append(state(task)["updated_at"])
    assert times == sorted(set(times))


def test_state_json_3_2_field_completed_at(engine, state):
    """Null until it ends, and again when it goes on after all."""
    task = begun(engine)
    assert state(task)["completed_at"] is None
    task.pause()
    assert state(task)["completed_at"] is None
    task = engine.resume(task.uuid)
    task.fail("the holder is gone", reason="interrupted")
    assert state(task)["completed_at"] > state(task)["started_at"]
    task = engine.resume(task.uuid)
    assert state(task)["completed_at"] is None
    task.complete()
    assert state(task)["completed_at"] is not None


def test_state_json_3_2_field_llm_call_count(engine, state):
    """One more with every reply."""
    with begun(engine) as task:
        assert state(task)["llm_call_count"] == 0
        for number in range(1, 4):
            turn(task, calling(("run_tests", {})))
            assert state(task)["llm_call_count"] == number
    assert state(task)["llm_call_count"] == 3


def test_state_json_3_2_field_tool_call_count(engine, state):
    """One more with every run of a tool, also a failed one and one that the engine answers."""
    with begun(engine) as task:
        turn(task, calling(("run_tests", {}), ("read_file", {})))
        assert state(task)["tool_call_count"] == 2
        task.add_reply(calling(("read_file", {}), ("recall", {"query": "basket"})))
        with task.tool(task.pending_calls()[0]):
            raise FileNotFoundError
        assert state(task)["tool_call_count"] == 4


def test_state_json_3_2_field_total_tokens_used(engine, state):
    """What the provider says it used, in and out, over all calls."""
    with begun(engine) as task:
        turn(task, calling(("run_tests", {}), usage=(120, 30)))
        assert state(task)["total_tokens_used"] == 150
        turn(task, saying("Done.", usage=(160, 5)))
        assert state(task)["total_tokens_used"] == 315


def test_state_json_3_2_field_current_context_tokens(engine, state):
    """What the last window costs."""
    with begun(engine) as task:
        assert state(task)["current_context_tokens"] == 0
        first = turn(task, calling(("read_file", {})), [LONG])
        assert state(task)["current_context_tokens"] == first.tokens
        second = task.window()
        assert state(task)["current_context_tokens"] == second.tokens > first.tokens


def test_state_json_3_2_field_compression_count(engine, state):
    """One more with every summary that counts; the final one is none of them."""
    with begun(engine) as task:
        long_enough(task)
        assert task.compact(dry_run=True) is not None
        assert state(task)["compression_count"] == 0
        assert task.compact() is not None
        assert state(task)["compression_count"] == 1
    assert state(task)["compression_count"] == 1


def test_state_json_3_2_field_last_activity(engine, state):
    """What was done last, in the seed's word for a tool."""
    with begun(engine) as task:
        seen = []
        task.window()
        seen.append(state(task)["last_activity"])
        task.add_reply(calling(("run_tests", {})))
        seen.append(state(task)["last_activity"])
        with task.tool(task.pending_calls()[0]):
            seen.append(state(task)["last_activity"])
        seen.append(state(task)["last_activity"])
        assert seen == ["llm_call", "llm_reply", "tool_execution", "tool_result"]


def test_state_json_3_2_field_error(engine, state):
    """Null while nothing is wrong, then what was."""
    with pytest.raises(ValueError, match="no such basket"), begun(engine) as task:
        assert state(task)["error"] is None
        raise ValueError("no such basket")
    assert state(task)["error"] == "ValueError: no such basket"


# 000 §3.2: the values of the status


def test_state_json_3_2_status_initializing(engine, state):
    """From the start to the first window."""
    with begun(engine) as task:
        assert (state(task)["status"], state(task)["activity"]) == ("initializing", "initializing")


def test_state_json_3_2_status_processing(engine, state):
    """While the model and the tools are busy."""
    with begun(engine) as task:
        task.window()
        assert (state(task)["status"], state(task)["activity"]) == ("processing", "processing")
        task.add_reply(calling(("run_tests", {})))
        with task.tool(task.pending_calls()[0]):
            assert (state(task)["status"], state(task)["activity"]) == ("processing", "processing")


def test_state_json_3_2_status_compressing(engine, state):
    """While the summariser writes, and no longer."""
    seen = []

    def summariser(_):
        seen.append((state(task)["status"], state(task)["activity"]))
        return "We changed the total in basket.py."

    with begun(engine, summariser=summariser) as task:
        long_enough(task)
        task.compact()
        assert seen == [("compressing", "compressing")]
        assert state(task)["activity"] == "processing"


def test_state_json_3_2_status_compressing_ends_when_there_is_nothing_to_gain(engine, state):
    """A compression that makes nothing leaves no trace of itself."""
    with begun(engine) as task:
        assert task.compact() is None
        assert state(task)["activity"] == "processing"


def test_state_json_3_2_status_completing(engine, state, place):
    """While the final summary is written, in the directory of the running ones."""
    seen = []

    def summariser(_):
        there = (place / "running" / task.uuid).is_dir()
        seen.append((state(task)["status"], state(task)["activity"], there))
        return "We changed the total in basket.py."

    with begun(engine, summariser=summariser) as task:
        turn(task, saying(LONG))
    assert seen == [("completing", "completing", True)]


def test_state_json_3_2_status_completed(engine, state, place):
    """After the move, with no activity left."""
    with begun(engine) as task:
        pass
    assert (state(task)["status"], state(task)["activity"]) == ("completed", "")
    assert (place / "completed" / task.uuid).is_dir()


def test_state_json_3_2_status_failed(engine, state, place):
    """With the error, where the completed ones are."""
    task = begun(engine)
    task.fail("out of tokens")
    assert (state(task)["status"], state(task)["error"]) == ("failed", "out of tokens")
    assert (place / "completed" / task.uuid).is_dir()


def test_state_json_3_2_status_timeout(engine, state):
    """A status of its own; the row has a failure with that reason."""
    task = begun(engine)
    task.fail("No answer in 300 seconds.", reason="timeout")
    assert (state(task)["status"], engine.row(task.uuid).status) == ("timeout", "failed")
    assert state(task)["error"] == "No answer in 300 seconds."


# 000 §3.2: when it is written


def test_state_json_3_2_written_before_and_after_a_model_call(engine, state):
    """The window is the last thing before the call, the reply the first after it."""
    with begun(engine) as task:
        idle = state(task)
        task.window()
        before = state(task)
        task.add_reply(saying("Done."))
        after = state(task)
        assert idle["updated_at"] < before["updated_at"] < after["updated_at"]
        assert (before["last_activity"], after["last_activity"]) == ("llm_call", "llm_reply")


def test_state_json_3_2_written_before_and_after_a_tool(engine, state):
    """Whoever looks while the tool runs sees that it does."""
    with begun(engine) as task:
        turn(task, calling(("run_tests", {})), [])
        task.add_reply(calling(("run_tests", {})))
        idle = state(task)
        with task.tool(task.pending_calls()[0]):
            before = state(task)
        after = state(task)
        assert idle["updated_at"] < before["updated_at"] < after["updated_at"]
        assert after["tool_call_count"] == before["tool_call_count"] + 1 == 2


def test_state_json_3_2_written_at_a_compression(engine, state):
    """When it begins and when its summary counts."""
    seen = []

    def summariser(_):
        seen.append(state(task))
        return "We changed the total in basket.py."

    with begun(engine, summariser=summariser) as task:
        long_enough(task)
        idle = state(task)
        task.compact()
        after = state(task)
        assert idle["updated_at"] < seen[0]["updated_at"] < after["updated_at"]
        assert (after["compression_count"], after["last_activity"]) == (1, "compression")


def test_state_json_3_2_heartbeat(place):
    """Every 30 seconds by default, here faster, `.lock` says that its holder lives, whatever else he does."""
    assert Settings().lease.heartbeat_seconds == 30
    settings = Settings(lease=Lease(heartbeat_seconds=0.02, expiry_seconds=60))
    with orihon.open(place, settings=settings) as engine, begun(engine) as task:
        lock = place / "running" / task.uuid / ".lock"

        def beat():
            said = json.loads(lock.read_text("utf-8"))
            assert said["process_id"] == os.getpid()
            return said["heartbeat_at"]

        assert engine.row(task.uuid).heartbeat_at is not None  # from the first moment
        state = lock.with_name("state.json")
        first, touched, until = beat(), state.stat().st_mtime_ns, time.monotonic() + 30
        while (beat() == first or state.stat().st_mtime_ns == touched) and time.monotonic() < until:
            time.sleep(0.01)
        assert beat() > first
        assert state.stat().st_mtime_ns > touched
        assert engine.row(task.uuid).heartbeat_at is not None
    assert not lock.exists()


# 001 §2.4: the statuses

ENDS = {
    "running": lambda _: None,
    "completed": lambda task: task.complete(),
    "stopped": lambda task: task.stop("by the user"),
    "failed": lambda task: task.fail("out of tokens"),
    "paused": lambda task: task.pause(),
}


@pytest.fixture(params=ENDS)
def ended(request, engine):
    """A task in each of the five statuses, and the status."""
    task = begun(engine)
    turn(task, saying("The basket is fixed."))
    ENDS[request.param](task)
    yield task, request.param
    task.close()


def test_status_2_4_meaning(ended, engine, state, place):
    """File, row and directory say the same, and only a running task has a writer."""
    task, status = ended
    row = engine.row(task.uuid)
    assert row.status == status
    assert decode_status(state(task)["status"]) == status
    assert (place / DIRECTORIES[status] / task.uuid).is_dir()
    assert (row.lease_owner is not None) == (status == "running")
    assert row.reason == ("by the user" if status == "stopped" else None)


def test_status_2_4_inherited(ended, engine):
    """Completed and stopped ones are, by whoever works on the same thing next; the others are not."""
    task, status = ended
    with engine.start(KEY, user="alice") as new:
        new.add("user", "Go on.")
        inherits = status in {"completed", "stopped"}
        assert new.config.inherited_from == (task.uuid if inherits else "")
        assert ("The basket is fixed." in str(new.window().openai())) == inherits


def test_status_2_4_final_summary(ended, engine, state):
    """Made when a task completes, is stopped or fails; not while it runs or is paused."""
    task, status = ended
    made = status in {"completed", "stopped", "failed"}
    kinds = [summary.kind for summary in engine.read(task.uuid).summaries()]
    assert kinds == (["final"] if made else [])
    assert ("The basket is fixed." in (state(task)["final_summary"] or "")) == made


def test_status_2_4_paused_can_be_resumed(engine, state):
    """That is what it is for."""
    task = begun(engine)
    task.pause()
    with engine.resume(task.uuid) as again:
        assert (state(task)["status"], state(task)["resume_count"]) == ("processing", 1)
        assert again.wants_reply()
    assert state(task)["status"] == "completed"
