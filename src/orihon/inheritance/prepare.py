"""What the engine asks for when a task starts, and what it keeps when a task ends."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct

from orihon.coerce import decode_json
from orihon.context.language import language_of
from orihon.errors import NotFound, OrihonError
from orihon.inheritance.block import Run, block, cap
from orihon.inheritance.notice import Language, notice
from orihon.inheritance.sanitise import names_of
from orihon.inheritance.search import Previous, Search, Skipped, search
from orihon.planning.history import execution, outline
from orihon.records import Message, PlanEntry, TaskRow
from orihon.settings.schema import ContextInheritance, InheritedPlanning
from orihon.stores.base import Store
from orihon.task_key import TaskKey
from orihon.tokens import Counter

log = logging.getLogger("orihon")

MAX_LOOKED_AT = 20  # earlier runs that are asked for a plan
MAX_TOOLS, MAX_ERROR = 20, 200  # what an outline keeps of the tools, and of what each said last
PLANNED = "planned"


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
    language: Language | Literal["auto"] = "auto",
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
    language: Language | Literal["auto"] = "auto",
) -> Handoff | None:
    """The handoff of what a search found."""
    if found.previous is None:
        return None
    if language == "auto":  # that of the earlier run: the new one has said nothing yet
        language = _language_of(found.previous.summary)
    previous, executions = _with_plans(store, found.previous, found.older, settings.planning)
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


def _language_of(summary: str) -> Language:
    said = Message(seq=0, role="assistant", content=summary, timestamp="", tokens=0)
    return "ja" if language_of([said]) == "ja" else "en"


def outline_of(store: Store, row: TaskRow) -> str:
    """What `TaskRow.handoff` keeps of a task that ends, as JSON: its plan, its tools and its checks, in outline."""
    try:
        run = execution(store, row)
        tools = [msgspec.structs.asdict(use) | {"last_error": use.last_error[:MAX_ERROR]} for use in run.tools]
        kept = {PLANNED: run.entries > 0} | outline(run) | {"tools": tools[:MAX_TOOLS]}
        return msgspec.json.encode(store.sanitiser.value(kept)).decode()
    except (OrihonError, OSError, ValueError, TypeError) as error:
        log.warning("[uuid:%s] There is no outline to hand on: %s", row.uuid[:8], error)
        return "{}"


def kept_outline(row: TaskRow) -> dict[str, Any] | None:
    """The outline that a row keeps of a planned run; None when there is none that can be read."""
    try:
        kept = decode_json(row.handoff or "null")
    except ValueError:
        log.warning("[uuid:%s] The outline of its plan cannot be read.", row.uuid[:8])
        return None
    if not isinstance(kept, dict) or not kept.pop(PLANNED, False):
        return None
    return kept


def _with_plans(
    store: Store, previous: Previous, older: Sequence[TaskRow], planning: InheritedPlanning
) -> tuple[Previous, list[Run]]:
    """The plans of the run and of older ones, the newest first, and the names of all who made them."""
    names, runs = previous.names, []
    for row in [previous.row, *older][:MAX_LOOKED_AT]:
        run = _run(store, row)
        if run is not None:
            runs.append(run)
            names |= names_of(store, row)
        if len(runs) >= planning.max_previous_plans:
            break
    return msgspec.structs.replace(previous, names=names), runs


def _run(store: Store, row: TaskRow) -> Run | None:
    """A planned run, from its records or from what its row kept of them."""
    try:
        if next(store.read(row.uuid, PlanEntry), None) is not None:
            run = execution(store, row)
            if run.entries:
                return run
    except NotFound:
        pass  # its directory was cleaned up, which is why the row keeps an outline
    except (OrihonError, OSError, ValueError) as error:
        log.warning("[uuid:%s] The plan of an earlier run cannot be read: %s", row.uuid[:8], error)
    return kept_outline(row)
