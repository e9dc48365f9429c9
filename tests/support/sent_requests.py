"""What a rendered request costs and whether its provider would take it, told from the request alone.

Nothing here asks how Orihon renders or counts. Costs are the sum over what a model reads: every text, the names, ids
and arguments of calls, a few tokens for each message and each call, and the least that a picture costs. Shapes are
checked against the types of the providers' own SDKs, where they have any.
"""

import functools
import json
from typing import Any

import pydantic
from anthropic.types import MessageParam, TextBlockParam
from openai.types.chat import ChatCompletionMessageParam
from openai.types.responses import ResponseInputItemParam

MESSAGE, CALL = 4, 8
LEAST_PICTURE = 255  # the smallest picture there is, by the rule of the counters


class Cost:
    """A sum of tokens by one counter; by the rule of four characters a role costs nothing."""

    def __init__(self, counter: Any) -> None:
        self.counter = counter
        self.bare = counter.name == "chars4"
        self.quarter = counter.name in {"chars4", "bytes4"}
        self.tokens: float = 0

    # what all formats are made of

    def text(self, text: str) -> None:
        if self.quarter:  # which divides the sum
            self.tokens += len(text if self.bare else text.encode()) / 4
        else:
            self.tokens += self.counter.text(text)

    def message(self) -> None:
        self.tokens += 0 if self.bare else MESSAGE

    def call(self, call_id: str, name: str, arguments: Any) -> None:
        self.answer(call_id)
        self.text(name)
        self.text(arguments if isinstance(arguments, str) else _json(arguments))

    def answer(self, name: str) -> None:
        self.text(name)
        self.tokens += 0 if self.quarter else CALL

    def content(self, content: Any) -> None:
        for part in [{"type": "text", "text": content}] if isinstance(content, str) else content or ():
            if "image" in part["type"]:
                self.tokens += 100 if self.quarter else LEAST_PICTURE
            else:  # of what only the provider can read, nothing is counted here
                self.text(next((part[key] for key in ("text", "thinking", "refusal") if key in part), ""))

    # the formats

    def openai(self, messages: Any) -> None:
        for message in messages:
            self.message()
            self.content(message["content"])
            self.text(message.get("reasoning_content") or "")
            if message["role"] == "tool":
                self.answer(message["tool_call_id"])
            for call in message.get("tool_calls") or ():
                self.call(call["id"], call["function"]["name"], call["function"]["arguments"])

    def responses(self, items: Any) -> None:
        for item in items:
            kind = item.get("type", "message")
            if kind == "message":
                self.content(item["content"])
            elif kind == "function_call":
                self.call(item["call_id"], item["name"], item["arguments"])
            elif kind == "function_call_output":
                self.answer(item["call_id"])
                self.content(item["output"])
            elif kind == "reasoning":
                for part in item.get("summary") or ():
                    self.text(part["text"])

    def anthropic(self, request: Any) -> None:
        self.content(request.get("system"))
        for turn in request["messages"]:
            self.message()
            for block in turn["content"]:
                if block["type"] == "tool_use":
                    self.call(block["id"], block["name"], block["input"])
                elif block["type"] == "tool_result":
                    self.answer(block["tool_use_id"])
                    self.content(block["content"])
                else:
                    self.content([block])

    def gemini(self, request: Any) -> None:
        for part in (request.get("systemInstruction") or {}).get("parts", ()):
            self.text(part["text"])
        for turn in request["contents"]:
            self.message()
            for part in turn["parts"]:
                if "functionCall" in part:
                    self.call("", part["functionCall"]["name"], part["functionCall"].get("args", {}))
                elif "functionResponse" in part:
                    self.answer(part["functionResponse"]["name"])
                    for text in part["functionResponse"]["response"].values():
                        self.text(text)
                elif "inlineData" in part:
                    self.tokens += 100 if self.quarter else LEAST_PICTURE
                elif "text" in part:
                    self.text(part["text"])


def tokens_of(api: str, request: Any, counter: Any) -> int:
    """What the messages of a request cost."""
    cost = Cost(counter)
    getattr(cost, api)(request)
    return int(cost.tokens)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@functools.cache
def _types() -> dict[str, Any]:
    return {
        "openai": pydantic.TypeAdapter(list[ChatCompletionMessageParam]),
        "responses": pydantic.TypeAdapter(list[ResponseInputItemParam]),
        "messages": pydantic.TypeAdapter(list[MessageParam]),
        "system": pydantic.TypeAdapter(list[TextBlockParam]),
    }


def misfits(api: str, request: Any) -> list[str]:
    """Where a request does not have the types that the provider's SDK declares."""
    given = {api: request} if api in {"openai", "responses"} else request if api == "anthropic" else {}
    found = []
    for name, value in given.items():
        try:
            _walk(_types()[name].validate_python(value))
        except pydantic.ValidationError as error:
            found += [f"{api} {name}: {one['loc']} {one['msg']}" for one in error.errors()[:3]]
    return found


def _walk(value: Any) -> None:
    """Some fields are iterables, which are checked when they are read."""
    if isinstance(value, dict):
        for item in value.values():
            _walk(item)
    elif not isinstance(value, str | bytes | int | float | None):
        for item in value:
            _walk(item)
