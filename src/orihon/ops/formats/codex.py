"""Codex's rollouts (`~/.codex/sessions/…/rollout-*.jsonl`), with and without the envelope around each item.

The items are those of the Responses API. What the model said until the next result or the next words of the user is
one message. Reasoning, token counts, turn contexts, compactions and the events of the screen are kept and not shown to
a model. The log of the terminal, which Codex writes to another place, is not a session: it is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from orihon.errors import UsageError
from orihon.ops.formats.origin import At, Said
from orihon.ops.formats.saying import Names, Reply, call_of, content_of, kind_of, saying, text_in, time_of
from orihon.ops.formats.source import SessionFile
from orihon.records import Message

_ENVELOPES = frozenset(("session_meta", "response_item", "turn_context", "event_msg", "compacted"))
_CALLS = {"function_call": "arguments", "custom_tool_call": "input", "local_shell_call": "action"}
_OUTPUTS = frozenset(("function_call_output", "custom_tool_call_output", "local_shell_call_output"))
_BARE = frozenset(("message", "reasoning", *_CALLS, *_OUTPUTS))
_ROLES = {"user": "user", "developer": "system", "system": "system"}


def fits(file: SessionFile) -> bool:
    """Whether the lines are those of a rollout, or of the log of the terminal."""
    lines = [value for value in file.opening if isinstance(value, dict)]
    wrapped = any(kind_of(value) in _ENVELOPES and "payload" in value for value in lines)
    bare = bool(lines) and "instructions" in lines[0] and any(kind_of(value) in _BARE for value in lines)
    return wrapped or bare or _is_screen(lines)


def _is_screen(lines: list[dict[str, Any]]) -> bool:
    return bool(lines) and {"ts", "dir", "kind"} <= lines[0].keys()


def sessions(file: SessionFile) -> Iterator[Iterator[Said]]:
    """The one session of the file."""
    if _is_screen([value for value in file.opening if isinstance(value, dict)]):
        raise UsageError(
            f"{file.path} is the log of Codex's terminal, which holds what the screen showed and not the conversation.",
            hint="Import the rollout of that session, ~/.codex/sessions/…/rollout-*.jsonl.",
        )
    yield _said(file)


def _said(file: SessionFile) -> Iterator[Said]:
    names, reply = Names(), Reply()
    model: str | None = None
    for number, record in file.lines():
        at: At = [number]
        kind, item = _item(record)
        timestamp = time_of(record.get("timestamp")) if isinstance(record, dict) else ""
        if kind == "turn_context" and isinstance(item.get("model"), str):
            model = item["model"]
        if _is_models(item):
            reply.model = model
            reply.add(at, record, timestamp=timestamp)
            _add(reply, item)
            continue
        message = _other(item, names, timestamp)
        if message is None:
            yield Said([(at, record)])
            continue
        if reply.origin:
            reply.calls = names.add(reply.calls)
            yield reply.said()
            reply = Reply()
            message = _other(item, names, timestamp) or message  # the name of its call is known by now
        yield Said([(at, record)], [message])
    if reply.origin:
        yield reply.said()


def _item(record: Any) -> tuple[str, dict[str, Any]]:
    """What kind of line it is, and the item of the API in it."""
    if not isinstance(record, dict):
        return "", {}
    kind, payload = kind_of(record), record.get("payload")
    if kind in _ENVELOPES and isinstance(payload, dict):
        return kind, payload
    return ("response_item", record) if kind in _BARE else ("", {})


def _is_models(item: dict[str, Any]) -> bool:
    return kind_of(item) in _CALLS or (kind_of(item) == "message" and item.get("role") == "assistant")


def _add(reply: Reply, item: dict[str, Any]) -> None:
    if item["type"] == "message":
        content = content_of(item.get("content") or "")
        for text in [content] if isinstance(content, str) else [part.text for part in content]:
            reply.text(text)
        return
    arguments = item.get(_CALLS[item["type"]])
    if item["type"] == "custom_tool_call":
        arguments = {"input": arguments}  # free text; the arguments of a call are an object
    reply.calls.append(call_of(item.get("call_id") or item.get("id"), item.get("name") or "shell", arguments))


def _other(item: dict[str, Any], names: Names, timestamp: str) -> Message | None:
    """A result, or what somebody else than the model said."""
    if kind_of(item) in _OUTPUTS:
        call_id = str(item.get("call_id") or "")
        output = item.get("output")
        failed = isinstance(output, dict) and output.get("success") is False
        content = content_of(output.get("content") or "" if isinstance(output, dict) else output or "")
        fields = {"tool_call_id": call_id, "tool_name": names.of(call_id), "timestamp": timestamp}
        return saying("tool", content, is_error=failed, **fields)
    if kind_of(item) == "message" and text_in(item, "role") in _ROLES:
        content = content_of(item.get("content") or "")
        return saying(_ROLES[item["role"]], content, timestamp=timestamp) if content else None  # type: ignore[arg-type]
    return None
