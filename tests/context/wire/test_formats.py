"""What each format looks like, and what each provider gets back of its own."""

import msgspec
import pytest

from orihon.context import wire
from orihon.context.repair import plain_name, repair
from orihon.errors import UsageError
from orihon.records import Blob, Call, Message, Native, Part
from support.histories import IMAGE_BLOB, PNG, load
from support.wire_rules import violations

PICTURE = Part(type="image", data=PNG, media_type="image/jpeg", width=1, height=1)
THOUGHT = {"type": "thinking", "thinking": "…", "signature": "EqQB"}


def log(*entries):
    return [
        Message(seq=seq, role=role, content=content, timestamp="", tokens=1, **(more[0] if more else {}))
        for seq, (role, content, *more) in enumerate(entries, 1)
    ]


def exchange(result="found", arguments='{"path":  "a.py"}', **of_result):
    call = Call(id="call_1", name="read", arguments=arguments)
    return repair(
        log(
            *[("system", "Be brief."), ("user", "Look."), ("assistant", "I look.", {"tool_calls": [call]})],
            ("tool", result, {"tool_call_id": "call_1", "tool_name": "read"} | of_result),
        )
    )


def thinker(text="", calls=("a",), model="claude-sonnet-4-5", **changed):
    made = [Call(id=each, name="read") for each in calls]
    used = [{"type": "tool_use", "id": each, "name": "read", "input": {}} for each in calls]
    words = [{"type": "text", "text": text}] if text else []
    native = Native(api="anthropic", model=model, items=[THOUGHT, *words, *used])
    return ("assistant", text, {"tool_calls": made, "native": native, "model": model} | changed)


def result(id):
    return ("tool", "ok", {"tool_call_id": id})


def test_openai_chat():
    """Messages one by one, arguments as the model wrote them."""
    assert wire.openai(exchange()) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": "I look.", "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "read", "arguments": '{"path":  "a.py"}'}}]},
        {"role": "tool", "tool_call_id": "call_1", "content": "found"},
    ]  # fmt: skip


def test_openai_responses():
    """Items in a flat list."""
    assert wire.responses(exchange()) == [
        {"type": "message", "role": "system", "content": "Be brief."},
        {"type": "message", "role": "user", "content": "Look."},
        {"type": "message", "role": "assistant", "content": "I look."},
        {"type": "function_call", "call_id": "call_1", "name": "read", "arguments": '{"path":  "a.py"}'},
        {"type": "function_call_output", "call_id": "call_1", "output": "found"},
    ]


def test_anthropic():
    """The system prompt apart, results in the user's turn, marks at the two ends that will be asked for again."""
    mark = {"cache_control": {"type": "ephemeral"}}
    assert wire.anthropic(exchange(is_error=True)) == {
        "system": [{"type": "text", "text": "Be brief."} | mark],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Look."}]},
            {"role": "assistant", "content": [{"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "call_1", "name": "read", "input": {"path": "a.py"}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_1",
                "content": [{"type": "text", "text": "found"}], "is_error": True} | mark]},
        ],
    }  # fmt: skip


def test_gemini():
    """The system prompt apart, a response for each call, failures under `error`."""
    assert wire.gemini(exchange()) == {
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "contents": [
            {"role": "user", "parts": [{"text": "Look."}]},
            {"role": "model", "parts": [
                {"text": "I look."}, {"functionCall": {"name": "read", "args": {"path": "a.py"}}}]},
            {"role": "user", "parts": [{"functionResponse": {"name": "read", "response": {"output": "found"}}}]},
        ],
    }  # fmt: skip
    failed = wire.gemini(exchange(is_error=True))["contents"][-1]["parts"][0]
    assert failed["functionResponse"]["response"] == {"error": "found"}


