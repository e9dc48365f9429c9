"""What a task keeps in memory: the newest messages, bounded in number and in bytes, and no more."""

import msgspec

from orihon.context.view import View
from orihon.errors import NotFound
from orihon.records import Message
from orihon.settings.schema import Settings
from orihon.stores import open_store
from orihon.task.config import TaskConfig
from orihon.task.log import RECENT_BYTES, TaskLog
from orihon.testing.samples import a_message, a_task


def history_of(count, size=10, **options):
    store = open_store("memory:")
    task = a_task()
    lease = store.lease(task.uuid, create=task)
    for number in range(1, count + 1):
        lease.append(a_message(f"{number} " + "x" * size))
    return lease, TaskLog(store, task.uuid, TaskConfig(**options), View(), last=count)


def test_the_newest_few_are_remembered_and_read_without_the_store(monkeypatch):
    """The seeds' cache; older ones are read when they are asked for."""
    lease, history = history_of(50)
    monkeypatch.setattr(lease.store, "read", lambda *_, **__: iter(()))
    assert [message.seq for message in history.read(31, 50)] == list(range(31, 51))
    assert list(history.read(30, 50)) == []  # the store was asked, and has nothing to say here


def test_bounded_in_bytes():
    """Large messages leave earlier."""
    lease, history = history_of(50, size=200_000)  # just small enough to stay in the line
    kept = list(history._recent.values())
    assert len(kept) == RECENT_BYTES // 200_514
    assert [message.seq for message in history.read(1, 50)] == list(range(1, 51))
    lease.append(a_message("y" * 200_000))
    history.remember(lease.newest)
    assert history._recent_bytes <= RECENT_BYTES
    assert [message.seq for message in history.read(50, 51)] == [50, 51]


def test_backwards_sees_every_message_once():
    """Over the border between memory and store, and over gaps."""
    _, history = history_of(300)
    assert [message.seq for message in history.backwards(((1, 300),))] == list(range(300, 0, -1))
    assert [message.seq for message in history.backwards(((5, 7), (279, 282), (299, 400)))] == [
        300, 299, 282, 281, 280, 279, 7, 6, 5
    ]  # fmt: skip


def test_a_message_that_somebody_else_stored_is_not_missed():
    """After an append of unknown outcome the numbers go on behind it, and it is there."""
    lease, history = history_of(10)
    lease.append(a_message("unseen"))
    lease.append(a_message("seen"))
    history.catch_up()
    assert [message.text for message in history.read(11, 12)] == ["unseen", "seen"]


def test_a_lost_blob_is_shown_by_its_beginning(monkeypatch, caplog):
    """A window is made all the same, and the log says why."""
    lease, history = history_of(1)
    lease.append(a_message("begin " + "z" * 400_000))
    history.remember(lease.newest)
    (message,) = history.read(2, 2)
    assert len(message.content) == 400_006
    monkeypatch.setattr(history, "load", _lost)
    (message,) = history.read(2, 2)
    assert message.content.startswith("begin")
    assert "shown by its beginning" in caplog.text


def _lost(_):
    raise NotFound(kind="blob", id="x")


def test_what_is_frozen_is_thawed():
    """A task keeps its settings; a field that cannot be read has its default, and the others stay."""
    config = TaskConfig.from_settings(Settings(), context_length=9000, model="m", tools=[{"name": "a"}])
    stored = msgspec.to_builtins(config)
    assert TaskConfig.from_metadata(stored) == config
    assert TaskConfig.from_metadata(stored | {"context_length": "many", "later": 1}) == msgspec.structs.replace(
        config, context_length=128_000
    )
    assert TaskConfig.from_metadata({}) == TaskConfig()


def test_messages_keep_their_type():
    """What is remembered is what is stored."""
    _, history = history_of(3)
    assert all(isinstance(message, Message) and message.tokens for message in history.read(1, 3))
