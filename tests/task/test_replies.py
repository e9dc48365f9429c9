"""Replies of every provider, as dicts and as objects, end in the same task."""

from types import SimpleNamespace

import pytest

from orihon.errors import UsageError
from support.replies import KEY, TOOLS
from support.wire_rules import violations

ARGUMENTS = {"path": "a.py"}

REPLIES = {
    "openai": {
        "model": "gpt-4o",
        "choices": [{"message": {"role": "assistant", "content": "Let me look.", "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "read_file", "arguments": '{"path": "a.py"}'}},
            {"id": "call_2", "type": "function", "function": {"name": "run_tests", "arguments": "{}"}},
        ]}}],
        "usage": {"prompt_tokens": 90, "completion_tokens": 10},
    },
    "responses": {
        "model": "gpt-4o",
        "output": [
            {"type": "reasoning", "id": "rs_1", "summary": []},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Let me look."}]},
            {"type": "function_call", "call_id": "call_1", "name": "read_file", "arguments": '{"path": "a.py"}'},
            {"type": "function_call", "call_id": "call_2", "name": "run_tests", "arguments": "{}"},
        ],
        "usage": {"input_tokens": 90, "output_tokens": 10},
    },
    "anthropic": {
        "type": "message", "model": "claude",
        "content": [
            {"type": "text", "text": "Let me look."},
            {"type": "tool_use", "id": "toolu_1", "name": "read_file", "input": ARGUMENTS},
            {"type": "tool_use", "id": "toolu_2", "name": "run_tests", "input": {}},
        ],
        "usage": {"input_tokens": 80, "cache_read_input_tokens": 10, "output_tokens": 10},
    },
    "gemini": {
        "modelVersion": "gemini",
        "candidates": [{"content": {"role": "model", "parts": [
            {"text": "Let me look."},
            {"functionCall": {"name": "read_file", "args": ARGUMENTS}},
            {"functionCall": {"name": "run_tests", "args": {}}},
        ]}}],
        "usageMetadata": {"promptTokenCount": 90, "candidatesTokenCount": 10},
    },
    "ollama": {
        "model": "qwen3", "done": True,
        "message": {"role": "assistant", "content": "Let me look.", "tool_calls": [
            {"function": {"name": "read_file", "arguments": ARGUMENTS}},
            {"function": {"name": "run_tests", "arguments": {}}},
        ]},
        "prompt_eval_count": 90, "eval_count": 10,
    },
}  # fmt: skip


def as_object(value):
    """What an SDK gives: attributes instead of keys; arguments stay what they are."""
    if isinstance(value, dict):
        return SimpleNamespace(
            **{name: item if name in {"args", "input"} else as_object(item) for name, item in value.items()}
        )
    return [as_object(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("shape", ["dict", "object"])
@pytest.mark.parametrize("provider", REPLIES)
def test_a_reply_of_each_provider(engine, provider, shape):
    """Text, calls and usage arrive, calls without an id get one, and the next window is valid in every format."""
    reply = REPLIES[provider] if shape == "dict" else as_object(REPLIES[provider])
    with engine.start(KEY, tools=TOOLS, inherit=False) as task:
        task.add("user", "Fix it.")
        for _ in range(2):  # ids that come again must not be mistaken for each other
            task.window()
            task.add_reply(reply)
            calls = task.pending_calls()
            assert [(call.name, call.arguments) for call in calls] == [("read_file", ARGUMENTS), ("run_tests", {})]
            for call in calls:
                with task.tool(call) as run:
                    run.result = call.name
            assert task.pending_calls() == []
        window = task.window()
        for api in ("openai", "responses", "anthropic", "gemini"):
            assert violations(api, getattr(window, api)()) == []
        results = [message["content"] for message in window.openai() if message["role"] == "tool"]
        assert results == ["read_file", "run_tests"] * 2
    row = engine.row(task.uuid)
    assert (row.llm_call_count, row.tool_call_count, row.total_tokens) == (2, 4, 200)


class Incomplete:
    """A model of an SDK whose validation fails when it is dumped."""

    def model_dump(self, **_):
        raise ValueError("3 fields are missing")


@pytest.mark.parametrize("reply", [Incomplete(), {"choices": [Incomplete()]}], ids=["reply", "inside"])
def test_a_model_that_cannot_be_dumped(engine, reply):
    """The error is a sentence that names the type and the reason, and nothing is stored."""
    with engine.start(KEY) as task:
        task.add("user", "Fix the basket.")
        with pytest.raises(UsageError, match=r"Incomplete cannot be read: .*ValueError: 3 fields are missing"):
            task.add_reply(reply)
        with pytest.raises(UsageError, match="not a part of a message"):
            task.add("user", [Incomplete()])
        assert task.log.last == 1
