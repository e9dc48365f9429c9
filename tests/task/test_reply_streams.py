"""A streamed reply passes through unchanged, and is stored when it is complete; `unfold` and `recall` are functions."""

import asyncio
import inspect

import anthropic.types
import pytest
from openai.types.chat import ChatCompletionChunk
from openai.types.responses import ResponseCompletedEvent, ResponseTextDeltaEvent

from orihon.errors import ModelError
from support.replies import KEY, TOOLS, calling


def chunk(delta=None, finish_reason=None, **more):
    choice = {"index": 0, "delta": delta or {}, "finish_reason": finish_reason}
    return {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice], **more}


def call_chunk(**function):
    return {"tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": function}]}


CHAT = [
    chunk({"role": "assistant", "content": "Let me "}),
    chunk({"content": "look."}),
    chunk(call_chunk(name="read_file", arguments='{"path":')),
    chunk(call_chunk(arguments=' "a.py"}')),
    chunk({}, "tool_calls"),
    chunk() | {"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}},
]
ANTHROPIC = [
    {
        "type": "message_start",
        "message": {
            "id": "m",
            "type": "message",
            "role": "assistant",
            "model": "claude",
            "content": [],
            "usage": {"input_tokens": 10, "output_tokens": 0},
        },
    },
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Let me look."}},
    {"type": "content_block_stop", "index": 0},
    {
        "type": "content_block_start",
        "index": 1,
        "content_block": {"type": "tool_use", "id": "c1", "name": "read_file", "input": {}},
    },
    {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": '{"path": "a'}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": '.py"}'}},
    {"type": "content_block_stop", "index": 1},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 5}},
    {"type": "message_stop"},
]
OUTPUT = [
    {
        "type": "message",
        "id": "msg",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "Let me look.", "annotations": []}],
    },
    {"type": "function_call", "id": "fc", "call_id": "c1", "name": "read_file", "arguments": '{"path": "a.py"}'},
]
RESPONSE = {"id": "r", "object": "response", "model": "m", "usage": {"input_tokens": 10, "output_tokens": 5}}
RESPONSES = [
    {"type": "response.created", "response": RESPONSE | {"output": []}},
    {"type": "response.output_text.delta", "delta": "Let me look."},
    *({"type": "response.output_item.done", "item": item} for item in OUTPUT),
    {"type": "response.completed", "response": RESPONSE | {"output": OUTPUT}},
]
STREAMS = {"openai": CHAT, "anthropic": ANTHROPIC, "responses": RESPONSES}
UNNAMED = [*RESPONSES[:-1], {"type": "response.completed", "response": RESPONSE | {"output": []}}]


async def later(events):
    for event in events:
        await asyncio.sleep(0)
        yield event


@pytest.fixture
def task(engine):
    with engine.start(KEY, tools=TOOLS) as task:
        task.add("user", "Fix it.")
        task.window()
        yield task


def check(task, seq):
    message = task.log.one(seq)
    assert message.text == "Let me look."
    assert [(call.id, call.name) for call in message.tool_calls] == [("c1", "read_file")]
    assert task.pending_calls()[0].arguments == {"path": "a.py"}
    assert (message.usage.input_tokens, message.usage.output_tokens) == (10, 5)
    assert task.row.llm_call_count == 1


@pytest.mark.parametrize("events", [*STREAMS.values(), UNNAMED], ids=[*STREAMS, "responses, items one by one"])
def test_a_stream_passes_through_and_is_stored(task, events):
    """Every event comes out as the same object, and the reply is there afterwards."""
    stream = task.add_reply(iter(events))
    assert all(one is other for one, other in zip(stream, events, strict=True))
    check(task, stream.seq)


@pytest.mark.parametrize("events", STREAMS.values(), ids=STREAMS)
def test_an_asynchronous_stream(task, events):
    """It is yielded on as it comes."""

    async def main():
        stream = task.add_reply(later(events))
        return stream, [event async for event in stream]

    stream, seen = asyncio.run(main())
    assert seen == events
    check(task, stream.seq)


