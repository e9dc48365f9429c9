"""`handoff.json`: the summary and the outline of a task in a readable file."""

import json
import sqlite3

import pytest

from orihon.ops.copy import copy_tasks
from orihon.ops.doctor import examine
from orihon.stores.base import Options
from orihon.stores.jsonl.store import JsonlStore
from orihon.stores.sql.database import SCHEMA_VERSION
from orihon.stores.sql.sqlite import SqliteStore
from orihon.testing.samples import a_task

OUTLINE = {"plan": {"goal": "合計を直す", "steps": ["read", "edit"]}}


def ended(store, **fields):
    task = a_task()
    with store.lease(task.uuid, create=task) as lease:
        lease.update(final_summary="The guard is in.", handoff=json.dumps(OUTLINE), status="completed", **fields)
    return task.uuid


def test_the_file_is_readable_and_private(tmp_path):
    """`handoff.json` has summary and outline as plain JSON, for its owner only, and the doctor accepts it."""
    with JsonlStore(tmp_path / "s") as store:
        uuid = ended(store, completed_at="2024-01-15T10:45:00.000000Z")
    path = tmp_path / "s" / "completed" / uuid / "handoff.json"
    assert json.loads(path.read_text("utf-8")) == {
        "task_key": "github/acme/shop/issue/1",
        "status": "completed",
        "completed_at": "2024-01-15T10:45:00.000000Z",
        "summary": "The guard is in.",
        "outline": OUTLINE,
    }
    assert path.stat().st_mode & 0o777 == 0o600
    assert "合計を直す" in path.read_text("utf-8")
    assert not [finding for finding in examine(str(tmp_path / "s")) if finding.level == "problem"]


def test_the_file_follows_the_row(tmp_path):
    """The file is rewritten when the row changes. A task without an outline has no file."""
    with JsonlStore(tmp_path / "s") as store:
        uuid = ended(store)
        with store.lease(uuid) as lease:
            lease.update(final_summary="Better.", handoff="not JSON")
        task = a_task(2)
        with store.lease(task.uuid, create=task) as lease:
            lease.update(final_summary="x", status="completed")
    completed = tmp_path / "s" / "completed"
    said = json.loads((completed / uuid / "handoff.json").read_text("utf-8"))
    assert (said["summary"], said["outline"]) == ("Better.", "not JSON")
    assert not (completed / task.uuid / "handoff.json").exists()


def test_a_copy_carries_it(tmp_path):
    """The row and the file are the same after a copy to another kind of store and back."""
    with (
        JsonlStore(tmp_path / "a") as first,
        SqliteStore(tmp_path / "b.db") as second,
        JsonlStore(tmp_path / "c") as third,
    ):
        uuid = ended(first)
        assert not copy_tasks(first, second).failures
        assert not copy_tasks(second, third).failures
        assert second.row(uuid).handoff == third.row(uuid).handoff == first.row(uuid).handoff
    files = [tmp_path / name / "completed" / uuid / "handoff.json" for name in "ac"]
    assert files[0].read_bytes() == files[1].read_bytes()


def older(path):
    """Change the file to the form of the previous version."""
    with sqlite3.connect(path) as connection:
        connection.execute("ALTER TABLE tasks DROP COLUMN handoff")
        connection.execute("DROP INDEX idx_tasks_linked")
        connection.execute("PRAGMA user_version = 1")
    connection.close()


@pytest.mark.parametrize("kind", ["jsonl", "sqlite"])
@pytest.mark.parametrize("mended", [False, True])
def test_a_store_of_the_version_before_goes_on(tmp_path, kind, mended):
    """An older file gets its column when it is opened, or from the doctor, which reports it."""
    opened = (lambda: JsonlStore(tmp_path / "s")) if kind == "jsonl" else (lambda: SqliteStore(tmp_path / "s.db"))
    with opened() as store:
        uuid = ended(store)
        url = store.url
    path = tmp_path / "s" / "tasks.db" if kind == "jsonl" else tmp_path / "s.db"
    older(path)
    found = [finding for finding in examine(url) if finding.level == "problem"]
    assert "an earlier version of Orihon" in found[0].sentence
    assert found[0].fixable
    if mended:
        list(examine(url, fix=True))
    with opened() as store:
        row = store.row(uuid)
        assert (row.final_summary, row.status) == ("The guard is in.", "completed")
        with store.lease(uuid) as lease:
            lease.update(handoff="{}")
        assert store.row(uuid).handoff == "{}"
    assert not [finding for finding in examine(url) if finding.level == "problem"]
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
        assert connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'idx_tasks_linked'").fetchone()
    connection.close()


def test_the_search_for_links_uses_its_index(tmp_path):
    """A lookup by link does not read the whole table."""
    with SqliteStore(tmp_path / "s.db", Options(durability="os")) as store:
        (plan,) = store.reader.all("EXPLAIN QUERY PLAN SELECT uuid FROM tasks WHERE linked_key = ?", "x")
    assert "idx_tasks_linked" in plan[-1]
