"""Totals over rows: triggers keep them up to date, and they equal the sums over the rows."""

import random
import sqlite3
import uuid as uuids
from functools import partial
from typing import get_args

import msgspec
import pytest

from orihon.records import TaskRow
from orihon.stores import open_store
from orihon.stores.base import Order, Query, sum_rows
from orihon.stores.jsonl import tree
from orihon.stores.sql.database import SCHEMA_VERSION
from orihon.stores.sql.rows import COLUMNS, SELECTED, insert
from orihon.testing.samples import a_message, a_task


@pytest.fixture(params=["jsonl", "sqlite"])
def url(request, tmp_path):
    return str(tmp_path / "s") if request.param == "jsonl" else f"sqlite:///{tmp_path / 's.db'}"


def file_of(url):
    return url.removeprefix("sqlite:///") if url.startswith("sqlite:") else f"{url}/tasks.db"


def a_row(chance):
    began = f"2024-01-{chance.randrange(1, 29):02}T10:{chance.randrange(60):02}:00.000000Z"
    about = msgspec.structs.replace(a_task(user=chance.choice(["alice", "bob", None])), created_at=began)
    status = chance.choice(["running", "completed", "failed"])
    ended = {"completed_at": began.replace("T10", "T11")} if status != "running" else {}
    return msgspec.structs.replace(
        TaskRow.new(about, status), uuid=str(uuids.UUID(int=chance.getrandbits(128))), started_at=began,
        total_tokens=chance.randrange(1000), size_bytes=chance.randrange(9999), message_count=chance.randrange(99),
        packed_bytes=chance.choice([None, 7]), **ended,
    )  # fmt: skip


QUERIES = [
    Query(), Query(user="alice"), Query(status=("failed", "running")), Query(user="carol"),
    Query(created_from="2024-01-05T00:00:00.000000Z", created_to="2024-01-20T23:59:59.999999Z"),
    Query(created_from="2024-01-05T10:30:00.000000Z"), Query(key="github/acme/shop/issue/1"), Query(kept=True),
]  # fmt: skip


def check(store):
    for query in QUERIES:
        for by in ("status", "user", "day"):
            fast, slow = store.totals(query, by), sum_rows(store.find(query), by)
            assert {name: (sums.tasks, sums.tokens, sums.size_bytes, sums.packed_bytes, sums.messages, sums.timed,
                           round(sums.seconds, 2)) for name, sums in fast.items()} == {
                    name: (sums.tasks, sums.tokens, sums.size_bytes, sums.packed_bytes, sums.messages, sums.timed,
                           round(sums.seconds, 2)) for name, sums in slow.items()}  # fmt: skip


def test_postgres_adds_up_the_same(postgres, tmp_path):
    """PostgreSQL returns the same totals."""
    chance = random.Random(5)
    with open_store(postgres(tmp_path)) as store:
        marks = ", ".join(["%s"] * len(COLUMNS))
        for row in (a_row(chance) for _ in range(80)):
            values = [getattr(row, name) for name in COLUMNS]
            store.server.change(f"INSERT INTO tasks ({SELECTED}) VALUES ({marks}) RETURNING uuid", *values)  # noqa: S608
        check(store)
        for order in get_args(Order):
            assert len(list(store.find(Query(order=order)))) == 80


def test_sums_are_right_whoever_writes_the_rows(url):
    """The totals are right after rows were inserted, replaced, and changed or deleted by another program."""
    chance = random.Random(5)
    with open_store(url) as store:
        database = store.database if hasattr(store, "database") else store.writer
        rows = [a_row(chance) for _ in range(80)]
        for row in (*rows, *rows[:20]):  # some twice, like a row that is written again
            database.transact(partial(insert, row=msgspec.structs.replace(row, total_tokens=chance.randrange(500))))
        check(store)
        by_hand = sqlite3.connect(file_of(url), timeout=30)
        by_hand.execute("UPDATE tasks SET user = 'dora', status = 'stopped' WHERE total_tokens % 3 = 0")
        by_hand.execute("UPDATE tasks SET total_tokens = NULL WHERE total_tokens % 5 = 0")
        by_hand.execute("DELETE FROM tasks WHERE total_tokens % 7 = 0")
        by_hand.commit()
        by_hand.close()
        check(store)


def test_an_older_file_gets_its_sums(url):
    """A file of schema 2 gets columns, totals and triggers when it is opened."""
    with open_store(url) as store:
        about = a_task()
        with store.lease(about.uuid, create=about) as lease:
            lease.update(status="completed", add={"total_tokens": 7})
    old = sqlite3.connect(file_of(url))
    for name in ("insert", "update", "delete"):
        old.execute(f"DROP TRIGGER task_totals_{name}")
    old.execute("DROP TABLE task_totals")
    old.execute("DROP INDEX idx_tasks_figures")
    old.execute("DROP INDEX idx_tasks_ended")
    for name in COLUMNS[COLUMNS.index("message_count") :]:
        old.execute(f"ALTER TABLE tasks DROP COLUMN {name}")
    old.execute("PRAGMA user_version = 2")
    old.commit()
    old.close()
    with open_store(url) as store:
        assert store.totals(Query(), "status")["completed"].tokens == 7
        with store.lease(about.uuid) as lease:
            lease.append(a_message())
            assert lease.update(add={"total_tokens": 1}).message_count == 1
        assert store.totals(Query(), "status")["completed"].tokens == 8
    new = sqlite3.connect(file_of(url))
    assert new.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
    new.close()


def test_many_completed_tasks_are_not_listed_at_each_open(tmp_path, monkeypatch):
    """Where the file system does not count directories, rows written after the last move are enough."""
    with open_store(str(tmp_path)) as store:
        for _ in range(3):
            about = a_task()
            with store.lease(about.uuid, create=about) as lease:
                lease.update(status="completed")

    class Uncounted:
        def __init__(self, place):
            self.st_nlink, self.st_mtime_ns = 1, place.st_mtime_ns

    real = type(tmp_path).stat
    monkeypatch.setattr(
        type(tmp_path), "stat",
        lambda path, **options: Uncounted(real(path)) if path.name == "completed" else real(path, **options),
    )  # fmt: skip
    listed = []
    monkeypatch.setattr(tree.os, "listdir", lambda place: listed.append(place.name) or list(map(str, [])))
    open_store(str(tmp_path)).close()
    assert "completed" not in listed
    (tmp_path / "completed" / "from-a-friend").mkdir()
    open_store(str(tmp_path)).close()
    assert "completed" in listed
