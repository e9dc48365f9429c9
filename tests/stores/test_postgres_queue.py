"""The queue in PostgreSQL: users take turns, no two workers get one task, notifications; and indexes."""

import subprocess
import sys
import threading
import time

import psycopg
import pytest

import orihon
from orihon.agent.queue import Job, claim, enqueue, iter_waiting, recover
from orihon.ops.search.index import CHANGED
from orihon.settings.schema import ContextInheritance, PauseResume, Settings
from orihon.stores import open_store
from orihon.stores.base import Options, Query
from orihon.stores.sql import postgres_queue
from orihon.stores.sql.postgres import FIND_KEY, RENEW, TAKE, TAKEN, PostgresStore
from orihon.stores.sql.store import NEWEST, TABLES

JOB = Job(request="Go.", plan=False)
WAIT_SECONDS = 30


@pytest.fixture
def settings(tmp_path):
    return Settings(
        pause_resume=PauseResume(signal_file=str(tmp_path / "pause")),
        context_inheritance=ContextInheritance(enabled=False),
    )


@pytest.fixture
def url(postgres, tmp_path):
    return postgres(tmp_path)


@pytest.fixture
def engine(url, settings):
    with orihon.open(url, settings=settings) as engine:
        yield engine


def queued(engine, user, count, priority=0):
    for number in range(count):
        name = f"{user}-{priority}-{number}"
        enqueue(engine, orihon.TaskKey.local(name), JOB, user=user, uuid=name, priority=priority)


def test_users_in_turn(engine):
    """Many tasks of one user do not delay those of another; a task of high priority comes first."""
    queued(engine, "alice", 40)
    queued(engine, "bob", 2)
    queued(engine, "alice", 1, priority=9)
    queued(engine, None, 1)
    order = [row.uuid for row in iter_waiting(engine)]
    assert order[:6] == ["alice-9-0", "bob-0-0", "None-0-0", "alice-0-0", "bob-0-1", "alice-0-1"]
    claim(engine, "bob-0-0")
    assert [row.uuid for row in iter_waiting(engine)][:4] == ["alice-9-0", "None-0-0", "alice-0-0", "bob-0-1"]


def test_a_long_queue_is_not_read_whole(engine):
    """Only the first tasks of each user are read."""
    queued(engine, "alice", postgres_queue.PER_USER + 5)
    queued(engine, "bob", 1)
    assert len(list(engine.store.queue.waiting())) == postgres_queue.PER_USER + 1


def test_a_task_is_put_by_once(engine, url):
    """Two workers get different tasks and a third gets none; a released task can be reserved again."""
    queued(engine, "alice", 2)
    uuids = [row.uuid for row in iter_waiting(engine)]
    with open_store(url) as other:
        assert engine.store.queue.reserve(uuids) == uuids[0]
        assert other.queue.reserve(uuids) == uuids[1]
        assert other.queue.reserve(uuids) is None
        assert list(other.queue.waiting()) == []
        assert other.queue.reserve([]) is None
        task = claim(engine, uuids[0])
        task.writer.update(status="pending")
        task.writer.lease.close()
        assert other.queue.reserve(uuids) == uuids[0]


@pytest.mark.slow
def test_many_go_for_the_same(engine, url):
    """Workers that reserve at the same moment do not wait for each other, and no task is reserved twice."""
    queued(engine, "alice", 40)
    uuids = [row.uuid for row in iter_waiting(engine)]
    program = f"""
from orihon.stores import open_store
with open_store({url!r}) as store:
    input()
    while (uuid := store.queue.reserve({uuids!r})) is not None:
        print(uuid)
"""
    children = [
        subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    for child in children:
        child.stdin.write("\n")
        child.stdin.flush()
    given = [line for child in children for line in child.communicate(timeout=60)[0].split()]
    assert sorted(given) == sorted(uuids)


def test_a_sign_when_something_comes(engine, url):
    """A worker that waits is notified as soon as a task can be taken, and not earlier."""
    with open_store(url) as other:
        assert not other.queue.wait(0.01)
        late = threading.Timer(0.3, lambda: queued(engine, "alice", 1))
        late.start()
        assert other.queue.wait(WAIT_SECONDS)
        assert len(list(other.queue.waiting())) == 1
        late.join()


def test_whoever_cannot_listen_looks(engine, url, monkeypatch):
    """Without a connection for notifications `wait` sleeps, and tries again later."""
    with open_store(url) as other:

        def refused():
            raise psycopg.OperationalError("no")

        monkeypatch.setattr(other.server, "connect", refused)
        began = time.monotonic()
        assert not other.queue.wait(0.05)
        assert not other.queue.wait(0.05)
        assert time.monotonic() - began >= 0.1
        monkeypatch.undo()
        other.queue._listen_again_at = 0
        queued(engine, "alice", 1)
        assert not other.queue.wait(0.01)
        queued(engine, "bob", 1)
        assert other.queue.wait(WAIT_SECONDS)


def test_only_the_abandoned_are_looked_at(engine, url):
    """A task is abandoned if its holder died on this machine or was silent, not if the holder lives."""
    queued(engine, "alice", 3)
    claim(engine, "alice-0-0")
    program = f"import orihon, os; e = orihon.open({url!r}); e.resume('alice-0-1'); os.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, "-c", program], check=False)
    assert [row.uuid for row in engine.store.queue.abandoned()] == ["alice-0-1"]
    with open_store(url, Options(expiry_seconds=0)) as hasty:
        assert {row.uuid for row in hasty.queue.abandoned()} == {"alice-0-0", "alice-0-1"}


def test_a_worker_that_died_before_it_began(engine, url):
    """A worker dies with the lease of a task that still waits: the next worker releases and takes it."""
    queued(engine, "alice", 1)
    program = (
        f"import os; from orihon.stores import open_store; s = open_store({url!r}); "
        "s.lease(s.queue.reserve(['alice-0-0'])); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", program], check=False)
    assert list(iter_waiting(engine)) == []
    assert recover(engine) == []
    assert [row.uuid for row in iter_waiting(engine)] == ["alice-0-0"]
    assert engine.store.queue.reserve(["alice-0-0"]) == "alice-0-0"


