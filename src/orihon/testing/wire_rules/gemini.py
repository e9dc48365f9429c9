"""Contents: https://ai.google.dev/api/generate-content, with its pages on function calling and thought signatures."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from orihon.testing.wire_rules.shared import has_words, is_base64

SIGNED_SINCE = 3

_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}")
_VERSION = re.compile(r"gemini-(\d+)")
_DATA = {"text", "inlineData", "fileData", "functionCall", "functionResponse", "executableCode", "codeExecutionResult"}
_BESIDE_DATA = {"thought", "thoughtSignature", "partMetadata", "videoMetadata", "mediaResolution"}
_PICTURES = {"image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"}

Part = dict[str, Any]


def broken(rendered: Any, model: str) -> Iterator[str]:
    """The rules that a request's `systemInstruction` and `contents` break."""
    contents = rendered.get("contents") if isinstance(rendered, dict) else None
    if not isinstance(contents, list) or not contents:
        yield "contents: at least one is required"
        return
    for part in (rendered.get("systemInstruction") or {}).get("parts", ()):
        if not has_words(part.get("text")):
            yield "systemInstruction: takes only texts with words in them"
    for place, content in enumerate(contents):
        yield from _turn(f"contents[{place}]", content, contents[place - 1] if place else None)
    if contents[-1].get("role") != "user":
        yield "contents: a request must end with a user turn or a function response"
    if (found := _VERSION.search(model)) and int(found[1]) >= SIGNED_SINCE:
        yield from _signatures(contents)


def _of(content: dict[str, Any] | None, field: str) -> list[dict[str, Any]]:
    return [part[field] for part in (content or {}).get("parts") or () if field in part]


def _turn(here: str, content: dict[str, Any], before: dict[str, Any] | None) -> Iterator[str]:
    role, parts = content.get("role"), content.get("parts")
    if role not in {"user", "model"}:
        yield f"{here}: unknown role {role!r}"
    if before is None and role != "user":
        yield f"{here}: the first turn must be the user's"
    if before is not None and before.get("role") == role:
        yield f"{here}: two turns of the {role} in a row"
    if not parts:
        yield f"{here}: parts are empty"
    for part in parts or ():
        yield from _part(here, str(role), part)
    yield from _answers(here, _of(before, "functionCall"), content)


def _answers(here: str, asked: list[dict[str, Any]], content: dict[str, Any]) -> Iterator[str]:
    answers = _of(content, "functionResponse")
    if len(asked) != len(answers):
        yield (
            f"{here}: the number of function response parts ({len(answers)}) must be equal to the number of function "
            f"call parts ({len(asked)}) of the turn before"
        )
    elif sorted(str(call.get("name")) for call in asked) != sorted(str(answer.get("name")) for answer in answers):
        yield f"{here}: the function responses have other names than the calls"
    if {call["id"] for call in asked if "id" in call} != {answer["id"] for answer in answers if "id" in answer}:
        yield f"{here}: the function responses have other ids than the calls"


def _part(here: str, role: str, part: Part) -> Iterator[str]:
    data = _DATA & part.keys()
    if len(data) != 1:
        yield f"{here}: a part must have exactly one kind of data, not {sorted(data)}"
    if "text" in part and not part["text"] and not part.get("thoughtSignature"):
        yield f"{here}: a text is empty"
    if (call := part.get("functionCall")) is not None:
        yield from _named(here, call, "args")
        if role != "model":
            yield f"{here}: only the model can call"
    if (answer := part.get("functionResponse")) is not None:
        yield from _named(here, answer, "response")
        if role != "user":
            yield f"{here}: only the user can answer"
    if (inline := part.get("inlineData")) is not None and (
        inline.get("mimeType") not in _PICTURES or not is_base64(inline.get("data"))
    ):
        yield f"{here}: an image needs base64 and one of the known media types"
    yield from _fields(here, part)


def _fields(here: str, part: Part) -> Iterator[str]:
    if unknown := part.keys() - _DATA - _BESIDE_DATA:
        yield f"{here}: unknown fields {sorted(map(str, unknown))}"
    if "text" in part and not isinstance(part["text"], str):
        yield f"{here}: a text must be a text"
    if not isinstance(part.get("thoughtSignature", ""), str):
        yield f"{here}: a signature must be a text"


def _named(here: str, value: dict[str, Any], field: str) -> Iterator[str]:
    if not _NAME.fullmatch(value.get("name") or ""):
        yield f"{here}: {value.get('name')!r} cannot be a function's name"
    if not isinstance(value.get(field, {}), dict):
        yield f"{here}: {field} must be an object"


def _signatures(contents: list[dict[str, Any]]) -> Iterator[str]:
    """In the current turn (since the user last spoke) the first call of every step is signed."""
    spoke = [
        place
        for place, content in enumerate(contents)
        if content.get("role") == "user" and not _of(content, "functionResponse")
    ]
    start = spoke[-1] if spoke else 0
    for place, content in enumerate(contents[start:], start):
        calls = [part for part in content.get("parts") or () if "functionCall" in part]
        if calls and not calls[0].get("thoughtSignature"):
            yield f"contents[{place}]: the first function call of a step has no thought_signature"
