"""Tasks that wait: who takes which, what is never taken, and what becomes of those whose worker died."""

import json
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

import orihon
from orihon.agent import queue
from orihon.agent.control import DRAINED, pause_files
from orihon.agent.queue import Job, claim, enqueue, enqueue_new_items, iter_waiting, load_job, recover
from orihon.agent.run_setup import RunSetup, run_queued
from orihon.agent.sources import open_source
from orihon.agent.targets import parse_target, parse_targets, parse_url
from orihon.agent.worker import Worker
from orihon.context.repair import INTERRUPTED as CUT_OFF
from orihon.errors import Corrupt, OrihonError, StoreUnavailable, UsageError
from orihon.records import Message
from orihon.settings.schema import ContextInheritance, Forge, PauseResume, Planning, Settings
from orihon.task.lifecycle import Ending
from support.replies import saying

KEY = orihon.TaskKey.github("acme", "shop", issue=27)
OTHER = orihon.TaskKey.github("acme", "shop", issue=28)
JOB = Job(request="Go.", plan=False)


@pytest.fixture
def settings(tmp_path):
    return Settings(
        pause_resume=PauseResume(signal_file=str(tmp_path / "pause")), planning=Planning(enabled=False),
        context_inheritance=ContextInheritance(enabled=False),
    )  # fmt: skip


@pytest.fixture(params=["jsonl", "sqlite", "postgres"])
def url(request, tmp_path, url_at):
    return url_at(request.param, tmp_path / "store")


@pytest.fixture
def engine(url, settings):
    with orihon.open(url, settings=settings) as engine:
        yield engine


def ids(engine):
    return [row.uuid for row in iter_waiting(engine)]


def in_another_process(url, code):
    """A process that does something and dies without a word."""
    program = f"import orihon, os, signal\nengine = orihon.open({url!r})\n{code}\nos.kill(os.getpid(), signal.SIGKILL)"
    ended = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    assert ended.returncode == -signal.SIGKILL, ended.stderr


# taking


def test_order(engine):
    """The most urgent first, then the oldest; what is to be done is found again."""
    for name, priority in (("old", 0), ("urgent", 5), ("new", 0)):
        enqueue(engine, orihon.TaskKey.local(name), replace(JOB, model=name), priority=priority, uuid=name)
    assert ids(engine) == ["urgent", "old", "new"]
    assert load_job(engine, "urgent") == replace(JOB, model="urgent", queued=True)
    assert engine.row("urgent").status == "pending"


def test_one_taker(engine, url, settings):
    """A task that somebody has is not given to another, and not after it has ended."""
    enqueue(engine, KEY, JOB, uuid="a")
    with orihon.open(url, settings=settings) as other:
        task = claim(engine, "a")
        assert task.row.status == "running"
        assert claim(other, "a") is None
        assert ids(other) == []
        task.complete()
        assert claim(other, "a") is None
        assert claim(other, "nothing") is None


def test_one_key(engine, url, settings):
    """Two tasks on the same thing never run at once, however they are taken; the second waits its turn."""
    enqueue(engine, KEY, JOB, uuid="a")
    enqueue(engine, KEY, JOB, uuid="b")
    enqueue(engine, OTHER, JOB, uuid="c")
    assert ids(engine) == ["a", "c"]
    with orihon.open(url, settings=settings) as other:
        first = claim(engine, "a")
        assert ids(other) == ["c"]
        assert claim(other, "b") is None
        assert other.row("b").status == "pending"
        first.complete()
        assert ids(other) == ["b", "c"]
        claim(other, "b").complete()


def test_options_are_for_tasks_that_were_not_begun(engine):
    """Tools and model are given when it begins, and stay."""
    enqueue(engine, KEY, JOB, uuid="a")
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
    task = claim(engine, "a", model="one", tools=[tool])
    assert (task.config.model, len(task.config.tools)) == ("one", 1)
    task.pause(DRAINED)
    assert claim(engine, "a", model="two", tools=[]).config.model == "one"


