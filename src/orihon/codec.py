"""Encode records as JSON lines and decode them, for every store.

Values that a store or a provider would refuse are replaced before they are stored:

| input                                          | stored                                                   |
|------------------------------------------------|----------------------------------------------------------|
| a surrogate pair                               | the character it stands for                              |
| a lone surrogate; bytes that are not UTF-8     | U+FFFD; the record is marked `cleaned`                   |
| NUL                                            | U+2400, the symbol for NUL; the record is marked `cleaned` |
| NaN, Infinity                                  | the text "NaN", "Infinity", "-Infinity"                  |
| an integer of more than 4,300 digits           | its hexadecimal text                                     |
| values nested deeper than 200 levels           | a note in their place; JSON text is kept as text instead |
| a value that contains itself                   | a note in its place                                      |
| a BOM or NULs before a line, CR or NULs after it | nothing                                                |
| U+2028, U+0085 and other Unicode line ends     | unchanged: only LF ends a line                           |
| a line of more than 16 MiB                     | not read; reported with its length                       |

Some SQLite functions cut text at a NUL, PostgreSQL refuses it, and no provider accepts a lone surrogate. The limit is
200 levels because older versions of jq stop at 256.
"""

from __future__ import annotations

import functools
import json
import math
import re
from datetime import UTC, datetime
from typing import Any, NoReturn, TypeVar

import msgspec

from orihon.coerce import EXACT, decode_json, unwrap
from orihon.errors import Corrupt, UsageError
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

MAX_LINE_BYTES = 16 * 1024 * 1024
MAX_DEPTH = 200
MAX_DIGITS = 4300  # Python refuses to print or parse longer integers
TOO_DEEP = f"[nested deeper than {MAX_DEPTH} levels]"
IN_ITSELF = "[nested in itself]"

R = TypeVar("R", bound=Record)

_NESTED: dict[type[Record], dict[str, type[Record]]] = {
    Message: {
        "content": Part,
        "tool_calls": Call,
        "usage": Usage,
        "window": Sent,
        "native": Native,
        "raw": Raw,
        "blob": Blob,
        "issue": Issue,
    },
    Part: {"blob": Blob},
    Call: {"blob": Blob},
    Raw: {"blob": Blob},
}
_V2_NAMES: dict[type[Record], dict[str, str]] = {
    Message: {"token_count": "tokens", "is_summarized": "summarized"},
    Summary: {"summary_id": "id", "compression_ratio": "ratio", "created_at": "timestamp"},
    ToolCall: {"tool_name": "tool", "arguments": "args"},
    TaskRow: {"total_tokens_used": "total_tokens"},
}
_KINDS: tuple[type[Record], ...] = (
    *(Message, Summary, Fold, ToolCall, Event, PlanEntry, Metadata, TaskRow),
    *(Part, Call, Usage, Sent, Native, Raw, Blob, Issue),
)
_FIELDS = {kind: frozenset(kind.__struct_fields__) - {"unknown"} for kind in _KINDS}
_DECODERS: dict[type[Record], msgspec.json.Decoder[Any]] = {kind: msgspec.json.Decoder(kind) for kind in _KINDS}
_ENCODER = msgspec.json.Encoder()

