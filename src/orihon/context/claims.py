"""What of the old messages is worth a place in the window: claims, each with a value and the passages that meet it.

A claim is paid once, by any one of its passages. Most claims are names, and a name is worth

    (1 + times written) * (1 + heat)^0.7 * (50 / (50 + age))^0.5 * focus^-0.45 * pages^-0.35

Written means by the agent or the user, not by a tool. Heat says how much a page is about what is being done now: how
many names it shares with what stays whole and was written. Age is in messages since the name was last seen. Focus is
the least number of names beside which it stands on a page, and pages is how many have it: a name among few is what
its page is about, a name on every page tells little. The form was fitted on real transcripts as the chance that the
agent needs the name again. A name that stands in a message that stays whole claims nothing; a line that reports an
error claims something of its own, and so does the place where a tool showed what the agent only speaks of elsewhere.
"""

from __future__ import annotations

import math
import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import accumulate

from orihon.context.names import TOKEN, may_mention
from orihon.context.names import mentions as names_of
from orihon.context.sheet import SHORT, Page, Sheet
from orihon.context.trouble import error_lines

FADES = 50  # messages; a name last seen so long ago is worth half
NAME = 3.0  # what a name is worth beside the other claims
OPINION = 1.0  # how the words of the agent begin
ERROR = 2.0  # a reported error is worth as much as a name that was written once
SHOWN = 0.25  # of its value: claimed again where a tool showed a name that the user or the agent wrote too
MENTIONS = 3  # from the beginning, and as many from the end: where a name comes from and how it stands now
AROUND = 120  # characters on each side of a name: enough to be of use
SEARCHED = 100_000  # characters at each end of a page; only these are searched for names
TOKENS_PER_NAME = 8  # passages cost more than this, so names beyond room / 8 would never get a place

Span = tuple[int, int, int]  # page, first piece, last piece


class Claims:
    """What is worth keeping, and the passages that hold it, in columns: a fold has tens of thousands of them."""

    def __init__(self) -> None:
        self.values = array("d")
        self.spans: array[int] = array("Q")  # packed, each once, in order
        self._owners = array("l")  # the claims that a span meets, for one span after the other
        self._bounds = array("l")  # where those of each span begin

    def add(self, value: float, spans: Iterable[Span]) -> None:
        """Add a claim that any of these passages meets."""
        for span in spans:
            self.spans.append(_pack(span))
            self._owners.append(len(self.values))
        self.values.append(value)

    def sort(self) -> Claims:
        """Put the spans in order when all claims were added."""
        given, owners = self.spans, self._owners
        self.spans, self._owners = array("Q"), array("l")
        for place in sorted(range(len(given)), key=given.__getitem__):
            if not self.spans or self.spans[-1] != given[place]:
                self.spans.append(given[place])
                self._bounds.append(len(self._owners))
            self._owners.append(owners[place])
        self._bounds.append(len(self._owners))
        return self

    def span(self, place: int) -> Span:
        """Return a passage."""
        packed = self.spans[place]
        return packed >> 2 * _BITS, packed >> _BITS & _PIECE, packed & _PIECE

    def of_page(self, page: int) -> range:
        """Return the places of the passages of a page."""
        return range(bisect_left(self.spans, _pack((page, 0, 0))), bisect_left(self.spans, _pack((page + 1, 0, 0))))

    def met_by(self, place: int) -> Sequence[int]:
        """Return the claims that a passage meets, with those of the passages inside it."""
        spans, bounds = self.spans, self._bounds
        packed = spans[place]
        end = packed & _PIECE
        first, other = place, place + 1
        while first and spans[first - 1] >= packed - end:  # it begins at the same piece
            first -= 1
        found = self._owners[bounds[first] : bounds[other]]
        after = packed - end + (end - (packed >> _BITS & _PIECE) + 1 << _BITS)
        while other < len(spans) and spans[other] < after:
            if spans[other] & _PIECE <= end:
                found.extend(self._owners[bounds[other] : bounds[other + 1]])
            other += 1
        return found if len(found) == 1 else sorted({*found})


_BITS = 23  # for the number of a piece: no message has more characters
_PIECE = (1 << _BITS) - 1


