"""A message laid out in pieces, and put together again from those that were picked.

The words of the message and the long strings in its calls' arguments are cut into pieces. Short strings are the
frame, which stands as soon as anything of the unit does: a call with short arguments is always shown as it was.
"""

from __future__ import annotations

import json
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

from orihon.coerce import decode_json
from orihon.context.pieces import Mark, join, lay, size_bytes
from orihon.records import Call, Message

SHORT = 160  # characters; a shorter argument, or shorter words of the agent, are kept as they are
SHORT_RESULT = 60  # characters; a mark would save nothing
DEEP = 2000  # characters; a list or an object in the arguments that is longer is cut as one text


class Page:
    """The texts of one message in a row: its words, then every string of its arguments, a newline between them."""

    __slots__ = ("arguments", "fields", "message", "plain", "unit")

    def __init__(self, message: Message, unit: int, words: str, *, deep: int = DEEP) -> None:
        self.message = message
        self.unit = unit
        self.arguments = [_parse(call, deep) for call in message.tool_calls]
        self.fields = [words, *(string for value in self.arguments for string in _strings(value))]
        self.plain = "\n".join(self.fields)

    @property
    def written(self) -> bool:
        """Whether the agent or the user wrote it, not a tool."""
        return self.message.role != "tool"


class Sheet:
    """The pieces of a page: where each begins, what it costs in tokens, and which are kept."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.starts = array("q")  # arrays, because a fold lays out tens of thousands of pieces
        self.joined = bytearray()
        self.kept = bytearray()
        self.bounds = [0]  # the first piece of each field, and the end
        at = 0
        for number, field in enumerate(page.fields):
            starts, joined = lay(field, at)
            self.starts.extend(starts)
            self.joined.extend(joined)
            short = SHORT if number > 0 or page.written else SHORT_RESULT
            kept = bytearray([len(field) <= short]) * len(starts)
            if page.message.role == "user":
                kept[0] = kept[-1] = True  # beginning and end of what a person said stand in any case
            elif number == 0 and page.written and not page.message.tool_calls:
                kept[0] = True  # and how an answer begins
            self.kept.extend(kept)
            self.bounds.append(len(self.starts))
            at += len(field) + 1
        self.starts.append(at)
        self._weigh()

    def _weigh(self) -> None:
        plain, message = self.page.plain, self.page.message
        sizes = [end - start for start, end in pairwise(self.starts)]
        if not plain.isascii():
            sizes = [size_bytes(plain[start:end]) + 1 for start, end in pairwise(self.starts)]
        frame = sum(size_bytes(call.arguments) + len(call.name) for call in message.tool_calls)
        frame = max(0, frame - sum(sizes[self.bounds[1] :])) + 16
        rate = message.tokens / (sum(sizes) + frame)
        self.costs = array("d", [size * rate for size in sizes])
        hidden = sum(cost for cost, kept in zip(self.costs, self.kept, strict=True) if not kept)
        self.opening = sum(self.costs) - hidden + frame * rate + min(5.0, hidden)  # the frame, and a mark

    def around(self, at: int, size: int, context: int) -> tuple[int, int]:
        """First and last piece of the passage around a name: its line, and if that is short its neighbours too."""
        starts, joined = self.starts, self.joined
        end = len(joined) - 1
        first = last = bisect_right(starts, at, hi=end + 1) - 1
        alone = not joined[first] and (first == end or not joined[first + 1])
        line = self.page.plain[starts[first] : starts[first + 1]].strip()
        short = alone and len(line) < size + context // 2
        while first > 0 and starts[first] > at - context and (short or joined[first]):
            first -= 1
        while last < end and starts[last + 1] < at + size + context and (short or joined[last + 1]):
            last += 1
        return first, last

    def show(self, handle: str) -> tuple[str, dict[str, str]]:
        """Words and changed arguments with only the kept pieces."""
        message = self.page.message
        mark = Mark(handle, message.tokens / max(1, len(self.page.plain)) if message.role == "user" else 0)
        shown = []
        for number, field in enumerate(self.page.fields):
            first, end = self.bounds[number], self.bounds[number + 1]
            starts = [*self.starts[first:end], self.starts[first] + len(field)]
            shown.append(join(field, starts, self.joined[first:end], self.kept[first:end], mark))
        rest = iter(shown[1:])
        changed = {}
        for call, value in zip(self.page.message.tool_calls, self.page.arguments, strict=True):
            cut = _replaced(value, lambda _: next(rest))
            if cut != value or call.blob is not None:  # of a blob only the beginning is at hand
                text = json.dumps(cut, ensure_ascii=False, separators=(",", ":"))
                if call.blob is not None or size_bytes(text) < size_bytes(call.arguments):
                    changed[call.id] = text
        return shown[0], changed


def _parse(call: Call, deep: int) -> Any:
    """Return the arguments of a call as a value; a text that is not JSON becomes the only argument."""
    try:
        value = decode_json(call.arguments)  # strict: it takes no NaN and no half of a character
    except ValueError:
        return {"arguments": call.arguments} if call.arguments else {}
    if len(call.arguments) <= deep or not isinstance(value, dict):
        return value
    return {key: _flat(inner, deep) for key, inner in value.items()}


def _flat(value: Any, deep: int) -> Any:
    if not isinstance(value, dict | list):
        return value
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) > deep else value


def _strings(value: Any) -> Iterator[str]:
    """Every string in a value, in order; keys are left aside."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner)


def _replaced(value: Any, replace: Callable[[str], str]) -> Any:
    """Return the value with every string replaced; keys, numbers and order stay."""
    if isinstance(value, str):
        return replace(value)
    if isinstance(value, dict):
        return {key: _replaced(inner, replace) for key, inner in value.items()}
    if isinstance(value, list):
        return [_replaced(inner, replace) for inner in value]
    return value
