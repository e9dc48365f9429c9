"""What the four formats share: the text of a message, arguments and ids that a provider accepts, its own payload."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec

from orihon.context.replies import read_items
from orihon.errors import Corrupt, NotFound
from orihon.parts import (
    IMAGES,
    Image,
    Load,
    Piece,
    is_object_text,
    join_pieces,
    make_id,
    normalize_arguments,
    parse_arguments,
    render_pieces,
)
from orihon.records import Call, Message

__all__ = ["CONTINUE", "IMAGES", "Image", "Load", "Piece", "join_pieces", "make_id", "parse_arguments", "render_pieces"]

CONTINUE = "Continue."  # where a request has to end with the user's words, and the log does not

_DATE = re.compile(r"[-@](\d{8}|\d{4}-\d{2}-\d{2}|\d{3})$")


def render_text(message: Message, load: Load | None) -> str:
    """Return the text of a message."""
    text = plain_text(message)
    return join_pieces(render_pieces(message, load)) if text is None else text


def plain_text(message: Message) -> str | None:
    """Return the text of a message that has nothing else, which most are; None for others."""
    text = message.content
    if isinstance(text, str) and message.blob is None:
        return "" if text.isspace() else text
    return None


def load_arguments(call: Call, load: Load | None) -> str:
    """Return the arguments as the model wrote them, or an object that says that only their beginning is available."""
    if call.blob is None:
        return call.arguments
    if load is not None:
        with suppress(Corrupt, NotFound):
            return normalize_arguments(load(call.blob).decode("utf-8", "replace"))
    return msgspec.json.encode({"_raw": call.arguments, "_bytes": call.blob.size_bytes}).decode()


def wire_id(id: str, allowed: re.Pattern[str]) -> str:
    """Return the id, or a stable replacement if the provider would refuse it."""
    return id if allowed.fullmatch(id) else make_id(id)


def same_model(one: str, other: str) -> bool:
    """Return whether two names mean the same model: a reply may add a date to the name that was requested."""
    one, other = (name.rpartition("/")[2].removesuffix("-latest") for name in (one, other))
    return other in {one, _DATE.sub("", one)} or one == _DATE.sub("", other)


def native_items(message: Message, api: str, model: str, ids: re.Pattern[str] | None) -> list[dict[str, Any]]:
    """Return the provider's own payload for the API and the model that made it; nothing for any other.

    A message that was folded or got other ids since is no longer the one that the signatures vouch for. `ids` are
    those that the provider takes; None, where it can do without.
    """
    native = message.native
    if native is None or native.api != api or not same_model(native.model, model):
        return []
    try:
        text, calls = read_items(api, native.items)
        sound = all(_SOUND[api](item) for item in native.items)
    except (AttributeError, KeyError, TypeError):  # written by something else; nobody can vouch for it
        return []
    if not sound or text != message.content or len(calls) != len(message.tool_calls):
        return []
    pairs = zip(calls, message.tool_calls, strict=True)
    return native.items if all(_same_call(theirs, ours, ids) for theirs, ours in pairs) else []


def _is_sound_block(block: dict[str, Any]) -> bool:
    """Return whether a block is one that Anthropic returns and accepts. A reply has no cache marks."""
    kind = block["type"]
    if kind == "tool_use":
        return isinstance(block["input"], dict) and "cache_control" not in block
    known = kind in {"text", "thinking", "redacted_thinking", "server_tool_use"} or kind.endswith("_tool_result")
    return known and b'"cache_control"' not in msgspec.json.encode(block)


def _is_sound_item(item: dict[str, Any]) -> bool:
    """Return whether an item is one that OpenAI returns and accepts. Calls of other kinds never get a result."""
    kind = item["type"]
    if kind == "message":
        words = [part.get("text") or part.get("refusal") or "" for part in item["content"]]
        return item["role"] == "assistant" and bool(words) and all(word.strip() for word in words)
    if kind == "function_call":
        return is_object_text(item["arguments"])
    return kind == "reasoning" or kind in _RUN_BY_OPENAI


def _is_sound_part(part: dict[str, Any]) -> bool:
    """Return whether a part is one that Gemini returns and accepts."""
    if "functionCall" in part and not isinstance(part["functionCall"].get("args", {}), dict):
        return False
    kinds = part.keys() & _GEMINI_DATA
    return len(kinds) == 1 and part.keys() <= kinds | {"thought", "thoughtSignature"}


_RUN_BY_OPENAI = frozenset({"web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call"})
_GEMINI_DATA = frozenset({"text", "functionCall", "inlineData", "executableCode", "codeExecutionResult"})
_SOUND: dict[str, Callable[[dict[str, Any]], bool]] = {
    "anthropic": _is_sound_block,
    "responses": _is_sound_item,
    "gemini": _is_sound_part,
}


def _same_call(theirs: Call, ours: Call, ids: re.Pattern[str] | None) -> bool:
    same = (theirs.name, theirs.arguments or "{}", None) == (ours.name, ours.arguments, ours.blob)
    if ids is None and not theirs.id:
        return same
    return same and theirs.id == ours.id and (ids is None or ids.fullmatch(ours.id) is not None)
