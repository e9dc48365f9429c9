"""The rules catch what providers refuse: one broken request for each of them."""

import functools

import pytest

from support.wire_rules import violations

PNG = "iVBORw0KGgo="

# OpenAI chat completions

USER = {"role": "user", "content": "hi"}


def asks(*ids, name="read", arguments="{}", **fields):
    function = {"name": name, "arguments": arguments}
    made = [{"id": each, "type": "function", "function": function} for each in ids]
    return {"role": "assistant", "content": None, "tool_calls": made} | fields


def shows(url):
    return {"type": "image_url", "image_url": {"url": url}}


def tells(id, content="ok"):
    return {"role": "tool", "tool_call_id": id, "content": content}


CHAT = {
    "no message": ([], "at least one"),
    "an unknown role": ([{"role": "robot", "content": "hi"}], "unknown role"),
    "a call without a result": ([USER, asks("a", "b"), tells("a"), USER], "no results"),
    "a call without a result at the end": ([USER, asks("a")], "no results"),
    "a user between call and result": ([USER, asks("a"), USER, tells("a")], "no results"),
    "a result without a call": ([USER, tells("a")], "no call"),
    "a result of an earlier call": ([USER, asks("a"), tells("a"), USER, tells("a")], "no call"),
    "two results of one call": ([USER, asks("a"), tells("a"), tells("a")], "no call"),
    "two calls with one id": ([USER, asks("a", "a"), tells("a")], "two calls"),
    "an empty list of calls": ([USER, asks()], "must not be empty"),
    "an id of 41 characters": ([USER, asks("x" * 41), tells("x" * 41)], "40 characters"),
    "arguments that are no text": ([USER, asks("a", arguments={}), tells("a")], "JSON text"),
    "arguments that are no JSON": ([USER, asks("a", arguments='{"a": '), tells("a")], "JSON text"),
    "arguments that are no object": ([USER, asks("a", arguments="[1]"), tells("a")], "JSON text"),
    "arguments with NaN": ([USER, asks("a", arguments='{"a": NaN}'), tells("a")], "JSON text"),
    "a lone surrogate": ([{"role": "user", "content": "\ud800"}], "lone surrogate"),
    "a lone surrogate in a key": ([USER | {"\udfff": "x"}], "lone surrogate"),
    "a number that is none": ([USER | {"n": float("nan")}], "not a JSON number"),
    "values without end": ([USER | {"n": functools.reduce(lambda inner, _: [inner], range(200), 1)}], "nested deeper"),
    "a bitmap": ([USER | {"content": [shows("data:image/bmp;base64,Qk0=")]}], "address"),
    "a name with a dot": ([USER, asks("a", name="a.b"), tells("a")], "name"),
    "calls of the user": ([USER | {"tool_calls": []}], "only an assistant"),
    "a call of another type": (
        [asks("a") | {"tool_calls": [{"id": "a", "function": {"name": "f", "arguments": ""}}]}, tells("a")],
        "type function",
    ),
    "empty content": ([{"role": "user", "content": ""}], "empty"),
    "no content": ([{"role": "assistant", "content": None}], "missing"),
    "an empty part": ([{"role": "user", "content": [{"type": "text", "text": " "}]}], "empty"),
    "a picture in a result": ([USER, asks("a"), tells("a", [{"type": "image_url"}])], "does not accept"),
    "a picture without an address": ([USER | {"content": [{"type": "image_url", "image_url": {"url": ""}}]}], "addr"),
}  # fmt: skip

# OpenAI Responses

SAYS = {"role": "user", "content": "hi"}
ANSWER = {"type": "message", "role": "assistant", "content": "ok"}
THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}


def call(id, **fields):
    return {"type": "function_call", "call_id": id, "name": "read", "arguments": "{}"} | fields


def output(id, output="ok"):
    return {"type": "function_call_output", "call_id": id, "output": output}


