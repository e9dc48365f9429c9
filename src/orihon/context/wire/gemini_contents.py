"""Render Gemini's contents: turns of `user` and `model`, and every call answered in the turn after it.

Calls and answers are paired by name and order, and by id only where the model gave one. A reply's parts go back as
they came, each signature in its own part, to the model that made them. Models from Gemini 3 on refuse a call without a
signature; for calls that another model made, Google documents a value that says so, and it is put on the first call
of a step.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import groupby
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
    parse_arguments,
    render_pieces,
    render_text,
)
from orihon.records import Message

UNSIGNED = "skip_thought_signature_validator"
SIGNED_SINCE = 3

_VERSION = re.compile(r"gemini-(\d+)")
_IMAGES = IMAGES - {"image/gif"}

Part = dict[str, Any]


def gemini(messages: Sequence[Message], *, model: str = "", load: Load | None = None) -> dict[str, Any]:
    """Return a repaired list as the `systemInstruction` (absent if there is none) and the `contents` of a request."""
    system = [{"text": render_text(message, load)} for message in messages if message.role == "system"]
    contents: list[dict[str, Any]] = []
    ids: dict[str, str] = {}
    for role, run in groupby(messages, key=lambda message: message.role):
        if role == "assistant":
            _add(contents, "model", (part for message in run for part in _reply(message, model, load, ids)))
        elif role == "tool":
            _add(contents, "user", _results(run, load, ids))
        elif role == "user":
            _add(contents, "user", (_part(piece) for message in run for piece in render_pieces(message, load, _IMAGES)))
    if not contents or contents[-1]["role"] == "model":
        _add(contents, "user", [{"text": CONTINUE}])
    return {"systemInstruction": {"parts": system}, "contents": contents} if system else {"contents": contents}


def _add(contents: list[dict[str, Any]], role: str, parts: Iterable[Part]) -> None:
    if contents and contents[-1]["role"] == role:
        contents[-1]["parts"] += parts
    else:
        contents.append({"role": role, "parts": list(parts)})


def _reply(message: Message, model: str, load: Load | None, ids: dict[str, str]) -> list[Part]:
    """Return the parts of a reply. Ids that the model itself gave are recorded for the answers."""
    found = _VERSION.search(model)
    must_sign = bool(message.tool_calls) and found is not None and int(found[1]) >= SIGNED_SINCE
    items = native_items(message, "gemini", model, None)
    called = [part for part in items if "functionCall" in part]
    if items and not (must_sign and not called[0].get("thoughtSignature")):
        given = (part["functionCall"].get("id") for part in called)
        ids |= {call.id: theirs for call, theirs in zip(message.tool_calls, given, strict=True) if theirs}
        return [part for part in items if part.get("text") != "" or part.get("thoughtSignature")]
    text = render_text(message, load)
    calls: list[Part] = [
        {"functionCall": {"name": call.name, "args": parse_arguments(load_arguments(call, load))}}
        for call in message.tool_calls
    ]
    if must_sign:
        calls[0]["thoughtSignature"] = UNSIGNED
    return [{"text": text}, *calls] if text else calls


def _results(run: Iterable[Message], load: Load | None, ids: dict[str, str]) -> list[Part]:
    answers: list[Part] = []
    pictures: list[Part] = []
    for message in run:
        answer: dict[str, Any] = {"name": message.tool_name or ""}
        if given := ids.get(message.tool_call_id or ""):
            answer["id"] = given
        shown = render_pieces(message, load, _IMAGES)
        answer["response"] = {"error" if message.is_error else "output": join_pieces(shown)}
        answers.append({"functionResponse": answer})
        for image in (piece for piece in shown if isinstance(piece, Image) and piece.data):
            pictures += [{"text": image.line}, _part(image)]
    return answers + pictures


def _part(piece: Piece) -> Part:
    if not isinstance(piece, Image):
        return {"text": piece}
    if not piece.data:  # an address is no use here: Gemini reads only files that were uploaded to it
        return {"text": piece.line}
    return {"inlineData": {"mimeType": piece.media_type, "data": piece.data}}