@pytest.mark.parametrize("text", ["not json", "[1]", '"text"', "null", '{"cut'])
def test_arguments_that_are_no_object_are_put_into_one(text):
    """Every format gets `_raw`: many servers parse the arguments of earlier calls and refuse what is no object."""
    messages = exchange(arguments=text)
    assert wire.anthropic(messages)["messages"][1]["content"][1]["input"] == {"_raw": text}
    assert wire.gemini(messages)["contents"][1]["parts"][1]["functionCall"]["args"] == {"_raw": text}
    assert msgspec.json.decode(wire.openai(messages)[2]["tool_calls"][0]["function"]["arguments"]) == {"_raw": text}
    assert msgspec.json.decode(wire.responses(messages)[3]["arguments"]) == {"_raw": text}


def test_turns_are_merged_where_they_must_alternate():
    """Results stand first in the user's turn, what the user said follows in it."""
    messages = repair([*exchange(), *log(("user", "and"), ("user", "this"))])
    assert [block["type"] for block in wire.anthropic(messages)["messages"][-1]["content"]] == [
        "tool_result", "text", "text",
    ]  # fmt: skip
    assert [next(iter(part)) for part in wire.gemini(messages)["contents"][-1]["parts"]] == [
        "functionResponse", "text", "text",
    ]  # fmt: skip


def test_a_request_ends_with_the_user():
    """Where the log ends with the assistant, Anthropic and Gemini are asked to continue; OpenAI needs no asking."""
    messages = repair(log(("user", "u"), ("assistant", "a")))
    assert wire.anthropic(messages)["messages"][-1]["content"] == [{"type": "text", "text": "Continue."}]
    assert wire.gemini(messages)["contents"][-1]["parts"] == [{"text": "Continue."}]
    assert wire.openai(messages)[-1] == {"role": "assistant", "content": "a"}
    assert all(not violations(api, getattr(wire, api)([])) for api in wire.APIS)


def test_ids_that_a_provider_refuses_are_replaced_in_both_places():
    """A long or foreign id becomes a stable one, only for the providers that refuse it."""
    call = Call(id="functions.read:0", name="read")
    messages = repair(
        log(("user", "u"), ("assistant", "", {"tool_calls": [call]}), ("tool", "r", {"tool_call_id": call.id}))
    )
    assert wire.openai(messages)[1]["tool_calls"][0]["id"] == "functions.read:0"
    sent = wire.anthropic(messages)["messages"]
    assert sent[1]["content"][0]["id"] == sent[2]["content"][0]["tool_use_id"]
    assert sent[1]["content"][0]["id"].startswith("id-")


def test_pictures():
    """Each format shows a picture in its way, under the media type that its bytes have."""
    user = repair(log(("user", [Part(type="text", text="this"), PICTURE])))
    url = f"data:image/png;base64,{PNG}"
    assert wire.openai(user)[0]["content"][1] == {"type": "image_url", "image_url": {"url": url}}
    assert wire.responses(user)[0]["content"][1] == {"type": "input_image", "image_url": url, "detail": "auto"}
    source = wire.anthropic(user)["messages"][0]["content"][1]["source"]
    assert source == {"type": "base64", "media_type": "image/png", "data": PNG}
    assert wire.gemini(user)["contents"][0]["parts"][1] == {"inlineData": {"mimeType": "image/png", "data": PNG}}


def test_pictures_of_results():
    """A screenshot reaches the model in every format; where a result holds only text, right after it."""
    messages = exchange([PICTURE])
    chat = wire.openai(messages)
    assert chat[-2]["content"] == "[image 1x1, image/jpeg, 70 bytes: m4]"
    assert chat[-1]["content"][2]["type"] == "image_url"
    assert wire.responses(messages)[-1]["output"][0]["type"] == "input_image"
    assert wire.anthropic(messages)["messages"][-1]["content"][0]["content"][0]["type"] == "image"
    assert "inlineData" in wire.gemini(messages)["contents"][-1]["parts"][-1]
    failed = wire.anthropic(exchange([PICTURE], is_error=True))["messages"][-1]["content"][0]
    assert failed["content"][0]["text"] == "[image 1x1, image/jpeg, 70 bytes: m4]"


