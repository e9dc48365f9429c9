"""Retention: what goes after how many days, what stays, and that nobody loses what he works on."""

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from orihon.engine import Engine
from orihon.errors import Conflict, LeaseHeld, NotFound, UsageError
from orihon.inheritance import prepare
from orihon.ops.access import AuthorizedStore, Principal
from orihon.ops.clean import clean, keep_task
from orihon.ops.search import update_index
from orihon.ops.search.index import index_path
from orihon.records import Message
from orihon.settings.schema import ContextInheritance, Settings
from orihon.stores import open_store
from orihon.stores.base import Query
from orihon.task_key import TaskKey
from orihon.testing.samples import a_message
from orihon.tokens import counter
from support.past_runs import KEY, a_run

NOW = datetime(2024, 6, 1, tzinfo=UTC)
SETTINGS = Settings()
STORES = ["jsonl", "sqlite", "postgres", "memory"]


def ago(days):
    return (NOW - timedelta(days=days)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


@pytest.fixture(params=STORES)
def authorized(request, url_at, tmp_path):
    with open_store(url_at(request.param, tmp_path)) as store:
        yield AuthorizedStore(store, Principal("root", admin=True), command="clean")


def aged(store, days, status="completed", **fields):
    return a_run(store, status, at=ago(days), records=[a_message("x" * 5000)], **fields)


def there(store, uuid):
    """What is left of a task: all, a stub, nothing."""
    try:
        row = store.row(uuid)
    except NotFound:
        return "nothing"
    whole = len(list(store.read(uuid, Message))) == 1
    assert whole == (row.archived in {"", "gzip"})
    return row.archived or "whole"


def test_what_happens_after_how_many_days(authorized):
    """Compressed after 7, cut down after 30, gone after 90; a failed one is gone after 30."""
    store = authorized.store
    packed = "gzip" if store.archives else "whole"
    expected = {}
    for status in ("completed", "stopped", "failed"):
        last = "nothing" if status == "failed" else "stub"
        for days, left in (
            (1, "whole"),
            (6.9, "whole"),
            (7.1, packed),
            (29, packed),
            (31, last),
            (89, last),
            (91, "nothing"),
        ):
            expected[aged(store, days, status)] = left
    for status in ("pending", "running", "paused"):
        expected[aged(store, 100, status)] = "whole"
    planned = clean(authorized, SETTINGS, now=NOW, dry_run=True)
    assert {there(store, uuid) for uuid in expected} == {"whole"}
    done = clean(authorized, SETTINGS, now=NOW)
    assert {uuid: there(store, uuid) for uuid in expected} == expected
    assert (done.deleted, done.reduced) == (5, 4)
    assert done.compressed == (6 if store.archives else 0)
    assert [getattr(done, name) for name in ("deleted", "reduced", "compressed", "kept", "held")] == [
        getattr(planned, name) for name in ("deleted", "reduced", "compressed", "kept", "held")
    ]
    assert done.interrupted == 1  # nobody holds the running one
    again = clean(authorized, SETTINGS, now=NOW)
    assert (again.deleted, again.reduced, again.compressed) == (0, 0, 0)
    later = clean(authorized, SETTINGS, now=NOW + timedelta(days=90))
    assert later.left == {
        "pending": 1,
        "running": 0,
        "paused": 1,
        "completed": 0,
        "stopped": 0,
        "failed": later.left["failed"],
    }


def test_an_emergency(authorized):
    """After 14 days all goes, and all the rest is compressed."""
    young, middle, old = (aged(authorized.store, days) for days in (0.5, 13, 15))
    clean(authorized, SETTINGS, now=NOW, emergency=True)
    packed = "gzip" if authorized.store.archives else "whole"
    assert [there(authorized.store, uuid) for uuid in (young, middle, old)] == [packed, packed, "stub"]


def test_older_than(authorized):
    """Other days than those of the settings."""
    first, second = aged(authorized.store, 2), aged(authorized.store, 4)
    clean(authorized, SETTINGS, now=NOW, older_than=3)
    assert [there(authorized.store, uuid) for uuid in (first, second)] == ["whole", "stub"]
    clean(authorized, SETTINGS, now=NOW, older_than=0)
    assert there(authorized.store, first) == "stub"
    with pytest.raises(UsageError):
        clean(authorized, SETTINGS, older_than=-1)


def test_a_kept_task_is_never_touched(authorized):
    """Neither by age, nor in an emergency; after `unkeep` it is."""
    uuid = aged(authorized.store, 400)
    assert keep_task(authorized, uuid[:8]).kept
    for emergency in (False, True):
        assert clean(authorized, SETTINGS, now=NOW, emergency=emergency).kept == 1
    assert there(authorized.store, uuid) == "whole"
    assert not keep_task(authorized, uuid, kept=False).kept
    clean(authorized, SETTINGS, now=NOW)
    assert there(authorized.store, uuid) == "nothing"


def test_a_compressed_task_stays_compressed_when_it_is_kept(tmp_path):
    """Only its row changes."""
    with open_store(tmp_path / "contexts") as store:
        authorized = AuthorizedStore(store, Principal("root", admin=True), command="keep")
        uuid = aged(store, 10)
        clean(authorized, SETTINGS, now=NOW)
        keep_task(authorized, uuid)
        assert (tmp_path / "contexts" / "completed" / uuid / "messages.jsonl.gz").exists()
        assert store.row(uuid).kept


def test_a_written_task_is_never_touched(authorized):
    """Whoever holds it, whatever its age says; `keep` says why it cannot."""
    uuid = aged(authorized.store, 400)
    with authorized.store.lease(uuid):
        done = clean(authorized, SETTINGS, now=NOW)
        assert (done.held, done.deleted) == (1, 0)
        with pytest.raises(LeaseHeld, match="Nothing was changed"):
            keep_task(authorized, uuid)
    assert there(authorized.store, uuid) == "whole"


@pytest.mark.parametrize("change", ["kept", "resumed"])
def test_who_changes_a_task_gets_ahead(authorized, change):
    """Between the look and the deed somebody keeps the task, or goes on with it."""
    uuid = aged(authorized.store, 40, "failed", reason="interrupted")
    find = authorized.store.find

    def found(query=None):
        for row in list(find(query)):
            if query.ended_before and row.status == "failed":
                if change == "kept":
                    keep_task(authorized, uuid)
                else:
                    Engine(authorized.store, SETTINGS).resume(uuid).pause()
            yield row

    authorized.store.find = found
    done = clean(authorized, SETTINGS, now=NOW)
    assert (done.deleted, done.held) == (0, 1)
    assert there(authorized.store, uuid) == "whole"


def test_a_stub_is_inherited_until_it_expires(authorized):
    """A new task on the same thing is told what the old one did, 60 days after its end, and not after 91."""
    uuid = aged(authorized.store, 60, summary="The basket was empty.")
    clean(authorized, SETTINGS, now=NOW)
    assert there(authorized.store, uuid) == "stub"
    for days, expected in ((0, True), (31, False)):
        moment = NOW + timedelta(days=days)
        clean(authorized, SETTINGS, now=moment)
        found = prepare(
            authorized.store, TaskKey.parse(KEY), settings=ContextInheritance(), user="alice",
            now=moment.isoformat(), counter=counter("estimate"), context_length=100_000,
        )  # fmt: skip
        assert (found is not None and "The basket was empty." in found.text) == expected
    assert there(authorized.store, uuid) == "nothing"


def test_nothing_stays_where_nothing_is_inherited(authorized):
    """Without inheritance there is no reason for a stub."""
    uuid = aged(authorized.store, 31)
    clean(authorized, Settings(context_inheritance=ContextInheritance(enabled=False)), now=NOW)
    assert there(authorized.store, uuid) == "nothing"


def test_a_user_cleans_his_own(authorized):
    """Somebody else's tasks are not touched, counted or recovered."""
    mine, hers = aged(authorized.store, 40, user="bob"), aged(authorized.store, 40, user="alice")
    running = aged(authorized.store, 1, "running", user="alice")
    bob = AuthorizedStore(authorized.store, Principal("bob"), command="clean")
    assert clean(bob, SETTINGS, now=NOW, dry_run=True).reduced == 1
    done = clean(bob, SETTINGS, now=NOW)
    assert (done.reduced, done.interrupted, done.left["completed"]) == (1, 0, 1)
    assert [there(authorized.store, uuid) for uuid in (mine, hers)] == ["stub", "whole"]
    assert authorized.store.row(running).status == "running"
    with pytest.raises(NotFound):
        keep_task(bob, hers)


def test_a_broken_task_does_not_stop_the_rest(tmp_path):
    """What cannot be cleaned is named, and the others are."""
    with open_store(tmp_path / "contexts") as store:
        authorized = AuthorizedStore(store, Principal("root", admin=True), command="clean")
        broken, sound = aged(store, 10), aged(store, 11)
        (tmp_path / "contexts" / "completed" / broken / "metadata.json").write_bytes(b"nonsense")
        done = clean(authorized, SETTINGS, now=NOW)
        assert done.compressed == 1
        assert broken in done.failures[0]
        assert there(store, sound) == "gzip"


def test_an_interrupted_cut_is_finished(tmp_path):
    """A task that says `going` is finished by the next clean."""
    with open_store(tmp_path / "contexts") as store:
        authorized = AuthorizedStore(store, Principal("root", admin=True), command="clean")
        uuid = aged(store, 40)
        with store.lease(uuid) as lease:
            lease.update(archived="going")
        clean(authorized, SETTINGS, now=NOW)
        assert there(store, uuid) == "stub"


def orihon(tmp_path, *arguments, **env):
    return subprocess.run(
        [sys.executable, "-m", "orihon", *arguments],
        cwd=tmp_path, env=os.environ | env, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("kind", STORES[:3])
def test_the_commands(url_at, tmp_path, kind):
    """In a real process: a dry run changes nothing, a clean says what it did, a kept task stays."""
    url = url_at(kind, tmp_path)
    with open_store(url) as store:
        kept, old = (a_run(store, at="2020-01-01T00:00:00.000000Z", records=[a_message("x" * 9000)]) for _ in range(2))
    at = ("--store", url)
    shown = orihon(tmp_path, "keep", kept[:8], *at)
    assert (shown.returncode, shown.stdout) == (0, f"{kept} is kept.\n")
    dry = orihon(tmp_path, "clean", "--dry-run", *at)
    assert "deleted      1 task: nothing of them is left" in dry.stdout
    assert "Nothing was changed.\nThere are now: 2 completed." in dry.stdout
    assert "About 9." in dry.stdout
    done = json.loads(orihon(tmp_path, "clean", "--json", *at).stdout)
    assert (done["deleted"], done["kept"], done["left"]["completed"], done["failures"]) == (1, 1, 1, [])
    assert done["freed_bytes"] > 0
    with open_store(url) as store:
        assert there(store, kept) == "whole"
        assert there(store, old) == "nothing"
    assert json.loads(orihon(tmp_path, "unkeep", kept, "--json", *at).stdout) == {"uuid": kept, "kept": False}
    refused = orihon(tmp_path, "keep", kept, *at, ORIHON_USER="mallory")
    assert refused.returncode == 3
    assert "There is no task" in refused.stderr


def test_keep_is_a_conflict_for_nobody(authorized):
    """Keeping twice changes nothing, not even the fence."""
    uuid = aged(authorized.store, 1)
    fence = keep_task(authorized, uuid).fence
    assert keep_task(authorized, uuid).fence == fence
    with pytest.raises(Conflict):
        authorized.store.delete(uuid, fence=fence - 1)


@pytest.mark.parametrize("kind", STORES[:3])
def test_what_is_gone_is_not_in_the_index_any_more(kind, url_at, tmp_path):
    """Also before anybody searches again."""
    with open_store(url_at(kind, tmp_path)) as store:
        gone, stays = aged(store, 100), aged(store, 1)
        assert update_index(store, 60)
        clean(AuthorizedStore(store, Principal("root", admin=True), command="clean"), SETTINGS, now=NOW)
        with closing(sqlite3.connect(index_path(store))) as index:
            assert [uuid for (uuid,) in index.execute("SELECT uuid FROM tasks")] == [stays], f"without {gone}"


def test_the_statistics_are_written_after_it(tmp_path):
    """000 §8.1: the last step of the nightly script is a report."""
    with open_store(tmp_path / "contexts") as store:
        authorized = AuthorizedStore(store, Principal("root", admin=True), command="clean")
        a_run(store)
        assert clean(authorized, Settings(), dry_run=True).report is None
        path = Path(clean(authorized, Settings()).report)
        assert path == tmp_path / "contexts" / "statistics.json"
        assert path.stat().st_mode & 0o777 == 0o600
        assert json.loads(path.read_text("utf-8"))["tasks"] == store.count(Query())[0]
