"""To close on a full disk, or without a server: what can be given back is, and the error says what was not written."""

import errno
import os
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress

import pytest

import orihon
from orihon.errors import LeaseHeld, LeaseLost, NotWritten, OrihonError, OutcomeUnknown, StoreError
from orihon.records import Message
from orihon.settings.schema import Settings
from orihon.stores import open_store
from orihon.stores.base import Options
from orihon.testing.samples import a_message, a_task
from support.faults import Child, Fault, Faults
from support.postgres_server import PostgresServer
from support.scenario import STORES, url_of

TAKE = """
import sys
from orihon.stores import open_store

with open_store(sys.argv[1]) as store:
    for row in store.find():
        with store.lease(row.uuid):
            print(row.uuid)
"""


def fill(disk):
    """Leave no room at all."""
    with (disk / "ballast").open("wb", buffering=0) as ballast, suppress(OSError):
        while ballast.write(b"z" * 4096):
            pass


def taken_by_another(url):
    """The tasks that another process can take, and what went wrong."""
    ended = subprocess.run([sys.executable, "-c", TAKE, url], capture_output=True, text=True, check=False)
    return set(ended.stdout.split()), ended.stderr


def started(url, count=3):
    engine = orihon.open(url, settings=Settings())
    tasks = [engine.start(f"local/issue/{number}") for number in range(count)]
    for task in tasks:
        task.add("user", "hello")
    return engine, tasks


def assert_closed(*leases):
    for lease in leases:
        with pytest.raises(LeaseLost):
            lease.sync()
        lease.close()


ENDS = {
    "close": lambda task: task.close(),
    "pause": lambda task: task.pause(),
    "stop": lambda task: task.stop("enough"),
    "complete": lambda task: task.complete(),
    "nothing": lambda task: task.uuid,
}


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("end", ENDS)
def test_a_full_disk(kind, end, small_disk):
    """Each task ends or says that it cannot; its lease is free, while the process that had it goes on."""
    url = url_of(kind, small_disk)
    engine, tasks = started(url)
    fill(small_disk)
    for task in tasks:
        with suppress(NotWritten, OutcomeUnknown):
            ENDS[end](task)
    engine.close()
    assert_closed(*(task.writer.lease for task in tasks))
    (small_disk / "ballast").unlink()  # to take a task needs room
    uuids, complaint = taken_by_another(url)
    assert uuids == {task.uuid for task in tasks}, complaint
    with open_store(url) as store:
        for task in tasks:
            assert "hello" in [message.content for message in store.read(task.uuid, Message)]


def test_a_task_can_be_paused_on_a_full_disk(small_disk):
    """A little room is kept for it, however many tasks there are and however often it is needed."""
    url = url_of("sqlite", small_disk)
    engine, tasks = started(url, 8)
    fill(small_disk)
    with pytest.raises(NotWritten):
        for _ in range(1000):
            tasks[0].add("user", "x" * 9000)
    for task in tasks[:4]:
        task.pause()
        fill(small_disk)
    engine.close()
    with open_store(url) as store:
        assert {row.status for row in store.find()} == {"paused"}


def without_room(url):
    """A store and a lease, on a disk that has not even room for a heartbeat."""
    store = open_store(url)
    task = a_task()
    lease = store.lease(task.uuid, create=task)
    lease.append(a_message())
    store.reserve.unlink()
    fill(store.path.parent)
    with pytest.raises(NotWritten):
        while True:
            lease.sync()
    return store, lease


def held_for_ever(url, say):
    """Close a lease where there is no room for it, and go on."""
    store, lease = without_room(url)
    try:
        lease.close()
    except NotWritten as error:
        say(f"{error.message} {error.retryable}")
    lease.close()  # which is no error
    with suppress(LeaseLost):
        lease.append(a_message())
        say("written")
    say(f"{len(store.leases)} {lease._heartbeat._thread.is_alive()}")
    store.close()
    say("closed")
    sys.stdin.read()


def test_there_is_no_room_at_all(small_disk):
    """`close` says which lease it could not give back; it lets go of everything, and the holder's end frees it."""
    url = url_of("sqlite", small_disk)
    reading, writing = os.pipe()

    def work(say):
        os.close(writing)
        sys.stdin = os.fdopen(reading)
        held_for_ever(url, say)

    child = Child(work)
    os.close(reading)
    sentence = child.line()
    assert "The lease on task" in sentence
    assert "could not be released" in sentence
    assert "disk is full" in sentence
    assert sentence.endswith("in 60 seconds. False")
    assert [child.line(), child.line()] == ["0 False", "closed"]
    (small_disk / "ballast").unlink()
    with open_store(url) as store:
        (row,) = store.find()
        with pytest.raises(LeaseHeld):
            store.lease(row.uuid)
        with open_store(url, Options(expiry_seconds=0)) as impatient:  # no heartbeat keeps it
            impatient.lease(row.uuid).close()
    os.close(writing)
    assert child.wait().code == 0