def _pack(span: Span) -> int:
    page, first, last = span
    return page << 2 * _BITS | min(first, _PIECE) << _BITS | min(last, _PIECE)


class Sheets(dict[int, Sheet]):
    """The sheets of the pages, each laid out when it is first needed."""

    def __init__(self, pages: Sequence[Page]) -> None:
        super().__init__()
        self.pages = pages

    def __missing__(self, number: int) -> Sheet:
        self[number] = sheet = Sheet(self.pages[number])
        return sheet


class Names:
    """What the log knows of its names, in columns: how often each was written, how hot its pages are, and so on."""

    def __init__(self, texts: list[str]) -> None:
        self.texts = texts
        zeros = bytes(array("l").itemsize * len(texts))
        self.written, self.last, self.pages = array("l", zeros), array("l", zeros), array("l", zeros)
        self.focus = array("l", [sys.maxsize]) * len(texts)
        self.heat = array("d", [0.0]) * len(texts)
        self._holders: array[int] = array("l")  # the pages of one name after the other
        self._bounds: array[int] = array("l")

    def hold(self, mentioning: Sequence[array[int]]) -> None:
        """Note which pages have each name, of those that no whole page has."""
        self._bounds = array("l", accumulate(self.pages, initial=0))
        self._holders = array("l", bytes(self._bounds.itemsize * self._bounds[-1]))
        following = self._bounds[:]
        for number, here in enumerate(mentioning):
            for name in here:
                if self.pages[name]:
                    self._holders[following[name]] = number
                    following[name] += 1

    def holders(self, name: int) -> Sequence[int]:
        """Return the pages that have a name, in order."""
        return self._holders[self._bounds[name] : self._bounds[name + 1]]

    def worth(self, name: int, now: int) -> float:
        """Return what a passage with the name is worth when there are `now` messages."""
        told = math.pow(self.focus[name], -0.45) * math.pow(self.pages[name], -0.35)
        seen = math.pow(fade(now - self.last[name]), 0.5)
        return NAME * (1 + self.written[name]) * math.pow(1 + self.heat[name], 0.7) * seen * told

    def best(self, most: int, now: int) -> tuple[array[int], array[float]]:
        """Return the names that are worth most, and what each name is worth."""
        worth = array("d", (self.worth(name, now) if self.pages[name] else 0.0 for name in range(len(self.texts))))
        named = sorted(filter(worth.__getitem__, range(len(worth))), key=self.texts.__getitem__)
        named.sort(key=worth.__getitem__, reverse=True)
        return array("l", named[:most]), worth


def claims(sheets: Sheets, whole: Sequence[bool], *, room: float, stale: AbstractSet[int]) -> Claims:
    """Return the claims of the pages that are not kept whole, as many as `room` tokens could ever meet.

    What a `stale` message says, one that a later result replaces, counts only where nothing else mentions the name.
    """
    pages = sheets.pages
    names = survey(pages, whole)
    found = Claims()
    best, worth = names.best(int(room / TOKENS_PER_NAME) + 1, len(pages))
    for name in best:
        text = names.texts[name]
        places = mentions(text, names.holders(name), pages)
        spans = sorted({(page, *sheets[page].around(at, len(text), AROUND)) for page, at in places})
        spans = [span for span in spans if pages[span[0]].message.seq not in stale] or spans
        found.add(worth[name], spans)
        shown = [span for span in spans if not pages[span[0]].written]
        if shown and len(shown) < len(spans):
            found.add(worth[name] * SHOWN, shown)
    for value, span in (*_errors(sheets, whole), *_opinions(sheets, whole)):
        found.add(value, [span])
    return found.sort()


def fade(age: int) -> float:
    """Return what is left of a value after so many messages."""
    return FADES / (FADES + age)


