"""What is sent is what was stored and what was counted, in every format, however odd or huge it is."""

import base64
import json
from random import Random

import pytest

import orihon
from orihon.context.wire import APIS
from orihon.errors import BudgetTooSmall
from orihon.records import Blob, Call, Message, Part
from orihon.settings.schema import Settings
from orihon.tokens import counter
from support.replies import KEY, TOOLS
from support.sent_requests import tokens_of
from support.wire_rules import violations

WORDS = "row of a table and another one\n" * 8_000
LIMIT = {"context_length": 8_000, "reserved_output": 500}


def start(engine, **options):
    task = engine.start(KEY, inherit=False, **(LIMIT | options))
    task.add("system", "You fix bugs.")
    task.add("user", "Fix the basket.")
    return task


def check(window, name="estimate"):
    """By the window's own counter, and by an exact one: no format sends more than was counted."""
    for api in APIS:
        request = getattr(window, api)()
        assert violations(api, request) == []
        assert tokens_of(api, request, counter(name)) <= window.tokens <= window.report.limit
        assert tokens_of(api, request, counter("o200k")) <= window.report.limit


def text_part(text, **fields):
    data = base64.b64encode(text.encode()).decode()
    return {"type": "text", "data": data, "media_type": "text/plain"} | fields


@pytest.mark.parametrize("role", ["user", "tool", "assistant"])
@pytest.mark.parametrize(
    "part",
    [
        text_part(WORDS),
        text_part(WORDS, type="file", name="a.txt"),
        text_part(WORDS, type="document", media_type="application/json"),
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": WORDS}},
        {"type": "text", "text": WORDS},
        {"type": "file", "name": "n" * 90_000, "media_type": "application/pdf", "data": "JVBERg=="},
        {"type": "file", "name": "a", "media_type": "m/" + "m" * 90_000, "data": "JVBERg=="},
        {"type": "k" * 90_000, "name": "a"},
        {"type": "image", "url": "http://example.org/" + "u" * 90_000},
        {"type": "image", "url": "https://example.org/" + "u" * 90_000},
        {"type": "image", "url": "DATA:image/png;base64," + "u" * 90_000},
    ],
    ids=["text", "file", "document", "plain document", "plain", "name", "media type", "type", "http", "https", "data"],
)
def test_a_part_counts_as_it_is_sent(engine, role, part):
    """A text in base64 is no picture, and a name or an address that becomes text is counted and bounded."""
    task = start(engine)
    more = {"tool_call_id": "c", "tool_name": "read"} if role == "tool" else {}
    if role == "tool":
        task.add("assistant", "", tool_calls=[{"id": "c", "name": "read", "arguments": "{}"}])
    task.add(role, [part, Part(**part) if "source" not in part else part], **more)
    check(task.window())
    task.add("user", "Go on.")
    check(task.window())
    task.close()


def test_a_text_in_base64_is_text(engine):
    """It can be folded, unfolded and found like any other, and is masked before it is stored."""
    task = start(engine, tools=TOOLS)
    token = "ghp_" + "a1B2c3D4" * 4 + "e5F6"
    task.add("user", [text_part(f"the basket is empty\n{token}\n{WORDS}")])
    shown = json.dumps(task.window().openai())
    assert "the basket is empty" in shown
    assert ", m3" in shown
    assert token not in shown + task.unfold("m3")
    assert WORDS in task.unfold("m3")
    task.close()


def test_bytes_that_are_no_utf_8_stay_bytes(engine):
    """A text in another encoding is kept as it came, and counted as what is shown of it."""
    task = start(engine)
    data = base64.b64encode("Übergröße ".encode("latin-1") * 9_000).decode()
    task.add("user", [{"type": "text", "data": data, "media_type": "text/plain"}])
    check(task.window())
    [part] = next(engine.read(task.uuid).messages(first=3)).content
    assert engine.store.blob(task.uuid, part.blob.sha256).startswith("Übergröße ".encode("latin-1"))
    task.close()


def test_arguments_in_a_blob_are_folded(engine):
    """Arguments too large for a line are not sent whole once they are folded; the log keeps them."""
    task = start(engine)
    arguments = json.dumps({"text": WORDS * 3})
    task.add("assistant", "", tool_calls=[{"id": "c", "name": "write", "arguments": arguments}])
    task.add("tool", "ok", tool_call_id="c")
    check(task.window())
    task.add("user", "Go on.")
    check(task.window())
    assert arguments in task.unfold("m3")
    task.close()


