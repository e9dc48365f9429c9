"""The rules by which the four providers' APIs accept a request.

The rules come from the providers' documentation and from the errors they return. They are written independently of the
renderers in `orihon.context.wire`, so that each checks the other. The scripted model brings those of OpenAI's chat
completions (`orihon.testing.model`); the others are here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from orihon.errors import UsageError
from orihon.testing.model import (
    PICTURES,
    TOOL_NAME,
    check_call,
    check_chat,
    check_json,
    collect,
    has_words,
    is_id,
    is_picture,
    is_picture_address,
)


def violations(api: str, rendered: Any, *, model: str = "") -> list[str]:
    """Return every rule of the API that the request breaks, each with its location.

    `rendered` is the list of messages or items for `openai` and `responses`, and the object that holds the messages
    or contents for `anthropic` and `gemini`. Some rules apply to some models only.
    """
    if api not in _CHECKS:
        raise UsageError(f"There is no API called {api!r}.", hint=f"Use one of: {', '.join(_CHECKS)}.")
    return collect(check_json(rendered), _CHECKS[api](rendered, model))


# OpenAI Responses: https://platform.openai.com/docs/api-reference/responses/create.

MAX_ITEM_ID_CHARS = 64
_ID_PREFIXES = {"message": "msg", "function_call": "fc", "reasoning": "rs"}
_INPUT_PARTS = {"input_text", "input_image", "input_file"}
_OUTPUT_PARTS = {"output_text", "refusal"}
_ITEM_ROLES = {"system", "developer", "user", "assistant"}
_CALL_TYPES = {
    f"{tool}_call" for tool in ("function", "custom_tool", "computer", "local_shell", "shell", "apply_patch")
}
_MODEL_ITEM_TYPES = (
    _CALL_TYPES
    | {"reasoning", "compaction", "mcp_call", "mcp_list_tools", "tool_search_call"}
    | {f"{tool}_call" for tool in ("web_search", "file_search", "code_interpreter", "image_generation")}
)


def _check_responses(rendered: Any, model: str) -> Iterator[str]:  # noqa: ARG001 - all checks have one signature
    """Yield the rules that a list of items breaks."""
    if not isinstance(rendered, list) or not rendered:
        yield "input: must be a list with at least one item"
        return
    for place, item in enumerate(rendered):
        here, kind = f"input[{place}]", item.get("type", "message")
        if kind == "message":
            yield from _check_item_message(here, item)
        elif kind == "function_call":
            yield from check_call(here, item.get("call_id"), MAX_ITEM_ID_CHARS, item)
        elif kind == "function_call_output":
            yield from _check_function_output(here, item)
        elif kind == "reasoning":
            yield from _check_reasoning(here, item, rendered[place + 1 : place + 2])
        elif kind not in _MODEL_ITEM_TYPES:
            yield f"{here}: unknown type {kind!r}"
    yield from _check_output_pairs(rendered)
    yield from _check_item_ids(rendered)


def _check_output_pairs(rendered: list[dict[str, Any]]) -> Iterator[str]:
    """Each call has one output, which precedes the next message of the user."""
    waiting: set[str] = set()
    seen: set[str] = set()
    for place, item in enumerate(rendered):
        kind, call_id = item.get("type", "message"), str(item.get("call_id"))
        if kind in _CALL_TYPES:
            if call_id in seen:
                yield f"input[{place}]: two calls have the id {call_id!r}"
            seen.add(call_id)
            waiting.add(call_id)
        elif kind.removesuffix("_output") in _CALL_TYPES:
            if call_id not in waiting:
                yield f"input[{place}]: no tool call found for the output of {call_id!r}"
            waiting.discard(call_id)
        elif waiting and kind == "message" and item.get("role") != "assistant":
            yield f"input[{place}]: no tool output found before it for {sorted(waiting)}"
            waiting = set()
    if waiting:
        yield f"input: no tool output found for {sorted(waiting)}"


def _check_item_ids(rendered: list[dict[str, Any]]) -> Iterator[str]:
    """The id of an item is unique and begins with the prefix of its type."""
    seen: set[str] = set()
    for place, item in enumerate(rendered):
        if "id" not in item:
            continue
        kind, item_id = item.get("type", "message"), item["id"]
        prefix = _ID_PREFIXES.get(kind, "")
        if not is_id(item_id, MAX_ITEM_ID_CHARS) or not item_id.startswith(prefix):
            yield f"input[{place}]: {item_id!r:.80} cannot be the id of a {kind}"
        elif item_id in seen:
            yield f"input[{place}]: duplicate item found with id {item_id!r}"
        seen.add(str(item_id))


def _check_function_output(here: str, item: dict[str, Any]) -> Iterator[str]:
    output = item.get("output")
    if isinstance(output, list) and output:
        yield from _check_item_parts(here, output, _INPUT_PARTS)
    elif not has_words(output):
        yield f"{here}: output is empty"


def _check_reasoning(here: str, item: dict[str, Any], after: list[dict[str, Any]]) -> Iterator[str]:
    if not item.get("id"):
        yield f"{here}: a reasoning item needs its id"
    if not item.get("encrypted_content"):
        yield f"{here}: a reasoning item without encrypted_content cannot be found again"
    following = after[0] if after else {}
    kind = following.get("type", "message")
    if following.get("role") != "assistant" and kind not in _MODEL_ITEM_TYPES:
        yield f"{here}: reasoning was provided without its required following item"


def _check_item_message(here: str, item: dict[str, Any]) -> Iterator[str]:
    role, content = item.get("role"), item.get("content")
    if role not in _ITEM_ROLES:
        yield f"{here}: unknown role {role!r}"
    elif isinstance(content, list) and content:
        yield from _check_item_parts(here, content, _OUTPUT_PARTS if role == "assistant" else _INPUT_PARTS)
    elif not has_words(content):
        yield f"{here}: content is empty"


def _check_item_parts(here: str, parts: list[dict[str, Any]], allowed: set[str]) -> Iterator[str]:
    for part in parts:
        kind = part.get("type")
        if kind not in allowed:
            yield f"{here}: does not accept {kind!r}"
        elif kind in {"input_text", "output_text"} and not has_words(part.get("text")):
            yield f"{here}: a text is empty"
        elif kind == "input_image" and not part.get("file_id") and not is_picture_address(part.get("image_url")):
            yield f"{here}: an image needs a web address, base64 or a file"


# Anthropic Messages: https://platform.claude.com/docs/en/api/messages, with its pages on tools, thinking and caching.

MAX_MARKS = 4
MAX_PICTURE_CHARS = 5 * 1024 * 1024  # as base64

_TOOL_USE_ID = re.compile(r"[a-zA-Z0-9_-]+")
_THINKING_TYPES = {"thinking", "redacted_thinking"}
_USER_BLOCK_TYPES = {"text", "image", "document", "tool_result", "search_result"}
_SERVER_TOOLS = ("web_search", "web_fetch", "code_execution", "bash_code_execution", "text_editor_code_execution")
_ASSISTANT_BLOCK_TYPES = (
    {"text", "tool_use", "server_tool_use", "container_upload"}
    | _THINKING_TYPES
    | {f"{tool}_tool_result" for tool in _SERVER_TOOLS}
)


def _check_anthropic(rendered: Any, model: str) -> Iterator[str]:  # noqa: ARG001 - all checks have one signature
    """Yield the rules that `system` and `messages` break."""
    messages = rendered.get("messages") if isinstance(rendered, dict) else None
    if not isinstance(messages, list) or not messages:
        yield "messages: at least one message is required"
        return
    yield from _check_system(rendered.get("system"))
    for place, message in enumerate(messages):
        yield from _check_anthropic_turn(f"messages[{place}]", message, messages[place - 1] if place else None)
    if messages[-1].get("role") != "user":
        yield "messages: the last message must be the user's; newer models refuse a prefill"
    yield from _check_tool_use_pairs(messages)
    yield from _check_thinking(messages)
    yield from _check_cache_marks(rendered)


def _list_blocks(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content")
    return [{"type": "text", "text": content}] if isinstance(content, str) else content or []


def _check_system(system: Any) -> Iterator[str]:
    for block in [{"type": "text", "text": system}] if isinstance(system, str) else system or ():
        if block.get("type") != "text" or not has_words(block.get("text")):
            yield "system: accepts only texts that are not blank"


def _check_anthropic_turn(here: str, message: dict[str, Any], before: dict[str, Any] | None) -> Iterator[str]:
    role, blocks = message.get("role"), _list_blocks(message)
    yield from _check_role(here, role, before, {"user", "assistant"})
    if not blocks:
        yield f"{here}: content is empty"
    for block in blocks:
        kind = block.get("type")
        if kind not in (_USER_BLOCK_TYPES if role == "user" else _ASSISTANT_BLOCK_TYPES):
            yield f"{here}: the role {role} cannot send {kind!r}"
        yield from _check_block(here, block)


def _check_block(here: str, block: dict[str, Any]) -> Iterator[str]:
    kind = block.get("type")
    if kind == "text" and not has_words(block.get("text")):
        yield f"{here}: text content blocks must contain non-whitespace text"
    elif kind == "image":
        yield from _check_image(here, block.get("source") or {})
    elif kind == "tool_use":
        if not isinstance(block.get("input"), dict):
            yield f"{here}: input must be an object"
        if not TOOL_NAME.fullmatch(block.get("name") or ""):
            yield f"{here}: {block.get('name')!r} cannot be a tool's name"
        if not _TOOL_USE_ID.fullmatch(block.get("id") or ""):
            yield f"{here}: {block.get('id')!r} cannot be the id of a tool_use"
    elif kind == "tool_result":
        yield from _check_tool_result(here, block)
    elif kind == "thinking" and not (isinstance(block.get("thinking"), str) and block.get("signature")):
        yield f"{here}: thinking without its signature"
    elif kind == "redacted_thinking" and not block.get("data"):
        yield f"{here}: redacted thinking without its data"


def _check_image(here: str, source: dict[str, Any]) -> Iterator[str]:
    if source.get("type") == "url":
        if not str(source.get("url")).startswith("https://"):
            yield f"{here}: an image's address must begin with https"
    elif source.get("type") != "base64" or not is_picture(source.get("media_type"), source.get("data"), PICTURES):
        yield f"{here}: an image needs base64 and one of the known media types"
    elif len(source["data"]) > MAX_PICTURE_CHARS:
        yield f"{here}: image exceeds 5 MB maximum"


def _check_tool_result(here: str, block: dict[str, Any]) -> Iterator[str]:
    content = block.get("content")
    for inner in content if isinstance(content, list) else ():
        if inner.get("type") not in {"text", "image", "document", "search_result"}:
            yield f"{here}: a tool_result cannot hold {inner.get('type')!r}"
        if block.get("is_error") and inner.get("type") != "text":
            yield f"{here}: all content must be type text if is_error is true"
        yield from _check_block(here, inner)


def _check_tool_use_pairs(messages: list[dict[str, Any]]) -> Iterator[str]:
    used: set[str] = set()
    asked: list[str] = []
    for place, message in enumerate(messages):
        here, blocks = f"messages[{place}]", _list_blocks(message)
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


def _check_thinking(messages: list[dict[str, Any]]) -> Iterator[str]:
    """A tool loop that contains thinking begins with thinking; no message ends with thinking."""
    begins_with_thought: bool | None = None  # for the current tool loop; None before its first block
    for place, message in enumerate(messages):
        kinds = [block.get("type") for block in _list_blocks(message)]
        if message.get("role") == "user":
            begins_with_thought = None if set(kinds) != {"tool_result"} else begins_with_thought
            continue
        if begins_with_thought is None:
            begins_with_thought = bool(kinds) and kinds[0] in _THINKING_TYPES
        if _THINKING_TYPES & set(kinds) and not begins_with_thought:
            yield f"messages[{place}]: expected thinking at the beginning of the turn"
        if kinds and kinds[-1] in _THINKING_TYPES:
            yield f"messages[{place}]: the final block cannot be thinking"


def _check_cache_marks(rendered: dict[str, Any]) -> Iterator[str]:
    """The limit counts every mark, including those inside tool results."""
    marked = [
        block for block in _walk_objects([rendered.get("system"), rendered["messages"]]) if "cache_control" in block
    ]
    if len(marked) > MAX_MARKS:
        yield f"cache_control: {len(marked)} marks, more than {MAX_MARKS}"
    if any(block.get("type") in _THINKING_TYPES for block in marked):
        yield "cache_control: thinking cannot be marked"
    if any(block["cache_control"] != {"type": "ephemeral"} for block in marked):
        yield "cache_control: the type must be ephemeral"


def _walk_objects(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every object except those inside the input of a call."""
    if isinstance(value, list):
        for item in value:
            yield from _walk_objects(item)
    elif isinstance(value, dict):
        yield value
        for key, item in value.items():
            if key != "input":
                yield from _walk_objects(item)


