"""The raw form of a message comes back, and a window says what each of its messages is of the log."""

import os

import pytest

import orihon
from orihon.errors import UsageError
from orihon.ops.copy import copy_tasks
from orihon.records import Message
from orihon.settings.schema import Settings
from support.replies import KEY, calling

RAW = {"type": "reasoning", "id": "rs_1", "encrypted_content": "gAAAAB==", "n": [1, None, True, 1.5]}


def test_the_raw_form_comes_back(engine):
    """From the window, from the store, and after a resume, equal to what was given."""
    with engine.start(KEY) as task:
        task.add("user", "hello", raw=RAW)
        task.add("assistant", "hi")
        assert [item.raw for item in task.window().items()] == [RAW, None]
        task.pause()
    with engine.resume(task.uuid) as task:
        assert [item.raw for item in task.window().items()] == [RAW, None]
        assert "rs_1" not in str(task.window().openai())
        task.pause()


def test_a_large_raw_form_is_a_blob(engine):
    """It comes back as it was given, and the line of the message stays small."""
    raw = {"data": os.urandom(300_000).hex()}
    with engine.start(KEY) as task:
        task.add("user", "hello", raw=raw)
        (stored,) = engine.store.read(task.uuid, Message)
        assert stored.raw.value is None
        assert [item.raw for item in task.window().items()] == [raw]


def test_a_raw_form_is_masked(engine):
    """The message says so."""
    with engine.start(KEY) as task:
        task.add("user", "hello", raw={"text": "token ghp_" + "a1B2" * 9})
        (stored,) = engine.store.read(task.uuid, Message)
        assert "ghp_" not in str(stored.raw)
        assert stored.masked


def test_a_raw_form_that_is_no_json_is_refused(engine):
    """Nothing is stored."""
    with engine.start(KEY) as task:
        with pytest.raises(UsageError, match="raw"):
            task.add("user", "hello", raw=object())
        assert task.log.last == 0


def test_a_copy_has_the_raw_form(engine, tmp_path):
    """A large one too."""
    raws = [RAW, {"data": os.urandom(300_000).hex()}]
    with engine.start(KEY) as task:
        for raw in raws:
            task.add("user", "hello", raw=raw)
    with orihon.open(tmp_path / "copy", settings=Settings()) as other:
        copy_tasks(engine.store, other.store)
        window = other.read(task.uuid).window()
        assert [item.raw for item in window.items() if item.form == "whole"] == raws


def test_what_each_message_is(engine):
    """Whole messages have their raw form; folded ones and the words of the engine have none."""
    with engine.start(KEY, context_length=4_000, reserved_output=0) as task:
        task.add("system", "You read.", raw="system")
        task.add("user", "Read all files.", raw="request")
        for number in range(12):
            task.add_reply(calling(("read_file", {"path": f"f{number}.py"})))
            (call,) = task.pending_calls()
            task.add("tool", f"line of f{number}.py with words\n" * 120, tool_call_id=call.id, raw=number)
        window = task.window()
        items = list(window.items())
    assert [item.message for item in items] == window.messages
    assert {item.form for item in items} >= {"whole", "folded"}
    stored = {message.seq: message for message in engine.store.read(task.uuid, Message)}
    for item in items:
        if item.form == "whole":
            assert item.message.content == stored[item.seq].content
            assert item.raw == (stored[item.seq].raw.value if stored[item.seq].raw else None)
        else:
            assert item.raw is None
            assert item.seq == 0 or item.message.content != stored[item.seq].content
    assert [item.raw for item in items][:2] == ["system", "request"]
    assert items[-1].raw == 11
    assert window.report.folded == sum(item.form == "folded" for item in items)


def test_an_interrupted_call_is_explained_by_a_mark(engine):
    """The call is whole, and the result that the engine made up is none of the log."""
    with engine.start(KEY) as task:
        task.add("user", "Read.")
        task.add_reply(calling(("read_file", {})))
        task.add("user", "And?")
        assert [(item.seq, item.form) for item in task.window().items()] == [
            (1, "whole"),
            (2, "whole"),
            (2, "mark"),
            (3, "whole"),
        ]


def test_an_exact_rewind_ends_inside_a_unit(engine):
    """A usual one keeps the results with their call."""
    with engine.start(KEY) as task:
        task.add("user", "Read.")
        task.add_reply(calling(("read_file", {}), ("read_file", {})))
        for call in task.pending_calls():
            task.add("tool", "text", tool_call_id=call.id)
        task.rewind(3)
        assert task.log.view.shows(4)
        task.rewind(3, exact=True)
        assert task.log.view.shows(3)
        assert not task.log.view.shows(4)
        assert len(task.pending_calls()) == 1
