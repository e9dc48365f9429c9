"""The search for the run that is inherited: 001 §2.1, §2.3, §2.4, §4.1 and §7, over every store."""

import logging
import shutil
import sqlite3
import sys

import msgspec
import pytest

from orihon.errors import Corrupt, StoreUnavailable
from orihon.inheritance import prepare, search
from orihon.retry import Backoff
from orihon.settings.schema import ContextInheritance
from orihon.stores import open_store
from orihon.stores.base import Options
from orihon.stores.memory import MemoryStore
from orihon.stores.sql.postgres import PostgresStore
from orihon.tokens import counter
from support.past_runs import KEY, NOW, a_final, a_run

PULL = "github/acme/shop/pull_request/7"


@pytest.fixture(params=["memory", "jsonl", "sqlite", "postgres"])
def store(request, tmp_path, url_at):
    with open_store(url_at(request.param, tmp_path), Options(durability="os")) as opened:
        yield opened


@pytest.fixture
def files(tmp_path):
    with open_store(str(tmp_path / "s"), Options(durability="os")) as opened:
        yield opened


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    backoff = Backoff(tries=3, first_seconds=0)
    monkeypatch.setattr(sys.modules["orihon.inheritance.search"], "BACKOFF", backoff)


def found(store, key=KEY, *, user="alice", now=NOW, exclude="", **settings):
    return search(store, key, settings=ContextInheritance(**settings), user=user, now=now, exclude=exclude)


def inherited(store, *arguments, **options):
    previous = found(store, *arguments, **options).previous
    return previous and previous.uuid


def reason(store, *arguments, **options):
    (one,) = found(store, *arguments, **options).skipped
    return one.reason


# 2.1, 2.3 and 2.4: what is inherited, and what is not


@pytest.mark.parametrize("status", ["completed", "stopped"])
def test_2_1_and_2_4_completed_and_stopped_are_inherited(store, status):
    """A completed or stopped run is inherited."""
    uuid = a_run(store, status)
    result = found(store)
    assert (result.previous.uuid, result.previous.summary, result.skipped) == (uuid, "It is done.", ())


def test_2_1_inside_the_expiry_is_inherited(store):
    """The limit is 90 days by default, to the second."""
    uuid = a_run(store, at="2023-12-02T12:00:00.000000Z")
    assert inherited(store) == uuid
    assert inherited(store, context_expiry_days=89) is None


def test_2_3_failed_is_not_inherited(store):
    """A failed run is not inherited, although it has a summary."""
    a_run(store, "failed")
    assert inherited(store) is None
    assert reason(store) == "It failed, and a failed run is not inherited."


def test_2_3_paused_is_not_inherited(store):
    """A paused run is resumed, not inherited."""
    a_run(store, "paused")
    assert inherited(store) is None
    assert reason(store) == "It is paused; it can be resumed."


def test_2_3_expired_is_not_inherited(store):
    """A run that ended one second too early is not inherited."""
    a_run(store, at="2023-12-02T11:59:59.000000Z")
    assert inherited(store) is None
    assert reason(store) == "It ended 90 days ago; 90 days are allowed."


@pytest.mark.parametrize(
    ("status", "sentence"), [("running", "It is still running."), ("pending", "It has not begun.")]
)
def test_2_4_running_and_pending_are_not_inherited(store, status, sentence):
    """A run that has not ended is not inherited."""
    a_run(store, status, at=None)
    assert inherited(store) is None
    assert reason(store) == sentence


def test_4_1_1_the_newest_is_used(store):
    """The run that ended last is used, not the one that began last, and a failed run does not hide it."""
    late = a_run(store, at="2024-02-20T00:00:00.000000Z")
    early = a_run(store, at="2024-02-10T00:00:00.000000Z")
    failed = a_run(store, "failed", at="2024-02-25T00:00:00.000000Z")
    result = found(store)
    assert result.previous.uuid == late
    assert [row.uuid for row in result.older] == [early]
    assert [(one.uuid, one.reason.split()[1]) for one in result.skipped] == [(failed, "failed,"), (early, "newer")]


def test_5_1_it_can_be_switched_off(store):
    """`enabled: false` finds nothing."""
    a_run(store)
    result = found(store, enabled=False)
    assert (result.previous, result.skipped) == (None, ())


def test_the_new_task_does_not_inherit_from_itself(store):
    """The task that asks is not listed."""
    uuid = a_run(store)
    result = found(store, exclude=uuid)
    assert (result.previous, result.skipped) == (None, ())


