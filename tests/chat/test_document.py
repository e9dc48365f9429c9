"""The conversation as one JSON document: everything visible is restored, also from older documents."""

import json

import pytest

import orihon
from orihon.chat import document, registry
from orihon.chat.conversation import CANCELLED
from orihon.errors import UsageError
from orihon.settings.schema import Settings
from support.replies import TOOLS, calling, saying


@pytest.fixture
def engine(tmp_path):
    with orihon.open(tmp_path / "store", settings=Settings()) as engine:
        yield engine


@pytest.fixture
def talk(engine, tmp_path):
    with registry.start(engine, tmp_path, name="shop", tools=TOOLS, model="gpt-4o") as conversation:
        conversation.say("Why does\ntest_total fail?")
        conversation.task.add_reply(calling(("read_file", {"path": "basket.py"})))
        (call,) = conversation.task.pending_calls()
        with conversation.task.tool(call) as run:
            run.result = "def total(): ..."
        conversation.task.add_reply(saying("Because the sum is wrong."))
        conversation.add_error("429: slow down")
        conversation.say("Mend it.")
        conversation.task.add_reply(calling(("run_tests", {})))
        conversation.say("No, wait.")
        conversation.task.add_reply(saying("I wait."))
        yield conversation


def saved(conversation, path):
    count = document.write(conversation, path)
    found = json.loads(path.read_text())
    assert len(found["history"]) == count
    return found


def loaded(engine, path, name="again"):
    return document.read(engine, path, path.parent, name=name, tools=TOOLS)


def without_ids(found):
    text = json.dumps(found["history"])
    for seq in range(30, 0, -1):
        text = text.replace(f'"m{seq}"', '"m"')
    return json.loads(text)


def same(one, other):
    names = ("valid_history_range", "transcript", "mcp_enabled", "model_info", "next_message")
    for name in names:
        assert one.get(name) == other.get(name), name
    stripped = [[{**pair, "user": {**pair["user"], "timestamp": ""}} for pair in without_ids(d)] for d in (one, other)]
    assert stripped[0] == stripped[1]


def test_written_fields(talk, tmp_path):
    found = saved(talk, tmp_path / "talk.json")
    assert (found["format"], found["version"]) == (document.FORMAT, document.VERSION)
    assert found["conversation_id"] == talk.conversation_id
    assert found["valid_history_range"] == [0, 4]
    kinds = [(next(iter(p["user"]["content"])), next(iter(p["assistant"]))) for p in found["history"]]
    assert kinds == [
        ("Prompt", "ToolUse"),
        ("ToolUseResults", "Response"),
        ("Prompt", "ToolUse"),
        ("CancelledToolUses", "Response"),
    ]
    assert found["transcript"][0] == "> Why does\n> test_total fail?"
    assert "429: slow down" in found["transcript"]
    assert found["mcp_enabled"] is True
    assert not {"tool_manager", "agents", "model"} & found.keys(), "rebuilt at run time, or only read"
    assert (tmp_path / "talk.json").stat().st_mode & 0o777 == 0o600


def test_round_trip(engine, talk, tmp_path):
    found = saved(talk, tmp_path / "talk.json")
    with loaded(engine, tmp_path / "talk.json") as again:
        same(found, saved(again, tmp_path / "again.json"))
        assert again.conversation_id != talk.conversation_id
        assert [m.text for m in again.messages()] == [m.text for m in talk.messages()]
        assert again.task.window().openai()[-1] == talk.task.window().openai()[-1]


def test_cancelled_calls(talk, tmp_path):
    found = saved(talk, tmp_path / "talk.json")
    (cancelled,) = [p["user"]["content"] for p in found["history"] if "CancelledToolUses" in p["user"]["content"]]
    assert cancelled["CancelledToolUses"]["prompt"] == "No, wait."
    assert cancelled["CancelledToolUses"]["tool_use_results"][0]["content"] == [{"Text": CANCELLED}]


def test_a_summary_is_restored_with_its_range(engine, talk, tmp_path):
    for number in range(12):
        talk.say(f"{number}: " + "words and more words " * 40)
        talk.task.add_reply(saying("And an answer of some length. " * 20))
    assert talk.task.compact() is not None
    found = saved(talk, tmp_path / "talk.json")
    first, last = found["valid_history_range"]
    assert 0 < first < last == len(found["history"])
    with loaded(engine, tmp_path / "talk.json") as again:
        other = saved(again, tmp_path / "again.json")
        same(found, other)
        assert other["latest_summary"][0] == found["latest_summary"][0]
        shown = "".join(message.text for message in again.task.window().messages)
        assert found["latest_summary"][0] in shown
        starts = [message.text[:8] for message in again.task.window().messages]
        assert "0: words" not in starts, "the summary covers it"
        assert "11: word" in starts