def test_a_blob_that_is_gone_stops_nothing(engine):
    """The beginning of a text is shown where the rest cannot be read, and a line for a picture."""
    task = start(engine, context_length=40_000)
    gone = Blob(sha256="ab" * 32, size_bytes=3_000)
    calls = [Call(id="c", name="write", arguments='{"text": "beg', blob=gone)]
    for fields in (
        {"role": "user", "content": "beginning", "blob": gone},
        {"role": "user", "content": [Part(type="image", media_type="image/png", blob=gone)]},
        {"role": "user", "content": [Part(type="text", text="beginning", blob=gone)]},
        {"role": "assistant", "content": "", "tool_calls": calls},
    ):
        task.writer.append(Message(seq=0, timestamp="", tokens=0, **fields))
    for window in (task.window(), engine.read(task.uuid).window()):
        for api in APIS:
            assert violations(api, getattr(window, api)()) == []
        assert "beginning" in str(window.openai())
    task.close()


def test_counts_of_another_program_are_not_believed(engine):
    """A log from elsewhere may claim that a page costs a token, or that a word fills the window."""
    task = start(engine)
    for tokens, text in ((1, WORDS), (10**9, "short"), (700, "word " * 4_000)):
        task.writer.append(Message(seq=0, role="user", content=text, timestamp="", tokens=tokens))
    check(task.window())
    check(engine.read(task.uuid).window())
    task.add("user", "Go on.")
    assert "short" in str(task.window().openai())
    task.close()


@pytest.mark.parametrize("name", ["estimate", "chars4", "bytes4", "o200k", "cl100k"])
def test_ids_and_names_of_results_are_counted(engine, name):
    """A result that says nothing still names its call, and hundreds of these fill a window."""
    task = start(engine, tokens=name)
    for number in range(400):
        call = {"id": f"call_{number:030}", "name": "read_file_of_the_shop", "arguments": {}}
        task.add("assistant", "", tool_calls=[call])
        task.add("tool", "", tool_call_id=call["id"], **({"tool_name": call["name"]} if number % 2 else {}))
    window = task.window()
    for api in APIS:
        assert tokens_of(api, getattr(window, api)(), counter(name)) <= window.tokens <= window.report.limit
    task.close()


@pytest.mark.parametrize("name", ["estimate", "chars4", "bytes4", "o200k", "cl100k"])
@pytest.mark.parametrize("seed", range(6))
def test_random_calls_are_counted_as_they_are_sent(engine, name, seed):
    """Ids and names of every length, in ASCII and not, given with the result or left out."""
    random = Random(seed)
    task = start(engine, tokens=name, context_length=random.choice((2_000, 8_000)))
    for number in range(40):
        letters = random.choice(("ab", "あい", "é|", '"\\'))
        ids = [
            f"{number}-{each}-{random.choice(letters) * random.choice((0, 3, 30, 300))}"
            for each in range(random.randint(1, 3))
        ]
        names = [random.choice(letters) * random.choice((1, 9, 90)) for _ in ids]
        calls = [
            {"id": call_id, "name": tool, "arguments": {"a": "b" * random.randint(0, 9)}}
            for call_id, tool in zip(ids, names, strict=True)
        ]
        task.add("assistant", random.choice(("", "ok", "abc")), tool_calls=calls)
        for call in calls:
            given = {"tool_call_id": call["id"], "tool_name": call["name"]}
            shown = random.choice((given, {"tool_call_id": call["id"]}, {}))
            task.add("tool", random.choice(("", "x", "found it")), **shown)
        task.add("user", random.choice(("ok", "", "あ")))
    check(task.window(), name)
    task.close()


