"""The queries that the seeds print run on `tasks.db` as they are printed."""

import re
import sqlite3

import pytest

from orihon.ops.doctor import examine
from orihon.stores.jsonl.store import JsonlStore
from orihon.testing.samples import a_task

COLUMNS = """
    uuid TEXT PRIMARY KEY; task_source TEXT NOT NULL; owner TEXT NOT NULL; repo TEXT NOT NULL; task_type TEXT NOT NULL
    task_id TEXT NOT NULL; status TEXT NOT NULL; created_at TEXT NOT NULL; started_at TEXT; completed_at TEXT
    process_id INTEGER; hostname TEXT; llm_provider TEXT; model TEXT; context_length INTEGER
    llm_call_count INTEGER DEFAULT 0; tool_call_count INTEGER DEFAULT 0; total_tokens INTEGER DEFAULT 0
    compression_count INTEGER DEFAULT 0; error_message TEXT; user TEXT
"""

RUNNING = """
SELECT uuid, task_source, owner, repo, task_type, task_id, started_at
FROM tasks
WHERE status = 'running'
ORDER BY started_at DESC;
"""
BY_USER = """
SELECT user, status, COUNT(*) as count
FROM tasks
GROUP BY user, status;
"""
FAILED = """
SELECT uuid, error_message, created_at
FROM tasks
WHERE status = 'failed'
ORDER BY created_at DESC
LIMIT 10;
"""
CLEAN_UP = """
DELETE FROM tasks
WHERE status = 'completed'
  AND completed_at < datetime('now', '-30 days');
"""
COUNTS = "SELECT status, COUNT(*) FROM tasks GROUP BY status;"
MINUTES = """
SELECT AVG(julianday(completed_at) - julianday(started_at)) * 24 * 60 as avg_minutes
FROM tasks
WHERE status = 'completed';
"""
TOKENS = """
SELECT SUM(total_tokens) as total, AVG(total_tokens) as average
FROM tasks
WHERE status = 'completed';
"""


@pytest.fixture
def database(tmp_path):
    """Three tasks of two users: one runs, one failed, one was completed long ago after a quarter of an hour."""
    with JsonlStore(tmp_path / "contexts") as store:
        runs, failed, old = (a_task(number, user=user) for number, user in ((1, "alice"), (2, "alice"), (3, "bob")))
        store.lease(runs.uuid, create=runs).close()
        with store.lease(failed.uuid, create=failed) as lease:
            lease.update(status="failed", error_message="boom")
        with store.lease(old.uuid, create=old) as lease:
            times = {"started_at": "2024-01-15T10:30:00.123456Z", "completed_at": "2024-01-15T10:45:00.123456Z"}
            lease.update(status="completed", add={"total_tokens": 45678}, **times)
    connection = sqlite3.connect(tmp_path / "contexts" / "tasks.db", isolation_level=None)
    yield connection
    connection.close()


def test_the_columns_are_the_printed_ones(database):
    """The first 21 columns of `tasks` are those of the format, word for word and in order."""
    (text,) = database.execute("SELECT sql FROM sqlite_master WHERE name = 'tasks'").fetchone()
    printed = [column.strip() for line in COLUMNS.strip().splitlines() for column in line.split(";")]
    assert [re.sub(r"\s+", " ", line).strip() for line in text.split("(", 1)[1].split(",")[:21]] == printed


def test_the_indexes_are_there(database):
    """The three indexes of the format exist under their names."""
    names = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'index'")}
    assert {"idx_tasks_status", "idx_tasks_created_at", "idx_tasks_user"} <= names


def test_the_queries_answer(database):
    """Running tasks, tasks by user, failed tasks, counts, average minutes and tokens."""
    assert [row[1:6] for row in database.execute(RUNNING)] == [("github", "acme", "shop", "issue", "1")]
    assert set(database.execute(BY_USER)) == {("alice", "running", 1), ("alice", "failed", 1), ("bob", "completed", 1)}
    assert [row[1] for row in database.execute(FAILED)] == ["boom"]
    assert dict(database.execute(COUNTS)) == {"running": 1, "failed": 1, "completed": 1}
    ((minutes,),) = database.execute(MINUTES)
    assert minutes == pytest.approx(15)
    assert list(database.execute(TOKENS)) == [(45678, 45678.0)]


def test_the_printed_clean_up_removes_old_rows_only(database):
    """Text dates of the one form compare with SQLite's own."""
    assert database.execute(CLEAN_UP).rowcount == 1
    assert dict(database.execute(COUNTS)) == {"running": 1, "failed": 1}


def test_a_row_that_was_deleted_stays_deleted(database, tmp_path):
    """002 §8.3: the statement as it is printed; the directory waits for its own deletion."""
    place = tmp_path / "contexts"
    ((old,),) = database.execute("SELECT uuid FROM tasks WHERE status = 'completed'").fetchall()
    database.execute(CLEAN_UP)
    for _ in range(2):
        with JsonlStore(place) as store:
            assert old not in {row.uuid for row in store.find()}
    (finding,) = [finding for finding in examine(str(place)) if "deleted from tasks.db" in finding.sentence]
    assert finding.level == "note"
    assert finding.sentence.endswith(f"rm -r {place / 'completed' / old}")
    list(examine(str(place), fix=True))
    with JsonlStore(place) as store:
        assert old not in {row.uuid for row in store.find()}
        assert (place / "completed" / old / "metadata.json").exists()


def test_a_deleted_task_leaves_no_trace(database, tmp_path):
    with JsonlStore(tmp_path / "contexts") as store:
        for row in list(store.find()):
            store.delete(row.uuid)
    assert database.execute("SELECT COUNT(*) FROM deleted_tasks").fetchone() == (0,)
