"""Claude Code's session files (`~/.claude/projects/…/*.jsonl`), and what it prints as `stream-json`.

A line is a record; those of type `user` and `assistant` are the conversation. One reply stands in several records with
the same `message.id`, one per block; they are one message again. A result of a tool is a message of its own. The
conversations of sub-agents that stand between, thinking, progress, hooks, snapshots of files and the like are kept and
not shown to a model. What the agent's own compaction wrote is the user's, as it was for the agent.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from orihon.context.replies import reply_of
from orihon.errors import OrihonError
from orihon.ops.formats.origin import At, Said
from orihon.ops.formats.saying import Names, Reply, call_of, content_of, kind_of, saying, text_in, time_of
from orihon.ops.formats.source import SessionFile
from orihon.records import Message, Usage

_KINDS = frozenset(("user", "assistant", "system", "summary", "result", "progress", "attachment"))
_SESSION = ("sessionId", "session_id", "leafUuid")


def fits(file: SessionFile) -> bool:
    """Whether the lines are those of Claude Code."""
    lines = [value for value in file.opening if isinstance(value, dict)]
    kinds = {kind_of(value) for value in lines if any(name in value for name in _SESSION)}
    return bool(kinds & _KINDS)


def sessions(file: SessionFile) -> Iterator[Iterator[Said]]:
    """The one session of the file."""
    yield _Reader().said(file)


class _Reader:
    def __init__(self) -> None:
        self.names = Names()
        self.aside: bool | None = None  # whether the conversation itself is a sub-agent's

    def said(self, file: SessionFile) -> Iterator[Said]:
        reply = Reply()
        for number, record in file.lines():
            at: At = [number]
            message = self._message(record)
            if message is None:
                yield Said([(at, record)])
                continue
            if kind_of(record) == "assistant":
                if reply.origin and not reply.id == message.get("id") != "":
                    yield self._ended(reply)
                    reply = Reply()
                _add(reply, at, record, message)
                continue
            if reply.origin:
                yield self._ended(reply)
                reply = Reply()
            yield Said([(at, record)], self._of_user(record, message.get("content")))
        if reply.origin:
            yield self._ended(reply)

    def _message(self, record: Any) -> dict[str, Any] | None:
        """The message of a record that belongs to the conversation."""
        if not isinstance(record, dict) or kind_of(record) not in {"user", "assistant"}:
            return None
        message = record.get("message")
        if not isinstance(message, dict) or not isinstance(message.get("content"), str | list):
            return None
        aside = bool(record.get("isSidechain") or record.get("parent_tool_use_id"))
        self.aside = aside if self.aside is None else self.aside
        return message if aside == self.aside else None

    def _ended(self, reply: Reply) -> Said:
        reply.calls = self.names.add(reply.calls)
        return reply.said()

    def _of_user(self, record: dict[str, Any], content: Any) -> list[Message]:
        timestamp = time_of(record.get("timestamp"))
        blocks = content if isinstance(content, list) else []
        results = [block for block in blocks if isinstance(block, dict) and kind_of(block) == "tool_result"]
        messages = []
        for block in results:
            call_id = str(block.get("tool_use_id") or "")
            fields = {"tool_call_id": call_id, "tool_name": self.names.of(call_id), "timestamp": timestamp}
            failed = bool(block.get("is_error"))
            messages.append(saying("tool", content_of(block.get("content") or ""), is_error=failed, **fields))
        rest = content if isinstance(content, str) else [block for block in blocks if block not in results]
        words = content_of(rest)
        return [*messages, saying("user", words, timestamp=timestamp)] if words else messages


def _add(reply: Reply, at: At, record: dict[str, Any], message: dict[str, Any]) -> None:
    reply.id = text_in(message, "id")
    reply.add(at, record, timestamp=time_of(record.get("timestamp")))
    content = message["content"]
    for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
        if not isinstance(block, dict):
            continue
        if kind_of(block) == "text":
            reply.text(block.get("text"))
        elif kind_of(block) == "tool_use":
            reply.calls.append(call_of(block.get("id"), block.get("name"), block.get("input")))
    reply.model = text_in(message, "model") or reply.model
    reply.usage = _usage(message) or reply.usage


def _usage(message: dict[str, Any]) -> Usage | None:
    if not isinstance(message.get("usage"), dict):
        return None
    try:
        return reply_of({"type": "message", "content": [], "usage": message["usage"]}, "anthropic").usage
    except OrihonError:
        return None
