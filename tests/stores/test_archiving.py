"""Ended tasks in less room: compressed, cut down to a stub, removed piece by piece, and nothing lost on the way."""

import errno
import gzip
import json
import os
import sqlite3
import threading

import pytest

from orihon.errors import LeaseHeld, NotWritten
from orihon.ops.doctor import examine
from orihon.records import Message, Metadata
from orihon.stores.base import LISTS, Query
from orihon.stores.jsonl.store import JsonlStore
from orihon.stores.sql.sqlite import SqliteStore
from orihon.testing.samples import a_message, a_task, one_of_each
from support.faults import Fault, Faults


def ended(store, messages=40, size=2000):
    """A completed task with a record of each kind, a text blob and a picture."""
    about = a_task()
    with store.lease(about.uuid, create=about) as lease:
        lease.put(b"words " * 2000)
        lease.put(os.urandom(8000))
        for number in range(messages):
            lease.append(a_message(f"message {number} " + "x" * size))
        for record in one_of_each()[1:]:
            lease.append(record)
        lease.update(status="completed", final_summary="It is done.", handoff='{"planned":false}')
    return store.row(about.uuid)


def everything(store, uuid):
    return {kind: list(store.read(uuid, kind)) for kind in LISTS}


def test_an_archive_is_small_private_and_whole(tmp_path):
    """Lists and texts are gzip files, a picture stays as it is, and the doctor finds nothing wrong."""
    with JsonlStore(tmp_path / "contexts") as store:
        row = ended(store)
        before = everything(store, row.uuid)
        folder = store.task_path(row.uuid)
        plain = (folder / "messages.jsonl").read_bytes()
        saved = store.archive(row.uuid, fence=row.fence)
        before_bytes, after_bytes = saved
        assert after_bytes < before_bytes / 2
        assert (store.row(row.uuid).size_bytes, store.row(row.uuid).packed_bytes) == (
            before_bytes - 20_000,
            after_bytes,
        )
        assert everything(store, row.uuid) == before
        assert gzip.decompress((folder / "messages.jsonl.gz").read_bytes()) == plain
        assert not list(folder.rglob("*.jsonl"))
        assert sorted(path.suffix for path in (folder / "blobs").iterdir()) == ["", ".gz"]
        assert {path.stat().st_mode & 0o777 for path in folder.rglob("*") if path.is_file()} == {0o600}
        assert json.loads((folder / "state.json").read_text())["archived"] == "gzip"
        store.archive(row.uuid, fence=row.fence)  # a second time there is nothing to do
        assert everything(store, row.uuid) == before
    assert not [found for found in examine(str(tmp_path / "contexts")) if found.level == "problem"]


def test_a_stub_is_three_small_files(tmp_path):
    """What a person finds of it: what it worked on, how it ended, what it hands on."""
    with JsonlStore(tmp_path / "contexts") as store:
        row = ended(store)
        store.archive(row.uuid, fence=row.fence)
        store.delete(row.uuid, stub=True)
        folder = store.task_path(row.uuid)
        assert sorted(path.name for path in folder.iterdir()) == ["handoff.json", "metadata.json", "state.json"]
        assert json.loads((folder / "handoff.json").read_text())["summary"] == "It is done."
    assert not [found for found in examine(str(tmp_path / "contexts")) if found.level == "problem"]


def test_a_full_disk_leaves_the_plain_one(tmp_path):
    """When there is no room for the compressed list, the task is as it was and no rubbish is left."""
    with JsonlStore(tmp_path / "contexts") as store:
        row = ended(store)
        before = everything(store, row.uuid)
        full = Fault(at=3, how="fail half", errno=errno.ENOSPC, onwards=True, only=("write",))
        with Faults(full), pytest.raises(NotWritten):
            store.archive(row.uuid, fence=row.fence)
        assert everything(store, row.uuid) == before
        assert not [path for path in store.task_path(row.uuid).rglob("*") if ".new" in path.name]
        store.archive(row.uuid, fence=row.fence)
        assert everything(store, row.uuid) == before


def test_readers_do_not_notice(tmp_path):
    """Somebody reads again and again while the task is compressed, unpacked and compressed."""
    with JsonlStore(tmp_path / "contexts") as store:
        row = ended(store, messages=200)
        wrong, stop = [], threading.Event()

        def read():
            while not stop.is_set():
                seqs = [message.seq for message in store.read(row.uuid, Message)]
                if seqs != list(range(1, len(seqs) + 1)) or len(seqs) < 200:
                    wrong.append(seqs)

        reader = threading.Thread(target=read)
        reader.start()
        try:
            for _ in range(5):
                store.archive(row.uuid, fence=store.row(row.uuid).fence)
                with store.lease(row.uuid) as lease:
                    lease.append(a_message("more"))
        finally:
            stop.set()
            reader.join(30)
        assert not wrong