# Gemini: https://ai.google.dev/api/generate-content, with its pages on function calling and thought signatures.

SIGNED_SINCE = 3
_GEMINI_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}")
_GEMINI_VERSION = re.compile(r"gemini-(\d+)")
_CODE_DATA = {"functionCall", "functionResponse", "executableCode", "codeExecutionResult"}
_PART_DATA = {"text", "inlineData", "fileData"} | _CODE_DATA
_PART_METADATA = {"thought", "thoughtSignature", "partMetadata", "videoMetadata", "mediaResolution"}
_GEMINI_PICTURES = {"image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"}


def _check_gemini(rendered: Any, model: str) -> Iterator[str]:
    """Yield the rules that `systemInstruction` and `contents` break."""
    contents = rendered.get("contents") if isinstance(rendered, dict) else None
    if not isinstance(contents, list) or not contents:
        yield "contents: at least one is required"
        return
    for part in (rendered.get("systemInstruction") or {}).get("parts", ()):
        if not has_words(part.get("text")):
            yield "systemInstruction: accepts only texts that are not blank"
    for place, content in enumerate(contents):
        yield from _check_gemini_turn(f"contents[{place}]", content, contents[place - 1] if place else None)
    if contents[-1].get("role") != "user":
        yield "contents: a request must end with a user turn or a function response"
    if (version := _GEMINI_VERSION.search(model)) and int(version[1]) >= SIGNED_SINCE:
        yield from _check_signatures(contents)


