"""OpenAI's chat completions, and every server with that API: Ollama, LM Studio, vLLM, llama.cpp, gateways.

Servers differ in the name of the reply's limit, and in whether they know usage in streams and answers by a schema; the
client learns this from their refusals. A stream is complete after a `finish_reason`. Streams are joined here because
the SDK's accumulator fails on servers that do not number calls as OpenAI does (docs/adr/0010).
"""

from __future__ import annotations

import json
from typing import Any, ClassVar

import openai

from orihon.agent.models.client import NO_KEY, UNFINISHED, RemoteModel, Request
from orihon.agent.models.errors import ReportedError, make_missing_key_error
from orihon.task.window import Window

_TEXTS = ("content", "refusal", "reasoning_content", "reasoning")
_DETAIL_TEXTS = ("text", "summary", "data")


class OpenAIChat(RemoteModel):
    """One model of one server."""

    dialect = "openai"
    refusable: ClassVar = {
        "max_tokens": ("max_completion_tokens",),
        "stream_options": ("stream_options",),
        "schema": ("response_format", "json_schema"),
    }
    renamed: ClassVar = {"max_tokens": "max_completion_tokens"}
    always: ClassVar = {"stream_options": {"include_usage": True}}

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        options = self.client_options()
        try:
            self.client = openai.OpenAI(**options)
        except openai.OpenAIError:
            if not self.section.base_url:
                raise make_missing_key_error(self.provider) from None
            self.client = openai.OpenAI(**options | {"api_key": NO_KEY})
        self.provider = self.provider.with_keys(self.client.api_key)
        if not self.section.base_url:  # newer models of OpenAI refuse it; other servers do not know the new name
            self.refused.add("max_tokens")

    def render(self, window: Window) -> Request:
        return {"messages": window.openai()}

    def render_schema(self, schema: dict[str, Any]) -> Request:
        return {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}}

    def send(self, body: Request) -> Any:
        return self.client.chat.completions.create(stream=True, **body)

    def make_accumulator(self) -> ChatAccumulator:
        return ChatAccumulator()


class ChatAccumulator:
    """Joins the chunks of one chat completion."""

    def __init__(self) -> None:
        self._head: dict[str, Any] = {"object": "chat.completion"}
        self._message: dict[str, Any] = {"role": "assistant", "content": None}
        self._calls: list[dict[str, Any]] = []
        self._calls_by_index: dict[Any, dict[str, Any]] = {}
        self._finish_reason: str | None = None
        self._reply: dict[str, Any] | None = None

    def add(self, event: dict[str, Any]) -> str:
        """Add a chunk and return its text."""
        if "choices" not in event and ("message" in event or event.get("object") == "error"):
            raise ReportedError(event)
        for name in ("id", "created", "model", "system_fingerprint", "usage"):
            if event.get(name) is not None:
                self._head[name] = event[name]
        text = ""
        for choice in event.get("choices") or ():
            if choice.get("index"):  # only one choice was requested
                continue
            if "message" in choice:  # not streamed
                self._reply = event
                return choice["message"].get("content") or ""
            self._finish_reason = choice.get("finish_reason") or self._finish_reason
            text += self._add_delta(choice.get("delta") or {})
        return text

    def finish(self) -> dict[str, Any] | None:
        """Return the completion, or None before a `finish_reason`."""
        reply = self._reply
        if reply is None:
            if self._finish_reason is None:
                return None
            message = self._message | ({"tool_calls": self._calls} if self._calls else {})
            choice = {"index": 0, "message": message, "finish_reason": self._finish_reason}
            reply = self._head | {"choices": [choice]}
        _mark_unfinished_call(reply["choices"][0])
        return reply

    def _add_delta(self, delta: dict[str, Any]) -> str:
        for name in _TEXTS:
            if delta.get(name):
                self._message[name] = (self._message.get(name) or "") + delta[name]
        for detail in delta.get("reasoning_details") or ():
            self._add_detail(detail)
        for fragment in delta.get("tool_calls") or ():
            self._add_call(fragment)
        return delta.get("content") or ""

    def _add_call(self, fragment: dict[str, Any]) -> None:
        """Add a fragment of a call. Servers number calls, or give them ids, or send each in one fragment."""
        function = fragment.get("function") or {}
        index, call_id = fragment.get("index"), fragment.get("id") or ""
        call = self._calls_by_index.get(index)
        if index is None and not call_id and not function.get("name") and self._calls:
            call = self._calls[-1]
        if call is None or (call_id and call["id"] and call["id"] != call_id):  # a new id is always a new call
            call = {"id": call_id, "type": "function", "function": {"name": "", "arguments": ""}}
            self._calls.append(call)
            if index is not None:
                self._calls_by_index[index] = call
        call["id"] = call["id"] or call_id
        call["function"]["name"] = call["function"]["name"] or function.get("name") or ""
        arguments = function.get("arguments") or ""
        call["function"]["arguments"] += arguments if isinstance(arguments, str) else json.dumps(arguments)

    def _add_detail(self, detail: dict[str, Any]) -> None:
        """Add a fragment of reasoning; fragments of one thought share index and type."""
        details = self._message.setdefault("reasoning_details", [])
        last = details[-1] if details else {}
        if not last or (last.get("index"), last.get("type")) != (detail.get("index"), detail.get("type")):
            details.append(dict(detail))
            return
        for name, value in detail.items():
            is_text = name in _DETAIL_TEXTS and isinstance(last.get(name), str)
            last[name] = last[name] + value if is_text else value


def _mark_unfinished_call(choice: dict[str, Any]) -> None:
    """Make a call that was cut before its arguments differ from a call without arguments."""
    calls = choice["message"].get("tool_calls")
    if choice.get("finish_reason") == "length" and calls and not (calls[-1]["function"].get("arguments") or "").strip():
        calls[-1]["function"]["arguments"] = UNFINISHED