def test_tangents_are_restored(engine, talk, tmp_path):
    talk.enter_tangent()
    talk.say("An aside?")
    talk.task.add_reply(saying("Yes."))
    talk.enter_tangent()
    talk.say("Deeper?")
    talk.task.add_reply(saying("Deep."))
    found = saved(talk, tmp_path / "talk.json")
    inner = found["tangent_state"]
    assert (len(inner["main_history"]), len(inner["tangent_state"]["main_history"])) == (5, 4)
    with loaded(engine, tmp_path / "talk.json") as again:
        same(found, saved(again, tmp_path / "again.json"))
        for one in (talk, again):
            one.leave_tangent()
            one.leave_tangent()
        assert not again.is_in_tangent
        assert [m.text for m in again.messages()] == [m.text for m in talk.messages()]


def test_a_tangent_with_a_rewind(engine, talk, tmp_path):
    """The main and the visible history share only their beginning."""
    talk.enter_tangent()
    talk.task.rewind(4)
    talk.say("Another way?")
    talk.task.add_reply(saying("Another way."))
    main = [m.text for m in talk.messages()]
    saved(talk, tmp_path / "talk.json")
    with loaded(engine, tmp_path / "talk.json") as again:
        assert [m.text for m in again.messages()] == main
        talk.leave_tangent()
        again.leave_tangent()
        assert [m.text for m in again.messages()] == [m.text for m in talk.messages()]


@pytest.mark.parametrize("is_sent", [True, False])
def test_an_unanswered_message(engine, talk, tmp_path, is_sent):
    talk.set_next("And then?")
    if is_sent:
        talk.send()
    found = saved(talk, tmp_path / "talk.json")
    assert found["next_message"]["content"] == {"Prompt": {"prompt": "And then?"}}
    with loaded(engine, tmp_path / "talk.json") as again:
        assert again.task.wants_reply()
        assert list(again.messages())[-1].text == "And then?"


def test_an_older_document(engine, tmp_path):
    """`model` instead of `model_info`, no version, unknown fields, a result as JSON."""
    old = {
        "conversation_id": "1",
        "history": [
            {
                "user": {"content": {"Prompt": {"prompt": "ls"}}},
                "assistant": {"ToolUse": {"content": "", "tool_uses": [{"id": "t1", "name": "sh", "args": {"c": 1}}]}},
            },
            {
                "user": {
                    "content": {
                        "ToolUseResults": {
                            "tool_use_results": [{"tool_use_id": "t1", "content": [{"Json": {"out": "a"}}]}]
                        }
                    }
                },
                "assistant": {"Response": {"message_id": None, "content": "There is a."}},
            },
        ],
        "latest_summary": ["Before that, we built it.", {}],
        "model": "old-model",
        "from_the_future": {"x": 1},
    }
    path = tmp_path / "old.json"
    path.write_text(json.dumps(old))
    with loaded(engine, path) as again:
        texts = [m.text for m in again.messages()]
        assert texts[:4] == ["ls", "", '{"out":"a"}', "There is a."]
        assert "Before that, we built it." in texts
        assert again.task.config.model == "old-model"
        assert saved(again, tmp_path / "new.json")["from_the_future"] == {"x": 1}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"history": 1}',
        '{"history": [1]}',
        '{"history": [{"user": {"content": {"A": 1, "B": 2}}}]}',
        '{"history": [{"user": {"content": {"Prompt": {"prompt": "x"}}}, "assistant": {"Other": {}}}]}',
        '{"history": [], "version": 99}',
        "[" * 100_000,
    ],
)
def test_invalid_documents_are_refused(engine, tmp_path, text):
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(UsageError):
        loaded(engine, path)
    assert not [one for one in registry.list_conversations(engine, tmp_path) if one.name == "again"]


def test_secrets_are_masked(engine, tmp_path):
    path = tmp_path / "talk.json"
    secret = "ghp_" + "a1B2" * 9
    pair = {"user": {"content": {"Prompt": {"prompt": secret}}}, "assistant": {"Response": {"content": "ok"}}}
    path.write_text(json.dumps({"history": [pair], "transcript": [f"token {secret}"], "extra": secret}))
    with loaded(engine, path) as again:
        document.write(again, tmp_path / "again.json")
    kept = b"".join(one.read_bytes() for one in (tmp_path / "store").rglob("*") if one.is_file())
    assert secret.encode() not in kept + (tmp_path / "again.json").read_bytes()
