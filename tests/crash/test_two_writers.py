"""Many processes at once, stopped, killed and forked: one writer per task, and nothing lost, doubled or interleaved."""

import fcntl
import logging
import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest

from orihon.errors import Conflict, LeaseHeld, LeaseLost, NotWritten
from orihon.records import Message
from orihon.stores import open_store
from orihon.stores.base import Options
from orihon.testing.samples import a_message, a_task
from support.faults import DEEP, Child, fast_place
from support.scenario import STORES, url_of

PROCESSES, APPENDS = (16, 500) if DEEP else (6, 40)
FIGHTERS, ROUNDS = (8, 60) if DEEP else (5, 8)
FAST = Options(heartbeat_seconds=0.1, expiry_seconds=0.4)


@pytest.fixture
def place():
    with fast_place() as place:
        yield place


@pytest.fixture(params=[*STORES, "postgres"])
def url(request, place, url_at):
    return url_at(request.param, place)


def a_store_with_a_task(url):
    task = a_task()
    with open_store(url) as store:
        store.lease(task.uuid, create=task).close()
    return task.uuid


def test_each_his_own_task(url):
    """Many processes open a new store at the same moment, each makes a task and fills it; nobody is ever locked out."""
    tasks = [a_task(number) for number in range(1, PROCESSES + 1)]

    def worker(task):
        def work(say):
            with open_store(url) as store, store.lease(task.uuid, create=task) as lease:
                for count in range(APPENDS):
                    say(f"{lease.append(a_message(f'{count}'))}")
                    if count % 20 == 0:
                        lease.sync()
                        lease.update(add={"llm_call_count": 1})

        return work

    children = [Child(worker(task)) for task in tasks]
    ended = [child.wait() for child in children]
    assert [(end.signal, end.code) for end in ended] == [(0, 0)] * PROCESSES
    with open_store(url) as store:
        assert {row.uuid for row in store.find()} == {task.uuid for task in tasks}
        for task in tasks:
            read = list(store.read(task.uuid, Message))
            assert [message.content for message in read] == [f"{count}" for count in range(APPENDS)]
            assert store.row(task.uuid).llm_call_count == (APPENDS + 19) // 20


@pytest.mark.parametrize("count", range(12 if DEEP else 4))
def test_one_name_is_given_once(url, count):
    """When several processes make a task of the same name, one does, and the others neither harm it nor are harmed."""
    task = a_task(count + 1)

    def work(say):
        with open_store(url) as store:
            try:
                lease = store.lease(task.uuid, create=task)
            except (Conflict, LeaseHeld, NotWritten):
                return
            say(f"{lease.append(a_message(f'{os.getpid()}'))}")
            lease.close()

    children = [Child(work) for _ in range(6)]
    ended = [child.wait() for child in children]
    assert [(end.signal, end.code) for end in ended] == [(0, 0)] * 6
    assert sum(len(end.said) for end in ended) == 1
    with open_store(url) as store:
        assert len(list(store.read(task.uuid, Message))) == 1
        assert [row.uuid for row in store.find()] == [task.uuid]


def fighter(url, uuid, seed):
    """Take the task whenever it is free, write some messages with the fence in them, give it back."""

    def work(say):
        luck = random.Random(seed)
        logging.disable()  # that a lease was lost is expected here
        wins = 0
        with open_store(url, FAST) as store:
            while wins < ROUNDS:
                try:
                    with store.lease(uuid) as lease:
                        for count in range(luck.randrange(1, 9)):
                            text = f"{lease.fence} {os.getpid()} {wins} {count}"
                            say(f"{lease.append(a_message(text))} {text}")
                            time.sleep(luck.random() / 200)
                    wins += 1
                except LeaseHeld:
                    time.sleep(luck.random() / 50)
                except LeaseLost:
                    wins += 1

    return work


