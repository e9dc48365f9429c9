"""Render the parts of a message for a request: text, pictures, call ids and arguments that providers accept.

The wire formats render with these functions and the token counters count with them, so that the count matches the
request. A picture is sent if the format accepts it and its bytes can be loaded; otherwise a line with its size and its
handle replaces it. A media type that contradicts the bytes is corrected, because providers refuse the whole request
for it. Names, media types and addresses are shortened to `SHOWN_CHARS` characters; the log keeps the full text.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from orihon.codec import depth_fits
from orihon.coerce import decode_json
from orihon.embedded import decode_text, split_data_url
from orihon.errors import Corrupt, NotFound
from orihon.records import Blob, Call, Message, Part

Load = Callable[[Blob], bytes]

PICTURES = "[pictures of the results above]"  # precedes pictures that a format does not accept inside a result
IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
SHOWN_CHARS = 120
MAX_PICTURE_CHARS = 20 * 1024 * 1024  # of base64
MAX_URL_CHARS = 8_192  # a picture with a longer address is not sent
MAX_LEVELS = 50  # nesting of arguments that are sent as an object; Gemini refuses more than 100
MAX_LOADED_BYTES = 8 * 1024 * 1024  # a larger text is not loaded for counting
MAX_ID_CHARS = 64
PIXELS = 100_000  # upper limit for the width and the height of a picture

_MAGIC = {"iVBORw": "image/png", "/9j/": "image/jpeg", "R0lGOD": "image/gif", "UklGR": "image/webp"}
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")
_TEXTUAL = re.compile(r"text/.*|application/(json|xml|yaml|toml|x-yaml|javascript)")
_PLAIN_ID = re.compile(r"[a-zA-Z0-9_-]{1,40}")  # accepted unchanged by every format
_OPAQUE = frozenset({"signature", "encrypted_content", "thoughtSignature", "data"})
_WORDS = frozenset({"type", "role", "status"})  # their usual values belong to the wrapper, which is counted separately
_WORD_CHARS = 40
_FIELDS = frozenset((  # fields of provider items; their names belong to the wrapper as well
    *_OPAQUE, *("id", "text", "thinking", "summary", "content", "name", "input", "args", "arguments", "call_id"),
    *("tool_use_id", "thought", "functionCall", "reasoning", "reasoning_content", "reasoning_details", "format"),
    *("index", "phase", "citations", "annotations", "caller"),
))  # fmt: skip
_GAPS = re.compile(r"[\s\x00-\x1f\x7f]+")


class Image(NamedTuple):
    """A picture that can be sent, as base64 or as an address, and the line that replaces it otherwise."""

    media_type: str
    data: str
    url: str
    line: str

    @property
    def source(self) -> str:
        """The address, or the bytes as a `data:` URL."""
        return self.url or f"data:{self.media_type};base64,{self.data}"


Piece = str | Image


class WireForm(NamedTuple):
    """One form in which a message may be sent, as the token counters see it."""

    texts: list[str]
    pictures: Sequence[Part] = ()
    messages: int = 0  # additional messages that this form needs
    items: int = 0
    unseen_bytes: int = 0  # size of texts in blobs that were not loaded
    opaque_bytes: int = 0  # size of data that only the provider can read
    is_extra: bool = False  # sent together with the text and the calls, not instead of them


def render_pieces(
    message: Message, load: Load | None, images: Collection[str] = (), *, max_chars: int = MAX_PICTURE_CHARS
) -> list[Piece]:
    """Render the parts of a message that are not blank.

    A picture is included if its media type is in `images` and its base64 has at most `max_chars` characters.
    """
    parts = message.content
    if isinstance(parts, str):
        if message.blob is None:
            return [parts] if parts and not parts.isspace() else []
        parts = [Part(type="text", text=parts, blob=message.blob)]
    return [_render_part(part, message.seq, load, images, max_chars) for part in parts if not is_blank_part(part)]


def join_pieces(pieces: list[Piece]) -> str:
    """Join the pieces to one text, with a line for each picture."""
    if len(pieces) == 1 and isinstance(pieces[0], str):  # the common case
        return pieces[0]
    return "\n".join(piece.line if isinstance(piece, Image) else piece for piece in pieces)


def is_blank_part(part: Part) -> bool:
    """Return whether a part has no visible text, no data, no address and no name."""
    return not (part.text and part.text.strip()) and not (part.data or part.url or part.blob or part.name)


def decode_text_part(part: Part) -> Part:
    """Convert textual base64 data of a part to text, so that it can be masked, folded and searched."""
    if part.text is not None or not part.data or not is_textual(part) or not _is_base64(part.data):
        return part
    data = base64.b64decode(part.data)
    decoded = decode_text(data, textual=True)
    try:
        text = data.decode() if decoded is None or decoded.encoding == "utf-8" else decoded.text.removeprefix("\ufeff")
    except ValueError:  # some other encoding: keep the bytes
        return part
    return msgspec.structs.replace(part, text=text, data=None)


def shorten_name(text: str) -> str:
    """Return a name, a media type or an address on one line; replace the middle of a long one with an ellipsis."""
    if len(text) > 2 * SHOWN_CHARS:
        text = f"{text[:SHOWN_CHARS]}…{text[-SHOWN_CHARS:]}"
    text = _GAPS.sub(" ", text).strip()
    half = SHOWN_CHARS // 2
    return text if len(text) <= SHOWN_CHARS else f"{text[:half]}…{text[1 - half :]}"


def make_id(id: str) -> str:
    """Derive a stable id to send instead of one that a provider would refuse."""
    import hashlib  # noqa: PLC0415 - it loads OpenSSL, 4 MB

    return f"id-{hashlib.sha256(id.encode('utf-8', 'replace')).hexdigest()[:32]}"


def iter_sent_ids(id: str) -> Iterator[str]:
    """Yield the ids that the wire formats may send for this id."""
    if len(id) <= MAX_ID_CHARS:
        yield id
    if not _PLAIN_ID.fullmatch(id):
        yield make_id(id)


def parse_arguments(arguments: str) -> dict[str, Any]:
    """Return the arguments of a call as an object; wrap a text that is not a JSON object as `{"_raw": text}`."""
    try:
        value = decode_json(arguments)
    except ValueError:
        value = None
    if isinstance(value, dict) and (
        arguments.count("{") + arguments.count("[") <= MAX_LEVELS or depth_fits(value, MAX_LEVELS)
    ):
        return value
    return {"_raw": arguments}


def normalize_arguments(arguments: str) -> str:
    """Return the arguments of a call as the text of a JSON object, unchanged if they already are one.

    Servers that parse the arguments of earlier calls refuse every request whose history contains invalid ones.
    """
    return arguments if is_object_text(arguments) else _encode_json({"_raw": arguments})


def is_object_text(arguments: str) -> bool:
    """Return whether a text is a strictly valid JSON object that is not nested too deeply."""
    return parse_arguments(arguments).get("_raw") is not arguments


def render_arguments(arguments: str) -> tuple[str, ...]:
    """Return the texts that the wire formats may send for these arguments."""
    value = parse_arguments(arguments)
    as_object = _encode_json(value)
    return (as_object,) if as_object == arguments or value.get("_raw") is arguments else (arguments, as_object)


def iter_wire_forms(message: Message) -> Iterator[WireForm]:
    """Yield the forms in which the content may be sent: as one text or in pieces, with pictures or with their lines."""
    if isinstance(message.content, str):
        if message.blob is None:
            yield WireForm([message.content])
        else:
            yield WireForm([join_pieces(render_pieces(message, None))], unseen_bytes=message.blob.size_bytes)
        return
    parts = [part for part in message.content if not is_blank_part(part)]
    unseen = sum(part.blob.size_bytes for part in parts if has_text_blob(part) and part.blob)
    texts = [join_pieces([piece]) for piece in render_pieces(message, None)]
    joined = "\n".join(texts)
    yield WireForm([joined], unseen_bytes=unseen)
    if message.role in {"system", "assistant"}:
        return
    pictures = [part for part in parts if _is_picture(part)]
    lines = [line for part, line in zip(parts, texts, strict=True) if _is_picture(part)]
    others = [text for part, text in zip(parts, texts, strict=True) if not _is_picture(part)]
    yield WireForm(texts, unseen_bytes=unseen)
    yield WireForm(others, pictures, unseen_bytes=unseen)
    if message.role == "tool" and pictures:  # Chat Completions and Gemini take them in a message after the result
        yield WireForm([joined, PICTURES, *lines], pictures, messages=1, unseen_bytes=unseen)


def make_payload_form(message: Message) -> WireForm | None:
    """Return the wire form of the provider's own payload, or None if the message has none."""
    native = message.native
    if native is None or native.api not in {"openai", "responses", "anthropic", "gemini"}:
        return None
    is_extra = native.api == "openai"
    if is_extra and not message.tool_calls:
        return None
    texts: list[str] = []
    opaque = _collect(native.items, texts)
    return WireForm(texts, items=len(native.items), opaque_bytes=opaque, is_extra=is_extra)


