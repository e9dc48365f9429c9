"""The SQLite store when processes are killed or compete, and when the disk fails."""

import errno
import shutil
import signal
import sqlite3
import subprocess
import sys

import pytest

from orihon.errors import NotWritten, OutcomeUnknown
from orihon.records import Message
from orihon.stores.base import Options
from orihon.stores.sql import database
from orihon.stores.sql.sqlite import SqliteStore
from orihon.testing.samples import a_message, a_task

PRELUDE = """
import sys
from pathlib import Path
from orihon.errors import NotWritten, OutcomeUnknown
from orihon.records import Message
from orihon.stores.base import Options
from orihon.stores.sql.sqlite import SqliteStore

def message(text, key=None):
    return Message(seq=0, role="user", content=text, timestamp="", tokens=0, key=key)

path, uuid, durability = sys.argv[1:]
store = SqliteStore(Path(path), Options(durability=durability))
lease = store.lease(uuid)
"""
APPEND_FOR_EVER = """
while True:
    number = lease.append(message("x" * 5000))
    if number % 10 == 0:
        lease.sync()
    print(number, flush=True)
"""
APPEND_100 = """
for number in range(100):
    lease.append(message(f"{uuid} {number} " + "x" * 2000))
store.close()
"""
APPEND_WITH_KEYS = """
def insist(work):
    while True:
        try:
            return work()
        except (NotWritten, OutcomeUnknown) as error:
            print(type(error).__name__)

for number in range(8):
    insist(lambda: lease.append(message("x" * 3000, key=f"k{number}")))
    if number % 3 == 2:
        insist(lease.sync)
insist(lease.close)
store.close()
"""


def start(script, path, uuid, durability="turn", *, under=()):
    command = [*under, sys.executable, "-c", PRELUDE + script, str(path), uuid, durability]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def make_tasks(path, count):
    tasks = [a_task() for _ in range(count)]
    with SqliteStore(path) as store:
        for task in tasks:
            store.lease(task.uuid, create=task).close()
    return [task.uuid for task in tasks]


def whole(path):
    """Run SQLite's integrity check."""
    with sqlite3.connect(path) as connection:
        ((verdict,),) = connection.execute("PRAGMA integrity_check").fetchall()
    connection.close()
    return verdict == "ok"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "contexts.db"


@pytest.mark.parametrize("acknowledged", [1, 9, 30, 77])
def test_kill_9_takes_nothing_back(path, acknowledged):
    """Every acknowledged record is stored after the kill, and the lease can be taken at once."""
    (uuid,) = make_tasks(path, 1)
    with start(APPEND_FOR_EVER, path, uuid) as writer:
        for _ in range(acknowledged):
            writer.stdout.readline()
        writer.kill()
        last = int((writer.stdout.read().split() or [acknowledged])[-1])
    assert writer.returncode == -signal.SIGKILL
    with SqliteStore(path) as store, store.lease(uuid) as lease:
        numbers = [message.seq for message in store.read(uuid, Message)]
        assert numbers == list(range(1, len(numbers) + 1))
        assert last <= len(numbers) <= last + 1
        assert lease.append(a_message()) == len(numbers) + 1
    assert whole(path)


@pytest.mark.slow
def test_sixteen_processes_share_a_file(path):
    """Each process appends to its own task; nothing is lost, and none gets an error about a lock."""
    uuids = make_tasks(path, 16)
    writers = [start(APPEND_100, path, uuid) for uuid in uuids]
    for writer in writers:
        assert writer.communicate() == ("", "")
        assert writer.returncode == 0
    with SqliteStore(path) as store:
        for uuid in uuids:
            found = [message.content.split()[:2] for message in store.read(uuid, Message)]
            assert found == [[uuid, str(number)] for number in range(100)]
    assert whole(path)


@pytest.mark.slow
def test_sixteen_processes_make_a_file(path):
    """Processes that create the same file at the same moment create it once."""
    script = (
        "from pathlib import Path; from orihon.stores.sql.sqlite import SqliteStore; SqliteStore(Path({!r})).close()"
    )
    command = [sys.executable, "-c", script.format(str(path))]
    makers = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(16)]
    assert [maker.communicate()[1] for maker in makers] == [""] * 16
    assert whole(path)


def test_a_reader_sees_what_another_process_writes(path):
    """A reader gets page after page while another process writes, without gaps."""
    (uuid,) = make_tasks(path, 1)
    with start(APPEND_FOR_EVER, path, uuid) as writer, SqliteStore(path) as store:
        seen = 0
        while seen < 400:
            numbers = [message.seq for message in store.read(uuid, Message)]
            assert numbers == list(range(1, len(numbers) + 1))
            assert len(numbers) >= seen
            seen = len(numbers)
        writer.kill()
        writer.communicate()


