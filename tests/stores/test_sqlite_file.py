"""The SQLite file: its modes, its syncs, and its contents."""

import hashlib
import os
import re
import shutil
import sqlite3
import stat
import subprocess
import sys
import threading
from contextlib import closing

import pytest

from orihon import codec
from orihon.errors import Corrupt, LeaseLost, SchemaMismatch, StoreUnavailable
from orihon.records import Message, ToolCall
from orihon.stores.base import Options
from orihon.stores.files import Refused
from orihon.stores.sql import database
from orihon.stores.sql.database import Database
from orihon.stores.sql.sqlite import FIND_KEY, SqliteStore
from orihon.testing.samples import a_message, a_task, one_of_each

STEPS = """
import os, sys
from pathlib import Path
from orihon.stores.base import Options
from orihon.stores.sql.sqlite import SqliteStore
from orihon.testing.samples import a_message, a_task

def step(name):
    os.access(f"/step-{name}", os.F_OK)  # seen by strace

store = SqliteStore(Path(sys.argv[1]), Options(durability=sys.argv[2]))
task = a_task()
lease = store.lease(task.uuid, create=task)
lease.append(a_message())
step("append")
lease.append(a_message())
step("put")
lease.append(a_message("x" * 300_000))
step("sync")
lease.sync()
step("update")
lease.update(activity="processing")
step("status")
lease.update(status="paused")
step("close")
lease.close()
step("end")
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "contexts.db"


def a_lease(store, **fields):
    task = a_task(**fields)
    return store.lease(task.uuid, create=task)


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


# modes


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_nobody_else_can_read_it(tmp_path, umask):
    """Directories are 0700 and files 0600, the log and its index included, whatever the umask."""
    folder = tmp_path / "new" / "newer"
    before = os.umask(umask)
    try:
        with SqliteStore(folder / "contexts.db") as store:
            a_lease(store).append(a_message())
            assert {file.name: mode_of(file) for file in folder.iterdir()} == {
                "contexts.db": 0o600,
                "contexts.db-wal": 0o600,
                "contexts.db-shm": 0o600,
                "contexts.db-reserve": 0o600,
            }
    finally:
        os.umask(before)
    assert mode_of(folder) == mode_of(folder.parent) == 0o700


def test_a_wider_mode_is_kept(path):
    """An existing file keeps mode 0644, and SQLite gives it to the log; Orihon's own files are private."""
    path.parent.chmod(0o755)
    SqliteStore(path).close()
    path.chmod(0o644)
    path.with_name("contexts.db-reserve").unlink()
    with SqliteStore(path) as store:
        a_lease(store)
        assert mode_of(path) == mode_of(path.with_name("contexts.db-wal")) == 0o644
        assert mode_of(path.with_name("contexts.db-reserve")) == 0o600
    assert mode_of(path.parent) == 0o755


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
@pytest.mark.parametrize("plant", [lambda at: at.symlink_to(at.with_name("target")), os.mkfifo, os.mkdir])
def test_what_was_planted_is_refused(path, plant, suffix):
    """A link, a pipe or a directory in place of one of the three files is refused, and nothing is written to it."""
    planted = path.with_name(path.name + suffix)
    plant(planted)
    with pytest.raises(Refused, match=re.escape(str(planted))):
        SqliteStore(path)
    assert not path.with_name("target").exists()


def test_a_second_store_does_not_unlock_the_first(path):
    """SQLite's locks end when any descriptor of the file is closed, so a second open does not open it separately."""
    with SqliteStore(path) as store, SqliteStore(path):
        a_lease(store).append(a_message())
        script = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('PRAGMA journal_mode = DELETE')"
        asked = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=False)
        assert "database is locked" in asked.stderr
        assert path.with_name("contexts.db-wal").stat().st_size > 0


# syncs


@pytest.mark.parametrize(
    ("durability", "expected"), [("os", [0] * 6), ("turn", [0, 0, 0, 1, 1, 1]), ("message", [1] * 6)]
)
def test_what_is_synced(path, monkeypatch, durability, expected):
    """At `turn` sync and lifecycle steps bring the log to the disk; at `message` every commit does, at `os` none."""
    with SqliteStore(path, Options(durability=durability)) as store:
        lease = a_lease(store)
        synced, done = [], []
        sync = Database._sync
        monkeypatch.setattr(Database, "_sync", lambda it: synced.append(it) or sync(it))
        for work in (
            lambda: lease.append(a_message()),
            lambda: lease.put(b"x"),
            lambda: lease.update(activity="processing"),
            lease.sync,
            lambda: lease.update(status="paused"),
            lease.close,
        ):
            synced.clear()
            work()
            done.append(len(synced))
        assert done == expected


