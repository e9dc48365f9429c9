"""Codex: rollouts (`~/.codex/sessions/…/rollout-*.jsonl`), with and without the envelope around each item.

The items are those of the Responses API. The output of the model up to the next result or user message becomes one
message. Reasoning, token counts, turn contexts, compactions and screen events are kept and not shown to a model. The
terminal log of Codex is not a session and is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from orihon.errors import UsageError
from orihon.ops.formats.session_file import (
    LineReader,
    Parsed,
    Reply,
    SessionFile,
    first_text,
    get_dict,
    make_call,
    make_message,
    parse_content,
    parse_time,
    record_type,
)
from orihon.records import Message

_ENVELOPES = frozenset(("session_meta", "response_item", "turn_context", "event_msg", "compacted"))
_CALLS = {"function_call": "arguments", "custom_tool_call": "input", "local_shell_call": "action"}
_OUTPUTS = frozenset(("function_call_output", "custom_tool_call_output", "local_shell_call_output"))
_ITEMS = frozenset(("message", "reasoning", *_CALLS, *_OUTPUTS))
_ROLES = {"user": "user", "developer": "system", "system": "system"}


class CodexReader(LineReader):
    """Reads a rollout of Codex."""

    def __init__(self) -> None:
        super().__init__()
        self.model: str | None = None

    @classmethod
    def matches(cls, file: SessionFile) -> bool:
        records = [value for value in file.opening if isinstance(value, dict)]
        has_envelopes = any(record_type(value) in _ENVELOPES and "payload" in value for value in records)
        has_items = "instructions" in next(iter(records), {}) and any(record_type(item) in _ITEMS for item in records)
        return has_envelopes or has_items or _is_terminal_log(file)

    @classmethod
    def sessions(cls, file: SessionFile) -> Iterator[Iterator[Parsed]]:
        if _is_terminal_log(file):
            raise UsageError(
                f"{file.path} is the terminal log of Codex, which holds the screen and not the conversation.",
                hint="Import the rollout of that session, ~/.codex/sessions/…/rollout-*.jsonl.",
            )
        yield from super().sessions(file)

    def find_item(self, record: Any) -> Any:
        """Return the item inside the envelope."""
        kind = record_type(record)
        item = get_dict(record, "payload") if kind in _ENVELOPES else record if kind in _ITEMS else {}
        if kind == "turn_context":
            self.model = first_text(item, "model") or self.model
        if record_type(item) in _CALLS or record_type(item) in _OUTPUTS:
            return item
        is_reply = item.get("role") == "assistant"
        is_text = first_text(item, "role") in _ROLES and parse_content(item.get("content") or "")
        return item if record_type(item) == "message" and (is_reply or is_text) else None

    def find_reply(self, item: Any) -> Any:
        return "reply" if item["type"] in _CALLS or item.get("role") == "assistant" else None

    def add_to_reply(self, reply: Reply, item: Any) -> None:
        reply.model = self.model
        if item["type"] == "message":
            content = parse_content(item.get("content") or "")
            for text in [content] if isinstance(content, str) else [part.text for part in content]:
                reply.add_text(text)
            return
        arguments = item.get(_CALLS[item["type"]])
        if item["type"] == "custom_tool_call":
            arguments = {"input": arguments}  # free text, while the arguments of a call are an object
        reply.calls.append(make_call(item.get("call_id") or item.get("id"), item.get("name") or "shell", arguments))

    def parse_messages(self, record: dict[str, Any], item: Any) -> list[Message]:
        time = record.get("timestamp")
        if item["type"] == "message":
            role, content = _ROLES[item["role"]], parse_content(item["content"])
            return [make_message(role, content, timestamp=parse_time(time))]  # type: ignore[arg-type]
        output = item.get("output")
        failed = isinstance(output, dict) and output.get("success") is False
        result = output.get("content") if isinstance(output, dict) else output
        return [self.make_result(item.get("call_id"), result, is_error=failed, time=time)]


def _is_terminal_log(file: SessionFile) -> bool:
    first = next((value for value in file.opening if isinstance(value, dict)), {})
    return {"ts", "dir", "kind"} <= first.keys()
