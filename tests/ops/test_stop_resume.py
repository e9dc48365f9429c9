"""`orihon stop` and `orihon resume`: what waits is ended at once, what runs is asked, what paused goes on."""

import json

import pytest

import orihon
from orihon.agent.control import make_stop_file_check, stop_file_path
from orihon.agent.handler import TaskHandler, Work
from orihon.agent.loop import StopRequested
from orihon.settings.schema import PauseResume, Settings
from orihon.testing import ScriptedModel
from support.cli_store import KINDS, said


@pytest.fixture(params=KINDS)
def url(request, url_at, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return url_at(request.param, tmp_path)


def test_what_waits_or_is_paused_is_stopped_at_once(url):
    """With its reason and a final summary; a second time it is refused with a sentence."""
    with orihon.open(url, settings=Settings()) as engine:
        task = engine.start("local/issue/a", user="alice")
        task.add("user", "Wait for me.")
        task.pause()
        queued = engine.start("local/issue/b", user="alice", queued=True)
        queued.writer.lease.close()
    assert said("stop", task.uuid, "--reason", "done by hand", url=url) == f"{task.uuid} is stopped.\n"
    assert json.loads(said("stop", queued.uuid, "--json", url=url)) == {
        "uuid": queued.uuid, "status": "stopped", "asked": False,
    }  # fmt: skip
    assert "is stopped already" in said("stop", task.uuid, url=url, code=3)
    with orihon.open(url, settings=Settings()) as engine:
        row = engine.row(task.uuid)
        assert (row.status, row.reason, bool(row.final_summary)) == ("stopped", "done by hand", True)


def test_what_runs_is_asked_and_stops(url, tmp_path):
    """A file asks it; it stops before its next call, and the file is gone."""
    settings = Settings(pause_resume=PauseResume(signal_file=str(tmp_path / "logs/contexts/pause_signal")))
    with orihon.open(url, settings=settings) as engine:
        task = engine.start("local/issue/a", user="alice")
        task.add("user", "Work.")
        make_stop_file_check(settings.pause_resume)(task)
        assert "it stops before its next model call" in said("stop", task.uuid, "--reason", "done by hand", url=url)
        assert stop_file_path(settings.pause_resume, task.uuid).exists()
        with pytest.raises(StopRequested, match="done by hand"):
            make_stop_file_check(settings.pause_resume)(task)
        task.pause()


class Scripted:
    """A model that follows a script."""

    def __init__(self, *replies):
        self.script = ScriptedModel(list(replies))

    def reply(self, window, *, on_text=None):  # noqa: ARG002
        return self.script(window.openai(), tools=window.tools() or None)


class Touching:
    """A tool during which somebody asks the task to stop."""

    schemas = ({"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}},)

    def __init__(self, path):
        self.path = path

    def run(self, _):
        self.path.touch()
        return "fine"


def test_a_handler_stops_and_takes_the_file_away(tmp_path):
    """The whole way: a run that is asked between two calls of the model ends as stopped."""
    settings = Settings(pause_resume=PauseResume(signal_file=str(tmp_path / "pause_signal")))
    uuid = "550e8400-e29b-41d4-a716-446655440000"
    asks = stop_file_path(settings.pause_resume, uuid)
    model = Scripted({"say": "I look.", "call": [{"name": "look", "arguments": {}}]}, "never said")
    with orihon.open("memory:", settings=settings) as engine:
        handler = TaskHandler(engine, model, Touching(asks), planning=False)
        row = handler.handle(Work(key=orihon.TaskKey.local("a"), request="Go.", user="alice", uuid=uuid))
    assert (row.status, row.reason, row.llm_call_count) == ("stopped", "by the user", 1)
    assert not asks.exists()


def test_resume_goes_on(url, tmp_path):
    """The pause file of the task is taken away, and it goes on here until it is done."""
    script = tmp_path / "script.json"
    script.write_text(json.dumps(["All done."]))
    with orihon.open(url, settings=Settings()) as engine:
        task = engine.start("local/issue/a", user="alice")
        task.add("user", "Go on.")
        task.pause()
    said("pause", task.uuid, url=url)
    assert said("resume", task.uuid[:8], "--model", f"scripted:{script}", "--no-plan", url=url) == "All done.\n"
    with orihon.open(url, settings=Settings()) as engine:
        assert engine.row(task.uuid).status == "completed"