def test_a_queued_task_inherits(url):
    """What an earlier run learned is there when it begins, with the options of its worker."""
    with orihon.open(url, settings=Settings()) as engine:
        with engine.start(KEY) as task:
            task.add("user", "Go.")
            task.add_reply(saying("Done."))
        enqueue(engine, KEY, JOB, uuid="a")
        task = claim(engine, "a", model="other")
        assert task.config.inherited_from
        assert task.inheritance is not None
        task.complete()


# what was paused


def test_what_a_worker_paused_is_taken_again(engine, settings):
    """After a drain at once, after a pause without its file, after a failure later; what a person paused never."""
    reasons = {"a": DRAINED, "b": queue.BY_FILE, "c": f"{queue.FAILED}busy", "d": "interrupted", "e": ""}
    for name, reason in reasons.items():
        enqueue(engine, orihon.TaskKey.local(name), JOB, uuid=name)
        claim(engine, name).pause(reason)
    assert ids(engine) == ["a", "b"]
    everybody, own = pause_files(settings.pause_resume, "b")
    own.touch()
    assert ids(engine) == ["a"]
    everybody.touch()
    assert ids(engine) == []


def test_how_long_ago_it_was_paused(engine, monkeypatch):
    """A provider gets some minutes; a task that nobody missed for a month stays where it is."""
    for name, reason in (("a", DRAINED), ("c", f"{queue.FAILED}busy")):
        enqueue(engine, orihon.TaskKey.local(name), JOB, uuid=name)
        claim(engine, name).pause(reason)
    now = datetime.now(UTC)

    class Later(datetime):
        ahead = timedelta()

        @classmethod
        def now(cls, _=None):
            return now + cls.ahead

    monkeypatch.setattr(queue, "datetime", Later)
    Later.ahead = timedelta(seconds=queue.RETRY_SECONDS + 5)
    assert ids(engine) == ["a", "c"]
    Later.ahead = timedelta(days=31)
    assert ids(engine) == []


# whose worker died


@pytest.mark.slow
def test_a_dead_worker_gives_back(engine, url):
    """Twice it goes back, with its calls answered as cut off; the third time it has failed, and can be resumed."""
    enqueue(engine, KEY, JOB, uuid="a")
    call = '[{"id": "c1", "function": {"name": "look", "arguments": "{}"}}]'
    begin = "task = engine.resume('a')\ntask.add('user', 'Go.')\n"
    begin += f"task.add('assistant', '', tool_calls={call})"
    in_another_process(url, begin)
    assert engine.row("a").status == "running"
    assert [one.row.status for one in recover(engine)] == ["pending"]
    assert ids(engine) == ["a"]
    newest = list(engine.store.read("a", Message))[-1]
    assert (newest.role, newest.text) == ("tool", CUT_OFF)
    in_another_process(url, "engine.resume('a')")
    assert [one.row.attempts for one in recover(engine)] == [2]
    in_another_process(url, "engine.resume('a')")
    assert [(one.row.status, one.row.reason) for one in recover(engine)] == [("failed", "interrupted")]
    assert ids(engine) == []
    assert "died 3 times" in engine.row("a").error_message
    engine.resume("a").complete()


def test_an_ending_that_was_begun_is_finished(engine, url):
    """Who dies while a task ends has ended it."""
    enqueue(engine, KEY, JOB, uuid="a")
    in_another_process(
        url, "task = engine.resume('a')\ntask.add('user', 'Go.')\ntask.writer.note(ending={'status': 'completed'})"
    )
    assert [one.row.status for one in recover(engine)] == ["completed"]
    assert Ending("completed").status == engine.row("a").status


def test_a_task_that_nobody_queued(engine, url):
    """It is not taken by a worker; whoever started it can resume it, and its key is free."""
    in_another_process(url, "engine.start('github/acme/shop/issue/27', uuid='mine').add('user', 'Go.')")
    enqueue(engine, KEY, JOB, uuid="a")
    assert ids(engine) == []
    assert [(one.row.status, one.row.reason) for one in recover(engine)] == [("failed", "interrupted")]
    assert ids(engine) == ["a"]


def test_whoever_lives_is_left_alone(engine):
    """A task that runs is no business of `recover`."""
    enqueue(engine, KEY, JOB, uuid="a")
    task = claim(engine, "a")
    assert recover(engine) == []
    task.complete()


# a child