def test_the_end_of_the_holder_frees_it(small_disk):
    """A lease that could not be released is taken at once when its process is gone."""
    url = url_of("sqlite", small_disk)

    def work(say):
        store, lease = without_room(url)
        with suppress(NotWritten):
            lease.close()
            say("free")
        with suppress(OrihonError):
            store.close()

    child = Child(work)
    assert child.wait().said == []
    (small_disk / "ballast").unlink()
    with open_store(url) as store:
        (row,) = store.find()
        assert row.lease_owner is not None
        store.lease(row.uuid).close()


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_a_sync_that_fails_at_the_end(number, tmp_path):
    """Plain files: the error says that the outcome is unknown, and the lock is free."""
    task = a_task()
    with open_store(tmp_path / "contexts") as store:
        lease = store.lease(task.uuid, create=task)
        lease.append(a_message())
        with (
            Faults(Fault(at=1, how="fail", errno=number, onwards=True, only=("fsync",))),
            pytest.raises(OutcomeUnknown),
        ):
            lease.close()
        assert_closed(lease)
        with open_store(tmp_path / "contexts") as other:
            other.lease(task.uuid).close()


# one of several


def break_one(kind, url, task):
    """Take away what one task needs in order to be closed."""
    if kind == "jsonl":
        (task.writer.lease.store.task_path(task.uuid) / ".lock").unlink()
    elif kind == "sqlite":
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection, connection:
            connection.execute("UPDATE tasks SET fence = fence + 1 WHERE uuid = ?", (task.uuid,))
    else:
        task.writer.lease.store.server.change(
            "UPDATE tasks SET fence = fence + 1 WHERE uuid = %s RETURNING 1", task.uuid
        )


@pytest.mark.parametrize("kind", [*STORES, "postgres"])
@pytest.mark.parametrize("broken", range(3))
def test_one_of_several_tasks(kind, broken, url_at, tmp_path, caplog):
    """An engine closes all others, whichever fails, and says which did."""
    url = url_at(kind, tmp_path)
    engine, tasks = started(url)
    break_one(kind, url, tasks[broken])
    engine.close()
    assert tasks[broken].uuid[:8] in caplog.text
    with open_store(url) as store:
        for task in tasks:
            assert store.row(task.uuid).status == ("running" if task is tasks[broken] else "paused")
            if task is not tasks[broken]:
                store.lease(task.uuid).close()


@pytest.mark.parametrize("broken", range(3))
def test_one_of_several_leases(broken, tmp_path):
    """A store closes all others as well, and raises what went wrong with the one."""
    store = open_store(tmp_path / "contexts")
    tasks = [a_task(number) for number in range(1, 4)]
    leases = [store.lease(task.uuid, create=task) for task in tasks]
    (store.task_path(tasks[broken].uuid) / ".lock").unlink()
    with pytest.raises(LeaseLost):
        store.close()
    assert_closed(*leases)
    with open_store(tmp_path / "contexts") as other:
        for task in tasks:
            other.lease(task.uuid).close()


@pytest.mark.slow
def test_a_server_that_is_gone():
    """PostgreSQL: every lease is let go, the second without another wait; when the server is back they can be taken."""
    options = Options(expiry_seconds=2)
    tasks = [a_task(number) for number in range(1, 4)]
    with PostgresServer() as server:
        store = open_store(server.url, options)
        leases = [store.lease(task.uuid, create=task) for task in tasks]
        for lease in leases:
            lease.append(a_message("hello"))
        server.stop()
        with pytest.raises(StoreError, match=r"The lease on task .* could not be released.*in 2 seconds"):
            leases[0].close()
        with pytest.raises(StoreError):
            store.close()
        assert_closed(*leases)
        assert [lease._heartbeat._thread.is_alive() for lease in leases] == [False] * 3
        server.start()
        with open_store(server.url, Options(expiry_seconds=0)) as other:
            for task in tasks:
                with other.lease(task.uuid):
                    assert [message.content for message in other.read(task.uuid, Message)] == ["hello"]


def test_the_first_error_is_the_one_that_is_raised(small_disk):
    """An error of the block is not hidden by a lease that cannot be given back."""
    url = url_of("sqlite", small_disk)
    engine, (task,) = started(url, 1)
    engine.store.reserve.unlink()
    with pytest.raises(ZeroDivisionError), task:
        fill(small_disk)
        raise ZeroDivisionError
    assert_closed(task.writer.lease)
    engine.close()


LIMITED = """
import resource, signal, sys
import orihon
from orihon.errors import StoreError
from orihon.settings.schema import Settings
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
engine = orihon.open(sys.argv[1], settings=Settings())
task = engine.start("local/issue/k")
resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))
said = 0
try:
    while True:
        task.add("user", f"{said} " + "x" * 4000)
        said += 1
except StoreError as error:
    print(type(error).__name__)
task.close()
print(task.row.status)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
again = engine.resume(task.uuid)
assert sum(1 for _ in engine.read(task.uuid).messages()) in {said, said + 1}
again.complete()
engine.close()
"""


@pytest.mark.parametrize("kind", ["jsonl", "sqlite"])
def test_files_that_may_not_grow(kind, url_at, tmp_path):
    """A limit of the process instead of a full disk: the task is paused, and its lease given back."""
    command = [sys.executable, "-c", LIMITED, url_at(kind, tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == "paused"
    assert "could not be released" not in done.stderr
