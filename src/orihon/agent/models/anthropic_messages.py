"""Anthropic's Messages API. A stream is complete after `message_stop`.

Streams are joined here because the SDK reads an incomplete JSON input as a complete one (docs/adr/0010).
"""

from __future__ import annotations

import json
from typing import Any, ClassVar

import anthropic

from orihon.agent.models.client import UNFINISHED, RemoteModel, Request
from orihon.agent.models.errors import make_missing_key_error
from orihon.task.window import Window

MAX_TOKENS = 4096  # the API requires a limit

_TEXTS = {"text_delta": "text", "thinking_delta": "thinking"}


class AnthropicMessages(RemoteModel):
    """One model of Anthropic, or of a gateway with its API."""

    dialect = "anthropic"
    refusable: ClassVar = {"schema": ("output_config", "schema")}
    always: ClassVar = {"max_tokens": MAX_TOKENS}

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        try:
            self.client = client = anthropic.Anthropic(**self.client_options())
        except anthropic.AnthropicError:  # the environment names a profile that cannot be read
            raise make_missing_key_error(self.provider) from None
        if client.api_key is None and client.auth_token is None and client.credentials is None:
            client.close()
            raise make_missing_key_error(self.provider)
        self.provider = self.provider.with_keys(client.api_key, client.auth_token)

    def render(self, window: Window) -> Request:
        return window.anthropic()

    def render_schema(self, schema: dict[str, Any]) -> Request:
        return {"output_config": {"format": {"type": "json_schema", "schema": schema}}}

    def send(self, body: Request) -> Any:
        return self.client.messages.create(stream=True, **body)

    def make_accumulator(self) -> MessageAccumulator:
        return MessageAccumulator()


class MessageAccumulator:
    """Joins the events of one message."""

    def __init__(self) -> None:
        self._message: dict[str, Any] = {}
        self._inputs: dict[int, str] = {}
        self._is_complete = False

    def add(self, event: dict[str, Any]) -> str:
        """Add an event and return its text."""
        match event.get("type"):
            case "message":  # not streamed
                self._message, self._is_complete = event, True
                return "".join(block["text"] for block in event["content"] if block.get("type") == "text")
            case "message_start":
                self._message = event["message"] | {"content": []}
            case "content_block_start":
                self._message["content"].append(dict(event["content_block"]))
            case "content_block_delta":
                return self._extend_block(event["index"], event["delta"])
            case "message_delta":
                self._message |= _drop_none(event["delta"])
                self._message["usage"] = (self._message.get("usage") or {}) | _drop_none(event.get("usage") or {})
            case "message_stop":
                self._is_complete = True
        return ""

    def finish(self) -> dict[str, Any] | None:
        """Return the message, or None before `message_stop`."""
        if not self._is_complete:
            return None
        content = self._message["content"]
        for index, text in self._inputs.items():
            content[index]["input"] = _parse_input(text)
        last = content[-1] if content else {}
        if self._message.get("stop_reason") == "max_tokens" and last.get("type") == "tool_use" and not last["input"]:
            last["input"] = self._inputs.get(len(content) - 1) or UNFINISHED
        return self._message

    def _extend_block(self, index: int, delta: dict[str, Any]) -> str:
        block, kind = self._message["content"][index], delta["type"]
        if kind in _TEXTS:
            name = _TEXTS[kind]
            block[name] = (block.get(name) or "") + delta[name]
            return str(delta["text"]) if kind == "text_delta" else ""
        if kind == "input_json_delta":
            self._inputs[index] = self._inputs.get(index, "") + delta["partial_json"]
        elif kind == "signature_delta":
            block["signature"] = delta["signature"]
        elif kind == "citations_delta":
            block["citations"] = [*(block.get("citations") or ()), delta["citation"]]
        return ""


def _parse_input(text: str) -> Any:
    """Return the input of a call, or the text itself if it is not a JSON object; such a call never runs."""
    if not text.strip():
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, dict) else text


def _drop_none(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