RESPONSES = {
    "no item": ([], "at least one"),
    "a call without an output": ([SAYS, call("a"), SAYS], "no tool output"),
    "a call without an output at the end": ([SAYS, call("a")], "no tool output"),
    "an output without a call": ([SAYS, output("a")], "no tool call"),
    "an output before its call": ([SAYS, output("a"), call("a")], "no tool call"),
    "two outputs of one call": ([SAYS, call("a"), output("a"), output("a")], "no tool call"),
    "two calls with one id": ([call("a"), output("a"), call("a"), output("a")], "two calls"),
    "an id of 65 characters": ([call("x" * 65), output("x" * 65)], "64 characters"),
    "a name with a blank": ([call("a", name="a b"), output("a")], "name"),
    "arguments that are no text": ([call("a", arguments={}), output("a")], "JSON text"),
    "arguments that are no JSON": ([call("a", arguments="{"), output("a")], "JSON text"),
    "an item that came before": ([THOUGHT, ANSWER, THOUGHT, ANSWER], "duplicate item"),
    "an id of another kind": ([SAYS, ANSWER | {"id": "rs_1"}], "cannot be the id"),
    "an unknown item": ([SAYS, {"type": "thought"}], "unknown type"),
    "a custom call without its output": ([SAYS, {"type": "custom_tool_call", "call_id": "a"}], "no tool output"),
    "an empty output": ([call("a"), output("a", "")], "empty"),
    "reasoning at the end": ([SAYS, THOUGHT], "required following item"),
    "reasoning before the user": ([THOUGHT, SAYS], "required following item"),
    "reasoning without its content": ([THOUGHT | {"encrypted_content": ""}, ANSWER], "cannot be found"),
    "reasoning without an id": ([{"type": "reasoning", "encrypted_content": "g"}, ANSWER], "needs its id"),
    "an unknown role": ([{"role": "tool", "content": "x"}], "unknown role"),
    "empty content": ([{"role": "user", "content": " "}], "empty"),
    "an empty part": ([{"role": "user", "content": [{"type": "input_text", "text": ""}]}], "empty"),
    "an input in the assistant's mouth": (
        [ANSWER | {"content": [{"type": "input_text", "text": "x"}]}],
        "does not accept",
    ),
    "a picture without an address": ([SAYS | {"content": [{"type": "input_image", "image_url": "x"}]}], "address"),
}

# Anthropic Messages

TEXT = {"type": "text", "text": "hi"}
THINKING = {"type": "thinking", "thinking": "…", "signature": "EqQB"}
MARK = {"cache_control": {"type": "ephemeral"}}


def use(id="a", **fields):
    return {"type": "tool_use", "id": id, "name": "read", "input": {}} | fields


def answer(id="a", content="ok", **fields):
    return {"type": "tool_result", "tool_use_id": id, "content": content} | fields


def turns(*contents, **more):
    """Contents in turn of the user and the assistant."""
    return {"messages": [{"role": ("user", "assistant")[n % 2], "content": c} for n, c in enumerate(contents)]} | more


def picture(**source):
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG} | source}


