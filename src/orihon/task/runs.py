"""One run of one tool: what it was asked, what it said, how long it took.

A result may be a text, a value that becomes JSON, a list of parts (text and pictures, as MCP gives them), or an
exception. An exception becomes an error result that the model reads, and so does what cannot be kept; the task goes
on. What is cut short is cut from what was stored, after it was masked: half a secret is not recognised any more.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Awaitable, Callable, Generator, Iterable
from typing import Any

import msgspec

from orihon.codec import as_text, clean_value
from orihon.coerce import decode_json
from orihon.records import Call, Message, Part, ToolCall

INLINE_CHARS = 2000  # a longer result stands whole in the log alone
ERROR_CHARS = 2000
ARGUMENTS_CHARS = 256 * 1024  # longer ones stand in the log alone
ACTION_CHARS = 120


class PendingCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call that the model asked for and nobody has answered; `text` is its arguments as the model wrote them."""

    id: str
    name: str
    arguments: dict[str, Any]
    text: str = "{}"


class Run:
    """What happens to a call: set `result`; raise, or set `is_error`, if it failed."""

    def __init__(self, call: PendingCall) -> None:
        self.call = call
        self.result: Any = None
        self.is_error = False
        self.exception: BaseException | None = None
        self.duration_ms = 0
        self._began = time.monotonic()

    def end(self, exception: BaseException | None) -> None:
        """Stop the clock; an exception is the result."""
        self.duration_ms = max(0, int((time.monotonic() - self._began) * 1000))
        if exception is not None:
            self.exception = exception
            self.fail(f"{type(exception).__name__}: {as_text(exception)}")

    def fail(self, text: str) -> None:
        """What the model reads instead of a result."""
        self.result, self.is_error = text, True

    def message(self, admit: Callable[[Any], Any] = clean_value) -> Message:
        """The answer to the call, for the log; a value is admitted before JSON changes how its texts are written."""
        try:
            content = content_of(self.result, admit)
        except Exception as error:  # noqa: BLE001 - an object of the caller's can do anything when it is read
            self.fail(f"The result cannot be read: {type(error).__name__}: {as_text(error)}")
            content = self.result
        return answer(self.call, content, is_error=self.is_error)

    def record(self, message: Message) -> ToolCall:
        """The line of the tools' list; a long result is only named there, and so are long arguments."""
        text, asked = message.text, self.call.text
        fits = len(text) <= INLINE_CHARS
        return ToolCall(
            seq=0,
            tool=self.call.name,
            args=self.call.arguments if len(asked) <= ARGUMENTS_CHARS else {"…": f"{len(asked):,} characters"},
            result=None if self.is_error else text if fits else text[:INLINE_CHARS],
            status="error" if self.is_error else "success",
            error=text[:ERROR_CHARS] if self.is_error else None,
            duration_ms=self.duration_ms,
            timestamp="",
            call_id=self.call.id,
            message_seq=message.seq if not fits else None,
        )


def noticed(record: ToolCall) -> dict[str, str]:
    """What the snapshot learns from a run, as it is stored."""
    what = _line(f"{record.tool} {_first_value(record.args)}")
    if record.status == "error":
        return {"observed": _line(f"{what}: {_line(record.error or '')}", 2 * ACTION_CHARS)}
    return {"acted": what}


def answer(call: PendingCall | Call, content: str | list[Part], *, is_error: bool) -> Message:
    """The message that answers a call."""
    return Message(
        seq=0,
        role="tool",
        tool_name=call.name,
        tool_call_id=call.id,
        content=content,
        is_error=is_error,
        timestamp="",
        tokens=0,
    )


def arguments_of(text: str) -> dict[str, Any]:
    """The arguments of a call; ValueError says what is wrong with them, in words for the model."""
    if not text.strip():
        return {}
    try:
        value = decode_json(text)
    except ValueError as error:
        raise ValueError(f"The arguments are not valid JSON: {error}. Repeat the call with valid JSON.") from error
    if not isinstance(value, dict):
        kind = type(value).__name__
        raise ValueError(f"The arguments must be a JSON object, not {kind}. Repeat the call with an object.")  # noqa: TRY004
    return value


def content_of(result: Any, admit: Callable[[Any], Any] = clean_value) -> str | list[Part]:
    """A result as the content of a message."""
    if result is None:
        return ""
    if isinstance(result, str):
        return result
    if isinstance(result, bytes | bytearray):
        return bytes(result).decode("utf-8", "replace")
    if isinstance(result, Awaitable | Generator):
        raise TypeError(f"a {type(result).__name__} was given, which nobody has run")
    result = _dumped(result)
    if isinstance(result, list) and result and all(map(_is_part, result)):
        return [_part(item) for item in result]
    return json.dumps(admit(result), ensure_ascii=False)


def _dumped(value: Any) -> Any:
    """The objects of an SDK, alone or in a list, as the dicts that they stand for."""
    if isinstance(value, list | tuple):
        return [item.model_dump(mode="json") if hasattr(item, "model_dump") else item for item in value]
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else value


def _is_part(item: Any) -> bool:
    """Whether this is a part, and no other value that happens to have a type."""
    if isinstance(item, Part):
        return True
    if not isinstance(item, dict):
        return False
    of_text = item.get("type") == "text" and isinstance(item.get("text"), str)
    return of_text or (item.get("type") == "image" and isinstance(item.get("data"), str | bytes))


def _part(item: Part | dict[str, Any]) -> Part:
    """A part of ours, or one as MCP writes it."""
    if isinstance(item, Part):
        return item
    if item["type"] == "text":
        return Part(type="text", text=item["text"])
    data = base64.b64encode(item["data"]).decode() if isinstance(item["data"], bytes) else item["data"]
    return Part(type="image", data=data, media_type=item.get("mimeType") or item.get("media_type"))


def _first_value(arguments: dict[str, Any]) -> str:
    values: Iterable[Any] = (value for value in arguments.values() if isinstance(value, str | int | float))
    return str(next(iter(values), ""))


def _line(text: str, most: int = ACTION_CHARS) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[: most - 1]}…"