def _list_part_fields(content: dict[str, Any] | None, field: str) -> list[dict[str, Any]]:
    return [part[field] for part in (content or {}).get("parts") or () if field in part]


def _check_gemini_turn(here: str, content: dict[str, Any], before: dict[str, Any] | None) -> Iterator[str]:
    role, parts = content.get("role"), content.get("parts")
    yield from _check_role(here, role, before, {"user", "model"})
    if not parts:
        yield f"{here}: parts are empty"
    for part in parts or ():
        yield from _check_part(here, str(role), part)
    yield from _check_function_responses(here, _list_part_fields(before, "functionCall"), content)


def _check_function_responses(here: str, asked: list[dict[str, Any]], content: dict[str, Any]) -> Iterator[str]:
    answers = _list_part_fields(content, "functionResponse")
    if len(asked) != len(answers):
        yield (
            f"{here}: the number of function response parts ({len(answers)}) must be equal to the number of function "
            f"call parts ({len(asked)}) of the turn before"
        )
    elif sorted(str(call.get("name")) for call in asked) != sorted(str(answer.get("name")) for answer in answers):
        yield f"{here}: the names of the function responses differ from those of the calls"
    if {call["id"] for call in asked if "id" in call} != {answer["id"] for answer in answers if "id" in answer}:
        yield f"{here}: the ids of the function responses differ from those of the calls"


