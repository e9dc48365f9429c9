"""The sticky files of a task: one version of a file, and the lists of versions as the window shows them.

The lists are stored in their events and the texts in blobs, so the state of a task, which tangents and checkpoints
remember, names a list by its event number. In memory are only the lists and texts that the window shows.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from orihon.coerce import to_list, to_text
from orihon.context.frame import Texts
from orihon.context.sticky import Entry, Head, News, StickyFile, StickyList, entry_text, make_entries, render_changes
from orihon.context.view import State
from orihon.errors import Corrupt, NotFound, UsageError
from orihon.ingest import Sanitiser
from orihon.records import Event
from orihon.stores.base import Store
from orihon.tokens import Counter

logger = logging.getLogger("orihon")

_HINT = "Give a mapping from paths to texts, or what `version` returned."


class FileVersion(msgspec.Struct, frozen=True):
    """A file as it may be stored: its masked text, and its entry in the list."""

    file: StickyFile
    text: str

    @classmethod
    def make(
        cls, path: str, text: str, *, sanitiser: Sanitiser, counter: Counter, mark: tuple[int, ...] = ()
    ) -> FileVersion:
        """Return a version of a file; nothing is stored."""
        try:
            path, text = to_text(path, "A path"), to_text(text, "A text")
        except UsageError:
            raise UsageError(f"{path!a:.80} cannot be a sticky file.", hint="Give a path and its text.") from None
        if not path.strip():
            raise UsageError(f"{path!a:.80} cannot be a sticky file.", hint="Give a path and its text.")
        path, text = sanitiser.text(path), sanitiser.text(text)
        data = text.encode()
        tokens = counter.text(entry_text(path, text))
        import hashlib  # noqa: PLC0415 - it loads OpenSSL, 4 MB

        return cls(StickyFile(path, hashlib.sha256(data).hexdigest(), len(data), tokens, mark), text)


def parse_files(files: Any) -> list[StickyFile | FileVersion]:
    """Return a list of versions as it was given; raise UsageError for anything else."""
    versions = to_list(files, "Sticky files", hint=_HINT)
    if not all(isinstance(version, StickyFile | FileVersion) for version in versions):
        raise UsageError("Sticky files are given with their texts.", hint=_HINT)
    return versions


Files = Mapping[str, str] | Sequence[StickyFile | FileVersion]


class StickyTexts:
    """The lists and texts that the state of a task names, read when they are first needed."""

    def __init__(self, store: Store, uuid: str) -> None:
        self.store, self.uuid = store, uuid
        self._lists: dict[int, StickyList] = {}
        self._texts: dict[str, str | None] = {}  # by hash
        self._shown_for: Any = None
        self._shown = Texts()

    def remember(self, event: Event) -> None:
        """Keep the list of an event that was just stored."""
        if event.type == "sticky":
            self._lists[event.id] = _parse_list(event)

    def list_at(self, event: int) -> StickyList:
        """Return the list of an event; an empty one for event 0, and if it cannot be read."""
        if event and event not in self._lists:
            stored = next(self.store.read(self.uuid, Event, first=event, last=event), None)
            self._lists[event] = _parse_list(stored)
        return self._lists.get(event, StickyList())

    def texts(self, state: State, language: str) -> Texts:
        """Return what the window shows of sticky files; it is kept until they change."""
        room = state.folds.room if state.folds else None
        shown_for = (state.standing, state.sticky, state.news, room, language)
        if shown_for != self._shown_for:
            self._shown = Texts(
                sticky=Head(self._entries(state.standing, language), language, room),
                files=Head(self._entries(state.sticky, language), language),
                news=tuple(self._news(state, language)),
            )
            self._shown_for = shown_for
            self._forget_others({state.standing, state.sticky, *(event for event, _ in state.news)})
        return self._shown

    def _entries(self, event: int, language: str) -> tuple[Entry, ...]:
        return make_entries(self.list_at(event).files, self._load, language)

    def _news(self, state: State, language: str) -> Iterator[News]:
        """Yield what changed with each list since the last fold."""
        before = state.standing
        for event, after in state.news:
            yield News(after, render_changes(self.list_at(before), self.list_at(event), self._load, language))
            before = event

    def _load(self, file: StickyFile) -> str | None:
        if file.sha256 not in self._texts:
            try:
                self._texts[file.sha256] = self.store.blob(self.uuid, file.sha256).decode("utf-8", "replace")
            except (Corrupt, NotFound) as error:
                logger.warning("[uuid:%s] The sticky file %s cannot be shown: %s", self.uuid[:8], file.path, error)
                self._texts[file.sha256] = None
        return self._texts[file.sha256]

    def _forget_others(self, events: set[int]) -> None:
        self._lists = {event: listed for event, listed in self._lists.items() if event in events}
        used = {file.sha256 for listed in self._lists.values() for file in listed.files}
        self._texts = {sha256: text for sha256, text in self._texts.items() if sha256 in used}


def _parse_list(event: Event | None) -> StickyList:
    try:
        return msgspec.convert(event.data, StickyList) if event is not None else StickyList()
    except msgspec.ValidationError:
        return StickyList()