def _collect(value: Any, texts: list[str], name: str = "") -> int:
    """Append the texts of a payload to `texts`; return the size in bytes of data that only the provider can read."""
    if isinstance(value, str) and name in _OPAQUE:
        return len(value) * 3 // 4
    if isinstance(value, str):
        texts.append(value)
    elif isinstance(value, list):
        return sum(_collect(item, texts, name) for item in value)
    elif isinstance(value, dict) and name in {"input", "args"}:
        texts.append(_encode_json(value))
    elif isinstance(value, dict):
        return sum(_collect_field(key, item, texts) for key, item in value.items())
    elif name not in _FIELDS:
        texts.append(_encode_json(value))
    return 0


def _collect_field(name: str, value: Any, texts: list[str]) -> int:
    if name in _FIELDS:
        return _collect(value, texts, name)
    if not (name in _WORDS and (value is None or (isinstance(value, str) and len(value) <= _WORD_CHARS))):
        texts.append(_encode_json({name: value}))  # sent unchanged
    return 0


def load_texts(message: Message, load: Load | None) -> Message:
    """Load the texts of a message from their blobs, except those that are too large or cannot be read."""
    if load is None or not (message.blob or isinstance(message.content, list) or message.tool_calls):
        return message
    if isinstance(message.content, str):
        text = _load_text(message.blob, load)
        if text is not None:
            message = msgspec.structs.replace(message, content=text, blob=None)
    elif any(map(has_text_blob, message.content)):
        message = msgspec.structs.replace(message, content=[load_part(part, load) for part in message.content])
    if any(call.blob for call in message.tool_calls):
        message = msgspec.structs.replace(message, tool_calls=[_load_call(call, load) for call in message.tool_calls])
    return message


