"""On-demand compaction: summarise the older part of a task that is not running.

Compaction takes the lease, so that the task has no other writer meanwhile, and leaves the status unchanged. The
summariser is the one in the settings of the task's user, or else the model of the task. Where that cannot be opened,
the summary is extracted, and the result says why. No message is deleted.
"""

from __future__ import annotations

from contextlib import closing, nullcontext

import msgspec

from orihon.agent.models import choose_summariser, get_model_name, open_model
from orihon.agent.user_settings import settings_for
from orihon.engine import Engine
from orihon.errors import Conflict, LeaseHeld, ModelError, UsageError
from orihon.ops.access import AuthorizedStore
from orihon.settings.schema import Settings
from orihon.stores.base import Store
from orihon.task import lifecycle
from orihon.task.config import EXTRACTIVE, Summariser
from orihon.task.reader import Reader
from orihon.task.task import Task


class Compacted(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a compaction. If `messages` is 0, there was nothing to gain and nothing changed."""

    uuid: str
    summariser: str
    messages: int = 0
    kept: int = 0  # of the messages in the window, those that stay as they are
    original_tokens: int = 0
    summary_tokens: int = 0
    window_tokens_before: int
    window_tokens_after: int
    saved_tokens: int = 0
    summary: str = ""
    problems: tuple[str, ...] = ()  # why the model's summary was rejected, if the extractive one replaced it


def compact(authorized: AuthorizedStore, settings: Settings, uuid: str, *, focus: str = "") -> Compacted:
    """Summarise the older messages of a task; `focus` tells the model what matters most."""
    row = authorized.row(uuid)
    settings = settings_for(row.task_source, row.user or "", settings)
    try:
        lease = authorized.store.lease(row.uuid)
    except LeaseHeld as error:
        raise LeaseHeld(
            f"{error.message} A task can be compacted only while it has no writer.",
            owner=error.owner,
            hint="`orihon pause` asks it to pause; then try again.",
        ) from error
    with lease:
        task = Engine(authorized.store, settings, user=authorized.principal.scope).open_leased(lease)
        name = choose_summariser(settings, get_model_name(task.config))
        try:
            with closing(open_model(name, settings)) if name != EXTRACTIVE else nullcontext() as model:
                compacted = _compact(authorized.store, task, name, model.ask if model else None, focus)
        except (ModelError, UsageError) as error:
            if settings.context_storage.summariser:
                raise
            compacted = _compact(authorized.store, task, EXTRACTIVE, None, focus, problem=error.message)
    authorized.record_access("compact", ["window"], uuid=row.uuid)
    return compacted


def _compact(
    store: Store, task: Task, name: str, summariser: Summariser | None, focus: str, *, problem: str = ""
) -> Compacted:
    row = task.row
    if not lifecycle.can_resume(row):
        raise Conflict(
            f"Task {row.uuid} is {row.status} and has its final summary.",
            hint="Only a task that can be resumed can be compacted.",
            retryable=False,
        )
    before = Reader(store, row).window().tokens
    task.summariser = summariser
    rolled = task._summaries.compact(focus=focus)
    if rolled is None:
        return Compacted(uuid=row.uuid, summariser=name, window_tokens_before=before, window_tokens_after=before)
    task.writer.update(activity=row.activity)
    after = Reader(store, row).window().tokens
    return Compacted(
        uuid=row.uuid,
        summariser=name if rolled.outcome.by_model else EXTRACTIVE,
        messages=rolled.messages,
        kept=rolled.left,
        original_tokens=rolled.outcome.original_tokens,
        summary_tokens=rolled.outcome.tokens,
        window_tokens_before=before,
        window_tokens_after=after,
        saved_tokens=before - after,
        summary=rolled.outcome.text,
        problems=(*filter(None, (problem,)), *rolled.outcome.problems),
    )
