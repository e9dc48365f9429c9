"""The blobs that records name: iterating over them, replacing them, and loading them into a message."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from orihon.records import Blob, Call, Event, Message, Part, Record
from orihon.stores.base import Store


def iter_blobs(record: Record) -> Iterator[Blob]:
    """Yield the blobs of a message, its parts and its calls, or those in the data of an event."""
    if isinstance(record, Message):
        parts = record.content if isinstance(record.content, list) else []
        blobs = [record.blob, *(part.blob for part in parts), *(call.blob for call in record.tool_calls)]
        yield from (blob for blob in blobs if blob is not None)
    elif isinstance(record, Event):
        yield from _iter_inside(record.data)


def _iter_inside(value: Any) -> Iterator[Blob]:
    if isinstance(value, list):
        for item in value:
            yield from _iter_inside(item)
    elif isinstance(value, dict):
        if not _is_blob(value):
            yield from _iter_inside(list(value.values()))
            return
        try:
            yield msgspec.convert({name: value[name] for name in ("sha256", "size_bytes")}, Blob)
        except msgspec.ValidationError:
            return  # it only looks like a blob


def replace_blobs(value: Any, blobs: Mapping[str, Blob]) -> Any:
    """Return the data of an event with each blob replaced by the one that `blobs` has for its checksum."""
    if isinstance(value, list):
        return [replace_blobs(item, blobs) for item in value]
    if not isinstance(value, dict):
        return value
    blob = blobs.get(str(value["sha256"])) if _is_blob(value) else None
    if blob is not None:
        return value | {"sha256": blob.sha256, "size_bytes": blob.size_bytes}
    return {name: replace_blobs(item, blobs) for name, item in value.items()}


def _is_blob(value: dict[str, Any]) -> bool:
    return {"sha256", "size_bytes"} <= value.keys()


def load_blobs(store: Store, uuid: str, message: Message) -> Message:
    """Return the message with its blobs loaded: long texts, pictures and long arguments."""

    def load_text(blob: Blob) -> str:
        return store.blob(uuid, blob.sha256).decode("utf-8", "replace")

    def load_part(part: Part) -> Part:
        if part.blob is None:
            return part
        if part.text is not None:
            return msgspec.structs.replace(part, text=load_text(part.blob), blob=None)
        data = base64.b64encode(store.blob(uuid, part.blob.sha256)).decode()
        return msgspec.structs.replace(part, data=data, blob=None)

    def load_call(call: Call) -> Call:
        return msgspec.structs.replace(call, arguments=load_text(call.blob), blob=None) if call.blob else call

    changes: dict[str, Any] = {}
    if message.blob is not None:
        changes = {"content": load_text(message.blob), "blob": None}
    elif isinstance(message.content, list) and any(part.blob for part in message.content):
        changes["content"] = [load_part(part) for part in message.content]
    if any(call.blob for call in message.tool_calls):
        changes["tool_calls"] = [load_call(call) for call in message.tool_calls]
    return msgspec.structs.replace(message, **changes) if changes else message