def test_pictures_whose_bytes_are_elsewhere():
    """With a loader the picture is shown, without one it is a line with its size and its handle."""
    user = repair(log(("user", [Part(type="image", blob=IMAGE_BLOB, media_type="image/png", width=1280, height=720)])))
    assert wire.openai(user)[0]["content"] == "[image 1280x720, image/png, 70 bytes: m1]"
    assert wire.openai(user, load=load)[0]["content"][0]["image_url"]["url"].startswith("data:image/png;base64,iVBOR")


def test_texts_and_arguments_whose_whole_is_elsewhere():
    """With a loader the whole is sent; without one the beginning, which says so."""
    blob = Blob(sha256="ab" * 32, size_bytes=300_000)
    call = Call(id="a", name="write", arguments='{"text": "beg', blob=blob)
    messages = repair(log(("user", "beg", {"blob": blob}), ("assistant", "", {"tool_calls": [call]})))
    whole = wire.openai(messages, load=lambda _: b'{"text": "whole"}')
    assert whole[0]["content"] == whole[1]["tool_calls"][0]["function"]["arguments"] == '{"text": "whole"}'
    part = wire.openai(messages)
    assert part[0]["content"] == "beg\n[this is the beginning of 300,000 bytes: m1]"
    assert msgspec.json.decode(part[1]["tool_calls"][0]["function"]["arguments"]) == {
        "_raw": '{"text": "beg', "_bytes": 300_000,
    }  # fmt: skip


def test_files_are_text():
    """A file that can be read is quoted under its name; another is a line."""
    parts = [
        Part(type="file", name="a.json", media_type="application/json", data="eyJhIjoxfQ=="),
        Part(type="file", name="b.pdf", media_type="application/pdf", data="JVBERg=="),
    ]
    assert wire.openai(repair(log(("user", parts))))[0]["content"] == (
        '[file a.json: m1]\n{"a":1}\n[file b.pdf, application/pdf, 4 bytes: m1]'
    )


def thoughts(messages, model="claude-sonnet-4-5"):
    sent = wire.anthropic(repair(messages), model=model)["messages"]
    return [
        any(block["type"] == "thinking" for block in turn["content"]) for turn in sent if turn["role"] == "assistant"
    ]


def test_thinking_goes_back_to_its_model_in_every_turn():
    """Whole and unchanged, also after the user spoke again, so that nothing sent before changes."""
    messages = log(
        *[("user", "u"), thinker(), result("a"), ("assistant", "x"), ("user", "v"), thinker("well", ["b"]), result("b")]
    )
    assert thoughts(messages) == [True, False, True]
    assert thoughts(messages, "claude-sonnet-4-5-20250929") == [True, False, True]


def test_a_loop_that_thinks_grows_only_at_its_end():
    """Step by step, what was sent of the loop stays as it was."""
    steps = [step for n in range(5) for step in (thinker("", [f"c{n}"]), result(f"c{n}"))]
    messages = log(("user", "u"), *steps, ("assistant", "done"), ("user", "v"))
    sent = []
    for end in (*range(3, 12, 2), 13):
        now = wire.anthropic(repair(messages[:end]), model="claude-sonnet-4-5", cache=False)["messages"]
        assert now[: len(sent)] == sent
        sent = now
    assert len(sent) == 13


def test_thinking_is_dropped_on_a_model_switch():
    """Another model gets none of it, and a loop that two models share keeps none."""
    messages = log(("user", "u"), thinker(), result("a"))
    assert thoughts(messages, "claude-opus-4-5") == [False]
    assert thoughts(log(("user", "u"), thinker(model="sonnet-20240620"), result("a")), "sonnet-20241022") == [False]
    shared = [*messages, *log(thinker("", ["b"], "claude-opus-4-5"), result("b"))]
    assert thoughts(shared) == [False, False]
    plain = [*messages, *log(("assistant", "x", {"model": "gpt-5"}))]
    assert thoughts(plain) == [False, False]