def _check_part(here: str, role: str, part: dict[str, Any]) -> Iterator[str]:
    data = _PART_DATA & part.keys()
    if len(data) != 1:
        yield f"{here}: a part must have exactly one kind of data, not {sorted(data)}"
    if "text" in part and not part["text"] and not part.get("thoughtSignature"):
        yield f"{here}: a text is empty"
    if (call := part.get("functionCall")) is not None:
        yield from _check_named_function(here, call, "args")
        if role != "model":
            yield f"{here}: only the model can call"
    if (answer := part.get("functionResponse")) is not None:
        yield from _check_named_function(here, answer, "response")
        if role != "user":
            yield f"{here}: only the user can answer"
    inline = part.get("inlineData")
    if inline is not None and not is_picture(inline.get("mimeType"), inline.get("data"), _GEMINI_PICTURES):
        yield f"{here}: an image needs base64 and one of the known media types"
    yield from _check_part_fields(here, part)


def _check_part_fields(here: str, part: dict[str, Any]) -> Iterator[str]:
    if unknown := part.keys() - _PART_DATA - _PART_METADATA:
        yield f"{here}: unknown fields {sorted(map(str, unknown))}"
    if "text" in part and not isinstance(part["text"], str):
        yield f"{here}: text must be a string"
    if not isinstance(part.get("thoughtSignature", ""), str):
        yield f"{here}: thoughtSignature must be a string"


def _check_named_function(here: str, value: dict[str, Any], field: str) -> Iterator[str]:
    if not _GEMINI_NAME.fullmatch(value.get("name") or ""):
        yield f"{here}: {value.get('name')!r} cannot be a function's name"
    if not isinstance(value.get(field, {}), dict):
        yield f"{here}: {field} must be an object"


def _check_signatures(contents: list[dict[str, Any]]) -> Iterator[str]:
    """Since the last message of the user, the first call of every step is signed."""
    start = 0
    for place, content in enumerate(contents):
        if content.get("role") == "user" and not _list_part_fields(content, "functionResponse"):
            start = place
    for place, content in enumerate(contents[start:], start):
        calls = [part for part in content.get("parts") or () if "functionCall" in part]
        if calls and not calls[0].get("thoughtSignature"):
            yield f"contents[{place}]: the first function call of a step has no thought_signature"


def _check_role(here: str, role: Any, before: dict[str, Any] | None, roles: set[str]) -> Iterator[str]:
    """The user begins, and the two roles alternate."""
    if role not in roles:
        yield f"{here}: unknown role {role!r}"
    if before is None and role != "user":
        yield f"{here}: the first message must be the user's"
    if before is not None and before.get("role") == role:
        yield f"{here}: two messages of the {role} in a row"


_CHECKS: dict[str, Callable[[Any, str], Iterator[str]]] = {
    "openai": lambda rendered, _: check_chat(rendered),
    "responses": _check_responses,
    "anthropic": _check_anthropic,
    "gemini": _check_gemini,
}