_USUAL = range(-(2**63), 2**63)
_CONTAINERS = frozenset((dict, list, tuple, set, frozenset))
_BOM = b"\xef\xbb\xbf"
_LONE_ESCAPE = re.compile(
    rb"(?<!\\)((?:\\\\)*)(?:(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)


def now() -> str:
    """Return the current time in the stored form."""
    return datetime.now(UTC).isoformat(timespec="microseconds")[:-6] + "Z"


def format_time(moment: datetime) -> str:
    """Return a time in the stored form: UTC, microseconds, fixed width, so that text order is time order."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")[:-6] + "Z"


def encode_line(record: Record) -> bytes:
    """Return the record as one JSON line with its newline. Unknown fields come last."""
    return encode(record) + b"\n"


def encode(record: Record) -> bytes:
    """Return the record as one compact JSON object with its keys in a fixed order."""
    data = _ENCODER.encode(record)
    return data if b'"unknown":' not in data else _ENCODER.encode(_flatten(record))


def check(line: bytes, kind: type[R]) -> R:
    """Decode a line that is about to be written; raise UsageError if a reader would refuse it."""
    try:
        record: R = _DECODERS[kind].decode(line)
    except (ValueError, RecursionError) as error:
        if isinstance(error, msgspec.ValidationError) and "unknown field" in str(error):
            return _decode_tolerantly(line, kind)  # fields of other versions are kept
        raise UsageError(f"The {kind.__name__} cannot be stored: {error}.", hint="See orihon.records.") from error
    return record if b'"unknown":' not in line else _decode_tolerantly(line, kind)


def decode_line(line: bytes, kind: type[R]) -> R:
    """Decode one line, including old, foreign and slightly damaged ones; raise Corrupt if that is impossible."""
    if len(line) > MAX_LINE_BYTES:
        _raise_corrupt(f"the line has {len(line):,} bytes, more than {MAX_LINE_BYTES:,}")
    try:
        record: R = _DECODERS[kind].decode(line)
    except (ValueError, RecursionError):
        return _decode_tolerantly(line, kind)
    return record if b'"unknown":' not in line else _decode_tolerantly(line, kind)


def clean_text(text: str) -> str:
    """Replace the characters that JSON, SQLite or PostgreSQL would refuse; return the same object if there are none.

    An instance of a subclass of `str` becomes a plain `str`, because encoders do not know the subclass.
    """
    if type(text) is not str:
        text = str.__str__(text)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            # UTF-16 joins surrogate pairs, so that only lone surrogates are replaced
            text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text.replace("\0", "\u2400") if "\0" in text else text


def clean_value(value: Any, *, outer: tuple[Any, ...] = ()) -> Any:  # noqa: PLR0911 - one line per kind of value
    """Return a value that every store can hold. Values without a JSON equivalent become text."""
    plain = value if type(value) in EXACT else unwrap(value)
    kind = type(plain)
    if kind is str:
        return clean_text(plain)
    if plain is None or kind is bool:
        return plain
    if kind is int:
        return plain if plain.bit_length() < MAX_DIGITS * 3 else hex(plain)
    if kind is float:
        return plain if math.isfinite(plain) else str(plain).replace("inf", "Infinity").replace("nan", "NaN")
    if kind not in _CONTAINERS:
        return clean_text(plain.decode("utf-8", "replace") if kind is bytes else safe_str(plain))
    if len(outer) >= MAX_DEPTH:
        return TOO_DEEP
    if any(value is container for container in outer):
        return IN_ITSELF
    outer = (*outer, value)
    value = plain
    if kind is dict:
        return {_clean_key(key): clean_value(item, outer=outer) for key, item in value.items()}
    # fast path: some lists hold thousands of ordinary integers
    return [item if type(item) is int and item in _USUAL else clean_value(item, outer=outer) for item in value]


def _clean_key(key: Any) -> str:
    return clean_text(key if type(key) is str else safe_str(unwrap(key)))


def safe_str(value: Any) -> str:
    """Return `str(value)`, or a note with its type if that raises."""
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - `__str__` of a foreign class can raise anything
        return f"[a {type(value).__name__} that cannot be shown]"


def clean_record(record: R) -> R:
    """Return the record with all of its values cleaned, at every level."""
    return msgspec.convert(clean_value(record), type(record))


def parse_json_or_text(text: str) -> Any:
    """Parse a JSON text; return the text itself if it is not JSON or is nested too deeply to be stored."""
    try:
        value = decode_json(text)
    except ValueError:
        return clean_text(text)
    return value if depth_fits(value) else clean_text(text)


def depth_fits(value: Any, limit: int = MAX_DEPTH) -> bool:
    """Return whether a value is nested no deeper than `limit`."""
    layer = [value]
    for _ in range(limit):
        layer = [
            child
            for item in layer
            if isinstance(item, dict | list)
            for child in (item.values() if isinstance(item, dict) else item)
        ]
        if not layer:
            return True
    return False


def _flatten(value: Any) -> Any:
    """Convert records to dicts, with the unknown fields at the level of the known ones."""
    if isinstance(value, list | tuple):
        return [_flatten(item) for item in value]
    if not isinstance(value, Record):
        return value
    kind = type(value)
    known = {
        field.encode_name: _flatten(getattr(value, field.name))
        for field in _get_fields(kind)
        if field.name != "unknown" and (field.required or getattr(value, field.name) != _get_default(field))
    }
    unknown: dict[str, Any] = getattr(value, "unknown", {})
    return known | {name: item for name, item in unknown.items() if name not in _FIELDS[kind]}


_get_fields = functools.cache(msgspec.structs.fields)  # resolving the annotations takes 0.4 ms per call


def _get_default(field: msgspec.structs.FieldInfo) -> Any:
    return field.default if field.default is not msgspec.NODEFAULT else field.default_factory()


def _decode_tolerantly(line: bytes, kind: type[R]) -> R:
    """Decode a line that the strict decoder refused."""
    data = line.strip(b"\0").removeprefix(_BOM)
    replaced = _LONE_ESCAPE.sub(lambda match: match[1] + (match[2] or b"\\ufffd"), data)
    text = clean_text(replaced.decode("utf-8", "replace"))
    try:
        value = json.loads(text, parse_int=_parse_int, parse_float=_parse_float, parse_constant=str)
        if not isinstance(value, dict):
            _raise_corrupt(f"the line holds {type(value).__name__}, not an object")
        fields = _sort_fields(value, kind)
        if "cleaned" in _FIELDS[kind] and text.encode() != data:
            fields["cleaned"] = True
        return msgspec.convert(fields, kind)
    except RecursionError as error:
        _raise_corrupt("the line is nested too deeply", error)
    except ValueError as error:
        _raise_corrupt(str(error), error)


def _parse_int(digits: str) -> int | str:
    return int(digits) if len(digits) <= MAX_DIGITS else digits


def _parse_float(digits: str) -> float | str:
    number = float(digits)
    return number if math.isfinite(number) else digits


def _sort_fields(value: dict[str, Any], kind: type[Record]) -> dict[str, Any]:
    """Rename the fields of version 2 and collect unknown fields under `unknown`, at every level."""
    fields: dict[str, Any] = {}
    unknown: dict[str, Any] = {}
    for name, item in _upgrade_names(value, kind).items():
        if name not in _FIELDS[kind]:
            unknown[name] = item
        elif inner := _NESTED.get(kind, {}).get(name):
            fields[name] = _sort_nested(item, inner)
        else:
            fields[name] = item
    return fields | {"unknown": unknown}


def _sort_nested(item: Any, kind: type[Record]) -> Any:
    if isinstance(item, list):
        return [_sort_nested(part, kind) for part in item]
    return _sort_fields(item, kind) if isinstance(item, dict) else item


def _upgrade_names(value: dict[str, Any], kind: type[Record]) -> dict[str, Any]:
    renamed = {old: new for old, new in _V2_NAMES.get(kind, {}).items() if new not in value}
    value = {renamed.get(name, name): item for name, item in value.items()}
    call = value.get("function_call")
    if kind is Message and isinstance(call, dict) and "tool_calls" not in value:
        del value["function_call"]
        arguments = call.get("arguments", "{}")
        text = arguments if isinstance(arguments, str) else _ENCODER.encode(arguments).decode()
        value["tool_calls"] = [{"id": f"seq-{value.get('seq')}", "name": str(call.get("name", "")), "arguments": text}]
    return value


def _raise_corrupt(reason: str, cause: BaseException | None = None) -> NoReturn:
    raise Corrupt(f"The line cannot be read: {reason}.") from cause