def test_a_job_is_run(engine, tmp_path):
    """From the queue to its end, with the model and the workspace of the job."""
    script = tmp_path / "script.json"
    script.write_text(json.dumps([{"say": "", "call": [{"name": "list_files", "arguments": {}}]}, "Done."]))
    uuid = enqueue(engine, orihon.TaskKey.local("x"), replace(JOB, model=f"scripted:{script}", workspace=str(tmp_path)))
    row = run_queued(engine, uuid)
    assert (row.status, row.tool_call_count) == ("completed", 1)
    assert run_queued(engine, uuid) is None


def test_a_script_goes_on_after_a_crash(engine, tmp_path):
    """A model that follows a script gives the reply that comes next, and skips failures that were had."""
    script = tmp_path / "script.json"
    script.write_text(json.dumps([{"say": "A.", "call": []}, {"status": 500, "error": "Busy."}, "Done."]))
    job = replace(JOB, model=f"scripted:{script}", workspace=str(tmp_path))
    with RunSetup(engine, orihon.TaskKey.local("x"), job) as made:
        made.model.begin_after(1)
        assert made.model.script.used == 2
        made.model.begin_after(2)
        assert made.model.script.used == 3


def test_a_provider_that_is_away_is_tried_again_later(engine, tmp_path):
    """The task waits, and goes on with the reply that comes then."""
    script = tmp_path / "script.json"
    script.write_text(json.dumps([{"status": 503, "error": "Busy."}, "Done."]))
    uuid = enqueue(engine, orihon.TaskKey.local("x"), replace(JOB, model=f"scripted:{script}", workspace=str(tmp_path)))
    assert run_queued(engine, uuid).reason == f"{queue.FAILED}Busy."
    assert run_queued(engine, uuid).status == "completed"


@pytest.mark.parametrize("wrong", [{"model": "scripted:/nowhere.json"}, {"workspace": "/nowhere/at/all"}])
def test_a_job_that_cannot_be_begun_fails(engine, tmp_path, wrong):
    """Nobody tries it for ever: it has failed, with the reason."""
    (tmp_path / "script.json").write_text("[]")
    job = replace(JOB, **{"model": f"scripted:{tmp_path / 'script.json'}", **wrong})
    row = run_queued(engine, enqueue(engine, orihon.TaskKey.local("x"), job))
    assert row.status == "failed"
    assert "/nowhere" in row.error_message


def test_a_task_without_work_fails(engine):
    """Whoever made it died before he said what to do."""
    task = engine.start(KEY, uuid="a", queued=True)
    task.writer.lease.close()
    assert run_queued(engine, "a").status == "failed"


# what comes in


def test_new_work_is_queued_once(engine, tmp_path, settings):
    """What a source finds is dropped when it waits, runs or is paused already."""
    place = tmp_path / "issues"
    place.mkdir()
    (place / "login.md").write_text("---\nauthor: alice\n---\n# The page is blank\n")
    (place / "total.md").write_text("# The total is wrong\n")
    source = open_source("local", settings, what=place)
    made = enqueue_new_items(engine, source, JOB)
    assert len(made) == 2
    assert engine.row(made[0]).user == "alice"
    assert load_job(engine, made[0]).file == str(place / "login.md")
    assert enqueue_new_items(engine, source, JOB) == []
    claim(engine, made[0]).pause()
    assert enqueue_new_items(engine, source, JOB) == []


FORGES = Settings(gitlab=Forge(base_url="https://git.example.com"), github=Forge())


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("https://github.com/Acme/shop/issues/27", "github/acme/shop/issue/27"),
        ("https://github.com/acme/shop/pull/3/files#diff", "github/acme/shop/pull_request/3"),
        ("https://git.example.com/group/sub/shop/-/issues/5", "gitlab/group/sub/shop/issue/5"),
        ("https://git.example.com/group/shop/-/merge_requests/6#note_1", "gitlab/group/shop/merge_request/6"),
    ],
)
def test_urls(url, key):
    """The address in the browser is enough."""
    assert str(parse_url(url, FORGES)) == key
    assert str(parse_target(url, FORGES).key) == key


