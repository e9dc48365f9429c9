"""Chooses passages by value per token until the room is used up.

Each step takes the passage that meets the most unpaid value for its cost. The cost is what it really adds: pieces
not kept yet, the frame of its unit if nothing of it stands so far, and the mark of a new gap. Costs are estimates
made of the message's own tokens; `undo` gives room back when the counter finds that they were too low.
"""

from __future__ import annotations

import heapq
from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from orihon.context.claims import Claims, Sheets, Span

MARK_TOKENS = 4
LEAST_TOKENS = 10  # no passage costs less


class Queue:
    """Passages by their places, the smallest ratio first. Only what was pushed again takes an object."""

    def __init__(self, ratios: Iterable[float] = ()) -> None:
        self._ratios = array("d", ratios)
        self._again: list[tuple[float, int]] = []
        self._order = array("l")
        self._sort(place for place, ratio in enumerate(self._ratios) if ratio)

    def _sort(self, places: Iterable[int]) -> None:
        self._order = array("l", sorted(sorted(places), key=self._ratios.__getitem__))
        self._order.reverse()

    def __bool__(self) -> bool:
        return bool(self._order or self._again)

    @property
    def ratio(self) -> float:
        """The smallest ratio."""
        return min([self._ratios[place] for place in self._order[-1:]] + [ratio for ratio, _ in self._again[:1]])

    def pop(self) -> int:
        """Take out the passage of the smallest ratio."""
        if self._again and (not self._order or self._again[0] < (self._ratios[self._order[-1]], self._order[-1])):
            return heapq.heappop(self._again)[1]
        return self._order.pop()

    def push(self, place: int, ratio: float) -> None:
        """Put in a passage again; if it is there already, the smaller ratio counts."""
        heapq.heappush(self._again, (ratio, place))

    def put_back(self, left: list[tuple[float, int]]) -> None:
        """Put in again what was taken out."""
        self._again += left
        heapq.heapify(self._again)