ANTHROPIC = {
    "no message": ({"messages": []}, "at least one"),
    "a tool_use without a tool_result": (turns([TEXT], [use("a"), use("b")], [answer("a")]), "without tool_result"),
    "a result one message too late": (turns([TEXT], [use()], [TEXT], [TEXT], [answer()]), "without tool_result"),
    "a tool_result without a tool_use": (turns([TEXT], [TEXT], [answer()]), "without a tool_use"),
    "a tool_use at the end": (turns([TEXT], [use()]), "last tool_use"),
    "results after text": (turns([TEXT], [use()], [TEXT, answer()]), "come first"),
    "two results of one call": (turns([TEXT], [use()], [answer(), answer()]), "more than one"),
    "two calls with one id": (turns([TEXT], [use(), use()], [answer()]), "unique"),
    "an id that was used before": (turns([TEXT], [use()], [answer()], [use()], [answer()]), "unique"),
    "an assistant at the beginning": ({"messages": [{"role": "assistant", "content": "x"}, USER]}, "first message"),
    "an assistant at the end": (turns("x", "y"), "prefill"),
    "two users in a row": ({"messages": [USER, USER]}, "in a row"),
    "the role system": ({"messages": [USER, {"role": "system", "content": "x"}, USER]}, "unknown role"),
    "empty content": (turns([]), "empty"),
    "blank text": (turns([{"type": "text", "text": "\n"}]), "non-whitespace"),
    "a blank system prompt": (turns("x", system=" "), "system"),
    "input that is no object": (turns([TEXT], [use(input="{}")], [answer()]), "object"),
    "an id with a dot": (turns([TEXT], [use("a.b")], [answer("a.b")]), "cannot be the id"),
    "a name with a dot": (turns([TEXT], [use(name="a.b")], [answer()]), "name"),
    "a tool_use of the user": (turns([use()]), "cannot send"),
    "a picture of the assistant": (turns("x", [picture()], "y"), "cannot send"),
    "a picture in a failure": (turns([TEXT], [use()], [answer(content=[picture()], is_error=True)]), "is_error"),
    "a call in a result": (turns([TEXT], [use()], [answer(content=[use()])]), "cannot hold"),
    "a bitmap": (turns([picture(media_type="image/bmp")]), "media types"),
    "a picture of six megabytes": (turns([picture(data="AAAA" * 1_500_000)]), "5 MB"),
    "a block of no kind": (turns("x", [{"type": "thought"}], "y"), "cannot send"),
    "five marks, some in a result": (
        turns([TEXT | MARK] * 4, [use()], [answer(content=[TEXT | MARK])]), "5 marks",
    ),
    "a mark of another kind": (turns([TEXT | {"cache_control": {"type": "forever"}}]), "ephemeral"),
    "broken base64": (turns([picture(data="!")]), "base64"),
    "a picture without https": (turns([{"type": "image", "source": {"type": "url", "url": "http://x"}}]), "https"),
    "thinking without a signature": (turns("x", [{"type": "thinking", "thinking": "…"}, TEXT], "y"), "signature"),
    "redacted thinking without data": (turns("x", [{"type": "redacted_thinking"}, TEXT], "y"), "data"),
    "thinking after text": (turns("x", [TEXT, THINKING, TEXT], "y"), "expected thinking"),
    "a loop that begins to think late": (
        turns("x", [use("a")], [answer("a")], [THINKING, use("b")], [answer("b")]), "expected thinking",
    ),
    "thinking at the end of a message": (turns("x", [THINKING], "y"), "final block"),
    "five marks": (turns([TEXT | MARK] * 4, system=[TEXT | MARK]), "5 marks"),
    "a mark on thinking": (turns("x", [THINKING | MARK, TEXT], "y"), "cannot be marked"),
}  # fmt: skip

# Gemini


def contents(*parts):
    """Parts in turn of the user and the model."""
    return {"contents": [{"role": ("user", "model")[n % 2], "parts": p} for n, p in enumerate(parts)]}


WORDS = {"text": "hi"}


def function(name="read", **fields):
    return {"functionCall": {"name": name, "args": {}} | fields}


def response(name="read", **fields):
    return {"functionResponse": {"name": name, "response": {}} | fields}


