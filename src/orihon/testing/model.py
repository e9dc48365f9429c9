"""A model that returns scripted replies in order and reports where the run differs from the script.

Call it like OpenAI's client (`client.chat.completions.create(model=…, messages=…, tools=…)`), as a function of the
messages, or as a summariser (`summariser=client.ask`). It refuses a request that OpenAI would refuse. A script is a
list, or a JSON or YAML file that holds one. Each reply is one of these:

    "Done."                                             a text
    {"content": "…", "tool_calls": [{"name": "read_file", "arguments": {"path": "a.py"}}]}
    {"say": "…", "call": [{"name": "read_file", "arguments": {"path": "a.py"}}]}      the same, shorter
    {"choices": […], "usage": {…}}                      a complete reply of OpenAI's, returned unchanged
    {"status": 429, "error": "Too many requests."}      a failure of the provider
    an exception, which is raised, or a function of the request that returns one of the others
"""

from __future__ import annotations

import base64
import binascii
import copy
import json
import math
import re
import threading
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import Any, Self

from msgspec import Struct

from orihon.errors import ModelError, ScriptError, UsageError
from orihon.settings import yaml as yamlfile

REPLY_FORMS = 'Write a text, or {"content": …, "tool_calls": [{"name": …, "arguments": {…}}]}, or a complete reply.'


class Request(Struct, frozen=True, kw_only=True):
    """A request that the model received."""

    model: str = ""
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None = None
    options: dict[str, Any] = {}


class Refused(ModelError):
    """The request breaks a rule of the API; `status` is the HTTP status of the refusal."""

    def __init__(self, message: str, *, status: int = 400, param: str = "") -> None:
        self.status, self.param = status, param
        retryable = status == 429 or status >= 500
        super().__init__(message, hint="Send a request that follows the API's documentation.", retryable=retryable)


class Reply(dict[str, Any]):
    """A reply as JSON with attribute access like the SDK's object: `reply.choices[0].message.content`."""

    def __getattr__(self, name: str) -> Any:
        if name not in self:
            raise AttributeError(name)
        return _wrap(self[name])


class ScriptedModel:
    """Returns the replies in order. At the end of a `with` block, raises ScriptError if replies were not used."""

    def __init__(self, replies: Iterable[Any] | str | Path, *, model: str = "scripted") -> None:
        is_file = isinstance(replies, str | Path)
        script: list[Any] = _read_script(Path(replies)) if is_file else list(replies)  # type: ignore[arg-type]
        self.replies = [_expand(reply) for reply in script]
        self.model = model
        self.requests: list[Request] = []
        self.used = 0
        self.unanswered = 0  # requests after the last reply
        self.chat = SimpleNamespace(completions=SimpleNamespace(create=self))
        self._lock = threading.Lock()
        for number, reply in enumerate(self.replies, start=1):
            _check_reply(reply, number)

    def __call__(
        self,
        messages: list[dict[str, Any]],
        *,
        model: str = "",
        tools: list[dict[str, Any]] | None = None,
        **options: Any,
    ) -> Reply:
        """Return the next reply of the script."""
        request = Request(model=model, messages=copy.deepcopy(messages), tools=copy.deepcopy(tools), options=options)
        with self._lock:
            self.requests.append(request)
            check_request(request)
            number, reply = self._next()
        if callable(reply) and not isinstance(reply, type):
            reply = _expand(reply(request))
            _check_reply(reply, number)
        if isinstance(reply, BaseException):
            raise reply
        if isinstance(reply, dict) and "error" in reply:
            raise Refused(str(reply["error"]), status=int(reply.get("status", 500)))
        return build_completion(reply, number, model or self.model)

    def ask(self, prompt: str) -> str:
        """Return the next reply as text, as a summariser does."""
        return str(self([{"role": "user", "content": prompt}]).choices[0].message.get("content") or "")

    def _next(self) -> tuple[int, Any]:
        if self.used >= len(self.replies):
            self.unanswered += 1
            raise ScriptError(
                f"Reply {self.used + self.unanswered} was requested, but the script has {len(self.replies)}.",
                hint="Add a reply, or find out why the loop continued.",
            )
        self.used += 1
        return self.used, self.replies[self.used - 1]

    def close(self) -> None:
        """Raise ScriptError if replies were not used or requests came after the last reply."""
        if self.unanswered:
            count = f"{self.unanswered} {'request' if self.unanswered == 1 else 'requests'}"
            raise ScriptError(f"{count} came after the end of the script.")
        unused = self.replies[self.used :]
        if unused:
            first = str(unused[0])[:80]
            message = f"{len(unused)} of {len(self.replies)} replies were not used; the first of them is {first!a}."
            raise ScriptError(message, hint="Remove them, or find out why the loop ended early.")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is None:  # an earlier error takes precedence
            self.close()


