"""What the model gets: the messages of one request in any provider's format, the tools, and a report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from typing import Any, Literal, NamedTuple

import msgspec

from orihon.context import wire
from orihon.context.frame import Report
from orihon.records import Blob, Message, Role


class Item(NamedTuple):
    """One message of a window, and what it is of the log.

    `whole`: the message as it is stored. `folded`: a shortened or changed form of it. `mark`: words of the engine, such
    as a summary or the line for messages that are left out; `seq` is 0, or the message that it explains.
    """

    seq: int
    form: Literal["whole", "folded", "mark"]
    message: Message
    raw: Any  # what `add` got as `raw`, of a whole message


class Window:
    """The messages to send now; valid, and inside the budget."""

    def __init__(
        self,
        messages: list[Message],
        report: Report,
        *,
        whole: Mapping[int, Role],
        schemas: list[dict[str, Any]],
        model: str,
        load: Callable[[Blob], bytes],
        reserved_output: int = 0,
    ) -> None:
        self.messages = messages
        self.report = report
        self.reserved_output = reserved_output  # tokens that were left free for the reply
        self._whole, self._schemas, self._model, self._load = whole, schemas, model, load

    def replace(self, messages: Iterable[Message], report: Report | None = None) -> Window:
        """Return this window with other messages. A hook returns it, and then it is checked and counted."""
        other = copy(self)
        other.messages, other.report = list(messages), report or self.report
        return other

    def items(self) -> Iterator[Item]:
        """Yield the messages with what each is of the log, so that a caller can send its own objects."""
        places = Counter(message.seq for message in self.messages)
        for message in self.messages:
            seq = message.seq
            if seq and self._whole.get(seq) == message.role:
                yield Item(seq, "whole", message, raw_of(message, self._load))
            else:
                is_beside = not seq or (places[seq] > 1 and seq in self._whole)
                yield Item(seq, "mark" if is_beside else "folded", message, None)

    def openai(self) -> list[dict[str, Any]]:
        """Return the `messages` of a chat completion, for OpenAI and compatible servers."""
        return wire.openai(self.messages, model=self._model, load=self._load)

    def responses(self) -> list[dict[str, Any]]:
        """Return the `input` of OpenAI's Responses."""
        return wire.responses(self.messages, model=self._model, load=self._load)

    def anthropic(self) -> dict[str, Any]:
        """`system` and `messages` of Anthropic's Messages, with cache marks."""
        return wire.anthropic(self.messages, model=self._model, load=self._load)

    def gemini(self) -> dict[str, Any]:
        """`systemInstruction` and `contents` of Gemini."""
        return wire.gemini(self.messages, model=self._model, load=self._load)

    def tools(self, api: str = "openai") -> list[dict[str, Any]]:
        """Return the caller's tools with `unfold` and `recall`, as the API wants them described."""
        return wire.tools(self._schemas, api)

    @property
    def tokens(self) -> int:
        """What the messages cost by the counter of the task."""
        return self.report.tokens


def raw_of(message: Message, load: Callable[[Blob], bytes]) -> Any:
    """Return the raw form of a message; None if it has none."""
    raw = message.raw
    if raw is None or raw.blob is None:
        return None if raw is None else raw.value
    return msgspec.json.decode(load(raw.blob))
