"""The one gate that every string passes before it is stored, logged, exported or shown: cleaned and masked.

`finish` turns what a caller gives into a finished record and its line: sanitised, numbered, dated, counted, with its
large parts in blobs. Stores write finished lines and know nothing of masks or tokens. Windows, summaries, exports and
searches are made of masked text. `FIELDS` lists every field of a record that can hold text; a test compares it with
the types of the records. What passes unmasked is exempt by its form, not by its name: numbers, the words of a
`Literal`, our own timestamps and SHA-256 sums. Pictures, archives and the files of checkpoints are not masked, on
purpose.

An id that holds a secret becomes `[KIND]-tag`. The tag is a keyed hash of the id (BLAKE2b, a MAC) under a random key of
the store. Equal ids get equal tags in every process that opens the store, so a call and its result still pair up,
and different ids get different tags (64 bits). Without the key no tag can be computed, so no guess can be
tested, not even of a short password. The key is in no task, log, export, copy or backup.
"""

from __future__ import annotations

import base64
import functools
import logging
import os
import re
import threading
from collections.abc import Callable, Mapping
from operator import is_not
from typing import Any, TypeVar
from weakref import WeakSet

import msgspec

from orihon.codec import (
    MAX_LINE_BYTES,
    check,
    clean_record,
    clean_text,
    clean_value,
    encode_line,
    now,
    parse_json_or_text,
    safe_str,
)
from orihon.embedded import (
    MIN_CHARS,
    decode_base64,
    decode_if_text,
    decode_text,
    encode_like,
    holds_binary,
    is_base64,
    is_binary,
    is_plain_text,
    replace_base64,
    split_data_url,
)
from orihon.errors import UsageError, mask_with
from orihon.parts import is_textual
from orihon.records import (
    Blob,
    Call,
    Event,
    Fold,
    Issue,
    Message,
    Metadata,
    Native,
    Part,
    PlanEntry,
    Raw,
    Record,
    Sent,
    Summary,
    TaskRow,
    ToolCall,
    Usage,
)
from orihon.redaction import MASKS, KnownSecrets, mask, mask_value, masks_in
from orihon.settings.schema import Settings
from orihon.settings.section import iter_secrets
from orihon.task_key import TaskKey
from orihon.terminal import escape
from orihon.tokens import Counter

R = TypeVar("R", bound=Record)
Way = Callable[["Sanitiser", Any], Any]  # how the value of a field is admitted
PutBlob = Callable[[bytes], Blob]  # stores bytes; they are on disk when it returns

MAX_INLINE_BYTES = 256 * 1024  # a longer text is a blob, and its line keeps a preview
PREVIEW_CHARS = 2000

_OWN_KEY = os.urandom(32)
_TAG_BYTES = 8
_LONGEST_PLAIN, _MOST_PLAIN = 200, 4096  # characters of an id that is remembered as harmless, and how many are
_LETTERS = str.maketrans("0123456789abcdef", "abcdefghijklmnop")  # no digit, so that no tag looks like a secret
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?Z", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)


