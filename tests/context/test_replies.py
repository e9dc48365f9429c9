"""A reply of any provider becomes the same kind of message."""

from types import SimpleNamespace

import pytest

from orihon.context.repair import repair
from orihon.context.replies import parse_reply
from orihon.context.wire import anthropic, gemini, responses
from orihon.errors import ModelError, UsageError
from orihon.records import Message, Usage

CHAT = {
    "id": "chatcmpl-9", "object": "chat.completion", "created": 1, "model": "gpt-4o-2024-08-06",
    "choices": [{"index": 0, "finish_reason": "tool_calls", "logprobs": None, "message": {
        "role": "assistant", "content": None, "refusal": None,
        "tool_calls": [
            {"id": "call_a", "type": "function", "function": {"name": "read", "arguments": '{"path": "a.py",  "n":1}'}},
            {"id": "call_b", "type": "function", "function": {"name": "ls", "arguments": ""}},
        ]}}],
    "usage": {"prompt_tokens": 1200, "completion_tokens": 30, "total_tokens": 1230,
              "prompt_tokens_details": {"cached_tokens": 1024, "audio_tokens": 0}},
}  # fmt: skip
DEEPSEEK = {
    "object": "chat.completion", "model": "deepseek-chat",
    "choices": [{"message": {"role": "assistant", "content": "Seen.", "reasoning_content": "It is small."}}],
}  # fmt: skip
RESPONSES = {
    "id": "resp_1", "object": "response", "created_at": 1, "status": "completed", "error": None,
    "model": "gpt-5-2025-08-07",
    "output": [
        {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "gAAA", "status": None},
        {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed",
         "content": [{"type": "output_text", "text": "I look.", "annotations": [], "logprobs": []}]},
        {"id": "fc_1", "type": "function_call", "status": "completed", "call_id": "call_1", "name": "read",
         "arguments": '{"path":"a.py"}'},
    ],
    "usage": {"input_tokens": 500, "output_tokens": 90, "total_tokens": 590,
              "input_tokens_details": {"cached_tokens": 256}, "output_tokens_details": {"reasoning_tokens": 64}},
}  # fmt: skip
ANTHROPIC = {
    "id": "msg_01", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5-20250929",
    "content": [
        {"type": "thinking", "thinking": "Look first.", "signature": "EqQB"},
        {"type": "text", "text": "I ", "citations": None}, {"type": "text", "text": "look."},
        {"type": "tool_use", "id": "toolu_01", "name": "read", "input": {"path": "ä.py", "limit": None}},
    ],
    "stop_reason": "tool_use", "stop_sequence": None,
    "usage": {"input_tokens": 7, "cache_creation_input_tokens": 200, "cache_read_input_tokens": 1000,
              "output_tokens": 40},
}  # fmt: skip
GEMINI = {
    "candidates": [{"index": 0, "finishReason": "STOP", "content": {"role": "model", "parts": [
        {"text": "Look first.", "thought": True},
        {"text": "I look."},
        {"functionCall": {"name": "read", "args": {"path": "a.py"}}, "thoughtSignature": "CpQB"},
        {"functionCall": {"name": "ls"}},
    ]}}],
    "usageMetadata": {"promptTokenCount": 300, "candidatesTokenCount": 20, "thoughtsTokenCount": 50,
                      "totalTokenCount": 370, "cachedContentTokenCount": 128},
    "modelVersion": "gemini-3-pro-preview",
}  # fmt: skip
OLLAMA = {
    "model": "qwen3:8b", "created_at": "2025-01-01T00:00:00Z", "done": True, "done_reason": "stop",
    "message": {"role": "assistant", "content": "", "thinking": "Hm.",
                "tool_calls": [{"function": {"name": "read", "arguments": {"path": "a.py"}}}]},
    "prompt_eval_count": 26, "eval_count": 9,
}  # fmt: skip

SAMPLES = {"openai": CHAT, "responses": RESPONSES, "anthropic": ANTHROPIC, "gemini": GEMINI, "ollama": OLLAMA}


def as_object(value):
    """The same reply as attributes."""
    if isinstance(value, dict):
        return SimpleNamespace(**{key: as_object(item) for key, item in value.items()})
    return [as_object(item) for item in value] if isinstance(value, list) else value


class Model:
    """What the SDKs' objects are like."""

    def __init__(self, value):
        self.value = value

    def model_dump(self, *, mode, by_alias, exclude_none):
        assert (mode, by_alias, exclude_none) == ("json", True, True)
        return self.value