def test_objects_of_the_sdks(task):
    """They come out as they are."""
    chunks = [ChatCompletionChunk.model_validate(event) for event in CHAT]
    stream = task.add_reply(iter(chunks))
    assert list(stream) == chunks
    check(task, stream.seq)


def test_events_of_the_other_sdks(engine):
    """Anthropic's and those of the Responses are read as well."""
    start = anthropic.types.RawMessageStartEvent.model_validate(
        ANTHROPIC[0] | {"message": ANTHROPIC[0]["message"] | {"stop_reason": None, "stop_sequence": None}}
    )
    deltas = [
        ResponseTextDeltaEvent.model_construct(**RESPONSES[1]),
        ResponseCompletedEvent.model_construct(**RESPONSES[-1]),
    ]
    for events in ([start, *ANTHROPIC[1:]], deltas):
        with engine.start(KEY, tools=TOOLS, inherit=False) as task:
            stream = task.add_reply(iter(events))
            assert list(stream) == events
            assert task.log.one(stream.seq).text == "Let me look."


@pytest.mark.parametrize("events", STREAMS.values(), ids=STREAMS)
def test_a_stream_that_breaks_off_is_no_reply(task, events):
    """The error says so and can be retried; nothing is stored, and the next reply is."""
    with pytest.raises(ModelError, match="broke off") as caught:
        list(task.add_reply(iter(events[:2])))
    assert caught.value.retryable
    assert task.log.last == 1
    task.add_reply(calling(("read_file", {"path": "a.py"})))
    assert task.log.last == 2


def test_a_stream_that_is_left_early_is_no_reply(task):
    """The caller has seen a part; the log has nothing."""
    stream = task.add_reply(iter(CHAT))
    next(iter(stream))
    assert (stream.seq, task.log.last) == (None, 1)


@pytest.mark.parametrize(
    "events",
    [
        [{"type": "response.created"}, {"type": "response.failed", "response": {"error": {"message": "overloaded"}}}],
        [{"object": "error", "message": "overloaded"}],
    ],
)
def test_a_failure_inside_a_stream_is_an_error(task, events):
    """It quotes the provider."""
    with pytest.raises(ModelError, match="overloaded"):
        list(task.add_reply(iter(events)))
    assert task.log.last == 1


@pytest.mark.parametrize("event", [3, "text", {"choices": 7}, None])
def test_what_is_no_event_is_an_error(task, event):
    """Nothing is stored."""
    with pytest.raises(ModelError):
        list(task.add_reply(iter([event])))
    assert task.log.last == 1


def test_lookups_are_plain_functions(engine):
    """They answer like the engine's own tools, and say errors in words; a framework can describe them."""
    with engine.start(KEY, tools=[], context_length=6_000, reserved_output=0) as task:
        task.add("user", "Read all.")
        for number in range(20):
            task.add_reply(calling(("read_file", {"path": f"{number}.py"})))
            (call,) = task._calls.unanswered()
            task.add("tool", f"line of {number}, a zebra\n" * 90, tool_call_id=call.id)
        task.window()
        unfold, recall = task.lookups()
        assert "line of 0, a zebra" in unfold("m3")
        assert unfold("m3", lines="1") != unfold("m3")
        assert "zebra" in recall("zebra 0")
        assert "no handle" in unfold("nothing")
        assert "previous" in recall("zebra", of="previous")
    assert [one.__name__ for one in (unfold, recall)] == ["unfold", "recall"]
    assert list(inspect.signature(unfold).parameters) == list(unfold.schema["function"]["parameters"]["properties"])
    assert list(inspect.signature(recall).parameters) == list(recall.schema["function"]["parameters"]["properties"])
    for one in (unfold, recall):
        assert inspect.getdoc(one).startswith(one.schema["function"]["description"])
