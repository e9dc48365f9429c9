"""Hooks: objects that are called at certain moments of a task. A hook that fails is logged and changes nothing.

before_request(task, window)    after_reply(task, message)    after_tool(task, run)
on_started(task)  on_resumed(task)  on_paused(task)  on_completed(task)  on_stopped(task)  on_failed(task)

`before_request` may return `window.replace(messages)`, which is sent instead if every provider accepts it and it fits.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from orihon.context.repair import repair
from orihon.errors import UsageError
from orihon.records import Message
from orihon.task.window import Window

if TYPE_CHECKING:
    from orihon.task.task import Task

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
        with _log_failure(hook, name, task):
            method = getattr(hook, name, None)
            if method is not None:
                method(task, *arguments)


def replace_window(hooks: Sequence[Any], task: Task, window: Window) -> Window:
    """Call `before_request` of all hooks that have it, in order. Return the window that is to be sent."""
    for hook in hooks:
        with _log_failure(hook, "before_request", task):
            method = getattr(hook, "before_request", None)
            replacement = None if method is None else method(task, window)
            if replacement is not None:
                window = _check(replacement, window, task)
    return window


@contextmanager
def _log_failure(hook: Any, name: str, task: Any) -> Iterator[None]:
    try:
        yield
    except Exception:
        logger.exception("[uuid:%s] The hook %s of %s failed.", task.uuid[:8], name, type(hook).__name__)


def _check(replacement: Any, window: Window, task: Task) -> Window:
    """Return a replaced window, masked and counted. Raise UsageError if it cannot be sent."""
    hint = "Return window.replace(messages), with messages of the window or changed by msgspec.structs.replace."
    if not isinstance(replacement, Window) or not all(isinstance(item, Message) for item in replacement.messages):
        raise UsageError(f"{type(replacement).__name__} is no window of messages.", hint=hint)
    counter, sanitiser = task.log.counter, task.writer.sanitiser
    messages = [
        message if message in window.messages else sanitiser.record(message) for message in replacement.messages
    ]
    messages = [msgspec.structs.replace(message, tokens=counter.message(message)) for message in messages]
    if not messages or repair(messages) != messages:
        raise UsageError("A provider would refuse the messages.", hint="Keep calls with their results, and the order.")
    tokens, limit = sum(message.tokens for message in messages), window.report.limit
    if tokens > limit:
        raise UsageError(f"The messages have {tokens:,} tokens, and {limit:,} fit.", hint=hint)
    reasons = (*window.report.reasons, "a hook replaced messages")
    report = msgspec.structs.replace(window.report, tokens=tokens, reasons=reasons, by_source=_sum_by_role(messages))
    return window.replace(messages, report)


def _sum_by_role(messages: Sequence[Message]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for message in messages:
        sums[message.role] = sums.get(message.role, 0) + message.tokens
    return sums
