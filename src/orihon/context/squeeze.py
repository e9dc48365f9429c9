"""The last resort when a window is too full: stubs, the oldest units, and calls that can be spared.

Nothing here decides how much has to go; `window` asks for one step after the other. Each step makes something smaller,
so the steps come to an end, and what is left then is bounded whatever the log holds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from types import MappingProxyType

import msgspec

from orihon.context.fold import fold_content, words
from orihon.context.pick import LEFT_OUT, StandIn, apply
from orihon.context.ranges import Ranges, contains, joined
from orihon.context.shelf import Draft
from orihon.context.tree import Limits
from orihon.context.units import units_of
from orihon.records import Message

LEAST_TOKENS = 16  # a stub shorter than this says nothing any more
NEWEST_FACTOR = 8  # the newest unit, which is unanswered, may be so many times larger than the others


Worth = Callable[[Sequence[Message]], tuple[float, ...]]
MakeStub = Callable[[Message, int, AbstractSet[str]], StandIn]


class Squeezer:
    """The stand-ins, and what is left out whole, while a window is made smaller."""

    def __init__(
        self,
        whole: Mapping[int, Message],
        stand_ins: dict[int, StandIn],
        hidden: Ranges,
        *,
        always: AbstractSet[int],
        make_stub: MakeStub,
        worth: Worth | None = None,
        questions: Mapping[int, int] = MappingProxyType({}),
        slack: float = 0,
    ) -> None:
        self.stand_ins, self.hidden = stand_ins, hidden
        self.done: set[int] = set()  # what cannot be made smaller at this cap
        self._whole, self._always, self._make_stub = whole, always, make_stub
        self._worth = worth or _age
        self._questions = questions  # by the units that stand or are hidden with them
        self._slack = slack  # tokens by which more is cut than must be

    def make_smaller(self, draft: Draft, cap: int, excess: float, *, but: Iterable[int]) -> bool:
        """Put stubs in place of messages with more than `cap` tokens, the largest first, until the excess is gone.

        What is always shown, such as the first request, is cut no further than that.
        """
        free = self._whole.keys() - {*but, *self.done}
        newest = {message.seq for message in self._units()[-1]} if free else set()
        caps = {seq: max(LEAST_TOKENS, cap * NEWEST_FACTOR if seq in newest else cap) for seq in free}
        large = {
            message.seq: message.tokens  # what stands for missing results has the number of the call
            for message in reversed(draft.messages)
            if message.seq in free and message.tokens > caps[message.seq] and message.role != "system"
        }
        for seq, tokens in sorted(large.items(), key=lambda item: item[::-1], reverse=True):
            if excess <= 0:
                break
            least = int(tokens - excess - self._slack) if seq in self._always else 0
            made = self._make_stub(self._whole[seq], max(caps[seq], least), calls_left_out(self.stand_ins.get(seq)))
            self.stand_ins[seq] = made
            self.done.add(seq)
            excess -= tokens - made.tokens
        return bool(large)

    def leave_out_least(self, draft: Draft, excess: int) -> bool:
        """Leave out the units of the least worth, as many as the excess takes: not the newest, and none always shown.

        Without another worth they are the oldest. A question and its answer are left out together.
        """
        costs: Counter[int] = Counter()
        for message in draft.messages:
            costs[message.seq] += message.tokens
        found: list[int] = []
        for unit in sorted(self._exchanges()[:-1], key=self._worth):
            seqs = [message.seq for message in unit]
            if excess > 0 and self._always.isdisjoint(seqs):
                found += seqs
                excess -= sum(costs[seq] for seq in seqs)
        self._hide(found)
        return bool(found)

    def leave_out_calls(self) -> bool:
        """Leave out the older half of the items or calls of the newest unit, with their results; it keeps one."""
        units = self._units()
        if not units or not self._always.isdisjoint(message.seq for message in units[-1]):
            return False
        items = [message for message in units[-1] if message.role != "tool"]
        if len(items) > 1:
            self._leave_out_items(items[: len(items) // 2], units[-1])
            return True
        head, *results = units[-1]
        left = calls_left_out(self.stand_ins.get(head.seq))
        ids = list(dict.fromkeys(call.id for call in head.tool_calls if call.id not in left))
        spare = left | {*ids[: len(ids) // 2]}
        if spare == left:
            return False
        self.stand_ins[head.seq] = self._make_stub(head, LEAST_TOKENS, spare)
        self._hide([result.seq for result in results if result.tool_call_id in spare])
        return True

    def _leave_out_items(self, items: Iterable[Message], unit: Iterable[Message]) -> None:
        left_out = {message.seq: {call.id for call in message.tool_calls} for message in items}
        others = {call.id for message in unit if message.seq not in left_out for call in message.tool_calls}
        ids = set().union(*left_out.values()) - others
        self._hide([*left_out, *(message.seq for message in unit if message.tool_call_id in ids)])

    def _units(self) -> list[list[Message]]:
        return units_of(message for seq, message in self._whole.items() if not contains(self.hidden, seq))

    def _exchanges(self) -> list[list[Message]]:
        """The units, a question and its answer as one."""
        found: dict[int, list[Message]] = {}
        for unit in reversed(self._units()):
            found.setdefault(self._questions.get(unit[0].seq, unit[0].seq), [])[:0] = unit
        return [*found.values()][::-1]

    def _hide(self, seqs: Iterable[int]) -> None:
        self.hidden = joined((*self.hidden, *((seq, seq) for seq in seqs)))


def _age(unit: Sequence[Message]) -> tuple[float, ...]:
    return (unit[0].seq,)


def calls_left_out(stand_in: StandIn | None) -> AbstractSet[str]:
    """Return the calls that a stand-in does not show."""
    return {call for call, arguments in (stand_in.arguments if stand_in else {}).items() if arguments == LEFT_OUT}


def stub(
    message: Message,
    cap: int,
    *,
    count: Callable[[Message], int],
    handle: str,
    ui: Limits,
    without: AbstractSet[str] = frozenset(),
) -> StandIn:
    """Return a stand-in of about `cap` tokens, without some of the calls."""
    text = words(message, handle=handle)
    small = {call.id: "{}" for call in message.tool_calls if call.blob or len(call.arguments) > cap}
    small |= dict.fromkeys(without, LEFT_OUT)
    gap = f"[…{len(without):,} calls{handle and ', '}{handle}]" if without else ""
    chars = cap * 4
    user_rate = message.tokens / max(1, len(text)) if message.role == "user" else 0
    if message.tool_calls and count(apply(message, StandIn(message.seq, gap, small))) >= cap:
        chars = LEAST_TOKENS - 1  # the calls alone are too long: no word that is left out would help
    while True:
        shown = fold_content(text, max_chars=chars, handle=handle, ui=ui, user_rate=user_rate)
        made = StandIn(message.seq, "\n".join(filter(None, (shown, gap))), small)
        tokens = count(msgspec.structs.replace(apply(message, made), tokens=0))
        if tokens <= cap or chars < LEAST_TOKENS:
            return msgspec.structs.replace(made, tokens=tokens)
        chars = min(chars * 15 // 16, chars * cap // tokens)
