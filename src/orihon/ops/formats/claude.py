"""Claude Code: session files (`~/.claude/projects/…/*.jsonl`) and the output of `--output-format stream-json`.

Each line is a record; those of type `user` and `assistant` are the conversation. The records of one reply have the same
`message.id` and become one message. A tool result becomes a message of its own. Records of sub-agents, thinking,
progress, hooks, file snapshots and the like are kept and not shown to a model. A summary that Claude Code's own
compaction wrote is a user message, as it was for the agent.
"""

from __future__ import annotations

from typing import Any

from orihon.context.replies import parse_reply
from orihon.errors import OrihonError
from orihon.ops.formats.session_file import (
    LineReader,
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
from orihon.records import Message, Usage

_TYPES = frozenset(("user", "assistant", "system", "summary", "result", "progress", "attachment"))
_SESSION_FIELDS = ("sessionId", "session_id", "leafUuid")


class ClaudeReader(LineReader):
    """Reads a session of Claude Code."""

    def __init__(self) -> None:
        super().__init__()
        self.is_sidechain: bool | None = None  # whether the session itself is that of a sub-agent

    @classmethod
    def matches(cls, file: SessionFile) -> bool:
        records = [value for value in file.opening if isinstance(value, dict)]
        return any(record_type(value) in _TYPES for value in records if any(name in value for name in _SESSION_FIELDS))

    def find_item(self, record: Any) -> Any:
        if record_type(record) not in {"user", "assistant"}:
            return None
        if not isinstance(get_dict(record, "message").get("content"), str | list):
            return None
        is_sidechain = bool(record.get("isSidechain") or record.get("parent_tool_use_id"))
        self.is_sidechain = is_sidechain if self.is_sidechain is None else self.is_sidechain
        return record if is_sidechain == self.is_sidechain else None

    def find_reply(self, item: Any) -> Any:
        if record_type(item) != "assistant":
            return None
        return first_text(item["message"], "id") or object()  # a record without an id is a reply of its own

    def add_to_reply(self, reply: Reply, item: Any) -> None:
        message = item["message"]
        content = message["content"]
        for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            if record_type(block) == "text":
                reply.add_text(block.get("text"))
            elif record_type(block) == "tool_use":
                reply.calls.append(make_call(block.get("id"), block.get("name"), block.get("input")))
        reply.model = first_text(message, "model") or reply.model
        reply.usage = _parse_usage(message) or reply.usage

    def parse_messages(self, record: dict[str, Any], item: Any) -> list[Message]:
        content, time = item["message"]["content"], record.get("timestamp")
        blocks = content if isinstance(content, list) else []
        results = [block for block in blocks if record_type(block) == "tool_result"]
        messages = [
            self.make_result(
                block.get("tool_use_id"), block.get("content"), is_error=bool(block.get("is_error")), time=time
            )
            for block in results
        ]
        text = parse_content(content if isinstance(content, str) else [item for item in blocks if item not in results])
        return [*messages, make_message("user", text, timestamp=parse_time(time))] if text else messages


def _parse_usage(message: dict[str, Any]) -> Usage | None:
    if not isinstance(message.get("usage"), dict):
        return None
    try:
        return parse_reply({"type": "message", "content": [], "usage": message["usage"]}, "anthropic").usage
    except OrihonError:
        return None