def survey(pages: Sequence[Page], whole: Sequence[bool]) -> Names:
    """Return the names of the pages. Those that stand in a whole page have no pages."""
    texts, mentioning = _read_names(pages)
    names = Names(texts)
    paid, hot = bytearray(len(texts)), bytearray(len(texts))
    for page, here, kept in zip(pages, mentioning, whole, strict=True):
        for name in here if kept else ():
            paid[name] = 1
            hot[name] |= page.written
    for number, (page, here) in enumerate(zip(pages, mentioning, strict=True)):
        heat = sum([hot[name] for name in here]) / (len(here) + 1) ** 0.5
        for name in here:
            if paid[name]:
                continue
            names.last[name] = number
            names.written[name] += page.written
            names.heat[name] = max(names.heat[name], heat)
            names.focus[name] = min(names.focus[name], len(here))
            names.pages[name] += 1
    names.hold(mentioning)
    return names


def _read_names(pages: Sequence[Page]) -> tuple[list[str], list[array[int]]]:
    """Return the names of all pages, and by their numbers those of each page."""
    tokens: dict[str, int] = {}
    words = [
        array(
            "l",
            {
                tokens.setdefault(word, len(tokens))
                for word in set(TOKEN.findall(_ends(page.plain)))
                if may_mention(word)
            },
        )
        for page in pages
    ]
    numbers: dict[str, int] = {}
    of_tokens, bounds = array("l"), array("l", [0])
    for names in names_of(tokens):
        of_tokens.extend([numbers.setdefault(name, len(numbers)) for name in names])
        bounds.append(len(of_tokens))
    return list(numbers), [
        array("l", {name for word in found for name in of_tokens[bounds[word] : bounds[word + 1]]}) for found in words
    ]


def _ends(text: str) -> str:
    return text if len(text) <= 2 * SEARCHED else f"{text[:SEARCHED]}\n{text[-SEARCHED:]}"


def mentions(name: str, numbers: Sequence[int], pages: Sequence[Page]) -> set[tuple[int, int]]:
    """Return the first and the last few places of a name, as (page, offset)."""
    found = set()
    for order, places in ((iter(numbers), _places), (reversed(numbers), _places_from_the_end)):
        left = MENTIONS
        for number in order:
            for at in places(pages[number].plain, name):
                found.add((number, at))
                left -= 1
                if not left:
                    break
            if not left:
                break
    return found


def _places(text: str, name: str) -> Iterator[int]:
    end = len(text) if len(text) <= 2 * SEARCHED else SEARCHED
    at = text.find(name, 0, end)
    while at >= 0:
        if _alone(text, at, at + len(name)):
            yield at
        at = text.find(name, at + 1, end)


def _places_from_the_end(text: str, name: str) -> Iterator[int]:
    begin = 0 if len(text) <= 2 * SEARCHED else len(text) - SEARCHED
    at = text.rfind(name, begin)
    while at >= 0:
        if _alone(text, at, at + len(name)):
            yield at
        at = text.rfind(name, begin, at + len(name) - 1)


def _alone(text: str, start: int, end: int) -> bool:
    """Return whether a place is not inside a longer word; a script without spaces may touch a name."""
    return not (
        (start and _in_word(text[start - 1]) and _in_word(text[start]))
        or (end < len(text) and _in_word(text[end]) and _in_word(text[end - 1]))
    )


def _in_word(character: str) -> bool:
    return character.isascii() and (character.isalnum() or character == "_")


def _opinions(sheets: Sheets, whole: Sequence[bool]) -> Iterator[tuple[float, Span]]:
    """Yield how the agent's longer words begin: there it says what it makes of things and what it is going to do."""
    for number, page in enumerate(sheets.pages):
        words = page.fields[0]
        if not whole[number] and page.message.role == "assistant" and len(words) > SHORT:
            at = len(words) - len(words.lstrip())
            yield OPINION * fade(len(sheets.pages) - number), (number, *sheets[number].around(at, 0, 0))


def _errors(sheets: Sheets, whole: Sequence[bool]) -> Iterator[tuple[float, Span]]:
    for number, page in enumerate(sheets.pages):
        if whole[number] or page.message.role != "tool":
            continue
        at = next(error_lines(page.plain), 0 if page.message.is_error else None)
        if at is not None:
            worth = ERROR * fade(len(sheets.pages) - number) * (1 if page.message.is_error else 0.5)
            yield worth, (number, *sheets[number].around(at, 0, AROUND))
