"""OpenAI messages: one on each line, one conversation on each line (`{"messages": […]}`), or one JSON document."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from orihon.ops.formats._common import (
    CallNames,
    Parsed,
    RecordPath,
    first_text,
    make_call,
    make_message,
    parse_content,
    parse_time,
)
from orihon.ops.formats.session_file import SessionFile
from orihon.records import Call, Message

_ROLES = {role: role for role in ("system", "user", "assistant", "tool")} | {"developer": "system", "function": "tool"}


def matches(file: SessionFile) -> bool:
    """Return whether the file holds messages, or conversations of messages."""
    value = file.document if file.is_document else None
    values = value if isinstance(value, list) else [value] if value is not None else file.opening
    return bool(values) and all(_is_message(item) or _is_conversation(item) for item in values[:2])


def parse(file: SessionFile) -> Iterator[Iterator[Parsed]]:
    """Yield each conversation of the file."""
    if file.is_document and isinstance(file.document, list):
        yield parse_messages([([index], item) for index, item in enumerate(file.document)])
    elif file.is_document and not _is_message(file.document):
        yield parse_conversation([], file.document, "messages")
    elif file.opening and _is_message(file.opening[0]):
        yield parse_messages((([number], record) for number, record in file.lines()))
    else:
        for number, record in file.lines():
            if _is_conversation(record):
                yield parse_conversation([number], record, "messages")


def parse_conversation(path: RecordPath, record: Any, name: str) -> Iterator[Parsed]:
    """Yield the record without its messages, then each message; nothing if it has none."""
    if not isinstance(record, dict) or not isinstance(record.get(name), list):
        return
    yield Parsed([(path, record | {name: []})])
    yield from parse_messages([([*path, name, index], item) for index, item in enumerate(record[name])])


def parse_messages(records: Iterable[tuple[RecordPath, Any]]) -> Iterator[Parsed]:
    """Yield each record with its message. A record that is not a message is only kept."""
    names = CallNames()
    for path, record in records:
        yield Parsed([(path, record)], [_parse_message(record, names)] if _is_message(record) else [])


def _parse_message(record: dict[str, Any], names: CallNames) -> Message:
    role = _ROLES[record["role"]]
    fields: dict[str, Any] = {"timestamp": parse_time(record.get("timestamp"))}
    if role == "assistant":
        fields |= {"tool_calls": names.add(_parse_calls(record)), "model": first_text(record, "model") or None}
    elif role == "tool":
        ids = record.get("tool_call_ids")
        name = first_text(record, "name", "tool_name")
        call_id = first_text(record, "tool_call_id") or (str(ids[0]) if isinstance(ids, list) and ids else "")
        call_id = call_id or names.newest_id(name)
        fields |= {"tool_call_id": call_id or None, "tool_name": names.tool_name(call_id) or name or None}
        fields |= {"is_error": bool(record.get("is_error"))}
    return make_message(role, parse_content(record.get("content") or ""), **fields)  # type: ignore[arg-type]


def _parse_calls(record: dict[str, Any]) -> list[Call]:
    items = record["tool_calls"] if isinstance(record.get("tool_calls"), list) else []
    calls = []
    for item in items:
        if isinstance(item, dict):
            function = item["function"] if isinstance(item.get("function"), dict) else item
            arguments = function.get("arguments", item.get("input"))
            calls.append(make_call(item.get("id"), function.get("name"), arguments))
    if isinstance(legacy := record.get("function_call"), dict):
        calls.append(make_call("", legacy.get("name"), legacy.get("arguments")))
    return calls


def _is_message(record: Any) -> bool:
    return first_text(record, "role") in _ROLES and ("content" in record or "tool_calls" in record)


def _is_conversation(record: Any) -> bool:
    messages = record.get("messages") if isinstance(record, dict) else None
    return isinstance(messages, list) and bool(messages) and _is_message(messages[0])
