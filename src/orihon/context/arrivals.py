"""How much is shown of results that come after a batch of folds, so that the next batch is many turns away.

Where eight of even the smallest of the newest turns would take more than most of the window, each later turn takes its
share of the room that the batch left, if the share is large enough to be of use. What is shown depends only on the log
and on what was stored with the batch, so a result that is cut when it first enters a window stays cut in the same way
until the next batch.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from orihon.context.recall import RECALL, UNFOLD
from orihon.records import Message

FITTING = 8  # turns that should fit between two batches
LOOKED_AT = 12  # newest turns that say how large they are
LEAST_TURNS, MOST_TURNS = 10, 20  # among which the room is shared
ROOM_OF_TURN = 1000  # tokens of room for which there is one turn more
USEFUL = 160  # tokens of a share; where it is less, no room is shared, and a result gets what the limit leaves
LEAST = 64  # tokens of a result that are shown in any case: the words for an interrupted call are shorter

ANSWERS = frozenset(str(tool["function"]["name"]) for tool in (UNFOLD, RECALL))  # what was asked for comes whole


class Shared(msgspec.Struct, frozen=True):
    """The room that a batch left for large turns, and the message after which they come."""

    after: int
    tokens: int

    @property
    def turns(self) -> int:
        """The number of turns that share the room."""
        return min(MOST_TURNS, LEAST_TURNS + self.tokens // ROOM_OF_TURN)

    @property
    def is_useful(self) -> bool:
        """Whether a share shows enough of a result."""
        return self.tokens >= USEFUL * self.turns


class Arrivals:
    """The messages since a batch, in order, and how much of each is shown."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._turns = 0
        self._spent = 0  # tokens of this turn

    def most(self, message: Message) -> int | None:
        """Return how many tokens of a message are shown; None if it stays whole whatever it takes."""
        shared = self._shared
        if message.seq <= shared.after or message.role != "tool" or message.tool_name in ANSWERS:
            return None
        return max(LEAST, shared.tokens // shared.turns - self._spent) if self._turns <= shared.turns else None

    def take(self, message: Message) -> None:
        """Count a message as it is shown."""
        if message.seq > self._shared.after:
            is_reply = message.role == "assistant"
            self._turns += is_reply
            self._spent = message.tokens if is_reply else self._spent + message.tokens


def turn_sizes(messages: Iterable[Message]) -> list[int]:
    """Return the tokens of each turn: a reply, and what follows until the next one."""
    turns: list[int] = []
    for message in messages:
        if message.role == "assistant":
            turns.append(message.tokens)
        elif turns:
            turns[-1] += message.tokens
    return turns


def smallest_turn(messages: Iterable[Message]) -> int:
    """Return the tokens of the smallest of the newest turns; one alone says nothing."""
    turns = turn_sizes(messages)
    return min(turns[-LOOKED_AT:]) if turns[1:] else 0