@pytest.mark.slow
def test_eight_fight_for_one_task(url):
    """Stopped longer than the lease and woken again: every record is by the holder of the fence that was then valid."""
    uuid = a_store_with_a_task(url)
    luck = random.Random(4)
    children = [Child(fighter(url, uuid, seed)) for seed in range(FIGHTERS)]
    for _ in range(FIGHTERS * ROUNDS // 8):
        child = luck.choice(children)
        child.kill(signal.SIGSTOP)
        time.sleep(FAST.expiry_seconds * luck.uniform(1.2, 3))
        child.kill(signal.SIGCONT)
        time.sleep(luck.random() / 10)
    ended = [child.wait() for child in children]
    assert [(end.signal, end.code) for end in ended] == [(0, 0)] * FIGHTERS
    said = dict(line.split(" ", 1) for end in ended for line in end.said)
    assert len(said) == sum(len(end.said) for end in ended), "a number was given twice"
    with open_store(url) as store:
        read = list(store.read(uuid, Message))
    assert [message.seq for message in read] == list(range(1, len(read) + 1))
    assert {number: text for number, text in said.items() if read[int(number) - 1].content != text} == {}
    assert len(read) - len(said) <= FIGHTERS, "more than one unacknowledged record per process"
    fences = [tuple(map(int, message.content.split(" ")[:2])) for message in read]
    for (fence, process), (later, other) in pairwise(fences):
        assert later > fence or (later, other) == (fence, process)


def holder(url, uuid):
    def work(say):
        with open_store(url, FAST) as store, store.lease(uuid) as lease:
            say("ready")
            time.sleep(0.5)
            lease.append(a_message("still mine"))
            lease.sync()
            say("written")
            time.sleep(60)

    return work


def test_a_stopped_holder_keeps_his_files(place):
    """With plain files alive means held, however long: the others are told who has it, and he goes on when he wakes."""
    url = url_of("jsonl", place)
    uuid = a_store_with_a_task(url)
    child = Child(holder(url, uuid))
    assert child.line() == "ready"
    child.kill(signal.SIGSTOP)
    with open_store(url, FAST) as store:
        until = time.monotonic() + 3 * FAST.expiry_seconds
        while time.monotonic() < until:
            with pytest.raises(LeaseHeld, match=f"process {child.pid} on ") as error:
                store.lease(uuid)
            assert f"process {child.pid}" in error.value.owner
        child.kill(signal.SIGCONT)
        assert child.line() == "written"
        child.kill()
        child.wait()
        assert [message.content for message in store.read(uuid, Message)] == ["still mine"]


def test_a_lock_that_is_given_back_while_another_process_asks(place, monkeypatch):
    """The process that asks is told who has it, or takes it; the next one takes it in any case."""
    url = url_of("jsonl", place)
    uuid = a_store_with_a_task(url)
    with open_store(url) as store:
        first = store.lease(uuid)
        closing = threading.Thread(target=first.close)
        real = fcntl.flock

        def given_back_now(fd, operation):
            monkeypatch.setattr(fcntl, "flock", real)
            real(fd, operation)
            closing.start()

        monkeypatch.setattr(fcntl, "flock", given_back_now)
        with suppress(LeaseHeld):
            store.lease(uuid).close()
        closing.join()
        with store.lease(uuid) as later:
            assert later.fence > first.fence


def test_a_dead_holder_is_no_holder(url):
    """The moment the holder is killed, the task can be taken; nobody waits for a time to pass."""
    uuid = a_store_with_a_task(url)
    child = Child(holder(url, uuid))
    assert child.line() == "ready"
    with open_store(url, Options(expiry_seconds=1e6)) as store:
        with pytest.raises(LeaseHeld):
            store.lease(uuid)
        child.kill()
        child.wait()
        with store.lease(uuid) as lease:
            assert lease.append(a_message("mine now"))


def parent(url, uuid):
    """Holds the task, and has a forked child and a spawned one that outlive it."""

    def work(say):
        with open_store(url) as store, store.lease(uuid):
            spawned = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], close_fds=False)
            ready, told = os.pipe()
            forked = os.fork()
            if forked == 0:
                os.write(told, b".")
                time.sleep(60)
                os._exit(0)
            os.read(ready, 1)  # a child that has not run yet still has its parent's handles
            say(f"{spawned.pid} {forked}")
            time.sleep(60)

    return work


def test_no_child_keeps_the_lock(url):
    """A forked and a spawned child of a dead holder do not hold his task."""
    uuid = a_store_with_a_task(url)
    child = Child(parent(url, uuid))
    orphans = [int(pid) for pid in child.line().split(" ")]
    try:
        child.end()
        with open_store(url) as store, store.lease(uuid) as lease:
            lease.append(a_message("mine now"))
        assert all(Path(f"/proc/{orphan}").exists() for orphan in orphans) or not Path("/proc").exists()
    finally:
        for orphan in orphans:
            os.kill(orphan, signal.SIGKILL)


def test_a_forked_child_cannot_give_the_lease_away(url):
    """A child that leaves the block of its parent's lease writes nothing and frees nothing."""
    uuid = a_store_with_a_task(url)

    def work(say):
        with open_store(url) as store:
            lease = store.lease(uuid)
            forked = os.fork()
            if forked == 0:
                refused = 0
                try:
                    lease.append(a_message("by the child"))
                except LeaseLost:
                    refused = 1
                lease.close()
                store.close()
                os._exit(refused)
            _, status = os.waitpid(forked, 0)
            say(f"{os.WEXITSTATUS(status)}")
            time.sleep(1)
            lease.append(a_message("by the parent"))
            lease.close()

    child = Child(work)
    assert child.line() == "1"
    with open_store(url) as store:
        with pytest.raises(LeaseHeld, match=f"process {child.pid} "):
            store.lease(uuid)
        assert child.wait().code == 0
        assert [message.content for message in store.read(uuid, Message)] == ["by the parent"]
