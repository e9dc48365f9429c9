"""PostgreSQL: connections cut at every moment, writers killed, the server stopped without a word; nothing is lost."""

import random
import subprocess
import sys
import threading
import time
from collections import Counter

import psycopg
import pytest

import orihon
from orihon.agent.queue import MAX_ATTEMPTS, Job, enqueue
from orihon.errors import NotWritten, OutcomeUnknown, StoreUnavailable
from orihon.records import Message, Summary
from orihon.settings.schema import Settings
from orihon.stores import open_store
from orihon.stores.base import Options
from orihon.testing.samples import a_message, a_task
from support import scenario
from support.cutting_proxy import Cutter
from support.faults import DEEP, sampled
from support.postgres_server import PostgresServer
from support.scenario import Evidence, counters, play, steps

UUID = "0f8fad5b-d9cb-469f-a165-70867728950e"
LAST = len(steps()) - 1
DEADLINE_SECONDS = 120


@pytest.fixture(scope="module")
def server():
    """One that may be stopped."""
    with PostgresServer() as server:
        yield server


@pytest.fixture
def url(server):
    with server.database() as url:
        yield url


@pytest.fixture
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("p")


def through(url, place):
    """The same database, by way of another socket."""
    return url.partition("host=")[0] + f"host={place}&" + url.partition("host=")[2].partition("&")[2]


def assert_whole(url, said):
    """All steps were done, each once."""
    with open_store(url) as store:
        evidence = Evidence(said)
        assert evidence.last == LAST
        assert evidence.check(store, UUID) == []
        row = store.row(UUID)
        assert {name: getattr(row, name) for name in counters(LAST)} == counters(LAST)
        assert (row.status, row.lease_owner) == ("completed", None)


def start(url, first=0):
    command = [sys.executable, scenario.__file__, url, UUID, str(first)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def played_while(url, trouble):
    """Play all steps in a process of its own, and cause trouble meanwhile; what was acknowledged."""
    with start(url) as child:
        ends = threading.Timer(DEADLINE_SECONDS, child.kill)
        ends.start()
        said = []
        for line in child.stdout:
            said.append(line.rstrip("\n"))
            trouble(len(said))
        assert child.wait() == 0, child.stderr.read()
        ends.cancel()
    return said


# cut connections


def moments(server, place):
    """How often the client says something in the whole script."""
    with server.database() as url, Cutter(place, server.place) as cutter:
        with open_store(through(url, place)) as store:
            play(store, UUID, lambda _: None)
        return cutter.said


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_connection_cut_at_every_moment(server, tmp_path_factory, when):
    """Before the server heard, or before we heard its answer: the work goes on by itself, and nothing is doubled."""
    count = moments(server, tmp_path_factory.mktemp("p"))
    cuts = 0
    moments_tried = sampled(list(range(1, count + 1)), 10)
    for at in moments_tried:
        place, said = tmp_path_factory.mktemp("p"), []
        with server.database() as url, Cutter(place, server.place, at=at, when=when) as cutter:
            try:
                store = open_store(through(url, place))
            except StoreUnavailable:  # the first connection is not tried again: whoever opens hears at once
                continue
            with store:
                play(store, UUID, said.append)
            cuts += cutter.cuts  # a long text may be said in fewer pieces than when they were counted
            assert_whole(url, said)
    assert cuts >= len(moments_tried) - 4


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_server_that_stays_away(server, url, place, when):
    """The outcome is unknown, and the key tells: the message is there once, whatever happened."""
    task = a_task()
    options = Options(heartbeat_seconds=60, expiry_seconds=60)
    with open_store(url, options) as direct:
        direct.lease(task.uuid, create=task).close()
        with Cutter(place, server.place, when=when, once=False) as cutter, open_store(through(url, place)) as store:
            store.server.retry_seconds = 0.2
            lease = store.lease(task.uuid)
            lease.append(a_message("first", key="1"))
            before = lease.update(add={"total_tokens": 5})
            cutter.at = cutter.said + 2  # the first thing said is the question for the key
            with pytest.raises((OutcomeUnknown, NotWritten)):
                lease.append(a_message("second", key="2"))
            with pytest.raises((OutcomeUnknown, NotWritten, StoreUnavailable)):
                lease.update(add={"total_tokens": 7})
            cutter.at = 0
            seen = len(list(direct.read(task.uuid, Message)))
            assert seen == (1 if when == "before" else 2)
            assert lease.append(a_message("second", key="2")) == 2
            assert lease.append(a_message("third")) == 3
            assert lease.update(add={"total_tokens": 1}).total_tokens in {before.total_tokens + 1, 13}
            lease.close()
        assert [message.content for message in direct.read(task.uuid, Message)] == ["first", "second", "third"]


def test_records_that_travel_together_and_are_cut(server, tmp_path_factory):
    """They are one transaction: all of them once, wherever the line breaks."""
    for at in sampled(list(range(1, 12)), 4):
        for when in ("before", "after"):
            place, task = tmp_path_factory.mktemp("p"), a_task()
            with (
                server.database() as url,
                Cutter(place, server.place, when=when) as cutter,
                open_store(through(url, place)) as store,
                store.lease(task.uuid, create=task) as lease,
            ):
                cutter.at = cutter.said + at
                for _ in range(4):
                    with lease.batch():
                        for number in range(30):
                            lease.append(a_message(f"{number}"))
                assert [message.seq for message in store.read(task.uuid, Message)] == list(range(1, 121))


def test_backends_ended_at_random(server):
    """`pg_terminate_backend` again and again is a nuisance, and nothing more."""
    luck = random.Random(7)
    ended = []

    def trouble(count):
        if count % 2 == 0:
            with psycopg.connect(server.url, autocommit=True) as connection:
                found = connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'orihon'"
                ).fetchall()
            ended.extend(found)
            time.sleep(luck.random() / 50)

    for _ in range(50):  # on a busy machine the script is over before much of it is disturbed
        with server.database() as url:
            assert_whole(url, played_while(url, trouble))
        if len(ended) > 5:
            return
    raise AssertionError(ended)


