"""`orihon stats`: what tasks add up to, beside the targets of the seeds."""

import json
import os
import re
from contextlib import suppress
from datetime import UTC, datetime

import pytest
from bench.many import fill as fill_many

from orihon.ops.access import AuthorizedStore, Principal
from orihon.ops.stats import compute_statistics
from orihon.records import Summary
from orihon.stores import open_store
from orihon.stores.base import Query
from orihon.testing.samples import a_task
from support.cli_store import IDS, KINDS, fill, said, url_of


@pytest.fixture(params=KINDS)
def url(request, url_at, tmp_path):
    url = url_at(request.param, tmp_path)
    fill(url)
    return url


def test_the_view_of_the_seeds(url):
    """The layout line by line."""
    wanted = r"""Context Storage Statistics
==========================

Total contexts: 4
  - Running: 0
  - Completed: 2
  - Failed: 1
  - Paused: 1

Disk usage:
  - Running: \d+ bytes
  - Completed: \d\.\d kB

Average per task:
  - Messages: 4
  - Tokens: \d+
  - Duration: \d+秒
  - Compressions: 0\.0

By user:
  - alice: 3 tasks \(75%\), \d+ tokens, \d+秒 each
  - bob: 1 task \(25%\), \d+ tokens, \d+秒 each

Targets:
  - Failure rate: 33\.3% \(target < 5%, missed\)
  - Summary success: 100\.0% \(target > 95%, met\)
  - Retention of summaries: - \(target >= 90%\)
  - Compression ratio: \d+\.\d% \(target <= 40%, (met|missed)\)
  - Disk per month: \d\.\d kB \(target < 5 GB, met\)
  - Duration, last 30 days against the 30 before: - \(target < 10%\)
  - Memory saved: measured in docs/benchmarks\.md \(target >= 80%\)
"""
    shown = said("stats", "--summary", "--lang", "ja", url=url)
    assert re.fullmatch(wanted, shown), shown


def test_filters_list_the_tasks_as_well(url):
    """By user, by date, only the failed ones: the figures, and the tasks."""
    shown = said("stats", "--status", "failed", url=url)
    assert "Total contexts: 1\n" in shown
    assert IDS["failed"][:8] in shown.partition("\nTasks:\n")[2]
    assert "Tasks:" not in said("stats", "--status", "failed", "--summary", url=url)
    assert "Total contexts: 3\n" in said("stats", "--user", "alice", url=url)
    assert "Total contexts: 0\n" in said("stats", "--from", "2001-01-01", "--to", "2001-01-31", url=url)
    assert "Total contexts: 1\n" in said("stats", "--key", "github/acme/shop/issue/27", url=url)


def test_a_user_counts_his_own(url):
    """Neither the others' tasks nor their names are in any figure."""
    found = json.loads(said("stats", "--json", url=url, user="bob"))
    assert (found["tasks"], [user["user"] for user in found["users"]]) == (1, ["bob"])
    assert json.loads(said("stats", "--user", "alice", "--json", url=url, user="bob"))["tasks"] == 0


def test_retention_is_the_mean_of_all_summaries(tmp_path):
    """Beside the target; summaries of conversations that used no name again do not count."""
    with open_store(str(tmp_path)) as store:
        for shares in ((1.0, 0.5), (0.9, None), ()):
            task = a_task()
            with store.lease(task.uuid, create=task) as lease:
                for share in shares:
                    lease.append(
                        Summary(id=0, start_seq=1, end_seq=1, summary="s", original_tokens=9, summary_tokens=3,
                                ratio=0.3, retention=share, timestamp="")
                    )  # fmt: skip
                lease.update(status="completed")
    assert "  - Retention of summaries: 80.0% (target >= 90%, missed)\n" in said("stats", url=str(tmp_path))


def test_figures_of_many_tasks(tmp_path):
    """A month against the month before, sums by day and user, from a store with 300 tasks."""
    url = str(tmp_path / "many")
    now = datetime(2024, 3, 1, 12, tzinfo=UTC)
    fill_many(url, 300, messages=4, now=now)
    with open_store(url) as store:
        found = compute_statistics(
            AuthorizedStore(store, Principal("root", admin=True), command="test"), Query(), today=now
        )
        rows = list(store.find())
    assert found.tasks == 300 == sum(found.days.values()) == sum(user.tasks for user in found.users)
    assert found.by_status["failed"] == sum(row.status == "failed" for row in rows)
    assert found.average_messages == 4
    assert found.active_bytes + found.ended_bytes == sum(row.size_bytes for row in rows)
    measures = {measure.name: measure for measure in found.measures}
    ended = sum(row.completed_at is not None for row in rows)
    assert measures["failure_rate"].value == found.by_status["failed"] / ended
    assert abs(measures["duration_growth"].value) < 0.5
    assert 0 < measures["compression_ratio"].value < 0.2
    assert found.users == sorted(found.users, key=lambda user: -user.tasks)


def test_a_file_that_goes_away_does_not_take_its_task_with_it(tmp_path, monkeypatch):
    """A task at work has temporary files all the time."""
    url = url_of("jsonl", tmp_path)
    fill(url)
    before = json.loads(said("stats", "--disk", "--json", url=url))
    listed = os.fwalk

    def fwalk(*args, **options):
        for place in listed(*args, **options):
            with suppress(FileNotFoundError):
                os.unlink("passing", dir_fd=place[-1])
            yield place

    for task in (tmp_path / "contexts/completed").iterdir():
        (task / "passing").touch()
    monkeypatch.setattr("os.fwalk", fwalk)
    assert json.loads(said("stats", "--disk", "--json", url=url))["ended_bytes"] == before["ended_bytes"]
    assert not list(tmp_path.rglob("passing"))


def test_a_planted_link_is_not_measured(tmp_path):
    """And leaves the others alone."""
    url = url_of("jsonl", tmp_path)
    fill(url)
    before = json.loads(said("stats", "--disk", "--json", url=url))["ended_bytes"]
    task = next((tmp_path / "contexts/completed").iterdir())
    task.rename(tmp_path / "away")
    task.symlink_to(tmp_path / "away")
    assert 0 < json.loads(said("stats", "--disk", "--json", url=url))["ended_bytes"] < before


def test_the_disk_is_measured_when_asked(tmp_path):
    """With --disk what the files take; a store that has no files of its own says so."""
    url = url_of("jsonl", tmp_path)
    fill(url)
    measured = json.loads(said("stats", "--disk", "--json", url=url))
    counted = json.loads(said("stats", "--json", url=url))
    blocks = sum(path.lstat().st_blocks * 512 for path in (tmp_path / "contexts/completed").rglob("*"))
    assert measured["ended_bytes"] == blocks
    assert measured["ended_bytes"] > counted["ended_bytes"]
    other = url_of("sqlite", tmp_path)
    fill(other)
    assert "plain files" in said("stats", "--disk", url=other, code=2)
