"""From one status to another: what is allowed, what it leaves behind, and that it happens once."""

import asyncio

import pytest

import orihon
from orihon.context.repair import INTERRUPTED
from orihon.errors import Conflict, LeaseHeld
from orihon.records import Summary
from orihon.settings.schema import Settings
from orihon.task.lifecycle import TRANSITIONS
from support.replies import KEY, TOOLS, calling, saying, turn

ENDS = {
    "completed": lambda task: task.complete(),
    "stopped": lambda task: task.stop("by the user"),
    "failed": lambda task: task.fail("out of tokens"),
    "paused": lambda task: task.pause(),
}


def begun(engine, **options):
    task = engine.start(KEY, tools=TOOLS, **options)
    task.add("system", "You fix bugs.")
    task.add("user", "Fix the basket.")
    return task


@pytest.mark.parametrize("status", ENDS)
def test_each_outcome_has_its_own_status_and_directory(disk_url, tmp_path, status):
    """Row, directory and reason agree, and the lease is free."""
    with orihon.open(disk_url, settings=Settings()) as engine:
        task = begun(engine)
        turn(task, saying("Looking."))
        ENDS[status](task)
        row = engine.row(task.uuid)
        assert row.status == task.row.status == status
        assert row.lease_owner is None
        assert (row.completed_at is None) == (status == "paused")
        assert (row.final_summary is None) == (status == "paused")
        assert row.reason == ("by the user" if status == "stopped" else None)
        assert row.error_message == ("out of tokens" if status == "failed" else None)
        if not disk_url.startswith(("sqlite", "postgres")):
            folder = "paused" if status == "paused" else "completed"
            assert (tmp_path / "contexts" / folder / task.uuid / "messages.jsonl").exists()
            assert not (tmp_path / "contexts" / "running" / task.uuid).exists()


@pytest.mark.parametrize("first", ENDS)
@pytest.mark.parametrize("second", ENDS)
def test_every_transition(engine, first, second):
    """What the table does not allow is refused, and says what the task is."""
    task = begun(engine)
    ENDS[first](task)
    with pytest.raises(Conflict, match=f"is {first}"):
        ENDS[second](task)
    assert engine.row(task.uuid).status == first
    if second in TRANSITIONS[first]:  # this process has let go; whoever resumes it can
        ENDS[second](engine.resume(task.uuid))
        assert engine.row(task.uuid).status == second


@pytest.mark.parametrize("status", ENDS)
def test_nothing_is_said_after_the_end(engine, status):
    """A task that is not running takes nothing."""
    task = begun(engine)
    ENDS[status](task)
    for call in (lambda: task.add("user", "x"), task.window, task.pending_calls, task.reset, task.compact):
        with pytest.raises(Conflict, match=status):
            call()
    assert not task.wants_reply()


def test_leaving_the_block(engine):
    """Completes, fails with the exception, or pauses on an interrupt; what the block did itself stays."""
    with begun(engine) as done:
        pass
    with pytest.raises(ZeroDivisionError), begun(engine) as failed:
        1 / 0  # noqa: B018
    paused = []
    for interrupt in (KeyboardInterrupt, SystemExit, asyncio.CancelledError, GeneratorExit):
        with pytest.raises(interrupt), begun(engine) as task:
            paused.append(task)
            raise interrupt
    with begun(engine) as stopped:
        stopped.stop("enough")
    assert engine.row(done.uuid).status == "completed"
    assert engine.row(failed.uuid).status == "failed"
    assert "division by zero" in engine.row(failed.uuid).error_message
    assert {engine.row(task.uuid).status for task in paused} == {"paused"}
    assert engine.row(stopped.uuid).status == "stopped"


def test_an_interrupt_inside_a_tool(engine):
    """The call is answered, the task is paused, and it can go on."""
    with pytest.raises(KeyboardInterrupt), begun(engine) as task:
        task.add_reply(calling(("read_file", {"path": "a.py"}), ("run_tests", {})))
        with task.tool(task.pending_calls()[0]):
            raise KeyboardInterrupt
    row = engine.row(task.uuid)
    assert (row.status, row.tool_call_count) == ("paused", 1)
    with engine.resume(task.uuid) as again:
        assert [call.name for call in again.pending_calls()] == ["run_tests"]
        first, second = again.window().openai()[-2:]
        assert first["content"] == INTERRUPTED
        assert second["content"] == INTERRUPTED  # shown so as long as nobody has answered it
        with again.tool(again.pending_calls()[0]) as run:
            run.result = "2 passed"
        assert again.window().openai()[-1]["content"] == "2 passed"