def calls_of(message):
    return [(call.id, call.name, call.arguments) for call in message.tool_calls]


def test_openai_chat():
    """Text that is null is empty, arguments are the model's bytes, cached tokens are a part of the input."""
    reply = parse_reply(CHAT)
    assert (reply.role, reply.content, reply.model, reply.native) == ("assistant", "", "gpt-4o-2024-08-06", None)
    assert calls_of(reply) == [("call_a", "read", '{"path": "a.py",  "n":1}'), ("call_b", "ls", "")]
    assert reply.usage == Usage(input_tokens=1200, output_tokens=30, cache_read_tokens=1024)
    assert (reply.seq, reply.timestamp, reply.tokens) == (0, "", 0)


def test_openai_chat_keeps_exposed_reasoning():
    """Reasoning that a compatible server shows is its payload; without usage there is none."""
    reply = parse_reply(DEEPSEEK)
    assert (reply.content, reply.usage) == ("Seen.", None)
    assert (reply.native.api, reply.native.model) == ("openai", "deepseek-chat")
    assert reply.native.items == [{"reasoning_content": "It is small."}]


def test_openai_chat_refusals_parts_and_the_old_function_call():
    """A refusal is what was said; content in parts is joined; `function_call` is a call without an id."""
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    old = {"content": None, "function_call": {"name": "f", "arguments": "{}"}}
    said = [{"content": None, "refusal": "No."}, {"content": parts}, old]
    replies = [parse_reply({"choices": [{"message": message}]}) for message in said]
    assert [reply.content for reply in replies] == ["No.", "ab", ""]
    assert calls_of(replies[2]) == [("", "f", "{}")]


def test_openai_responses():
    """Items become text and calls; with reasoning among them they are kept, without the nulls that cannot go back."""
    reply = parse_reply(RESPONSES)
    assert (reply.content, reply.model) == ("I look.", "gpt-5-2025-08-07")
    assert calls_of(reply) == [("call_1", "read", '{"path":"a.py"}')]
    assert reply.usage == Usage(input_tokens=500, output_tokens=90, cache_read_tokens=256)
    assert reply.native.items[0] == {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "gAAA"}
    assert len(reply.native.items) == 3


def test_anthropic():
    """Input includes what was read from and written to the cache; objects become compact JSON in their order."""
    reply = parse_reply(ANTHROPIC)
    assert (reply.content, reply.model) == ("I look.", "claude-sonnet-4-5-20250929")
    assert calls_of(reply) == [("toolu_01", "read", '{"path":"ä.py","limit":null}')]
    assert reply.usage == Usage(input_tokens=1207, output_tokens=40, cache_read_tokens=1000, cache_write_tokens=200)
    assert reply.native.items[0] == {"type": "thinking", "thinking": "Look first.", "signature": "EqQB"}


def test_gemini():
    """Thoughts are not text, but they count as output; calls have no ids yet."""
    reply = parse_reply(GEMINI)
    assert (reply.content, reply.model) == ("I look.", "gemini-3-pro-preview")
    assert calls_of(reply) == [("", "read", '{"path":"a.py"}'), ("", "ls", "{}")]
    assert reply.usage == Usage(input_tokens=300, output_tokens=70, cache_read_tokens=128)
    assert reply.native.items == GEMINI["candidates"][0]["content"]["parts"]


def test_ollama():
    """Arguments come as objects, tokens by its own names, thinking is kept."""
    reply = parse_reply(OLLAMA)
    assert calls_of(reply) == [("", "read", '{"path":"a.py"}')]
    assert reply.usage == Usage(input_tokens=26, output_tokens=9)
    assert reply.native.items == [{"thinking": "Hm."}]


@pytest.mark.parametrize("api", SAMPLES)
def test_objects_are_read_like_dicts(api):
    """It does not matter whether the SDK gives models or plain attributes, nor whether the API is named."""
    plain = parse_reply(SAMPLES[api])
    assert parse_reply(as_object(SAMPLES[api])) == plain
    assert parse_reply(Model(SAMPLES[api]), api) == plain


def test_nothing_is_kept_beside_what_the_message_says():
    """A reply of words and calls alone has no payload of its own."""
    plain = ANTHROPIC | {"content": ANTHROPIC["content"][1:]}
    parts = {"candidates": [{"content": {"parts": [{"text": "hi"}, {"functionCall": {"name": "f", "args": {}}}]}}]}
    assert parse_reply(plain).native is None
    assert parse_reply(RESPONSES | {"output": RESPONSES["output"][1:]}).native is None
    assert parse_reply(parts).native is None