def test_reasoning_is_counted(engine):
    """What goes back to the model that thought it is part of the window."""
    task = start(engine, model="claude-sonnet-4-5")
    thinking = {"type": "thinking", "thinking": WORDS, "signature": "EqQB"}
    block = {"type": "text", "text": "Done."}
    reply = {"type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "content": [thinking, block]}
    task.add_reply(reply)
    task.add("user", "Go on.")
    check(task.window())
    task.close()


def test_tools_are_counted_as_they_are_sent(engine):
    """The limit is what is left beside the largest of the formats, wrappers included."""
    bare = [{"name": f"tool_{number}", "description": "Does it."} for number in range(30)]
    task = start(engine, tools=bare)
    window = task.window()
    for api in APIS:
        cost = counter().tools(window.tools(api))
        assert window.report.limit + 500 + cost <= 8_000
    task.close()


def test_a_request_that_ends_with_the_assistant_counts_its_last_word(engine):
    """Some formats end with a word of the user's that no message of the log says."""
    task = start(engine)
    task.add("assistant", "Done.")
    check(task.window())
    task.close()


# 13: what is made shorter until it fits


@pytest.mark.parametrize("snapshot", ["prefix", "tail"])
@pytest.mark.parametrize("room", [1, 2, 3, 5, 9, 15, 25, 35, 60, 120])
def test_a_snapshot_in_a_tiny_window(engine, room, snapshot):
    """It is left out where it has no room; the window fits, or the error says by how much it does not."""
    task = engine.start(KEY, inherit=False, context_length=4096 + room, reserved_output=4096, snapshot=snapshot)
    task.snapshot(goal="Fix the total of an empty basket.", completed_actions=["looked", "read"])
    task.add("user", "hi")
    try:
        assert task.window().tokens <= room
    except BudgetTooSmall as error:
        assert error.needed > error.allowed
        assert room < 60
    task.close()


def test_a_snapshot_after_four_refusals(engine):
    """The fifth says that it is too small, and the lock of the task is free all the time."""
    task = start(engine, context_length=600, reserved_output=0)
    task.snapshot(goal="Fix the total of an empty basket. " * 20)
    for _ in range(4):
        task.shrink_budget()
        try:
            task.window()
        except BudgetTooSmall as error:
            assert error.needed > error.allowed
    with pytest.raises(BudgetTooSmall):
        task.shrink_budget()
    task.close()


def test_a_summary_that_was_made_for_a_larger_window(engine):
    """It is shown by its beginning, and does not fill the smaller one."""
    task = start(engine, context_length=200_000, summariser=lambda _: "word " * 6_000)
    for number in range(20):
        task.add("user", f"{number}: {WORDS[:9_000]}")
    assert task.compact(keep_recent=2) is not None
    task.reconfigure(context_length=3_000)
    check(task.window())
    task.close()


# 14: what is stored


ODD = ("\ud800", "half \udfff", "pair \ud83d\ude00", "NUL \0", "line\u2028end", "\ufeffBOM")


@pytest.mark.parametrize("odd", ODD)
def test_the_window_is_made_of_what_is_stored(engine, odd):
    """Texts of messages, tools, sticky files and snapshots: the same bytes here, for a reader, and after a crash."""
    tools = [{"name": f"t{odd}", "description": odd, "parameters": {"type": "object", "title": odd}}]
    task = engine.start(KEY, inherit=False, tools=tools, model=f"gpt{odd}")
    task.add("system", odd)
    task.add("user", f"Go {odd}", key=f"key {odd}")
    part = Part(type=f"file{odd}", name=odd, media_type=odd, url=odd, data=odd)
    task.add("user", [part, {"type": "text", "text": odd}])
    task.add("assistant", odd, tool_calls=[{"id": f"c{odd}", "name": f"t{odd}", "arguments": json.dumps({"a": odd})}])
    task.add("tool", [Part(type="image", url=f"http://{odd}", name=odd)], tool_call_id=f"c{odd}", tool_name=f"t{odd}")
    task.add("tool", odd, tool_call_id=f"nobody{odd}", tool_name=odd)
    task.sticky({f"file{odd}": odd})
    task.snapshot(goal=odd, key_observations=[odd])
    task.begin_tangent()
    task.add("user", odd)
    task.end_tangent("summary")
    task.reconfigure(tools=[*tools, {"name": odd}])
    here = sent(task.window())
    assert sent(engine.read(task.uuid).window()) == here
    task.writer.lease.close()
    with engine.resume(task.uuid) as again:
        assert sent(again.window()) == here


def sent(window):
    """The request in each format; what cannot be sent cannot be encoded."""
    return [json.dumps([getattr(window, api)(), window.tools(api)], ensure_ascii=False).encode() for api in APIS]


def test_a_reader_makes_the_folds_that_a_writer_stores(engine):
    """Halves of characters that were escaped in JSON do not come back in a fold that nobody has stored."""
    task = start(engine, context_length=1_200)
    tree = json.dumps({"children": [{"role": "button", "text": "\ud800" * 30} for _ in range(60)]})
    task.add("assistant", "", tool_calls=[{"id": "c", "name": "look", "arguments": tree}])
    task.add("tool", tree, tool_call_id="c")
    foreseen = sent(engine.read(task.uuid).window())
    assert sent(task.window()) == foreseen
    task.close()


# 15: what cannot be made smaller is bounded


HUGE = "x" * 400_000


@pytest.mark.parametrize(
    "said",
    [
        [{"role": "tool", "content": "found", "tool_call_id": "nobody", "tool_name": HUGE}],
        [{"role": "assistant", "content": "", "tool_calls": [{"id": "c", "name": HUGE, "arguments": "{}"}]}],
        [{"role": "assistant", "content": "", "tool_calls": [{"id": HUGE, "name": "read", "arguments": "{}"}]},
         {"role": "tool", "content": "found", "tool_call_id": HUGE}],
        [{"role": "assistant", "content": "", "tool_calls": [{"id": "c", "name": "w", "arguments": HUGE}]}],
        [{"role": "assistant", "content": "", "tool_calls": [
            {"id": "c", "name": "w", "arguments": json.dumps({HUGE: list(range(9_000))})}]}],
        [{"role": "user", "content": [Part(type=HUGE, name=HUGE, media_type=HUGE, url=HUGE)]}],
        [{"role": "system", "content": [Part(type="image", name=HUGE, media_type=HUGE, url=HUGE)]}],
    ],
    ids=["name of an orphan", "name of a call", "id", "arguments", "key and numbers", "part", "part of the system"],
)  # fmt: skip
def test_no_field_fills_the_window(engine, said):
    """The window shows the beginning and the end of a name; the log has it whole."""
    task = start(engine)
    for fields in said:
        given = dict(fields)
        task.add(given.pop("role"), given.pop("content"), **given)
        check(task.window())
    task.add("user", "Go on.")
    check(task.window())
    assert HUGE in "".join(str(message) for message in map(task.log.load_all, engine.read(task.uuid).messages()))
    task.close()


@pytest.mark.slow
@pytest.mark.parametrize("answered", [0, 150, 300])
def test_hundreds_of_calls_at_once(engine, answered):
    """Some are shown with their results, a mark counts the others, and none is run twice."""
    task = start(engine, context_length=3_000, tools=TOOLS)
    calls = [{"id": f"call_{n:03}", "name": "read_file", "arguments": '{"path":"a.py"}'} for n in range(300)]
    task.add("assistant", "Look at all of it.", tool_calls=calls)
    for call in calls[:answered]:
        task.add("tool", "nothing", tool_call_id=call["id"])
    window = task.window()
    check(window)
    shown = {message.tool_call_id for message in window.messages if message.role == "tool"}
    assert 1 <= len(shown) < 300
    assert "calls, m3]" in str(window.openai())
    assert [call.id for call in task.pending_calls()] == [call["id"] for call in calls[answered:]]
    for call in task.pending_calls():
        with task.tool(call) as run:
            run.result = "found"
    assert task.pending_calls() == []
    check(task.window())
    task.add("user", "Go on.")
    check(task.window())
    assert task.pending_calls() == []
    task.close()


STRANGE = {
    "status": {"status": "different words " * 600},
    "role": {"role": "different words " * 600},
    "a number as status": {"status": list(range(3000))},
    "a field of no provider": {"x": {"y": list(range(3000))}},
    "a name": {"different words " * 600: 1},
    "many names": {f"k{number}": 1 for number in range(2000)},
}


@pytest.mark.parametrize("name", STRANGE)
def test_every_field_of_a_payload_that_is_sent_is_counted(name):
    """Also a field that the provider does not have, and one that usually holds a word."""
    thought = {"type": "thinking", "thinking": "hm", "signature": "c2ln"} | STRANGE[name]
    with orihon.open("memory:", settings=Settings()) as engine:
        task = engine.start("local/issue/k", model="m", tokens="bytes4", context_length=200_000)
        task.add("user", "hi")
        content = [thought, {"type": "text", "text": "k"}]
        task.add_reply({"type": "message", "role": "assistant", "model": "m", "content": content})
        task.add("user", "go")
        window = task.window()
        sent = json.dumps(window.anthropic()["messages"], separators=(",", ":"))
        task.close()
    assert len(sent) > 5000
    assert window.tokens >= len(sent) / 4.2
