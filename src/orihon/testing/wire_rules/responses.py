"""Responses: https://platform.openai.com/docs/api-reference/responses/create."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from orihon.testing.wire_rules.shared import NAME, has_words, is_object, is_picture_address

MAX_ID_CHARS = 64

_BEGINS = {"message": "msg", "function_call": "fc", "reasoning": "rs"}
_ROLES = {"system", "developer", "user", "assistant"}
_WAITING = {"function_call", "custom_tool_call", "computer_call", "local_shell_call", "shell_call", "apply_patch_call"}
_MADE_BY_MODEL = (
    _WAITING
    | {"reasoning", "compaction", "mcp_call", "mcp_list_tools", "tool_search_call"}
    | {f"{tool}_call" for tool in ("web_search", "file_search", "code_interpreter", "image_generation")}
)


def broken(rendered: Any, model: str) -> Iterator[str]:  # noqa: ARG001 - one signature for all
    """The rules that a list of items breaks."""
    if not isinstance(rendered, list) or not rendered:
        yield "input: must be a list with at least one item"
        return
    for place, item in enumerate(rendered):
        here, kind = f"input[{place}]", item.get("type", "message")
        if kind == "message":
            yield from _message(here, item)
        elif kind == "function_call":
            yield from _call(here, item)
        elif kind == "function_call_output":
            yield from _output(here, item)
        elif kind == "reasoning":
            yield from _reasoning(here, item, rendered[place + 1 : place + 2])
        elif kind not in _MADE_BY_MODEL:
            yield f"{here}: unknown type {kind!r}"
    yield from _pairs(rendered)
    yield from _ids(rendered)


def _pairs(rendered: list[dict[str, Any]]) -> Iterator[str]:
    """Each call has one output after it, and before anybody speaks again."""
    waiting: set[str] = set()
    seen: set[str] = set()
    for place, item in enumerate(rendered):
        kind, call_id = item.get("type", "message"), str(item.get("call_id"))
        if kind in _WAITING:
            if call_id in seen:
                yield f"input[{place}]: two calls have the id {call_id!r}"
            seen.add(call_id)
            waiting.add(call_id)
        elif kind.removesuffix("_output") in _WAITING:
            if call_id not in waiting:
                yield f"input[{place}]: no tool call found for the output of {call_id!r}"
            waiting.discard(call_id)
        elif waiting and kind == "message" and item.get("role") != "assistant":
            yield f"input[{place}]: no tool output found before it for {sorted(waiting)}"
            waiting = set()
    if waiting:
        yield f"input: no tool output found for {sorted(waiting)}"


def _ids(rendered: list[dict[str, Any]]) -> Iterator[str]:
    """The id of an item names it, once, and says of which kind it is."""
    seen: set[str] = set()
    for place, item in enumerate(rendered):
        if "id" not in item:
            continue
        kind, own = item.get("type", "message"), item["id"]
        if not isinstance(own, str) or not 0 < len(own) <= MAX_ID_CHARS or not own.startswith(_BEGINS.get(kind, "")):
            yield f"input[{place}]: {own!r:.80} cannot be the id of a {kind}"
        elif own in seen:
            yield f"input[{place}]: duplicate item found with id {own!r}"
        seen.add(str(own))


def _call(here: str, item: dict[str, Any]) -> Iterator[str]:
    call_id = item.get("call_id")
    if not isinstance(call_id, str) or not 0 < len(call_id) <= MAX_ID_CHARS:
        yield f"{here}: call_id must have 1 to {MAX_ID_CHARS} characters"
    if not NAME.fullmatch(item.get("name") or ""):
        yield f"{here}: {item.get('name')!r} cannot be a function's name"
    if not is_object(item.get("arguments")):
        yield f"{here}: arguments must be the JSON text of an object"


def _output(here: str, item: dict[str, Any]) -> Iterator[str]:
    output = item.get("output")
    if isinstance(output, list) and output:
        yield from _parts(here, output, {"input_text", "input_image", "input_file"})
    elif not has_words(output):
        yield f"{here}: output is empty"


def _reasoning(here: str, item: dict[str, Any], after: list[dict[str, Any]]) -> Iterator[str]:
    if not item.get("id"):
        yield f"{here}: a reasoning item needs its id"
    if not item.get("encrypted_content"):
        yield f"{here}: a reasoning item without encrypted_content cannot be found again"
    following = after[0] if after else {}
    kind = following.get("type", "message")
    if following.get("role") != "assistant" and kind not in _MADE_BY_MODEL:
        yield f"{here}: reasoning was provided without its required following item"


def _message(here: str, item: dict[str, Any]) -> Iterator[str]:
    role, content = item.get("role"), item.get("content")
    if role not in _ROLES:
        yield f"{here}: unknown role {role!r}"
    elif isinstance(content, list) and content:
        yield from _parts(
            here,
            content,
            {"output_text", "refusal"} if role == "assistant" else {"input_text", "input_image", "input_file"},
        )
    elif not has_words(content):
        yield f"{here}: content is empty"


def _parts(here: str, parts: list[dict[str, Any]], allowed: set[str]) -> Iterator[str]:
    for part in parts:
        kind = part.get("type")
        if kind not in allowed:
            yield f"{here}: takes no {kind!r}"
        elif kind in {"input_text", "output_text"} and not has_words(part.get("text")):
            yield f"{here}: a text is empty"
        elif kind == "input_image" and not part.get("file_id") and not is_picture_address(part.get("image_url")):
            yield f"{here}: an image needs a web address, base64 or a file"