@pytest.mark.parametrize(
    ("sample", "render", "found"),
    [
        (RESPONSES, lambda log: responses(log, model="gpt-5")[1:4], parse_reply(RESPONSES).native.items),
        (ANTHROPIC, lambda log: anthropic(log, model="claude-sonnet-4-5", cache=False)["messages"][1]["content"],
         parse_reply(ANTHROPIC).native.items),
        (GEMINI, lambda log: gemini(log, model="gemini-3-pro-preview")["contents"][1]["parts"],
         GEMINI["candidates"][0]["content"]["parts"]),
    ],
    ids=["responses", "anthropic", "gemini"],
)  # fmt: skip
def test_a_reply_goes_back_as_it_came(sample, render, found):
    """To the model that made it, under its undated name too, the payload returns whole."""
    assert (
        render(repair([Message(seq=1, role="user", content="hi", timestamp="", tokens=1), parse_reply(sample)]))
        == found
    )


@pytest.mark.parametrize(
    "nothing", [{"choices": []}, {"candidates": []}, {"promptFeedback": {"blockReason": "SAFETY"}}]
)
def test_an_answer_that_holds_nothing_is_the_providers_failure(nothing):
    """No choice and a blocked prompt are said as what they are."""
    with pytest.raises(ModelError):
        parse_reply(nothing)


@pytest.mark.parametrize(
    "foreign",
    [None, 3, [], {}, {"error": {"message": "no"}}, Model, {"choices": ["x"]}, {"output": [1]},
     {"type": "message", "content": [{"type": "tool_use"}]},
     {"choices": [{"message": {"tool_calls": [{"function": {"name": None}}]}}]}],
    ids=repr,
)  # fmt: skip
def test_what_is_no_reply_is_refused_with_what_is_accepted(foreign):
    """The error names what it got and what it takes."""
    with pytest.raises(UsageError, match="not a model's reply") as caught:
        parse_reply(foreign)
    assert "Anthropic Messages" in caught.value.hint


@pytest.mark.parametrize("bare", ["Done.", {"role": "assistant", "content": "Done."}])
def test_a_bare_text_or_message_is_a_reply(bare):
    """Programs keep the text or the message of a completion, and not the completion."""
    assert parse_reply(bare).text == "Done."
    call = {"id": "c", "type": "function", "function": {"name": "read_file", "arguments": "{}"}}
    assert parse_reply({"role": "assistant", "content": None, "tool_calls": [call]}).tool_calls[0].name == "read_file"


def test_arguments_as_a_text_or_as_a_value():
    """Servers that speak one API mix the two; both are the same call."""
    for given in ('{"path":"a.py"}', {"path": "a.py"}):
        function = {"name": "read_file", "arguments": given}
        for reply in (
            {"choices": [{"message": {"tool_calls": [{"id": "c", "function": function}]}}]},
            {"output": [{"type": "function_call", "call_id": "c", **function}]},
            {"message": {"tool_calls": [{"function": function}]}, "done": True},
        ):
            assert parse_reply(reply).tool_calls[0].arguments == '{"path":"a.py"}'


@pytest.mark.parametrize("odd", ["9", -9, 9.0, 10**30, float("nan"), None, [9]])
def test_odd_figures_do_not_cost_the_reply(odd):
    """What is said counts; a number of tokens that is none counts as nothing."""
    said = parse_reply({"choices": [{"message": {"content": "x"}}], "usage": {"prompt_tokens": odd}, "model": 5})
    assert (said.content, said.model, said.usage.input_tokens) == ("x", None, 9 if odd == 9.0 else 0)


def test_an_unknown_api_is_refused():
    """The error lists the names."""
    with pytest.raises(UsageError, match="cohere") as caught:
        parse_reply(CHAT, "cohere")
    assert "responses" in caught.value.hint


def test_a_call_of_anthropics_that_was_cut_keeps_its_text_and_not_its_payload():
    """Half an input is no object: it stays as it was written, and is not sent back as if it were whole."""
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    call = {"type": "tool_use", "id": "toolu_1", "name": "write_file", "input": '{"path": "a.py", "text": "imp'}
    message = parse_reply({"type": "message", "model": "claude", "content": [thought, call]})
    assert message.tool_calls[0].arguments == '{"path": "a.py", "text": "imp'
    assert message.native is None