# a server that stops


@pytest.mark.slow
@pytest.mark.parametrize("at", [1, 17, 45] if DEEP else [17])
def test_the_server_stops_without_a_word(server, url, at):
    """As `pg_ctl stop -m immediate`, and starts again: the run goes on, with all that it was told was stored."""

    def trouble(count):
        if count == at:
            server.stop()
            time.sleep(0.5)
            server.start()

    assert_whole(url, played_while(url, trouble))


def test_readers_wait_for_a_restart(server, url):
    """Whoever reads while the server is away reads on when it is back."""
    with open_store(url) as store, store.lease((task := a_task()).uuid, create=task) as lease:
        with lease.batch():
            for number in range(2500):
                lease.append(a_message(f"{number}"))
        reading = store.read(task.uuid, Message)
        next(reading)
        server.stop()
        back = threading.Timer(0.5, server.start)
        back.start()
        assert sum(1 for _ in reading) == 2499
        back.join()
        assert lease.append(a_message("more")) == 2501


# writers that are killed


@pytest.mark.slow
def test_a_writer_killed_at_any_moment(server):
    """What it was told is there; what it was not told may be, once; and another goes on with the next step."""
    for at in sampled(list(range(1, LAST + 1)), 4):
        with server.database() as url:
            with start(url) as child:
                said = [child.stdout.readline().rstrip("\n") for _ in range(at)]
                child.kill()
                said += [line.rstrip("\n") for line in child.stdout if line.endswith("\n")]
            with open_store(url) as store:
                assert Evidence(said).check(store, UUID) == []
                if Evidence(said).last < LAST:
                    play(store, UUID, said.append, first=Evidence(said).last + 1)
            assert_whole(url, said)


def test_the_clock_is_the_databases(url):
    """Somebody whose own clock is wrong neither takes a task that is held nor holds one for longer."""
    program = f"""
import orihon.codec
orihon.codec.now = lambda: "2099-01-01T00:00:00.000000Z"
from orihon.stores import open_store
from orihon.testing.samples import a_task
with open_store({url!r}) as store:
    task = a_task()
    lease = store.lease(task.uuid, create=task)
    print(store.row(task.uuid).heartbeat_at)
    lease.close()
    lease = store.lease(task.uuid)
    print(store.row(task.uuid).heartbeat_at)
    lease.renew()
    print(store.row(task.uuid).heartbeat_at)
"""
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    beats = shown.stdout.split()
    assert beats == sorted(beats)
    assert beats[-1] < "2098"


# many workers

