"""Rounds of a loop with a model that was never asked: its replies, and what the tools say."""

import itertools
import json

import orihon

KEY = orihon.TaskKey.github("acme", "shop", issue=27)
TOOLS = [
    {
        "type": "function",
        "function": {"name": name, "parameters": {"type": "object", "properties": {"path": {"type": "string"}}}},
    }
    for name in ("read_file", "run_tests")
]


_ids = itertools.count(1)


def calling(*calls, text="", usage=None):
    """A reply of OpenAI's that asks for tools: `("read_file", {"path": "a.py"})`."""
    asked = [
        {
            "id": f"call_{next(_ids)}",
            "type": "function",
            "function": {"name": name, "arguments": arguments if isinstance(arguments, str) else json.dumps(arguments)},
        }
        for name, arguments in calls
    ]
    return saying(text, usage=usage, tool_calls=asked)


def saying(text, *, usage=None, **more):
    """A reply of OpenAI's."""
    value = {"model": "gpt-4o", "choices": [{"message": {"role": "assistant", "content": text, **more}}]}
    return value | ({"usage": {"prompt_tokens": usage[0], "completion_tokens": usage[1]}} if usage else {})


def turn(task, reply, results=()):
    """One round of the loop; the results of the calls in their order."""
    window = task.window()
    task.add_reply(reply)
    waiting = iter(results)
    for call in task.pending_calls():
        with task.tool(call) as run:
            run.result = next(waiting, "ok")
    return window
