"""Pictures and long texts move to blobs; what stays in the line is a beginning that can be read."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import msgspec

from orihon.records import Blob, Call, Message, Part

SPILL_BYTES = 256 * 1024  # larger texts live in a blob
PREVIEW_CHARS = 2000

Keep = Callable[[bytes], Blob]


def spilled(message: Message, keep: Keep) -> dict[str, Any]:
    """The fields of a message that change because something of it is kept in blobs."""
    changed: dict[str, Any] = {}
    if isinstance(message.content, list):
        parts = [_part(part, keep) for part in message.content]
        changed |= {"content": parts} if parts != message.content else {}
    elif len(message.content) > SPILL_BYTES // 4 and message.blob is None:
        data = message.content.encode()
        if len(data) > SPILL_BYTES:
            changed |= {"blob": keep(data), "content": message.content[:PREVIEW_CHARS]}
    if any(len(call.arguments) > SPILL_BYTES // 4 for call in message.tool_calls):
        changed["tool_calls"] = [_call(call, keep) for call in message.tool_calls]
    return changed


def _part(part: Part, keep: Keep) -> Part:
    if part.blob is not None:
        return part
    if part.data is not None:
        try:
            blob = keep(base64.b64decode(part.data, validate=True))
        except ValueError:
            return part  # not base64: kept as it came
        return msgspec.structs.replace(part, data=None, blob=blob)
    data = (part.text or "").encode() if len(part.text or "") > SPILL_BYTES // 4 else b""
    if len(data) <= SPILL_BYTES:
        return part
    return msgspec.structs.replace(part, blob=keep(data), text=(part.text or "")[:PREVIEW_CHARS])


def _call(call: Call, keep: Keep) -> Call:
    data = call.arguments.encode()
    if len(data) <= SPILL_BYTES or call.blob is not None:
        return call
    return msgspec.structs.replace(call, blob=keep(data), arguments=call.arguments[:PREVIEW_CHARS])
