"""OpenAI's chat completions, and everything that speaks like them: Ollama, LM Studio, vLLM, llama.cpp, gateways.

They differ in small things, which are settled once for each client: how the length of a reply is called, and whether
usage in a stream and answers by a schema are known. A stream is whole when a choice has said why it finished.
"""

from __future__ import annotations

import json
from typing import Any

import httpx2
import openai

from orihon.agent.models.client import Request
from orihon.agent.models.errors import Account, Told, no_key
from orihon.agent.models.patience import Patience
from orihon.settings.section import Secret
from orihon.task.window import Window

CONNECT_SECONDS = 15.0
NO_KEY = "none"  # what servers are sent that need no key, because the SDK wants one
UNFINISHED = (
    "{"  # the arguments of a call that was cut before they began; no arguments at all would mean an empty object
)

_TEXTS = ("content", "refusal", "reasoning_content", "reasoning")
_PIECES = ("text", "summary", "data")


class OpenAIChat:
    """Speaks to one server about one model."""

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
            self.client = openai.OpenAI(api_key=api_key.reveal() if api_key is not None else None, **options)
        except openai.OpenAIError:
            if not base_url:
                raise no_key(account) from None
            self.client = openai.OpenAI(api_key=NO_KEY, **options)
        self.account = account.knowing(self.client.api_key)
        # OpenAI's newer models refuse the old name, and other servers do not know the new one
        self._new_name = not base_url
        self._unknown: set[str] = set()

    def request(self, window: Window) -> Request:
        """The messages and tools of a window."""
        tools = window.tools() if self.offers_tools else []
        request = self._body(window.openai(), window.reserved_output or self.max_tokens)
        return request | {"tools": tools} if tools else request

    def question(self, prompt: str, schema: dict[str, Any] | None) -> Request:
        """One message of a user's, and the form of the answer."""
        request = self._body([{"role": "user", "content": prompt}], self.max_tokens)
        if schema is None:
            return request
        form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
        return request | {"response_format": form}

    def _body(self, messages: list[dict[str, Any]], max_tokens: int) -> Request:
        body: Request = {"model": self.model, "messages": messages, "stream_options": {"include_usage": True}}
        return body | {"max_tokens": max_tokens} if max_tokens else body

    def fits(self, request: Request, words: str) -> bool:
        """Whether the server complains of something that can be left out or called otherwise."""
        if "max_completion_tokens" in words and "max_tokens" in request and not self._new_name:
            self._new_name = True
            return True
        named = {"stream_options": ("stream_options",), "response_format": ("response_format", "json_schema")}
        refused = {
            name
            for name, marks in named.items()
            if name in request and name not in self._unknown and any(mark in words for mark in marks)
        }
        self._unknown |= refused
        return bool(refused)

    def stream(self, request: Request) -> openai.Stream[Any]:
        """Send it, in the words that this server knows."""
        body = {name: value for name, value in request.items() if name not in self._unknown}
        if "max_tokens" in body and self._new_name:
            body["max_completion_tokens"] = body.pop("max_tokens")
        if "response_format" in request and "response_format" in self._unknown:
            body["messages"] = in_words(request["messages"], request["response_format"]["json_schema"]["schema"])
        sent: openai.Stream[Any] = self.client.chat.completions.create(stream=True, **body)
        return sent

    def gathering(self) -> ChatGathering:
        """Nothing gathered yet."""
        return ChatGathering()

    def close(self) -> None:
        """Let go of connections."""
        self.client.close()


