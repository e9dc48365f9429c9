"""Fields of summaries and tool calls are columns: 000 §10.1 maps the lists to tables."""

import sqlite3

import pytest

from orihon.records import Summary, ToolCall
from orihon.stores import open_store
from orihon.testing.samples import a_task

TASK = a_task()
PARTS = [("a", "2 passed")]
CALL = ToolCall(
    seq=0, tool="run_tests", args={"path": "a"}, result="2 passed", status="success", duration_ms=234, timestamp=""
)
SUMMARY = Summary(
    id=0,
    start_seq=1,
    end_seq=9,
    summary="Fixed.",
    original_tokens=90,
    summary_tokens=9,
    ratio=0.1,
    retention=0.75,
    timestamp="",
)
QUERY = "SELECT tool, status, duration_ms FROM tool_calls"
SUMMARIES = "SELECT start_seq, end_seq, summary, original_tokens, summary_tokens, ratio, retention, kind FROM summaries"


def write(url):
    with open_store(url) as store, store.lease(TASK.uuid, create=TASK) as lease:
        lease.append(CALL)
        lease.append(SUMMARY)


@pytest.fixture
def sqlite(tmp_path):
    write(f"sqlite:///{tmp_path}/contexts.db")
    with sqlite3.connect(tmp_path / "contexts.db") as connection:
        yield connection


def test_sqlite(sqlite):
    assert sqlite.execute(QUERY).fetchall() == [("run_tests", "success", 234)]
    assert sqlite.execute("SELECT json_extract(args, '$.path'), result FROM tool_calls").fetchall() == PARTS
    assert sqlite.execute(SUMMARIES).fetchall() == [(1, 9, "Fixed.", 90, 9, 0.1, 0.75, "rolling")]


def test_an_older_file_gets_them(tmp_path, sqlite):
    for table in ("tool_calls", "summaries"):
        names = [name for _, name, *_, hidden in sqlite.execute(f"PRAGMA table_xinfo({table})") if hidden]
        for name in names:
            sqlite.execute(f"ALTER TABLE {table} DROP COLUMN {name}")
    sqlite.execute("INSERT INTO tool_calls (uuid, seq, line) VALUES ('x', 9, 'no json')")
    sqlite.execute("PRAGMA user_version = 4")
    sqlite.commit()
    open_store(f"sqlite:///{tmp_path}/contexts.db").close()
    assert sqlite.execute(QUERY).fetchall() == [("run_tests", "success", 234), (None, None, None)]


def test_postgres(postgres, tmp_path):
    from psycopg import connect  # noqa: PLC0415 - the other tests do without

    url = postgres(tmp_path)
    write(url)
    with connect(url) as connection:
        assert connection.execute(QUERY).fetchall() == [("run_tests", "success", 234)]
        assert connection.execute("SELECT args::json ->> 'path', result FROM tool_calls").fetchall() == PARTS
        assert connection.execute(SUMMARIES).fetchall() == [(1, 9, "Fixed.", 90, 9, 0.1, 0.75, "rolling")]
        connection.execute("INSERT INTO tool_calls (uuid, seq, line) VALUES (%s, 9, 'no json')", [TASK.uuid])
        assert (None, None, None) in connection.execute(QUERY).fetchall()
