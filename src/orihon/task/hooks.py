"""Hooks: objects that are called at certain moments of a task. A hook that fails is logged and changes nothing.

before_request(task, window)    after_reply(task, message)    after_tool(task, run)
on_started(task)  on_resumed(task)  on_paused(task)  on_completed(task)  on_stopped(task)  on_failed(task)
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from orihon.errors import UsageError

logger = logging.getLogger("orihon")

NAMES = (
    *("before_request", "after_reply", "after_tool"),
    *("on_started", "on_resumed", "on_paused", "on_completed", "on_stopped", "on_failed"),
)


def validate_hooks(hooks: Sequence[Any]) -> tuple[Any, ...]:
    """Return the hooks; raise UsageError for an object that has none of the methods."""
    for hook in hooks:
        if not any(callable(getattr(hook, name, None)) for name in NAMES):
            raise UsageError(f"{hook!a:.80} is not a hook.", hint=f"It needs one of {', '.join(NAMES)}.")
    return tuple(hooks)


def call_hooks(hooks: Sequence[Any], name: str, task: Any, *arguments: Any) -> None:
    """Call a method of all hooks that have it, in order."""
    for hook in hooks:
        try:
            method = getattr(hook, name, None)
            if method is not None:
                method(task, *arguments)
        except Exception:
            logger.exception("[uuid:%s] The hook %s of %s failed.", task.uuid[:8], name, type(hook).__name__)
