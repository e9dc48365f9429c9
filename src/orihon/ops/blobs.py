"""The blobs that records name: listing them, replacing them, and loading them into a message."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from orihon.records import Blob, Call, Event, Message, Part, Raw, Record
from orihon.stores.base import Store

BlobOwner = Message | Part | Call | Raw | Event
R = TypeVar("R", bound=Record)
Owner = TypeVar("Owner", Part, Call, Raw)


def list_blobs(record: Record) -> list[Blob]:
    """Return the blobs of a message, its parts, its calls and its raw form, or those in the data of an event."""
    blobs: list[Blob] = []

    def collect(blob: Blob, _: BlobOwner) -> Blob:
        blobs.append(blob)
        return blob

    map_blobs(record, collect)
    return blobs


def map_blobs(record: R, change: Callable[[Blob, BlobOwner], Blob]) -> R:
    """Return the record with each blob replaced by `change(blob, owner)`. The owner is what names the blob."""

    def apply(owner: Owner) -> Owner:
        return msgspec.structs.replace(owner, blob=change(owner.blob, owner)) if owner.blob is not None else owner

    changes: dict[str, Any] = {}
    if isinstance(record, Event):
        changes["data"] = _map_data(record.data, lambda blob: change(blob, record))
    elif isinstance(record, Message):
        if record.blob is not None:
            changes["blob"] = change(record.blob, record)
        if isinstance(record.content, list) and any(part.blob for part in record.content):
            changes["content"] = list(map(apply, record.content))
        if any(call.blob for call in record.tool_calls):
            changes["tool_calls"] = list(map(apply, record.tool_calls))
        if record.raw is not None and record.raw.blob is not None:
            changes["raw"] = apply(record.raw)
    return msgspec.structs.replace(record, **changes) if changes else record


def _map_data(value: Any, change: Callable[[Blob], Blob]) -> Any:
    if isinstance(value, list):
        return [_map_data(item, change) for item in value]
    if not isinstance(value, dict):
        return value
    if not {"sha256", "size_bytes"} <= value.keys():
        return {name: _map_data(item, change) for name, item in value.items()}
    try:
        blob = msgspec.convert({name: value[name] for name in ("sha256", "size_bytes")}, Blob)
    except msgspec.ValidationError:
        return value  # it only looks like a blob
    blob = change(blob)
    return value | {"sha256": blob.sha256, "size_bytes": blob.size_bytes}


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

    if message.blob is not None:
        message = msgspec.structs.replace(message, content=load_text(message.blob), blob=None)
    elif isinstance(message.content, list) and any(part.blob for part in message.content):
        message = msgspec.structs.replace(message, content=list(map(load_part, message.content)))
    if any(call.blob for call in message.tool_calls):
        message = msgspec.structs.replace(message, tool_calls=list(map(load_call, message.tool_calls)))
    return message
