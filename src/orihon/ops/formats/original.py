"""The records of an imported session file, stored so that the file can be rebuilt.

Each record of a file becomes messages, or none. Long texts that a message holds are replaced in the record by a mark,
and the record is stored in the field `imported` of its first message, or as an event `imported` if it has no message or
is large:

    {"messages": 2, "records": [{"at": [17], "record": {"type": "user", "uuid": …, "content": {"$orihon": [0, …]}}}]}

`at` is the path to the record inside the file. `insert_texts` is the inverse of `extract_texts` for every record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from heapq import merge
from itertools import groupby, islice
from typing import Any, NoReturn

import msgspec

from orihon import codec
from orihon.coerce import decode_json
from orihon.context.events import Imported, sound
from orihon.errors import Conflict, Corrupt
from orihon.ops.blobs import load_blobs
from orihon.ops.formats.session_file import Parsed, RecordPath
from orihon.records import Event, Message, Metadata, Record
from orihon.stores.base import LISTS, Lease, Problem, Store
from orihon.terminal import encode_json_line

FIELD = "imported"
MARK = "$orihon"
VERBATIM = "as it is"  # the first item of a mark whose record looked like a mark
LARGE_BYTES = 256 * 1024  # a larger record is stored in a blob
MIN_MARKED_CHARS = 64  # a shorter text is stored twice
MAX_GAP = 100  # items of a list that may be missing before one

_ARGUMENTS = frozenset(("input", "arguments", "args"))


def append_parsed(lease: Lease, parsed: Parsed) -> None:
    """Append the messages, the first with the original records. Large records become an event with a blob."""
    records = [{"at": path, "record": extract_texts(value, parsed.messages)} for path, value in parsed.records]
    original: dict[str, Any] = {"messages": len(parsed.messages), "records": records}
    is_large = len(msgspec.json.encode(codec.clean_value(original))) > LARGE_BYTES
    for index, message in enumerate(parsed.messages):
        unknown = {FIELD: original} if index == 0 and not is_large else {}
        lease.append(msgspec.structs.replace(message, unknown=unknown))
    if is_large or not parsed.messages:
        after = lease.last(Message)
        if is_large:
            masked = msgspec.json.encode(lease.store.sanitiser.value(original))
            original = {"blob": msgspec.to_builtins(lease.put(masked))}
        lease.append(Event(id=0, after=after, type=FIELD, data=original, timestamp=""))


def render_original(store: Store, metadata: Metadata) -> Iterator[str]:
    """Yield the lines of the file that a task was imported from. Raise Conflict if it was not imported."""
    if not isinstance(metadata.unknown.get(FIELD), dict):
        sentence = f"Task {metadata.uuid} was not imported from a session file."
        raise Conflict(sentence, hint="Export it in another format.", retryable=False)
    for line, records in groupby(iter_originals(store, metadata.uuid), key=lambda item: _line_number(item[0])):
        value = rebuild_value((path if line is None else path[1:], record) for path, record in records)
        yield (value if isinstance(value, str) else encode_json_line(value)) + "\n"


def _line_number(path: RecordPath) -> int | None:
    """Return the line of a record; None if the file is one document."""
    return path[0] if path and isinstance(path[0], int) else None


def iter_originals(store: Store, uuid: str) -> Iterator[tuple[RecordPath, Any]]:
    """Yield the records of the imported file with their paths, in the order of the file."""
    yield from merge(_from_messages(store, uuid), _from_events(store, uuid), key=_sort_key)


def _sort_key(item: tuple[RecordPath, Any]) -> list[tuple[bool, int | str]]:
    return [(isinstance(step, str), step) for step in item[0]]


def _from_messages(store: Store, uuid: str) -> Iterator[tuple[RecordPath, Any]]:
    messages = store.read(uuid, Message)
    for message in messages:
        if FIELD in message.unknown:
            imported = _convert(message.unknown[FIELD])
            group = [message, *islice(messages, max(0, imported.messages - 1))]
            yield from _restore_records(store, uuid, imported, group)


def _from_events(store: Store, uuid: str) -> Iterator[tuple[RecordPath, Any]]:
    def report(event: Event, reason: str) -> None:
        store.report(Problem(uuid, LISTS[Event][0], event.id, reason))

    for event in sound(store.read(uuid, Event), report):
        if event.type != FIELD:
            continue
        imported = _convert(event.data)
        if imported.blob is not None:
            text = store.blob(uuid, imported.blob.sha256).decode("utf-8", "replace")
            imported = _convert(codec.parse_json_or_text(text))
        first = max(1, event.after - imported.messages + 1)
        group = store.read(uuid, Message, first=first, last=event.after) if imported.messages else ()
        yield from _restore_records(store, uuid, imported, group)


def _convert(original: Any) -> Imported:
    """Return the stored records of a file. The store may have been changed since."""
    try:
        return msgspec.convert(original, Imported)
    except (ValueError, RecursionError) as error:
        raise Corrupt(f"The imported file cannot be rebuilt: {error}.") from error


def _restore_records(
    store: Store, uuid: str, imported: Imported, group: Iterable[Message]
) -> Iterator[tuple[RecordPath, Any]]:
    messages = [load_blobs(store, uuid, message) for message in group]
    for kept in imported.records:
        yield kept.at, insert_texts(kept.record, messages)


def extract_texts(value: Any, messages: Sequence[Message]) -> Any:
    """Return the record with a mark for each long text that a message holds."""
    return _extract(value, {text: [index, *path] for index, path, text in _iter_texts(messages)}, "")


def insert_texts(value: Any, messages: Sequence[Message]) -> Any:
    """Return the original record, with the texts of the messages in place of the marks."""
    if isinstance(value, list):
        return [insert_texts(item, messages) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {MARK}:
        return _resolve_mark(value[MARK], messages)
    return {name: insert_texts(item, messages) for name, item in value.items()}


def rebuild_value(records: Iterable[tuple[RecordPath, Any]]) -> Any:
    """Return the value that the records make up: a line, or the document."""
    root: list[Any] = [None]
    for path, record in records:
        _insert(root, [0, *path], record)
    return root[0]


def _extract(value: Any, marks: dict[str, list[Any]], name: str) -> Any:
    if isinstance(value, str):
        return {MARK: marks[value]} if value in marks else value
    if isinstance(value, list):
        return [_extract(item, marks, "") for item in value]
    if not isinstance(value, dict):
        return value
    if name in _ARGUMENTS and marks:
        with suppress(UnicodeEncodeError):  # a lone surrogate, which the message does not have
            text = msgspec.json.encode(value).decode()
            if text in marks:
                return {MARK: [*marks[text], "json"]}
    if MARK in value:
        return {MARK: [VERBATIM, value]}
    return {key: _extract(item, marks, key) for key, item in value.items()}


def _iter_texts(messages: Sequence[Message]) -> Iterator[tuple[int, list[Any], str]]:
    """Yield the index of a message, the path to a text in it, and the text, for each long text."""
    for number, message in enumerate(messages):
        texts: list[tuple[list[Any], str | None]] = []
        if isinstance(message.content, str):
            texts.append((["content"], message.content))
        else:
            texts += [(["content", index, "text"], part.text) for index, part in enumerate(message.content)]
            texts += [(["content", index, "data"], part.data) for index, part in enumerate(message.content)]
        texts += [(["tool_calls", index, "arguments"], call.arguments) for index, call in enumerate(message.tool_calls)]
        for path, text in texts:
            if text is not None and len(text) >= MIN_MARKED_CHARS:
                yield number, path, text


def _resolve_mark(mark: Any, messages: Sequence[Message]) -> Any:
    first, *path = mark if isinstance(mark, list) and mark else [None]
    if first == VERBATIM and path:
        return path[0]
    value: Any = messages
    for step in (first, *path):
        if step == "json" and isinstance(value, str):
            try:
                return decode_json(value)
            except ValueError:  # masking can change it
                return value
        if isinstance(step, int) and isinstance(value, list | tuple) and 0 <= step < len(value):
            value = value[step]
        elif isinstance(step, str) and isinstance(value, Record) and step in value.__struct_fields__:
            value = getattr(value, step)
        else:
            _refuse("a mark leads nowhere")
    return value


def _insert(container: Any, path: RecordPath, record: Any) -> None:
    step: Any
    step, *rest = path
    if isinstance(container, list) and isinstance(step, int) and step < len(container) + MAX_GAP:
        container += [None] * (step + 1 - len(container))
    elif not (isinstance(container, dict) and isinstance(step, str)):
        _refuse("its parts do not fit together")
    if not rest:
        container[step] = record
        return
    if container[step] is None if isinstance(container, list) else container.get(step) is None:
        container[step] = [] if isinstance(rest[0], int) else {}
    _insert(container[step], rest, record)


def _refuse(reason: str) -> NoReturn:
    raise Corrupt(f"The imported file cannot be rebuilt: {reason}.")
