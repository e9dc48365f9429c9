"""Turn any list of messages into one that every provider accepts.

The result is deterministic, and repairing it again changes nothing.

What a repaired list promises:

- system messages stand first and nowhere else; a later one becomes the user's, marked as a note;
- the first of the others is the user's; where the assistant would begin, one fixed line goes before it;
- an assistant's calls are followed at once by one result each, in the order of the calls. A result that stands
  elsewhere is moved there, a missing one says that it was interrupted, a second one is left out (a real one beats
  "interrupted"), and one whose call is not in the list becomes the user's text;
- every call has an id that is used once, a name that every provider takes, whether there is such a tool or not, and a
  JSON object as arguments (a text that is none stands in one, under `_raw`);
- nothing is blank: a blank message of the user's and a blank result say "(empty)", other blank messages are left out.

Messages of one role are not merged here: that would change a message that was sent before, and with it the cached
prefix. Formats that need it merge when they render. A message appended where no call is pending therefore changes
nothing before it. What is rewritten has `tokens=0` and is counted again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from orihon.parts import is_blank_part, iter_sent_ids, normalize_arguments, shorten_name
from orihon.records import Call, Message, Part, Record

INTERRUPTED = "[interrupted: the tool did not finish; nothing is known of its effect]"
EMPTY = "(empty)"
OPENING = "[the assistant's words come first]"
NOTE = "[note from the system]"

# what OpenAI, Anthropic and Gemini have in common
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}")
_FOREIGN = re.compile(r"[^a-zA-Z0-9_-]+")

R = TypeVar("R", bound=Record)
Count = Callable[[Message], int]


def repair(messages: Sequence[Message]) -> list[Message]:
    """Return the list as every provider accepts it. Messages that were already valid are the same objects."""
    repairer = Repairer()
    for message in messages:
        repairer.add(message)
    return repairer.messages()


def plain_name(name: str) -> str:
    """Return a tool's name in characters that every provider accepts. Different names stay different."""
    if _NAME.fullmatch(name):
        return name
    stem = _FOREIGN.sub("_", name)[:54]
    import hashlib  # noqa: PLC0415 - it loads OpenSSL, 4 MB

    digest = hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:8]
    return f"{stem}_{digest}" if _NAME.match(stem) else f"_{stem}_{digest}"


def is_blank(message: Message) -> bool:
    """Return whether there is nothing to show: no word, no picture, no file."""
    if message.blob is not None:
        return False
    if isinstance(message.content, str):
        return not message.content or message.content.isspace()
    return all(is_blank_part(part) for part in message.content)


@dataclass(slots=True)
class _Unit:
    """An assistant's message with calls, and the place of each result."""

    message: Message
    asked: list[Call]  # as the log has them, ids and names included
    results: list[Message | None] = field(default_factory=list)

    def take(self, result: Message) -> bool:
        """Put a result in its place; return False if it answers no call of this unit."""
        places = [place for place, call in enumerate(self.asked) if _answers(result, call)]
        for place in places:
            held = self.results[place]
            if held is None or (_is_synthetic(held) and not _is_synthetic(result)):
                self.results[place] = result
                break
        return bool(places)

    @property
    def settled(self) -> bool:
        """Whether every call has a result that cannot be replaced."""
        return all(result is not None and not _is_synthetic(result) for result in self.results)

    def answers(self) -> Iterator[Message]:
        """Return the results in the order of the calls, one each."""
        for call, result in zip(self.message.tool_calls, self.results, strict=True):
            yield _interrupted(self.message, call) if result is None else _placed(result, call)


