"""`compact(desk, settings, uuid)`: summarise the older part of a task by hand, between two sittings.

It takes the lease, so nobody writes the task meanwhile, and leaves the status as it was. The summariser is the model
that the settings of the task's user name, else the extractive one. Nothing is deleted: the log stays whole.
"""

from __future__ import annotations

from contextlib import closing

import msgspec

from orihon.agent.models import open_model
from orihon.agent.user_settings import settings_for
from orihon.engine import Engine
from orihon.errors import Conflict, LeaseHeld
from orihon.ops.access import Desk
from orihon.settings.schema import Settings
from orihon.stores.base import Lease
from orihon.task import lifecycle, summaries
from orihon.task.config import EXTRACTIVE, Summariser
from orihon.task.reader import Reader


class Compacted(msgspec.Struct, frozen=True, kw_only=True):
    """What a compaction saved; `messages` is 0 when there was nothing to gain, and nothing was changed."""

    uuid: str
    summariser: str
    messages: int = 0
    original_tokens: int = 0
    summary_tokens: int = 0
    window_tokens_before: int
    window_tokens_after: int
    summary: str = ""
    problems: tuple[str, ...] = ()  # of the model, where the extractive summary had to stand in


def compact(desk: Desk, settings: Settings, uuid: str, *, focus: str = "") -> Compacted:
    """Do it; `focus` says what the summary should dwell on."""
    row = desk.row(uuid)
    settings = settings_for(row.task_source, row.user or "", settings)
    name = settings.context_storage.summariser or EXTRACTIVE
    try:
        lease = desk.store.lease(row.uuid)
    except LeaseHeld as error:
        raise LeaseHeld(
            f"{error.message} It is summarised while nobody writes it.",
            owner=error.owner,
            hint="`orihon pause` asks it to pause; then try again.",
        ) from error
    with lease:
        if name == EXTRACTIVE:
            made = _compacted(desk, settings, lease, None, focus)
        else:
            with closing(open_model(name, settings)) as model:
                made = _compacted(desk, settings, lease, model.ask, focus)
    desk.looked("compact", uuid=row.uuid, read=["window"])
    return msgspec.structs.replace(made, summariser=name)


def _compacted(desk: Desk, settings: Settings, lease: Lease, summariser: Summariser | None, focus: str) -> Compacted:
    task = Engine(desk.store, settings, user=desk.who.scope).taken(lease)
    row = task.row
    if not lifecycle.can_resume(row):
        raise Conflict(
            f"Task {row.uuid} is {row.status}; its final summary is written.",
            hint="Only a task that can go on is summarised.",
            retryable=False,
        )
    before = Reader(desk.store, row).window().tokens
    made = summaries.roll(task, summariser, focus=focus)
    if made is None:
        return Compacted(uuid=row.uuid, summariser="", window_tokens_before=before, window_tokens_after=before)
    task.update(activity=row.activity)
    return Compacted(
        uuid=row.uuid,
        summariser="",
        messages=made.messages,
        original_tokens=made.outcome.original_tokens,
        summary_tokens=made.outcome.tokens,
        window_tokens_before=before,
        window_tokens_after=Reader(desk.store, row).window().tokens,
        summary=made.outcome.text,
        problems=made.outcome.problems,
    )
