"""Every kind of damage, planted for real: found without a change, repaired when asked, explained when it cannot be."""

import gzip
import hashlib
import itertools
import json
import os
import signal
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import msgspec
import psycopg
import pytest

import orihon
from orihon.errors import LeaseHeld, NotFound, UsageError
from orihon.ops.doctor import examine
from orihon.records import Event, Message
from orihon.stores import open_store
from orihon.stores.jsonl.line_reader import PlainSource, compress
from orihon.stores.jsonl.message_index import WIDTH
from orihon.testing.samples import a_message, a_task, one_of_each

# ruff: noqa: S608 - the statements plant damage, the uuids are our own
SOURCE = str(Path(orihon.__file__).parent.parent)

HOLDER = """
import sys, time
from orihon.stores import open_store
from orihon.testing.samples import a_message
lease = open_store(sys.argv[1]).lease(sys.argv[2])
lease.append(a_message("from the holder"))
lease.update(add={"llm_call_count": 1})
print("held", flush=True)
time.sleep(600)
"""


def fill(url, *, tasks=2, messages=20):
    """Tasks with records of every kind and a blob, the first one completed; their uuids."""
    uuids = []
    with open_store(url) as store:
        for number in range(1, tasks + 1):
            task = a_task(number)
            uuids.append(task.uuid)
            with store.lease(task.uuid, create=task) as lease:
                for place in range(messages):
                    lease.append(a_message(f"message {place} 日本語", unknown={"later": [place, 1.5, None]}))
                for record in one_of_each()[1:]:
                    lease.append(record)
                lease.append(a_message("long " * 100_000, key="long"))
                blob = lease.put(b"a checkpoint")
                data = {"file": {"sha256": blob.sha256, "size_bytes": blob.size_bytes}}
                lease.append(Event(id=0, after=1, type="checkpoint", data=data, timestamp=""))
                status = "completed" if number == 1 else "paused"
                lease.update(status=status, add={"total_tokens": 77, "llm_call_count": 3}, final_summary="done")
    return uuids


def digest(path):
    """Names, modes and bytes of everything under a path."""
    found = hashlib.sha256()
    for item in sorted([path, *path.rglob("*")]):
        seen = item.lstat()
        found.update(f"{item.relative_to(path)} {seen.st_mode:o} {seen.st_uid}\n".encode())
        if stat.S_ISREG(seen.st_mode):
            found.update(item.read_bytes())
        elif stat.S_ISLNK(seen.st_mode):
            found.update(str(item.readlink()).encode())
    return found.hexdigest()


@pytest.fixture
def holder():
    """Starts a process that holds a task until it is killed."""
    started = []

    def hold(url, uuid):
        child = subprocess.Popen(
            [sys.executable, "-c", HOLDER, url, uuid], stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": SOURCE}
        )
        started.append(child)
        assert child.stdout.readline() == b"held\n"
        return child

    yield hold
    for child in started:
        child.kill()
        child.wait()
        child.stdout.close()


def command(*arguments, cwd=None, store="nowhere"):
    """The command in a real process, with a store in its settings."""
    return subprocess.run(
        [sys.executable, "-m", "orihon", *map(str, arguments)],
        cwd=cwd, capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONPATH": SOURCE, "ORIHON_STORE": str(store)},
    )  # fmt: skip


@pytest.fixture
def place(tmp_path):
    """A directory for a store."""
    return tmp_path / "contexts"


def said(url, **options):
    """All findings, but for the version of SQLite, the haste of a server for tests, and the figures."""
    return [
        finding
        for finding in examine(str(url), **options)
        if finding.level != "ok" and "SQLite 3" not in finding.sentence and "`fsync` is off" not in finding.sentence
    ]


def contents(place, uuid):
    """What a reader gets, without the facts about the last holder."""
    with open_store(place) as store:
        row = msgspec.structs.replace(store.row(uuid), fence=0, updated_at=None, process_id=None, hostname=None)
        return [message.content for message in store.read(uuid, Message)], row