# 8.1: nobody else's


def test_8_1_other_keys_are_never_touched(store):
    """Another issue, repository or source, or the pull request of the same number, is another key."""
    for key in ("issue/2", "issue/11", "pull_request/1"):
        a_run(store, key=f"github/acme/shop/{key}")
    a_run(store, key="github/acme/shop2/issue/1")
    a_run(store, key="gitlab/acme/shop/issue/1")
    a_run(store, key="local/shop/issue/1")
    result = found(store)
    assert (result.previous, result.skipped) == (None, ())


def test_8_1_an_issue_is_inherited_across_users_if_the_setting_allows(store):
    """A run of another user is inherited only if `across_users` is on."""
    uuid = a_run(store, user="bob")
    assert inherited(store, across_users=True) == uuid
    assert inherited(store, user=None, across_users=True) == uuid
    assert inherited(store) is None
    assert reason(store, across_users=False) == "It is another user's, and context_inheritance.across_users is off."
    assert inherited(store, user="bob", across_users=False) == uuid


@pytest.mark.parametrize("across", [True, False])
def test_8_1_a_local_task_is_its_users_own(store, across):
    """Local tasks of two users are never shared."""
    a_run(store, key="local/issue/notes", user="bob")
    assert inherited(store, "local/issue/notes", across_users=across) is None
    assert reason(store, "local/issue/notes", across_users=across) == "It is another user's local task."
    assert inherited(store, "local/issue/notes", user=None, across_users=across) is None
    mine = a_run(store, key="local/issue/notes", user="alice", at="2024-01-20T00:00:00.000000Z")
    assert inherited(store, "local/issue/notes", across_users=across) == mine


def test_8_1_a_pull_request_inherits_the_issue_that_became_it(store):
    """A link is followed inside the same repository, and a newer run of the pull request comes first."""
    issue = a_run(store, linked_key=PULL)
    a_run(store, key="github/evil/shop/issue/1", linked_key=PULL, at="2024-02-15T00:00:00.000000Z")
    a_run(store, key="github/acme/shop/issue/9", at="2024-02-16T00:00:00.000000Z")
    assert inherited(store, PULL) == issue
    assert reason(store, PULL) == "It is linked, but works on another repository."
    own = a_run(store, key=PULL, at="2024-02-20T00:00:00.000000Z")
    assert inherited(store, PULL) == own
    assert inherited(store, "github/acme/shop/issue/9") != issue


# 7.1: what cannot be read


def test_7_1_file_damaged_is_skipped(files, caplog):
    """A run whose summaries are garbage is skipped with a warning, and the next older one is used."""
    good = a_run(files, at="2024-01-10T00:00:00.000000Z")
    broken = a_run(files, summary=None, records=[a_final("Lost.")])
    path = files.task_path(broken) / "summaries.jsonl"
    path.write_bytes(b"\x00\xff garbage \xfe" * 50 + b"\n")
    result = found(files)
    assert result.previous.uuid == good
    assert [(one.uuid, one.reason) for one in result.skipped] == [(broken, "Its summaries are damaged.")]
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert any(f"[uuid:{broken[:8]}]" in text and "skipped" in text for text in warnings)


def test_7_1_file_damaged_and_no_other_run_is_a_new_task(files):
    """If the damaged run was the only one, the task starts as a new one."""
    broken = a_run(files, summary=None, records=[a_final("Lost.")])
    (files.task_path(broken) / "summaries.jsonl").write_bytes(b"garbage\n")
    assert inherited(files) is None


def test_7_1_file_torn_is_skipped(files):
    """A summary whose line was torn by a crash does not count."""
    broken = a_run(files, summary=None, records=[a_final("Lost.")])
    path = files.task_path(broken) / "summaries.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    assert inherited(files) is None
    assert reason(files) == "It has no final summary."


def test_7_1_file_unreadable_is_skipped(files):
    """A directory in place of a file, or a link in place of a directory, is skipped."""
    broken = a_run(files, summary=None, records=[a_final("Lost.")])
    path = files.task_path(broken) / "summaries.jsonl"
    path.unlink()
    path.mkdir()
    assert inherited(files) is None
    assert reason(files).startswith("It cannot be read: ")


def test_7_1_directory_missing_is_a_new_task(files, caplog):
    """Without a directory and without a summary in the row, the task starts as a new one."""
    gone = a_run(files, summary=None, records=[a_final("Lost.")])
    shutil.rmtree(files.task_path(gone))
    assert inherited(files) is None
    assert reason(files) == "Its directory is missing."
    assert [record.levelname for record in caplog.records if "skipped" in record.getMessage()] == ["WARNING"] * 2


