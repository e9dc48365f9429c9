"""Join the events of a streamed reply to the reply that the API would give without streaming.

A reply is complete or it is none: a chat completion after its `finish_reason`, a message of Anthropic's after
`message_stop`, a response of OpenAI's after its last event. The accumulators of the SDKs are not used, because they
fail on servers that do not number calls as OpenAI does, and read an incomplete input as a complete one (docs/adr/0010).
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Protocol

from orihon.codec import safe_str
from orihon.context.replies import to_plain
from orihon.errors import ModelError

# Arguments of a call that was cut before they began; empty arguments would mean an empty object.
UNFINISHED = "{"

_CHAT_TEXTS = ("content", "refusal", "reasoning_content", "reasoning")
_DETAIL_TEXTS = ("text", "summary", "data")
_BLOCK_TEXTS = {"text_delta": "text", "thinking_delta": "thinking"}
_RESPONSE_ENDS = frozenset({"response.completed", "response.incomplete"})
_RESPONSE_FAILURES = frozenset({"response.failed", "error"})


_UNREADABLE = (ValueError, TypeError, LookupError, AttributeError)  # raised while reading an unexpected event


class ReportedError(Exception):
    """An answer with status 200 that reports a failure."""

    def __init__(self, body: Any) -> None:
        super().__init__("The answer reports a failure.")
        self.body = body


class StreamAccumulator(Protocol):
    """Joins the events of one stream."""

    def add(self, event: dict[str, Any]) -> str:
        """Add an event and return its text."""

    def finish(self) -> dict[str, Any] | None:
        """Return the reply as the API gives it without streaming, or None if the stream is incomplete."""


def accumulator_of(event: dict[str, Any], api: str | None = None) -> StreamAccumulator:
    """Return the accumulator for a stream of an API, or for one that begins with an event."""
    kind = str(event.get("type") or "")
    if api == "responses" or (api is None and kind.startswith("response.")):
        return ResponseAccumulator()
    if api == "anthropic" or (api is None and "choices" not in event and kind):
        return MessageAccumulator()
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
        for name in _CHAT_TEXTS:
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
        if kind in _BLOCK_TEXTS:
            name = _BLOCK_TEXTS[kind]
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


class ResponseAccumulator:
    """Keeps the response that the last event of its stream holds."""

    def __init__(self) -> None:
        self._items: list[dict[str, Any]] = []
        self._response: dict[str, Any] | None = None

    def add(self, event: dict[str, Any]) -> str:
        """Add an event and return its text."""
        kind = event.get("type")
        if kind in _RESPONSE_FAILURES:
            raise ReportedError(event)
        if kind == "response.output_item.done":
            self._items.append(event["item"])
        elif kind in _RESPONSE_ENDS:
            self._response = event["response"]
        return str(event["delta"]) if kind == "response.output_text.delta" else ""

    def finish(self) -> dict[str, Any] | None:
        """Return the response, or None before its last event. Some servers name its items only one by one."""
        if self._response is None:
            return None
        return self._response | {"output": self._response.get("output") or self._items}


# a stream that is yielded on


def is_stream(reply: Any) -> bool:
    """Return whether a reply comes in events: an iterator, or an asynchronous one."""
    return hasattr(reply, "__next__") or hasattr(reply, "__aiter__")


class ReplyStream:
    """The events of a model, to iterate over with `for` or `async for`. Its reply is stored when it is complete.

    A stream that breaks off, or that the caller leaves early, is no reply: nothing of it is stored.
    """

    def __init__(self, events: Any, api: str | None, store: Callable[[dict[str, Any]], int]) -> None:
        self._events, self._api, self._store = events, api, store
        self._accumulator: StreamAccumulator | None = None
        self.seq: int | None = None  # the number of the message, once it is stored

    def __iter__(self) -> Iterator[Any]:
        for event in self._events:
            self._add(event)
            yield event
        self.seq = self._store(self._finish())

    async def __aiter__(self) -> AsyncIterator[Any]:
        async for event in self._events:
            self._add(event)
            yield event
        import asyncio  # noqa: PLC0415 - a program without coroutines does not need it

        self.seq = await asyncio.to_thread(self._store, self._finish())

    def _add(self, event: Any) -> None:
        try:
            plain = to_plain(event)
            if self._accumulator is None:
                self._accumulator = accumulator_of(plain, self._api)
            self._accumulator.add(plain)
        except ReportedError as error:
            raise ModelError(f"The model reports a failure: {safe_str(error.body)[:400]}.", retryable=True) from None
        except _UNREADABLE as error:
            raise ModelError(f"This is not an event of a model's reply: {error}.") from error

    def _finish(self) -> dict[str, Any]:
        reply = self._accumulator.finish() if self._accumulator is not None else None
        if reply is None:
            raise ModelError("The stream broke off before the end of the reply; nothing was stored.", retryable=True)
        return reply