def in_database(place, *statements):
    with closing(sqlite3.connect(place / "tasks.db")) as connection, connection:
        for statement in statements:
            connection.execute(statement)


# what can be repaired: each takes the directory of a completed task


def torn(task):
    with (task / "messages.jsonl").open("ab") as file:
        file.write(b'{"seq":22,"role":"user","con')


def torn_zeros(task):
    with (task / "events.jsonl").open("ab") as file:
        file.write(b"\0" * 5000)


def without_newline(task):
    path = task / "tools.jsonl"
    path.write_bytes(path.read_bytes().removesuffix(b"\n"))


def no_index(task):
    (task / "messages.idx").unlink()


def short_index(task):
    os.truncate(task / "messages.idx", WIDTH * 5)


def garbage_index(task):
    (task / "messages.idx").write_bytes(b"garbage " * 100)


def shifted_index(task):
    path = task / "messages.idx"
    entries = bytearray(path.read_bytes())
    entries[WIDTH * 3] ^= 1
    path.write_bytes(entries)


def wide_file(task):
    (task / "messages.jsonl").chmod(0o644)


def wide_directory(task):
    (task / "blobs").chmod(0o755)
    task.chmod(0o777)


def temporary(task):
    (task / ".state.json.new").write_bytes(b"{")
    (task / ".state.json.new").chmod(0o600)


def half_a_move(task):
    task.rename(task.parent.parent / "running" / task.name)


def no_row(task):
    """The row was never written; one that a user deleted is another matter."""
    for table in ("tasks", "deleted_tasks"):
        in_database(task.parent.parent, f"DELETE FROM {table} WHERE uuid = '{task.name}'")


def other_row(task):
    in_database(task.parent.parent, f"UPDATE tasks SET total_tokens = 1 WHERE uuid = '{task.name}'")


def odd_row(task):
    in_database(task.parent.parent, f"UPDATE tasks SET status = 'dancing' WHERE uuid = '{task.name}'")


def torn_state(task):
    (task / "state.json").write_bytes(b'{"status": "comp')


def no_state(task):
    (task / "state.json").unlink()


def empty_lock(task):
    (task / ".lock").touch(mode=0o600)


def begun(task):
    new = task.parent.parent / "running" / "0f8fad5b"
    new.mkdir(mode=0o700)
    (new / "state.json").touch(mode=0o600)


def abandoned(task):
    (task.parent.parent / ".new-x").mkdir(mode=0o700)


def half_deleted(task):
    gone = task.parent.parent / ".deleted-0f8fad5b"
    gone.mkdir(mode=0o700)
    in_database(
        task.parent.parent,
        f"CREATE TEMP TABLE one AS SELECT * FROM tasks WHERE uuid = '{task.name}'",
        "UPDATE one SET uuid = '0f8fad5b'",
        "INSERT INTO tasks SELECT * FROM one",
    )


def no_table(task):
    (task.parent.parent / "tasks.db").unlink()


def garbage_table(task):
    (task.parent.parent / "tasks.db").write_bytes(b"this is not SQLite " * 1000)


def lacking_column(task):
    in_database(task.parent.parent, "ALTER TABLE tasks DROP COLUMN final_summary")


def damaged_page(task):
    path = task.parent.parent / "tasks.db"
    data = bytearray(path.read_bytes())
    data[2048 + 8 : 2048 + 100] = b"\xff" * 92
    path.write_bytes(data)


def no_place(task):
    (task.parent.parent / "running").rmdir()


