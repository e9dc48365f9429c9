"""Claude Code: session files (`~/.claude/projects/…/*.jsonl`) and the output of `--output-format stream-json`.

Each line is a record; those of type `user` and `assistant` are the conversation. The records of one reply have the same
`message.id` and become one message. A tool result becomes a message of its own. Records of sub-agents, thinking,
progress, hooks, file snapshots and the like are kept and not shown to a model. A summary that Claude Code's own
compaction wrote is a user message, as it was for the agent.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from orihon.context.replies import reply_of
from orihon.errors import OrihonError
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
from orihon.records import Message, Usage

_TYPES = frozenset(("user", "assistant", "system", "summary", "result", "progress", "attachment"))
_SESSION_FIELDS = ("sessionId", "session_id", "leafUuid")


def matches(file: SessionFile) -> bool:
    """Return whether the lines are those of Claude Code."""
    records = [value for value in file.opening if isinstance(value, dict)]
    types = {record_type(value) for value in records if any(name in value for name in _SESSION_FIELDS)}
    return bool(types & _TYPES)


def parse(file: SessionFile) -> Iterator[Iterator[Parsed]]:
    """Yield the one session of the file."""
    yield _Parser().parse(file)


class _Parser:
    def __init__(self) -> None:
        self.names = CallNames()
        self.is_sidechain: bool | None = None  # whether the session itself is that of a sub-agent

    def parse(self, file: SessionFile) -> Iterator[Parsed]:
        reply = ReplyBuilder()
        for number, record in file.lines():
            path: RecordPath = [number]
            message = self._find_message(record)
            if message is None:
                yield Parsed([(path, record)])
                continue
            is_reply = record_type(record) == "assistant"
            if reply.records and (not is_reply or not reply.id == message.get("id") != ""):
                yield reply.build(self.names)
                reply = ReplyBuilder()
            if is_reply:
                _add_to_reply(reply, path, record, message)
            else:
                yield Parsed([(path, record)], self._parse_user(record, message.get("content")))
        if reply.records:
            yield reply.build(self.names)

    def _find_message(self, record: Any) -> dict[str, Any] | None:
        """Return the message of a record that belongs to the conversation."""
        if not isinstance(record, dict) or record_type(record) not in {"user", "assistant"}:
            return None
        message = record.get("message")
        if not isinstance(message, dict) or not isinstance(message.get("content"), str | list):
            return None
        is_sidechain = bool(record.get("isSidechain") or record.get("parent_tool_use_id"))
        self.is_sidechain = is_sidechain if self.is_sidechain is None else self.is_sidechain
        return message if is_sidechain == self.is_sidechain else None

    def _parse_user(self, record: dict[str, Any], content: Any) -> list[Message]:
        timestamp = parse_time(record.get("timestamp"))
        blocks = content if isinstance(content, list) else []
        results = [block for block in blocks if isinstance(block, dict) and record_type(block) == "tool_result"]
        messages = []
        for block in results:
            call_id = str(block.get("tool_use_id") or "")
            fields = {"tool_call_id": call_id, "tool_name": self.names.tool_name(call_id), "timestamp": timestamp}
            result = parse_content(block.get("content") or "")
            messages.append(make_message("tool", result, is_error=bool(block.get("is_error")), **fields))
        text = parse_content(content if isinstance(content, str) else [item for item in blocks if item not in results])
        return [*messages, make_message("user", text, timestamp=timestamp)] if text else messages


def _add_to_reply(reply: ReplyBuilder, path: RecordPath, record: dict[str, Any], message: dict[str, Any]) -> None:
    reply.id = first_text(message, "id")
    reply.add_record(path, record, timestamp=parse_time(record.get("timestamp")))
    content = message["content"]
    for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
        if record_type(block) == "text":
            reply.add_text(block.get("text"))
        elif record_type(block) == "tool_use":
            reply.calls.append(make_call(block.get("id"), block.get("name"), block.get("input")))
    reply.model = first_text(message, "model") or reply.model
    reply.usage = _parse_usage(message) or reply.usage


def _parse_usage(message: dict[str, Any]) -> Usage | None:
    if not isinstance(message.get("usage"), dict):
        return None
    try:
        return reply_of({"type": "message", "content": [], "usage": message["usage"]}, "anthropic").usage
    except OrihonError:
        return None
