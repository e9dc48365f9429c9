"""Codex: rollouts (`~/.codex/sessions/…/rollout-*.jsonl`), with and without the envelope around each item.

The items are those of the Responses API. The output of the model up to the next result or user message becomes one
message. Reasoning, token counts, turn contexts, compactions and screen events are kept and not shown to a model. The
terminal log of Codex is not a session and is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from orihon.errors import UsageError
from orihon.ops.formats._common import (
    CallNames,
    Parsed,
    RecordPath,
    ReplyBuilder,
    first_text,
    make_call,
    make_message,
    parse_content,
    parse_time,
    record_type,
)
from orihon.ops.formats.session_file import SessionFile
from orihon.records import Message

_ENVELOPES = frozenset(("session_meta", "response_item", "turn_context", "event_msg", "compacted"))
_CALLS = {"function_call": "arguments", "custom_tool_call": "input", "local_shell_call": "action"}
_OUTPUTS = frozenset(("function_call_output", "custom_tool_call_output", "local_shell_call_output"))
_ITEMS = frozenset(("message", "reasoning", *_CALLS, *_OUTPUTS))
_ROLES = {"user": "user", "developer": "system", "system": "system"}


def matches(file: SessionFile) -> bool:
    """Return whether the lines are those of a rollout or of the terminal log."""
    records = [value for value in file.opening if isinstance(value, dict)]
    has_envelopes = any(record_type(value) in _ENVELOPES and "payload" in value for value in records)
    has_items = bool(records) and "instructions" in records[0] and any(record_type(item) in _ITEMS for item in records)
    return has_envelopes or has_items or _is_terminal_log(file)


def _is_terminal_log(file: SessionFile) -> bool:
    first = next((value for value in file.opening if isinstance(value, dict)), {})
    return {"ts", "dir", "kind"} <= first.keys()


def parse(file: SessionFile) -> Iterator[Iterator[Parsed]]:
    """Yield the one session of the file."""
    if _is_terminal_log(file):
        raise UsageError(
            f"{file.path} is the terminal log of Codex, which holds the screen and not the conversation.",
            hint="Import the rollout of that session, ~/.codex/sessions/…/rollout-*.jsonl.",
        )
    yield _parse_records(file)


def _parse_records(file: SessionFile) -> Iterator[Parsed]:
    names, reply = CallNames(), ReplyBuilder()
    model: str | None = None
    for number, record in file.lines():
        path: RecordPath = [number]
        envelope, item = _unwrap(record)
        timestamp = parse_time(record.get("timestamp")) if isinstance(record, dict) else ""
        if envelope == "turn_context" and isinstance(item.get("model"), str):
            model = item["model"]
        if record_type(item) in _CALLS or (record_type(item) == "message" and item.get("role") == "assistant"):
            reply.model = model
            reply.add_record(path, record, timestamp=timestamp)
            _add_to_reply(reply, item)
        elif not _is_message(item):
            yield Parsed([(path, record)])
        else:
            if reply.records:
                yield reply.build(names)
                reply = ReplyBuilder()
            yield Parsed([(path, record)], [_parse_message(item, names, timestamp)])
    if reply.records:
        yield reply.build(names)


def _unwrap(record: Any) -> tuple[str, dict[str, Any]]:
    """Return the type of the envelope and the item in it."""
    if not isinstance(record, dict):
        return "", {}
    envelope, payload = record_type(record), record.get("payload")
    if envelope in _ENVELOPES and isinstance(payload, dict):
        return envelope, payload
    return ("response_item", record) if envelope in _ITEMS else ("", {})


def _add_to_reply(reply: ReplyBuilder, item: dict[str, Any]) -> None:
    if item["type"] == "message":
        content = parse_content(item.get("content") or "")
        for text in [content] if isinstance(content, str) else [part.text for part in content]:
            reply.add_text(text)
        return
    arguments = item.get(_CALLS[item["type"]])
    if item["type"] == "custom_tool_call":
        arguments = {"input": arguments}  # free text, while the arguments of a call are an object
    reply.calls.append(make_call(item.get("call_id") or item.get("id"), item.get("name") or "shell", arguments))


def _is_message(item: dict[str, Any]) -> bool:
    """Return whether the item is a result, or a message that is not the model's and not empty."""
    is_text = record_type(item) == "message" and first_text(item, "role") in _ROLES
    return record_type(item) in _OUTPUTS or (is_text and bool(parse_content(item.get("content") or "")))


def _parse_message(item: dict[str, Any], names: CallNames, timestamp: str) -> Message:
    if record_type(item) not in _OUTPUTS:
        role, content = _ROLES[item["role"]], parse_content(item.get("content") or "")
        return make_message(role, content, timestamp=timestamp)  # type: ignore[arg-type]
    call_id, output = str(item.get("call_id") or ""), item.get("output")
    failed = isinstance(output, dict) and output.get("success") is False
    content = parse_content((output.get("content") if isinstance(output, dict) else output) or "")
    fields = {"tool_call_id": call_id, "tool_name": names.tool_name(call_id), "timestamp": timestamp}
    return make_message("tool", content, is_error=failed, **fields)