REPAIRS = [
    (torn, "problem", "messages.jsonl: Its last 28 bytes are an incomplete line"),
    (torn_zeros, "problem", "events.jsonl: Its last 5,000 bytes"),
    (without_newline, "problem", "tools.jsonl: Its last"),
    (no_index, "note", "messages.idx: It is missing"),
    (short_index, "note", "messages.idx: It lacks the newest 17 messages"),
    (garbage_index, "problem", "messages.idx: It does not match"),
    (shifted_index, "problem", "messages.idx: It does not match"),
    (wide_file, "problem", "messages.jsonl: Its mode is 0644; it should be 0600"),
    (wide_directory, "problem", "blobs: Its mode is 0755; it should be 0700"),
    (temporary, "note", ".state.json.new: A temporary file"),
    (half_a_move, "problem", "state.json says completed, so it belongs in completed/"),
    (no_row, "problem", "no row in tasks.db"),
    (other_row, "problem", "total_tokens 1, not 77"),
    (odd_row, "problem", "row in tasks.db is invalid"),
    (torn_state, "problem", "state.json: It cannot be read"),
    (no_state, "problem", "state.json: It is missing"),
    (empty_lock, "note", ".lock: Its holder died"),
    (begun, "note", "running/0f8fad5b: The creation of the task was interrupted"),
    (abandoned, "note", ".new-x: The creation of a task was interrupted"),
    (half_deleted, "note", ".deleted-0f8fad5b: A deletion was interrupted"),
    (no_table, "problem", "tasks.db: It is missing"),
    (garbage_table, "problem", "tasks.db: It is not a sound SQLite file"),
    (lacking_column, "problem", "tasks.db: Its table of tasks lacks final_summary"),
    (damaged_page, "problem", "tasks.db: "),
    (no_place, "problem", "running: There is no such directory"),
]


@pytest.mark.parametrize(("damage", "level", "sentence"), REPAIRS, ids=[damage.__name__ for damage, _, _ in REPAIRS])
def test_what_can_be_repaired(place, damage, level, sentence):
    """It is found without a change, repaired when asked, and then all is well and everything is there."""
    uuid, _ = fill(place)
    whole = contents(place, uuid)
    damage(place / "completed" / uuid)
    before = digest(place)
    (found, *_) = [finding for finding in said(place) if sentence in f"{finding.where}: {finding.sentence}"]
    assert (found.level, found.fixable) == (level, True)
    assert digest(place) == before
    told = said(place, fix=True)
    assert ("fixed", found.where, found.sentence) in [(item.level, item.where, item.sentence) for item in told]
    assert not [finding for finding in told if finding.level == "problem"]
    left = [finding for finding in said(place) if ".torn" not in finding.where and ".old-" not in finding.where]
    assert left == []
    assert contents(place, uuid) == whole


# what cannot be repaired


def broken_line(task):
    lines = (task / "messages.jsonl").read_bytes().splitlines(keepends=True)
    lines[4] = b"#" * (len(lines[4]) - 1) + b"\n"
    (task / "messages.jsonl").write_bytes(b"".join(lines))


def changed_byte(task):
    path = task / "messages.jsonl"
    path.write_bytes(path.read_bytes().replace(b"message 4 ", b"message X ", 1))


def repeated_line(task):
    path = task / "summaries.jsonl"
    path.write_bytes(path.read_bytes() * 2)


def endless_line(task):
    with (task / "events.jsonl").open("ab") as file:
        file.write(b"x" * (17 << 20) + b"\n")


def no_blob(task):
    for blob in (task / "blobs").iterdir():
        blob.unlink()


def changed_blob(task):
    (blob, *_) = (task / "blobs").iterdir()
    blob.write_bytes(b"other bytes")


def link(task):
    (task / "summaries.jsonl").unlink()
    (task / "summaries.jsonl").symlink_to("/etc/passwd")


def fifo(task):
    os.mkfifo(task / "fifo", 0o600)


def link_to_a_task(task):
    (task.parent.parent / "running" / "0f8fad5b").symlink_to(task)


def no_directory(task):
    task.rename(task.parent.parent.parent / task.name)


def garbage_metadata(task):
    (task / "metadata.json").write_bytes(b"[]")


def no_metadata(task):
    (task / "metadata.json").unlink()


def two_directories(task):
    subprocess.run(["cp", "-a", str(task), str(task.parent.parent / "running")], check=True)


def broken_archive(task):
    (task / "messages.jsonl").unlink()
    (task / "messages.jsonl.gz").write_bytes(gzip.compress(b"x" * 9999)[:-20])
    (task / "messages.jsonl.gz").chmod(0o600)


