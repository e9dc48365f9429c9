"""The conversation as one JSON document: everything visible is restored, also from older documents."""

import json
import random

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


def same(one, other):
    """Equal but for what a new conversation has of its own: its id and its name."""
    for name in (one.keys() | other.keys()) - {"conversation_id", "name"}:
        assert one.get(name) == other.get(name), name


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
        assert (again.next_message, again.task.wants_reply()) == ("And then?", False)
        again.send()
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


# the property: exported, loaded and exported again, a document is the same


def live(conversation, rng):
    """Use a conversation in a random way."""
    for step in range(rng.randrange(1, 14)):
        kind = rng.choice(["say", "say", "tool", "tool", "error", "summary", "tangent"])
        if kind == "say":
            conversation.say(f"Question {step}?\nテスト")
            conversation.task.add_reply(
                saying(f"Answer {step}. " * rng.randrange(1, 30), usage=(rng.randrange(900), 7))
            )
        elif kind == "tool":
            conversation.say(f"Look at file {step}.")
            conversation.task.add_reply(calling(("read_file", {"path": f"{step}.py"})))
            with conversation.task.tool(conversation.task.pending_calls()[0]) as run:
                run.result, run.is_error = f"content {step}", rng.random() < 0.3
            conversation.task.add_reply(saying("I see."))
        elif kind == "error":
            conversation.add_error(f"429: slow down, {step}")
        elif kind == "summary" and (entries := list(conversation.pairs())):
            covered = rng.choice(entries).assistant.seq
            if conversation.state.summary is None:
                conversation.add_summary(f"Until {step}, we looked at files.", covered)
        elif kind == "tangent" and len(conversation.tangents) < 3:
            if rng.random() < 0.5:
                conversation.set_next(f"Waits in level {len(conversation.tangents)}.")
            conversation.enter_tangent(began="2025-10-25T01:02:03.456789Z" if rng.random() < 0.5 else "")
            conversation.drop_next()
    if rng.random() < 0.5:
        conversation.set_next("And then?")


@pytest.mark.parametrize("seed", range(40))
def test_export_load_export_is_equal(tmp_path, seed):
    """004 §4.2 and §6.3: every field comes back, with ids, times, summaries and tangents at each level."""
    rng = random.Random(seed)
    options = {"tools": TOOLS, "model": "gpt-4o", "context_length": rng.choice([20_000, 128_000])}
    with (
        orihon.open(tmp_path / "one", settings=Settings()) as engine,
        registry.start(engine, tmp_path, name="shop", **options) as conversation,
    ):
        live(conversation, rng)
        first = saved(conversation, tmp_path / "one.json")
    with (
        orihon.open(tmp_path / "two", settings=Settings()) as engine,
        loaded(engine, tmp_path / "one.json", "shop") as again,
    ):
        second = saved(again, tmp_path / "two.json")
    assert first == second


def test_a_document_of_another_program(engine, tmp_path):
    """`model_info` with window, limits and features, `request_metadata`, ids and times, as they are."""
    info = {
        "model_id": "claude-sonnet-4", "context_window_tokens": 200_000, "max_output_tokens": 8192,
        "features": ["tools", "images"], "model_name": "Claude",
    }  # fmt: skip
    entry = {
        "user": {
            "additional_context": "",
            "timestamp": "2025-10-25T10:00:00+09:00",
            "content": {"Prompt": {"prompt": "ls"}},
        },
        "assistant": {"Response": {"message_id": "7f9c", "content": "There is a."}},
        "request_metadata": {"request_id": "r-1", "time_to_first_chunk": 0.5, "model_id": "claude-sonnet-4"},
    }
    path = tmp_path / "other.json"
    path.write_text(json.dumps({"history": [entry], "model_info": info, "model": "claude-3"}))
    with loaded(engine, path) as again:
        assert (again.task.config.context_length, again.task.config.reserved_output) == (200_000, 8192)
        found = saved(again, tmp_path / "again.json")
    assert found["history"] == [entry]
    assert info.items() <= found["model_info"].items()
    assert found["model"] == "claude-3"


def test_an_answer_of_amazon_q_is_not_doubled(engine, tmp_path):
    """Its transcript says `[Tool uses: none]` behind an answer without tools."""
    entry = {
        "user": {"content": {"Prompt": {"prompt": "ls"}}},
        "assistant": {"Response": {"content": "There is a."}},
    }
    path = tmp_path / "q.json"
    path.write_text(json.dumps({"history": [entry], "transcript": ["> ls", "There is a.\n[Tool uses: none]"]}))
    with loaded(engine, path) as again:
        assert again.transcript == ["> ls", "There is a."]
