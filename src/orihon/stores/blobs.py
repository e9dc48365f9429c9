"""Move large parts of a message to blobs. The line keeps a preview that can be read."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import msgspec

from orihon.records import Blob, Call, Message, Part

MAX_INLINE_BYTES = 256 * 1024
PREVIEW_CHARS = 2000

PutBlob = Callable[[bytes], Blob]


def offload_large_parts(message: Message, put: PutBlob) -> dict[str, Any]:
    """Put pictures and long texts into blobs; return the fields of the message that change."""
    changes: dict[str, Any] = {}
    if isinstance(message.content, list):
        parts = [_offload_part(part, put) for part in message.content]
        changes |= {"content": parts} if parts != message.content else {}
    elif message.blob is None and (data := _encode_large(message.content)):
        changes |= {"blob": put(data), "content": message.content[:PREVIEW_CHARS]}
    if any(len(call.arguments) > MAX_INLINE_BYTES // 4 for call in message.tool_calls):
        changes["tool_calls"] = [_offload_arguments(call, put) for call in message.tool_calls]
    return changes


def _offload_part(part: Part, put: PutBlob) -> Part:
    if part.blob is not None:
        return part
    if part.data is not None:
        try:
            blob = put(base64.b64decode(part.data, validate=True))
        except ValueError:
            return part  # not base64, so it stays as it is
        return msgspec.structs.replace(part, data=None, blob=blob)
    text = part.text or ""
    data = _encode_large(text)
    return msgspec.structs.replace(part, blob=put(data), text=text[:PREVIEW_CHARS]) if data else part


def _offload_arguments(call: Call, put: PutBlob) -> Call:
    data = _encode_large(call.arguments)
    if not data or call.blob is not None:
        return call
    return msgspec.structs.replace(call, blob=put(data), arguments=call.arguments[:PREVIEW_CHARS])


def _encode_large(text: str) -> bytes:
    """Return the UTF-8 of a text that is too large for a line, else nothing."""
    if len(text) <= MAX_INLINE_BYTES // 4:
        return b""
    data = text.encode()
    return data if len(data) > MAX_INLINE_BYTES else b""
