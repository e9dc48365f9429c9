"""Document 003: a history of which the most important messages are kept, and a snapshot of the progress.

The methods have Python's names; those of the document, such as `addMessage`, work as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from orihon.coerce import unwrap
from orihon.context.importance import importance
from orihon.context.tree import fold_tree
from orihon.engine import open_engine
from orihon.errors import UsageError
from orihon.settings.schema import History, Settings
from orihon.task.task import Task
from orihon.task_key import TaskKey

HISTORY_CONFIG: dict[str, int] = {name.upper(): value for name, value in msgspec.structs.asdict(History()).items()}

KEY = TaskKey.local("history")
_FIELDS = {
    "goal": "goal",
    "completedActions": "completed_actions",
    "currentPhase": "current_phase",
    "keyObservations": "key_observations",
}


class ContextManager:
    """Keeps the newest 40 % of the messages and the most important older ones, `MAX_MESSAGES` in all.

    It writes to memory, or to the given task of an engine.
    """

    def __init__(self, config: Mapping[str, int] = HISTORY_CONFIG, *, task: Task | None = None) -> None:
        self.config = HISTORY_CONFIG | dict(config)
        if unknown := set(self.config) - set(HISTORY_CONFIG):
            raise UsageError(
                f"HISTORY_CONFIG has no {min(unknown)!a:.40}.", hint=f"It has {', '.join(HISTORY_CONFIG)}."
            )
        self.task = task or self._start()

    def _start(self) -> Task:
        options: dict[str, Any] = {name.lower(): value for name, value in self.config.items()}
        self._engine = open_engine("memory:", settings=Settings())
        return self._engine.start(KEY, window="importance", tokens="chars4", snapshot="tail", **options)

    def add_message(self, message: Any) -> float:
        """Append a message, a mapping with `role` and `content`, and return its importance."""
        value = unwrap(message)
        if not isinstance(value, Mapping) or "role" not in value or "content" not in value:
            raise UsageError("A message has a `role` and a `content`.", hint='Give {"role": "user", "content": "…"}.')
        options = {
            name: value[name] for name in ("tool_calls", "tool_call_id", "tool_name", "is_error") if name in value
        }
        seq = self.task.add(str(value["role"]), value["content"], **options)
        return importance(self.task.log.one(seq))

    def get_messages(self) -> list[dict[str, Any]]:
        """Return the messages to send now."""
        return self.task.window().openai()

    def update_snapshot(self, snapshot: Mapping[str, Any]) -> None:
        """Change parts of the snapshot: goal, completedActions, currentPhase, keyObservations."""
        self.task.snapshot(**{_FIELDS.get(name, name): value for name, value in snapshot.items()})

    def get_snapshot(self) -> dict[str, Any] | None:
        """Return the snapshot with the names of the document; None if it is empty."""
        snapshot = self.task.snapshot()
        values = {name: getattr(snapshot, field) for name, field in _FIELDS.items()}
        return {name: v if isinstance(v, str) else list(v) for name, v in values.items()} if snapshot else None

    def compress_ui_data(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Return a message whose trees of user interface elements are cut to the limits."""
        return {**message, "content": fold_tree(str(message["content"]), limits=self.task.config.policy.ui)}

    def get_stats(self) -> dict[str, Any]:
        """Return the number of messages, their estimated tokens, and whether there is a snapshot."""
        tokens, messages = self.task.log.count_uncovered()
        return {"messageCount": messages, "estimatedTokens": tokens, "hasSnapshot": bool(self.task.snapshot())}

    def reset(self) -> None:
        """Forget everything, before a new task."""
        self.task.reset()

    addMessage = add_message  # noqa: N815
    getMessages = get_messages  # noqa: N815
    updateSnapshot = update_snapshot  # noqa: N815
    getSnapshot = get_snapshot  # noqa: N815
    compressUIData = compress_ui_data  # noqa: N815
    getStats = get_stats  # noqa: N815