def test_thinking_is_dropped_with_what_it_led_to():
    """A message that was folded, got another id, or lost a signature no longer has the thinking that made it."""
    for changed in (
        {"content": "[folded: m2]"},
        {"native": Native(api="anthropic", model="claude-sonnet-4-5", items=[THOUGHT])},
    ):
        one = msgspec.structs.replace(log(("user", "u"), thinker("text"))[1], **changed)
        assert thoughts([*log(("user", "u")), one, *log(result("a"))]) == [False]
    again = log(("user", "u"), thinker(), result("a"), ("user", "v"), thinker(), result("a"))
    assert thoughts(again) == [True, False]


def test_reasoning_items_go_back_together_or_not_at_all():
    """Reasoning without its encrypted content is left out, and then nothing carries the ids that ask for it."""
    item = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}
    words = {"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]}
    for items, kept in [
        ([item, words], True),
        ([item | {"encrypted_content": ""}, words], False),
        ([words, item], False),
    ]:
        said = {"native": Native(api="responses", model="gpt-5-2025-08-07", items=items)}
        sent = wire.responses(repair(log(("user", "u"), ("assistant", "a", said))), model="gpt-5")
        assert sent[1:] == (items if kept else [{"type": "message", "role": "assistant", "content": "a"}])


def test_gemini_signs_its_own_and_marks_what_is_not():
    """Signatures and ids return in their own parts; another model's call is marked where it would be refused."""
    items = [{"functionCall": {"id": "g1", "name": "read", "args": {}}, "thoughtSignature": "CpQB"}]
    said = {
        "tool_calls": [Call(id="g1", name="read")],
        "native": Native(api="gemini", model="gemini-3-pro", items=items),
    }
    messages = repair(log(("user", "u"), ("assistant", "", said), result("g1")))
    own = wire.gemini(messages, model="gemini-3-pro")["contents"]
    assert own[1]["parts"] == items
    assert own[2]["parts"][0]["functionResponse"]["id"] == "g1"
    [foreign] = wire.gemini(messages, model="models/gemini-3-flash")["contents"][1]["parts"]
    assert foreign["thoughtSignature"] == "skip_thought_signature_validator"
    [older] = wire.gemini(messages, model="gemini-2.5-flash")["contents"][1]["parts"]
    assert older == {"functionCall": {"name": "read", "args": {}}}


REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}


def output(text="a", **fields):
    words = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "id": "msg_1", "role": "assistant", "content": words} | fields


