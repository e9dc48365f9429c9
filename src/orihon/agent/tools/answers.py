"""What an MCP server answered, as the result of a call: text, or parts with pictures; what it calls an error is one."""

from __future__ import annotations

from typing import Any

from orihon.errors import ToolError
from orihon.records import Part


def answer_of(result: Any, name: str) -> Any:
    """The answer to a call of a tool; structured data counts when there is nothing else."""
    parts = [_part(block) for block in result.content]
    if result.is_error:
        said = "\n".join(part.text for part in parts if part.text)
        raise ToolError(said or f"{name} failed and did not say why.")
    if not parts:
        return "" if result.structured_content is None else result.structured_content
    if all(part.type == "text" for part in parts):
        return "\n".join(part.text or "" for part in parts)
    return parts


def _part(block: Any) -> Part:
    match block.type:
        case "text":
            return _text(block.text)
        case "image":
            return Part(type="image", data=block.data, media_type=block.mime_type)
        case "resource":
            return _resource(block.resource)
        case "resource_link":
            return _text(f"{block.title or block.name}: {block.uri}")
        case _:
            return _text(f"({block.type}, {getattr(block, 'mime_type', 'unknown')}, which cannot be shown)")


def _resource(resource: Any) -> Part:
    text = getattr(resource, "text", None)
    if text is not None:
        return _text(f"{resource.uri}:\n{text}")
    if (resource.mime_type or "").startswith("image/"):
        return Part(type="image", data=resource.blob, media_type=resource.mime_type)
    return _text(f"({resource.uri}, {resource.mime_type or 'binary'}, which cannot be shown)")


def _text(text: str) -> Part:
    return Part(type="text", text=text)
