"""What the parts of a message become when it is sent: words or a picture, ids and arguments that a provider takes.

The wire formats render with these functions and the token counters count with them, so what is counted is what is
sent. A picture is shown where the format takes it and its bytes can be had; elsewhere a line with its size and its
handle stands for it. A media type that contradicts the bytes is corrected, because providers refuse the whole request
for it. Names, media types and addresses are shown up to `SHOWN_CHARS` characters; the log keeps them whole.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from orihon.codec import depth_fits
from orihon.coerce import decode_json
from orihon.embedded import split_data_url, text_in
from orihon.errors import Corrupt, NotFound
from orihon.records import Blob, Call, Message, Part

Load = Callable[[Blob], bytes]

PICTURES = "[pictures of the results above]"  # before pictures that a result cannot hold itself
IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
SHOWN_CHARS = 120
MAX_PICTURE_CHARS = 20 * 1024 * 1024  # of base64
MAX_URL_CHARS = 8_192  # a longer address is not sent as a picture
MAX_LEVELS = 50  # of arguments as an object; Gemini refuses values that are nested deeper than 100
MAX_LOADED_BYTES = 8 * 1024 * 1024  # a larger text is not loaded to be counted
LONGEST_ID = 64
PIXELS = 100_000  # no picture is larger on a side

_MAGIC = {"iVBORw": "image/png", "/9j/": "image/jpeg", "R0lGOD": "image/gif", "UklGR": "image/webp"}
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")
_TEXTUAL = re.compile(r"text/.*|application/(json|xml|yaml|toml|x-yaml|javascript)")
_PLAIN_ID = re.compile(r"[a-zA-Z0-9_-]{1,40}")  # sent as it is in every format
_OPAQUE = frozenset({"signature", "encrypted_content", "thoughtSignature", "data"})
_WORDS = frozenset({"type", "role", "status"})  # whose usual values belong to the wrapper, which is counted by itself
_WORD_CHARS = 40
_FIELDS = frozenset((  # of the items that providers give; their names belong to the wrapper as well
    *_OPAQUE, *("id", "text", "thinking", "summary", "content", "name", "input", "args", "arguments", "call_id"),
    *("tool_use_id", "thought", "functionCall", "reasoning", "reasoning_content", "reasoning_details", "format"),
    *("index", "phase", "citations", "annotations", "caller"),
))  # fmt: skip
_GAPS = re.compile(r"[\s\x00-\x1f\x7f]+")


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


class Way(NamedTuple):
    """One way in which a message may be sent, as a counter of tokens sees it."""

    texts: list[str]
    pictures: Sequence[Part] = ()
    messages: int = 0  # that it takes beside its own
    items: int = 0
    unseen_bytes: int = 0  # of texts that are in blobs
    opaque_bytes: int = 0  # of what only its provider can read
    beside: bool = False  # it goes with the text and the calls, not in their place


def pieces(
    message: Message, load: Load | None, images: Collection[str] = (), *, max_chars: int = MAX_PICTURE_CHARS
) -> list[Piece]:
    """Return the message in words and pictures of the given media types and of so much base64, none of them blank."""
    parts = message.content
    if isinstance(parts, str):
        if message.blob is None:
            return [parts] if parts and not parts.isspace() else []
        parts = [Part(type="text", text=parts, blob=message.blob)]
    return [_piece(part, message.seq, load, images, max_chars) for part in parts if not is_blank_part(part)]


def words_of(shown: list[Piece]) -> str:
    """Return the pieces in words, a line for each picture."""
    if len(shown) == 1 and isinstance(shown[0], str):  # nearly always
        return shown[0]
    return "\n".join(piece.line if isinstance(piece, Image) else piece for piece in shown)


def is_blank_part(part: Part) -> bool:
    """Return whether a part has neither a word nor anything that could be named."""
    return not (part.text and part.text.strip()) and not (part.data or part.url or part.blob or part.name)


def readable(part: Part) -> Part:
    """Return the part with its words as text, where it came with them in base64: text is masked, folded and found."""
    if part.text is not None or not part.data or not is_textual(part) or not _is_base64(part.data):
        return part
    data = base64.b64decode(part.data)
    found = text_in(data, textual=True)
    try:
        text = data.decode() if found is None or found.encoding == "utf-8" else found.text.removeprefix("\ufeff")
    except ValueError:  # in another encoding: the bytes are kept
        return part
    return msgspec.structs.replace(part, text=text, data=None)


def shown_name(text: str) -> str:
    """Return a name, a media type or an address on one line, with its middle left out if it is long."""
    if len(text) > 2 * SHOWN_CHARS:
        text = f"{text[:SHOWN_CHARS]}…{text[-SHOWN_CHARS:]}"
    text = _GAPS.sub(" ", text).strip()
    half = SHOWN_CHARS // 2
    return text if len(text) <= SHOWN_CHARS else f"{text[:half]}…{text[1 - half :]}"


def made_id(id: str) -> str:
    """Return a stable id in place of one that a provider would refuse."""
    return f"id-{hashlib.sha256(id.encode('utf-8', 'replace')).hexdigest()[:32]}"


def sent_ids(id: str) -> Iterator[str]:
    """Yield the ids that the formats may send for this one."""
    if len(id) <= LONGEST_ID:
        yield id
    if not _PLAIN_ID.fullmatch(id):
        yield made_id(id)


def object_of(arguments: str) -> dict[str, Any]:
    """Return the arguments of a call as an object; what is none is put into one, as it is."""
    try:
        value = decode_json(arguments)
    except ValueError:
        value = None
    if isinstance(value, dict) and (
        arguments.count("{") + arguments.count("[") <= MAX_LEVELS or depth_fits(value, MAX_LEVELS)
    ):
        return value
    return {"_raw": arguments}


def object_text(arguments: str) -> str:
    """Return the arguments of a call as the text of a JSON object: the same text if it is one.

    Servers that parse the arguments of earlier calls refuse every request whose history holds others.
    """
    return arguments if is_object_text(arguments) else _json({"_raw": arguments})


def is_object_text(arguments: str) -> bool:
    """Return whether a text is a JSON object, by the letter of the standard, and not nested too deeply."""
    return object_of(arguments).get("_raw") is not arguments


def sent_arguments(arguments: str) -> tuple[str, ...]:
    """Return the texts of the arguments that the formats may send."""
    value = object_of(arguments)
    as_object = _json(value)
    return (as_object,) if as_object == arguments or value.get("_raw") is arguments else (arguments, as_object)


def ways(message: Message) -> Iterator[Way]:
    """Yield the ways in which the formats send the content: in one text, or in pieces, with pictures or their lines."""
    if isinstance(message.content, str):
        if message.blob is None:
            yield Way([message.content])
        else:
            yield Way([words_of(pieces(message, None))], unseen_bytes=message.blob.size_bytes)
        return
    parts = [part for part in message.content if not is_blank_part(part)]
    unseen = sum(part.blob.size_bytes for part in parts if keeps_text(part) and part.blob)
    shown = [words_of([piece]) for piece in pieces(message, None)]
    together = "\n".join(shown)
    yield Way([together], unseen_bytes=unseen)
    if message.role in {"system", "assistant"}:
        return
    pictures = [part for part in parts if _is_picture(part)]
    lines = [line for part, line in zip(parts, shown, strict=True) if _is_picture(part)]
    others = [text for part, text in zip(parts, shown, strict=True) if not _is_picture(part)]
    yield Way(shown, unseen_bytes=unseen)
    yield Way(others, pictures, unseen_bytes=unseen)
    if message.role == "tool" and pictures:  # Chat Completions and Gemini show them after the result
        yield Way([together, PICTURES, *lines], pictures, messages=1, unseen_bytes=unseen)


def payload_of(message: Message) -> Way | None:
    """Return the provider's own payload as it goes back to it, if there is one."""
    native = message.native
    if native is None or native.api not in {"openai", "responses", "anthropic", "gemini"}:
        return None
    beside = native.api == "openai"
    if beside and not message.tool_calls:
        return None
    texts: list[str] = []
    opaque = _collect(native.items, texts)
    return Way(texts, items=len(native.items), opaque_bytes=opaque, beside=beside)


