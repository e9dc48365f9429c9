"""Models over HTTP, with the providers' own SDKs: a reply comes whole or not at all."""

import json
import logging
import socket
import stat
import sys
import time
from email.utils import formatdate

import msgspec
import pytest

import orihon
from agent.conftest import KEY
from orihon.agent.models import open_model, was_cut
from orihon.context.replies import parse_reply
from orihon.context.streams import ChatAccumulator
from orihon.errors import ContextOverflow, ModelError, StoreError, UsageError
from orihon.settings.schema import Llm, Provider, Settings
from orihon.settings.section import Secret
from support.failing_server import (
    after,
    answers_json,
    answers_whole,
    cut,
    fails_midway,
    pings,
    raw,
    says,
    stalls,
    status,
    unfinished,
)
from support.replies import KEY as TASK_KEY
from support.replies import TOOLS, calling, turn
from support.wire_rules import violations

READ = ("read_file", '{"path": "a.py"}')


@pytest.fixture
def task():
    engine = orihon.open("memory:", settings=Settings())
    with engine, engine.start(TASK_KEY, tools=TOOLS, reserved_output=512) as task:
        task.add("system", "You fix bugs.")
        task.add("user", "Fix the basket.")
        turn(task, calling(("read_file", {"path": "b.py"})), ["print(1)"])
        yield task


def check_request(provider, body):
    """What was sent is what the provider takes."""
    rendered = body["messages"] if provider == "openai" else body
    assert not violations(provider, rendered, model=body["model"])
    assert body["stream"] is True
    assert body["max_tokens"] == 512
    names = [tool["function"]["name"] if provider == "openai" else tool["name"] for tool in body["tools"]]
    assert names == ["read_file", "run_tests", "unfold", "recall"]


# whole replies


def test_a_streamed_reply_is_what_the_api_gives_without_streaming(bench, task):
    """Text, calls and usage, in the shape that a task takes; the pieces are told as they come."""
    bench.server.acts = [says("I look at it.", READ, ("run_tests", "{}"), usage=(120, 30))]
    told = []
    reply = bench.model().reply(task.window(), on_text=told.append)
    check_request(bench.provider, bench.server.bodies[0])
    assert "".join(told) == "I look at it."
    assert len(told) > 1
    message = parse_reply(reply)
    assert message.text == "I look at it."
    assert [(call.name, json.loads(call.arguments)) for call in message.tool_calls] == [
        ("read_file", {"path": "a.py"}),
        ("run_tests", {}),
    ]
    assert (message.usage.input_tokens, message.usage.output_tokens) == (120, 30)
    assert not was_cut(reply)
    task.add_reply(reply)
    assert [call.name for call in task.pending_calls()] == ["read_file", "run_tests"]


def test_a_server_that_does_not_stream_is_understood(bench, task):
    """Its reply is the same message."""
    bench.server.acts = [answers_whole("I look.", READ), says("I look.", READ)]
    model, told = bench.model(), []
    whole, streamed = (parse_reply(model.reply(task.window(), on_text=told.append)) for _ in range(2))
    assert (whole.text, whole.tool_calls, whole.usage) == (streamed.text, streamed.tool_calls, streamed.usage)
    assert "".join(told) == "I look.I look."


def test_thinking_comes_back_signed(anthropic_bench, task):
    """What Anthropic wants to see again is in the reply, and in the next request."""
    anthropic_bench.server.acts = [says("I look.", READ, thinking="Where is it?"), says("Done.")]
    model = anthropic_bench.model()
    reply = model.reply(task.window())
    thought = {"type": "thinking", "thinking": "Where is it?", "signature": "c2lnbmVk"}
    assert reply["content"][0] == thought
    assert parse_reply(reply).native.items[0] == thought


def test_reasoning_of_openai_like_servers_is_kept(openai_bench, task):
    """It is not part of the text."""
    openai_bench.server.acts = [says("Done.", thinking="Where is it?")]
    reply = openai_bench.model().reply(task.window())
    assert reply["choices"][0]["message"]["reasoning_content"] == "Where is it?"
    assert parse_reply(reply).text == "Done."


