"""What the four formats share: a message as words and pictures, ids that a provider takes, a payload that still fits.

A picture is shown where the format takes it and its bytes can be had; elsewhere it is a line with its size and its
handle. A media type that contradicts the bytes is corrected, because providers refuse the whole request for it.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import msgspec

from orihon.codec import json_or_text
from orihon.context.repair import is_blank_part
from orihon.context.replies import said
from orihon.records import Blob, Call, Message, Part

Load = Callable[[Blob], bytes]

CONTINUE = "Continue."  # where a request has to end with the user's words, and the log does not
IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})

_MAGIC = {"iVBORw": "image/png", "/9j/": "image/jpeg", "R0lGOD": "image/gif", "UklGR": "image/webp"}
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")
_DATA_URL = re.compile(r"data:([\w/+.-]+);base64,", re.ASCII)
_TEXTUAL = re.compile(r"text/.*|application/(json|xml|yaml|toml|x-yaml|javascript)")
_DATE = re.compile(r"[-@](\d{8}|\d{4}-\d{2}-\d{2}|\d{3})$")


class Image(NamedTuple):
    """A picture that can be shown: base64 or an address, and the line that stands for it where it cannot."""

    media_type: str
    data: str
    url: str
    line: str

    @property
    def source(self) -> str:
        """The address, or the bytes as one."""
        return self.url or f"data:{self.media_type};base64,{self.data}"


Piece = str | Image


def pieces(message: Message, load: Load | None, images: Collection[str] = ()) -> list[Piece]:
    """The message in words and pictures of the given media types, none of them blank."""
    parts = message.content
    if isinstance(parts, str):
        if message.blob is None:
            return [parts] if parts and not parts.isspace() else []
        parts = [Part(type="text", text=parts, blob=message.blob)]
    return [_piece(part, message.seq, load, images) for part in parts if not is_blank_part(part)]


def text_of(message: Message, load: Load | None) -> str:
    """The message in words alone."""
    text = plain_text(message)
    return words_of(pieces(message, load)) if text is None else text


def plain_text(message: Message) -> str | None:
    """The words of a message that has nothing else, as nearly all have; None for others."""
    text = message.content
    if isinstance(text, str) and message.blob is None:
        return "" if text.isspace() else text
    return None


def words_of(shown: list[Piece]) -> str:
    """The pieces in words, a line for each picture."""
    if len(shown) == 1 and isinstance(shown[0], str):  # nearly always
        return shown[0]
    return "\n".join(piece.line if isinstance(piece, Image) else piece for piece in shown)


def arguments_of(call: Call, load: Load | None) -> str:
    """The arguments as the model wrote them; where only their beginning is at hand, an object that says so."""
    if call.blob is None:
        return call.arguments
    if load is not None:
        return load(call.blob).decode()
    return msgspec.json.encode({"_raw": call.arguments, "_bytes": call.blob.size_bytes}).decode()


def object_of(call: Call, load: Load | None) -> dict[str, Any]:
    """The arguments as an object; what is none is put into one, as it is."""
    text = arguments_of(call, load)
    value = json_or_text(text)
    return value if isinstance(value, dict) else {"_raw": text}


def wire_id(id: str, allowed: re.Pattern[str]) -> str:
    """The id, or a stable one in its place where the provider would refuse it."""
    return id if allowed.fullmatch(id) else made_id(id)


def made_id(id: str) -> str:
    """A stable id in place of one that a provider would refuse."""
    return f"id-{hashlib.sha256(id.encode('utf-8', 'replace')).hexdigest()[:32]}"


def same_model(one: str, other: str) -> bool:
    """Whether two names mean one model: a reply gives the dated name of what was asked for without a date."""
    one, other = (name.rpartition("/")[2].removesuffix("-latest") for name in (one, other))
    return other in {one, _DATE.sub("", one)} or one == _DATE.sub("", other)


def native_items(message: Message, api: str, model: str, ids: re.Pattern[str] | None) -> list[dict[str, Any]]:
    """The provider's own payload, whole, for the API and the model that made it; nothing for any other.

    A message that was folded or got other ids since is no longer the one that the signatures vouch for. `ids` are
    those that the provider takes; None, where it can do without.
    """
    native = message.native
    if native is None or native.api != api or not same_model(native.model, model):
        return []
    try:
        text, calls = said(api, native.items)
    except (AttributeError, KeyError, TypeError):  # written by something else; nobody can vouch for it
        return []
    if text != message.content or len(calls) != len(message.tool_calls):
        return []
    if api != "responses" and not all(call.arguments.startswith("{") for call in calls):  # no object
        return []
    pairs = zip(calls, message.tool_calls, strict=True)
    return native.items if all(_same_call(theirs, ours, ids) for theirs, ours in pairs) else []


def _same_call(theirs: Call, ours: Call, ids: re.Pattern[str] | None) -> bool:
    same = (theirs.name, theirs.arguments or "{}", None) == (ours.name, ours.arguments, ours.blob)
    if ids is None and not theirs.id:
        return same
    return same and theirs.id == ours.id and (ids is None or ids.fullmatch(ours.id) is not None)


def _piece(part: Part, seq: int, load: Load | None, images: Collection[str]) -> Piece:
    if part.type == "image":
        return _image(part, seq, load, images) or _line(part, seq)
    text = _text(part, load)
    if not text.strip():
        return _line(part, seq)
    if part.type == "file":
        text = f"[file {part.name or ''}: m{seq}]\n{text}"
    if part.blob is not None and load is None:
        text += f"\n[this is the beginning of {part.blob.size_bytes:,} bytes: m{seq}]"
    return text


def _text(part: Part, load: Load | None) -> str:
    textual = part.type == "text" or _TEXTUAL.fullmatch(part.media_type or "")
    if part.blob is not None and load is not None and (textual or part.text):
        return load(part.blob).decode("utf-8", "replace")
    if part.text is None and part.data and textual and _is_base64(part.data):
        return base64.b64decode(part.data).decode("utf-8", "replace")
    return part.text or ""


def _image(part: Part, seq: int, load: Load | None, images: Collection[str]) -> Image | None:
    data, url, media_type = part.data, part.url or "", (part.media_type or "").replace("image/jpg", "image/jpeg")
    if found := _DATA_URL.match(url):
        data, url, media_type = url[found.end() :], "", found[1]
    if data is None and part.blob is not None and load is not None and images:
        data = base64.b64encode(load(part.blob)).decode()
    if data:
        media_type = next((kind for magic, kind in _MAGIC.items() if data.startswith(magic)), media_type)
        fits = media_type in images and _is_base64(data)
        return Image(media_type, data, "", _line(part, seq)) if fits else None
    return Image(media_type, "", url, _line(part, seq)) if images and url.startswith("https://") else None


def _is_base64(data: str) -> bool:
    return len(data) % 4 == 0 and _BASE64.fullmatch(data) is not None


def _line(part: Part, seq: int) -> str:
    data = part.data or ""
    size = part.blob.size_bytes if part.blob else len(data) * 3 // 4 - data.count("=")
    facts = [
        part.name,
        f"{part.width}x{part.height}" if part.width and part.height else "",
        part.media_type,
        f"{size:,} bytes" if size else "",
        part.url if part.url and not part.url.startswith("data:") else "",
    ]
    known = ", ".join(fact for fact in facts if fact)
    return f"[{part.type} {known}: m{seq}]" if known else f"[{part.type}: m{seq}]"
