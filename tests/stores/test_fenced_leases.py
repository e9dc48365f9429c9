"""Leases in SQLite and PostgreSQL, with real processes that are stopped, die and compete."""

import contextlib
import random
import signal
import subprocess
import sys
import time

import pytest

from orihon.errors import LeaseHeld, LeaseLost, UsageError
from orihon.records import Message
from orihon.stores import open_store
from orihon.stores.base import Options
from orihon.testing.samples import a_message, a_task

PRELUDE = """
import os, random, sys, time
from orihon.errors import LeaseHeld, LeaseLost
from orihon.records import Message
from orihon.stores import open_store
from orihon.stores.base import Options

def message(text):
    return Message(seq=0, role="user", content=text, timestamp="", tokens=0)

url, uuid, heartbeat, expiry, *rest = sys.argv[1:]
options = Options(heartbeat_seconds=float(heartbeat), expiry_seconds=float(expiry))
store = open_store(url, options)
"""
HOLD = """
lease = store.lease(uuid)
lease.append(message("mine"))
print("ready", flush=True)
sys.stdin.readline()
try:
    print(lease.append(message("mine again")), flush=True)
except LeaseLost:
    print("LeaseLost", flush=True)
"""
FIGHT = """
rounds = random.Random(rest[0])
end = time.monotonic() + 7
while time.monotonic() < end:
    try:
        lease = store.lease(uuid)
        for _ in range(rounds.randrange(1, 40)):
            text = f"{lease.fence} {rounds.random()}"
            print(lease.append(message(text)), text, flush=True)
            time.sleep(rounds.random() / 50)
        lease.close()
    except (LeaseHeld, LeaseLost):
        time.sleep(rounds.random() / 10)
"""


def start(script, store, uuid, *arguments, options=Options(), stdout=subprocess.PIPE):  # noqa: B008 - it is frozen
    times = (str(options.heartbeat_seconds), str(options.expiry_seconds))
    return subprocess.Popen(
        [sys.executable, "-c", PRELUDE + script, store.url, uuid, *times, *arguments],
        stdin=subprocess.PIPE,
        stdout=stdout,
        text=True,
    )


def eventually(take):
    """Retry until the lease is free, with a limit that is long enough for a slow machine."""
    for _ in range(600):
        with contextlib.suppress(LeaseHeld):
            return take()
        time.sleep(0.05)
    return take()


def texts(store, uuid):
    return [message.content for message in store.read(uuid, Message)]


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path, url_at):
    return url_at(request.param, tmp_path)


@pytest.fixture
def store(url):
    with open_store(url) as store:
        yield store


@pytest.fixture
def hasty(store):
    """Open a second store on the same database, for which every lease is expired."""
    with open_store(store.url, Options(expiry_seconds=0)) as hasty:
        yield hasty


@pytest.fixture
def uuid(store):
    task = a_task()
    store.lease(task.uuid, create=task).close()
    return task.uuid


def test_a_stopped_holder_that_wakes_cannot_write(store, uuid):
    """A process that was stopped for longer than its lease gets LeaseLost, and writes nothing."""
    options = Options(heartbeat_seconds=0.2, expiry_seconds=1)
    with start(HOLD, store, uuid, options=options) as holder:
        assert holder.stdout.readline() == "ready\n"
        holder.send_signal(signal.SIGSTOP)
        with open_store(store.url, options) as other:
            lease = eventually(lambda: other.lease(uuid))
            lease.append(a_message("yours"))
            holder.send_signal(signal.SIGCONT)
            assert holder.communicate("go\n")[0] == "LeaseLost\n"
            lease.append(a_message("yours again"))
    assert texts(store, uuid) == ["mine", "yours", "yours again"]


def test_a_dead_holder_is_followed_at_once(store, uuid):
    """The lease of a killed process is free at once, even while the process is a zombie."""
    options = Options(heartbeat_seconds=3600, expiry_seconds=3600)
    with start(HOLD, store, uuid, options=options) as holder:
        holder.stdout.readline()
        with pytest.raises(LeaseHeld, match=f"process {holder.pid} on .* since 20"):
            store.lease(uuid)
        holder.kill()
        while state_of(holder.pid) not in {"Z", ""}:  # not `poll`, which would reap it
            time.sleep(0.01)
        with store.lease(uuid) as lease:
            assert lease.append(a_message("next")) == 2


def state_of(process_id):
    with contextlib.suppress(OSError), open(f"/proc/{process_id}/stat") as stat:  # noqa: PTH123
        return stat.read().rpartition(")")[2].split()[0]
    return ""


def test_a_silent_holder_is_followed_when_he_expires(store, uuid):
    """A holder that was silent for `expiry_seconds` loses the task, alive or not, and not earlier."""
    with start(HOLD, store, uuid, options=Options(heartbeat_seconds=3600)) as holder:
        holder.stdout.readline()
        with pytest.raises(LeaseHeld):
            store.lease(uuid)
        with open_store(store.url, Options(expiry_seconds=0.5)) as other:
            eventually(lambda: other.lease(uuid)).close()
        assert holder.communicate("go\n")[0] == "LeaseLost\n"


