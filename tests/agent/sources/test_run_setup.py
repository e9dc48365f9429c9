"""A run from a forge to its end, over a fake GitHub or GitLab: found, queued, run with its user's settings, marked."""

import json

import pytest

import orihon
from orihon.agent.queue import Job, enqueue_new_items
from orihon.agent.run_setup import RunSetup, mark_task, run_queued
from orihon.errors import SourceError
from orihon.records import Message
from orihon.settings.section import replace

LOOK = {"say": "I look.", "call": [{"name": "list_files", "arguments": {}}]}


@pytest.fixture
def job(tmp_path):
    (tmp_path / "script.json").write_text(json.dumps([LOOK, "The total is right now."]))
    return Job(model=f"scripted:{tmp_path / 'script.json'}", workspace=str(tmp_path), plan=False)


def opened(desk, tmp_path, **changes):
    values = {"pause_resume.signal_file": str(tmp_path / "pause"), "lease.heartbeat_seconds": 5.0}
    return orihon.open(tmp_path / "store", settings=replace(desk.settings, values | changes))


def test_an_issue_is_found_and_done(desk, tmp_path, job):
    """Queued once, run as its author's, marked once per outcome; one comment has the answer."""
    thing = desk.fake.add(27, title="The total is wrong", labels=["coding agent", "bug"])
    desk.fake.comment(thing, "alice", "Only with an empty basket.")
    with opened(desk, tmp_path) as engine:
        (uuid,) = enqueue_new_items(engine, desk.source, job)
        assert enqueue_new_items(engine, desk.source, job) == []
        assert engine.row(uuid).user == "alice"
        row = run_queued(engine, uuid)
        said = [message.text for message in engine.store.read(uuid, Message) if message.role == "user"]
    assert (row.status, len(said)) == ("completed", 1)
    assert "Only with an empty basket." in said[0]
    assert sorted(thing.labels) == ["bug", "coding agent done"]
    ours = [note for note in thing.notes if note.author != "alice"]
    assert len(ours) == 1
    assert "The total is right now." in ours[0].body


def test_the_settings_of_its_user(desk, tmp_path, job):
    """What alice may set counts for her task, and the failure is marked."""
    (tmp_path / "users.yaml").write_text(f"{desk.name}:\n  alice:\n    max_llm_process_num: 1\n")
    thing = desk.fake.add(27)
    users = {"user_config_api.enabled": True, "user_config_api.file": str(tmp_path / "users.yaml")}
    with opened(desk, tmp_path, **users) as engine:
        (uuid,) = enqueue_new_items(engine, desk.source, job)
        row = run_queued(engine, uuid)
    assert (row.status, row.reason) == ("failed", "limit: calls")
    assert thing.labels == ["coding agent failed"]


def test_the_bot_is_taken_off(desk, tmp_path, job):
    """Between queue and run the bot was unassigned, which the run notices only if it had begun; then it stops."""
    thing = desk.fake.add(27)
    with opened(desk, tmp_path) as engine, RunSetup(engine, desk.key(27), job) as setup:
        work = setup.load_work()
        assert work.assigned
        thing.assignees.clear()
        row = setup.handler.handle(work)
    assert (row.status, row.reason) == ("stopped", "no longer assigned")
    assert "coding agent stopped" in thing.labels


def test_an_item_that_is_gone(desk, tmp_path, job):
    """The task fails with what the forge says."""
    thing = desk.fake.add(27)
    with opened(desk, tmp_path) as engine:
        (uuid,) = enqueue_new_items(engine, desk.source, job)
        desk.fake.things.clear()
        row = run_queued(engine, uuid)
    assert (row.status, row.reason) == ("failed", SourceError.__name__)
    assert thing.labels == ["coding agent"]


def test_a_task_that_died_is_marked(desk, tmp_path, job):
    """Where no handler could say it, a worker does."""
    thing = desk.fake.add(27)
    with opened(desk, tmp_path) as engine:
        with engine.start(desk.key(27)) as task:
            task.fail("The worker died 3 times.")
        mark_task(engine.settings, task.row, job)
    assert "coding agent failed" in thing.labels
