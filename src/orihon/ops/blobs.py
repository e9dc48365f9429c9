"""Which blobs a record names, and how an event names others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from orihon.records import Blob, Event, Message, Record


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
