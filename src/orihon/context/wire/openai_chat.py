"""Render the messages of chat completions, for OpenAI and compatible servers.

Arguments go out byte for byte. Nothing is merged, so the rendering of a log is a prefix of the rendering of a longer
one. A result can hold only words here, so its pictures follow in a message of the user's. Reasoning goes back, to the
model that made it, with the calls it led to: servers that expose it ask for it there, and some refuse it elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from orihon.context.wire.pieces import (
    CONTINUE,
    IMAGES,
    Image,
    Load,
    Piece,
    join_pieces,
    load_arguments,
    make_id,
    plain_text,
    render_pieces,
    render_text,
    same_model,
)
from orihon.parts import PICTURES
from orihon.records import Message, Native

LONGEST_ID = 40


def openai(messages: Sequence[Message], *, model: str = "", load: Load | None = None) -> list[dict[str, Any]]:
    """Return a repaired list as the `messages` of a chat completion."""
    rendered: list[dict[str, Any]] = []
    pictures: list[Piece] = []
    for message in messages:
        role = message.role
        if role == "tool":
            rendered.append(_result(message, load, pictures))
            continue
        if pictures:
            rendered.append(_shown(pictures))
        if role == "assistant":
            rendered.append(_assistant(message, model, load))
        elif role == "user":
            rendered.append({"role": "user", "content": _content(render_pieces(message, load, IMAGES))})
        else:
            rendered.append({"role": "system", "content": render_text(message, load)})
    if pictures:
        rendered.append(_shown(pictures))
    return rendered or [{"role": "user", "content": CONTINUE}]


def _assistant(message: Message, model: str, load: Load | None) -> dict[str, Any]:
    rendered: dict[str, Any] = {"role": "assistant", "content": render_text(message, load) or None}
    if message.tool_calls:
        if message.native is not None:
            rendered |= _reasoning(message.native, model)
        rendered["tool_calls"] = [
            {
                "id": _id(call.id),
                "type": "function",
                "function": {"name": call.name, "arguments": load_arguments(call, load)},
            }
            for call in message.tool_calls
        ]
    return rendered


def _id(id: str) -> str:
    return id if 0 < len(id) <= LONGEST_ID else make_id(id)


def _reasoning(native: Native, model: str) -> dict[str, Any]:
    if native.api != "openai" or not same_model(native.model, model):
        return {}
    given = (item for item in native.items if isinstance(item, dict))
    return {name: item[name] for item in given for name in item if name in {"reasoning_content", "reasoning_details"}}


def _result(message: Message, load: Load | None, pictures: list[Piece]) -> dict[str, Any]:
    """Return the text of a result and collect its pictures."""
    text = plain_text(message)
    if text is None:
        shown = render_pieces(message, load, IMAGES)
        text = join_pieces(shown)
        for image in (piece for piece in shown if isinstance(piece, Image)):
            pictures += [image.line, image]
    return {"role": "tool", "tool_call_id": _id(message.tool_call_id or ""), "content": text}


def _shown(pictures: list[Piece]) -> dict[str, Any]:
    """Return a message with the pictures of the results so far."""
    content = _content([PICTURES, *pictures])
    pictures.clear()
    return {"role": "user", "content": content}


def _content(shown: list[Piece]) -> str | list[dict[str, Any]]:
    if not any(isinstance(piece, Image) for piece in shown):
        return join_pieces(shown)
    return [
        {"type": "image_url", "image_url": {"url": piece.source}}
        if isinstance(piece, Image)
        else {"type": "text", "text": piece}
        for piece in shown
    ]