def newer_format(task):
    path = task / "metadata.json"
    path.write_bytes(path.read_bytes().replace(b'"format": 1', b'"format": 9'))


LOSSES = [
    (broken_line, "Line 5: The line cannot be read", "before and after it are still read"),
    (changed_byte, "Line 5: the line is not what it was", "do not trust it"),
    (repeated_line, "Line 2: the line repeats number 1", "The line is kept"),
    (endless_line, "17,825,792 bytes, more than 16,777,216", "before and after it are still read"),
    (no_blob, "500,000 bytes are lost", "The text in the line is still there"),
    (changed_blob, "does not match its hash", "still there"),
    (link, "It is a link", "neither creates nor follows"),
    (fifo, "It is a FIFO", "neither creates nor follows"),
    (link_to_a_task, "It is a link", "neither creates nor follows"),
    (no_directory, "The row has no directory", "only the row is left"),
    (garbage_metadata, "cannot be read", "Its lists are still there"),
    (no_metadata, "It is missing", "Its lists are still there"),
    (two_directories, "a second directory of this task", "Keep the right one"),
    (broken_archive, "It cannot be read", "It is left unchanged"),
    (newer_format, "has format 9", "Use a newer version"),
]


@pytest.mark.parametrize(("damage", "what", "left"), LOSSES, ids=[damage.__name__ for damage, _, _ in LOSSES])
def test_what_cannot_be_repaired(place, damage, what, left):
    """It is explained, with what is lost and what is left, and `--fix` deletes nothing."""
    uuid, _ = fill(place)
    damage(place / "completed" / uuid)
    before = digest(place)
    found = [
        item for item in said(place) if item.level == "problem" and what in item.sentence and left in item.sentence
    ]
    assert found
    assert not found[0].fixable
    assert digest(place) == before
    names = {path for path in place.rglob("*") if "tasks.db" not in path.name}
    again = said(place, fix=True)
    assert any(item.level == "problem" and what in item.sentence for item in again)
    assert names <= set(place.rglob("*"))


def test_a_foreign_owner_is_named(place):
    """A file of somebody else is a problem that only a person can solve."""
    if os.geteuid():
        pytest.skip("only root can give a file away: run the tests as root, as CI does")
    uuid, _ = fill(place)
    os.chown(place / "completed" / uuid / "messages.jsonl", 12345, -1)
    assert ["another user (uid 12345" in finding.sentence for finding in said(place)] == [True]


def test_a_sound_store_has_nothing_to_say(place):
    """All is well, archives included, and the figures say what was looked at."""
    uuid, _ = fill(place)
    pack(place / "completed" / uuid / "messages.jsonl")
    before = digest(place)
    assert said(place) == []
    (figures,) = [finding for finding in examine(str(place)) if finding.level == "ok"]
    assert "2 tasks, 54 records" in figures.sentence
    assert digest(place) == before


def pack(path):
    with path.open("rb") as plain, path.with_suffix(".jsonl.gz").open("wb") as packed:
        compress(PlainSource(plain.fileno()), packed.fileno())
    path.with_suffix(".jsonl.gz").chmod(0o600)
    path.unlink()


def test_an_archive_is_looked_into(place):
    """A line that was broken before it was compressed is found in the archive, and stays there."""
    uuid, _ = fill(place)
    broken_line(place / "completed" / uuid)
    pack(place / "completed" / uuid / "messages.jsonl")
    for options in ({}, {"fix": True}):
        (found,) = said(place, **options)
        assert "Line 5: The line cannot be read" in found.sentence
    assert (place / "completed" / uuid / "messages.jsonl.gz").exists()


@pytest.mark.slow
def test_many_flaws_are_a_hundred_sentences(place):
    """What is said stays bounded, and how much more there is is said."""
    uuid, _ = fill(place)
    path = place / "completed" / uuid / "events.jsonl"
    path.write_bytes(b"{}\n" * 1_100)
    found = said(place)
    assert len(found) == 101
    assert found[-1].sentence == "1,000 more findings like these are left out."