@pytest.mark.slow
def test_a_heartbeat_keeps_the_lease_through_a_long_call(store, uuid):
    """The heartbeat keeps the lease of a holder that waits longer than `expiry_seconds`."""
    options = Options(heartbeat_seconds=0.1, expiry_seconds=2)
    with start(HOLD, store, uuid, options=options) as holder, open_store(store.url, options) as other:
        holder.stdout.readline()
        for _ in range(30):
            with pytest.raises(LeaseHeld):
                other.lease(uuid)
            time.sleep(0.1)
        assert holder.communicate("go\n")[0] == "2\n"


@pytest.mark.slow
def test_eight_processes_fight_for_one_task(store, uuid, tmp_path):
    """Processes stopped for longer than their lease at random moments lose, repeat and interleave no record."""
    options = Options(heartbeat_seconds=0.2, expiry_seconds=0.6)
    outputs = [tmp_path / f"{number}.txt" for number in range(8)]
    with contextlib.ExitStack() as stack:
        fighters = []
        for output in outputs:
            file = stack.enter_context(output.open("w"))
            fighter = start(FIGHT, store, uuid, output.stem, options=options, stdout=file)
            fighters.append(stack.enter_context(fighter))
        while running := [fighter for fighter in fighters if fighter.poll() is None]:
            victims = random.sample(running, min(2, len(running)))
            for victim in victims:
                victim.send_signal(signal.SIGSTOP)
            time.sleep(0.8)
            for victim in victims:
                victim.send_signal(signal.SIGCONT)
            time.sleep(0.2)
    assert [fighter.returncode for fighter in fighters] == [0] * 8
    log = {message.seq: message.content for message in store.read(uuid, Message)}
    acknowledged = [line.split(" ", 1) for output in outputs for line in output.read_text().splitlines()]
    assert list(log) == list(range(1, len(log) + 1))
    assert all(log[int(number)] == text for number, text in acknowledged)
    assert len({number for number, _ in acknowledged}) == len(acknowledged)
    assert len(set(log.values())) == len(log)
    fences = [int(text.split()[0]) for text in log.values()]
    assert fences == sorted(fences)
    assert len(set(fences)) > 1  # they did take it from each other


def test_every_statement_names_the_lease(store, uuid, hasty):
    """A holder that does not know of its loss is refused by the statement that writes."""
    lease = store.lease(uuid)
    lease.append(a_message("before"))
    hasty.lease(uuid)
    assert not lease._lost
    for write in (
        lambda: lease.append(a_message("late")),
        lambda: lease.put(b"late"),
        lambda: lease.update(status="failed", add={"total_tokens": 1}),
        lease.sync,
    ):
        lease._lost = False
        with pytest.raises(LeaseLost):
            write()
    lease.close()
    assert texts(store, uuid) == ["before"]
    row = store.row(uuid)
    assert (row.status, row.total_tokens, row.fence) == ("running", 0, lease.fence + 1)
    assert row.lease_owner


def test_a_task_made_again_is_not_the_old_holders(store, hasty):
    """The lease of a deleted task cannot write a new one with the same id, though both have fence 1."""
    task = a_task()
    old = store.lease(task.uuid, create=task)
    hasty.delete(task.uuid)
    new = hasty.lease(task.uuid, create=task)
    assert old.fence == new.fence
    with pytest.raises(LeaseLost):
        old.append(a_message("ghost"))
    old.close()
    new.append(a_message("new"))
    assert texts(store, task.uuid) == ["new"]


def test_a_holder_that_could_not_renew_asks_before_he_writes(url):
    """A holder that is late by its own clock renews first, and goes on if no other process took the task."""
    with open_store(url, Options(heartbeat_seconds=3600, expiry_seconds=60)) as store:
        task = a_task()
        lease = store.lease(task.uuid, create=task)
        beat = store.row(task.uuid).heartbeat_at
        lease.append(a_message())
        assert store.row(task.uuid).heartbeat_at == beat
        lease._renewed -= 61
        lease.append(a_message())
        assert store.row(task.uuid).heartbeat_at > beat


def test_a_child_is_not_its_parent(store, uuid):
    """After a fork the child gets an error that tells it to open the store, and cannot release the lease."""
    script = """
lease = store.lease(uuid)
if os.fork() == 0:
    for use in (lambda: lease.append(message("child")), lambda: list(store.read(uuid, Message))):
        try:
            use()
        except Exception as error:
            print(type(error).__name__, flush=True)
    lease.close()
    store.close()
    os._exit(0)
os.wait()
print(lease.append(message("parent")), flush=True)
"""
    with start(script, store, uuid) as parent:
        assert parent.stdout.read().split() == [LeaseLost.__name__, UsageError.__name__, "1"]
    assert texts(store, uuid) == ["parent"]