def _collect(value: Any, texts: list[str], name: str = "") -> int:
    """Add the texts of a payload to `texts`, and return the bytes of what only its provider can read."""
    if isinstance(value, str) and name in _OPAQUE:
        return len(value) * 3 // 4
    if isinstance(value, str):
        texts.append(value)
    elif isinstance(value, list):
        return sum(_collect(item, texts, name) for item in value)
    elif isinstance(value, dict) and name in {"input", "args"}:
        texts.append(_json(value))
    elif isinstance(value, dict):
        return sum(_collect_field(key, item, texts) for key, item in value.items())
    elif name not in _FIELDS:
        texts.append(_json(value))
    return 0


def _collect_field(name: str, value: Any, texts: list[str]) -> int:
    if name in _FIELDS:
        return _collect(value, texts, name)
    if not (name in _WORDS and (value is None or (isinstance(value, str) and len(value) <= _WORD_CHARS))):
        texts.append(_json({name: value}))  # sent as it came
    return 0


def loaded(message: Message, load: Load | None) -> Message:
    """Return the message with the texts that are kept in blobs, but for those that are too large or cannot be read."""
    if load is None or not (message.blob or isinstance(message.content, list) or message.tool_calls):
        return message
    if isinstance(message.content, str):
        text = _loaded_text(message.blob, load)
        if text is not None:
            message = msgspec.structs.replace(message, content=text, blob=None)
    elif any(map(keeps_text, message.content)):
        message = msgspec.structs.replace(message, content=[_loaded_part(part, load) for part in message.content])
    if any(call.blob for call in message.tool_calls):
        message = msgspec.structs.replace(message, tool_calls=[_loaded_call(call, load) for call in message.tool_calls])
    return message


