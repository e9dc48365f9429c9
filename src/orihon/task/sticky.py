"""The sticky files of a task: how a version of one is made, and how the lists are read back for a window.

The lists live in their events and the texts in blobs, so the state of a task, which tangents and checkpoints remember,
names a list by a number. In memory are the lists and the texts that the window shows, and nothing else.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from typing import Any

import msgspec

from orihon.coerce import text_of
from orihon.context.frame import Texts
from orihon.context.sticky import Entry, Head, News, StickyFile, StickyList, entries_of, entry_text, told
from orihon.context.view import State
from orihon.errors import Corrupt, NotFound, UsageError
from orihon.ingest import Sanitiser
from orihon.records import Event
from orihon.stores.base import Store
from orihon.tokens import Counter

log = logging.getLogger("orihon")

NEWS_SHARE = 0.25  # of the limit, for all that is told of changed files between two folds


class Version(msgspec.Struct, frozen=True):
    """A file as it may be stored: its text, masked, and what its list says of it."""

    file: StickyFile
    text: str


def version(path: str, text: str, *, sanitiser: Sanitiser, counter: Counter, mark: tuple[int, ...] = ()) -> Version:
    """A version of a file; nothing is stored by it."""
    hint = "Give a path and its text."
    try:
        path, text = text_of(path, "A path"), text_of(text, "A text")
    except UsageError:
        raise UsageError(f"{path!a:.80} cannot be a sticky file.", hint=hint) from None
    if not path.strip():
        raise UsageError(f"{path!a:.80} cannot be a sticky file.", hint="Give a path and its text.")
    path, text = sanitiser.text(path), sanitiser.text(text)
    data = text.encode()
    tokens = counter.text(entry_text(path, text))
    return Version(StickyFile(path, hashlib.sha256(data).hexdigest(), len(data), tokens, mark), text)


class Stickies:
    """The lists and texts that the state of a task names, read when they are first needed."""

    def __init__(self, store: Store, uuid: str) -> None:
        self.store, self.uuid = store, uuid
        self._lists: dict[int, StickyList] = {}
        self._texts: dict[str, str | None] = {}  # by their hash
        self._made_for: Any = None
        self._made = Texts()

    def take(self, event: Event) -> None:
        """Keep the list of an event that was just stored."""
        if event.type == "sticky":
            self._lists[event.id] = _list_of(event)

    def listed(self, number: int) -> StickyList:
        """The list of an event; an empty one for number 0, and where it cannot be read."""
        if number and number not in self._lists:
            found = next(self.store.read(self.uuid, Event, first=number, last=number), None)
            self._lists[number] = _list_of(found)
        return self._lists.get(number, StickyList())

    def texts(self, state: State, language: str) -> Texts:
        """What the window shows of sticky files."""
        room = state.folds.room if state.folds else None
        made_for = (state.standing, state.sticky, state.news, room, language)
        if made_for != self._made_for:
            self._made = Texts(
                sticky=Head(self._entries(state.standing, language), language, room),
                files=Head(self._entries(state.sticky, language), language),
                news=tuple(self._news(state, language)),
            )
            self._made_for = made_for
            self._let_go({state.standing, state.sticky, *(number for number, _ in state.news)})
        return self._made

    def _entries(self, number: int, language: str) -> tuple[Entry, ...]:
        return entries_of(self.listed(number).files, self._text, language)

    def _news(self, state: State, language: str) -> Iterator[News]:
        """What is told of the lists since the last fold, each against the one before it."""
        before = state.standing
        for number, after in state.news:
            yield News(after, told(self.listed(before), self.listed(number), self._text, language))
            before = number

    def _text(self, file: StickyFile) -> str | None:
        if file.sha256 not in self._texts:
            try:
                data = self.store.blob(self.uuid, file.sha256)
                self._texts[file.sha256] = data.decode("utf-8", "replace")
            except (Corrupt, NotFound) as error:
                log.warning("[uuid:%s] The sticky file %s cannot be shown: %s", self.uuid[:8], file.path, error)
                self._texts[file.sha256] = None
        return self._texts[file.sha256]

    def _let_go(self, named: set[int]) -> None:
        """Forget what the state does not name; whoever goes back to it reads it again."""
        self._lists = {number: listed for number, listed in self._lists.items() if number in named}
        used = {file.sha256 for listed in self._lists.values() for file in listed.files}
        self._texts = {sha256: text for sha256, text in self._texts.items() if sha256 in used}


def _list_of(event: Event | None) -> StickyList:
    try:
        return msgspec.convert(event.data, StickyList) if event is not None else StickyList()
    except msgspec.ValidationError:
        return StickyList()