def test_nobody_waits_for_the_disk_of_another(path, monkeypatch):
    """Other processes append while one syncs the log."""
    is_syncing, is_synced = threading.Event(), threading.Event()
    with SqliteStore(path) as slow, SqliteStore(path) as quick:
        theirs, ours = a_lease(slow), a_lease(quick)
        sync = Database._sync

        def take_long(it):
            is_syncing.set()
            assert is_synced.wait(60)
            sync(it)

        with monkeypatch.context() as patch:
            patch.setattr(Database, "_sync", take_long)
            thread = threading.Thread(target=theirs.sync)
            thread.start()
            assert is_syncing.wait(60)
            assert ours.append(a_message("meanwhile")) == 1
            is_synced.set()
            thread.join()
        assert [message.content for message in slow.read(ours.uuid, Message)] == ["meanwhile"]


def can_trace():
    return (
        shutil.which("strace") and subprocess.run(["strace", "-qq", "-e", "none", "true"], check=False).returncode == 0
    )


@pytest.mark.skipif(not can_trace(), reason="strace is needed to see the syncs: apt install strace")
@pytest.mark.parametrize(
    ("durability", "expected"),
    [
        ("os", {}),
        ("turn", {"sync": 1, "status": 1, "close": 1}),
        ("message", {"append": 1, "put": 2, "sync": 1, "update": 1, "status": 1, "close": 1}),
    ],
)
def test_the_kernel_is_asked_to_sync(path, durability, expected):
    """Each level of durability keeps its promise after a power cut."""
    trace = path.with_name("trace")
    strace = ["strace", "-f", "-y", "-qq", "-e", "trace=access,fsync,fdatasync", "-o", str(trace)]
    subprocess.run([*strace, sys.executable, "-c", STEPS, str(path), durability], check=True)
    found, step = {}, ""
    for line in trace.read_text().splitlines():
        if marked := re.search(r'access\("/step-(\w+)"', line):
            step = marked[1]
        elif step not in {"", "end"} and "sync(" in line and "contexts.db-wal" in line:
            found[step] = found.get(step, 0) + 1
    assert found == expected


def test_the_log_does_not_grow_for_ever(path, monkeypatch):
    """A checkpoint runs when a turn ends, or at a larger size if no commit is durable."""
    monkeypatch.setattr(database, "CHECKPOINT_BYTES", 100_000)
    monkeypatch.setattr(database, "FORCED_CHECKPOINT_BYTES", 1_000_000)
    wal = path.with_name("contexts.db-wal")
    with SqliteStore(path) as store:
        lease = a_lease(store)
        for number in range(400):
            lease.append(a_message("x" * 5000))
            if number < 200 and number % 10 == 9:
                lease.sync()
                assert wal.stat().st_size < 500_000
        assert wal.stat().st_size < 2_000_000
        assert path.stat().st_size > 1_500_000
        assert len(list(store.read(lease.uuid, Message))) == 400


def test_nobody_commits_while_the_log_is_copied_back(path, monkeypatch):
    """A checkpoint runs inside a write transaction, because SQLite before 3.51.3 can lose commits otherwise."""
    with SqliteStore(path) as store:
        lease = a_lease(store)
        held = []
        connect = database._connect
        monkeypatch.setattr(database, "CHECKPOINT_BYTES", 0)
        monkeypatch.setattr(
            database, "_connect", lambda at: held.append(store.writer.connection.in_transaction) or connect(at)
        )
        lease.sync()
        assert held == [True]
        for connection in (store.writer, store.reader, store.renewer):
            assert connection.all("PRAGMA wal_autocheckpoint") == [(0,)]


# contents


def test_people_can_query_it(path):
    """Roles, tokens, times and keys are columns, and every line is the JSON that the other stores would write."""
    with SqliteStore(path) as store:
        lease = a_lease(store)
        lease.append(a_message("question", role="user", tokens=3, key="k"))
        lease.append(a_message("日本語\u2028", role="assistant", tokens=40))
        lease.append(a_message("more", role="assistant", tokens=2))
        for record in one_of_each()[1:]:
            lease.append(record)

        def ask(statement):
            with sqlite3.connect(path) as person:
                found = person.execute(statement).fetchall()
            person.close()
            return found

        assert ask("SELECT role, count(*), sum(tokens) FROM messages GROUP BY role ORDER BY role") == [
            ("assistant", 2, 42),
            ("user", 1, 3),
        ]
        assert ask("SELECT seq FROM messages JOIN tasks USING (uuid) WHERE key = 'k' AND status = 'running'") == [(1,)]
        assert ask("SELECT json_extract(line, '$.content') FROM messages WHERE seq = 1") == [("question",)]
        assert ask("SELECT json_extract(line, '$.tool') FROM tool_calls") == [("read",)]
        assert ask("SELECT (SELECT count(*) FROM summaries), (SELECT count(*) FROM planning)") == [(1, 1)]
        assert ask("SELECT json_extract(lease_owner, '$.process_id') FROM tasks") == [(os.getpid(),)]
        ((line,),) = ask("SELECT line FROM messages WHERE seq = 2")
        _, read, _ = store.read(lease.uuid, Message)
        assert line.encode() == codec.encode(read)