def keeps_text(part: Part) -> bool:
    """Return whether the words of a part are in its blob."""
    return part.blob is not None and part.type != "image" and bool(is_textual(part) or part.text)


def _loaded_text(blob: Blob | None, load: Load) -> str | None:
    if blob is not None and blob.size_bytes <= MAX_LOADED_BYTES:
        with suppress(Corrupt, NotFound):
            return _decoded(load(blob))
    return None


def _decoded(data: bytes) -> str:
    """Return bytes as the text that may be sent; what is not UTF-8 becomes U+FFFD."""
    return data.decode("utf-8", "replace").replace("\0", "\u2400")


def _loaded_part(part: Part, load: Load) -> Part:
    text = _loaded_text(part.blob, load) if keeps_text(part) else None
    return msgspec.structs.replace(part, text=text, blob=None) if text and text.strip() else part


def _loaded_call(call: Call, load: Load) -> Call:
    text = _loaded_text(call.blob, load)
    return call if text is None else msgspec.structs.replace(call, arguments=text, blob=None)


def _is_picture(part: Part) -> bool:
    return part.type == "image" and bool(part.data or part.url or part.blob)


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _piece(part: Part, seq: int, load: Load | None, images: Collection[str], max_chars: int) -> Piece:
    if part.type == "image":
        image = _image(part, seq, load, images) if images else None
        return image if image is not None and len(image.data) <= max_chars else _line(part, seq)
    text, whole = _text(part, load)
    if not text.strip():
        return _line(part, seq)
    if part.type == "file":
        text = f"[file {shown_name(part.name or '')}: m{seq}]\n{text}"
    if part.blob is not None and not whole:
        text += f"\n[this is the beginning of {part.blob.size_bytes:,} bytes: m{seq}]"
    return text


def is_textual(part: Part) -> bool:
    """Return whether the window shows the data of a part as text."""
    return part.type == "text" or _TEXTUAL.fullmatch(part.media_type or "") is not None


def _text(part: Part, load: Load | None) -> tuple[str, bool]:
    """Return the words of a part, and whether they are all of them."""
    if keeps_text(part) and part.blob is not None and load is not None:
        with suppress(Corrupt, NotFound):
            return _decoded(load(part.blob)), True
    if part.text is None and part.data and is_textual(part) and _is_base64(part.data):
        return _decoded(base64.b64decode(part.data)), True
    return part.text or "", part.blob is None


def _image(part: Part, seq: int, load: Load | None, images: Collection[str]) -> Image | None:
    data, url, media_type = part.data, part.url or "", (part.media_type or "").replace("image/jpg", "image/jpeg")
    if inline := split_data_url(url):
        data, url, media_type = inline.data, "", inline.media_type
    if data is None and part.blob is not None and load is not None:
        with suppress(Corrupt, NotFound):
            data = base64.b64encode(load(part.blob)).decode()
    if data:
        media_type = next((kind for magic, kind in _MAGIC.items() if data.startswith(magic)), media_type)
        fits = media_type in images and _is_base64(data)
        return Image(media_type, data, "", _line(part, seq)) if fits else None
    is_address = url.startswith("https://") and len(url) <= MAX_URL_CHARS
    return Image(media_type, "", url, _line(part, seq)) if is_address else None


def _is_base64(data: str) -> bool:
    return len(data) % 4 == 0 and _BASE64.fullmatch(data) is not None


def _line(part: Part, seq: int) -> str:
    data = part.data or ""
    size = part.blob.size_bytes if part.blob else max(0, len(data) * 3 // 4 - data.count("="))
    facts = [
        part.name,
        f"{part.width}x{part.height}" if 0 < (part.width or 0) <= PIXELS and 0 < (part.height or 0) <= PIXELS else "",
        part.media_type,
        f"{size:,} bytes" if size else "",
        part.url if part.url and not part.url.startswith("data:") else "",
    ]
    known = ", ".join(shown for fact in facts if fact and (shown := shown_name(fact)))
    kind = shown_name(part.type)
    return f"[{kind} {known}: m{seq}]" if known else f"[{kind}: m{seq}]"