def test_an_interrupt_while_a_result_is_stored(engine):
    """The tool has run, so it is not run again: nobody knows what came of it."""
    with pytest.raises(KeyboardInterrupt), begun(engine) as task:
        task.add_reply(calling(("read_file", {"path": "a.py"})))
        with task.tool(task.pending_calls()[0]) as run:
            run.result = "ok"
            task.writer.append = lambda _: _interrupted(task)
    with engine.resume(task.uuid) as again:
        assert again.pending_calls() == []
        assert again.window().openai()[-1]["content"] == INTERRUPTED


def _interrupted(task):
    """Ctrl-C comes once, before the store has done anything."""
    del task.writer.append
    raise KeyboardInterrupt


def test_pause_and_resume_keep_everything(disk_url):
    """Phase, counters, pending calls and the window, in another process on another day."""
    with orihon.open(disk_url, settings=Settings()) as engine:
        task = begun(engine, context_length=9000, reserved_output=500)
        task.snapshot(current_phase="fixing", goal="Fix it")
        for number in range(10):
            lines = "\n".join(f"line {line} of part {number}" for line in range(200))
            turn(task, calling(("read_file", {"path": f"{number}.py"}), usage=(500, 50)), [lines])
        task.window()
        task.add_reply(calling(("run_tests", {"path": "tests"}), usage=(500, 50)))
        shown, stats = task.window(), task.stats()
        task.pause()
    with orihon.open(disk_url, settings=Settings()) as engine:
        again = engine.resume(task.uuid)
        assert again.stats() == stats
        assert again.snapshot() == task.snapshot()
        assert again.row.resume_count == 1
        window = again.window()
        for api in ("openai", "anthropic", "gemini", "responses"):
            assert getattr(window, api)() == getattr(shown, api)()
        assert window.tools() == shown.tools()
        assert [(call.name, call.arguments) for call in again.pending_calls()] == [("run_tests", {"path": "tests"})]
        again.pause()
        third = engine.resume(task.uuid)
        assert third.row.resume_count == 2
        third.complete()


def test_tools_that_had_to_be_masked_are_the_same_after_a_resume(engine):
    """What is kept is what is sent, from the first request on."""
    token = "ghp_" + "a1B2c3D4" * 4 + "e5F6"
    task = engine.start(KEY, user="\ud800", tools=[{"name": "mail", "description": f"Writes with {token}\0"}])
    task.add("user", "Go.")
    before = task.window()
    assert token not in str(before.tools())
    task.pause()
    with engine.resume(task.uuid) as again:
        after = again.window()
        assert (after.tools(), after.report.limit) == (before.tools(), before.report.limit)


def test_masked_arguments_never_run_again(disk_url):
    """After a pause nobody knows them any more."""
    token = "ghp_" + "a1B2c3D4" * 4 + "e5F6"
    with orihon.open(disk_url, settings=Settings()) as engine:
        task = begun(engine)
        task.add_reply(calling(("read_file", {"token": token}), ("run_tests", {})))
        assert len(task.pending_calls()) == 2
        task.pause()
        with engine.resume(task.uuid) as again:
            assert [call.name for call in again.pending_calls()] == ["run_tests"]


def test_resume_is_for_what_has_not_ended(engine):
    """Ended tasks say so; the failure that nobody chose can go on."""
    for status in ("completed", "stopped", "failed"):
        task = begun(engine)
        ENDS[status](task)
        with pytest.raises(Conflict, match=f"is {status} already"):
            engine.resume(task.uuid)
    task = begun(engine)
    task.fail("the holder is gone", reason="interrupted")
    with engine.resume(task.uuid) as again:
        assert again.row.error_message is None
        assert again.wants_reply()
    assert engine.row(task.uuid).status == "completed"


def test_one_writer(engine):
    """A task that runs here cannot be resumed there."""
    with begun(engine) as task, pytest.raises(LeaseHeld):
        engine.resume(task.uuid)


def test_an_end_closes_what_is_open(engine):
    """Open tangents are left with nothing, and the final summary is of the main branch alone."""
    task = begun(engine)
    turn(task, saying("The basket was empty."))
    task.begin_tangent()
    task.add("user", "What is for lunch?")
    task.complete()
    final = engine.row(task.uuid).final_summary
    assert "basket" in final
    assert "lunch" not in final