@pytest.mark.parametrize(
    ("api", "text", "items"),
    [
        ("responses", "", [REASONING, output("")]),
        (
            "responses",
            "a",
            [REASONING, output(), {"type": "custom_tool_call", "call_id": "c", "name": "x", "input": ""}],
        ),
        ("responses", "a", [REASONING, output(), {"type": "something_new"}]),
        ("responses", "a", [REASONING, output(), REASONING, output()]),
        ("responses", "a", [REASONING, output(role="user")]),
        ("anthropic", "a", [THOUGHT, {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]),
        ("anthropic", "a", [THOUGHT, {"type": "text", "text": "a"}, {"type": "something_new"}]),
        ("gemini", "a", [{"text": "a", "something": "new"}]),
    ],
)
def test_a_payload_that_would_be_refused_is_not_sent(api, text, items):
    """Empty words, calls that nobody answers, items that come twice, marks, and kinds that a reply never has."""
    native = Native(api=api, model="gpt-5", items=items)
    messages = repair(log(("user", "u"), ("assistant", text or "b", {"native": native}), ("user", "v")))
    sent = getattr(wire, api)(messages, model="gpt-5")
    assert violations(api, sent, model="gpt-5") == []
    assert not any(mark in str(sent) for mark in ("gAAA", "EqQB", "new"))


def test_an_item_goes_back_once():
    """The second of two replies with the same ids goes without them."""
    said = {"native": Native(api="responses", model="gpt-5", items=[REASONING, output()])}
    messages = repair(log(("user", "u"), ("assistant", "a", said), ("user", "v"), ("assistant", "a", said)))
    sent = wire.responses(messages, model="gpt-5")
    assert sent[1:3] == [REASONING, output()]
    assert sent[-1] == {"type": "message", "role": "assistant", "content": "a"}


def test_an_empty_thought_is_left_out():
    """Gemini refuses a part without text, unless it carries a signature."""
    items = [{"text": "", "thought": True}, {"text": "a"}, {"text": "", "thoughtSignature": "CpQB"}]
    said = {"native": Native(api="gemini", model="gemini-3-pro", items=items)}
    sent = wire.gemini(repair(log(("user", "u"), ("assistant", "a", said), ("user", "v"))), model="gemini-3-pro")
    assert sent["contents"][1]["parts"] == items[1:]


def test_a_picture_that_is_too_large_for_one_provider():
    """Over five megabytes of base64 Anthropic refuses the whole request: there it is a line, elsewhere a picture."""
    part = Part(type="image", data="iVBORw0K" + "AAAA" * 1_400_000, media_type="image/png")
    user = repair(log(("user", [part])))
    assert wire.anthropic(user)["messages"][0]["content"][0]["type"] == "text"
    assert wire.openai(user)[0]["content"][0]["type"] == "image_url"


@pytest.mark.parametrize("grown", [1, 10, 24])
def test_marks_reach_back_to_the_last_request(grown):
    """After 24 parallel calls and their results, some mark is still within 20 blocks of what was cached."""
    before = repair(log(("system", "s"), ("user", "u")))
    calls = [Call(id=f"c{n}", name="read") for n in range(grown)]
    after = repair([*before, *log(("assistant", "", {"tool_calls": calls}), *[result(call.id) for call in calls])])
    cached = sum(len(turn["content"]) for turn in wire.anthropic(before)["messages"])
    flat = [block for turn in wire.anthropic(after)["messages"] for block in turn["content"]]
    marks = [place for place, block in enumerate(flat) if "cache_control" in block]
    assert marks[-1] == len(flat) - 1
    assert any(0 <= mark - (cached - 1) < 20 for mark in marks)


TOOL = {"type": "function", "function": {"name": "fs.read", "description": "Reads.", "parameters": {"type": "object"}}}


def test_tools():
    """The caller's tools in each API's shape, under the name that the calls in the history have."""
    name = plain_name("fs.read")
    assert wire.tools([TOOL], "openai") == [{"type": "function", "function": TOOL["function"] | {"name": name}}]
    assert wire.tools([TOOL["function"]], "responses") == [
        {"type": "function", "strict": False, "name": name, "description": "Reads.", "parameters": {"type": "object"}}
    ]
    assert wire.tools([TOOL], "anthropic") == [
        {"name": name, "description": "Reads.", "input_schema": {"type": "object"}}
    ]
    assert wire.tools([{"name": "now"}], "gemini") == [
        {"functionDeclarations": [{"name": "now", "parametersJsonSchema": {"type": "object", "properties": {}}}]}
    ]
    assert [wire.tools([], api) for api in wire.APIS] == [[], [], [], []]


def test_tools_that_cannot_be_understood():
    """A tool without a name and an unknown API are refused with a way out."""
    with pytest.raises(UsageError, match="no name"):
        wire.tools([{"type": "function"}], "openai")
    for ask in (lambda: wire.tools([], "cohere"), lambda: violations("cohere", [])):
        with pytest.raises(UsageError, match="cohere") as caught:
            ask()
        assert "anthropic" in caught.value.hint