class ChatGathering:
    """The chunks of a chat completion, put together to the object that the API gives without streaming."""

    def __init__(self) -> None:
        self._head: dict[str, Any] = {}
        self._message: dict[str, Any] = {"role": "assistant", "content": None}
        self._calls: list[dict[str, Any]] = []
        self._places: dict[Any, dict[str, Any]] = {}
        self._finish: str | None = None
        self._whole: dict[str, Any] | None = None

    def take(self, event: dict[str, Any]) -> str:
        """Take in a chunk; the text that it adds."""
        if "choices" not in event and ("message" in event or event.get("object") == "error"):
            raise Told(event)
        for name in ("id", "created", "model", "system_fingerprint", "usage"):
            if event.get(name) is not None:
                self._head[name] = event[name]
        text = ""
        for choice in event.get("choices") or ():
            if choice.get("index"):  # only one was asked for
                continue
            if "message" in choice:
                self._whole = event
                return choice["message"].get("content") or ""
            self._finish = choice.get("finish_reason") or self._finish
            text += self._add(choice.get("delta") or {})
        return text

    def whole(self) -> dict[str, Any] | None:
        """The completion; None while no choice has finished."""
        if self._whole is not None:
            return _marked(self._whole)
        if self._finish is None:
            return None
        message = self._message | ({"tool_calls": self._calls} if self._calls else {})
        choice = {"index": 0, "message": message, "finish_reason": self._finish}
        return _marked({"object": "chat.completion"} | self._head | {"choices": [choice]})

    def _add(self, delta: dict[str, Any]) -> str:
        for name in _TEXTS:
            if delta.get(name):
                self._message[name] = (self._message.get(name) or "") + delta[name]
        for detail in delta.get("reasoning_details") or ():
            self._add_detail(detail)
        for piece in delta.get("tool_calls") or ():
            self._add_call(piece)
        return delta.get("content") or ""

    def _add_call(self, piece: dict[str, Any]) -> None:
        """Servers number calls, or give each an id, or send each whole; a new id is a new call in any case."""
        function = piece.get("function") or {}
        place, own = piece.get("index"), piece.get("id") or ""
        begun = self._places.get(place)
        if place is None and not own and not function.get("name") and self._calls:
            begun = self._calls[-1]
        if begun is None or (own and begun["id"] and begun["id"] != own):
            begun = {"id": own, "type": "function", "function": {"name": "", "arguments": ""}}
            self._calls.append(begun)
            if place is not None:
                self._places[place] = begun
        begun["id"] = begun["id"] or own
        begun["function"]["name"] = begun["function"]["name"] or function.get("name") or ""
        arguments = function.get("arguments") or ""
        begun["function"]["arguments"] += arguments if isinstance(arguments, str) else json.dumps(arguments)

    def _add_detail(self, detail: dict[str, Any]) -> None:
        """Pieces of one thought have one number; a reply without streaming has it in one."""
        details = self._message.setdefault("reasoning_details", [])
        last = details[-1] if details else {}
        if not last or (last.get("index"), last.get("type")) != (detail.get("index"), detail.get("type")):
            details.append(dict(detail))
            return
        for name, value in detail.items():
            last[name] = last[name] + value if name in _PIECES and isinstance(last.get(name), str) else value


def _marked(reply: dict[str, Any]) -> dict[str, Any]:
    """The reply; a call that was cut before its arguments began can be told from one without arguments."""
    choice = reply["choices"][0]
    calls = choice["message"].get("tool_calls")
    if choice.get("finish_reason") == "length" and calls and not (calls[-1]["function"].get("arguments") or "").strip():
        calls[-1]["function"]["arguments"] = UNFINISHED
    return reply


def timeouts(patience: Patience) -> httpx2.Timeout:
    """Silence has a limit; to get through to a server at all, a shorter one."""
    return httpx2.Timeout(patience.stall_seconds, connect=min(CONNECT_SECONDS, patience.stall_seconds))


def in_words(messages: list[dict[str, Any]], schema: dict[str, Any]) -> list[dict[str, Any]]:
    """The form of the answer said in the prompt, for those who take it in no other way."""
    form = json.dumps(schema, ensure_ascii=False)
    last = messages[-1]
    said = f"{last['content']}\n\nAnswer with JSON alone, by this schema:\n{form}"
    return [*messages[:-1], last | {"content": said}]
