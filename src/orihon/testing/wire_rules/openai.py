"""Chat completions: https://platform.openai.com/docs/api-reference/chat/create."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from orihon.testing.wire_rules.shared import NAME, has_words, is_object, is_picture_address

MAX_ID_CHARS = 40

_PARTS = {
    "system": {"text"},
    "developer": {"text"},
    "user": {"text", "image_url", "input_audio", "file"},
    "assistant": {"text", "refusal"},
    "tool": {"text"},
}


def broken(rendered: Any, model: str) -> Iterator[str]:  # noqa: ARG001 - one signature for all
    """The rules that a list of messages breaks."""
    if not isinstance(rendered, list) or not rendered:
        yield "messages: must be a list with at least one message"
        return
    waiting: list[str] = []
    for place, message in enumerate(rendered):
        here = f"messages[{place}]"
        role = message.get("role")
        if role not in _PARTS:
            yield f"{here}: unknown role {role!r}"
            continue
        if role == "tool":
            yield from _result(here, message, waiting)
        elif waiting:
            yield f"{here}: tool calls before it have no results: {waiting}"
            waiting = []
        yield from _content(here, message)
        if role == "assistant":
            yield from _calls(here, message, waiting)
        elif "tool_calls" in message:
            yield f"{here}: only an assistant can have tool_calls"
    if waiting:
        yield f"messages: tool calls at the end have no results: {waiting}"


def _result(here: str, message: dict[str, Any], waiting: list[str]) -> Iterator[str]:
    call_id = message.get("tool_call_id")
    if call_id in waiting:
        waiting.remove(call_id)
    else:
        yield f"{here}: a result for {call_id!r}, which no call directly before it waits for"


def _calls(here: str, message: dict[str, Any], waiting: list[str]) -> Iterator[str]:
    calls = message.get("tool_calls")
    if calls is None:
        return
    if not isinstance(calls, list) or not calls:
        yield f"{here}: tool_calls must not be empty"
        return
    for call in calls:
        call_id, function = call.get("id"), call.get("function") or {}
        if not isinstance(call_id, str) or not 0 < len(call_id) <= MAX_ID_CHARS:
            yield f"{here}: a call's id must have 1 to {MAX_ID_CHARS} characters, not {call_id!r}"
        elif call_id in waiting:
            yield f"{here}: two calls have the id {call_id!r}"
        else:
            waiting.append(call_id)
        if call.get("type") != "function":
            yield f"{here}: a call must have the type function"
        if not NAME.fullmatch(function.get("name") or ""):
            yield f"{here}: {function.get('name')!r} cannot be a function's name"
        if not is_object(function.get("arguments")):
            yield f"{here}: arguments must be the JSON text of an object"


def _content(here: str, message: dict[str, Any]) -> Iterator[str]:
    role, content = message["role"], message.get("content")
    if content is None:
        if role != "assistant" or not message.get("tool_calls"):
            yield f"{here}: content is missing"
        return
    if not content or (isinstance(content, str) and not has_words(content)):
        yield f"{here}: content is empty"
    for part in content if isinstance(content, list) else ():
        if part.get("type") not in _PARTS[role]:
            yield f"{here}: the role {role} takes no {part.get('type')!r}"
        elif part["type"] == "text" and not has_words(part.get("text")):
            yield f"{here}: a text is empty"
        elif part["type"] == "image_url" and not is_picture_address((part.get("image_url") or {}).get("url")):
            yield f"{here}: an image needs a web address or base64"
