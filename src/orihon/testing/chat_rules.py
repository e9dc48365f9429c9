"""The rules by which OpenAI accepts a request for chat completions.

The rules come from https://platform.openai.com/docs/api-reference/chat/create and from the errors that the API returns.
They are written independently of the renderers in `orihon.context.wire`, so that each checks the other. The rules of
the other three APIs are in `tests/support/wire_rules.py`.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Iterator
from itertools import chain
from typing import Any

MAX_CHAT_ID_CHARS = 40

_CHAT_PARTS = {
    "system": {"text"},
    "developer": {"text"},
    "user": {"text", "image_url", "input_audio", "file"},
    "assistant": {"text", "refusal"},
    "tool": {"text"},
}


def find_violations(messages: Any) -> list[str]:
    """Return every rule that the messages break, each with its location."""
    return collect(check_json(messages), check_chat(messages))


def collect(*checks: Iterator[str]) -> list[str]:
    """Return the rules that the checks yield. A request of another shape ends them."""
    broken: list[str] = []
    try:
        for rule in chain(*checks):
            broken.append(rule)  # noqa: PERF402 - the rules found before an error are kept
    except (AttributeError, KeyError, TypeError) as error:
        broken.append(f"the request does not have the shape of the API: {error}")
    return broken


def check_chat(rendered: Any) -> Iterator[str]:
    """Yield the rules that a list of messages breaks."""
    if not isinstance(rendered, list) or not rendered:
        yield "messages: must be a list with at least one message"
        return
    waiting: list[str] = []
    for place, message in enumerate(rendered):
        here = f"messages[{place}]"
        role = message.get("role")
        if role not in _CHAT_PARTS:
            yield f"{here}: unknown role {role!r}"
            continue
        if role == "tool":
            yield from _check_chat_result(here, message, waiting)
        elif waiting:
            yield f"{here}: tool calls before it have no results: {waiting}"
            waiting = []
        yield from _check_chat_content(here, message)
        if role == "assistant":
            yield from _check_chat_calls(here, message, waiting)
        elif "tool_calls" in message:
            yield f"{here}: only an assistant can have tool_calls"
    if waiting:
        yield f"messages: tool calls at the end have no results: {waiting}"


def _check_chat_result(here: str, message: dict[str, Any], waiting: list[str]) -> Iterator[str]:
    call_id = message.get("tool_call_id")
    if call_id in waiting:
        waiting.remove(call_id)
    else:
        yield f"{here}: a result for {call_id!r}, but no call directly before it has that id"


def _check_chat_calls(here: str, message: dict[str, Any], waiting: list[str]) -> Iterator[str]:
    calls = message.get("tool_calls")
    if calls is None:
        return
    if not isinstance(calls, list) or not calls:
        yield f"{here}: tool_calls must not be empty"
        return
    for call in calls:
        call_id = call.get("id")
        if call_id in waiting:
            yield f"{here}: two calls have the id {call_id!r}"
        else:
            waiting.append(call_id)
        if call.get("type") != "function":
            yield f"{here}: a call must have the type function"
        yield from check_call(here, call_id, MAX_CHAT_ID_CHARS, call.get("function") or {})


def _check_chat_content(here: str, message: dict[str, Any]) -> Iterator[str]:
    role, content = message["role"], message.get("content")
    if content is None:
        if role != "assistant" or not message.get("tool_calls"):
            yield f"{here}: content is missing"
        return
    if not content or (isinstance(content, str) and not has_words(content)):
        yield f"{here}: content is empty"
    for part in content if isinstance(content, list) else ():
        if part.get("type") not in _CHAT_PARTS[role]:
            yield f"{here}: the role {role} does not accept {part.get('type')!r}"
        elif part["type"] == "text" and not has_words(part.get("text")):
            yield f"{here}: a text is empty"
        elif part["type"] == "image_url" and not is_picture_address((part.get("image_url") or {}).get("url")):
            yield f"{here}: an image needs a web address or base64"


# checks that other APIs share

MAX_LEVELS = 100  # the parsers of some providers accept no deeper nesting
PICTURES = {"image/png", "image/jpeg", "image/gif", "image/webp"}
TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def check_call(here: str, call_id: Any, max_chars: int, function: dict[str, Any]) -> Iterator[str]:
    if not is_id(call_id, max_chars):
        yield f"{here}: a call's id must have 1 to {max_chars} characters, not {call_id!r:.80}"
    if not TOOL_NAME.fullmatch(function.get("name") or ""):
        yield f"{here}: {function.get('name')!r} cannot be a function's name"
    if not _is_json_object(function.get("arguments")):
        yield f"{here}: arguments must be the JSON text of an object"


def is_id(value: Any, max_chars: int) -> bool:
    return isinstance(value, str) and 0 < len(value) <= max_chars


def has_words(value: Any) -> bool:
    """Return whether the value is a text that is not blank."""
    return isinstance(value, str) and bool(value.strip())


def is_picture_address(value: Any) -> bool:
    """Return whether the value is a web address or a base64 data URL of an image."""
    if not isinstance(value, str):
        return False
    head, _, data = value.partition(";base64,")
    return value.startswith(("https://", "http://")) or is_picture(head.removeprefix("data:"), data, PICTURES)


def is_picture(media_type: Any, data: Any, media_types: set[str]) -> bool:
    """Return whether the media type is known and the data is non-empty base64."""
    try:
        return media_type in media_types and bool(base64.b64decode(data, validate=True))
    except (binascii.Error, TypeError, ValueError):
        return False


def _is_json_object(value: Any) -> bool:
    """Return whether the value is the text of a JSON object. NaN and Infinity are not JSON."""
    if not isinstance(value, str):
        return False
    try:
        return isinstance(json.loads(value, parse_constant=_refuse_constant), dict)
    except (ValueError, RecursionError):
        return False


def check_json(value: Any) -> Iterator[str]:
    """Yield the values that JSON in UTF-8 cannot hold: lone surrogates, NaN, keys that are not strings."""
    layer: list[tuple[str, Any]] = [("request", value)]
    for _ in range(MAX_LEVELS):
        for here, item in layer:
            yield from _check_json_leaf(here, item)
        layer = [inner for here, item in layer for inner in _list_children(here, item)]
        if not layer:
            return
    yield f"request: nested deeper than {MAX_LEVELS} levels"


def _list_children(here: str, item: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(item, dict):
        for key, inner in item.items():
            yield f"{here}, a key", key
            yield f"{here}.{key!a:.40}", inner
    elif isinstance(item, list):
        yield from ((f"{here}[{place}]", inner) for place, inner in enumerate(item))


def _check_json_leaf(here: str, item: Any) -> Iterator[str]:
    if isinstance(item, float) and not math.isfinite(item):
        yield f"{here}: {item} is not a JSON number"
    elif isinstance(item, str) and not item.isascii():
        try:
            item.encode()
        except UnicodeEncodeError:
            yield f"{here}: a text contains a lone surrogate"
    elif not isinstance(item, str | int | float | dict | list | None):
        yield f"{here}: a {type(item).__name__} is not a JSON value"


def _refuse_constant(constant: str) -> Any:
    raise ValueError(constant)
