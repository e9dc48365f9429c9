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
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from orihon.context.names import TOKEN, index
from orihon.context.sheet import SHORT, Page, Sheet
from orihon.context.trouble import error_lines

FADES = 50  # messages; a name last seen so long ago is worth half
NAME = 3.0  # what a name is worth beside the other claims
OPINION = 1.0  # how the words of the agent begin
ERROR = 2.0  # a reported error is worth as much as a name that was written once
SHOWN = 0.25  # of its value a name claims again for where a tool showed it, if somebody also spoke of it
MENTIONS = 3  # from the beginning, and as many from the end: where a name comes from and how it stands now
AROUND = 120  # characters on each side of a name: enough to be of use
SEARCHED = 100_000  # characters at each end of a page; only these are searched for names
TOKENS_PER_NAME = 8  # passages cost more than this, so names beyond room / 8 would never get a place

Span = tuple[int, int, int]  # page, first piece, last piece


class Claim(NamedTuple):
    """Something worth keeping, and the passages that hold it."""

    value: float
    spans: list[Span]


class Sheets(dict[int, Sheet]):
    """The sheets of the pages, each laid out when it is first needed."""

    def __init__(self, pages: Sequence[Page]) -> None:
        super().__init__()
        self.pages = pages

    def __missing__(self, number: int) -> Sheet:
        self[number] = sheet = Sheet(self.pages[number])
        return sheet


class Name:
    """What the log knows of a name: how often it was written, how hot its pages are, and which mention it."""

    __slots__ = ("focus", "heat", "last", "pages", "written")

    def __init__(self) -> None:
        self.written = self.last = 0
        self.heat = 0.0
        self.focus = sys.maxsize
        self.pages: list[int] = []

    def worth(self, now: int) -> float:
        """Return what a passage with the name is worth when there are `now` messages."""
        told = math.pow(self.focus, -0.45) * math.pow(len(self.pages), -0.35)
        return NAME * (1 + self.written) * math.pow(1 + self.heat, 0.7) * math.pow(fade(now - self.last), 0.5) * told


def claims(sheets: Sheets, whole: Sequence[bool], *, room: float, stale: AbstractSet[int]) -> list[Claim]:
    """The claims of the pages that are not kept whole, as many as `room` tokens could ever meet.

    What a `stale` message says, one that a later result replaces, counts only where nothing else mentions the name.
    """
    pages = sheets.pages
    names = survey(pages, whole)
    worth = {text: name.worth(len(pages)) for text, name in names.items()}
    best = sorted(worth, key=lambda text: (-worth[text], text))[: int(room / TOKENS_PER_NAME) + 1]
    found = []
    for text in best:
        places = mentions(text, names[text].pages, pages)
        spans = sorted({(page, *sheets[page].around(at, len(text), AROUND)) for page, at in places})
        spans = [span for span in spans if pages[span[0]].message.seq not in stale] or spans
        found.append(Claim(worth[text], spans))
        shown = [span for span in spans if not pages[span[0]].written]
        if shown and len(shown) < len(spans):
            found.append(Claim(worth[text] * SHOWN, shown))
    found.extend(_errors(sheets, whole))
    found.extend(_opinions(sheets, whole))
    return found


def fade(age: int) -> float:
    """What is left of a value after so many messages."""
    return FADES / (FADES + age)


def survey(pages: Sequence[Page], whole: Sequence[bool]) -> dict[str, Name]:
    """The names of the old pages that stand in no whole page."""
    once: dict[str, str] = {}  # a word that many pages use is kept once
    tokens = [tuple({once.setdefault(word, word) for word in TOKEN.findall(_ends(page.plain))}) for page in pages]
    del once
    mentioned = index(set().union(*tokens))
    mentioning = [{name for token in found if token in mentioned for name in mentioned[token]} for found in tokens]
    paid: set[str] = set().union(*(here for here, kept in zip(mentioning, whole, strict=True) if kept))
    now = (here for here, kept, page in zip(mentioning, whole, pages, strict=True) if kept and page.written)
    hot: set[str] = set().union(*now)
    names: dict[str, Name] = {}
    for number, (page, here) in enumerate(zip(pages, mentioning, strict=True)):
        heat = len(here & hot) / (len(here) + 1) ** 0.5
        for text in here - paid:
            if (name := names.get(text)) is None:
                name = names[text] = Name()
            name.last = number
            name.written += page.written
            name.heat = max(name.heat, heat)
            name.focus = min(name.focus, len(here))
            name.pages.append(number)
    return names


def _ends(text: str) -> str:
    return text if len(text) <= 2 * SEARCHED else f"{text[:SEARCHED]}\n{text[-SEARCHED:]}"


def mentions(name: str, numbers: Sequence[int], pages: Sequence[Page]) -> set[tuple[int, int]]:
    """The first and the last few places of a name, as (page, offset)."""
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
    """Whether a place is not inside a longer word; a script without spaces may touch a name."""
    return not (
        (start and _in_word(text[start - 1]) and _in_word(text[start]))
        or (end < len(text) and _in_word(text[end]) and _in_word(text[end - 1]))
    )


def _in_word(character: str) -> bool:
    return character.isascii() and (character.isalnum() or character == "_")


def _opinions(sheets: Sheets, whole: Sequence[bool]) -> Iterator[Claim]:
    """How the agent's longer words begin: there it says what it makes of things and what it is going to do."""
    for number, page in enumerate(sheets.pages):
        words = page.fields[0]
        if not whole[number] and page.message.role == "assistant" and len(words) > SHORT:
            at = len(words) - len(words.lstrip())
            yield Claim(OPINION * fade(len(sheets.pages) - number), [(number, *sheets[number].around(at, 0, 0))])


def _errors(sheets: Sheets, whole: Sequence[bool]) -> Iterator[Claim]:
    for number, page in enumerate(sheets.pages):
        if whole[number] or page.message.role != "tool":
            continue
        at = next(error_lines(page.plain), 0 if page.message.is_error else None)
        if at is not None:
            span = (number, *sheets[number].around(at, 0, AROUND))
            yield Claim(ERROR * fade(len(sheets.pages) - number) * (1 if page.message.is_error else 0.5), [span])
