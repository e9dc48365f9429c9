"""A model that follows a script: it gives one reply after another, and says when the script and the run differ.

It is called as OpenAI's client is (`client.chat.completions.create(model=…, messages=…, tools=…)`), as a function of
the messages, or as a summariser (`summariser=client.ask`). It is as strict as a provider: a request that OpenAI would
refuse is refused here. A script is a list, or a JSON or YAML file with one. Each reply of it is one of these:

    "Done."                                             a text
    {"content": "…", "tool_calls": [{"name": "read_file", "arguments": {"path": "a.py"}}]}
    {"say": "…", "call": [{"name": "read_file", "arguments": {"path": "a.py"}}]}      the same, shorter
    {"choices": […], "usage": {…}}                      a whole reply of OpenAI's, given as it is
    {"status": 429, "error": "Too many requests."}      a failure of the provider
    an exception, which is raised, or a function of the request that gives one of the others
"""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import Any, Self

from msgspec import Struct

from orihon.errors import ModelError, ScriptError, UsageError
from orihon.settings import yaml as yamlfile
from orihon.testing.wire_rules import violations

FORM = 'Write a text, or {"content": …, "tool_calls": [{"name": …, "arguments": {…}}]}, or a whole reply.'


class Request(Struct, frozen=True, kw_only=True):
    """What the model was asked."""

    model: str = ""
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None = None
    options: dict[str, Any] = {}


class Refused(ModelError):
    """The request breaks a rule of the API; `status` is what HTTP says then."""

    def __init__(self, message: str, *, status: int = 400, param: str = "") -> None:
        self.status, self.param = status, param
        again = status == 429 or status >= 500
        super().__init__(message, hint="Send the request that the API describes.", retryable=again)


class Reply(dict[str, Any]):
    """A reply as JSON that can be read like the SDK's object: `reply.choices[0].message.content`."""

    def __getattr__(self, name: str) -> Any:
        if name not in self:
            raise AttributeError(name)
        return _readable(self[name])


class ScriptedModel:
    """Gives the replies in their order; in a `with` block, leaving it complains of what was not used."""

    def __init__(self, replies: Iterable[Any] | str | Path, *, model: str = "scripted") -> None:
        is_file = isinstance(replies, str | Path)
        given: list[Any] = _read(Path(replies)) if is_file else list(replies)  # type: ignore[arg-type]
        self.replies = [_unabridged(reply) for reply in given]
        self.model = model
        self.requests: list[Request] = []
        self.used = 0
        self.beyond = 0  # requests for which the script had no reply
        self.chat = SimpleNamespace(completions=SimpleNamespace(create=self))
        self._lock = threading.Lock()
        for place, reply in enumerate(self.replies, start=1):
            _check_reply(reply, place)

    def __call__(
        self,
        messages: list[dict[str, Any]],
        *,
        model: str = "",
        tools: list[dict[str, Any]] | None = None,
        **options: Any,
    ) -> Reply:
        """The next reply of the script."""
        request = Request(model=model, messages=copy.deepcopy(messages), tools=copy.deepcopy(tools), options=options)
        with self._lock:
            self.requests.append(request)
            check_request(request)
            place, reply = self._next()
        if callable(reply) and not isinstance(reply, type):
            reply = _unabridged(reply(request))
            _check_reply(reply, place)
        if isinstance(reply, BaseException):
            raise reply
        if isinstance(reply, dict) and "error" in reply:
            raise Refused(str(reply["error"]), status=int(reply.get("status", 500)))
        return completion(reply, place, model or self.model)

    def ask(self, prompt: str) -> str:
        """The next reply as a text: what a summariser gives."""
        return str(self([{"role": "user", "content": prompt}]).choices[0].message.get("content") or "")

    def _next(self) -> tuple[int, Any]:
        if self.used >= len(self.replies):
            self.beyond += 1
            raise ScriptError(
                f"Reply {self.used + self.beyond} was asked for, but the script has {len(self.replies)}.",
                hint="Add a reply, or find out why the loop went on.",
            )
        self.used += 1
        return self.used, self.replies[self.used - 1]

    def close(self) -> None:
        """Complain of replies that were not used, and of requests that got none."""
        if self.beyond:
            count = f"{self.beyond} {'request' if self.beyond == 1 else 'requests'}"
            raise ScriptError(f"{count} came after the end of the script.")
        unused = self.replies[self.used :]
        if unused:
            first = str(unused[0])[:80]
            sentence = f"{len(unused)} of {len(self.replies)} replies were not used; the first of them is {first!a}."
            raise ScriptError(sentence, hint="Take them out, or find out why the loop ended early.")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is None:  # else the first error matters
            self.close()


