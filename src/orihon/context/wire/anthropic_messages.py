"""Render Anthropic's Messages: alternating turns, results at the start of the user's, thinking in full or not at all.

The API reads a whole tool loop as one turn of the assistant's. Its thinking is sent back, in every turn and not only
the last, because leaving it out later would change what was sent before; but only when the turn is all of one piece:
made by the model that is asked, and opened by thinking. A request ends with the user's words, for newer models refuse
to continue their own.

Cache marks: one at the end of the system prompt, the others at the end and every 15 blocks before it, because the API
looks back no more than 20 blocks from a mark for what it has seen. A mark changes nothing but itself.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from itertools import groupby
from typing import Any

from orihon.context.wire.pieces import (
    CONTINUE,
    IMAGES,
    Image,
    Load,
    Piece,
    load_arguments,
    native_items,
    parse_arguments,
    render_pieces,
    render_text,
    same_model,
    wire_id,
)
from orihon.records import Message

MAX_MARKS = 4
MAX_PICTURE_CHARS = 5 * 1024 * 1024  # of base64; with a larger one the whole request is refused
MARK_EVERY_BLOCKS = 15

_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_THINKING = frozenset({"thinking", "redacted_thinking"})

Block = dict[str, Any]


def anthropic(
    messages: Sequence[Message], *, model: str = "", cache: bool = True, load: Load | None = None
) -> dict[str, Any]:
    """Return a repaired list as the `system` (absent if there is none) and the `messages` of a request."""
    system = [_text(render_text(message, load)) for message in messages if message.role == "system"]
    turns: list[dict[str, Any]] = []
    for of_user, run in groupby(messages, key=lambda message: message.role in {"user", "system"}):
        if of_user:
            shown = (_pieces(message, load, IMAGES) for message in run if message.role == "user")
            _add(turns, "user", [block for blocks in map(_blocks, shown) for block in blocks])
        else:
            _add_loop(turns, list(run), model, load)
    if cache:
        _mark(system, turns)
    if not turns or turns[-1]["role"] == "assistant":
        _add(turns, "user", [_text(CONTINUE)])
    return {"system": system, "messages": turns} if system else {"messages": turns}


def _add_loop(turns: list[dict[str, Any]], loop: list[Message], model: str, load: Load | None) -> None:
    """Add what the assistant and its tools say between two messages of the user, with all of the thinking or none."""
    native = [native_items(message, "anthropic", model, _ID) for message in loop]
    whole = all(
        message.role == "tool" or _is_complete(items) or _made_without_thinking(message, model)
        for message, items in zip(loop, native, strict=True)
    )
    thinks = whole and bool(native[0]) and native[0][0].get("type") in _THINKING
    for message, items in zip(loop, native, strict=True):
        if message.role == "tool":
            _add(turns, "user", [_result(message, load)])
        elif thinks and items:
            _add(turns, "assistant", [block for block in items if not _is_blank(block)])
        else:
            _add(turns, "assistant", _reply(message, load))


def _is_complete(items: list[Block]) -> bool:
    """Return whether every thinking block is signed and led to something."""
    thoughts = [item for item in items if item.get("type") in _THINKING]
    signed = all(item.get("signature") or item.get("data") for item in thoughts)
    return bool(items) and signed and items[-1].get("type") not in _THINKING


def _made_without_thinking(message: Message, model: str) -> bool:
    return message.native is None and (message.model is None or same_model(message.model, model))


def _is_blank(block: Block) -> bool:
    return block.get("type") == "text" and not block.get("text", "").strip()


def _add(turns: list[dict[str, Any]], role: str, blocks: list[Block]) -> None:
    if turns and turns[-1]["role"] == role:
        turns[-1]["content"] += blocks
    elif blocks:
        turns.append({"role": role, "content": blocks})


def _reply(message: Message, load: Load | None) -> list[Block]:
    text = render_text(message, load)
    calls = [
        {
            "type": "tool_use",
            "id": wire_id(call.id, _ID),
            "name": call.name,
            "input": parse_arguments(load_arguments(call, load)),
        }
        for call in message.tool_calls
    ]
    return [_text(text), *calls] if text else calls


def _result(message: Message, load: Load | None) -> Block:
    # the API accepts only text in the result of a failure
    shown = _pieces(message, load, () if message.is_error else IMAGES)
    block = {"type": "tool_result", "tool_use_id": wire_id(message.tool_call_id or "", _ID), "content": _blocks(shown)}
    return block | {"is_error": True} if message.is_error else block


def _pieces(message: Message, load: Load | None, images: Collection[str]) -> list[Piece]:
    return render_pieces(message, load, images, max_chars=MAX_PICTURE_CHARS)


def _blocks(shown: list[Piece]) -> list[Block]:
    return [_image(piece) if isinstance(piece, Image) else _text(piece) for piece in shown]


def _text(text: str) -> Block:
    return {"type": "text", "text": text}


def _image(image: Image) -> Block:
    if image.url:
        return {"type": "image", "source": {"type": "url", "url": image.url}}
    return {"type": "image", "source": {"type": "base64", "media_type": image.media_type, "data": image.data}}


def _mark(system: list[Block], turns: list[dict[str, Any]]) -> None:
    left = MAX_MARKS
    if system:
        system[-1] = _marked(system[-1])
        left -= 1
    places = [(turn["content"], index) for turn in turns for index in range(len(turn["content"]))]
    at = len(places) - 1
    while left and at >= 0:
        content, index = places[at]
        if content[index].get("type") in _THINKING:  # these cannot carry a mark
            at -= 1
            continue
        content[index] = _marked(content[index])
        left -= 1
        at -= MARK_EVERY_BLOCKS


def _marked(block: Block) -> Block:
    return block | {"cache_control": {"type": "ephemeral"}}
