"""One run of one tool: its arguments, its result, and how long it took.

A result may be a text, a value that becomes JSON, a list of parts (text and images, as MCP returns them), or an
exception. An exception becomes an error result that the model reads, and so does a result that cannot be stored; the
task continues. Excerpts are taken from what was stored, after masking: half a secret would not be recognised.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Awaitable, Callable, Generator
from typing import Any

import msgspec

from orihon.codec import safe_str
from orihon.coerce import decode_json
from orihon.records import Message, Part, ToolCall
from orihon.terminal import shorten

INLINE_CHARS = 2000  # a longer result is stored in full in the log only
ARGUMENTS_CHARS = 256 * 1024  # longer arguments are stored in the log only
ACTION_CHARS = 120


class PendingCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call that has no result yet; `text` holds its arguments as the model wrote them."""

    id: str
    name: str
    arguments: dict[str, Any]
    text: str = "{}"


class ToolRun:
    """The run of a call. Set `result`; raise, or set `is_error`, if the tool failed."""

    def __init__(self, call: PendingCall) -> None:
        self.call = call
        self.result: Any = None
        self.is_error = False
        self.exception: BaseException | None = None
        self.duration_ms = 0
        self._began = time.monotonic()

    def end(self, exception: BaseException | None) -> None:
        """Stop the clock. An exception becomes the result."""
        self.duration_ms = max(0, int((time.monotonic() - self._began) * 1000))
        if exception is not None:
            self.exception = exception
            self.fail(f"{type(exception).__name__}: {safe_str(exception)}")

    def fail(self, text: str) -> None:
        """Set what the model reads instead of a result."""
        self.result, self.is_error = text, True

    def message(self, sanitise: Callable[[Any], Any]) -> Message:
        """Return the message that answers the call. Values are sanitised before JSON escapes their texts."""
        try:
            content = render_result(self.result, sanitise)
        except Exception as error:  # noqa: BLE001 - reading an object of the caller's can raise anything
            self.fail(f"The result cannot be read: {type(error).__name__}: {safe_str(error)}")
            content = self.result
        return Message(
            seq=0,
            role="tool",
            tool_name=self.call.name,
            tool_call_id=self.call.id,
            content=content,
            is_error=self.is_error,
            timestamp="",
            tokens=0,
        )

    def record(self, message: Message) -> ToolCall:
        """Return the record for `tools.jsonl`. A long result ends with how much it was cut, and where all of it is."""
        text, arguments = message.text, self.call.text
        fits = len(text) <= INLINE_CHARS
        where = f"… [cut: {len(text):,} characters, all in message {message.seq}]"
        shown = text if fits else text[:INLINE_CHARS] + where
        return ToolCall(
            seq=0,
            tool=self.call.name,
            args=self.call.arguments if len(arguments) <= ARGUMENTS_CHARS else {"…": f"{len(arguments):,} characters"},
            result=None if self.is_error else shown,
            status="error" if self.is_error else "success",
            error=shown if self.is_error else None,
            duration_ms=self.duration_ms,
            timestamp="",
            call_id=self.call.id,
            message_seq=message.seq if not fits else None,
        )


def describe_action(record: ToolCall) -> dict[str, str]:
    """Return what the snapshot learns from a stored run."""
    action = shorten(f"{record.tool} {_first_value(record.args)}", ACTION_CHARS)
    if record.status == "error":
        return {"observed": shorten(f"{action}: {shorten(record.error or '', ACTION_CHARS)}", 2 * ACTION_CHARS)}
    return {"acted": action}


def parse_arguments(text: str) -> dict[str, Any]:
    """Return the arguments of a call. Raise ValueError with a sentence for the model if they are no JSON object."""
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


def render_result(result: Any, sanitise: Callable[[Any], Any]) -> str | list[Part]:
    """Return a result as the content of a message."""
    if result is None:
        return ""
    if isinstance(result, str):
        return result
    if isinstance(result, bytes | bytearray):
        return bytes(result).decode("utf-8", "replace")
    if isinstance(result, Awaitable | Generator):
        raise TypeError(f"a {type(result).__name__} was returned and never run")
    result = _dump(result)
    if isinstance(result, list) and result and all(map(_is_part, result)):
        return [_parse_part(item) for item in result]
    return json.dumps(sanitise(result), ensure_ascii=False)


def _dump(value: Any) -> Any:
    """Return the objects of an SDK, alone or in a list, as dicts."""
    if isinstance(value, list | tuple):
        return [item.model_dump(mode="json") if hasattr(item, "model_dump") else item for item in value]
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else value


def _is_part(item: Any) -> bool:
    """Return whether an item is a part, and not another value that happens to have a type."""
    if isinstance(item, Part):
        return True
    if not isinstance(item, dict):
        return False
    is_text = item.get("type") == "text" and isinstance(item.get("text"), str)
    return is_text or (item.get("type") == "image" and isinstance(item.get("data"), str | bytes))


def _parse_part(item: Part | dict[str, Any]) -> Part:
    """Return a part of ours, or one in MCP's form."""
    if isinstance(item, Part):
        return item
    if item["type"] == "text":
        return Part(type="text", text=item["text"])
    data = base64.b64encode(item["data"]).decode() if isinstance(item["data"], bytes) else item["data"]
    return Part(type="image", data=data, media_type=item.get("mimeType") or item.get("media_type"))


def _first_value(arguments: dict[str, Any]) -> str:
    return str(next((value for value in arguments.values() if isinstance(value, str | int | float)), ""))