def test_a_written_task_is_left_alone(tmp_path):
    """Whoever has the lease keeps his task whole."""
    with JsonlStore(tmp_path / "contexts") as store:
        row = ended(store)
        with store.lease(row.uuid) as lease:
            for work in (lambda: store.archive(row.uuid, fence=lease.fence), lambda: store.delete(row.uuid, stub=True)):
                with pytest.raises(LeaseHeld):
                    work()


def test_a_large_task_goes_piece_by_piece(tmp_path):
    """Each transaction of a deletion is short; others see no task from the first one on."""
    with SqliteStore(tmp_path / "contexts.db") as store:
        row, other = ended(store, messages=1500, size=200), ended(store)
        changed = []
        change = store.writer.change

        def watched(statement, *values, **named):
            count = change(statement, *values, **named)
            changed.append(count)
            assert [found.uuid for found in store.find()] == [other.uuid]
            return count

        store.writer.change = watched
        store.delete(row.uuid)
        assert max(changed) == 200
        for table in ("messages", "metadata", "blobs", "events"):
            assert store.reader.all(f"SELECT DISTINCT uuid FROM {table}") == [(other.uuid,)]  # noqa: S608
        size = store.path.stat().st_size
        assert store.vacuum() > 0
        store.writer.checkpoint()
        assert store.path.stat().st_size < size


def test_an_interrupted_deletion_is_finished(tmp_path):
    """By the next one who tidies up, or by whoever needs the id again."""
    with SqliteStore(tmp_path / "contexts.db") as store:
        first, second, stub = ended(store), ended(store), ended(store)
        with sqlite3.connect(tmp_path / "contexts.db") as other:
            for row in (first, second):
                other.execute("DELETE FROM tasks WHERE uuid = ?", (row.uuid,))
                other.execute("UPDATE metadata SET id = 0 WHERE uuid = ?", (row.uuid,))
            other.execute("UPDATE tasks SET archived = 'going' WHERE uuid = ?", (stub.uuid,))
        with store.lease(first.uuid, create=a_task_called(first.uuid)) as lease:
            assert lease.append(a_message("new")) == 1
        with store.lease(stub.uuid) as lease:
            assert lease.last(Message) == 0
        assert store.row(stub.uuid).archived == "stub"
        store.vacuum()
        assert store.reader.all("SELECT count(*) FROM messages WHERE uuid = ?", second.uuid) == [(0,)]
        assert len(list(store.read(first.uuid, Message))) == 1


def a_task_called(uuid):
    about = a_task()
    return Metadata(**{name: getattr(about, name) for name in about.__struct_fields__} | {"uuid": uuid})


def test_a_file_of_an_earlier_version_uses_its_room_again(tmp_path):
    """It cannot shrink without being written anew; nothing else changes."""
    with sqlite3.connect(tmp_path / "contexts.db") as old:
        old.execute("PRAGMA auto_vacuum = NONE")
        old.execute("CREATE TABLE tasks (uuid TEXT PRIMARY KEY)")
        old.execute("DROP TABLE tasks")
    with SqliteStore(tmp_path / "contexts.db") as store:
        row = ended(store)
        store.delete(row.uuid)
        assert store.vacuum() == 0
        assert list(store.find()) == []


def test_what_retention_asks_is_answered_from_one_index(tmp_path):
    """Counting old tasks reads no row, so that 100,000 of them take no longer than a person waits."""
    asked = []
    with SqliteStore(tmp_path / "contexts.db") as store:
        ended(store)
        store.reader.connection.set_trace_callback(asked.append)
        old = Query(status=("completed",), ended_before="9999", kept=False, archived=("", "gzip"), user="alice")
        assert store.count(old) == (1, store.row(next(store.find()).uuid).size_bytes)
        store.reader.connection.set_trace_callback(None)
        (statement,) = [one for one in asked if one.startswith("SELECT count")]
        (plan,) = store.reader.all(f"EXPLAIN QUERY PLAN {statement}")
    assert "COVERING INDEX idx_tasks_ended" in plan[3]