class Sanitiser:
    """The gate of one store: the values that are known to be secret, the kinds to mask, and the key of masked ids."""

    def __init__(
        self,
        known: KnownSecrets | None = None,
        kinds: frozenset[str] | None = None,
        key: Callable[[], bytes] = lambda: _OWN_KEY,
    ) -> None:
        self.known, self.kinds, self._key = known, kinds, functools.cache(key)
        self._plain: set[str] = set()  # ids without a secret: the same tools and models are named again and again

    def text(self, text: str) -> str:
        """Return a text as it may be stored: the same object when there is nothing to clean or to hide."""
        clean = text if type(text) is str and text.isascii() and "\0" not in text else clean_text(text)
        return self._mask(clean, known=self.known, kinds=self.kinds)

    def value(self, value: Any) -> Any:
        """Return a value of JSON as it may be stored."""
        return mask_value(clean_value(value), known=self.known, kinds=self.kinds, by=self._mask)

    def arguments(self, text: str) -> str:
        """Return the arguments of a call, which are JSON. A value with escapes is masked as it will be decoded."""
        masked = self.text(text)
        if "\\" not in masked:
            return masked
        value = parse_json_or_text(masked)
        admitted = self.value(value)
        return masked if admitted == value else msgspec.json.encode(admitted).decode()

    def id(self, text: str) -> str:
        """Return an id as it may be stored; one that holds a secret is replaced by another that is as unique."""
        if text in self._plain:
            return text
        clean = self._id(text, self.kinds)
        if clean == text and len(text) <= _LONGEST_PLAIN:
            self._plain = self._plain if len(self._plain) < _MOST_PLAIN else set()
            self._plain.add(text)
        return clean

    def user(self, text: str) -> str:
        """Return the name of a user; an address stays, because accounts, settings and roles are compared by it."""
        return self._id(text, (MASKS if self.kinds is None else self.kinds) - {"EMAIL"})

    def key(self, key: TaskKey) -> TaskKey:
        """Return a task key as it may be stored, with a unique name in place of each part that holds a secret."""
        parts = {
            "owner": "/".join(map(self._segment, key.owner.split("/"))),
            "repo": self._segment(key.repo),
            "task_id": self._segment(key.task_id),
        }
        changes = {name: part for name, part in parts.items() if part != getattr(key, name)}
        return msgspec.structs.replace(key, **changes) if changes else key

    def key_text(self, text: str) -> str:
        """Return the string of a task key as it may be stored; what is no key is masked as text."""
        try:
            key = TaskKey.parse(text)
        except UsageError:
            return self.text(text)
        admitted = self.key(key)
        return text if admitted is key else str(admitted)

    def data(self, data: bytes, *, textual: bool = False) -> bytes:
        """Return the bytes of a blob as they may be stored: text is masked, a picture or an archive is not."""
        found = decode_text(data, textual=textual)
        if found is None:
            return data
        texts = found.text.split("\0")  # as in the environment of a process
        masked = [self._mask(text, known=self.known, kinds=self.kinds) for text in texts]
        return data if masked == texts else found.encode("\0".join(masked))

    def record(self, record: R) -> R:
        """Return a record as it may be stored: the same object when there was nothing to clean or to hide."""
        changes: dict[str, Any] = {}
        for name, way, kind in _WAYS[type(record)]:
            value = getattr(record, name)
            if value and isinstance(value, kind):  # what is of another kind is refused by the codec
                admitted = way(self, value)
                if admitted is not value and admitted != value:
                    changes[name] = admitted
        if isinstance(record, Part) and record.data:
            data = self._base64(record.data, textual=is_textual(record))
            changes |= {} if data == record.data else {"data": data}
        if not changes:
            return record
        return msgspec.structs.replace(record, **changes, **_flags(record, changes))

    def row_changes(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Return changes of a task's row as they may be stored."""
        ways = FIELDS[TaskRow]
        admitted = dict(changes)
        for name, value in changes.items():
            if value and name in ways and isinstance(value, str):
                admitted[name] = ways[name](self, value)
        return admitted

    def _id(self, text: str, kinds: frozenset[str] | None) -> str:
        clean = text if type(text) is str and text.isascii() and "\0" not in text else clean_text(text)
        masked = mask(clean, known=self.known, kinds=kinds)
        if masked == clean:
            return clean
        import hashlib  # noqa: PLC0415 - it loads OpenSSL, 4 MB

        tag = hashlib.blake2b(clean.encode("utf-8", "surrogatepass"), key=self._key(), digest_size=_TAG_BYTES)
        return f"{min(masks_in(masked))}-{tag.hexdigest().translate(_LETTERS)}"

    def _segment(self, part: str) -> str:
        """Return a part of a task key as it may be stored, without brackets; a number is no secret."""
        admitted = part if part.isdecimal() else self.id(part)
        return part if admitted == part else admitted.replace("[", "").replace("]", "").lower()

    def _mask(self, text: str, *, known: KnownSecrets | None, kinds: frozenset[str] | None) -> str:
        """Mask a text, also where it is base64 or contains base64; pictures stay as they are."""
        if len(text) < MIN_CHARS:
            return mask(text, known=known, kinds=kinds)
        whole = " " not in text and is_base64(text)
        if whole and holds_binary(text):
            return text
        masked = mask(text, known=known, kinds=kinds)
        if whole:
            return masked if masked != text else self._look_inside(text)
        return replace_base64(masked, self._look_inside)

    def _look_inside(self, data: str) -> str:
        """Mask the text inside base64; return the same object if there is none, or no secret in it."""
        raw = decode_if_text(data)
        if raw is None:
            return data
        masked = self.data(raw)
        return data if masked == raw else encode_like(masked, data)

    def _base64(self, data: str, *, textual: bool = False) -> str:
        """Mask the data of a part: inside base64 of a text, else as text."""
        raw = decode_base64(data, textual=textual)
        if raw is None:
            return self.text(data)
        masked = self.data(raw, textual=textual)
        if masked != raw:
            return encode_like(masked, data)
        # a token of letters and digits decodes as well, to bytes that are neither a text nor a picture
        return data if is_binary(raw) or is_plain_text(raw) else self.text(data)


# the ways of single fields


def _time(sanitiser: Sanitiser, text: str) -> str:
    return text if _TIME.fullmatch(text) else sanitiser.text(text)


def _sha256(sanitiser: Sanitiser, text: str) -> str:
    return text if _SHA256.fullmatch(text) else sanitiser.text(text)


def _content(sanitiser: Sanitiser, content: str | list[Part]) -> str | list[Part]:
    if isinstance(content, str):
        return sanitiser.text(content)
    parts: list[Part] = _each(Sanitiser.record)(sanitiser, content)
    return parts


def _url(sanitiser: Sanitiser, url: str) -> str:
    """Mask a URL, and the data inside a data URL."""
    inline = split_data_url(url)
    head = inline.head if inline else ""
    part = Part(type="file", data=url[len(head) :])
    return sanitiser.text(head) + (sanitiser.record(part).data or "") if head else sanitiser.text(url)


def _native(sanitiser: Sanitiser, native: Native) -> Native | None:
    """Return the payload, or None if a part of it has to be masked: a signature covers the exact text."""
    admitted = sanitiser.record(native)
    return admitted if admitted.items == native.items else None


def _figures(sanitiser: Sanitiser, figures: dict[str, int]) -> dict[str, int]:
    """Mask the names of figures. They are few, and are remembered as harmless."""
    return {sanitiser.id(name): figure for name, figure in figures.items()}


def _by_call(sanitiser: Sanitiser, arguments: dict[str, str]) -> dict[str, str]:
    return {sanitiser.id(call): sanitiser.text(text) for call, text in arguments.items()}


def _each(way: Way) -> Way:
    """Return the way of a list. It returns the same list if no item changed."""

    def admit(sanitiser: Sanitiser, items: list[Any]) -> list[Any]:
        admitted = [way(sanitiser, item) for item in items]
        return admitted if any(map(is_not, admitted, items)) else items

    return admit


_each_record = _each(Sanitiser.record)

# How each field that can hold text is admitted. A field of numbers, or of the words of a `Literal`, is not listed.
_ANY: dict[str, Way] = {"unknown": Sanitiser.value}
FIELDS: dict[type[Record], dict[str, Way]] = {
    Blob: {"sha256": _sha256},
    Part: {
        "type": Sanitiser.id,
        "text": Sanitiser.text,
        "media_type": Sanitiser.id,
        "name": Sanitiser.text,
        "url": _url,
        "blob": Sanitiser.record,
    },  # and `data`, whose meaning depends on the other fields; see `Sanitiser.record`
    Call: {
        "id": Sanitiser.id,
        "name": Sanitiser.id,
        "arguments": Sanitiser.arguments,
        "blob": Sanitiser.record,
    },
    Usage: {},
    Sent: {"sources": _figures, "reasons": _each(Sanitiser.text)},
    Native: {"api": Sanitiser.id, "model": Sanitiser.id, "items": Sanitiser.value},
    Raw: {"value": Sanitiser.value, "blob": Sanitiser.record},
    Issue: {
        **dict.fromkeys(("title", "body", "latest", "author", "language"), Sanitiser.text),
        **dict.fromkeys(("people", "labels"), _each(Sanitiser.text)),
    },
    Metadata: {
        "uuid": Sanitiser.text,
        "task_key": Sanitiser.key,
        "created_at": _time,
        "hostname": Sanitiser.text,
        "config": Sanitiser.value,
        "user": Sanitiser.user,
    },
    Message: {
        "tool_name": Sanitiser.id,
        "tool_call_id": Sanitiser.id,
        "content": _content,
        "tool_calls": _each_record,
        "blob": Sanitiser.record,
        "native": _native,
        "raw": Sanitiser.record,
        "model": Sanitiser.id,
        "usage": Sanitiser.record,
        "window": Sanitiser.record,
        "key": Sanitiser.id,
        "issue": Sanitiser.record,
        "timestamp": _time,
    },
    Summary: {"summary": Sanitiser.text, "model": Sanitiser.id, "timestamp": _time},
    Fold: {"text": Sanitiser.text, "arguments": _by_call, "timestamp": _time},
    ToolCall: {
        "tool": Sanitiser.id,
        "args": Sanitiser.value,
        "result": Sanitiser.value,
        "error": Sanitiser.text,
        "timestamp": _time,
        "call_id": Sanitiser.id,
    },
    Event: {"type": Sanitiser.id, "data": Sanitiser.value, "timestamp": _time},
    PlanEntry: {"task_uuid": Sanitiser.text, "data": Sanitiser.value, "timestamp": _time},
    TaskRow: {
        **dict.fromkeys(("uuid", "task_source", "owner", "repo", "task_type", "task_id", "hostname"), Sanitiser.text),
        **dict.fromkeys(("llm_provider", "model", "error_message", "reason", "final_summary"), Sanitiser.text),
        **dict.fromkeys(("handoff", "lease_owner"), Sanitiser.text),
        **dict.fromkeys(("created_at", "started_at", "completed_at", "updated_at", "heartbeat_at"), _time),
        "user": Sanitiser.user,
        "task_key": Sanitiser.key_text,
        "linked_key": Sanitiser.key_text,
        "last_activity": Sanitiser.id,
    },
}
_OF_TEXT = (Sanitiser.text, Sanitiser.id, Sanitiser.user, Sanitiser.key_text, Sanitiser.arguments, _time, _sha256, _url)
_TYPES: dict[Any, type] = {Sanitiser.key: TaskKey, Sanitiser.record: Record, **dict.fromkeys(_OF_TEXT, str)}
_WAYS = {
    kind: tuple((name, way, _TYPES.get(way, object)) for name, way in (fields | _ANY).items())
    for kind, fields in FIELDS.items()
}


def _flags(record: Record, changes: dict[str, Any]) -> dict[str, bool]:
    """Return the flags of a message or a call: whether a text was cleaned, and whether something was masked."""
    if isinstance(record, Call):
        hidden = (
            changes[name] != clean_text(getattr(record, name)) for name in ("name", "arguments") if name in changes
        )
        return {"masked": record.masked or any(hidden)}
    if not isinstance(record, Message):
        return {}
    if "content" not in changes:
        return {"masked": True} if "raw" in changes and _is_masked(record.raw, changes["raw"]) else {}
    given = msgspec.to_builtins(record.content)
    clean = clean_value(given)
    return {
        "cleaned": record.cleaned or clean != given,
        "masked": record.masked or msgspec.to_builtins(changes["content"]) != clean,
    }


def _is_masked(given: Raw | None, admitted: Raw | None) -> bool:
    return given is not None and admitted is not None and clean_value(given.value) != admitted.value


# finished records


def finish(
    record: R, sanitiser: Sanitiser, *, number: dict[str, int], counter: Counter, put: PutBlob
) -> tuple[R, bytes]:
    """Return a record as every reader will get it, and its line.

    `number` is the field that numbers the record, with its value. A time and a count of tokens that are given stay.
    """
    record = sanitiser.record(record)
    stamps: dict[str, Any] = dict(number)
    if not record.timestamp:  # type: ignore[attr-defined]
        stamps["timestamp"] = now()
    if isinstance(record, Message):
        if not record.tokens:
            stamps["tokens"] = counter.message(record)
        if record.raw is not None:
            stamps["raw"] = _offload_raw(record.raw, put)
        if record.tool_calls or not isinstance(record.content, str) or len(record.content) > MAX_INLINE_BYTES // 4:
            stamps |= _offload_large_parts(record, put)
    line = _encode(msgspec.structs.replace(record, **stamps))
    if len(line) > MAX_LINE_BYTES:
        raise UsageError(
            f"A {type(record).__name__} has {len(line):,} bytes; a line holds at most {MAX_LINE_BYTES:,}.",
            hint="Store large data as a blob (`put`) and name it in the record.",
        )
    return check(line, type(record)), line


def _encode(record: Record) -> bytes:
    """Return the line of a record. Values that no encoder knows are replaced by plain ones first."""
    try:
        return encode_line(record)
    except (UnicodeEncodeError, TypeError):  # a lone surrogate, or a value of another library
        try:
            return encode_line(clean_record(record))
        except msgspec.ValidationError as error:
            hint = "orihon.records describes the fields."
            raise UsageError(f"A {type(record).__name__} cannot be stored: {error}.", hint=hint) from error


def _offload_large_parts(message: Message, put: PutBlob) -> dict[str, Any]:
    """Put pictures and long texts into blobs; return the fields of the message that change."""
    changes: dict[str, Any] = {}
    if isinstance(message.content, list):
        parts = [_offload_part(part, put) for part in message.content]
        changes |= {"content": parts} if parts != message.content else {}
    elif message.blob is None and (data := _encode_large(message.content)):
        changes |= {"blob": put(data), "content": message.content[:PREVIEW_CHARS]}
    if message.tool_calls:
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


def _offload_raw(raw: Raw, put: PutBlob) -> Raw:
    data = b"" if raw.blob is not None else msgspec.json.encode(raw.value)
    return Raw(blob=put(data)) if len(data) > MAX_INLINE_BYTES else raw


def sanitiser_for(settings: Settings, environ: Mapping[str, str] | None = None) -> Sanitiser:
    """Return the gate for some settings. It knows the secrets in them and in the environment."""
    given = KnownSecrets.gather(os.environ if environ is None else environ, list(iter_secrets(settings)))
    return Sanitiser(given, settings.masking.chosen)


# what is logged and shown

_guard = threading.Lock()
_listening: WeakSet[Sanitiser] = WeakSet()


def listen(sanitiser: Sanitiser) -> Sanitiser:
    """Mask what is logged and shown by this gate too, as long as it is in use."""
    with _guard:
        _listening.add(sanitiser)
    return sanitiser


def mask_output(text: str) -> str:
    """Mask a text that is logged or shown to users."""
    with _guard:
        gates = {(id(one.known), one.kinds): one for one in _listening}
    for gate in gates.values() or (_default(),):
        text = gate.text(text)
    return text


mask_with(mask_output)


@functools.cache
def _default() -> Sanitiser:
    return Sanitiser(KnownSecrets.gather(os.environ))


def _on_one_line(text: str) -> str:
    return escape(text).replace("\n", "\\n")


def mask_line(record: logging.LogRecord) -> bool:
    """Mask a line of the log before any handler sees it. A filter that lets every line through.

    Characters that control a terminal or begin a new line are written as codes.
    """
    try:
        said = record.getMessage()
    except Exception as error:  # noqa: BLE001 - a value of the caller's can do anything when it is read
        said = f"{safe_str(record.msg)} ({type(error).__name__}: its values cannot be shown)"
    record.msg, record.args = _on_one_line(mask_output(said)), None
    if record.exc_info:
        told = logging.Formatter().formatException(record.exc_info)
        masked = escape(mask_output(told))
        if masked != told:  # a handler that formats the error itself would show what it holds
            record.exc_info, record.exc_text = None, masked
    return True
