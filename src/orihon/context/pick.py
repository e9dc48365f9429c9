"""Which lines of which old messages stay when the window is full, and what stands in place of the rest.

`pick` looks at the whole log, never at an earlier fold of it, and is a pure function: the same messages give the same
bytes. It is meant to be called rarely; between two calls nothing that was sent changes. What a caller says is frozen
stays as it was shown before. It promises:

- the system prompt, the first request, pinned units and the newest units stay whole, and of the newest messages those
  that are worth most for their size;
- a question and its answer stand or are left out together; the last question, which may be answered yet, stands;
- a unit, an assistant message with its results, stands or is left out as one; order and roles stay;
- kept lines are verbatim and in their order; every gap says how much it hides, and the first of a message its handle;
- arguments stay valid JSON with the same keys;
- all together take at most `budget` tokens by the counter in use. Only if what must stay whole is larger it may be
  more, and never more than `limit` unless what must stay whole is larger than that too;
- the first request takes at most a quarter of `limit`; the newest unit, which is unanswered, takes what is left;
- the others share the room by what they are worth, at most a tenth of `limit` each. What is left over goes to the
  newest of them, so that nothing is hidden while there is room.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from math import log
from types import MappingProxyType
from typing import Any, Protocol

import msgspec

from orihon.context.arrivals import ANSWERS
from orihon.context.choose import Chooser
from orihon.context.claims import Sheets, claims
from orihon.context.fold import superseded, words
from orihon.context.sheet import DEEP, SHORT, Page
from orihon.context.tree import Limits, fit_tree, is_ui_tool, parse_tree
from orihon.context.units import after_prompt, exchanges_of, units_of
from orihon.records import Message

FOLD_AT, FOLD_TO = 0.97, 0.58  # of the limit: fold rarely, and then a lot, so that a provider's cache holds
RECENT = 0.05  # of the limit: the newest units, which stay whole
NEAR = 0.25  # of the limit: other recent messages that stay whole, the small ones first
NEAREST = 24  # messages from the end: so many are recent
TOOLS_WEIGHT = 0.6  # a result is worth so much of what other messages are
FIRST_REQUEST, STAND_IN = 0.25, 0.1  # of the limit: what they may take at most
USERS = 0.12  # of the limit: what the user said since the first request, and the answers, newest first
SPARE = 0.015  # of the room: costs are estimated, and one token too many takes back all that was added last
USER_TOKENS = 80  # and of one message at most its beginning
UNANSWERED = 0.8  # of the limit: how far a newest unit that is too large for that fills the window
NEWEST = 0.9  # of the limit: how much may stay whole for the sake of the newest unit
RESERVE = 0.15  # of the limit: what old messages get even then
CONSIDERED_TOKENS = 400_000  # older messages are left out unseen, so that one fold never takes long
ROUNDS = 4
LEFT_OUT = ""  # in place of the arguments of a call that is not shown


class Counter(Protocol):
    """Counts what a message takes in the window."""

    def message(self, message: Message, /) -> int: ...


class StandIn(msgspec.Struct, frozen=True):
    """What the window shows instead of a message; a text of None leaves the message out."""

    seq: int
    text: str | None
    arguments: dict[str, str] = {}  # by call id, for the calls whose arguments were shortened; "" leaves a call out
    tokens: int = 0


def apply(message: Message, stand_in: StandIn) -> Message:
    """The message as the window shows it; not for one that is left out."""
    given = ((call, stand_in.arguments.get(call.id)) for call in message.tool_calls)
    calls = [
        call if arguments is None else msgspec.structs.replace(call, arguments=arguments, blob=None)
        for call, arguments in given
        if arguments != LEFT_OUT
    ]
    return msgspec.structs.replace(
        message, content=stand_in.text or "", tool_calls=calls, tokens=stand_in.tokens, blob=None, native=None, raw=None
    )


def pick(
    messages: Sequence[Message],
    *,
    budget: int,
    limit: int,
    counter: Counter,
    recent: float = RECENT,
    pinned: AbstractSet[int] = frozenset(),
    handles: bool = True,
    ui: Limits = Limits(),  # noqa: B008 - frozen
    frozen: int = 0,
    before: Mapping[int, StandIn] | None = None,
    large_turns: bool = False,
) -> dict[int, StandIn]:
    """The stand-ins of the messages that do not stay whole, by number; none if all fit into `budget` as they are.

    Messages up to the number `frozen` are shown as they were shown before.
    """
    plan = Plan(
        units_of(messages),
        budget=budget,
        limit=limit,
        recent=recent,
        pinned=pinned,
        frozen=frozen,
        before=before or {},
        large_turns=large_turns,
    )
    if plan.tokens <= plan.allowed:
        return {}
    return Fold(plan, counter, handles=handles, ui=ui).stand_ins()


class Plan:
    """What stays whole, what is considered, and what is left out unseen."""

    def __init__(
        self,
        units: list[list[Message]],
        *,
        budget: int,
        limit: int,
        recent: float,
        pinned: AbstractSet[int],
        frozen: int = 0,
        before: Mapping[int, StandIn] = MappingProxyType({}),
        large_turns: bool = False,
    ) -> None:
        self.units = units
        self.limit = limit
        self.before = before
        self.sizes = [sum(message.tokens for message in unit) for unit in units]
        self.tokens = sum(self.sizes)
        self.newest = len(units) - 1
        self.first = next((number for number, unit in enumerate(units) if unit[0].role == "user"), None)
        prompt = len(units) - len(after_prompt([unit[0] for unit in units]))
        self.whole = {
            number
            for number, unit in enumerate(units)
            if number < prompt
            or (number == self.first and self.sizes[number] <= FIRST_REQUEST * limit)
            or (pinned and any(message.seq in pinned for message in unit))
        }
        self.frozen = {
            number for number, unit in enumerate(units) if unit[-1].seq <= frozen and number not in self.whole
        }
        for number in self.frozen:
            self.sizes[number] = sum((before.get(message.seq) or message).tokens for message in units[number])
        self.whole |= self.frozen
        self.exchanges = exchanges_of(units)
        asked_for = any(message.tool_name in ANSWERS for message in units[-1]) if units else False
        newest = budget / limit if large_turns and not asked_for else NEWEST
        self._keep_recent(recent * limit, newest)
        taken = sum(self.sizes[number] for number in self.whole)
        self.allowed = max(budget, min(taken + RESERVE * limit, newest * limit))
        if self.newest not in self.whole and not large_turns:
            self.allowed = max(self.allowed, UNANSWERED * limit)
        self.room = self.allowed - taken
        self.considered = self._considered()

    def _keep_recent(self, room: float, newest: float) -> None:
        if not self.units:
            return
        head = sum(self.sizes[number] for number in self.whole)
        if self.newest not in self.whole and self.sizes[self.newest] + head > newest * self.limit:
            return  # not even the newest unit fits: it is cut like an old one
        for number in range(self.newest, -1, -1):
            if number in self.whole:
                continue
            if self.sizes[number] > room and number != self.newest:
                return
            self.whole.add(number)
            room -= self.sizes[number]

    def _considered(self) -> list[int]:
        found, seen = [], 0
        for number in range(self.newest, -1, -1):
            seen += self.sizes[number]
            if seen <= CONSIDERED_TOKENS or number in self.whole or number in (self.first, self.newest):
                found.append(number)
        return found[::-1]


class Fold:
    """One fold: lets the claims of the old pages compete, and measures what came out with the counter."""

    def __init__(self, plan: Plan, counter: Counter, *, handles: bool, ui: Limits) -> None:
        self._plan = plan
        self._counter = counter
        self._handles = handles
        self._pages = [self._page(message, number) for number in plan.considered for message in plan.units[number]]
        self._whole = [page.unit in plan.whole for page in self._pages]
        self._sheets = Sheets(self._pages)
        shares = {plan.first: FIRST_REQUEST, plan.newest: UNANSWERED}
        self._caps = [plan.limit * shares.get(page.unit, STAND_IN) for page in self._pages]
        self._chooser = Chooser(
            self._sheets, room=plan.room, caps=self._caps, whole=self._whole, exchanges=plan.exchanges
        )
        self._shown: dict[int, list[StandIn]] = {}  # by unit, as the chooser has them
        self._trees: dict[int, Any] = {}  # the values of pages that hold a tree, None for others
        self._ui = ui

    def _page(self, message: Message, unit: int) -> Page:
        # the newest unit stands in any case: if it must be cut, nothing of it may be uncuttable but short strings
        deep = SHORT if unit == self._plan.newest else DEEP
        if unit in self._plan.frozen and message.seq in self._plan.before:
            message = apply(message, self._plan.before[message.seq])
        return Page(message, unit, words(message, handle=self._handle(message)), deep=deep)

    def _handle(self, message: Message) -> str:
        return f"m{message.seq}" if self._handles else ""

    def stand_ins(self) -> dict[int, StandIn]:
        """Choose, measure, and choose again until the room is used and not exceeded."""
        chooser, plan = self._chooser, self._plan
        self._keep_what_must_stay()
        self._keep_near()
        self._keep_exchanges()
        stale = superseded(page.message for page in self._pages)
        chooser.offer(claims(self._sheets, self._whole, room=plan.room, stale=stale))
        changed = set(chooser.opened)
        for _ in range(ROUNDS):
            changed |= chooser.fill()
            chooser.room = plan.room - self._measure(changed)
            if chooser.room < 0 or not changed:
                break
            changed = set()
        self._fill_rest()
        while chooser.room < 0 and (changed := chooser.undo(-chooser.room)):
            chooser.room = plan.room - self._measure(changed)
        return self._collect()

    def _fill_rest(self) -> None:
        """Use the room that no claim wants for the newest messages."""
        spare = SPARE * self._plan.room
        for _ in range(ROUNDS):
            changed = set()
            for number in range(len(self._pages) - 1, -1, -1):
                if self._chooser.room < 2 * spare:
                    break
                is_free = not self._whole[number] and self._pages[number].unit != self._plan.first
                if is_free and self._chooser.take_rest(number, spare=spare):
                    self._caps[number] = self._plan.limit
                    changed.add(self._chooser.unit(number))
            if not changed:
                return
            self._chooser.room = self._plan.room - self._measure(changed)

    def _keep_what_must_stay(self) -> None:
        """Beginning and end of the first request and of the newest unit, where they are too large to stay whole."""
        for number, page in enumerate(self._pages):
            if page.unit in self._plan.whole:
                self._chooser.open(self._chooser.unit(number))  # with a question stands its answer
            if self._whole[number] or page.unit not in (self._plan.first, self._plan.newest):
                continue
            self._chooser.open(self._chooser.unit(number))
            if page.unit == self._plan.newest:
                room = (self._chooser.room - RESERVE * self._plan.limit) / (len(self._pages) - number)
                self._keep_ends(number, max(0.0, room))
            else:
                self._keep_ends(number, min(self._caps[number], self._chooser.room / 2) * 0.75)

    def _keep_near(self) -> None:
        """Keep recent messages whole, those that are worth most for their size first."""
        room = min(NEAR * self._plan.limit, self._chooser.room)
        density = {}
        for number, page in enumerate(self._pages):
            if self._whole[number] or page.unit in (self._plan.first, self._plan.newest):
                continue
            age = len(self._pages) - number
            if age > NEAREST:
                continue
            weight = 1 if page.written else TOOLS_WEIGHT
            density[number] = weight * max(1, page.message.tokens) ** -0.7 * log((age + 16) / age)
        for number in sorted(density, key=lambda number: -density[number]):
            tokens = self._pages[number].message.tokens
            if tokens <= room and self._chooser.take_whole(number):
                self._whole[number] = True
                self._caps[number] = self._plan.limit
                room -= tokens

    def _keep_ends(self, number: int, room: float) -> None:
        """Keep the beginning of a page, and half as much of its end."""
        costs = self._sheets[number].costs
        if sum(costs) <= room:
            self._chooser.take((number, 0, len(costs) - 1))
            return
        head = max(1, _reach(costs, room * 2 / 3))
        tail = _reach(costs[::-1], room / 3)
        self._chooser.take((number, 0, head - 1))
        self._chooser.take((number, max(head, len(costs) - tail), len(costs) - 1))

    def _keep_exchanges(self) -> None:
        """Keep what the user said and the answer to it, the newest first: a question without its answer misleads."""
        room = USERS * self._plan.limit
        answer = None  # the page of the last words before the next message of the user
        for number in range(len(self._pages) - 1, -1, -1):
            message = self._pages[number].message
            if message.role == "assistant" and not message.tool_calls and answer is None:
                answer = number
            if message.role != "user":
                continue
            exchange = [page for page in (number, answer) if page is not None and not self._whole[page]]
            room -= sum(min(self._pages[page].message.tokens, USER_TOKENS) for page in exchange)
            if room < 0:
                return
            for page in exchange:
                self._keep_ends(page, USER_TOKENS)
            answer = None

    def _measure(self, changed: AbstractSet[int]) -> int:
        for unit in changed:
            self._shown.pop(unit, None)
        for number in range(len(self._pages)):
            unit = self._chooser.unit(number)
            if unit in changed and unit in self._chooser.opened and self._pages[number].unit not in self._plan.whole:
                shown = self._show(number)
                while shown.tokens > self._caps[number] and self._chooser.shorten(number):
                    shown = self._show(number)
                self._shown.setdefault(unit, []).append(shown)
        return sum(stand_in.tokens for unit in self._shown.values() for stand_in in unit)

    def _show(self, number: int) -> StandIn:
        page = self._pages[number]
        message = page.message
        text, arguments = self._sheets[number].show(self._handle(message))
        if text != message.text:
            text = self._as_tree(number, text)
        if text == message.text and not arguments:
            return StandIn(message.seq, text, tokens=message.tokens)
        shown = StandIn(message.seq, text, arguments)
        return msgspec.structs.replace(shown, tokens=self._counter.message(apply(message, shown)))

    def _as_tree(self, number: int, text: str) -> str:
        """Return what is shown of a page; of a tree, which is no text in lines, as large a tree as the text was."""
        page = self._pages[number]
        if page.written:
            return text
        if number not in self._trees:
            is_ui = is_ui_tool(page.message.tool_name)
            self._trees[number] = parse_tree(page.fields[0], is_ui=is_ui)
        tree = self._trees[number]
        if tree is None:
            return text
        return fit_tree(tree, page.fields[0], max_chars=len(text), handle=self._handle(page.message), limits=self._ui)

    def _collect(self) -> dict[int, StandIn]:
        found: dict[int, StandIn] = {}
        shown = {stand_in.seq: stand_in for stand_ins in self._shown.values() for stand_in in stand_ins}
        for number, unit in enumerate(self._plan.units):
            if number in self._plan.frozen:
                found |= {m.seq: self._plan.before[m.seq] for m in unit if m.seq in self._plan.before}
            if number in self._plan.whole:
                continue
            for message in unit:
                stand_in = shown.get(message.seq) or StandIn(message.seq, None)
                if stand_in.arguments or stand_in.text != message.text:
                    found[message.seq] = stand_in
        return found


def _reach(costs: Sequence[float], room: float) -> int:
    """How many of the costs, from the first on, fit into the room."""
    for number, cost in enumerate(costs):
        room -= cost
        if room < 0:
            return number
    return len(costs)