def check_request(request: Request) -> None:
    """Raise Refused if OpenAI would refuse the request."""
    broken = find_violations(request.messages)
    if broken:
        raise Refused("; ".join(broken), param="messages")
    if request.tools is not None and not request.tools:
        raise Refused("tools: omit the parameter or pass at least one tool", param="tools")
    for index, tool in enumerate(request.tools or ()):
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict) or not function.get("name") or tool.get("type") != "function":
            raise Refused(f"tools[{index}]: must be a function with a name", param="tools")
    if request.options.get("stream"):
        raise Refused("stream: only the server streams", param="stream")


def build_completion(reply: Any, number: int, model: str) -> Reply:
    """Return a reply of the script in the form of OpenAI's API."""
    if isinstance(reply, str):
        reply = {"content": reply}
    if "choices" in reply:
        return Reply({"id": f"chatcmpl-{number}", "object": "chat.completion", "created": 0, "model": model} | reply)
    calls = [
        _build_call(call, f"call_{number}_{index}") for index, call in enumerate(reply.get("tool_calls") or (), start=1)
    ]
    more = {name: value for name, value in reply.items() if name not in {"content", "tool_calls", "usage"}}
    message = {"role": "assistant", "content": reply.get("content")} | more | ({"tool_calls": calls} if calls else {})
    complete = {"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}]}
    return build_completion(complete | ({"usage": reply["usage"]} if "usage" in reply else {}), number, model)


def _build_call(call: dict[str, Any], id: str) -> dict[str, Any]:
    function = call.get("function", call)
    arguments = function.get("arguments", {})
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return {
        "id": call.get("id") or id,
        "type": "function",
        "function": {"name": function["name"], "arguments": text},
    }


def _expand(reply: Any) -> Any:
    """Replace `say` and `call` with the names of the API."""
    if not isinstance(reply, dict) or reply.keys().isdisjoint({"say", "call"}):
        return reply
    names = {"say": "content", "call": "tool_calls"}
    full = {names.get(name, name): value for name, value in reply.items()}
    if isinstance(full.get("tool_calls"), dict):  # a single call
        full["tool_calls"] = [full["tool_calls"]]
    return full


def _check_reply(reply: Any, number: int) -> None:
    if isinstance(reply, str | BaseException) or (callable(reply) and not isinstance(reply, type)):
        return
    known = {"content", "tool_calls", "choices", "error"}
    if not isinstance(reply, dict) or known.isdisjoint(reply):
        raise UsageError(f"Reply {number} of the script is not a reply: {str(reply)[:80]!a}.", hint=REPLY_FORMS)
    for call in reply.get("tool_calls") or ():
        function = call.get("function", call) if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise UsageError(f"A call in reply {number} of the script has no name.", hint=REPLY_FORMS)


def _read_script(path: Path) -> list[Any]:
    try:
        text = path.read_text(encoding="utf-8")
        value = json.loads(text) if path.suffix == ".json" else _to_dicts(yamlfile.parse(text))
    except (OSError, ValueError, yamlfile.YamlError) as error:
        raise UsageError(f"The script {path} cannot be read: {error}.", hint="Pass a JSON or YAML file.") from error
    if not isinstance(value, list):
        raise UsageError(f"The script {path} is not a list of replies.", hint=REPLY_FORMS)
    return value


def _to_dicts(value: object) -> Any:
    """Convert the parser's mappings to dicts."""
    if isinstance(value, tuple):
        return {entry.key: _to_dicts(entry.value) for entry in value}
    return [_to_dicts(item) for item in value] if isinstance(value, list) else value


def _wrap(value: Any) -> Any:
    if isinstance(value, list):
        return [_wrap(item) for item in value]
    return Reply(value) if isinstance(value, dict) else value


# the rules by which OpenAI accepts a request for chat completions
#
# They come from https://platform.openai.com/docs/api-reference/chat/create and from the errors that the API returns,
# and are written without the renderers in `orihon.context.wire`, so that each checks the other. The rules of the
# other three APIs are in `tests/support/wire_rules.py`.

MAX_CHAT_ID_CHARS = 40

_CHAT_PARTS = {
    "system": {"text"},
    "developer": {"text"},
    "user": {"text", "image_url", "input_audio", "file"},
    "assistant": {"text", "refusal"},
    "tool": {"text"},
}


def find_violations(messages: Any) -> list[str]:
    """Return every rule that the messages break, each with its location."""
    return collect(check_json(messages), check_chat(messages))


def collect(*checks: Iterator[str]) -> list[str]:
    """Return the rules that the checks yield. A request of another shape ends them."""
    broken: list[str] = []
    try:
        for rule in chain(*checks):
            broken.append(rule)  # noqa: PERF402 - the rules found before an error are kept
    except (AttributeError, KeyError, TypeError) as error:
        broken.append(f"the request does not have the shape of the API: {error}")
    return broken


def check_chat(rendered: Any) -> Iterator[str]:
    """Yield the rules that a list of messages breaks."""
    if not isinstance(rendered, list) or not rendered:
        yield "messages: must be a list with at least one message"
        return
    waiting: list[str] = []
    for place, message in enumerate(rendered):
        here = f"messages[{place}]"
        role = message.get("role")
        if role not in _CHAT_PARTS:
            yield f"{here}: unknown role {role!r}"
            continue
        if role == "tool":
            yield from _check_chat_result(here, message, waiting)
        elif waiting:
            yield f"{here}: tool calls before it have no results: {waiting}"
            waiting = []
        yield from _check_chat_content(here, message)
        if role == "assistant":
            yield from _check_chat_calls(here, message, waiting)
        elif "tool_calls" in message:
            yield f"{here}: only an assistant can have tool_calls"
    if waiting:
        yield f"messages: tool calls at the end have no results: {waiting}"


def _check_chat_result(here: str, message: dict[str, Any], waiting: list[str]) -> Iterator[str]:
    call_id = message.get("tool_call_id")
    if call_id in waiting:
        waiting.remove(call_id)
    else:
        yield f"{here}: a result for {call_id!r}, but no call directly before it has that id"


def _check_chat_calls(here: str, message: dict[str, Any], waiting: list[str]) -> Iterator[str]:
    calls = message.get("tool_calls")
    if calls is None:
        return
    if not isinstance(calls, list) or not calls:
        yield f"{here}: tool_calls must not be empty"
        return
    for call in calls:
        call_id = call.get("id")
        if call_id in waiting:
            yield f"{here}: two calls have the id {call_id!r}"
        else:
            waiting.append(call_id)
        if call.get("type") != "function":
            yield f"{here}: a call must have the type function"
        yield from check_call(here, call_id, MAX_CHAT_ID_CHARS, call.get("function") or {})


def _check_chat_content(here: str, message: dict[str, Any]) -> Iterator[str]:
    role, content = message["role"], message.get("content")
    if content is None:
        if role != "assistant" or not message.get("tool_calls"):
            yield f"{here}: content is missing"
        return
    if not content or (isinstance(content, str) and not has_words(content)):
        yield f"{here}: content is empty"
    for part in content if isinstance(content, list) else ():
        if part.get("type") not in _CHAT_PARTS[role]:
            yield f"{here}: the role {role} does not accept {part.get('type')!r}"
        elif part["type"] == "text" and not has_words(part.get("text")):
            yield f"{here}: a text is empty"
        elif part["type"] == "image_url" and not is_picture_address((part.get("image_url") or {}).get("url")):
            yield f"{here}: an image needs a web address or base64"


# checks that other APIs share

MAX_LEVELS = 100  # the parsers of some providers accept no deeper nesting
PICTURES = {"image/png", "image/jpeg", "image/gif", "image/webp"}
TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def check_call(here: str, call_id: Any, max_chars: int, function: dict[str, Any]) -> Iterator[str]:
    if not is_id(call_id, max_chars):
        yield f"{here}: a call's id must have 1 to {max_chars} characters, not {call_id!r:.80}"
    if not TOOL_NAME.fullmatch(function.get("name") or ""):
        yield f"{here}: {function.get('name')!r} cannot be a function's name"
    if not _is_json_object(function.get("arguments")):
        yield f"{here}: arguments must be the JSON text of an object"


def is_id(value: Any, max_chars: int) -> bool:
    return isinstance(value, str) and 0 < len(value) <= max_chars


def has_words(value: Any) -> bool:
    """Return whether the value is a text that is not blank."""
    return isinstance(value, str) and bool(value.strip())


def is_picture_address(value: Any) -> bool:
    """Return whether the value is a web address or a base64 data URL of an image."""
    if not isinstance(value, str):
        return False
    head, _, data = value.partition(";base64,")
    return value.startswith(("https://", "http://")) or is_picture(head.removeprefix("data:"), data, PICTURES)


def is_picture(media_type: Any, data: Any, media_types: set[str]) -> bool:
    """Return whether the media type is known and the data is non-empty base64."""
    try:
        return media_type in media_types and bool(base64.b64decode(data, validate=True))
    except (binascii.Error, TypeError, ValueError):
        return False


def _is_json_object(value: Any) -> bool:
    """Return whether the value is the text of a JSON object. NaN and Infinity are not JSON."""
    if not isinstance(value, str):
        return False
    try:
        return isinstance(json.loads(value, parse_constant=_refuse_constant), dict)
    except (ValueError, RecursionError):
        return False


def check_json(value: Any) -> Iterator[str]:
    """Yield the values that JSON in UTF-8 cannot hold: lone surrogates, NaN, keys that are not strings."""
    layer: list[tuple[str, Any]] = [("request", value)]
    for _ in range(MAX_LEVELS):
        for here, item in layer:
            yield from _check_json_leaf(here, item)
        layer = [inner for here, item in layer for inner in _list_children(here, item)]
        if not layer:
            return
    yield f"request: nested deeper than {MAX_LEVELS} levels"


def _list_children(here: str, item: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(item, dict):
        for key, inner in item.items():
            yield f"{here}, a key", key
            yield f"{here}.{key!a:.40}", inner
    elif isinstance(item, list):
        yield from ((f"{here}[{place}]", inner) for place, inner in enumerate(item))


def _check_json_leaf(here: str, item: Any) -> Iterator[str]:
    if isinstance(item, float) and not math.isfinite(item):
        yield f"{here}: {item} is not a JSON number"
    elif isinstance(item, str) and not item.isascii():
        try:
            item.encode()
        except UnicodeEncodeError:
            yield f"{here}: a text contains a lone surrogate"
    elif not isinstance(item, str | int | float | dict | list | None):
        yield f"{here}: a {type(item).__name__} is not a JSON value"


def _refuse_constant(constant: str) -> Any:
    raise ValueError(constant)