def test_reading_takes_a_bounded_bite(path, monkeypatch):
    """A page ends after about `READ_BYTES`, and the next one begins after it."""
    monkeypatch.setattr(database, "READ_BYTES", 10_000)
    with SqliteStore(path) as store:
        lease = a_lease(store)
        for _ in range(20):
            lease.append(a_message("x" * 3000))
        pages = []
        page = store.reader.page
        monkeypatch.setattr(store.reader, "page", lambda *values: pages.append(page(*values)) or pages[-1])
        assert len(list(store.read(lease.uuid, Message))) == 20
        assert [len(lines) for lines in pages] == [4, 4, 4, 4, 4, 0]


def test_a_task_is_deleted_whole(path):
    """No table keeps a row of the task, and other tasks keep all of theirs."""
    with SqliteStore(path) as store:
        leases = [a_lease(store), a_lease(store)]
        for lease in leases:
            for record in one_of_each():
                lease.append(record)
            lease.put(b"blob")
            lease.close()
        store.delete(leases[0].uuid)
        tables = ["tasks", "metadata", "messages", "summaries", "tool_calls", "events", "folds", "planning", "blobs"]
        made = {name for (name,) in store.reader.all("SELECT name FROM sqlite_master WHERE type = 'table'")}
        assert made == {*tables, "task_totals"}
        for table in tables:
            assert store.reader.all(f"SELECT uuid FROM {table}") == [(leases[1].uuid,)]  # noqa: S608
        assert len(list(store.read(leases[1].uuid, ToolCall))) == 1


def test_a_closed_store_says_so(path):
    """A closed store raises StoreUnavailable, not an error of SQLite."""
    store = SqliteStore(path)
    task = a_task()
    lease = store.lease(task.uuid, create=task)
    store.close()
    with pytest.raises(LeaseLost):
        lease.append(a_message())
    for use in (store.find, lambda: store.read(task.uuid, Message), lambda: [store.lease(task.uuid)]):
        with pytest.raises(StoreUnavailable, match="closed"):
            list(use())


def test_what_was_changed_behind_our_back_is_noticed(path):
    """A blob that is not what its name says, a broken line, another version, a file that is no database."""
    problems = []
    with SqliteStore(path, Options(report=problems.append)) as store:
        lease = a_lease(store)
        blob = lease.put(b"right")
        lease.append(a_message("one"))
        lease.append(a_message("two"))
        store.writer.change("UPDATE blobs SET data = ?", b"wrong")
        store.writer.change("UPDATE messages SET line = ? WHERE seq = 1", '{"seq":1,')
        assert blob.sha256 == hashlib.sha256(b"right").hexdigest()
        with pytest.raises(Corrupt, match=blob.sha256):
            store.blob(lease.uuid, blob.sha256)
        assert [message.content for message in store.read(lease.uuid, Message)] == ["two"]
        assert [(problem.where, problem.line) for problem in problems] == [("messages", 1)]
        lease.close()
        store.writer.all("PRAGMA user_version = 99")
    with pytest.raises(SchemaMismatch, match="99"):
        SqliteStore(path)
    path.write_bytes(b"not a database" * 1000)
    with pytest.raises(Corrupt, match="not a"):
        SqliteStore(path)


def test_a_key_is_known_for_ever(path):
    """A repeated append with a used key stores nothing, however many messages were appended since."""
    with SqliteStore(path, Options(durability="os")) as store:
        lease = a_lease(store)
        lease.append(a_message("once", key="k"))
        for number in range(1100):
            lease.append(a_message("x", key=f"other {number}"))
        assert lease.append(a_message("again", key="k")) == 1
        assert lease.last(Message) == 1101


@pytest.mark.parametrize("moment", [1, 2])
def test_a_file_that_somebody_makes_at_the_same_moment_is_ours_too(tmp_path, monkeypatch, moment):
    """Another process may create the tables of a new file before the first transaction."""
    path = tmp_path / "contexts.db"
    everything, asked = Database.all, []

    def look(database, statement, *values):
        found = everything(database, statement, *values)
        asked.append(statement)
        if len(asked) == moment and not database.connection.in_transaction:
            Database(path, ("tasks", "lists")).close()
        return found

    monkeypatch.setattr(Database, "all", look)
    Database(path, ("tasks", "lists")).close()
    assert asked[0] == "PRAGMA user_version"


def test_a_file_of_another_program_is_left_alone(tmp_path):
    """A SQLite file of another program is refused, and no table is added to it."""
    path = tmp_path / "theirs.db"
    with closing(sqlite3.connect(path)) as theirs:
        theirs.execute("CREATE TABLE notes (text TEXT)")
    with pytest.raises(SchemaMismatch, match="another program"):
        Database(path, ("tasks", "lists"))
    with closing(sqlite3.connect(path)) as theirs:
        assert theirs.execute("SELECT name FROM sqlite_master").fetchall() == [("notes",)]


def test_a_key_is_looked_up_in_its_index(path):
    """A new key does not read the messages of the task."""
    with SqliteStore(path) as store:
        plan = store.reader.all(f"EXPLAIN QUERY PLAN {FIND_KEY}", "uuid", "key")
        assert any("idx_messages_key" in detail for *_, detail in plan), plan
