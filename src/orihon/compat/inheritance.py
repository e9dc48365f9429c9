"""Document 001, section 3.2: what a new run on an issue takes over from the earlier ones."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from orihon import codec
from orihon.compat.storage import Config, to_settings
from orihon.engine import open_engine
from orihon.inheritance.search import search
from orihon.records import Message, Metadata, TaskRow
from orihon.stores.base import Store
from orihon.task_key import TaskKey, to_task_key

PREFIX = "前回の処理要約: "


class PreviousContext(msgspec.Struct, frozen=True, kw_only=True):
    """An earlier run that can be inherited."""

    uuid: str
    task_key: TaskKey
    status: str
    completed_at: datetime
    final_summary: str
    metadata: dict[str, Any]


class InheritanceContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a new run inherits."""

    previous_context: PreviousContext
    final_summary: str


class ContextInheritanceManager:
    """Finds the earlier runs of a task key in a directory of contexts."""

    def __init__(self, base_dir: str | Path, config: Config = None) -> None:
        self.base_dir, self.config = Path(base_dir), to_settings(config)

    def find_previous_contexts(self, task_key: TaskKey | str | Mapping[str, Any]) -> list[PreviousContext]:
        """Return the runs that were completed or stopped within `context_expiry_days`, the newest first."""
        key = TaskKey(**task_key) if isinstance(task_key, Mapping) else to_task_key(task_key)
        with open_engine(self.base_dir, settings=self.config) as engine:
            found = search(engine.store, key, settings=self.config.context_inheritance, now=codec.now())
            if found.previous is None:
                return []
            newest = _describe(engine.store, found.previous.row, found.previous.summary)
            older = (_describe(engine.store, row, row.final_summary or "") for row in found.older)
            return [newest, *(run for run in older if run.final_summary)]

    def get_inheritance_context(self, task_key: TaskKey | str | Mapping[str, Any]) -> InheritanceContext | None:
        """Return what a new run inherits: the final summary of the newest run; None if there is none."""
        runs = self.find_previous_contexts(task_key)
        return InheritanceContext(previous_context=runs[0], final_summary=runs[0].final_summary) if runs else None

    def create_initial_context(self, inheritance_context: InheritanceContext, user_request: str) -> list[Message]:
        """Return the first messages of a new run: the earlier summary, then the request."""
        summary = PREFIX + inheritance_context.final_summary
        return [
            Message(seq=0, role="assistant", content=summary, timestamp="", tokens=0),
            Message(seq=0, role="user", content=user_request, timestamp="", tokens=0),
        ]


def _describe(store: Store, row: TaskRow, summary: str) -> PreviousContext:
    metadata = next(store.read(row.uuid, Metadata), None)
    return PreviousContext(
        uuid=row.uuid,
        task_key=row.key,
        status=row.status,
        completed_at=datetime.fromisoformat(row.completed_at or row.created_at),
        final_summary=summary,
        metadata={} if metadata is None else msgspec.to_builtins(metadata),
    )