def has_text_blob(part: Part) -> bool:
    """Return whether the text of a part is stored in its blob."""
    return part.blob is not None and part.type != "image" and bool(is_textual(part) or part.text)


def _load_text(blob: Blob | None, load: Load) -> str | None:
    if blob is not None and blob.size_bytes <= MAX_LOADED_BYTES:
        with suppress(Corrupt, NotFound):
            return _decode_blob(load(blob))
    return None


def _decode_blob(data: bytes) -> str:
    """Decode bytes to a text that may be sent. Invalid UTF-8 becomes U+FFFD."""
    return data.decode("utf-8", "replace").replace("\0", "\u2400")


def load_part(part: Part, load: Load | None) -> Part:
    """Return a part with its text, if that is in a blob that can be read and is not too large."""
    text = _load_text(part.blob, load) if load is not None and has_text_blob(part) else None
    return msgspec.structs.replace(part, text=text, blob=None) if text and text.strip() else part


def _load_call(call: Call, load: Load) -> Call:
    text = _load_text(call.blob, load)
    return call if text is None else msgspec.structs.replace(call, arguments=text, blob=None)


def _is_picture(part: Part) -> bool:
    return part.type == "image" and bool(part.data or part.url or part.blob)


def _encode_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _render_part(part: Part, seq: int, load: Load | None, images: Collection[str], max_chars: int) -> Piece:
    if part.type == "image":
        image = _load_image(part, seq, load, images) if images else None
        return image if image is not None and len(image.data) <= max_chars else _render_line(part, seq)
    text, is_complete = _read_text(part, load)
    if not text.strip():
        return _render_line(part, seq)
    if part.type == "file":
        text = f"[file {shorten_name(part.name or '')}: m{seq}]\n{text}"
    if part.blob is not None and not is_complete:
        text += f"\n[this is the beginning of {part.blob.size_bytes:,} bytes: m{seq}]"
    return text


def is_textual(part: Part) -> bool:
    """Return whether the data of a part is shown as text in the window."""
    return part.type == "text" or _TEXTUAL.fullmatch(part.media_type or "") is not None


def _read_text(part: Part, load: Load | None) -> tuple[str, bool]:
    """Return the text of a part, and whether it is complete."""
    if has_text_blob(part) and part.blob is not None and load is not None:
        with suppress(Corrupt, NotFound):
            return _decode_blob(load(part.blob)), True
    if part.text is None and part.data and is_textual(part) and _is_base64(part.data):
        return _decode_blob(base64.b64decode(part.data)), True
    return part.text or "", part.blob is None


def _load_image(part: Part, seq: int, load: Load | None, images: Collection[str]) -> Image | None:
    data, url, media_type = part.data, part.url or "", (part.media_type or "").replace("image/jpg", "image/jpeg")
    if inline := split_data_url(url):
        data, url, media_type = inline.data, "", inline.media_type
    if data is None and part.blob is not None and load is not None:
        with suppress(Corrupt, NotFound):
            data = base64.b64encode(load(part.blob)).decode()
    if data:
        media_type = next((kind for magic, kind in _MAGIC.items() if data.startswith(magic)), media_type)
        fits = media_type in images and _is_base64(data)
        return Image(media_type, data, "", _render_line(part, seq)) if fits else None
    is_address = url.startswith("https://") and len(url) <= MAX_URL_CHARS
    return Image(media_type, "", url, _render_line(part, seq)) if is_address else None


def _is_base64(data: str) -> bool:
    return len(data) % 4 == 0 and _BASE64.fullmatch(data) is not None


def _render_line(part: Part, seq: int) -> str:
    data = part.data or ""
    size = part.blob.size_bytes if part.blob else max(0, len(data) * 3 // 4 - data.count("="))
    facts = [
        part.name,
        f"{part.width}x{part.height}" if 0 < (part.width or 0) <= PIXELS and 0 < (part.height or 0) <= PIXELS else "",
        part.media_type,
        f"{size:,} bytes" if size else "",
        part.url if part.url and not part.url.startswith("data:") else "",
    ]
    details = ", ".join(name for fact in facts if fact and (name := shorten_name(fact)))
    kind = shorten_name(part.type)
    return f"[{kind} {details}: m{seq}]" if details else f"[{kind}: m{seq}]"