def test_7_1_directory_missing_but_the_row_has_the_summary(files):
    """The summary in the row is enough."""
    uuid = a_run(files, summary="Kept.")
    shutil.rmtree(files.task_path(uuid))
    assert found(files).previous.summary == "Kept."


def test_7_1_parse_failure_is_logged_and_skipped(store, caplog):
    """A line that is not JSON, in any store, is logged, and the older run is used."""
    good = a_run(store, at="2024-01-10T00:00:00.000000Z")
    broken = a_run(store, summary=" \n ", records=[a_final("Lost.")])
    if isinstance(store, MemoryStore):
        store.tasks[broken].lists["summaries"][1] = b'{"id": 1, "summary": \n'
    elif hasattr(store, "base"):
        (store.task_path(broken) / "summaries.jsonl").write_bytes(b'{"id": 1, "summary": \n')
    elif isinstance(store, PostgresStore):
        spoil = "UPDATE summaries SET line = %s WHERE uuid = %s RETURNING id"
        assert store.server.change(spoil, b'{"id": 1, "summary": ', broken)
    else:
        store.writer.change("UPDATE summaries SET line = ? WHERE uuid = ?", '{"id": 1, "summary": ', broken)
    assert inherited(store) == good
    assert any(f"[uuid:{broken[:8]}]" in record.getMessage() for record in caplog.records)


def test_7_1_one_bad_line_does_not_hide_a_good_summary(files):
    """The readable lines are used."""
    uuid = a_run(files, summary="", records=[a_final("First.", "rolling"), a_final("Good.")])
    path = files.task_path(uuid) / "summaries.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"garbage\n" + lines[1])
    assert found(files).previous.summary == "Good."


# 7.2: making it


def test_7_2_no_final_summary_is_a_new_task(store, caplog):
    """A run without a final summary, or with a blank one, is not inherited. A rolling summary does not count."""
    a_run(store, summary=None, records=[a_final("So far.", "rolling"), a_final("  \n")])
    assert inherited(store) is None
    assert reason(store) == "It has no final summary."
    assert "WARNING" in {record.levelname for record in caplog.records}


def test_7_2_no_final_summary_does_not_hide_an_older_run(store):
    """The next older one is tried."""
    old = a_run(store, at="2024-01-10T00:00:00.000000Z")
    a_run(store, summary=None)
    assert inherited(store) == old


def test_7_2_the_last_final_summary_of_the_store_is_used(store):
    """If the row has no summary, the records are read."""
    a_run(store, summary=None, records=[a_final("One."), a_final("Two."), a_final("Three.", "rolling")])
    assert found(store).previous.summary == "Two."


def test_7_2_too_many_tokens_are_reduced(store):
    """A summary that is far too long is cut, in real tokens, whatever the language."""
    a_run(store, summary="合計の計算を直しました。" * 4000)
    made = prepared(store)
    assert made.left_out == ("end of the summary",)
    assert 7000 < made.tokens <= made.max_tokens == 8000


# 7.3: the database


class Away(MemoryStore):
    """A store that fails a number of times."""

    def __init__(self, error, times):
        super().__init__()
        self.error, self.times, self.asked = error, times, 0

    def find(self, query=None):
        self.asked += 1
        if self.asked <= self.times:
            raise self.error
        return super().find(query)


def test_7_3_connection_failed_is_retried(caplog):
    """After two failures the run is found."""
    store = Away(StoreUnavailable("away"), 0)
    uuid = a_run(store)
    store.asked, store.times = 0, 2
    assert inherited(store) == uuid
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_7_3_connection_failed_three_times_is_a_new_task(caplog):
    """After three failures an error is logged, and nothing is inherited."""
    store = Away(StoreUnavailable("away"), 99)
    result = found(store)
    assert (result.previous, store.asked) == (None, 3)
    assert "away" in result.problem
    assert [record.levelname for record in caplog.records] == ["ERROR"]


@pytest.mark.parametrize(
    "error", [Corrupt("not a database"), sqlite3.DatabaseError("malformed"), ValueError("odd row")]
)
def test_7_3_query_error_is_a_new_task(error, caplog):
    """Any other error is logged and not retried."""
    store = Away(error, 99)
    assert (inherited(store), store.asked) == (None, 1)
    assert [record.levelname for record in caplog.records] == ["ERROR"]


