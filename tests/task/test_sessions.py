"""A session stays open, is shared inside a process, and goes from process to process."""

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import orihon
from orihon.access import Principal
from orihon.agent.queue import recover
from orihon.codec import clean_text
from orihon.context.repair import INTERRUPTED
from orihon.errors import Conflict, LeaseHeld, UsageError
from orihon.ops.access import AuthorizedStore
from orihon.ops.listing import make_listing
from orihon.ops.monitor import check_store
from orihon.records import Event, Message
from orihon.settings.schema import Settings
from orihon.task import sessions
from support.replies import TOOLS, calling

IDS = [
    "user:1/abc",
    "a b  c",
    "#27",
    "会話 十二",
    "x" * 300,
    "..",
    "a/../../b",
    "50%",
    "line\nline",
    "\x1b[31m",
    "Ω\ud800",
]

HOLD = """
import sys, orihon
from orihon.settings.schema import Settings
engine = orihon.open(sys.argv[1], settings=Settings())
session = engine.session(sys.argv[2])
session.add("user", sys.argv[3])
print("held", flush=True)
for line in sys.stdin:
    exec(line)
    print("done", flush=True)
"""


class Other:
    """Another process that holds a session."""

    def __init__(self, url, id, text="from the other process"):
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLD, url, id, text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout.readline() == "held\n"

    def run(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def disk(disk_url):
    with orihon.open(disk_url, settings=Settings()) as engine:
        yield engine


def texts(engine, task):
    return [message.text for message in engine.store.read(task.uuid, Message)]


def test_any_text_is_an_id(engine):
    """What was said under an id is there again under the same id, and nowhere else."""
    for text in IDS:
        with engine.session(text) as task:
            task.add("user", text)
    for text in IDS:
        with engine.session(text) as again:
            assert texts(engine, again) == [clean_text(text)]
    assert len(list(engine.tasks())) == len(IDS)


def test_the_id_is_shown_as_it_was_given(engine):
    """A listing names the session by its text."""
    with engine.session("会話 user:1/abc") as task:
        assert make_listing(engine.store, engine.row(task.uuid)).task_key == "session/会話 user:1/abc"


@pytest.mark.parametrize("id", ["", None, 7])
def test_an_id_that_is_no_text_is_refused(engine, id):
    """The error says so, and nothing is started."""
    with pytest.raises(UsageError, match="session"):
        engine.session(id)
    assert not list(engine.tasks())


@pytest.mark.parametrize("wait", [-1, "5", None, float("nan"), True])
def test_a_wait_that_is_no_time_is_refused(engine, wait):
    """The error says so, and nothing is started."""
    with pytest.raises(UsageError, match="wait"):
        engine.session("a", wait=wait)
    assert not list(engine.tasks())


@pytest.mark.parametrize("options", [{"uuid": "x"}, {"queued": True}, {"colour": "red"}, {"context_length": -5}])
def test_options_that_no_session_has_are_refused(engine, options):
    """The error says so, and the id can be used afterwards."""
    with pytest.raises(UsageError):
        engine.session("a", **options)
    with engine.session("a") as task:
        assert task.add("user", "hello") == 1


def test_a_process_shares_one_task(disk, disk_url):
    """Two holders have the same task, also by two engines; it is given back when both have let go."""
    with orihon.open(disk_url, settings=Settings()) as other:
        one, two = disk.session("a"), other.session("a")
        assert one is two
        one.close()
        two.add("user", "still held")
        two.close()
        with pytest.raises(Conflict, match="given back"):
            two.add("user", "no more")
    assert disk.row(one.uuid).lease_owner is None


def test_closing_an_engine_gives_its_sessions_back(disk_url):
    """What another engine still held can be taken again."""
    with orihon.open(disk_url, settings=Settings()) as one, orihon.open(disk_url, settings=Settings()) as two:
        first = one.session("a")
        two.session("a")
        one.close()
        with pytest.raises(Conflict):
            first.add("user", "too late")
        with two.session("a") as task:
            task.add("user", "hello")
            assert task.uuid == first.uuid


def test_giving_back_changes_nothing_of_the_task(disk):
    """It stays running, counts no resume, writes no event, and keeps its fence and its heartbeat thread to itself."""
    with disk.session("a") as task:
        task.add("user", "hello")
    before, threads = disk.row(task.uuid), threading.active_count()
    for _ in range(5):
        with disk.session("a") as again:
            assert again is task
    after = disk.row(task.uuid)
    assert (after.status, after.resume_count, after.fence) == ("running", 0, before.fence)
    assert after.message_count == 1
    assert not list(disk.store.read(task.uuid, Event))
    assert threading.active_count() == threads


def test_an_exception_inside_leaves_the_session_open(engine):
    """It passes through, and the session goes on."""
    with pytest.raises(RuntimeError), engine.session("a") as task:
        task.add("user", "hello")
        raise RuntimeError
    with engine.session("a") as again:
        assert again.uuid == task.uuid
        assert again.row.status == "running"


def test_a_session_that_was_completed_is_inherited(engine):
    """The next one under the id is another task, which takes over what the first one left."""
    with engine.session("a") as first:
        first.add("user", "Remember the number 4711.")
        first.complete()
    with engine.session("a") as second:
        assert second.uuid != first.uuid
        assert second.inheritance.uuid == first.uuid
        second.add("user", "And?")
        with engine.session("a") as third:
            assert third is second


@pytest.mark.parametrize("end", ["pause", "stop"])
def test_a_session_that_was_left_otherwise_goes_on(engine, end):
    """A paused one is continued and one that was stopped is followed by a new one, also while others hold it."""
    one, two = engine.session("a"), engine.session("a")
    one.add("user", "hello")
    getattr(one, end)("by hand")
    three = engine.session("a")
    assert (three.uuid == one.uuid) == (end == "pause")
    assert three.row.resume_count == 0
    one.close()
    two.close()
    three.add("user", "still held")


def test_options_follow_the_caller(disk_url):
    """Another window or model in the code counts from the next time on, in this process and in another one."""
    for length in (32_000, 16_000):
        with orihon.open(disk_url, settings=Settings()) as engine:
            with engine.session("a", context_length=length, model="m") as task:
                assert task.config.context_length == length
            with engine.session("a") as task:
                assert task.config.context_length == length
            with engine.session("a", context_length=8_000) as task:
                assert task.config.context_length == 8_000


def test_users_do_not_share(engine):
    """The same id is another session for each user."""
    with (
        engine.session("a", user="alice") as alice,
        engine.session("a", user="bob") as bob,
        engine.session("a") as none,
    ):
        assert len({alice.uuid, bob.uuid, none.uuid}) == 3
        assert (alice.row.user, bob.row.user, none.row.user) == ("alice", "bob", None)
    with engine.session("a", user="alice") as again:
        assert again is alice


def test_threads_get_one_task(engine):
    """Many threads that take and give back at once lose nothing."""

    def say(number):
        with engine.session("a", wait=5) as task:
            task.add("user", str(number))
        return task.uuid

    with ThreadPoolExecutor(8) as pool:
        (uuid,) = set(pool.map(say, range(40)))
    assert sorted(int(message.text) for message in engine.store.read(uuid, Message)) == list(range(40))


def test_another_process_gets_it_when_this_one_let_go(disk, disk_url):
    """Until then it is refused, or waits; what each said is there for the other."""
    with Other(disk_url, "a") as other:
        with pytest.raises(LeaseHeld, match=str(other.process.pid)):
            disk.session("a")
        timer = threading.Timer(0.2, other.run, ["session.close()"])
        timer.start()
        with disk.session("a", wait=20) as task:
            task.add("user", "from here")
        timer.join()
        other.run('session = engine.session(sys.argv[2]); session.add("user", "and back"); session.close()')
        with disk.session("a") as again:
            assert texts(disk, again) == ["from the other process", "from here", "and back"]
            assert again.log.last == 3
            assert again.row.resume_count == 0


def test_processes_that_start_a_session_at_once_have_one(disk, disk_url):
    """There is one task, with what each of them said."""
    script = HOLD.replace("session(sys.argv[2])", "session(sys.argv[2], wait=60)").partition("print(")[0]
    script += "session.close()"
    all_at_once = [
        subprocess.Popen([sys.executable, "-c", script, disk_url, "a", str(number)], stderr=subprocess.PIPE, text=True)
        for number in range(4)
    ]
    for process in all_at_once:
        _, errors = process.communicate()
        assert process.returncode == 0, errors
    (row,) = disk.tasks()
    assert sorted(message.text for message in disk.store.read(row.uuid, Message)) == ["0", "1", "2", "3"]


def test_a_session_survives_its_process(disk, disk_url):
    """After kill -9 it goes on at once; a call that was open then is answered as interrupted."""
    with Other(disk_url, "a") as other:
        other.run(f"session.add_reply({calling(('run_tests', {}))!r})")
        os.kill(other.process.pid, signal.SIGKILL)
        other.process.wait()
    with disk.session("a", wait=60, tools=TOOLS) as task:
        assert texts(disk, task) == ["from the other process", "", INTERRUPTED]
        assert task.row.resume_count == 0


def test_a_call_that_is_open_when_a_session_is_given_back_stays_open(disk, disk_url):
    """Its result can come from another process."""
    with Other(disk_url, "a") as other:
        other.run(f"session.add_reply({calling(('run_tests', {}))!r}); session.close()")
        with disk.session("a", tools=TOOLS) as task:
            (call,) = task.pending_calls()
            task.answer(call, "ok")
        assert texts(disk, task) == ["from the other process", "", "ok"]


def test_a_process_that_ends_gives_its_sessions_back(disk, disk_url):
    """Nobody has to close anything."""
    script = HOLD.partition("print(")[0]
    subprocess.run([sys.executable, "-c", script, disk_url, "a", "hello"], check=True)
    (row,) = disk.tasks()
    assert row.lease_owner is None
    assert row.message_count == 1


def test_a_forked_child_has_no_session(tmp_path):
    """It is refused while its parent has it, and the parent goes on."""
    with orihon.open(tmp_path, settings=Settings()) as engine:
        task = engine.session("a")
        child = os.fork()
        if not child:
            code = 1
            try:
                orihon.open(tmp_path, settings=Settings()).session("a")
            except LeaseHeld:
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        task.add("user", "hello")


def test_no_session_is_taken_for_a_dead_task(disk):
    """Monitor, recovery and listings leave sessions alone, however long nobody holds them."""
    with disk.session("a") as task:
        task.add("user", "hello")
    task.writer.lease.close()
    assert recover(disk) == []
    assert not make_listing(disk.store, disk.row(task.uuid)).interrupted
    report = check_store(AuthorizedStore(disk.store, Principal("root", admin=True), command="monitor"), Settings())
    assert report.interrupted == []
    with disk.session("a") as again:
        assert again.uuid == task.uuid


def test_only_so_many_sessions_rest_in_memory(tmp_path, monkeypatch):
    """The ones given back longest ago are closed; their files too."""
    monkeypatch.setattr(sessions, "RESTING", 3)
    with orihon.open(tmp_path, settings=Settings()) as engine:
        for number in range(3):
            with engine.session(str(number)):
                pass
        before = len(list(Path("/proc/self/fd").iterdir()))
        for number in range(12):
            with engine.session(str(number)) as task:
                task.add("user", "hello")
        assert len(sessions._sessions) == 3
        assert len(list(Path("/proc/self/fd").iterdir())) <= before + 12
        with engine.session("0") as again:
            assert texts(engine, again) == ["hello"]


def test_a_deleted_session_is_started_anew(disk):
    """A session that was deleted while nobody held it is another task afterwards."""
    with disk.session("a") as task:
        task.add("user", "hello")
    disk.store.delete(task.uuid)
    with disk.session("a") as again:
        assert texts(disk, again) == []
