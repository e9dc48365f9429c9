"""Messages: https://platform.claude.com/docs/en/api/messages, with its pages on tools, thinking and caching."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from orihon.testing.wire_rules.shared import NAME, PICTURES, has_words, is_base64

MAX_MARKS = 4

_ID = re.compile(r"[a-zA-Z0-9_-]+")
_THINKING = {"thinking", "redacted_thinking"}
_FROM_USER = {"text", "image", "document", "tool_result", "search_result"}
_FROM_ASSISTANT = {"text", "tool_use", "thinking", "redacted_thinking", "server_tool_use", "container_upload"} | {
    f"{tool}_tool_result"
    for tool in ("web_search", "web_fetch", "code_execution", "bash_code_execution", "text_editor_code_execution")
}
MAX_PICTURE_CHARS = 5 * 1024 * 1024  # of base64

Block = dict[str, Any]


def broken(rendered: Any, model: str) -> Iterator[str]:  # noqa: ARG001 - one signature for all
    """The rules that a request's `system` and `messages` break."""
    messages = rendered.get("messages") if isinstance(rendered, dict) else None
    if not isinstance(messages, list) or not messages:
        yield "messages: at least one message is required"
        return
    yield from _system(rendered.get("system"))
    for place, message in enumerate(messages):
        yield from _turn(f"messages[{place}]", message, messages[place - 1] if place else None)
    if messages[-1].get("role") != "user":
        yield "messages: the last one must be the user's; newer models refuse a prefill"
    yield from _pairs(messages)
    yield from _thinking(messages)
    yield from _marks(rendered)


def _blocks(message: dict[str, Any]) -> list[Block]:
    content = message.get("content")
    return [{"type": "text", "text": content}] if isinstance(content, str) else content or []


def _system(system: Any) -> Iterator[str]:
    for block in [{"type": "text", "text": system}] if isinstance(system, str) else system or ():
        if block.get("type") != "text" or not has_words(block.get("text")):
            yield "system: takes only texts with words in them"


def _turn(here: str, message: dict[str, Any], before: dict[str, Any] | None) -> Iterator[str]:
    role, blocks = message.get("role"), _blocks(message)
    if role not in {"user", "assistant"}:
        yield f"{here}: unknown role {role!r}"
    if before is None and role != "user":
        yield f"{here}: the first message must be the user's"
    if before is not None and before.get("role") == role:
        yield f"{here}: two messages of the {role} in a row"
    if not blocks:
        yield f"{here}: content is empty"
    for block in blocks:
        kind = block.get("type")
        if kind not in (_FROM_USER if role == "user" else _FROM_ASSISTANT):
            yield f"{here}: the {role} cannot say {kind!r}"
        yield from _block(here, block)


def _block(here: str, block: Block) -> Iterator[str]:
    kind = block.get("type")
    if kind == "text" and not has_words(block.get("text")):
        yield f"{here}: text content blocks must contain non-whitespace text"
    elif kind == "image":
        yield from _image(here, block.get("source") or {})
    elif kind == "tool_use":
        if not isinstance(block.get("input"), dict):
            yield f"{here}: input must be an object"
        if not NAME.fullmatch(block.get("name") or ""):
            yield f"{here}: {block.get('name')!r} cannot be a tool's name"
        if not _ID.fullmatch(block.get("id") or ""):
            yield f"{here}: {block.get('id')!r} cannot be the id of a tool_use"
    elif kind == "tool_result":
        yield from _result(here, block)
    elif kind == "thinking" and not (isinstance(block.get("thinking"), str) and block.get("signature")):
        yield f"{here}: thinking without its signature"
    elif kind == "redacted_thinking" and not block.get("data"):
        yield f"{here}: redacted thinking without its data"


def _image(here: str, source: Block) -> Iterator[str]:
    if source.get("type") == "url":
        if not str(source.get("url")).startswith("https://"):
            yield f"{here}: an image's address must begin with https"
    elif (
        source.get("type") != "base64" or source.get("media_type") not in PICTURES or not is_base64(source.get("data"))
    ):
        yield f"{here}: an image needs base64 and one of the known media types"
    elif len(source["data"]) > MAX_PICTURE_CHARS:
        yield f"{here}: image exceeds 5 MB maximum"


def _result(here: str, block: Block) -> Iterator[str]:
    content = block.get("content")
    for inner in content if isinstance(content, list) else ():
        if inner.get("type") not in {"text", "image", "document", "search_result"}:
            yield f"{here}: a tool_result cannot hold {inner.get('type')!r}"
        if block.get("is_error") and inner.get("type") != "text":
            yield f"{here}: all content must be type text if is_error is true"
        yield from _block(here, inner)


def _pairs(messages: list[dict[str, Any]]) -> Iterator[str]:
    used: set[str] = set()
    asked: list[str] = []
    for place, message in enumerate(messages):
        here, blocks = f"messages[{place}]", _blocks(message)
        answers = [str(block.get("tool_use_id")) for block in blocks if block.get("type") == "tool_result"]
        if [block.get("type") for block in blocks[: len(answers)]] != ["tool_result"] * len(answers):
            yield f"{here}: tool_result blocks must come first"
        if missing := set(asked) - set(answers):
            yield f"{here}: tool_use ids without tool_result blocks immediately after: {sorted(missing)}"
        if foreign := set(answers) - set(asked):
            yield f"{here}: tool_result blocks without a tool_use in the message before: {sorted(foreign)}"
        if len(set(answers)) < len(answers):
            yield f"{here}: more than one tool_result for one tool_use"
        asked = [str(block.get("id")) for block in blocks if block.get("type") == "tool_use"]
        if len(set(asked)) < len(asked) or used & set(asked):
            yield f"{here}: tool_use ids must be unique"
        used |= set(asked)
    if asked:
        yield f"messages: the last tool_use blocks have no tool_result: {asked}"


def _thinking(messages: list[dict[str, Any]]) -> Iterator[str]:
    """Where an assistant's turn (a whole tool loop) thinks at all, it begins with thinking; no message ends with it."""
    begins_with_thought: bool | None = None  # of the current loop; None before its first block
    for place, message in enumerate(messages):
        kinds = [block.get("type") for block in _blocks(message)]
        if message.get("role") == "user":
            begins_with_thought = None if set(kinds) != {"tool_result"} else begins_with_thought
            continue
        if begins_with_thought is None:
            begins_with_thought = bool(kinds) and kinds[0] in _THINKING
        if _THINKING & set(kinds) and not begins_with_thought:
            yield f"messages[{place}]: expected thinking at the beginning of the turn"
        if kinds and kinds[-1] in _THINKING:
            yield f"messages[{place}]: the final block cannot be thinking"


def _marks(rendered: dict[str, Any]) -> Iterator[str]:
    """Marks are counted wherever they stand, also inside of results."""
    marked = [block for block in _objects([rendered.get("system"), rendered["messages"]]) if "cache_control" in block]
    if len(marked) > MAX_MARKS:
        yield f"cache_control: {len(marked)} marks, more than {MAX_MARKS}"
    if any(block.get("type") in _THINKING for block in marked):
        yield "cache_control: thinking cannot be marked"
    if any(block["cache_control"] != {"type": "ephemeral"} for block in marked):
        yield "cache_control: a mark says ephemeral"


def _objects(value: Any) -> Iterator[Block]:
    """Every object but those that are the input of a call."""
    if isinstance(value, list):
        for item in value:
            yield from _objects(item)
    elif isinstance(value, dict):
        yield value
        for key, item in value.items():
            if key != "input":
                yield from _objects(item)