def test_a_held_task_is_left_to_its_holder(place, holder):
    """A task that is being written is looked at, not judged by its unfinished end, and not repaired."""
    uuid, other = fill(place)
    holder(str(place), uuid)
    (task,) = place.glob(f"*/{uuid}")
    torn(task)
    log = (task / "messages.jsonl").read_bytes()
    for options in ({}, {"fix": True}):
        (found,) = [finding for finding in said(place, **options) if uuid in finding.where]
        assert found.level == "note"
        assert "being written by process" in found.sentence
    assert (task / "messages.jsonl").read_bytes() == log
    with pytest.raises(LeaseHeld, match="is being written"):
        list(examine(str(place), rebuild=True))
    no_row(place / "paused" / other)
    assert [finding.level for finding in said(place, fix=True) if other in finding.where] == ["fixed"]


@pytest.mark.slow
def test_after_a_kill(place, holder):
    """What kill -9 leaves (a lock, a log of SQLite, a lease in the row) is seen without a change, and freed."""
    uuid, _ = fill(place)
    child = holder(str(place), uuid)
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert (place / "tasks.db-wal").stat().st_size
    before = digest(place)
    found = said(place)
    assert digest(place) == before
    assert {finding.level for finding in found} == {"note"}
    assert [".lock" in finding.where for finding in found].count(True) == 1
    assert any("names process" in finding.sentence for finding in found)
    said(place, fix=True)
    assert said(place) == []
    messages, row = contents(place, uuid)
    assert messages[-1] == "from the holder"
    assert (row.llm_call_count, row.lease_owner) == (4, None)


WORKER = """
import sys, time
from orihon.errors import LeaseHeld
from orihon.stores import open_store
from orihon.testing.samples import a_message, a_task

def patiently(work, uuid):
    while True:
        try:
            return work(uuid)
        except LeaseHeld:  # to see whether a task is held, the doctor holds it for a moment
            time.sleep(0.001)

with open_store(sys.argv[1]) as store:
    end = time.monotonic() + 2
    while time.monotonic() < end:
        task = a_task()
        with store.lease(task.uuid, create=task) as lease:
            for size in (1, 500, 3000, 300_000):
                lease.append(a_message("x" * size))
            lease.update(status="paused")
        with patiently(store.lease, task.uuid) as lease:
            lease.append(a_message("again"))
            lease.update(status="completed")
        if task.uuid < "8":
            patiently(store.delete, task.uuid)
"""


@pytest.mark.slow
@pytest.mark.parametrize("fix", [False, True])
@pytest.mark.parametrize("kind", ["jsonl", "sqlite", "postgres"])
def test_a_store_at_work_has_no_problems(tmp_path, kind, fix, url_at):
    """Tasks that are made, moved and deleted while they are looked at are not taken for damage, nor harmed."""
    url = url_at(kind, tmp_path)
    fill(url)
    started = [
        subprocess.Popen([sys.executable, "-c", WORKER, url], env=os.environ | {"PYTHONPATH": SOURCE}) for _ in range(3)
    ]
    try:
        while any(child.poll() is None for child in started):
            assert not [finding for finding in said(url, fix=fix) if finding.level == "problem"]
    finally:
        for child in started:
            child.wait()
    assert [child.returncode for child in started] == [0, 0, 0]
    assert said(url) == []


def test_a_store_that_never_rests_is_read_where_it_stands(tmp_path, holder, monkeypatch):
    """Whoever copies it finds it changed each time; it is looked at all the same, and stays as it is."""
    path = tmp_path / "contexts.db"
    url = f"sqlite:///{path}"
    _, uuid = fill(url)
    child = holder(url, uuid)
    child.kill()
    child.wait()
    before = [Path(f"{path}{end}").read_bytes() for end in ("", "-wal")]
    moments = itertools.count()
    monkeypatch.setattr("orihon.ops.doctor.check_sql._stamp", lambda _: (0, 1, next(moments)))
    (finding,) = said(url)
    assert uuid in finding.where
    assert "died without releasing the lease" in finding.sentence
    assert [Path(f"{path}{end}").read_bytes() for end in ("", "-wal")] == before