def test_7_3_query_error_of_a_real_file(files, caplog):
    """A missing table is an error. A row that cannot be read is left out with a warning."""
    uuid = a_run(files)
    files.database.change("UPDATE tasks SET status = 'odd' WHERE uuid = ?", uuid)
    assert inherited(files) is None
    assert {record.levelname for record in caplog.records} == {"WARNING"}
    files.database.change("DROP TABLE tasks")
    assert inherited(files) is None
    assert [record.levelname for record in caplog.records][-1] == "ERROR"


# 9: the log


def test_9_1_log_levels(store, caplog):
    """A run that is used is logged at INFO, the query and the filter at DEBUG."""
    caplog.set_level(logging.DEBUG, "orihon")
    failed = a_run(store, "failed")
    uuid = a_run(store)
    caplog.clear()
    prepared(store)
    said = {
        level: [one.getMessage() for one in caplog.records if one.levelname == level] for level in ("INFO", "DEBUG")
    }
    assert len(said["INFO"]) == 2
    assert all(f"[uuid:{uuid[:8]}]" in text for text in said["INFO"])
    assert any("task_key or linked_key" in text for text in said["DEBUG"])
    assert any(f"[uuid:{failed[:8]}]" in text and "failed" in text for text in said["DEBUG"])
    assert {record.name for record in caplog.records} == {"orihon"}


# odd pasts


@pytest.mark.parametrize(
    "at",
    ["2024-02-01", "2024-02-01 10:00:00", "2024-02-01T19:00:00+09:00", "2024-02-01T10:00:00", "20240201T100000Z"],
)
def test_dates_of_other_forms_are_understood(store, at):
    """A copied row may have its time in another ISO form."""
    uuid = a_run(store, at=at)
    assert inherited(store) == uuid
    assert found(store).previous.ended.startswith("2024-02-01T")
    assert inherited(store, now="2024-05-02T10:00:01.000000Z") is None


@pytest.mark.parametrize(
    "at", ["yesterday", "", "0", "9" * 50, "2024-99-99T00:00:00Z", "0001-01-01T00:00:00+14:00", "日曜"]
)
def test_dates_that_are_not_readable(store, at):
    """Without a readable end the beginning counts. Without either, the run is not inherited."""
    uuid = a_run(store)
    with store.lease(uuid) as lease:
        lease.update(completed_at=at)
    assert inherited(store) == uuid
    with store.lease(uuid) as lease:
        lease.update(created_at="?")
    result = found(store)
    assert result.previous is None
    assert result.skipped[0].reason == "It does not say when it ended."


def test_a_date_in_the_future_is_fresh(store):
    """Clocks of two machines may differ."""
    uuid = a_run(store, at="2031-01-01T00:00:00.000000Z")
    assert inherited(store) == uuid
    assert inherited(store, context_expiry_days=0) == uuid


def test_a_row_with_an_impossible_expiry_is_no_matter(store):
    """Any number of days can be set."""
    uuid = a_run(store, at="1970-01-01T00:00:00.000000Z")
    assert inherited(store, context_expiry_days=10**15) == uuid


# ten runs


def prepared(store, key=KEY, **options):
    given = {"settings": ContextInheritance(across_users=True), "user": "alice", "now": NOW, "language": "ja"} | options
    return prepare(store, key, counter=counter("estimate"), context_length=128_000, **given)


def test_ten_runs_of_one_issue(store):
    """Each run inherits from the newest usable one, within the cap, and other keys are not touched."""
    others = [
        a_run(store, key="github/acme/shop/issue/2", summary="other issue"),
        a_run(store, key="github/acme/other/issue/1", summary="other repository"),
        a_run(store, key="local/issue/notes", user="bob", summary="other user's"),
    ]
    before = {uuid: msgspec.json.encode(store.row(uuid)) for uuid in others}
    expected = None
    for number in range(1, 11):
        made = prepared(store, user=f"user{number}")
        assert (made and made.uuid) == expected
        if made:
            assert made.tokens <= made.max_tokens
            assert f"run {number - 1}" in made.text or f"run {number - 2}" in made.text
            assert "other" not in made.text
        status = "failed" if number % 4 == 0 else "stopped" if number % 3 == 0 else "completed"
        said = f"This was run {number}. " + "長い要約。" * 900 * number
        uuid = a_run(store, status, summary=said, at=f"2024-02-{number:02}T00:00:00.000000Z", user=f"user{number}")
        expected = expected if status == "failed" else uuid
    assert {uuid: msgspec.json.encode(store.row(uuid)) for uuid in others} == before
