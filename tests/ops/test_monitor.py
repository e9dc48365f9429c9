"""The monitor: what died is settled once, what exceeds a limit is said, and Prometheus can read it."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest

from orihon.agent.queue import Job, claim, enqueue
from orihon.codec import format_time
from orihon.engine import Engine
from orihon.errors import UsageError
from orihon.ops.access import AuthorizedStore, Principal
from orihon.ops.metrics import MetricsServer
from orihon.ops.monitor import check_store
from orihon.settings.schema import Monitor, Settings
from orihon.stores import open_store
from orihon.task_key import TaskKey
from support.faults import in_child
from support.past_runs import a_final, a_run

STORES = ["jsonl", "sqlite", "postgres", "memory"]
KEY = TaskKey.parse("github/acme/shop/issue/8")


def settings(**limits):
    return Settings(monitor=Monitor(**limits))


@pytest.fixture(params=STORES)
def authorized(request, url_at, tmp_path):
    with open_store(url_at(request.param, tmp_path)) as store:
        yield AuthorizedStore(store, Principal("root", admin=True), command="monitor")


def levels(report):
    return {check.name: check.level for check in report.checks if check.level != "ok"}


def test_an_empty_store_is_well(authorized):
    """Nothing to say."""
    report = check_store(authorized, settings())
    assert (report.level, report.exit_code, levels(report)) == ("ok", 0, {})
    assert report.average_seconds is None


def test_the_limits(authorized):
    """One above each limit is told, and nothing at it."""
    now = datetime.now(UTC)
    started, ended = format_time(now - timedelta(seconds=600)), format_time(now)
    for number in range(10):
        status = "failed" if number == 0 else "completed"
        a_run(authorized.store, status, started_at=started, at=ended)
    engine = Engine(authorized.store, settings())
    for _ in range(2):
        engine.start(KEY, queued=True).writer.lease.close()
    running = engine.start(KEY)
    running.add("user", "hello")
    assert levels(check_store(authorized, settings(backlog=3))) == {}
    report = check_store(
        authorized,
        settings(backlog=2, failure_rate=0.09),
        now=datetime.now(UTC) + timedelta(hours=6, seconds=5),
    )
    assert levels(report) == {"backlog": "warning", "failure_rate": "warning", "long_running": "warning"}
    assert report.exit_code == 1
    assert report.long_running == [running.uuid]
    assert report.average_seconds == pytest.approx(600)
    assert report.tasks["pending"] == 2
    running.complete()


def test_the_failure_rate_has_a_window_and_a_least_number(authorized):
    """One failed task of one is no rate, and what failed last year is no news."""
    a_run(authorized.store, "failed", at=format_time(datetime.now(UTC)))
    report = check_store(authorized, settings())
    assert (levels(report), report.failure_rate) == ({}, 1.0)
    assert levels(check_store(authorized, settings(failure_least=1))) == {"failure_rate": "warning"}
    later = datetime.now(UTC) + timedelta(days=8)
    assert check_store(authorized, settings(failure_least=1), now=later).failure_rate == 0.0


def test_the_sizes_of_running_and_completed_tasks(authorized):
    """000 §8.3: both directories are measured."""
    a_run(authorized.store, "completed", records=[a_final("It is done.")])
    with Engine(authorized.store, Settings()).start(KEY) as task:
        task.add("user", "x" * 10_000)
        task.window()
        report = check_store(authorized, settings())
        assert report.active_bytes > 10_000 > report.ended_bytes > 0


def test_the_disk(tmp_path):
    """A warning and a critical limit, by what the files really take."""
    with open_store(tmp_path / "contexts") as store:
        authorized = AuthorizedStore(store, Principal("root", admin=True), command="monitor")
        a_run(store)
        (tmp_path / "contexts" / "search.db").write_bytes(b"x" * 100_000)
        assert check_store(authorized, settings()).disk_bytes > 100_000
        assert levels(check_store(authorized, settings(disk_warning_gb=0.0001))) == {"disk": "warning"}
        report = check_store(authorized, settings(disk_warning_gb=0.00005, disk_critical_gb=0.0001))
        assert (report.level, report.exit_code, levels(report)) == ("critical", 2, {"disk": "critical"})


@pytest.mark.parametrize("kind", STORES[:3])
def test_what_died_is_settled(url_at, tmp_path, kind):
    """A task whose process was killed has failed with a summary; a queued one waits again, three times at most."""
    url = url_at(kind, tmp_path)
    with open_store(url) as store:
        queued = enqueue(Engine(store, Settings()), KEY, Job(request="do it"))

    def work(say):
        engine = Engine(open_store(url), Settings())
        task = engine.start(TaskKey.parse("github/acme/shop/issue/9"))
        task.add("user", "Count the baskets, please.")
        say(task.uuid)
        assert claim(engine, queued) is not None
        os.kill(os.getpid(), signal.SIGKILL)

    died = in_child(work)
    assert died.signal == signal.SIGKILL
    (alone,) = died.said
    with open_store(url) as store:
        authorized = AuthorizedStore(store, Principal("root", admin=True), command="monitor")
        report = check_store(authorized, Settings())
        assert sorted(report.interrupted) == sorted([alone, queued])
        assert "interrupted" in levels(report)
        row = store.row(alone)
        assert (row.status, row.reason) == ("failed", "interrupted")
        assert "Count the baskets" in (row.final_summary or "")
        assert (store.row(queued).status, store.row(queued).attempts) == ("pending", 1)
        assert check_store(authorized, Settings()).interrupted == []


def test_who_works_is_left_alone(authorized):
    """A running task whose holder lives is not touched."""
    with Engine(authorized.store, Settings()).start(KEY) as task:
        assert check_store(authorized, Settings()).interrupted == []
        assert authorized.store.row(task.uuid).status == "running"


def test_only_an_administrator(authorized):
    """Others may not settle, nor count, what is not theirs."""
    with pytest.raises(UsageError, match="administrator"):
        check_store(AuthorizedStore(authorized.store, Principal("alice"), command="monitor"), Settings())


def asked(port, path="/metrics", host=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", path, headers={"Host": host} if host else {})
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def test_prometheus_metrics(authorized):
    """Each line is a comment or a metric; no name of a user or a task is in it; the Host header is checked."""
    uuid = a_run(authorized.store, user="alice")
    with closing(MetricsServer("127.0.0.1", 0)) as server:
        assert asked(server.port) == (200, "")
        server.update(check_store(authorized, Settings()))
        status, text = asked(server.port)
        assert status == 200
        for line in text.splitlines():
            assert re.fullmatch(r'# (HELP|TYPE) orihon_\w+ .+|orihon_\w+(\{\w+="\w+"\})? (NaN|[-+0-9.e]+)', line), line
        assert 'orihon_tasks{status="completed"} 1.0' in text
        assert "alice" not in text
        assert uuid not in text
        assert asked(server.port, host="evil.example:80")[0] == 403
        with pytest.raises(UsageError, match="in use"):
            MetricsServer("127.0.0.1", server.port)


def orihon(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-m", "orihon", "monitor", *arguments],
        capture_output=True, text=True, check=False, timeout=60, **options,
    )  # fmt: skip


@pytest.mark.slow
def test_once(tmp_path):
    """In a real process: the exit code is the level, --json is one object."""
    url = str(tmp_path / "contexts")
    with open_store(url) as store:
        a_run(store)
    well = orihon("--once", "--store", url, cwd=tmp_path)
    assert (well.returncode, well.stderr) == (0, "")
    assert "  ok        0 tasks running or pending; the limit is 100.\n" in well.stdout
    (tmp_path / "config.yaml").write_text("monitor:\n  disk_warning_gb: 0.000001\n  disk_critical_gb: 0.000002\n")
    told = orihon("--once", "--json", "--store", url, cwd=tmp_path)
    assert told.returncode == 2
    assert json.loads(told.stdout)["level"] == "critical"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        refused = orihon("--metrics", str(taken.getsockname()[1]), "--store", url, cwd=tmp_path)
    assert refused.returncode == 2
    assert "in use" in refused.stderr
    assert orihon("--metrics", "99999", "--store", url, cwd=tmp_path).returncode == 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_until_it_is_asked_to_stop(tmp_path, number):
    """It looks again and again, serves what it found, and ends politely."""
    url = str(tmp_path / "contexts")
    with open_store(url) as store:
        a_run(store)
    (tmp_path / "config.yaml").write_text("monitor:\n  interval_seconds: 0.2\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "orihon", "monitor", "--json", "--metrics", "0", "--store", url],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        port = int(re.search(r":(\d+)/metrics", process.stderr.readline())[1])
        looks = [json.loads(process.stdout.readline()) for _ in range(2)]
        assert looks[0]["at"] < looks[1]["at"]
        assert 'orihon_tasks{status="completed"} 1' in asked(port)[1]
        process.send_signal(number)
        until = time.monotonic() + 30
        while process.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        assert process.returncode == 0
    finally:
        process.kill()
        process.communicate()