@pytest.mark.parametrize(
    "chunks",
    [
        # Ollama: every call whole, all with number 0
        [{"index": 0, "id": "a", "function": {"name": "x", "arguments": "{}"}},
         {"index": 0, "id": "b", "function": {"name": "y", "arguments": '{"k":1}'}}],
        # without numbers
        [{"id": "a", "function": {"name": "x", "arguments": "{"}}, {"function": {"arguments": "}"}},
         {"id": "b", "function": {"name": "y", "arguments": '{"k":1}'}}],
        # the id and the name in every piece
        [{"index": 0, "id": "a", "function": {"name": "x", "arguments": "{"}},
         {"index": 0, "id": "a", "function": {"name": "x", "arguments": "}"}},
         {"index": 1, "id": "b", "function": {"name": "y", "arguments": '{"k":1}'}}],
        # arguments as an object
        [{"index": 0, "id": "a", "function": {"name": "x"}},
         {"index": 1, "id": "b", "function": {"name": "y", "arguments": {"k": 1}}}],
    ],
    ids=["same number", "no number", "repeated id", "objects"],
)  # fmt: skip
def test_calls_are_told_apart_however_a_server_numbers_them(chunks):
    """Two calls stay two calls."""
    accumulator = ChatAccumulator()
    for chunk in chunks:
        accumulator.add({"choices": [{"index": 0, "delta": {"tool_calls": [chunk]}}]})
    assert accumulator.finish() is None
    accumulator.add({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
    calls = parse_reply(accumulator.finish()).tool_calls
    assert [(call.id, call.name, json.loads(call.arguments or "{}")) for call in calls] == [
        ("a", "x", {}),
        ("b", "y", {"k": 1}),
    ]


# failures that pass

TRANSIENT = {
    "429": status(429, "Too many requests."),
    "500": status(500),
    "529": status(529, "Overloaded", type="overloaded_error"),
    "408": status(408),
    "409": status(409),
    "a page of a gateway": raw(b"<html><h1>502 Bad Gateway</h1></html>", "text/html", 502),
    "cut before anything": cut(0.0),
    "cut in a chunk": cut(0.5),
    "cut at the end": cut(0.95),
    "cut in a call": cut(0.7, "I look.", READ),
    "no end mark": unfinished(3),
    "no end mark in a call": unfinished(4, "I look.", READ),
    "empty body": raw(),
    "empty JSON body": raw(b"", "application/json"),
    "invalid JSON": raw(b'{"id": "x", "choices": [{"mess', "application/json"),
    "invalid JSON in the stream": raw(b'event: message_start\ndata: {"type": "mess\n\n'),
    "an end without a beginning": raw(b'event: message_stop\ndata: {"type": "message_stop"}\n\n'),
    "events that are none": raw(b'event: message_start\ndata: "hello"\n\ndata: 7\n\n'),
    "calls that are none": answers_json(
        {
            "type": "message",
            "content": [{"type": "tool_use"}],
            "choices": [{"message": {"tool_calls": [{"function": {}}]}, "finish_reason": "stop"}],
        }
    ),
    "wrong content type": raw(b"<html>Please log in.</html>", "text/html"),
    "JSON of something else": answers_json({"hello": "world"}),
    "failure in the stream": fails_midway({"type": "overloaded_error", "message": "Overloaded"}),
    "failure with status 200": answers_json({"error": {"message": "upstream is away", "code": 503}}),
}


@pytest.mark.parametrize("failure", TRANSIENT.values(), ids=TRANSIENT)
def test_what_passes_is_tried_again(bench, task, failure):
    """Two failures and a reply: the reply is whole, the same request was sent three times, and the waits grew."""
    bench.server.acts = [failure, failure, says("Done.")]
    reply = bench.model().reply(task.window())
    assert parse_reply(reply).text == "Done."
    assert len(bench.server.bodies) == 3
    assert bench.server.bodies[0] == bench.server.bodies[1] == bench.server.bodies[2]
    assert bench.waits == [1.0, 2.0]


@pytest.mark.parametrize("failure", TRANSIENT.values(), ids=TRANSIENT)
def test_what_does_not_pass_is_one_error(bench, task, failure):
    """It says what happened and how often, that a later try can help, and nothing of the key."""
    bench.server.acts = [failure] * 9
    with pytest.raises(ModelError, match="It was tried 4 times") as caught:
        bench.model().reply(task.window())
    assert caught.value.retryable
    assert caught.value.hint
    assert len(bench.server.bodies) == 4
    assert KEY not in f"{caught.value.message}{caught.value.hint}"
    assert caught.value.__cause__ is caught.value.__context__ is None


@pytest.mark.slow
def test_silence_is_a_failure(bench, task, caplog):
    """Before the first byte and in the middle of a reply."""
    bench.server.acts = [stalls(), stalls(3), says("Done.")]
    reply = bench.model(stall_seconds=1.0).reply(task.window())
    assert parse_reply(reply).text == "Done."
    assert len(bench.server.bodies) == 3
    assert caplog.text.count("did not answer in time") == 2


def test_a_connection_that_breaks_is_called_that(bench, task, caplog):
    """In the middle of a stream too, where the SDKs raise other errors than before it."""
    bench.server.acts = [cut(0.0), cut(0.5), says("Done.")]
    bench.model().reply(task.window())
    assert caplog.text.count("broke off") == 2


def test_a_slow_beginning_is_no_failure(bench, task):
    """As long as it is within the time that is given."""
    bench.server.acts = [after(0.05, says("Done."))]
    assert parse_reply(bench.model().reply(task.window())).text == "Done."
    assert bench.waits == []


def test_a_connection_that_is_kept_alive_for_nothing_has_an_end(bench, task):
    """Keep-alives are no reply: the time limit of a request holds for them too."""
    bench.server.acts = [pings()]
    seconds = iter(range(10_000))
    with pytest.raises(ModelError, match="did not answer in time") as caught:
        bench.model(max_seconds=20.0, clock=lambda: next(seconds)).reply(task.window())
    assert caught.value.retryable
    assert len(bench.server.bodies) == 1


def test_nobody_at_the_address(bench, task):
    """The sentence names the address and the setting."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
    bench.server = type("Nobody", (), {"root": address})()
    with pytest.raises(ModelError, match=address) as caught:
        bench.model().reply(task.window())
    assert f"llm.{bench.provider}.base_url" in caught.value.hint
    assert bench.waits == [1.0, 2.0, 4.0]


def test_what_was_told_of_a_broken_reply_is_marked(bench, task):
    """Whoever reads along sees that it begins anew."""
    bench.server.acts = [unfinished(3, "Half a reply"), says("Done.")]
    told = []
    bench.model().reply(task.window(), on_text=told.append)
    assert "".join(told) == "Half a reply\n[interrupted; starting again]\nDone."


def test_an_error_of_the_listener_is_not_the_providers(bench, task):
    """It goes to the caller, and nothing is tried again."""
    bench.server.acts = [says("Done."), says("Done.")]

    def breaks(_):
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        bench.model().reply(task.window(), on_text=breaks)
    assert len(bench.server.bodies) == 1


# waiting


@pytest.mark.parametrize(
    ("headers", "waited"),
    [
        ({"Retry-After": "7"}, 7.0),
        ({"Retry-After": "0.5"}, 0.5),
        ({"Retry-After-Ms": "250", "Retry-After": "9"}, 0.25),
        ({"Retry-After": "86400"}, 120.0),
        ({"Retry-After": formatdate(time.time() + 86_400, usegmt=True)}, 120.0),
        ({"Retry-After": formatdate(0, usegmt=True)}, 0.0),
        ({"Retry-After": "soon"}, 1.0),
        ({"Retry-After": "-3"}, 0.0),
        ({"Retry-After": "inf"}, 1.0),
    ],
)
def test_the_provider_says_how_long_to_wait(bench, task, headers, waited):
    """In seconds or as a date, and at most two minutes; what means nothing is passed over."""
    bench.server.acts = [status(429, headers=headers), says("Done.")]
    bench.model().reply(task.window())
    assert bench.waits == [waited]


def test_all_tries_together_have_a_limit(bench, task):
    """A wait that would end after it is not begun."""
    now = [0.0]

    def sleep(seconds):
        now[0] += seconds

    bench.server.acts = [status(429, headers={"Retry-After": "50"})] * 9
    with pytest.raises(ModelError, match="tried 3 times"):
        bench.model(tries=99, max_seconds=120.0, sleep=sleep, clock=lambda: now[0]).reply(task.window())
    assert now[0] == 100.0


# failures that stay


@pytest.mark.parametrize(
    ("act", "said", "hint"),
    [
        (status(400, "messages: bad", type="invalid_request_error"), "400: messages: bad.", ""),
        (status(401, f"Incorrect API key provided: {KEY}"), "401: Incorrect API key provided", "api_key"),
        (status(403, "Not allowed"), "403: Not allowed", "api_key"),
        (status(404, "model not found"), "404: model not found", "name of the model"),
        (status(422, "no"), "422: no", ""),
        (status(429, "You exceeded your current quota.", code="insufficient_quota", type="insufficient_quota"),
         "quota", "credit"),
        (status(503, "no", headers={"x-should-retry": "false"}), "503: no", ""),
        (answers_json({"error": {"message": "bad tool", "type": "invalid_request_error"}}), "bad tool", ""),
        (answers_json({"detail": "Not Found"}, 404), "404: Not Found", "base_url"),
    ],
)  # fmt: skip
def test_what_does_not_pass_by_itself_is_not_tried_again(bench, task, act, said, hint):
    """One request, the provider's words, what to do, and no key in them."""
    bench.server.acts = [act, says("Done.")]
    with pytest.raises(ModelError) as caught:
        bench.model().reply(task.window())
    assert said in caught.value.message
    assert hint in caught.value.hint
    assert not caught.value.retryable
    assert KEY not in str(caught.value)
    assert len(bench.server.bodies) == 1


OVERFLOWS = {
    "OpenAI": status(400, "This model's maximum context length is 8192 tokens. However, your messages resulted in "
                     "9000 tokens.", code="context_length_exceeded", type="invalid_request_error"),
    "Anthropic": status(400, "prompt is too long: 210000 tokens > 200000 maximum", type="invalid_request_error"),
    "Anthropic, with the reply": status(400, "input length and `max_tokens` exceed context limit: 199000 + 8192 > "
                                        "200000, decrease input length or `max_tokens` and try again"),
    "Anthropic, in bytes": status(413, "Request exceeds the maximum size", type="request_too_large"),
    "vLLM": answers_json({"object": "error", "message": "This model's maximum context length is 4096 tokens. However, "
                          "you requested 5000 tokens", "type": "BadRequestError", "code": 400}, 400),
    "vLLM, long": status(400, "The decoder prompt (length 5000) is longer than the maximum model length of 4096."),
    "vLLM, negative": status(400, "max_tokens must be at least 1, got -186."),
    "vLLM, with the reply": status(400, "'max_tokens' or 'max_completion_tokens' is too large: 4096. This model's "
                                   "maximum context length is 8192 tokens and your request has 7000 input tokens"),
    "llama.cpp": status(400, "the request exceeds the available context size. try increasing the context size",
                        code=400, type="exceed_context_size_error"),
    "llama.cpp, as 500": status(500, "the request exceeds the available context size", type="server_error"),
    "llama.cpp, as 200": answers_json({"error": {"code": 400, "message": "too many", "n_ctx": 8192,
                                                 "type": "exceed_context_size_error"}}),
    "Ollama": status(400, "the input length exceeds the context length"),
    "LM Studio": answers_json({"error": "Trying to keep the first 15857 tokens when context the overflows. However, "
                               "the model is loaded with context length of only 4096 tokens"}, 400),
    "LM Studio, newer": status(400, "Cannot truncate prompt with n_keep (15028) >= n_ctx (7424)"),
    "LM Studio, in the stream": fails_midway({"message": "The number of tokens to keep from the initial prompt is "
                                              "greater than the context length"}),
    "OpenAI, by the minute": status(429, "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested "
                                    "40000. The input or output tokens must be reduced in order to run successfully."),
}  # fmt: skip


@pytest.mark.parametrize("act", OVERFLOWS.values(), ids=OVERFLOWS)
def test_a_request_that_is_too_long_is_told_apart(bench, task, act):
    """Whatever words a provider has for it; the same request is not sent again."""
    bench.server.acts = [act, says("Done.")]
    with pytest.raises(ContextOverflow, match="rejected the request as too long") as caught:
        bench.model().reply(task.window())
    assert not caught.value.retryable
    assert "shrink_budget" in caught.value.hint
    assert len(bench.server.bodies) == 1


@pytest.mark.parametrize("words", ["Rate limit reached: 30000 tokens per min", "max_tokens is too large", "Overloaded"])
def test_other_words_about_tokens_are_no_overflow(bench, task, words):
    """Folding would not help there."""
    bench.server.acts = [status(400, words)]
    with pytest.raises(ModelError) as caught:
        bench.model().reply(task.window())
    assert type(caught.value) is ModelError


# replies that were cut by the length


def cut_reason(bench):
    return "length" if bench.provider == "openai" else "max_tokens"


@pytest.mark.parametrize("arguments", ["", '{"path": "a.py", "text": "imp'])
def test_a_call_that_was_cut_is_never_run(bench, task, arguments):
    """The whole call before it waits; the cut one is answered with an error that the model reads."""
    bench.server.acts = [says("I write.", READ, ("run_tests", arguments), finish=cut_reason(bench)), says("Done.")]
    model = bench.model()
    reply = model.reply(task.window())
    assert was_cut(reply)
    task.add_reply(reply)
    (call,) = task.pending_calls()
    assert call.name == "read_file"
    with task.tool(call) as run:
        run.result = "print(2)"
    model.reply(task.window())
    sent = bench.server.bodies[1]
    assert not violations(bench.provider, sent["messages"] if bench.provider == "openai" else sent)
    assert "not valid JSON" in json.dumps(sent)
    assert task.stats().tool_calls == 3


def test_a_text_that_was_cut_says_so(bench, task):
    """It is passed on, and whoever asked can tell."""
    bench.server.acts = [says("Half of wh", finish=cut_reason(bench))]
    reply = bench.model().reply(task.window())
    assert was_cut(reply)
    assert parse_reply(reply).text == "Half of wh"


def test_a_reply_that_was_cut_before_it_said_anything_is_an_error(bench, task):
    """A model that thinks longer than it may answer needs more room, not another try."""
    bench.server.acts = [says("", finish=cut_reason(bench), thinking="Hm, hm, hm.")]
    with pytest.raises(ModelError, match="before it wrote any text") as caught:
        bench.model().reply(task.window())
    assert "reserved_output" in caught.value.hint
    assert len(bench.server.bodies) == 1


# questions

SCHEMA = {"type": "object", "properties": {"goal": {"type": "string"}}, "required": ["goal"]}


def test_a_question_has_no_tools_and_no_history(bench):
    """Only the prompt is sent, and the text comes back."""
    bench.server.acts = [says("A summary.")]
    assert bench.model().ask("Summarise this.") == "A summary."
    (body,) = bench.server.bodies
    assert body["messages"] == [{"role": "user", "content": "Summarise this."}]
    assert "tools" not in body


def test_an_answer_can_have_a_form(bench):
    """The schema goes the way that the provider offers."""
    bench.server.acts = [says('{"goal": "x"}')]
    assert bench.model().ask("Plan.", schema=SCHEMA) == '{"goal": "x"}'
    (body,) = bench.server.bodies
    if bench.provider == "openai":
        assert body["response_format"]["json_schema"]["schema"] == SCHEMA
    else:
        assert body["output_config"] == {"format": {"type": "json_schema", "schema": SCHEMA}}


def test_a_server_without_forms_is_told_in_words(bench):
    """It is asked once more at once, and from then on in words alone."""
    refusal = "Unsupported: 'response_format' of type 'json_schema'; output_config is not known."
    bench.server.acts = [status(400, refusal), says('{"goal": "x"}'), says('{"goal": "y"}')]
    model = bench.model()
    assert model.ask("Plan.", schema=SCHEMA) == '{"goal": "x"}'
    assert model.ask("Plan.", schema=SCHEMA) == '{"goal": "y"}'
    assert bench.waits == []
    for body in bench.server.bodies[1:]:
        assert "response_format" not in body
        assert "output_config" not in body
        assert '"goal"' in body["messages"][0]["content"]


def test_half_an_answer_is_no_answer(bench):
    """A summary or a plan that was cut would be taken for a whole one."""
    bench.server.acts = [says("Half of", finish=cut_reason(bench))]
    with pytest.raises(ModelError, match="was cut"):
        bench.model().ask("Summarise this.")


def test_the_length_of_a_reply_is_called_as_the_server_knows_it(openai_bench, task):
    """A server that refuses the old name gets the new one at once, and from then on."""
    refusal = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens'."
    openai_bench.server.acts = [status(400, refusal), says("Done."), says("Done.")]
    model = openai_bench.model()
    model.reply(task.window())
    model.reply(task.window())
    lengths = [(body.get("max_tokens"), body.get("max_completion_tokens")) for body in openai_bench.server.bodies]
    assert lengths == [(512, None), (None, 512), (None, 512)]
    assert openai_bench.waits == []


def test_tools_can_be_left_out(bench, task, monkeypatch):
    """`llm.function_calling: false` offers none."""
    settings = bench.settings
    without = msgspec.structs.replace(settings, llm=msgspec.structs.replace(settings.llm, function_calling=False))
    monkeypatch.setattr(type(bench), "settings", without)
    bench.server.acts = [says("Done.")]
    bench.model().reply(task.window())
    assert "tools" not in bench.server.bodies[0]


def test_a_server_that_forgets_silently_is_noticed(openai_bench, caplog):
    """It counted far less than was sent: a warning says which two numbers do not go together, once."""
    with orihon.open("memory:", settings=Settings()) as engine, engine.start(TASK_KEY) as task:
        task.add("user", "word " * 6000)
        openai_bench.server.acts = [says("Hm.", usage=(2048, 2)), says("Hm.", usage=(2048, 2))]
        model = openai_bench.model()
        model.reply(task.window())
        model.reply(task.window())
    (record,) = [record for record in caplog.records if "seems to have cut" in record.getMessage()]
    assert "llm.openai.context_length" in record.getMessage()


# names, keys and libraries


@pytest.mark.parametrize(
    ("name", "settings", "opened"),
    [
        ("", Settings(), "openai:gpt-4o"),
        ("gpt-5", Settings(), "openai:gpt-5"),
        ("openai:gpt-5", Settings(llm=Llm(provider="ollama")), "openai:gpt-5"),
        ("ollama:qwen3:30b", Settings(), "ollama:qwen3:30b"),
        ("qwen3:30b", Settings(llm=Llm(provider="ollama")), "ollama:qwen3:30b"),
        ("lmstudio:", Settings(), "lmstudio:qwen3-30b"),
        ("anthropic:claude-test", Settings(), "anthropic:claude-test"),
    ],
)
def test_names(monkeypatch, name, settings, opened):
    """With a provider or without, and with colons of their own."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    model = open_model(name, settings)
    assert model.name == opened
    model.close()


@pytest.mark.parametrize("place", ["HOME", "ANTHROPIC_CONFIG_DIR"])
@pytest.mark.parametrize(("name", "variable"), [("openai:gpt-4o", "OPENAI"), ("anthropic:claude", "ANTHROPIC")])
def test_a_missing_key_is_said_before_anything_is_sent(name, variable, place, monkeypatch, tmp_path):
    """The hint names the variable and the setting."""
    monkeypatch.setenv(place, str(tmp_path))
    with pytest.raises(UsageError, match="no key") as caught:
        open_model(name, Settings())
    assert f"{variable}_API_KEY" in caught.value.hint
    assert f"llm.{variable.lower()}.api_key" in caught.value.hint


def test_keys_go_where_they_belong(monkeypatch, openai_bench, task):
    """A server of one's own needs no key, and never gets the one that the environment has for OpenAI."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    root = openai_bench.server.root
    openai_bench.server.acts = [says("Done."), says("Done."), says("Done.")]
    mine = Settings(llm=Llm(provider="ollama", ollama=Provider(model="q", base_url=f"{root}/v1")))
    for settings in (mine, openai_bench.settings):
        model = open_model("", settings)
        model.reply(task.window())
        model.close()
    assert openai_bench.server.keys == ["Bearer none", f"Bearer {KEY}"]
    monkeypatch.delenv("OPENAI_API_KEY")
    keyless = open_model("openai:q", Settings(llm=Llm(openai=Provider(base_url=f"{root}/v1"))))
    keyless.reply(task.window())
    keyless.close()
    assert openai_bench.server.keys[-1] == "Bearer none"


@pytest.mark.parametrize(
    ("name", "settings", "sentence"),
    [
        ("anthropic:", Settings(), "No model is named for anthropic"),
        ("", Settings(llm=Llm(provider="anthropic")), "No model is named for anthropic"),
        ("openai:x", Settings(llm=Llm(openai=Provider(base_url="localhost:11434"))), "not a URL"),
        ("scripted:", Settings(), "No script"),
        ("scripted:/nowhere/replies.json", Settings(), "cannot be read"),
    ],
)
def test_names_that_mean_nothing(name, settings, sentence):
    """One sentence each, and a hint."""
    with pytest.raises(UsageError, match=sentence):
        open_model(name, settings)


@pytest.mark.parametrize(("name", "package"), [("openai:gpt-4o", "openai"), ("anthropic:claude", "anthropic")])
def test_a_missing_library_is_one_sentence(monkeypatch, name, package):
    """With the command that installs it."""
    for module in [name for name in sys.modules if name.startswith("orihon.agent.models.") and "_" in name]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UsageError, match=f"{package} is needed") as caught:
        open_model(name, Settings(llm=Llm(openai=Provider(api_key=Secret(KEY)))))
    assert 'pip install "orihon[agent]"' in caught.value.hint


# the cache


def test_without_a_place_nothing_is_cached(bench, task):
    """Off by default: the same question is asked twice."""
    bench.server.acts = [says("One."), says("Two.")]
    model = bench.model()
    assert [parse_reply(model.reply(task.window())).text for _ in range(2)] == ["One.", "Two."]


def test_a_repeated_request_is_answered_from_disk(bench, task, tmp_path, caplog):
    """Exactly the same reply, usage included, also by another model object; the files are private and hold no key."""
    caplog.set_level(logging.DEBUG, "orihon")
    bench.server.acts = [says("I look.", READ), says("A summary.")]
    place = tmp_path / "replies"
    first, told = bench.model(cache=place), []
    replies = [first.reply(task.window()), bench.model(cache=place).reply(task.window(), on_text=told.append)]
    assert replies[0] == replies[1]
    assert told == ["I look."]
    assert [first.ask("Summarise this."), first.ask("Summarise this.")] == ["A summary."] * 2
    assert len(bench.server.bodies) == 2
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    files = list(place.iterdir())
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert len(files) == 2
    assert not any(KEY.encode() in file.read_bytes() for file in files)
    assert "comes from the cache" in caplog.text


def test_another_request_or_model_is_another_key(bench, task, tmp_path):
    """Messages, tools, parameters and the model all count."""
    bench.server.acts = [says("One."), says("Two."), says("Three.")]
    model = bench.model(cache=tmp_path)
    texts = [parse_reply(model.reply(task.window())).text]
    task.add("user", "And the till.")
    texts.append(parse_reply(model.reply(task.window())).text)
    texts.append(parse_reply(bench.model(f"{bench.provider}:another", cache=tmp_path).reply(task.window())).text)
    assert texts == ["One.", "Two.", "Three."]


def test_only_whole_replies_without_secrets_are_kept(bench, task, tmp_path):
    """Not a cut one, not one that failed, and not one that quotes a key."""
    bench.server.acts = [says("Half of", finish=cut_reason(bench)), status(400), says(f"It says {KEY}."), says("Done.")]
    model = bench.model(cache=tmp_path)
    model.reply(task.window())
    with pytest.raises(ModelError):
        model.reply(task.window())
    model.reply(task.window())
    assert list(tmp_path.iterdir()) == []
    model.reply(task.window())
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("damage", [b"", b"{", b'{"key": "other", "reply": {}}', b"[]"])
def test_a_damaged_file_is_as_if_it_were_not_there(bench, task, tmp_path, damage):
    """The model is asked, and the file is good again."""
    bench.server.acts = [says("One."), says("Two.")]
    model = bench.model(cache=tmp_path)
    model.reply(task.window())
    (file,) = tmp_path.iterdir()
    file.write_bytes(damage)
    assert [parse_reply(model.reply(task.window())).text for _ in range(2)] == ["Two.", "Two."]


def test_a_cache_that_cannot_be_written_stops_nobody(bench, task, tmp_path, caplog, monkeypatch):
    """A warning, and the reply."""

    def full(*_):
        raise OSError(28, "No space left on device")

    bench.server.acts = [says("Done.")]
    model = bench.model(cache=tmp_path)
    monkeypatch.setattr("orihon.stores.files.write_all", full)
    assert parse_reply(model.reply(task.window())).text == "Done."
    assert "could not be cached" in caplog.text
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_a_cache_is_said_at_once(bench, tmp_path):
    """Before a task is begun with it."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="Replies cannot be cached"):
        bench.model(cache=tmp_path / "file" / "replies")


def test_keys_appear_in_no_log(bench, task, caplog):
    """Whatever fails, and however much is logged."""
    caplog.set_level(logging.DEBUG)
    bench.server.acts = [status(500, f"bad key {KEY}"), cut(0.5), says("Done.")]
    bench.model().reply(task.window())
    assert "Trying again in" in caplog.text
    assert not [record for record in caplog.records if KEY in record.getMessage()]
