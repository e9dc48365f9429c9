"""Files whose records are messages in OpenAI's form: OpenAI itself, SWE-agent and mini-swe-agent.

OpenAI: one message on each line, one conversation on each line (`{"messages": […]}`), or one JSON document.

SWE-agent (`*.traj`): `{"trajectory": [step…], "history": [message…], "info": …}`. The history is the conversation; the
steps repeat it with times and states and are kept. Without a history, replies and observations are taken from the
steps.

mini-swe-agent (`*.traj.json`): `{"info": …, "messages": […], "trajectory_format": …}`. Commands stay in the text of the
assistant and their output in that of the user, as the model saw them. The tool calls of newer versions become calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from orihon.ops.formats.session_file import (
    Parsed,
    RecordPath,
    SessionFile,
    SessionReader,
    first_text,
    get_dict,
    make_call,
    make_message,
    parse_content,
    parse_time,
)
from orihon.records import Call, Message

_ROLES = {role: role for role in ("system", "user", "assistant", "tool")} | {"developer": "system", "function": "tool"}


class OpenaiReader(SessionReader):
    """Reads messages of OpenAI."""

    @classmethod
    def matches(cls, file: SessionFile) -> bool:
        value = file.document
        values = value if isinstance(value, list) else [value] if file.is_document else file.opening
        return bool(values) and all(_is_message(item) or _is_conversation(item) for item in values[:2])

    @classmethod
    def sessions(cls, file: SessionFile) -> Iterator[Iterator[Parsed]]:
        if file.is_document and not isinstance(file.document, list) and not _is_message(file.document):
            yield cls().read_conversation([], file.document)
        elif file.is_document or (file.opening and _is_message(file.opening[0])):
            yield cls().read(file)
        else:
            for number, record in file.lines():
                if _is_conversation(record):
                    yield cls().read_conversation([number], record)

    def read(self, file: SessionFile) -> Iterator[Parsed]:
        """Yield the messages of a document, or of the lines."""
        if isinstance(file.document, list):
            return self.read_messages([([index], item) for index, item in enumerate(file.document)])
        return self.read_messages(([number], record) for number, record in file.lines())

    def read_conversation(self, path: RecordPath, record: Any) -> Iterator[Parsed]:
        """Yield the record without its messages, then each message; nothing if it has none."""
        messages = record.get("messages") if isinstance(record, dict) else None
        if isinstance(messages, list):
            yield Parsed([(path, record | {"messages": []})])
            yield from self.read_messages([([*path, "messages", index], item) for index, item in enumerate(messages)])

    def read_messages(self, records: Iterable[tuple[RecordPath, Any]]) -> Iterator[Parsed]:
        """Yield each record with its message. A record that is not a message is only kept."""
        for path, record in records:
            yield Parsed([(path, record)], [self._parse_message(record)] if _is_message(record) else [])

    def _parse_message(self, record: dict[str, Any]) -> Message:
        role, content, time = _ROLES[record["role"]], record.get("content") or "", record.get("timestamp")
        if role == "tool":
            ids, tool = record.get("tool_call_ids"), first_text(record, "name", "tool_name")
            call_id = first_text(record, "tool_call_id") or (str(ids[0]) if isinstance(ids, list) and ids else "")
            call_id = call_id or self.newest_call(tool)
            return self.make_result(call_id, content, tool=tool, is_error=bool(record.get("is_error")), time=time)
        fields: dict[str, Any] = {"timestamp": parse_time(time)}
        if role == "assistant":
            fields |= {"tool_calls": self.add_calls(_parse_calls(record)), "model": first_text(record, "model") or None}
        return make_message(role, parse_content(content), **fields)  # type: ignore[arg-type]


class MiniSweAgentReader(OpenaiReader):
    """Reads a trajectory of mini-swe-agent."""

    @classmethod
    def matches(cls, file: SessionFile) -> bool:
        value, info = file.document, get_dict(file.document, "info")
        if not isinstance(value, dict) or not isinstance(value.get("messages"), list):
            return False
        is_named = str(value.get("trajectory_format", "")).startswith("mini-swe-agent")
        return is_named or "mini_version" in info or "exit_status" in info

    @classmethod
    def sessions(cls, file: SessionFile) -> Iterator[Iterator[Parsed]]:
        yield cls().read_conversation([], file.document)


class SweAgentReader(OpenaiReader):
    """Reads a trajectory of SWE-agent."""

    @classmethod
    def matches(cls, file: SessionFile) -> bool:
        value = file.document
        has_steps = isinstance(value, dict) and isinstance(value.get("trajectory"), list)
        return has_steps and ("info" in value or "history" in value)

    @classmethod
    def sessions(cls, file: SessionFile) -> Iterator[Iterator[Parsed]]:
        yield cls().read(file)

    def read(self, file: SessionFile) -> Iterator[Parsed]:
        document = file.document
        if not isinstance(document, dict) or not document:
            return
        lists = {name: document[name] for name in ("history", "trajectory") if isinstance(document.get(name), list)}
        yield Parsed([([], document | {name: [] for name in lists})])
        yield from self.read_messages(
            [(["history", index], item) for index, item in enumerate(lists.get("history", []))]
        )
        for index, step in enumerate(lists.get("trajectory", [])):
            messages = [] if lists.get("history") else _parse_step(step)
            yield Parsed([(["trajectory", index], step)], messages)


def _parse_step(step: Any) -> list[Message]:
    reply, observation = first_text(step, "response", "thought", "action"), first_text(step, "observation")
    messages = [make_message("assistant", reply)] if reply else []
    return [*messages, make_message("user", observation)] if observation else messages


def _parse_calls(record: dict[str, Any]) -> list[Call]:
    items = record["tool_calls"] if isinstance(record.get("tool_calls"), list) else []
    calls = []
    for item in items:
        if isinstance(item, dict):
            function = get_dict(item, "function") or item
            arguments = function.get("arguments", item.get("input"))
            calls.append(make_call(item.get("id"), function.get("name"), arguments))
    if legacy := get_dict(record, "function_call"):
        calls.append(make_call("", legacy.get("name"), legacy.get("arguments")))
    return calls


def _is_message(record: Any) -> bool:
    return first_text(record, "role") in _ROLES and ("content" in record or "tool_calls" in record)


def _is_conversation(record: Any) -> bool:
    messages = record.get("messages") if isinstance(record, dict) else None
    return isinstance(messages, list) and bool(messages) and _is_message(messages[0])
