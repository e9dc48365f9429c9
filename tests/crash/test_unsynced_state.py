"""`state.json` is synced when the status changes, not in every turn: what a power cut may leave, and what follows."""

import os

import pytest

import orihon
from orihon.errors import OutcomeUnknown
from orihon.records import TaskRow
from orihon.settings.schema import Settings
from orihon.stores import open_store
from orihon.testing.samples import a_message, a_task
from support.faults import Faults
from support.replies import KEY, TOOLS, calling, turn

TASK = a_task()
TORN = {"empty": lambda _: b"", "zeros": lambda data: b"\0" * len(data), "half": lambda data: data[: len(data) // 2]}


@pytest.fixture
def place(tmp_path):
    return tmp_path / "contexts"


def tear(place, how, where="running"):
    """Leave the state as a power cut may leave it."""
    file = place / where / TASK.uuid / "state.json"
    file.write_bytes(TORN[how](file.read_bytes()))


def read_row(place) -> TaskRow:
    with open_store(place) as store:
        return store.row(TASK.uuid)


def count_syncs(work):
    """Return how often a call syncs."""
    calls = []
    with Faults(watch=lambda name, *_: calls.append(name)):
        work()
    return calls.count("fsync")


@pytest.mark.parametrize("how", TORN)
def test_the_table_decides(place, how):
    """The row has the counters, too."""
    with open_store(place) as store, store.lease(TASK.uuid, create=TASK) as lease:
        lease.update(add={"llm_call_count": 8}, last_activity="llm_reply")
    tear(place, how)
    row = read_row(place)
    assert (row.status, row.llm_call_count) == ("running", 8)


@pytest.mark.parametrize("how", TORN)
def test_without_a_table_the_directory_decides(place, how):
    """A change of status moved the task and synced the move; the counters are lost."""
    with open_store(place) as store, store.lease(TASK.uuid, create=TASK) as lease:
        lease.update(status="paused", add={"llm_call_count": 3})
    tear(place, how, where="paused")
    for file in place.glob("tasks.db*"):
        file.unlink()
    row = read_row(place)
    assert (row.status, row.llm_call_count) == ("paused", 0)


def test_a_row_of_another_status_is_not_believed(place):
    """The table was not synced with the move: the directory is newer."""
    with open_store(place) as store:
        with store.lease(TASK.uuid, create=TASK):
            pass
        store.database.change("UPDATE tasks SET status = 'paused'")
    tear(place, "empty")
    assert read_row(place).status == "running"


@pytest.mark.parametrize("status", ["paused", "completed", "stopped", "failed"])
def test_a_change_of_status_is_synced(place, status):
    """Ordinary changes are not; those of an ended task are."""
    with open_store(place) as store, store.lease(TASK.uuid, create=TASK) as lease:
        lease.sync()
        assert count_syncs(lambda: lease.update(add={"llm_call_count": 1})) == 0
        assert count_syncs(lambda: lease.update(status=status)) >= 2  # the file and the directory
        assert bool(count_syncs(lambda: lease.update(kept=True))) == (status != "paused")
    assert read_row(place).kept


def test_the_end_of_a_lease_is_synced(place):
    """The next holder starts from all that the last one counted."""
    synced = []
    with open_store(place) as store:
        lease = store.lease(TASK.uuid, create=TASK)
        lease.update(add={"llm_call_count": 8})
        inode = (place / "running" / TASK.uuid / "state.json").stat().st_ino
        with Faults(watch=lambda name, args, _: synced.append(os.fstat(args[0]).st_ino) if name == "fsync" else None):
            lease.close()
    assert inode in synced


def test_a_change_of_status_that_failed_half_way_does_not_come_back(place, monkeypatch):
    """The state was replaced, but its directory could not be synced: the next state is synced, whatever it says."""
    with open_store(place) as store, store.lease(TASK.uuid, create=TASK) as lease:
        lease.sync()
        state = place / "running" / TASK.uuid / "state.json"
        fsync, failed = os.fsync, []

        def fail_once(fd):
            if b"paused" in state.read_bytes() and not failed:
                failed.append(fd)
                raise OSError(5, "Input/output error")
            fsync(fd)

        with monkeypatch.context() as patch, pytest.raises(OutcomeUnknown, match="may not survive"):
            patch.setattr("os.fsync", fail_once)
            lease.update(status="paused")
        assert count_syncs(lambda: lease.update(add={"llm_call_count": 2})) == 2
        assert count_syncs(lambda: lease.update(add={"llm_call_count": 2})) == 0
    row = read_row(place)
    assert (row.status, row.llm_call_count) == ("running", 4)


def test_a_turn_waits_for_three_lists_and_nothing_else(place):
    """Messages, tools and events are on disk before the model is asked."""
    with orihon.open(place, settings=Settings()) as engine, engine.start(KEY, tools=TOOLS) as task:
        task.add("user", "Fix the basket.")
        for number in range(3):
            turn(task, calling(("read_file", {"path": f"{number}.py"})), ["text"])
        calls = []
        with Faults(watch=lambda name, *_: calls.append(name)):
            turn(task, calling(("read_file", {"path": "last.py"})), ["text"])
        assert calls.count("fsync") == 3
        assert calls.count("replace") == 4  # of `state.json`, before and after the model and the tool


def test_lists_are_written_to_the_disk_together(place, monkeypatch):
    """The disk begins with the others while the first is waited for; a hint that it does not take is no error."""
    steps = []
    fsync = os.fsync
    monkeypatch.setattr("os.fsync", lambda fd: steps.append("wait") or fsync(fd))
    with orihon.open(place, settings=Settings()) as engine, engine.start(KEY, tools=TOOLS) as task:
        for number in range(3):
            task.add("user", "Go on.")
            turn(task, calling(("read_file", {"path": f"{number}.py"})), ["text"])
        monkeypatch.setattr("os.posix_fadvise", lambda *_: steps.append("begin"))
        steps.clear()
        task.writer.lease.sync()
        assert steps == ["begin"] * 2 + ["wait"] * 3

        def refuse(*_):
            raise OSError(22, "Invalid argument")

        monkeypatch.setattr("os.posix_fadvise", refuse)
        task.add("user", "Go on.")
        steps.clear()
        task.writer.lease.sync()
        assert steps == ["wait"]


def test_messages_are_safe_whatever_became_of_the_state(place):
    """The log does not depend on it."""
    with open_store(place) as store, store.lease(TASK.uuid, create=TASK) as lease:
        lease.append(a_message("before the cut"))
        lease.sync()
    tear(place, "empty")
    with open_store(place) as store, store.lease(TASK.uuid) as lease:
        assert lease.append(a_message("after it")) == 2


def test_second_states_of_earlier_versions_are_removed(place):
    """They kept a copy of the state and a spare file; both mean nothing any more."""
    with open_store(place) as store, store.lease(TASK.uuid, create=TASK) as lease:
        lease.update(add={"llm_call_count": 8})
    folder = place / "running" / TASK.uuid
    state = (folder / "state.json").read_bytes()
    (folder / "state.json").write_bytes(state.replace(b"\n}", b',\n  "end_of": "2024-01-01T00:00:00.000000Z"\n}'))
    for name in (".state.json", ".state.json.spare", ".state.json.spare.new"):
        (folder / name).write_bytes(state.replace(b"running", b"paused"))
    with open_store(place) as store:
        assert store.row(TASK.uuid).llm_call_count == 8
        store.lease(TASK.uuid).close()
        assert store.row(TASK.uuid).status == "running"
    assert not list(folder.glob(".state*"))