WORKERS, TASKS, DEATHS = (16, 400, 20) if DEEP else (4, 24, 4)
WORKER = """
import sys, time
import orihon
from orihon.agent import queue
from orihon.settings.schema import ContextInheritance, Settings
from orihon.stores.sql import postgres_queue
postgres_queue.RESERVED_SECONDS = 3  # what a dead worker had put by is free again soon
with orihon.open(sys.argv[1], settings=Settings(context_inheritance=ContextInheritance(enabled=False))) as engine:
    while True:
        queue.recover(engine)
        uuid = engine.store.queue.reserve([row.uuid for row in queue.iter_waiting(engine)])
        if uuid is None:
            if next(engine.tasks(status=("pending", "running")), None) is None:
                break
            engine.store.queue.wait(0.2)
            continue
        task = queue.claim(engine, uuid)
        if task is not None:
            for number in range(5):
                task.add("user", f"{uuid} {number}", key=f"{number}")
            task.complete()
            with open(sys.argv[2], "a") as file:
                file.write(f"{uuid}\\n")
"""
# the database itself counts, whatever the store believes: each step into an end is a row, in the same transaction
COUNTED = """
CREATE TABLE endings (uuid text, status text);
CREATE FUNCTION counted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO endings VALUES (NEW.uuid, NEW.status);
    RETURN NULL;
END
$$;
CREATE TRIGGER counted AFTER UPDATE ON tasks FOR EACH ROW
    WHEN (OLD.status IS DISTINCT FROM NEW.status AND NEW.status IN ('completed', 'failed', 'stopped'))
    EXECUTE FUNCTION counted();
"""


@pytest.mark.slow
def test_many_workers_end_every_task_once(url, tmp_path):
    """Some are killed in the middle: each task ends once, with each of its messages once and in order.

    That it ended once is not asked of the store alone: a trigger counts the endings, and the workers write down theirs.
    """
    keys = [orihon.TaskKey.local(f"t{number}") for number in range(TASKS)]
    with orihon.open(url, settings=Settings()) as engine:
        for number, key in enumerate(keys):
            enqueue(engine, key, Job(request="Go."), user=f"user{number % 5}", uuid=f"t{number}")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(COUNTED)
    luck, deaths, written = random.Random(3), 0, tmp_path / "ended"

    def begun():
        return subprocess.Popen([sys.executable, "-c", WORKER, url, written], stderr=subprocess.PIPE, text=True)

    workers = [begun() for _ in range(WORKERS)]
    give_up = time.monotonic() + (3600 if DEEP else 120)
    while any(worker.poll() is None for worker in workers) and time.monotonic() < give_up:
        time.sleep(luck.uniform(0.3, 0.9))
        victim = luck.randrange(WORKERS)
        if deaths < DEATHS and workers[victim].poll() is None:
            workers[victim].kill()
            workers[victim].communicate()
            deaths += 1
            workers[victim] = begun()
    for worker in workers:
        if worker.poll() is None:
            worker.kill()  # it is too late
    heard = "".join(worker.communicate()[1] for worker in workers)  # whose worker died is said, and nothing else
    assert [worker.returncode for worker in workers] == [0] * WORKERS, heard
    assert [line for line in heard.splitlines() if "Its worker died" not in line] == []
    with psycopg.connect(url) as connection:
        counted = connection.execute("SELECT uuid, status FROM endings").fetchall()
    ended = dict(counted)
    assert len(counted) == len(ended) == TASKS, Counter(uuid for uuid, _ in counted).most_common(3)
    said_so = written.read_text().split()
    assert len(said_so) == len(set(said_so))
    assert {ended[uuid] for uuid in said_so} == {"completed"}
    assert TASKS - len(said_so) <= deaths  # who was killed behind the end could not write it down any more
    with open_store(url) as store:
        for number in range(TASKS):
            row = store.row(f"t{number}")
            assert row.status == ended[row.uuid]
            said = [message.content for message in store.read(row.uuid, Message) if message.role == "user"]
            assert row.status == "completed" or row.attempts == MAX_ATTEMPTS - 1, row
            assert said == [f"t{number} {place}" for place in range(5)][: len(said)]
            assert len(said) == 5 or row.status == "failed"
            finals = [summary for summary in store.read(row.uuid, Summary) if summary.kind == "final"]
            assert len(finals) <= 1