def check_request(request: Request) -> None:
    """Refuse what OpenAI would refuse; Refused says where."""
    broken = violations("openai", request.messages, model=request.model)
    if broken:
        raise Refused("; ".join(broken), param="messages")
    if request.tools is not None and not request.tools:
        raise Refused("tools: leave them out, or give at least one", param="tools")
    for place, tool in enumerate(request.tools or ()):
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict) or not function.get("name") or tool.get("type") != "function":
            raise Refused(f"tools[{place}]: must be a function with a name", param="tools")
    if request.options.get("stream"):
        raise Refused("stream: only the server streams", param="stream")


def completion(reply: Any, place: int, model: str) -> Reply:
    """A reply of the script as OpenAI gives it."""
    if isinstance(reply, str):
        reply = {"content": reply}
    if "choices" in reply:
        return Reply({"id": f"chatcmpl-{place}", "object": "chat.completion", "created": 0, "model": model} | reply)
    calls = [
        _call(call, f"call_{place}_{number}") for number, call in enumerate(reply.get("tool_calls") or (), start=1)
    ]
    more = {name: value for name, value in reply.items() if name not in {"content", "tool_calls", "usage"}}
    message = {"role": "assistant", "content": reply.get("content")} | more | ({"tool_calls": calls} if calls else {})
    whole = {"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}]}
    return completion(whole | ({"usage": reply["usage"]} if "usage" in reply else {}), place, model)


def _call(call: dict[str, Any], id: str) -> dict[str, Any]:
    function = call.get("function", call)
    arguments = function.get("arguments", {})
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return {
        "id": call.get("id") or id,
        "type": "function",
        "function": {"name": function["name"], "arguments": text},
    }


def _unabridged(reply: Any) -> Any:
    """`say` and `call` under the names of the API."""
    if not isinstance(reply, dict) or reply.keys().isdisjoint({"say", "call"}):
        return reply
    names = {"say": "content", "call": "tool_calls"}
    full = {names.get(name, name): value for name, value in reply.items()}
    if isinstance(full.get("tool_calls"), dict):  # a single one
        full["tool_calls"] = [full["tool_calls"]]
    return full


def _check_reply(reply: Any, place: int) -> None:
    if isinstance(reply, str | BaseException) or (callable(reply) and not isinstance(reply, type)):
        return
    known = {"content", "tool_calls", "choices", "error"}
    if not isinstance(reply, dict) or known.isdisjoint(reply):
        raise UsageError(f"Reply {place} of the script is none: {str(reply)[:80]!a}.", hint=FORM)
    for call in reply.get("tool_calls") or ():
        function = call.get("function", call) if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise UsageError(f"A call in reply {place} of the script has no name.", hint=FORM)


def _read(path: Path) -> list[Any]:
    """The script in a file."""
    try:
        text = path.read_text(encoding="utf-8")
        value = json.loads(text) if path.suffix == ".json" else _plain(yamlfile.parse(text))
    except (OSError, ValueError, yamlfile.YamlError) as error:
        raise UsageError(f"The script {path} cannot be read: {error}.", hint="Give a JSON or YAML file.") from error
    if not isinstance(value, list):
        raise UsageError(f"The script {path} is not a list of replies.", hint=FORM)
    return value


def _plain(value: object) -> Any:
    """Mappings as dicts."""
    if isinstance(value, tuple):
        return {entry.key: _plain(entry.value) for entry in value}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _readable(value: Any) -> Any:
    if isinstance(value, list):
        return [_readable(item) for item in value]
    return Reply(value) if isinstance(value, dict) else value
