"""OpenAI's messages: one on each line, a conversation on each line (`{"messages": […]}`), or one JSON document.

This is also how a task is written for whatever speaks that language: one message on each line.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from orihon.context.wire import openai
from orihon.context.wire.pieces import Load
from orihon.ops.formats.origin import At, Said
from orihon.ops.formats.saying import Names, call_of, content_of, saying, text_in, time_of
from orihon.ops.formats.source import SessionFile
from orihon.records import Call, Message
from orihon.terminal import json_line

_ROLES = {role: role for role in ("system", "user", "assistant", "tool")} | {"developer": "system", "function": "tool"}


def fits(file: SessionFile) -> bool:
    """Whether it is messages, or conversations of messages."""
    value = file.document if file.is_document else None
    values = value if isinstance(value, list) else [value] if value is not None else file.opening
    return bool(values) and all(_is_message(item) or _conversation(item) is not None for item in values[:2])


def sessions(file: SessionFile) -> Iterator[Iterator[Said]]:
    """Each conversation of the file."""
    if file.is_document and isinstance(file.document, list):
        yield chat_said([([place], item) for place, item in enumerate(file.document)])
    elif file.is_document and not _is_message(file.document):
        yield conversation_said([], file.document, "messages")
    elif file.opening and _is_message(file.opening[0]):
        yield chat_said((([number], record) for number, record in file.lines()))
    else:
        for number, record in file.lines():
            if _conversation(record) is not None:
                yield conversation_said([number], record, "messages")


def conversation_said(at: At, record: Any, name: str) -> Iterator[Said]:
    """What stands around the messages of a conversation, then these; nothing when it is none."""
    if not isinstance(record, dict) or not isinstance(record.get(name), list):
        return
    yield Said([(at, record | {name: []})])
    yield from chat_said([([*at, name, place], item) for place, item in enumerate(record[name])])


def chat_said(records: Any) -> Iterator[Said]:
    """Messages one by one; what is none is only kept."""
    names = Names()
    for at, record in records:
        message = chat_message(record, names)
        yield Said([(at, record)], [] if message is None else [message])


def chat_message(record: Any, names: Names) -> Message | None:
    """One message of OpenAI's, or of an agent that writes them so."""
    if not _is_message(record):
        return None
    given = record.get("tool_calls")
    calls = [call for item in (given if isinstance(given, list) else ()) if (call := _call(item)) is not None]
    if isinstance(legacy := record.get("function_call"), dict):
        calls.append(call_of("", legacy.get("name"), legacy.get("arguments")))
    role = _ROLES[record["role"]]
    fields: dict[str, Any] = {"timestamp": time_of(record.get("timestamp"))}
    if role == "assistant":
        fields |= {"tool_calls": names.add(calls), "model": text_in(record, "model") or None}
    elif role == "tool":
        ids = record.get("tool_call_ids")
        call_id = text_in(record, "tool_call_id") or (str(ids[0]) if isinstance(ids, list) and ids else "")
        name = text_in(record, "name", "tool_name")
        call_id = call_id or names.newest(name)
        fields |= {"tool_call_id": call_id or None, "tool_name": names.of(call_id) or name or None}
        fields |= {"is_error": bool(record.get("is_error"))}
    return saying(role, content_of(record.get("content") or ""), **fields)  # type: ignore[arg-type]


def openai_lines(messages: Iterator[Message], load: Load) -> Iterator[str]:
    """Messages as lines; the pictures of results follow in a message of the user's, where OpenAI takes them."""
    for _, run in groupby(messages, key=lambda message: message.role == "tool" or message.seq):
        yield from (json_line(rendered) for rendered in openai(list(run), load=load))


def _call(item: Any) -> Call | None:
    if not isinstance(item, dict):
        return None
    inner = item["function"] if isinstance(item.get("function"), dict) else item
    return call_of(item.get("id"), inner.get("name"), inner.get("arguments", item.get("input")))


def _is_message(record: Any) -> bool:
    return text_in(record, "role") in _ROLES and ("content" in record or "tool_calls" in record)


def _conversation(record: Any) -> list[Any] | None:
    messages = record.get("messages") if isinstance(record, dict) else None
    return messages if isinstance(messages, list) and messages and _is_message(messages[0]) else None