@pytest.mark.parametrize("damage", [None, no_table, garbage_table, damaged_page, no_row])
def test_rebuild(place, damage):
    """The new table is row by row what the old one was, and the old one is kept, whatever it was."""
    uuid, *_ = fill(place, tasks=5)
    with open_store(place) as store:
        rows = list(store.find())
    if damage is not None:
        damage(place / "completed" / uuid)
    assert not [finding for finding in said(place, rebuild=True) if finding.level == "problem"]
    with open_store(place) as store:
        assert list(store.find()) == rows
    assert len(list(place.glob("tasks.db.old-*"))) == (damage is not no_table)
    assert {stat.S_IMODE(path.stat().st_mode) for path in place.glob("tasks.db*")} == {0o600}


def test_a_rebuild_waits_for_nobody(place):
    """A table that another process has open is refused, because that process would go on writing to the old one."""
    fill(place)
    code = (
        "import sys; from orihon.stores import open_store as o; s = o(sys.argv[1]); print(flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(place)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": SOURCE},
    ) as child:  # fmt: skip
        child.stdout.readline()
        with pytest.raises(LeaseHeld, match="open in another process"):
            list(examine(str(place), rebuild=True))
        child.stdin.close()
    assert not list(place.glob("tasks.db.old-*"))


def test_no_store_is_made_by_looking(tmp_path):
    """A mistyped place gets a sentence, and stays what it was."""
    (tmp_path / "link").symlink_to(tmp_path)
    for url in (tmp_path, tmp_path / "nothing", f"sqlite:///{tmp_path}/nothing.db", tmp_path / "link", "redis://x"):
        with pytest.raises((UsageError, NotFound)):
            list(examine(str(url)))
    assert [path.name for path in tmp_path.iterdir()] == ["link"]
    assert [finding.level for finding in examine("memory:")] == ["ok"]


# one SQLite file


@pytest.fixture
def database(tmp_path):
    """A store in one file."""
    path = tmp_path / "one.db"
    fill(f"sqlite:///{path}")
    return path


SQL = [
    ("UPDATE messages SET line = '{' WHERE seq = 5", "The line cannot be read"),
    ("UPDATE messages SET seq = 999 WHERE seq = 5", "The columns seq differ"),
    ("UPDATE messages SET role = 'tool' WHERE seq = 5", "The columns role differ"),
    ("UPDATE blobs SET data = x'00' WHERE length(data) > 99", "sha256 differs"),
    ("DELETE FROM blobs", "500,000 bytes are lost"),
    ("UPDATE tasks SET status = 'dancing'", "Its row is invalid"),
    ("DELETE FROM tasks", "but none in tasks"),
    ("DELETE FROM metadata", "Its metadata are missing"),
    ("PRAGMA user_version = 9", "has schema 9"),
]


@pytest.mark.parametrize(("statement", "sentence"), SQL)
def test_damage_in_a_database(database, statement, sentence):
    """Each kind is found, explained, and left as it is."""
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute(statement)
    before = digest(database.parent)
    found = said(f"sqlite:///{database}")
    assert any(sentence in finding.sentence and finding.level == "problem" for finding in found)
    assert digest(database.parent) == before


def test_a_sound_database(database):
    """There is nothing to say but the figures; what is not SQLite, or is damaged in its pages, is a problem."""
    before = digest(database.parent)
    assert said(f"sqlite:///{database}") == []
    assert digest(database.parent) == before
    database.chmod(0o644)
    assert [finding.level for finding in said(f"sqlite:///{database}", fix=True)] == ["fixed"]
    assert said(f"sqlite:///{database}") == []
    data = bytearray(database.read_bytes())
    data[2048 * 3 : 2048 * 9] = os.urandom(2048 * 6)
    database.write_bytes(data)
    assert {finding.level for finding in said(f"sqlite:///{database}", fix=True)} == {"problem"}
    database.write_bytes(b"this is not SQLite " * 1000)
    assert "not a sound SQLite file" in said(f"sqlite:///{database}")[0].sentence


