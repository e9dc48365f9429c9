"""What the last window leaves for the next one, which then only adds what is new."""

from __future__ import annotations

import msgspec

from orihon.context.frame import Texts
from orihon.context.repair import Repairer
from orihon.context.view import State
from orihon.records import Message

# of a view: what says which messages are shown, and how
SHOWN_BY = ("ranges", "folds", "summaries", "held", "standing")


class Draft(msgspec.Struct, kw_only=True):
    """A window in the making: its messages, and what was counted on the way."""

    texts: Texts
    last: int  # message that was looked at
    request: int = 0
    told: int = 0  # of the news
    repairer: Repairer
    messages: list[Message] = []
    tokens: int = 0
    by_source: dict[str, int] = {}
    whole: int = 0
    folded: int = 0


class Shelf:
    """The last window and its messages as it showed them, so that the next one only adds what is new.

    It is no larger than a window, belongs to one task, and is emptied by whatever changes what is shown of them.
    """

    def __init__(self) -> None:
        self.state: State | None = None
        self.messages: dict[int, Message] = {}
        self.always: dict[int, Message] = {}
        self.draft: Draft | None = None

    def look_at(self, state: State) -> None:
        """Keep what is there as long as the same messages are shown in the same way."""
        before = self.state
        if (
            before is None
            or any(getattr(before, name) != getattr(state, name) for name in SHOWN_BY)
            or before.news != state.news[: len(before.news)]
        ):
            self.messages, self.always, self.draft = {}, {}, None
        self.state = state
