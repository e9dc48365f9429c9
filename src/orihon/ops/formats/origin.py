"""What a session file said beyond its messages, kept so that the file can be told again word for word.

Each record of a file (a line, or an item of a list in it) becomes messages, or none. What the messages hold is taken
out of the record and a mark is left in its place; the rest is kept beside the first of the messages, in its field
`imported`, or as an event `imported` when there is no message or the rest is large:

    {"messages": 2, "records": [{"at": [17], "record": {"type": "user", "uuid": …, "content": {"$orihon": [0, …]}}}]}

`at` is the way to the record inside the file. `without` and `restored` are each other's inverse, whatever the record.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from orihon.coerce import decode_json
from orihon.errors import Corrupt
from orihon.records import Message, Record

FIELD = "imported"
MARK = "$orihon"
MAX_GAP = 100  # items of a list that may be missing before one
SHORTEST = 64  # a shorter text is kept twice rather than marked

_ARGUMENTS = frozenset(("input", "arguments", "args"))

At = list[int | str]


class Said(NamedTuple):
    """Records of a file and the messages that they make; without messages, they are only kept."""

    origin: list[tuple[At, Any]]
    messages: Sequence[Message] = ()


def without(value: Any, messages: Sequence[Message]) -> Any:
    """The record with a mark wherever a message holds the same text."""
    return _without(value, {text: [number, *path] for number, path, text in _texts(messages)}, "")


def restored(value: Any, messages: Sequence[Message]) -> Any:
    """The record as it was, from the rest and the messages."""
    if isinstance(value, list):
        return [restored(item, messages) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {MARK}:
        return _marked(value[MARK], messages)
    return {name: restored(item, messages) for name, item in value.items()}


def rebuilt(records: Iterator[tuple[At, Any]]) -> Any:
    """The whole file as one value: a list of lines, or the document."""
    root: list[Any] = [None]
    for at, record in records:
        _place(root, [0, *at], record)
    return root[0]


def _without(value: Any, marks: dict[str, list[Any]], name: str) -> Any:
    if isinstance(value, str):
        return {MARK: marks[value]} if value in marks else value
    if isinstance(value, list):
        return [_without(item, marks, "") for item in value]
    if not isinstance(value, dict):
        return value
    if name in _ARGUMENTS and marks:
        with suppress(UnicodeEncodeError):  # half a character: the message has another one in its place
            text = msgspec.json.encode(value).decode()
            if text in marks:
                return {MARK: [*marks[text], "json"]}
    if MARK in value:
        return {MARK: ["as it is", value]}
    return {key: _without(item, marks, key) for key, item in value.items()}


def _texts(messages: Sequence[Message]) -> Iterator[tuple[int, list[Any], str]]:
    for number, message in enumerate(messages):
        if isinstance(message.content, str):
            found: list[tuple[list[Any], str | None]] = [(["content"], message.content)]
        else:
            found = [(["content", place, "text"], part.text) for place, part in enumerate(message.content)]
            found += [(["content", place, "data"], part.data) for place, part in enumerate(message.content)]
        found += [(["tool_calls", place, "arguments"], call.arguments) for place, call in enumerate(message.tool_calls)]
        yield from ((number, path, text) for path, text in found if text is not None and len(text) >= SHORTEST)


def _marked(mark: Any, messages: Sequence[Message]) -> Any:
    first, *path = mark if isinstance(mark, list) and mark else [None]
    if first == "as it is" and path:
        return path[0]
    value: Any = messages
    for step in (first, *path):
        if step == "json" and isinstance(value, str):
            return _json(value)
        value = _step(value, step)
    return value


def _step(value: Any, step: Any) -> Any:
    """One step into a message; a mark from elsewhere leads nowhere else."""
    if isinstance(step, int) and isinstance(value, list | tuple) and 0 <= step < len(value):
        return value[step]
    if isinstance(step, str) and isinstance(value, Record) and step in value.__struct_fields__:
        return getattr(value, step)
    raise Corrupt("The file that the task was imported from cannot be told again: a mark in it leads nowhere.")


def _json(text: str) -> Any:
    try:
        return decode_json(text)
    except ValueError:  # a mask can make it something else
        return text


def _place(container: Any, at: At, record: Any) -> None:
    step: Any
    step, *rest = at
    if isinstance(container, list) and isinstance(step, int) and step < len(container) + MAX_GAP:
        container += [None] * (step + 1 - len(container))
    elif not (isinstance(container, dict) and isinstance(step, str)):
        raise Corrupt("The file that the task was imported from cannot be told again: its parts do not fit together.")
    if not rest:
        container[step] = record
        return
    if container[step] is None if isinstance(container, list) else container.get(step) is None:
        container[step] = [] if isinstance(rest[0], int) else {}
    _place(container[step], rest, record)
