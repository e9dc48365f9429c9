"""Which blobs a record names, how an event names others, and a message with all of them in it."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from orihon.records import Blob, Event, Message, Part, Record
from orihon.stores.base import Store


def named(record: Record) -> Iterator[Blob]:
    """The blobs of a message and of its parts and calls, and those in the data of an event."""
    if isinstance(record, Message):
        parts = record.content if isinstance(record.content, list) else []
        blobs = [record.blob, *(part.blob for part in parts), *(call.blob for call in record.tool_calls)]
        yield from (blob for blob in blobs if blob is not None)
    elif isinstance(record, Event):
        yield from _inside(record.data)


def _inside(value: Any) -> Iterator[Blob]:
    if isinstance(value, dict):
        if {"sha256", "size_bytes"} <= value.keys():
            try:
                yield msgspec.convert({name: value[name] for name in ("sha256", "size_bytes")}, Blob)
            except msgspec.ValidationError:
                return  # something else that only looks like it
        else:
            for item in value.values():
                yield from _inside(item)
    elif isinstance(value, list):
        for item in value:
            yield from _inside(item)


def renamed(value: Any, blobs: Mapping[str, Blob]) -> Any:
    """The data of an event with other blobs in the place of those that it names."""
    if isinstance(value, list):
        return [renamed(item, blobs) for item in value]
    if not isinstance(value, dict):
        return value
    blob = blobs.get(str(value["sha256"])) if {"sha256", "size_bytes"} <= value.keys() else None
    if blob is not None:
        return value | {"sha256": blob.sha256, "size_bytes": blob.size_bytes}
    return {name: renamed(item, blobs) for name, item in value.items()}


def whole(store: Store, uuid: str, message: Message) -> Message:
    """A message with all that lives in blobs put back into it: long texts, pictures, long arguments."""
    changes: dict[str, Any] = {}
    if message.blob is not None:
        changes = {"content": _text(store, uuid, message.blob), "blob": None}
    elif isinstance(message.content, list) and any(part.blob for part in message.content):
        changes["content"] = [_whole_part(store, uuid, part) for part in message.content]
    if any(call.blob for call in message.tool_calls):
        changes["tool_calls"] = [
            call
            if call.blob is None
            else msgspec.structs.replace(call, arguments=_text(store, uuid, call.blob), blob=None)
            for call in message.tool_calls
        ]
    return msgspec.structs.replace(message, **changes) if changes else message


def _whole_part(store: Store, uuid: str, part: Part) -> Part:
    if part.blob is None:
        return part
    if part.text is not None:
        return msgspec.structs.replace(part, text=_text(store, uuid, part.blob), blob=None)
    data = base64.b64encode(store.blob(uuid, part.blob.sha256)).decode()
    return msgspec.structs.replace(part, data=data, blob=None)


def _text(store: Store, uuid: str, blob: Blob) -> str:
    return store.blob(uuid, blob.sha256).decode("utf-8", "replace")
