"""`state.json` is not synced in every turn: what a power cut may leave of it, and what is made of that."""

import json
import os

import pytest

import orihon
from orihon.errors import OutcomeUnknown
from orihon.records import TaskRow
from orihon.settings.schema import Settings
from orihon.stores import open_store
from orihon.stores.files import replace_file
from orihon.stores.jsonl.layout import KEPT
from orihon.testing.contract import a_message, a_task
from orihon.testing.faults import Faults
from support.replies import KEY, TOOLS, calling, turn

TASK = a_task()
TORN = {"empty": lambda _: b"", "zeros": lambda data: b"\0" * len(data), "half": lambda data: data[: len(data) // 2]}


@pytest.fixture
def place(tmp_path):
    return tmp_path / "contexts"


def torn(place, how, where="running"):
    """The state as a power cut may leave it."""
    file = place / where / TASK.uuid / "state.json"
    file.write_bytes(TORN[how](file.read_bytes()))
    return file


def row_of(place) -> TaskRow:
    with open_store(place) as store:
        return store.row(TASK.uuid)


def forget_rows(place):
    for file in place.glob("tasks.db*"):
        file.unlink()


@pytest.mark.parametrize("how", TORN)
def test_the_state_of_the_last_change_of_status_is_still_there(place, how):
    """Without a table, too: status and counters are those that were promised to last."""
    with open_store(place) as store, store.lease(TASK.uuid, create=TASK) as lease:
        lease.update(add={"llm_call_count": 3}, status="paused")
        lease.update(status="running", add={"llm_call_count": 4})
        lease.update(add={"llm_call_count": 1}, last_activity="llm_reply")
    torn(place, how)
    forget_rows(place)
    row = row_of(place)
    assert (row.status, row.llm_call_count) == ("running", 7)


@pytest.mark.parametrize("how", TORN)
def test_a_newer_row_says_more(place, how):
    """The table had it all, as it nearly always has."""
    with open_store(place) as store, store.lease(TASK.uuid, create=TASK) as lease:
        lease.update(add={"llm_call_count": 8}, last_activity="llm_reply")
    torn(place, how)
    assert row_of(place).llm_call_count == 8


@pytest.mark.parametrize("newer_first", [True, False])
def test_a_state_of_two_halves_is_none(place, newer_first):
    """A disk writes sector by sector: the beginning of one state with the end of another is noticed."""
    file = place / "running" / TASK.uuid / "state.json"
    with open_store(place) as store, store.lease(TASK.uuid, create=TASK) as lease:
        halves = []
        for count in (5, 1):
            lease.update(add={"llm_call_count": count}, last_activity="llm_reply")  # of one length
            halves.append(file.read_bytes())
    first, second = reversed(halves) if newer_first else halves
    file.write_bytes(first[:512] + second[512:])
    assert json.loads(file.read_bytes())["llm_call_count"] == (6 if newer_first else 5)
    assert row_of(place).llm_call_count == 6  # as the table says, which is newer than what was kept
    forget_rows(place)
    file.write_bytes(first[:512] + second[512:])
    assert row_of(place).llm_call_count == 0


def test_the_end_of_a_lease_lasts(place):
    """Whoever takes the task next keeps what the one before had counted."""
    with open_store(place) as store:
        with store.lease(TASK.uuid, create=TASK) as lease:
            lease.update(add={"llm_call_count": 8})
        with store.lease(TASK.uuid) as lease:
            lease.update(add={"llm_call_count": 1})
    torn(place, "zeros")
    forget_rows(place)
    assert row_of(place).llm_call_count == 8


@pytest.mark.parametrize("status", ["completed", "stopped", "failed"])
def test_a_task_that_ended_needs_no_second_state(place, status):
    """Its state is on the disk whenever it changes."""
    with open_store(place) as store:
        with store.lease(TASK.uuid, create=TASK) as lease:
            assert (place / "running" / TASK.uuid / KEPT).exists()
            lease.update(status=status)
        synced = []
        with Faults(watch=lambda name, *_: synced.append(name)), store.lease(TASK.uuid) as lease:
            synced.clear()
            lease.update(kept=True)
            assert "fsync" in synced
    assert not (place / "completed" / TASK.uuid / KEPT).exists()
    assert row_of(place).kept


def test_a_change_of_status_that_failed_by_half_does_not_come_back(place, monkeypatch):
    """The disk was full when the second file was written; what is said afterwards holds."""
    kept = place / "running" / TASK.uuid / KEPT

    def full(name, *args, **options):
        if name == KEPT:
            raise OSError(28, "No space left on device")
        replace_file(name, *args, **options)

    with open_store(place) as store, store.lease(TASK.uuid, create=TASK) as lease:
        with monkeypatch.context() as patch:
            patch.setattr("orihon.stores.jsonl.layout.replace_file", full)
            with pytest.raises(OutcomeUnknown, match="may not last: No space left"):
                lease.update(status="paused")
        before = kept.read_bytes()
        lease.update(add={"llm_call_count": 2})
        assert kept.read_bytes() != before
        assert b'"status": "running"' in kept.read_bytes()
        lease.update(add={"llm_call_count": 2})
        assert b'"llm_call_count": 2,' in kept.read_bytes()  # only the first one had to last
    assert row_of(place).status == "running"


def test_a_turn_waits_for_three_lists_and_nothing_else(place):
    """Messages, tools and events: before the model is asked, what it will answer to is on the disk."""
    with orihon.open(place, settings=Settings()) as engine, engine.start(KEY, tools=TOOLS) as task:
        task.add("user", "Fix the basket.")
        for number in range(3):
            turn(task, calling(("read_file", {"path": f"{number}.py"})), ["text"])
        calls = []
        with Faults(watch=lambda name, *_: calls.append(name)):
            turn(task, calling(("read_file", {"path": "last.py"})), ["text"])
        assert calls.count("fsync") == 3
        assert calls.count("link") == 4  # of `state.json`, before and after the model and the tool


def test_lists_are_on_their_way_together(place, monkeypatch):
    """The disk has begun with all of them before it is waited for; a hint that it does not take is no error."""
    steps = []
    fsync = os.fsync
    monkeypatch.setattr("os.fsync", lambda fd: steps.append("wait") or fsync(fd))
    with orihon.open(place, settings=Settings()) as engine, engine.start(KEY, tools=TOOLS) as task:
        for number in range(3):
            task.add("user", "Go on.")
            turn(task, calling(("read_file", {"path": f"{number}.py"})), ["text"])
        monkeypatch.setattr("os.posix_fadvise", lambda *_: steps.append("begin"))
        steps.clear()
        task.lease.sync()
        assert steps == ["begin"] * 3 + ["wait"] * 3

        def refused(*_):
            raise OSError(22, "Invalid argument")

        monkeypatch.setattr("os.posix_fadvise", refused)
        task.add("user", "Go on.")
        steps.clear()
        task.lease.sync()
        assert steps == ["wait"]


def test_messages_are_safe_whatever_became_of_the_state(place):
    """The log does not depend on it."""
    with open_store(place) as store, store.lease(TASK.uuid, create=TASK) as lease:
        lease.append(a_message("before the cut"))
        lease.sync()
    torn(place, "empty")
    with open_store(place) as store, store.lease(TASK.uuid) as lease:
        assert lease.append(a_message("after it")) == 2