def test_a_full_disk_loses_nothing(path):
    """The record that did not fit is NotWritten; reading, listing and deleting go on, and so does the task later."""
    with SqliteStore(path) as store:
        task, other = a_task(), a_task()
        store.lease(other.uuid, create=other).close()
        lease = store.lease(task.uuid, create=task)
        lease.append(a_message("before"))
        ((pages,),) = store.writer.all("PRAGMA page_count")
        store.writer.all(f"PRAGMA max_page_count = {pages}")
        for write in (lambda: lease.append(a_message("x" * 100_000, key="k")), lambda: lease.put(b"x" * 100_000)):
            with pytest.raises(NotWritten, match="full"):
                write()
        assert [message.content for message in store.read(task.uuid, Message)] == ["before"]
        store.delete(other.uuid)
        assert len(list(store.find())) == 1
        store.writer.all("PRAGMA max_page_count = 1000000")
        assert lease.append(a_message("x" * 100_000, key="k")) == 2
        assert lease.append(a_message("after")) == 3


class FailingCommit:
    """A connection whose next commit fails, before or after it did its work."""

    def __init__(self, connection, *, done):
        self._connection, self._done, self._armed = connection, done, True

    def execute(self, statement, *values):
        if statement == "COMMIT" and self._armed:
            self._armed = False
            self._connection.execute("COMMIT" if self._done else "ROLLBACK")
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
            raise error
        return self._connection.execute(statement, *values)

    def __getattr__(self, name):
        return getattr(self._connection, name)


@pytest.mark.parametrize("done", [True, False])
def test_a_commit_that_fails_is_unknown_and_found_out(path, done):
    """The repeated append stores the record once, and the numbers have no gap."""
    with SqliteStore(path) as store:
        task = a_task()
        lease = store.lease(task.uuid, create=task)
        lease.append(a_message("first", key="k1"))
        store.writer.connection = FailingCommit(store.writer.connection, done=done)
        with pytest.raises(OutcomeUnknown):
            lease.append(a_message("second", key="k2"))
        assert lease.append(a_message("second", key="k2")) == 2
        assert lease.append(a_message("third")) == 3
        assert [message.content for message in store.read(task.uuid, Message)] == ["first", "second", "third"]


def fail_the_commit(store, _):
    store.writer.connection = FailingCommit(store.writer.connection, done=False)


def fail_the_sync(_, patch):
    """A failed sync is reported once by the kernel."""

    def fail(_):
        patch.undo()
        raise OSError(errno.EIO, "Input/output error")

    patch.setattr(database, "sync_data", fail)


@pytest.mark.parametrize("fail", [fail_the_commit, fail_the_sync])
def test_a_failed_sync_is_not_believed_the_second_time(path, monkeypatch, fail):
    """The kernel drops pages that it could not write, so a checkpoint follows a failed sync."""
    with SqliteStore(path) as store:
        task = a_task()
        lease = store.lease(task.uuid, create=task)
        lease.append(a_message("x" * 5000))
        fail(store, monkeypatch)
        with pytest.raises(OutcomeUnknown):
            lease.sync()
        lease.sync()
        alone = path.with_name("alone.db")
        shutil.copy(path, alone)  # without its log
        with SqliteStore(alone) as copy:
            assert len(list(copy.read(task.uuid, Message))) == 1


def test_an_interrupted_append_is_found_out(path, monkeypatch):
    """After Ctrl-C between the commit and the count, the next append gets a free number."""
    with SqliteStore(path) as store:
        task = a_task()
        lease = store.lease(task.uuid, create=task)
        change = store.writer.change

        def interrupted(*arguments):
            change(*arguments)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(store.writer, "change", interrupted)
            with pytest.raises(KeyboardInterrupt):
                lease.append(a_message("once", key="k"))
        assert lease.append(a_message("once", key="k")) == 1
        assert lease.append(a_message("next")) == 2


def can_trace():
    return (
        shutil.which("strace") and subprocess.run(["strace", "-qq", "-e", "none", "true"], check=False).returncode == 0
    )


@pytest.mark.skipif(not can_trace(), reason="strace is needed to make the disk fail: apt install strace")
@pytest.mark.parametrize("durability", ["turn", "message"])
@pytest.mark.parametrize(
    "fault", ["fdatasync:error=EIO:when=3", "pwrite64:error=ENOSPC:when=40", "pwrite64:error=EIO:when=60+50"]
)
def test_a_failing_disk_loses_and_doubles_nothing(path, durability, fault):
    """Every append that was repeated with its key until it succeeded is stored once."""
    (uuid,) = make_tasks(path, 1)
    strace = [
        "strace",
        "-f",
        "-qq",
        "-e",
        "trace=fdatasync,pwrite64",
        "-e",
        f"inject={fault}",
        "-P",
        f"{path}-wal",
        "-o",
        "/dev/null",
    ]
    with start(APPEND_WITH_KEYS, path, uuid, durability, under=strace) as writer:
        output, errors = writer.communicate()
    assert writer.returncode == 0, errors
    assert {"NotWritten", "OutcomeUnknown"} & set(output.split())
    with SqliteStore(path, Options()) as store:
        assert [message.key for message in store.read(uuid, Message)] == [f"k{number}" for number in range(8)]
    assert whole(path)