class Repairer:
    """A list that is repaired while it grows. A unit that can no longer change is not examined again.

    With `count`, rewritten messages are counted at once, each only once.
    """

    def __init__(self, count: Count | None = None) -> None:
        self._count = count
        self._kept: list[Message | _Unit] = []
        self._by_id: dict[str, _Unit] = {}  # the newest unit with the id: some servers start again at call_0 each time
        self._newest: _Unit | None = None
        self._used: set[str] = set()
        self._began = False
        self._repaired: list[Message] = []  # what has become of those that nothing can change any more
        self._settled = 0

    def add(self, message: Message) -> None:
        """Add a message at the end."""
        kept = self._kept
        if message.role == "tool":
            unit = self._by_id.get(message.tool_call_id) if message.tool_call_id else self._newest
            if unit is None or not unit.take(message):
                kept.append(_said_by_user(message, _orphan_mark(message)))
        elif message.role == "assistant" and message.tool_calls:
            self._newest = _unit(message, self._used)
            self._by_id |= {call.id: self._newest for call in message.tool_calls}
            kept.append(self._newest)
        elif message.role == "system" and self._began and not is_blank(message):
            kept.append(_said_by_user(message, NOTE))
        elif not is_blank(message):
            kept.append(message)
        elif message.role == "user":
            kept.append(_changed(message, content=EMPTY, tokens=0))
        self._began = self._began or (bool(kept) and not _is_system(kept[-1]))

    def messages(self) -> list[Message]:
        """Return the repaired list so far."""
        for item in self._kept[self._settled :]:
            if isinstance(item, _Unit) and not item.settled:
                break
            self._put(self._repaired, item)
            self._settled += 1
        repaired = self._repaired.copy()
        for item in self._kept[self._settled :]:
            self._put(repaired, item)
        return repaired

    def _put(self, repaired: list[Message], item: Message | _Unit) -> None:
        message = item.message if isinstance(item, _Unit) else item
        if message.role == "assistant" and (not repaired or repaired[-1].role == "system"):
            repaired.append(self._counted(_of_user(message, OPENING)))
        repaired.append(self._counted(message))
        if isinstance(item, _Unit):
            repaired += map(self._counted, item.answers())

    def _counted(self, message: Message) -> Message:
        if message.tokens or self._count is None:
            return message
        return msgspec.structs.replace(message, tokens=self._count(message))


def _is_system(item: Message | _Unit) -> bool:
    return isinstance(item, Message) and item.role == "system"


def _unit(message: Message, used: set[str]) -> _Unit:
    calls = []
    for position, call in enumerate(message.tool_calls):
        call_id = call.id
        if not call_id.strip() or not used.isdisjoint(iter_sent_ids(call_id)):
            call_id = f"m{message.seq}-{position}"
            while call_id in used:
                call_id += "x"
        used.update(iter_sent_ids(call_id))
        arguments = (
            call.arguments
            if call.blob is not None
            else normalize_arguments(call.arguments if call.arguments.strip() else "{}")
        )
        calls.append(_changed(call, id=call_id, name=plain_name(call.name), arguments=arguments))
    asked = message.tool_calls
    if calls != asked:
        message = msgspec.structs.replace(message, tool_calls=calls, tokens=0)
    return _Unit(message, asked, [None] * len(calls))


def _answers(result: Message, call: Call) -> bool:
    if result.tool_call_id:
        return result.tool_call_id == call.id
    return not result.tool_name or result.tool_name == call.name


def _is_synthetic(result: Message) -> bool:
    return result.is_error and result.content == INTERRUPTED


def _placed(result: Message, call: Call) -> Message:
    if result.tool_call_id != call.id or result.tool_name != call.name:
        result = msgspec.structs.replace(result, tool_call_id=call.id, tool_name=call.name, tokens=0)
    return _changed(result, content=EMPTY, tokens=0) if is_blank(result) else result


def _interrupted(message: Message, call: Call) -> Message:
    return Message(
        seq=message.seq,
        role="tool",
        tool_name=call.name,
        tool_call_id=call.id,
        content=INTERRUPTED,
        is_error=True,
        timestamp=message.timestamp,
        tokens=0,
    )


def _orphan_mark(result: Message) -> str:
    what = "error" if result.is_error else "result"
    return f"[{what} of {shorten_name(result.tool_name or '') or 'a tool'}, whose call is not shown]"


def _said_by_user(message: Message, mark: str) -> Message:
    """Return the message as the user's, with a mark before it."""
    if is_blank(message):
        return _of_user(message, f"{mark}\n{EMPTY}")
    if isinstance(message.content, list):
        return _of_user(message, [Part(type="text", text=mark), *message.content])
    if message.blob is None:
        return _of_user(message, f"{mark}\n{message.content}")
    return _of_user(message, [Part(type="text", text=mark), Part(type="text", text=message.content, blob=message.blob)])


def _of_user(message: Message, content: str | list[Part]) -> Message:
    return Message(seq=message.seq, role="user", content=content, timestamp=message.timestamp, tokens=0)


def _changed(record: R, **fields: Any) -> R:
    for name, value in fields.items():
        if value != getattr(record, name):
            return msgspec.structs.replace(record, **fields)
    return record
