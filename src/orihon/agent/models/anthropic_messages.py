"""Anthropic's Messages. A stream is whole when `message_stop` has come.

The pieces are put together here and not by the SDK, which would read half of a call's JSON as if it were all of it.
"""

from __future__ import annotations

import json
from typing import Any

import anthropic

from orihon.agent.models.client import Request
from orihon.agent.models.errors import Account, no_key
from orihon.agent.models.openai_chat import UNFINISHED, in_words, timeouts
from orihon.agent.models.patience import Patience
from orihon.settings.section import Secret
from orihon.task.window import Window

MAX_TOKENS = 4096  # the API wants a number

_GROWS = {"text_delta": "text", "thinking_delta": "thinking"}


class AnthropicMessages:
    """Speaks to Anthropic, or to a gateway that speaks like it, about one model."""

    def __init__(
        self,
        model: str,
        account: Account,
        patience: Patience,
        *,
        base_url: str = "",
        api_key: Secret | None = None,
        max_tokens: int = 0,
        tools: bool = True,
    ) -> None:
        self.model, self.max_tokens, self.offers_tools = model, max_tokens, tools
        options: dict[str, Any] = {"max_retries": 0, "timeout": timeouts(patience), "base_url": base_url or None}
        try:
            self.client = anthropic.Anthropic(api_key=api_key.reveal() if api_key is not None else None, **options)
        except anthropic.AnthropicError:  # a profile is asked for that cannot be read
            raise no_key(account) from None
        client = self.client
        if client.api_key is None and client.auth_token is None and client.credentials is None:
            client.close()
            raise no_key(account)
        self.account = account.knowing(client.api_key, client.auth_token)
        self._takes_forms = True

    def request(self, window: Window) -> Request:
        """The system prompt, messages and tools of a window."""
        max_tokens = window.reserved_output or self.max_tokens or MAX_TOKENS
        tools = window.tools("anthropic") if self.offers_tools else []
        request = {"model": self.model, "max_tokens": max_tokens} | window.anthropic()
        return request | {"tools": tools} if tools else request

    def question(self, prompt: str, schema: dict[str, Any] | None) -> Request:
        """One message of a user's, and the form of the answer."""
        messages = [{"role": "user", "content": prompt}]
        request = {"model": self.model, "max_tokens": self.max_tokens or MAX_TOKENS, "messages": messages}
        if schema is None:
            return request
        return request | {"output_config": {"format": {"type": "json_schema", "schema": schema}}}

    def fits(self, request: Request, words: str) -> bool:
        """Whether the API complains of the form of the answer, which can be said in words."""
        refused = "output_config" in request and self._takes_forms and ("output_config" in words or "schema" in words)
        self._takes_forms = self._takes_forms and not refused
        return refused

    def stream(self, request: Request) -> anthropic.Stream[Any]:
        """Send it."""
        body = dict(request)
        if "output_config" in body and not self._takes_forms:
            schema = body.pop("output_config")["format"]["schema"]
            body["messages"] = in_words(body["messages"], schema)
        sent: anthropic.Stream[Any] = self.client.messages.create(stream=True, **body)
        return sent

    def gathering(self) -> MessageGathering:
        """Nothing gathered yet."""
        return MessageGathering()

    def close(self) -> None:
        """Let go of connections."""
        self.client.close()


class MessageGathering:
    """The events of a message, put together to the object that the API gives without streaming."""

    def __init__(self) -> None:
        self._message: dict[str, Any] = {}
        self._inputs: dict[int, str] = {}
        self._ended = False

    def take(self, event: dict[str, Any]) -> str:
        """Take in an event; the text that it adds."""
        match event.get("type"):
            case "message":  # it was not streamed
                self._message, self._ended = event, True
                return "".join(item["text"] for item in event["content"] if item.get("type") == "text")
            case "message_start":
                self._message = event["message"] | {"content": []}
            case "content_block_start":
                self._message["content"].append(dict(event["content_block"]))
            case "content_block_delta":
                return self._grow(event["index"], event["delta"])
            case "message_delta":
                self._message |= {name: value for name, value in event["delta"].items() if value is not None}
                counted = {name: value for name, value in (event.get("usage") or {}).items() if value is not None}
                self._message["usage"] = (self._message.get("usage") or {}) | counted
            case "message_stop":
                self._ended = True
        return ""

    def whole(self) -> dict[str, Any] | None:
        """The message; None while it has not stopped."""
        if not self._ended:
            return None
        content = self._message["content"]
        for place, text in self._inputs.items():
            content[place]["input"] = _object_or_text(text)
        last = content[-1] if content else {}
        if self._message.get("stop_reason") == "max_tokens" and last.get("type") == "tool_use" and not last["input"]:
            last["input"] = self._inputs.get(len(content) - 1) or UNFINISHED
        return self._message

    def _grow(self, place: int, delta: dict[str, Any]) -> str:
        block, kind = self._message["content"][place], delta["type"]
        if kind in _GROWS:
            name = _GROWS[kind]
            block[name] = (block.get(name) or "") + delta[name]
            return str(delta["text"]) if kind == "text_delta" else ""
        if kind == "input_json_delta":
            self._inputs[place] = self._inputs.get(place, "") + delta["partial_json"]
        elif kind == "signature_delta":
            block["signature"] = delta["signature"]
        elif kind == "citations_delta":
            block["citations"] = [*(block.get("citations") or ()), delta["citation"]]
        return ""


def _object_or_text(text: str) -> Any:
    """The input of a call; as text when it is no JSON object, and then nobody runs it."""
    if not text.strip():
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, dict) else text