def test_the_lease_of_a_dead_holder(database, holder):
    """It is seen in the log of SQLite without a change, and freed; that of a living one is left alone."""
    url = f"sqlite:///{database}"
    with open_store(url) as store:
        uuid = next(store.find()).uuid
    child = holder(url, uuid)
    assert said(url, fix=True) == []
    child.kill()
    child.wait()
    before = digest(database.parent)
    (found,) = said(url)
    assert "died without releasing the lease" in found.sentence
    assert digest(database.parent) == before
    assert [finding.level for finding in said(url, fix=True)] == ["fixed"]
    assert said(url) == []
    with open_store(url) as store:
        assert store.row(uuid).lease_owner is None
        assert [message.content for message in store.read(uuid, Message)][-1] == "from the holder"


# PostgreSQL


POSTGRES = [
    (statement.replace("'{'", "'\\x7b'").replace("x'00'", "'\\x00'"), sentence)
    for statement, sentence in SQL
    if not statement.startswith("PRAGMA")
]


@pytest.fixture
def postgres_store(postgres, tmp_path):
    fill(postgres(tmp_path))
    return postgres(tmp_path)


@pytest.mark.parametrize(
    ("statement", "sentence"),
    [
        *POSTGRES,
        ("INSERT INTO orihon_migrations (number, name) VALUES (999, 'later')", "have version 999"),
        ("DROP TABLE orihon_migrations", "has no tables of Orihon"),
    ],
)
def test_damage_in_postgres(postgres_store, statement, sentence):
    """The same is found as in a SQLite file."""
    with psycopg.connect(postgres_store) as connection:
        connection.execute(statement)
    found = said(postgres_store)
    assert any(sentence in finding.sentence and finding.level == "problem" for finding in found)


def test_a_sound_postgres(postgres_store, holder):
    """There is nothing to say but the figures and a server that does not sync; a dead holder's lease is let go."""

    def about_tasks(**options):
        return [finding for finding in said(postgres_store, **options) if finding.where.startswith("task")]

    assert not [finding for finding in said(postgres_store) if finding.level == "problem"]
    assert about_tasks() == []
    with open_store(postgres_store) as store:
        uuid = next(store.find()).uuid
    child = holder(postgres_store, uuid)
    assert about_tasks(fix=True) == []
    child.kill()
    child.wait()
    assert "died without releasing the lease" in about_tasks()[0].sentence
    assert [finding.level for finding in about_tasks(fix=True)] == ["fixed"]
    assert about_tasks() == []
    with pytest.raises(UsageError, match="plain files"):
        list(examine(postgres_store, rebuild=True))


# the command


@pytest.mark.slow
def test_the_command(place):
    """The exit code says whether all is well, and `--json` says each finding on a line."""
    uuid, _ = fill(place)
    well = command("doctor", "--store", place)
    assert (well.returncode, well.stderr) == (0, "")
    assert well.stdout.endswith("All is well.\n")
    torn(place / "completed" / uuid)
    ill = command("doctor", "--store", place)
    assert ill.returncode == 1
    assert ill.stdout.endswith("1 problem. `--fix` can repair 1.\n")
    listed = [json.loads(line) for line in command("doctor", "--store", place, "--json").stdout.splitlines()]
    assert [item["fixable"] for item in listed if item["level"] == "problem"] == [True]
    fixed = command("doctor", "--store", place, "--fix")
    assert fixed.returncode == 0
    assert fixed.stdout.endswith("All is well now.\n")
    broken_line(place / "completed" / uuid)
    assert command("doctor", "--store", place, "--fix").returncode == 1
    rebuilt = command("doctor", "--rebuild", cwd=place.parent, store=place)
    assert "with 2 rows; the old one is tasks.db.old-" in rebuilt.stdout


def test_the_command_without_a_store(tmp_path):
    """No store is a sentence and a hint, and makes none."""
    shown = command("doctor", cwd=tmp_path, store=tmp_path / "nothing")
    assert shown.returncode == 3
    assert "is not a store" in shown.stderr
    assert list(tmp_path.iterdir()) == []
