"""The handoff of a new task: the earlier run that was found, its block and its notice."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from orihon.context.language import language_of
from orihon.context.ledger import Entry
from orihon.inheritance.block import max_block_tokens, render_block
from orihon.inheritance.names import collect_names
from orihon.inheritance.notice import Language, render_notice
from orihon.inheritance.outline import Outline, read_ledger, read_outline
from orihon.inheritance.search import Previous, Search, Skipped, search
from orihon.records import Message, TaskRow
from orihon.settings.schema import ContextInheritance, InheritedPlanning
from orihon.stores.base import Store
from orihon.task_key import TaskKey
from orihon.tokens import Counter

MAX_RUNS = 50  # whose ledgers are read

log = logging.getLogger("orihon")


class Handoff(Struct, frozen=True, kw_only=True):
    """What a new task begins with."""

    uuid: str  # the earlier run
    completed_at: str
    text: str  # the block
    tokens: int
    max_tokens: int
    notice: str
    left_out: tuple[str, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    language: Language = "ja"
    make: Callable[[Language], Handoff | None] | None = None  # the same in another language

    def for_request(self, request: Message, language: Language | Literal["auto"] = "auto") -> Handoff:
        """Return the handoff in the task's language, or else in that of its first request."""
        if language == "auto":
            language = "ja" if language_of([request]) == "ja" else "en"
        made = self.make(language) if self.make is not None and language != self.language else None
        return made or self


def prepare(
    store: Store,
    key: TaskKey | str,
    *,
    settings: ContextInheritance,
    user: str | None,
    now: str,
    counter: Counter,
    context_length: int,
    language: Language | Literal["auto"] = "auto",
    exclude: str = "",
) -> Handoff | None:
    """Return the handoff for a new task with this key, or None if there is nothing to inherit."""
    found = search(store, key, settings=settings, user=user, now=now, exclude=exclude)
    return make_handoff(
        store, found, settings=settings, counter=counter, context_length=context_length, language=language
    )


def make_handoff(
    store: Store,
    found: Search,
    *,
    settings: ContextInheritance,
    counter: Counter,
    context_length: int,
    language: Language | Literal["auto"] = "auto",
) -> Handoff | None:
    """Return the handoff for the run that a search found."""
    if found.previous is None:
        return None
    previous, outlines = _read_outlines(store, found.previous, found.older, settings.planning)
    ledgers = _read_ledgers((previous.row, *found.older))
    max_tokens = max_block_tokens(settings, context_length)

    def make(language: Language) -> Handoff | None:
        block = render_block(
            previous,
            counter=counter, max_tokens=max_tokens, settings=settings, language=language, outlines=outlines,
            ledgers=ledgers,
        )  # fmt: skip
        if not block.text:
            return None
        return Handoff(
            uuid=previous.uuid,
            completed_at=previous.ended,
            text=block.text,
            tokens=block.tokens,
            max_tokens=max_tokens,
            notice=render_notice(previous, language),
            left_out=block.left_out,
            skipped=found.skipped,
            language=language,
            make=make,
        )

    # until the new run has a message, it is expected in the language of the earlier one
    handoff = make(_detect_language(previous, ledgers[0]) if language == "auto" else language)
    if handoff is None:
        log.warning("[uuid:%s] Nothing of it fits into %d tokens, so nothing is inherited.", previous.short, max_tokens)
        return None
    log.info("[uuid:%s] Inherited: %d of %d tokens.", previous.short, handoff.tokens, max_tokens)
    return handoff


def _detect_language(previous: Previous, ledger: Sequence[Entry]) -> Language:
    """Return the language of an earlier run: that of its users, as far as its ledger has their words."""
    asked = [entry.text for entry in ledger if entry.kind in {"request", "constraint"}]
    message = Message(seq=0, role="user", content="\n".join(asked) or previous.summary, timestamp="", tokens=0)
    return "ja" if language_of([message]) == "ja" else "en"


def _read_ledgers(rows: Sequence[TaskRow]) -> list[list[Entry]]:
    """Return the ledgers of the runs, the newest first; those of older runs say which run they are of."""
    newest, *older = rows[:MAX_RUNS]
    return [read_ledger(newest), *([replace(entry, run=row.uuid[:8]) for entry in read_ledger(row)] for row in older)]


def _read_outlines(
    store: Store, previous: Previous, older: Sequence[TaskRow], planning: InheritedPlanning
) -> tuple[Previous, list[Outline]]:
    """Return the outlines of the newest runs that have one, and `previous` with the names of all their users."""
    names, outlines = previous.names, list[Outline]()
    for row in (previous.row, *older[: MAX_RUNS - 1]):
        names |= collect_names(store, row)
        outline = read_outline(row) if len(outlines) < planning.max_previous_plans else None
        if outline is not None:
            outlines.append(outline)
    return replace(previous, names=names), outlines
