"""Folds that are made while the model thinks: the same windows, without the wait."""

import threading

import pytest

import orihon
from orihon.errors import NotWritten
from orihon.records import Event, Fold
from orihon.settings import Settings
from orihon.stores.base import Lease
from orihon.task import ahead
from support.replies import KEY, TOOLS, calling, turn

LENGTH = 24_000
NEARLY = (0.97 - ahead.AHEAD) * (LENGTH - 1000)


@pytest.fixture
def engine(disk_url):
    with orihon.open(disk_url, settings=Settings()) as engine:
        yield engine


@pytest.fixture
def task(engine):
    with started(engine) as task:
        yield task


def started(engine):
    task = engine.start(KEY, tools=TOOLS, context_length=LENGTH, reserved_output=1000)
    task.add("system", "You fix bugs.")
    task.add("user", "Fix the basket.")
    return task


def result(number):
    return "\n".join(
        f"{number}-{line}: the price of item {line * number} is {line} yen" for line in range(25)
    )  # less than AHEAD


def go_on(task, number):
    return turn(task, calling(("read_file", {"path": f"src/{number}.py"})), [result(number)])


def until_nearly_full(task):
    """Rounds up to the window that is nearly full, which is the last one that was handed out; how many."""
    for number in range(1, 100):
        window = task.window()
        if window.tokens > (0.97 - ahead.AHEAD) * window.report.limit:
            return number
        assert not window.report.reasons
        go_on(task, number)
    raise AssertionError


def folds_of(task):
    return [event for event in task.lease.store.read(task.uuid, Event) if event.type == "folds"]


def wait():
    for thread in threading.enumerate():
        if thread.name == "orihon-fold":
            thread.join()


def test_the_next_window_only_says_that_the_fold_counts(task, engine, monkeypatch):
    """Nothing is folded in the turn itself, and what comes out is what the log says."""
    number = until_nearly_full(task)
    wait()
    assert folds_of(task) == []
    stored = [fold.id for fold in task.lease.store.read(task.uuid, Fold)]
    assert stored
    go_on(task, number)
    with monkeypatch.context() as patch:
        patch.setattr("orihon.context.window.pick", None)  # whoever folds now fails
        window = task.window()
    (event,) = folds_of(task)
    assert (event.data["first"], event.data["last"]) == (stored[0], stored[-1])
    assert window.tokens < NEARLY * 0.7
    assert "more than 94%" in window.report.reasons[0]
    assert window.openai() == engine.read(task.uuid).window().openai()


def test_the_same_window_again_is_the_same(engine):
    """Also for whoever goes on after a crash, before the fold counts; without it, it is made when it must be."""
    task = started(engine)
    number = until_nearly_full(task)
    wait()
    before = task.window().openai()
    assert task.window().openai() == before
    task.lease.close()  # as if it had died
    with engine.resume(task.uuid) as again:
        assert again.window().openai() == before
        wait()
        assert folds_of(again) == []
        again._prepared = None  # and once more, after a reply
        windows = [go_on(again, more) for more in range(number, number + 5)]
        assert any("more than 9" in reason for window in windows for reason in window.report.reasons)
        assert len(folds_of(again)) == 1


def test_whoever_needs_the_task_next_waits(task, monkeypatch):
    """So that a model that answers at once finds the same log as a slow one."""
    steps = []
    lay_by = task.lay_by
    monkeypatch.setattr(task, "lay_by", lambda batch: steps.append("folded") or lay_by(batch))
    number = until_nearly_full(task)
    task.add_reply(calling(("read_file", {"path": f"src/{number}.py"})))
    steps.append("replied")
    assert steps == ["folded", "replied"]


def test_stand_ins_are_on_the_disk_before_somebody_waits_for_them(task, monkeypatch):
    """The window that they count in has only its own lines to sync."""
    steps = []
    lay_by, sync = task.lay_by, task.lease.sync
    monkeypatch.setattr(task, "lay_by", lambda batch: steps.append("folded") or lay_by(batch))
    monkeypatch.setattr(task.lease, "sync", lambda: steps.append("synced") or sync())
    until_nearly_full(task)
    wait()
    assert steps[-3:] == ["synced", "folded", "synced"]  # the first of them for the window


def test_what_was_made_for_another_view_is_not_used(task):
    """A pin holds from the next fold on, so the next fold must know of it."""
    number = until_nearly_full(task)
    wait()
    task.pin(4)
    go_on(task, number)
    for more in range(number + 1, number + 10):
        window = go_on(task, more)
        if window.report.reasons:
            break
    assert len(folds_of(task)) == 1
    assert any(result(1) == message.text for message in window.messages)


def test_what_was_made_for_other_tools_is_not_used(task, engine):
    """A call to a tool that is gone has another name in the window."""
    number = until_nearly_full(task)
    wait()
    task.switch(tools=[{"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}])
    turn(task, calling(("search", {"query": "price"})), [result(number)])
    for more in range(number + 1, number + 10):
        window = turn(task, calling(("search", {"query": f"price {more}"})), [result(more)])
        if window.report.reasons:
            break
    assert len(folds_of(task)) == 1
    assert window.openai() == engine.read(task.uuid).window().openai()[: len(window.messages)]
    assert {call.name for message in window.messages for call in message.tool_calls} == {"search", "dummy"}


def test_a_fold_that_cannot_be_stored_is_made_when_it_must_be(task, monkeypatch, caplog):
    """The disk is full for a moment, and nobody loses a turn by it."""
    append = Lease.append

    def full(lease, record):
        if isinstance(record, Fold):
            raise NotWritten("The disk is full.")
        return append(lease, record)

    with monkeypatch.context() as patch:
        patch.setattr(Lease, "append", full)
        number = until_nearly_full(task)
        wait()
    assert "could not be made ahead: The disk is full" in caplog.text
    for more in range(number, number + 10):
        window = go_on(task, more)
        if window.report.reasons:
            break
    assert len(folds_of(task)) == 1


def test_a_small_window_is_folded_when_it_must_be(engine):
    """There is nothing to gain, and a thread for it would cost more."""
    with engine.start(KEY, tools=TOOLS, context_length=6000, reserved_output=1000) as task:
        task.add("user", "Fix the basket.")
        windows = [go_on(task, number) for number in range(1, 20)]
        assert task._prepared is None
        assert any("more than 97%" in reason for window in windows for reason in window.report.reasons)


def test_between_two_folds_windows_only_grow(task):
    """Also where folds are made ahead."""
    before, folds = [], 0
    for number in range(1, 130):
        window = go_on(task, number)
        messages = window.openai()
        if window.report.reasons:
            folds += 1
        else:
            assert messages[: len(before)] == before
        before = messages
    assert folds == len(folds_of(task)) >= 3
