"""Deletions in PostgreSQL: the row disappears at once, the lists follow in pieces, also after a crash."""

import pytest

from orihon.errors import NotFound
from orihon.ops.doctor import examine
from orihon.records import Message, Metadata
from orihon.stores import open_store
from orihon.stores.base import Query
from orihon.stores.sql.postgres import OWN_TABLES, SWEEPS
from orihon.stores.sql.store import IS_GONE, PIECE_ROWS
from orihon.testing.samples import a_message, a_task

MANY = 2 * PIECE_ROWS + 50


class PowerCut(Exception):
    """The process that deletes is gone."""


@pytest.fixture
def url(postgres, tmp_path):
    return postgres(tmp_path)


@pytest.fixture
def store(url):
    with open_store(url) as store:
        yield store


def a_long_task(store, **fields):
    task = a_task(**fields)
    with store.lease(task.uuid, create=task) as lease:
        with lease.batch():
            for number in range(MANY):
                lease.append(a_message(f"{number}"))
        for number in range(3):
            lease.put(f"blob {number}".encode())
        lease.update(status="completed", final_summary="done")
    return task


def left(store, uuid):
    """Return the number of rows of a task in each table that has some."""
    counts = {table: store.server.all(f"SELECT count(*) FROM {table} WHERE uuid = %s", uuid) for table in OWN_TABLES}  # noqa: S608
    return {table: count for table, ((count,),) in counts.items() if count}


def cut_after(monkeypatch, store, pieces):
    """Raise PowerCut after this many pieces."""
    change = store.server.change
    done = []

    def some(statement, *values):
        if statement.startswith("WITH one AS"):
            if len(done) == pieces:
                raise PowerCut
            done.append(statement)
        return change(statement, *values)

    monkeypatch.setattr(store.server, "change", some)


@pytest.mark.parametrize("pieces", range(4))
def test_a_deletion_that_was_cut_short(store, url, monkeypatch, pieces):
    """The task is invisible, the next vacuum finishes the deletion, and doctor reports no problem in between."""
    task = a_long_task(store)
    with monkeypatch.context() as patch:
        cut_after(patch, store, pieces)
        with pytest.raises(PowerCut):
            store.delete(task.uuid)
    with pytest.raises(NotFound):
        store.row(task.uuid)
    assert left(store, task.uuid)["metadata"] == 1
    assert left(store, task.uuid).get("messages", 0) == max(0, MANY - pieces * PIECE_ROWS)
    found = list(examine(url))
    assert not [finding for finding in found if finding.level == "problem"]
    assert [finding.where for finding in found if "interrupted" in finding.sentence] == [f"task {task.uuid}"]
    store.vacuum()
    assert left(store, task.uuid) == {}


def test_made_again_under_the_same_id(store, monkeypatch):
    """A new task with the same id has nothing of the deleted one."""
    task = a_long_task(store)
    cut_after(monkeypatch, store, 1)
    with pytest.raises(PowerCut):
        store.delete(task.uuid)
    monkeypatch.undo()
    with store.lease(task.uuid, create=task) as lease:
        assert lease.append(a_message("new")) == 1
    assert [message.content for message in store.read(task.uuid, Message)] == ["new"]
    assert left(store, task.uuid) == {"tasks": 1, "metadata": 1, "messages": 1}


def test_a_stub_that_was_cut_short(store, monkeypatch):
    """The next lease finds a stub, not a part of the log."""
    task = a_long_task(store)
    cut_after(monkeypatch, store, 1)
    with pytest.raises(PowerCut):
        store.delete(task.uuid, stub=True)
    monkeypatch.undo()
    assert [row.uuid for row in store.find(Query(archived=("going",)))] == [task.uuid]
    with store.lease(task.uuid) as lease:
        assert lease.last(Message) == 0
    assert store.row(task.uuid).archived == "stub"
    assert left(store, task.uuid) == {"tasks": 1, "metadata": 1}
    assert next(store.read(task.uuid, Metadata)).uuid == task.uuid


def test_pieces_are_small(store, monkeypatch):
    """No statement deletes more than `PIECE_ROWS` rows of a table."""
    sizes = []
    change = store.server.change

    def counted(statement, *values):
        found = change(statement, *values)
        if statement in SWEEPS[IS_GONE]:
            sizes.append(found[0][0])
        return found

    monkeypatch.setattr(store.server, "change", counted)
    store.delete(a_long_task(store).uuid)
    assert sizes == [PIECE_ROWS, PIECE_ROWS, MANY - 2 * PIECE_ROWS, 3]


def test_the_room_is_used_again_early(store):
    """Every table has the setting for an early autovacuum."""
    found = store.server.all(
        "SELECT relname, reloptions::text FROM pg_class WHERE oid = ANY(%s::regclass[])", list(OWN_TABLES)
    )
    assert {name for name, options in found if "autovacuum_vacuum_scale_factor=0.02" in (options or "")} == set(
        OWN_TABLES
    )
    assert store.disk_bytes() > 0
