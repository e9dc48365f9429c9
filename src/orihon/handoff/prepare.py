"""What the engine asks for when a task starts, and what it keeps when a task ends."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from orihon.handoff.block import block, cap
from orihon.handoff.notice import Language, notice
from orihon.handoff.sanitise import names_of
from orihon.handoff.search import Previous, Search, Skipped, search
from orihon.keys import TaskKey
from orihon.records import TaskRow
from orihon.settings import ContextInheritance
from orihon.stores.base import Store
from orihon.tokens import Counter

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


def prepare(
    store: Store,
    key: TaskKey | str,
    *,
    settings: ContextInheritance,
    user: str | None,
    now: str,
    counter: Counter,
    context_length: int,
    language: Language = "ja",
    exclude: str = "",
) -> Handoff | None:
    """The handoff for a new task with this key; None when there is nothing to inherit."""
    found = search(store, key, settings=settings, user=user, now=now, exclude=exclude)
    return from_search(
        store, found, settings=settings, counter=counter, context_length=context_length, language=language
    )


def from_search(
    store: Store,
    found: Search,
    *,
    settings: ContextInheritance,
    counter: Counter,
    context_length: int,
    language: Language = "ja",
) -> Handoff | None:
    """The handoff of what a search found."""
    if found.previous is None:
        return None
    previous, executions = _with_plans(store, found.previous, found.older, settings)
    max_tokens = cap(settings, context_length)
    made = block(
        previous,
        counter=counter, max_tokens=max_tokens, settings=settings, language=language, executions=executions,
    )  # fmt: skip
    if not made.text:
        log.warning("[uuid:%s] Nothing of it fits into %d tokens, so nothing is inherited.", previous.short, max_tokens)
        return None
    log.info("[uuid:%s] Inherited: %d of %d tokens.", previous.short, made.tokens, max_tokens)
    return Handoff(
        uuid=previous.uuid,
        completed_at=previous.ended,
        text=made.text,
        tokens=made.tokens,
        max_tokens=max_tokens,
        notice=notice(previous, language),
        left_out=made.left_out,
        skipped=found.skipped,
    )


def outline_of(store: Store, row: TaskRow) -> str:
    """What `TaskRow.handoff` keeps of a task that ends, as JSON."""
    del store, row
    return json.dumps({})


def _with_plans(
    store: Store, previous: Previous, older: Sequence[TaskRow], settings: ContextInheritance
) -> tuple[Previous, list[Any]]:
    """The plans of the run and of older ones, the newest first, and the names of all who made them."""
    rows = [previous.row, *older][: settings.planning.max_previous_plans]
    names = previous.names
    for row in rows[1:]:
        names |= names_of(store, row)
    return msgspec.structs.replace(previous, names=names), []