GEMINI = {
    "no content": ({"contents": []}, "at least one"),
    "fewer responses than calls": (contents([WORDS], [function(), function()], [response()]), "must be equal"),
    "more responses than calls": (contents([WORDS], [function()], [response(), response()]), "must be equal"),
    "responses one turn too late": (contents([WORDS], [function()], [WORDS], [WORDS], [response()]), "must be equal"),
    "a response without a call": (contents([response()]), "must be equal"),
    "a response of another name": (contents([WORDS], [function()], [response("write")]), "names of the"),
    "a response of another id": (contents([WORDS], [function(id="a")], [response(id="b")]), "ids of the"),
    "a call at the beginning": ({"contents": [{"role": "model", "parts": [function()]}]}, "first message"),
    "a model at the end": (contents([WORDS], [WORDS]), "must end"),
    "two users in a row": ({"contents": [{"role": "user", "parts": [WORDS]}] * 2}, "in a row"),
    "the role assistant": ({"contents": [{"role": "assistant", "parts": [WORDS]}]}, "unknown role"),
    "empty parts": (contents([]), "empty"),
    "an empty text": (contents([{"text": ""}]), "empty"),
    "a part of two kinds": (contents([{"text": "x", "inlineData": {}}]), "exactly one"),
    "a call of the user": (contents([function()]), "only the model"),
    "a response of the model": (contents([WORDS], [response()], [WORDS]), "only the user"),
    "args that are no object": (contents([WORDS], [function(args="{}")], [response()]), "args must be an object"),
    "a response that is no object": (contents([WORDS], [function()], [response(response="x")]), "must be an object"),
    "a name that begins with a digit": (contents([WORDS], [function("3d")], [response("3d")]), "name"),
    "a field of no kind": (contents([WORDS | {"type": "text"}]), "unknown fields"),
    "a text that is none": (contents([{"text": 5}]), "must be a string"),
    "a gif": (contents([{"inlineData": {"mimeType": "image/gif", "data": PNG}}]), "media types"),
    "a blank system prompt": (contents([WORDS]) | {"systemInstruction": {"parts": [{"text": ""}]}}, "systemInst"),
    "an unsigned call": (contents([WORDS], [function()], [response()]), "thought_signature"),
    "an unsigned second step": (
        contents([WORDS], [function() | {"thoughtSignature": "CpQB"}], [response()], [function()], [response()]),
        "contents[3]: the first function call",
    ),
}  # fmt: skip

BROKEN = [
    pytest.param(api, request, words, id=f"{api}: {name}")
    for api, cases in {"openai": CHAT, "responses": RESPONSES, "anthropic": ANTHROPIC, "gemini": GEMINI}.items()
    for name, (request, words) in cases.items()
]


@pytest.mark.parametrize(("api", "request_", "words"), [pytest.param(*case.values, id=case.id) for case in BROKEN])
def test_broken(api, request_, words):
    """The broken rule is among those named."""
    assert any(words in said for said in violations(api, request_, model="gemini-3-pro-preview"))


AFTERTHOUGHT = THOUGHT | {"id": "rs_2"}
SIGNED = function() | {"thoughtSignature": "CpQB"}


@pytest.mark.parametrize(
    ("api", "request_"),
    [
        ("openai", [{"role": "developer", "content": "s"}, USER, asks("a", "b"), tells("b"), tells("a"), USER, USER]),
        ("responses", [SAYS, THOUGHT, call("a"), call("b"), output("b"), output("a"), AFTERTHOUGHT, ANSWER]),
        ("anthropic", turns([TEXT, picture()], [THINKING, TEXT, use()], [answer(content=[picture()]), TEXT | MARK])),
        ("anthropic", turns("x", system="s")),
        ("anthropic", turns("x", [THINKING, use("a")], [answer("a")], [use("b")], [answer("b")])),
        ("gemini", contents([WORDS], [WORDS, SIGNED, function("ls")], [response("ls"), response(), WORDS])),
        ("gemini", contents([WORDS], [function()], [response()], [WORDS], [WORDS])),
    ],
)  # fmt: skip
def test_sound(api, request_):
    """What the providers take breaks nothing: results in any order, unsigned calls of turns that are over."""
    assert violations(api, request_, model="gemini-3-pro-preview") == []


@pytest.mark.parametrize(
    ("api", "request_"),
    [
        ("openai", ["hi"]),
        ("openai", [{"role": "user", "content": [5]}]),
        ("openai", [USER, {"role": "assistant", "content": "x", "tool_calls": ["read"]}]),
        ("responses", ["hi"]),
        ("anthropic", {"messages": ["hi"]}),
        ("anthropic", "hi"),
        ("gemini", {"contents": ["hi"]}),
        ("gemini", None),
    ],
)
def test_what_is_no_request_at_all(api, request_):
    """A history from elsewhere can have any shape; it is told what is wrong, and nothing is raised."""
    assert violations(api, request_)