class Chooser:
    """The choice so far: which units are kept, and what was kept of them in which order."""

    def __init__(
        self, sheets: Sheets, *, room: float, caps: Sequence[float], whole: Sequence[bool], exchanges: Mapping[int, int]
    ) -> None:
        self.room = room
        self.opened: set[int] = set()
        self._sheets = sheets
        self._exchanges = exchanges  # the unit of a question, by that of its answer
        self._spare = list(caps)  # tokens that each page may still take
        self._pages_of: dict[int, list[int]] = defaultdict(list)
        for number in range(len(sheets.pages)):
            if not whole[number]:
                self._pages_of[self.unit(number)].append(number)
        self._openings: dict[int, float] = {}
        self._taken: list[tuple[int, list[int], int | None, float]] = []  # page, new pieces, unit opened, tokens
        self._claims = Claims()
        self._met = bytearray()
        self._queue = Queue()  # the passages of the claims

    def unit(self, page: int) -> int:
        """Return the unit of a page. A question and its answer are one unit, so they are kept or hidden together."""
        unit = self._sheets.pages[page].unit
        return self._exchanges.get(unit, unit)

    def cost(self, span: Span) -> float:
        """Return the tokens that keeping a passage would add."""
        page, first, last = span
        sheet = self._sheets[page]
        kept, costs = sheet.kept, sheet.costs
        tokens = 0.0
        for piece in range(first, last + 1):
            if not kept[piece]:
                tokens += costs[piece]
        if self.unit(page) not in self.opened:
            return tokens + self._opening(self.unit(page))
        if tokens and not (first and kept[first - 1]) and not (last + 1 < len(kept) and kept[last + 1]):
            tokens += MARK_TOKENS
        return tokens

    def _opening(self, unit: int) -> float:
        if unit not in self._openings:
            self._openings[unit] = sum(self._sheets[number].opening for number in self._pages_of[unit])
        return self._openings[unit]

    def open(self, unit: int) -> None:
        """Keep a unit, even without room."""
        if unit not in self.opened:
            self.opened.add(unit)
            self.room -= self._opening(unit)

    def take(self, span: Span, *, tokens: float | None = None) -> bool:
        """Keep a passage if there is room for it."""
        page, first, last = span
        tokens = self.cost(span) if tokens is None else tokens
        if tokens > self.room or tokens > self._spare[page]:
            return False
        kept = self._sheets[page].kept
        new = [piece for piece in range(first, last + 1) if not kept[piece]]
        for piece in new:
            kept[piece] = True
        unit = self.unit(page)
        self._taken.append((page, new, None if unit in self.opened else unit, tokens))
        self.opened.add(unit)
        self.room -= tokens
        self._spare[page] -= tokens
        return True

    def take_whole(self, page: int) -> bool:
        """Keep all of a page if there is room for it, whatever pages may take."""
        self._spare[page] = self.room
        return self.take((page, 0, len(self._sheets[page].costs) - 1))

    def take_rest(self, page: int, *, spare: float) -> bool:
        """Keep as much of a page as there is room for, from its beginning on; `spare` tokens stay free."""
        sheet = self._sheets[page]
        if all(sheet.kept):
            return False
        self._spare[page] = self.room
        room = (
            self.room - spare - MARK_TOKENS - (0 if self.unit(page) in self.opened else self._opening(self.unit(page)))
        )
        last = -1
        for piece, (cost, kept) in enumerate(zip(sheet.costs, sheet.kept, strict=True)):
            room -= 0 if kept else cost
            if room < 0:
                break
            last = piece
        return last >= 0 and not all(sheet.kept[: last + 1]) and self.take((page, 0, last))

    def undo(self, tokens: float) -> set[int]:
        """Free at least so many tokens, the least valuable first, and return the units that changed."""
        changed = set()
        while tokens > 0 and self._taken:
            page, pieces, unit, cost = self._taken.pop()
            for piece in pieces:
                self._sheets[page].kept[piece] = False
            if unit is not None:
                self.opened.discard(unit)
            changed.add(self.unit(page))
            tokens -= cost
        return changed

    def shorten(self, page: int) -> bool:
        """Take back what was kept last of one page. Its unit stays."""
        for at in range(len(self._taken) - 1, -1, -1):
            here, pieces, unit, tokens = self._taken[at]
            if here == page and pieces:
                for piece in pieces:
                    self._sheets[page].kept[piece] = False
                self._taken[at] = (page, [], unit, tokens)
                return True
        return False

    def offer(self, claims: Claims) -> None:
        """Let claims compete for the room."""
        self._claims = claims
        self._met = bytearray(len(claims.values))
        self._queue = Queue(map(self._ratio, range(len(claims.spans))))

    def _gain(self, place: int) -> float:
        met, values = self._met, self._claims.values
        return sum([values[number] for number in self._claims.met_by(place) if not met[number]])

    def _ratio(self, place: int) -> float:
        """Return what a passage gains for its cost, as a negative number; 0 if it gains nothing."""
        gain = self._gain(place)
        return -gain / (self.cost(self._claims.span(place)) + 0.01) if gain else 0.0

    def fill(self) -> set[int]:
        """Meet claims until nothing more fits, and return the units that changed."""
        changed = set()
        queue, left = self._queue, []
        while queue and self.room > LEAST_TOKENS:
            place = queue.pop()
            ratio = self._ratio(place)
            if not ratio:
                continue
            if queue and ratio > queue.ratio:  # others were paid since: it is worth less than it was
                queue.push(place, ratio)
                continue
            span = self._claims.span(place)
            unit = self.unit(span[0])
            fresh = unit not in self.opened
            if not self.take(span):
                left.append((ratio, place))
                continue
            changed.add(unit)
            for number in self._claims.met_by(place):
                self._met[number] = True
            if fresh:  # the frame is paid for: everything else in the unit is cheaper now
                for page in self._pages_of[unit]:
                    for other in self._claims.of_page(page):
                        if ratio := self._ratio(other):
                            queue.push(other, ratio)
        queue.put_back(left)
        return changed
