"""The window: the messages that are sent to the model now, folded so that they fit, and why.

`compose` is one pure step. It puts the visible messages in order, shows each whole or by its stand-in, makes the list
valid, and counts. Only when the window is fuller than `fold_at` a new batch of folds is made, down to `fold_to`. It
leaves the older part of the window as it was while that leaves room for more turns, and otherwise chooses again
from the log. The batch comes back with the window, and the caller stores it before the window is handed out. So between
two folds every window begins with the messages of the one before it.

    system prompt · sticky files · first request · note, summary, snapshot · messages: folded, then whole

A sticky file that changes between two folds is told of at the end, after the message that was the last one then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from math import ceil
from types import MappingProxyType

import msgspec

from orihon.context import ranges as number_ranges
from orihon.context.arrivals import FITTING, Arrivals, Shared, smallest_turn, turn_sizes
from orihon.context.frame import Batch, Budget, Composed, Policy, Report, Texts
from orihon.context.pick import CONSIDERED_TOKENS, StandIn, apply, pick
from orihon.context.policies import RECENT_SHARE, most_important, newest_that_fit
from orihon.context.ranges import Ranges, joined, without
from orihon.context.recall import hidden_mark
from orihon.context.repair import Repairer
from orihon.context.shelf import Draft, Shelf
from orihon.context.squeeze import LEAST_TOKENS, NEWEST_FACTOR, Squeezer, Worth, calls_left_out, stub
from orihon.context.sticky import Head, News
from orihon.context.tree import Limits, limit_trees
from orihon.context.units import is_prompt, questions_of, unit_at
from orihon.context.view import View
from orihon.context.wire.pieces import CONTINUE
from orihon.errors import BudgetTooSmall
from orihon.parts import Load, load_texts
from orihon.records import Message
from orihon.tokens import Counter

PAGE = 256  # messages that are read at a time
FIRST_PAGE = 16  # until it is known how large they are
OPENING = 16  # messages among which the system prompt and the first request are looked for
GAP = 64  # to read over a few hidden messages is cheaper than to start a new read after them
STAND_IN_SHARE = 0.1  # of the limit, for one message that is folded on its own
LARGE = 0.8  # of the limit: if eight turns take more, they have to share what a batch leaves
UNSETTLED = 0.2  # of a window: the newest, which the next batch changes
ADDED = 0.1  # of the limit: what a batch adds at least to the part that it leaves as it was
STICKY_SHARE = 0.75  # of the limit, for all sticky files

Read = Callable[[int, int], Iterable[Message]]  # the messages from one number to another, both included


def compose(
    view: View,
    read: Read,
    last: int,
    *,
    budget: Budget,
    counter: Counter,
    texts: Texts,
    stand_ins: Mapping[int, StandIn],
    handles: bool = True,
    policy: Policy = Policy(),  # noqa: B008 - it is frozen
    shelf: Shelf | None = None,
    load: Load | None = None,
    counted_from: int = 0,
) -> Composed:
    """The window now; with a new batch of folds when it had become too full.

    The stored tokens of messages before `counted_from` are not relied on.
    """
    shelf = shelf or Shelf()
    shelf.look_at(view.state, stand_ins)
    desk = _Desk(view, read, last, budget, counter, texts, handles, shelf, policy.ui, load, counted_from)
    if policy.name != "fold":
        return desk.chosen(policy)
    if desk.is_flooded():
        return desk.folded(None, f"it had far more than {budget.fold_at:.0%} of {budget.limit:,} tokens")
    folds = view.state.folds
    draft = desk.grown() or desk.draft(stand_ins, folds.hidden if folds else (), folds.snapshot if folds else "")
    shelf.draft = draft
    if draft.tokens <= budget.fold_at * budget.limit:
        return Composed(messages=draft.messages, whole=dict(draft.unchanged), report=desk.report(draft))
    return desk.folded(draft, f"it had {draft.tokens:,} tokens, more than {budget.fold_at:.0%} of {budget.limit:,}")


class _Desk:
    """Everything one window needs, laid out."""

    def __init__(  # noqa: PLR0917 - it is made in one place
        self,
        view: View,
        read: Read,
        last: int,
        budget: Budget,
        counter: Counter,
        texts: Texts,
        handles: bool,  # noqa: FBT001
        shelf: Shelf,
        ui: Limits,
        load: Load | None,
        counted_from: int,
    ) -> None:
        self.shelf, self.ui, self.load, self.counted_from = shelf, ui, load, counted_from
        self.view, self._read, self.last = view, read, last
        self.budget, self.counter, self.texts, self.handles = budget, counter, texts, handles
        self.folding = False  # whether a batch is being made
        self.marks = True  # whether a line stands for each run of hidden messages
        self.read_already: dict[int, Message] = {}  # whole, for a fold, so that they are read once
        self._show(texts.sticky, texts.news)
        covered = view.state.summary.ranges if view.state.summary else ()
        self.visible = number_ranges.upto(without(view.state.ranges, covered), last)
        self.always = shelf.always or self._always(view.state.held)
        if not shelf.always and any(message.role == "user" for message in self.always.values()):
            shelf.always = self.always  # before the first request it may change

    # which messages

    def read(self, first: int, last: int) -> Iterator[Message]:
        """The messages from one number to another, each with a count that holds."""
        return map(self._checked, self._read(first, last))

    def _checked(self, message: Message) -> Message:
        """The message with its trees inside the limits.

        It is counted again where another process counted it, or without knowing its number or its blobs.
        """
        limited = limit_trees(message, self.ui, handle=self._handle(message.seq), load=self.load)
        is_plain = isinstance(message.content, str) and message.blob is None
        if limited is not message:
            self.shelf.limited.add(message.seq)
        if limited is message and message.seq >= self.counted_from and is_plain:
            return message
        return msgspec.structs.replace(limited, tokens=self._count(limited))

    def _handle(self, seq: int) -> str:
        return f"m{seq}" if self.handles else ""

    def _always(self, pins: Iterable[int]) -> dict[int, Message]:
        """The system prompt, the first request, the pins, what is kept beside a summary: shown wherever they are."""
        found: dict[int, Message] = {}
        found |= {message.seq: message for message in self._prompt()}
        request = next(self._requests(), None)
        if request is not None:
            found[request.seq] = request
        beside = self.view.state.summary.kept if self.view.state.summary else ()
        for seq in (*pins, *beside):
            found |= {message.seq: message for message in self._unit(seq)}
        return found

    def _prompt(self) -> Iterator[Message]:
        """The system prompt."""
        if self.view.state.prompt is not None:
            yield from self.read(*self.view.state.prompt)
            return
        for place, message in enumerate(self.read(1, OPENING)):
            if not is_prompt(message, place):
                return
            yield message

    def _requests(self) -> Iterator[Message]:
        return (
            message
            for first, last in number_ranges.upto(self.view.state.ranges, self.last)[:4]
            for message in self.read(first, min(last, first + OPENING))
            if message.role == "user"
        )

    def _unit(self, seq: int) -> list[Message]:
        """A message with the results of its calls."""
        unit = unit_at(self.read(seq, min(self.last, seq + PAGE)))
        return unit if unit and unit[0].seq == seq else []

    def shown(self, hidden: Ranges) -> list[Message]:
        """What is visible and not left out, and what always is, in order."""
        wanted = {number for first, last in without(self.visible, hidden) for number in range(first, last + 1)}
        wanted -= self.always.keys()
        found = {number: message for number, message in self.shelf.messages.items() if number in wanted}
        found |= {number: self.read_already[number] for number in wanted & self.read_already.keys() - found.keys()}
        missing = joined((number, number) for number in wanted - found.keys())
        for first, last in number_ranges.coarse(missing, GAP):
            found |= {message.seq: message for message in self.read(first, last) if message.seq in wanted}
        return self._in_order(found)

    def _in_order(self, found: dict[int, Message]) -> list[Message]:
        """Messages with those that are always shown."""
        return [message for _, message in sorted((self.always | found).items())]

    # what they look like

    def draft(self, stand_ins: Mapping[int, StandIn], hidden: Ranges, snapshot: str) -> Draft:
        """The messages whole or by their stand-ins, with what stands beside them, made valid and counted."""
        draft = Draft(texts=self.texts, last=self.last, repairer=Repairer(self._count), arrivals=self._arrivals())
        rest = self.shown(hidden)
        prompt = {message.seq for message in self._prompt()}
        for message in [message for message in rest if message.seq in prompt]:
            self._show_whole(draft, "system", message)
        rest = [message for message in rest if message.seq not in prompt]
        if self.standing is not None:
            self._put(draft, "sticky files", self.standing)
        draft.request = next((message.seq for message in rest if message.role == "user"), 0)
        known, self.shelf.messages = self.shelf.messages, {}
        gaps = self._gaps(hidden) if self.marks else []
        for message in rest:
            stand_in = stand_ins.get(message.seq)
            if _is_spared(draft, message, stand_in):
                continue
            if message.role != "tool":
                self._mark(draft, gaps, message.seq)
            self._tell(draft, message.seq)
            ready = known.get(message.seq) is message
            shown = message if ready or stand_in is None else apply(message, stand_in)
            if stand_in is None:
                self._arrive(draft, shown)
            else:
                self.shelf.messages[message.seq] = shown
                self._put(draft, message.role, shown)
                draft.folded += 1
            if message.seq == draft.request:
                self._say(draft, "note", self.texts.note if stand_ins or hidden else "")
                self._say(draft, "summary", self.texts.summary)
                self._say(draft, "snapshot", snapshot)
        self._mark(draft, gaps)
        self._tell(draft)
        return self._counted(draft)

    def _gaps(self, hidden: Ranges) -> list[tuple[int, int]]:
        """The runs of messages that the window does not show, in order."""
        out = without(self.visible, without(self.visible, hidden))
        return list(without(out, joined((seq, seq) for seq in self.always)))

    def _mark(self, draft: Draft, gaps: list[tuple[int, int]], before: int = number_ranges.OPEN) -> None:
        """Say in one line how many messages are hidden before a message, and where they are."""
        run = []
        while gaps and gaps[0][1] < before:
            run.append(gaps.pop(0))
        if run:
            count = sum(last - first + 1 for first, last in run)
            self._say(draft, "marks", hidden_mark(count, run[0][0], run[-1][1], handles=self.handles))

    def is_flooded(self) -> bool:
        """Whether more was said since the last window than a fold looks at, so that nothing else need be read."""
        draft = self.shelf.draft
        seen = draft.last if draft else self._last_folded()
        if self.last - seen <= PAGE:
            return False
        _, older = self._considered(most=max(CONSIDERED_TOKENS, self.budget.limit))
        return bool(older) and older[-1][1] > seen

    def _last_folded(self) -> int:
        folds = self.view.state.folds
        return max([0, *self.shelf.stand_ins, *(last for _, last in (folds.hidden if folds else ()))])

    def grown(self) -> Draft | None:
        """The last draft with what was said since; None if something else has changed."""
        draft = self.shelf.draft
        if draft is None or not draft.request or draft.last > self.last or not _same(draft.texts, self.texts):
            return None
        since = number_ranges.after(self.visible, draft.last)
        for message in [message for first, last in since for message in self.read(first, last)]:
            if _is_spared(draft, message):
                continue
            self._tell(draft, message.seq)
            self._arrive(draft, message)
        self._tell(draft)
        draft.last = self.last
        return self._counted(draft)

    def _arrivals(self) -> Arrivals | None:
        folds = self.view.state.folds
        return Arrivals(folds.shared) if folds and folds.shared and not self.folding else None

    def _arrive(self, draft: Draft, message: Message) -> None:
        """Put a message there whole, or as much of it as what came after the last batch may take."""
        shown = message
        if draft.arrivals is not None and message.seq not in self.always:
            most = draft.arrivals.most(message)
            if most is not None and message.tokens > most:
                shown = self._cut(message, most)
            draft.arrivals.take(shown)
        if shown is message:
            self._show_whole(draft, message.role, message)
            self.shelf.messages[message.seq] = message
        else:
            self._put(draft, message.role, shown)
            draft.folded += 1
            draft.cut.add(message.seq)

    def _cut(self, message: Message, most: int) -> Message:
        """A message in about so many tokens; itself if that is not shorter."""
        stand_in = stub(message, most, count=self._count, handle=self._handle(message.seq), ui=self.ui)
        return apply(message, stand_in) if stand_in.tokens < message.tokens else message

    def _counted(self, draft: Draft) -> Draft:
        draft.messages = draft.repairer.messages()
        ends = bool(draft.messages) and draft.messages[-1].role in {"user", "tool"}
        draft.ending = 0 if ends else self._count(_said(CONTINUE))  # some formats end so
        draft.tokens = sum([message.tokens for message in draft.messages]) + draft.ending
        return draft

    def _put(self, draft: Draft, source: str, message: Message) -> None:
        tokens = message.tokens or self._count(message)
        draft.repairer.add(message if message.tokens else msgspec.structs.replace(message, tokens=tokens))
        draft.by_source[source] = draft.by_source.get(source, 0) + tokens

    def _show_whole(self, draft: Draft, source: str, message: Message) -> None:
        """Put a message there that is not folded."""
        self._put(draft, source, message)
        draft.whole += 1
        if message.seq not in self.shelf.limited:
            draft.unchanged[message.seq] = message.role

    def _say(self, draft: Draft, source: str, text: str) -> None:
        if text:
            self._put(draft, source, _said(text))

    def _tell(self, draft: Draft, before: int = number_ranges.OPEN) -> None:
        """Say what became known of the sticky files before a message."""
        while draft.told < len(self.news) and self.news[draft.told].after < before:
            self._say(draft, "sticky files", self.news[draft.told].text)
            draft.told += 1

    def _show(self, head: Head, news: Sequence[News] = ()) -> None:
        """Let these sticky files stand near the head, and this be told of them later."""
        self.head, self.news = head, news
        self._standing: Message | None = None

    @property
    def standing(self) -> Message | None:
        """The sticky files near the head; they are long, and counted when they are first needed."""
        if self._standing is None and (text := self.head.text):
            said = _said(text)
            self._standing = msgspec.structs.replace(said, tokens=self._count(said))
        return self._standing

    def _show_anew(self, room: int) -> None:
        """Let the sticky files stand there as they are now, in so many tokens."""
        self._show(self.texts.files.within(room))

    def _count(self, message: Message) -> int:
        return self.counter.message(load_texts(message, self.load))

    # by another policy

    def chosen(self, policy: Policy) -> Composed:
        """Return the window of a policy that chooses whole messages, for each window again."""
        self.shelf, self.marks = Shelf(), False  # these policies know no handles
        self.always = self._always(self.view.state.pins)
        self._show_anew(int(STICKY_SHARE * self.budget.limit))
        considered, older = self._considered()
        free = [message for message in considered if message.seq not in self.always]
        if policy.name == "importance":
            return self._important(policy.max_messages, free, older)
        fixed = sum(message.tokens for message in self.always.values()) + self._fixed(self.texts.summary)
        limit = min(int(policy.compression_threshold * self.budget.context_length), self.budget.limit)
        kept = newest_that_fit(free, max_tokens=limit - fixed)
        hidden = joined((*older, *((message.seq, message.seq) for message in free if message.seq not in kept)))
        draft, _ = self._squeezed({}, hidden, self.budget.limit)
        return Composed(
            messages=draft.messages,
            whole=dict(draft.unchanged),
            report=self.report(draft, ("chosen by the policy plain",)),
        )

    def _important(self, max_messages: int, free: Sequence[Message], older: Ranges) -> Composed:
        """The window of the most important messages; all that stands beside them counts as well."""
        room = max_messages - len(self.always)
        while True:
            choice = most_important(free, max_messages=max(1, room), recent=ceil(RECENT_SHARE * max_messages))
            out = ((message.seq, message.seq) for message in free if message.seq not in choice.kept)
            hidden = joined((*older, *out))
            last = room <= 1
            draft, _ = self._squeezed(
                {}, hidden, self.budget.limit, worth=choice.worth, max_messages=max_messages if last else None
            )
            if last or len(draft.messages) <= max_messages:
                break
            room -= len(draft.messages) - max_messages
        return Composed(
            messages=draft.messages,
            whole=dict(draft.unchanged),
            report=self.report(draft, ("chosen by the policy importance",)),
        )

    # when it is too full

    def folded(self, before: Draft | None, reason: str) -> Composed:
        """A new batch of folds over the visible log, and the window with it."""
        self.folding = True
        folds = self.view.state.folds
        between = int((self.budget.fold_at - self.budget.fold_to) * self.budget.limit)
        can_share = Shared(self.last, between).is_useful  # in a smaller window the newest turn needs all the room
        settled = folds.settled if folds and before and can_share and self._stays(before, folds.settled) else 0
        already = number_ranges.upto(folds.hidden, settled) if folds else ()
        stand_ins = self.shelf.stand_ins
        self.shelf = Shelf()  # folds are made of the messages themselves, not of what was shown
        self.always = self._always(self.view.state.pins)
        self._show_anew(int(STICKY_SHARE * self.budget.limit))
        considered, older = self._considered(already)
        fixed = self._fixed(self.texts.note, self.texts.summary, self.texts.snapshot)
        room = max(1, self.budget.limit - fixed)
        large_turns = can_share and FITTING * smallest_turn(considered) > LARGE * room
        picked = pick(
            considered,
            budget=max(1, int(self.budget.fold_to * room)),
            large_turns=large_turns,
            limit=room,
            counter=self.counter,
            pinned=frozenset(self.always),
            handles=self.handles,
            ui=self.ui,
            frozen=settled,
            before=stand_ins,
        )
        left_out = ((seq, seq) for seq, stand_in in picked.items() if stand_in.text is None)
        hidden = joined((*already, *older, *left_out))
        stand_ins = {seq: stand_in for seq, stand_in in picked.items() if stand_in.text is not None}
        questions = questions_of(considered)
        draft, hidden = self._squeezed(stand_ins, hidden, self.budget.fold_at * self.budget.limit, questions=questions)
        changed_at = first_change(before.messages if before else (), draft.messages)
        return Composed(
            messages=draft.messages,
            whole=dict(draft.unchanged),
            report=self.report(draft, (reason,), changed_at=changed_at),
            batch=Batch(
                tuple(stand_ins[seq] for seq in sorted(stand_ins)),
                hidden,
                self.texts.snapshot,
                self.head.room,
                max(settled, self._settled(draft, questions)),
                Shared(self.last, max(0, int(self.budget.fold_at * self.budget.limit) - draft.tokens))
                if large_turns
                else None,
            ),
        )

    def _stays(self, draft: Draft, settled: int) -> bool:
        """Whether enough room is left if what was settled stays: for eight average turns, or half of the most."""
        budget = self.budget
        taken = sum(message.tokens for message in draft.messages if message.seq <= settled)
        left = (budget.fold_at - ADDED) * budget.limit - taken
        head = sum(message.tokens for message in self.always.values()) + ADDED * budget.limit
        turns = turn_sizes(message for message in draft.messages if message.seq > settled) or [0]
        enough = (budget.fold_at * budget.limit - max(budget.fold_to * budget.limit, head)) / 2
        return left >= min(enough, FITTING * sum(turns) / len(turns))

    def _settled(self, draft: Draft, questions: Mapping[int, int]) -> int:
        """The last message that the next batch need not change; a question that is hidden is not cut off its answer."""
        room = UNSETTLED * draft.tokens
        shown = {message.seq for message in draft.messages}
        for message in reversed(draft.messages):
            room -= message.tokens
            if room < 0 and message.seq and message.role != "tool":
                last = message.seq - 1
                hidden = (asked for answer, asked in questions.items() if asked <= last < answer and asked not in shown)
                return min([last, *(asked - 1 for asked in hidden)])
        return 0

    def _fixed(self, *texts: str) -> int:
        """What stands beside the messages of the log, the sticky files among it."""
        beside = sum(self._count(_said(text)) for text in texts if text)
        return beside + (self.standing.tokens if self.standing else 0)

    def _considered(self, hidden: Ranges = (), *, most: int = CONSIDERED_TOKENS) -> tuple[list[Message], Ranges]:
        """The newest visible messages up to a cap, with those that are always shown, and the ranges before them."""
        known = self.read_already
        found = self.read_already = {}
        tokens, size = 0, FIRST_PAGE
        for first, last in reversed(tuple(without(self.visible, hidden))):
            end = last
            while end >= first:
                if tokens > most:
                    return self._in_order(found), number_ranges.upto(self.visible, end)
                begin = max(first, end - size + 1)
                numbers = range(begin, end + 1)
                page = {number: known[number] for number in numbers if number in known}
                if len(page) < len(numbers):
                    page = {message.seq: message for message in self.read(begin, end)}
                tokens += sum(message.tokens for message in page.values())
                found |= page
                end = begin - 1
                size = min(PAGE, 1 + (most - tokens) * len(found) // max(1, tokens))  # as many as are left
        return self._in_order(found), ()

    def _squeezed(
        self,
        stand_ins: dict[int, StandIn],
        hidden: Ranges,
        most: float,
        *,
        worth: Worth | None = None,
        questions: Mapping[int, int] = MappingProxyType({}),
        max_messages: int | None = None,
    ) -> tuple[Draft, Ranges]:
        """Fold whatever is left, the newest included, the largest first, then leave out the oldest, until it fits.

        With less than `most` it is not folded again at once; but for that alone nothing is left out. Calls are left
        out of the newest unit if it has more than `max_messages`.
        """
        limit = self.budget.limit
        whole = {message.seq: message for message in self.shown(hidden)}
        # a little less than the room down to `fold_to`: a stub may be shorter than it could be
        slack = 0.9 * max(0, most - self.budget.fold_to * limit) if self.folding else 0
        squeezer = Squeezer(
            whole,
            stand_ins,
            hidden,
            always=self.always.keys(),
            make_stub=self._stub,
            worth=worth,
            questions=questions,
            slack=slack,
        )
        cap = int(STAND_IN_SHARE * limit)
        while max_messages and len(self.draft(stand_ins, squeezer.hidden, self.texts.snapshot).messages) > max_messages:
            if not squeezer.leave_out_calls():
                break
        while (draft := self.draft(stand_ins, squeezer.hidden, self.texts.snapshot)).tokens > most:
            if squeezer.make_smaller(draft, cap, draft.tokens - most, but=self.view.state.pins):
                continue
            if cap > LEAST_TOKENS // NEWEST_FACTOR:
                cap //= 2
                squeezer.done.clear()
            elif draft.tokens <= limit:
                break
            elif squeezer.leave_out_least(draft, draft.tokens - limit):
                continue
            elif self.standing is not None:
                self._show_anew(self.head.tokens // 2)
            elif not squeezer.leave_out_calls():
                raise self._too_small(draft.tokens)
        return draft, squeezer.hidden

    def _stub(self, message: Message, cap: int, without: AbstractSet[str] = frozenset()) -> StandIn:
        """A stand-in of about `cap` tokens, which the next draft shows."""
        self.shelf.messages.pop(message.seq, None)
        return stub(message, cap, count=self._count, handle=self._handle(message.seq), ui=self.ui, without=without)

    def _too_small(self, needed: int) -> BudgetTooSmall:
        limit = self.budget.limit
        message = (
            f"The window needs at least {needed:,} tokens, {needed - limit:,} more than the {limit:,} that there are."
        )
        return BudgetTooSmall(message, needed=needed, allowed=limit)

    def report(self, draft: Draft, reasons: tuple[str, ...] = (), *, changed_at: int | None = None) -> Report:
        """What the window holds, by source."""
        visible = sum(last - first + 1 for first, last in number_ranges.upto(self.view.state.ranges, self.last))
        return Report(
            limit=self.budget.limit,
            tokens=draft.tokens,
            by_source=draft.sources(),
            whole=draft.whole,
            folded=draft.folded,
            left_out=max(0, visible - draft.whole - draft.folded),
            reserved=self.budget.reserved_output,
            reasons=reasons,
            changed_at=changed_at,
        )


def _same(one: Texts, other: Texts) -> bool:
    """Whether they say the same in the window; what is as it is now is not shown before the next fold."""
    return all(getattr(one, name) == getattr(other, name) for name in ("sticky", "summary", "note"))


def first_change(before: Sequence[Message], now: Sequence[Message]) -> int:
    """Return how many bytes two windows have in common at their beginning, each message as a line of JSON."""
    same = 0
    for old, new in zip(before, now, strict=False):
        if old is not new:
            lines = [_line(old), _line(new)]
            if lines[0] != lines[1]:
                differs = (at for at, (one, other) in enumerate(zip(*lines, strict=False)) if one != other)
                return same + next(differs, len(min(lines, key=len)))
        same += len(_line(new))
    return same


def _line(message: Message) -> bytes:
    calls = [(call.id, call.name, call.arguments) for call in message.tool_calls]
    return msgspec.json.encode((message.role, message.content, calls, message.tool_call_id)) + b"\n"


def _is_spared(draft: Draft, message: Message, stand_in: StandIn | None = None) -> bool:
    """Whether it answers a call that its unit leaves out; the calls of a message that is shown are noted."""
    for call in message.tool_calls:
        draft.spared.discard(call.id)
    draft.spared |= calls_left_out(stand_in)
    return message.role == "tool" and message.tool_call_id in draft.spared


def _said(text: str) -> Message:
    return Message(seq=0, role="user", content=text, timestamp="", tokens=0)