# indexes


MANY = """
INSERT INTO tasks (
    uuid, task_source, owner, repo, task_type, task_id, status, created_at, completed_at, task_key, "user"
) SELECT md5(n::text), 'github', 'acme', 'shop', 'issue', n::text,
    CASE WHEN n % 1000 = 0 THEN 'running' WHEN n % 100 = 0 THEN 'pending' ELSE 'completed' END,
    '2026-01-' || lpad((n % 28)::text, 2, '0') || 'T' || n, '2026-02-01', 'github/acme/shop/issue/' || (n % 5000),
    'user' || (n % 50)
FROM generate_series(1, 20000) AS n
"""


def plans(url, statements):
    """Return PostgreSQL's plan of each statement."""
    with psycopg.connect(url) as connection:
        for statement, values in statements:
            found = connection.execute(f"EXPLAIN {statement}".replace("?", "%s"), values)
            yield "\n".join(line for (line,) in found)


def found_by(query, url):
    """Return the statements that `find` sends for a query."""
    sent = []
    with open_store(url) as store:
        store.reader.all = lambda statement, *values: sent.append((statement, values)) or []
        list(store.find(query))
    return sent


def test_every_question_has_its_index(url):
    """Queries for tasks, inheritance, the queue, logs and keys use an index and scan no table."""
    open_store(url).close()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(MANY)
        connection.execute(
            "INSERT INTO messages (uuid, seq, role, tokens, timestamp, key, line) "
            "SELECT md5((n % 20)::text), n, 'user', 1, '', 'k' || n, '' FROM generate_series(1, 20000) AS n"
        )
        for table, number in TABLES.values():
            if table != "messages":
                connection.execute(
                    f"INSERT INTO {table} (uuid, {number}, line) "  # noqa: S608 - names from the code
                    "SELECT md5((n % 20)::text), n, '' FROM generate_series(1, 5000) AS n"
                )
        connection.execute("ANALYZE")
    queries = [
        Query(limit=20),
        Query(status=("running",), limit=20),
        Query(user="user7", limit=20),
        Query(user="user7", status=("completed",), limit=20),
        Query(uuid="c4ca4238"),
        Query(key="github/acme/shop/issue/27"),
        Query(key="github/acme/shop/issue/27", status=("completed", "stopped"), completed_from="2026-01-01"),
        Query(linked="github/acme/shop/pull_request/7"),
        Query(created_from="2026-01-27", limit=20),
        Query(ended_before="2026-01-02"),
    ]
    statements = [sent for query in queries for sent in found_by(query, url)]
    statements += [
        (CHANGED, ("", "2026-03-01", "2026-03-01", 1000)),
        (postgres_queue.WAITING, ()),
        (postgres_queue.ABANDONED, (60, "%x%")),
        (postgres_queue.RESERVE, (30, ["a", "b"], ["a", "b"])),
    ]
    names = {"table": "messages", "number": "seq"}
    statements += [
        (TAKE, ("o", "o", "u", ["o"], 60)),
        (TAKEN, ("u", "o")),
        (PostgresStore.page_statement.format(first="?", **names), ("u", 1, 9)),
        (PostgresStore.page_statement.format(first=NEWEST.format(**names), **names), ("u", "u", 9, 9)),
        (FIND_KEY, ("u", "k", "k")),
        (RENEW, ("u", 1, "o")),
    ]
    for plan in plans(url, statements):
        assert "Seq Scan" not in plan, plan
        assert "Index" in plan
