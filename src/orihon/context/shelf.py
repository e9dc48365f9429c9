"""What the last window leaves for the next one, which then only adds what is new."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from orihon.context.arrivals import Arrivals
from orihon.context.frame import Texts
from orihon.context.pick import LEFT_OUT, StandIn, apply
from orihon.context.repair import Repairer
from orihon.context.view import State
from orihon.records import Message, Role

# of a view: what says which messages are shown, and how
SHOWN_BY = ("ranges", "folds", "summaries", "held", "prompt", "standing")


class Draft(msgspec.Struct, kw_only=True):
    """A window in the making: its messages, and what was counted on the way."""

    texts: Texts
    last: int  # message that was looked at
    request: int = 0
    told: int = 0  # of the news
    spared: set[str] = set()  # calls that are left out of a unit of many; their results are not shown either
    repairer: Repairer
    messages: list[Message] = []
    tokens: int = 0
    by_source: dict[str, int] = {}
    whole: int = 0
    unchanged: dict[int, Role] = {}  # the messages that are shown as they are stored
    folded: int = 0
    arrivals: Arrivals | None = None
    cut: set[int] = set()  # messages that came after the last batch and are not shown whole
    ending: int = 0  # tokens of a last word that no message of the log says

    def sources(self) -> dict[str, int]:
        """Return the tokens by source, the last word among the user's."""
        more = {"user": self.by_source.get("user", 0) + self.ending} if self.ending else {}
        return self.by_source | more


class Shelf:
    """The last window and its messages as it showed them, so that the next one only adds what is new.

    It is no larger than a window, belongs to one task, and is emptied by whatever changes what is shown of them; but
    of a new fold it takes over what that left whole or only made shorter.
    """

    def __init__(self) -> None:
        self.state: State | None = None
        self.stand_ins: Mapping[int, StandIn] = {}
        self.messages: dict[int, Message] = {}
        self.always: dict[int, Message] = {}
        self.draft: Draft | None = None
        self.limited: set[int] = set()  # results whose trees are shown inside the limits

    def look_at(self, state: State, stand_ins: Mapping[int, StandIn]) -> None:
        """Keep what is there as long as the same messages are shown in the same way."""
        before = self.state
        changed = [name for name in SHOWN_BY if getattr(before, name, None) != getattr(state, name)]
        if before is None or changed not in ([], ["folds"]) or before.news != state.news[: len(before.news)]:
            self.messages, self.always, self.draft = {}, {}, None
        elif changed:
            self._fold(stand_ins)
        self.state, self.stand_ins = state, stand_ins

    def _fold(self, stand_ins: Mapping[int, StandIn]) -> None:
        """Show messages by other stand-ins; where one hid what the other shows, the message has to be read again."""
        known, self.messages, self.draft = self.messages, {}, None
        for seq, message in known.items():
            before, now = self.stand_ins.get(seq), stand_ins.get(seq)
            if now is not None and (before is None or _shortens(before, now)):
                self.messages[seq] = apply(message, now)
            elif now is before is None:
                self.messages[seq] = message


def _shortens(before: StandIn, now: StandIn) -> bool:
    """Return whether the old stand-in leaves out no call, and shortens none that the new one shows whole."""
    return LEFT_OUT not in before.arguments.values() and before.arguments.keys() <= now.arguments.keys()
