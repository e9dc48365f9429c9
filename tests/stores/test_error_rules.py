"""The rules for errors: what reaches the caller, what is tried again, what is made again."""

import os
import sqlite3

import pytest

from orihon.errors import NotWritten, OutcomeUnknown, StoreError, StoreUnavailable, UsageError
from orihon.records import Message
from orihon.stores import files, open_store
from orihon.stores.base import Options
from orihon.stores.jsonl.store import JsonlStore
from orihon.testing.samples import a_message, a_task


@pytest.fixture
def store(tmp_path):
    """An empty store."""
    with JsonlStore(tmp_path / "contexts") as store:
        yield store


def no_space(*_, **__):
    raise OSError(28, "No space left on device")


def test_a_directory_that_cannot_be_made_reaches_the_caller(tmp_path):
    """ディレクトリ作成失敗: the error is raised, in our words."""
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match="file"):
        JsonlStore(tmp_path / "file" / "contexts")


def test_a_line_that_cannot_be_written_reaches_the_caller(store, monkeypatch):
    """JSONLines書き込み失敗: NotWritten, the line is not there, and the next one gets its number."""
    task = a_task()
    with store.lease(task.uuid, create=task) as lease:
        lease.append(a_message("first"))
        monkeypatch.setattr(os, "write", no_space)
        with pytest.raises(NotWritten, match="No space"):
            lease.append(a_message("lost"))
        monkeypatch.undo()
        assert lease.append(a_message("second")) == 2
    assert [message.content for message in store.read(task.uuid, Message)] == ["first", "second"]


def test_what_cannot_be_read_is_reported_and_the_rest_is_given(tmp_path):
    """読み込み失敗: what is readable comes, what is not is named with file, line and reason."""
    problems = []
    task = a_task()
    with JsonlStore(tmp_path / "contexts", Options(report=problems.append)) as store:
        with store.lease(task.uuid, create=task) as lease:
            for number in range(3):
                lease.append(a_message(f"m{number}"))
        log = tmp_path / "contexts" / "running" / task.uuid / "messages.jsonl"
        first, second, third = log.read_bytes().splitlines(keepends=True)
        log.write_bytes(first + b"garbage" + second[7:] + third)
        assert [message.content for message in store.read(task.uuid, Message)] == ["m0", "m2"]
    assert [(problem.line, problem.where.endswith("messages.jsonl")) for problem in problems] == [(2, True)]
    assert "cannot be read" in problems[0].reason


def test_a_list_that_is_not_there_is_empty(store):
    """Nothing written yet is not an error."""
    task = a_task()
    store.lease(task.uuid, create=task).close()
    assert list(store.read(task.uuid, Message)) == []


def test_a_database_that_cannot_be_opened_reaches_the_caller(tmp_path):
    """接続失敗: the error is raised."""
    (tmp_path / "contexts").mkdir(mode=0o700)
    (tmp_path / "contexts" / "tasks.db").mkdir()
    with pytest.raises(StoreError, match=r"tasks\.db"):
        JsonlStore(tmp_path / "contexts")


def test_an_update_is_tried_three_times(store, monkeypatch):
    """INSERT/UPDATE失敗: two failures are overcome, the third reaches the caller."""
    task = a_task()
    with store.lease(task.uuid, create=task) as lease:
        failures = []
        transact = store.database.transact

        def failing(*arguments, **options):
            if len(failures) < failures_wanted:
                failures.append(1)
                raise StoreUnavailable("tasks.db cannot be used now: disk I/O error.")
            return transact(*arguments, **options)

        monkeypatch.setattr(store.database, "transact", failing)
        failures_wanted = 2
        assert lease.update(add={"total_tokens": 5}).total_tokens == 5
        failures.clear()
        failures_wanted = 3
        with pytest.raises(OutcomeUnknown, match="not its row"):
            lease.update(add={"total_tokens": 5})
        monkeypatch.undo()
        assert lease.update(add={"total_tokens": 1}).total_tokens == 6  # what failed is not counted


def test_a_table_that_was_dropped_is_made_again(store, tmp_path):
    """テーブル不存在: the next write finds a table, and the row is back."""
    task = a_task()
    with store.lease(task.uuid, create=task) as lease:
        with sqlite3.connect(tmp_path / "contexts" / "tasks.db") as other:
            other.execute("DROP TABLE tasks")
        other.close()
        lease.update(activity="processing")
    assert store.row(task.uuid).activity == "processing"


@pytest.mark.parametrize("url", ["", "redis://x", "sqlite:contexts.db", "sqlite://", "postgresql:", "a\0b"])
def test_a_url_that_names_no_store_says_what_is_allowed(url):
    """A wrong URL is a usage error with the list of right ones."""
    with pytest.raises(UsageError) as caught:
        open_store(url)
    assert "sqlite:///FILE" in caught.value.hint


def test_disk_errors_are_translated():
    """A full disk is NotWritten with a way out, anything else says that the place cannot be used."""
    with pytest.raises(NotWritten, match="full"), files.disk_errors("The disk is full"):
        no_space()
    with pytest.raises(StoreUnavailable, match="Input/output"), files.disk_errors("It"):
        raise OSError(5, "Input/output error")
