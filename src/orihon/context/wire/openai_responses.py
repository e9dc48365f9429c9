"""Render the input of OpenAI's Responses: a flat list of items.

A reasoning item belongs to the item after it, so a reply's items go back together, as they came, or not at all:
then its words and calls go without their ids, and nothing asks for the reasoning. Reasoning without its encrypted
content is only a name for something on the provider's side that may be gone; it is not sent.
"""

from __future__ import annotations

import re
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
    native_items,
    render_pieces,
    render_text,
    wire_id,
)
from orihon.records import Message

_ID = re.compile(r".{1,64}", re.DOTALL)


def responses(messages: Sequence[Message], *, model: str = "", load: Load | None = None) -> list[dict[str, Any]]:
    """Return a repaired list as the `input` of a response."""
    rendered: list[dict[str, Any]] = []
    seen: set[str] = set()  # the ids of items, which name them once
    for message in messages:
        if message.role == "tool":
            shown = _content(render_pieces(message, load, IMAGES))
            call_id = wire_id(message.tool_call_id or "", _ID)
            rendered.append({"type": "function_call_output", "call_id": call_id, "output": shown})
        elif message.role == "assistant":
            rendered += _reply(message, model, load, seen)
        else:
            images = IMAGES if message.role == "user" else ()
            rendered.append(_said(message.role, _content(render_pieces(message, load, images))))
    return rendered or [_said("user", CONTINUE)]


def _reply(message: Message, model: str, load: Load | None, seen: set[str]) -> list[dict[str, Any]]:
    items = native_items(message, "responses", model, _ID)
    ids = [str(item["id"]) for item in items if "id" in item]
    is_new = len(set(ids)) == len(ids) and seen.isdisjoint(ids)
    if items and is_new and all(map(_can_be_sent, items)) and items[-1].get("type") != "reasoning":
        seen.update(ids)
        return items
    text = render_text(message, load)
    calls = [
        {
            "type": "function_call",
            "call_id": wire_id(call.id, _ID),
            "name": call.name,
            "arguments": load_arguments(call, load),
        }
        for call in message.tool_calls
    ]
    return [_said("assistant", text), *calls] if text else calls


def _can_be_sent(item: dict[str, Any]) -> bool:
    return item.get("type") != "reasoning" or bool(item.get("encrypted_content"))


def _said(role: str, content: str | list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": content}


def _content(shown: list[Piece]) -> str | list[dict[str, Any]]:
    if not any(isinstance(piece, Image) for piece in shown):
        return join_pieces(shown)
    return [
        {"type": "input_image", "image_url": piece.source, "detail": "auto"}
        if isinstance(piece, Image)
        else {"type": "input_text", "text": piece}
        for piece in shown
    ]