@pytest.mark.parametrize(
    "url",
    ["https://gitlab.com/a/b/-/issues/1", "https://github.com.evil.example/a/b/issues/1", "https://github.com/acme/shop",
     "https://github.com/acme/shop/issues/", "https://github.com/acme/shop/issues/x", "http://[", "https://github.com/a"],
)  # fmt: skip
def test_wrong_urls(url):
    """No token goes to an address that the settings do not know."""
    with pytest.raises(UsageError):
        parse_target(url, FORGES)


def test_files_and_texts(tmp_path):
    """A text is its own request; a file is read when the task begins; of a directory, all."""
    (tmp_path / "a.md").write_text("# A\n")
    (tmp_path / "b.md").write_text("# B\n")
    assert parse_target("Mend the shop", FORGES).request == "Mend the shop"
    assert parse_target(str(tmp_path / "a.md"), FORGES).file == str(tmp_path / "a.md")
    assert [target.file for target in parse_targets(str(tmp_path), FORGES)] == [
        str(tmp_path / "a.md"), str(tmp_path / "b.md")
    ]  # fmt: skip
    with pytest.raises(UsageError, match="is a directory"):
        parse_target(str(tmp_path), FORGES)
    with pytest.raises(OrihonError, match="The task is empty"):
        parse_target("", FORGES)


# the parent


SLEEPER = """
import sys, time, orihon
from orihon.agent.control import Drain, DRAINED
from orihon.agent.queue import claim
drain = Drain()
drain.listen()
with orihon.open(sys.argv[1]) as engine:
    task = claim(engine, sys.argv[2])
    open(sys.argv[3], "w").close()
    try:
        while not drain.requested or len(sys.argv) > 4:
            time.sleep(0.02)
    finally:
        task.pause(DRAINED)
"""


@pytest.mark.parametrize("stubborn", [False, True])
def test_a_drain(engine, url, tmp_path, stubborn):
    """SIGTERM pauses what runs, a second one interrupts it; the task is paused either way, and taken again."""
    enqueue(engine, KEY, JOB, uuid="a")
    sign, health = tmp_path / "began", tmp_path / "health"
    more = ["stubborn"] if stubborn else []
    worker = Worker(
        engine, lambda uuid: [sys.executable, "-c", SLEEPER, url, uuid, str(sign), *more], health=health,
        poll_seconds=0.05, grace_seconds=0.5,
    )  # fmt: skip
    find_calls = []

    def find():
        find_calls.append(1)

    worker.find = find
    original = worker._maintain

    def maintain():
        original()
        if sign.exists():
            os.kill(os.getpid(), signal.SIGTERM)

    worker._maintain = maintain
    began = time.monotonic()
    worker.run()
    assert time.monotonic() - began < 60
    assert (engine.row("a").status, engine.row("a").reason) == ("paused", DRAINED)
    assert ids(engine) == ["a"]
    assert health.read_text().endswith("Z\n")
    assert find_calls == [1]
    assert worker.children == {}


def test_once_ends_when_nothing_waits(engine):
    """An empty queue is a short day's work."""
    began = time.monotonic()
    Worker(engine, lambda _: ["false"], poll_seconds=0.05).run(once=True)
    assert time.monotonic() - began < 60


def test_a_child_that_does_nothing_is_not_started_without_end(engine):
    """A task that stays where it is is tried less and less often."""
    enqueue(engine, KEY, JOB, uuid="a")
    starts = []

    def command(uuid):
        starts.append(uuid)
        if len(starts) == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        return ["false"]

    began = time.monotonic()
    Worker(engine, command, poll_seconds=0.02).run()
    assert time.monotonic() - began >= 1.5
    assert starts == ["a", "a", "a"]


def test_a_store_that_is_away_for_a_moment(engine, monkeypatch):
    """The worker waits for it; one that is broken ends the worker."""
    answers = [StoreUnavailable(), []]

    def recover(_):
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(queue, "recover", recover)
    Worker(engine, lambda _: ["false"], poll_seconds=0.02).run(once=True)
    assert answers == []
    answers.append(Corrupt("odd"))
    with pytest.raises(Corrupt):
        Worker(engine, lambda _: ["false"], poll_seconds=0.02).run(once=True)