def test_the_final_summary_is_made_with_the_model_or_without(engine):
    """Once, in the list and in the row; a model that fails is replaced."""
    for summariser, expected in (
        (lambda _: "We fixed the basket in basket.py.", "We fixed"),
        (_broken, "Fix the basket"),
    ):
        with begun(engine, summariser=summariser) as task:
            turn(task, saying("Done: the basket in basket.py is fixed. " + "It was the total. " * 40))
        assert expected in engine.row(task.uuid).final_summary
        (summary,) = engine.read(task.uuid).summaries()
        assert summary.kind == "final"
    with engine.start(KEY, inherit=False) as silent:
        pass
    assert engine.row(silent.uuid).final_summary is None


def _broken(_):
    raise TimeoutError("no answer")


def test_a_begun_end_is_finished(engine):
    """Whoever died between the note and the last step: the next start on the same key, or a resume, ends it."""
    for finish in ("resume", "start"):
        task = begun(engine, inherit=False)
        turn(task, saying("All done here."))
        task.writer.event("note", ending={"status": "stopped", "reason": "enough"})
        task.writer.update(activity="completing")
        task.writer.lease.close()
        if finish == "resume":
            with pytest.raises(Conflict, match="stopped already"):
                engine.resume(task.uuid)
        else:
            with engine.start(KEY) as new:
                assert new.config.inherited_from == task.uuid
        row = engine.row(task.uuid)
        assert (row.status, row.reason) == ("stopped", "enough")
        assert "All done here." in row.final_summary
        assert len([one for one in engine.store.read(task.uuid, Summary) if one.kind == "final"]) == 1


@pytest.mark.parametrize("hide", [lambda task: task.rewind(3), lambda task: task.begin_tangent()])
def test_a_begun_end_is_finished_with_one_summary(engine, hide):
    """Also when the newest messages are not part of the conversation any more."""
    task = begun(engine)
    turn(task, saying("All done here."))
    hide(task)
    task.add("user", "And lunch?")
    hide(task)
    task.writer.update = lambda **changes: _die(task) if "completed_at" in changes else None
    with pytest.raises(KeyboardInterrupt):
        task.complete()
    del task.writer.update
    with pytest.raises(Conflict, match="completed already"):
        engine.resume(task.uuid)
    (final,) = engine.read(task.uuid).summaries()
    assert (final.kind, final.summary) == ("final", engine.row(task.uuid).final_summary)


def _die(task):
    """Let go of everything as a killed process does."""
    task.writer.lease.close()
    raise KeyboardInterrupt


def test_an_end_that_cannot_be_finished_does_not_stop_the_next_start(tmp_path, caplog):
    """It is said in the log, and the new task starts."""
    with orihon.open(tmp_path, settings=Settings()) as engine:
        task = begun(engine, inherit=False)
        task.writer.event("note", ending={"status": "completed"})
        task.writer.update(activity="completing")
        task.writer.lease.close()
        (tmp_path / "running" / task.uuid / "metadata.json").write_text("{}", encoding="utf-8")
        with engine.start(KEY) as new:
            assert new.row.status == "running"
    assert "could not be finished" in caplog.text


def test_a_queued_task_is_started_when_it_is_first_taken(url, caplog):
    """It waits, takes other settings with it when it is begun, and only then it has started."""
    caplog.set_level("INFO", "orihon")
    heard = []

    class Ear:
        def __getattr__(self, name):
            if name.startswith("on_"):
                return lambda *_: heard.append(name)
            raise AttributeError(name)

    with orihon.open(url, settings=Settings(), hooks=[Ear()]) as engine:
        queued = engine.start(KEY, queued=True)
        queued.writer.lease.close()
        assert engine.row(queued.uuid).status == "pending"
        assert heard == []
        with engine.resume(queued.uuid, tools=TOOLS) as task:
            task.add("user", "Go.")
            assert [tool["function"]["name"] for tool in task.window().tools()][:2] == ["read_file", "run_tests"]
            task.pause()
        with engine.resume(queued.uuid) as again:
            assert len(again.window().tools()) == 4  # unfold and recall are among them
        assert engine.row(queued.uuid).resume_count == 1
        with pytest.raises(Conflict, match="already"):
            engine.resume(queued.uuid)
    assert heard == ["on_started", "on_paused", "on_resumed", "on_completed"]
    assert "Task started: github/acme/shop#27" in caplog.text
