"""What a tool may give back: anything at all, and the task goes on."""

import pytest

from support.replies import KEY, TOOLS, calling
from support.wire_rules import violations

TOKEN = "ghp_" + "a1B2c3D4" * 4 + "e5F6"


def begun(engine, **options):
    task = engine.start(KEY, tools=TOOLS, inherit=False, **options)
    task.add("system", "You fix bugs.")
    task.add("user", "Fix the basket.")
    return task


class Mute(Exception):
    """Cannot even say what it is."""

    def __str__(self):
        raise RuntimeError("no words")

    __repr__ = __str__


class Odd:
    """Looks like an SDK's object, and is none."""

    def model_dump(self):
        return {}


class Text:
    """As the objects of MCP are: a dict is in them."""

    def model_dump(self, mode):
        return {"type": "text", "text": "seen", "annotations": None, "_meta": mode}


def cycle():
    found = []
    found += [found, found]
    return found


@pytest.mark.parametrize(
    ("result", "shown"),
    [
        (Mute(), '"[a Mute that cannot be shown]"'),
        ([Mute()], '["[a Mute that cannot be shown]"]'),
        (cycle(), "[nested in itself]"),
        (Odd(), "The result cannot be read: TypeError"),
        ([Text(), Text()], "seen\nseen"),
        ([{"type": "text", "value": "a node"}], '[{"type": "text", "value": "a node"}]'),
        ([{"type": "image", "source": "s3"}], '[{"type": "image", "source": "s3"}]'),
        ([{"type": "text", "text": "word " * 40_000}] * 100, "The result cannot be stored: A Message has"),
    ],
    ids=["mute", "mute in a list", "cycle", "odd object", "objects", "no text part", "no image part", "too large"],
)
def test_any_result_is_an_answer(engine, result, shown):
    """What cannot be read or kept is said so; a value that only looks like a part is kept as a value."""
    with begun(engine) as task:
        task.add_reply(calling(("read_file", {"path": "a.py"})))
        with task.tool(task.pending_calls()[0]) as run:
            run.result = result
        assert task.pending_calls() == []
        answer = task.window().openai()[-1]
        assert (answer["role"], shown in answer["content"]) == ("tool", True)
        assert violations("openai", task.window().openai()) == []
    (record,) = engine.read(task.uuid).tools()
    assert record.status == ("error" if shown.startswith("The result") else "success")


def test_an_exception_that_cannot_be_shown(engine):
    """It is an answer inside a tool, and a reason outside of one."""
    with pytest.raises(Mute), begun(engine) as task:
        task.add_reply(calling(("read_file", {"path": "a.py"})))
        with task.tool(task.pending_calls()[0]):
            raise Mute
        assert task.window().openai()[-1]["content"] == "Mute: [a Mute that cannot be shown]"
        raise Mute
    assert engine.row(task.uuid).error_message == "Mute: [a Mute that cannot be shown]"


def test_what_is_cut_short_was_masked_before(engine):
    """Half a secret is not recognised any more, so a cut never comes first."""
    with begun(engine) as task:
        task.add_reply(calling(("read_file", {"path": "x" * 95 + " " + TOKEN})))
        with task.tool(task.pending_calls()[0]):
            raise ValueError("y" * 1970 + " " + TOKEN)
    reader = engine.read(task.uuid)
    assert "ghp_" not in str([*reader.messages(), *reader.tools(), *reader.events()])


def test_arguments_larger_than_a_line(engine):
    """The log keeps them whole; the list of the runs says how long they were."""
    text = "x y " * 4_500_000
    with begun(engine) as task:
        task.add_reply(calling(("read_file", {"path": text})))
        (call,) = task.pending_calls()
        assert call.arguments == {"path": text}
        with task.tool(call) as run:
            run.result = "ok"
        assert task.window().openai()[-1]["content"] == "ok"
    (record,) = engine.read(task.uuid).tools()
    assert record.args == {"…": "18,000,012 characters"}


def test_tools_jsonl_says_what_was_cut_and_where_the_whole_is(engine):
    """000 §3.5: `result` 「実行結果」, and `error` 「エラーメッセージ」."""
    with begun(engine) as task:
        for fails in (False, True):
            task.add_reply(calling(("read_file", {"path": "main.py"})))
            with task.tool(task.pending_calls()[0]) as run:
                run.result, run.is_error = "...file content..." * 200, fails
    reader = engine.read(task.uuid)
    whole, failed = reader.tools()
    messages = {message.seq: message.text for message in reader.messages()}
    for text, seq in ((whole.result, whole.message_seq), (failed.error, failed.message_seq)):
        assert text.startswith("...file content...")
        assert text.endswith(f"… [cut: 3,600 characters, all in message {seq}]")
        assert messages[seq] == "...file content..." * 200
