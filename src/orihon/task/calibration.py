"""How many of the provider's tokens one of ours is, learned from the usage it reports and the windows it refuses.

A refusal counts for good: no later report takes the scale below what the refusals taught.
"""

from __future__ import annotations

from typing import Any

from orihon.errors import BudgetTooSmall
from orihon.task.log import TaskLog
from orihon.tokens import MIN_PAIRS, MOST_SCALE, calibrate

MAX_PAIRS = 16  # newest requests that the calibration considers
MIN_CHANGE = 0.05  # smaller differences are ignored
REFUSAL_FACTOR = 1.25  # a refused window was this much larger than the room it gets next
MAX_REFUSALS = 4  # in a row


class Calibration:
    """The newest requests of a task: what we counted, and what the provider reported."""

    def __init__(self) -> None:
        self._pairs: list[tuple[int, int]] = []
        self._config: object = None

    def report(self, log: TaskLog, counted: int, reported: int) -> dict[str, Any]:
        """Return the notes to store after a reply with usage; none if the scale changes little."""
        if self._config is not log.config:  # another model counts differently
            self._pairs, self._config = [], log.config
        self._pairs = [*self._pairs, (counted + log.schema_tokens, reported)][-MAX_PAIRS:]
        if len(self._pairs) < MIN_PAIRS:
            return {}  # the scale from before a resume holds until there are as many pairs again
        scale = max(1.0, float(log.view.state.notes.get("least_scale", 1.0)), calibrate(self._pairs))
        return {"scale": round(scale, 3)} if abs(scale - log.scale) > MIN_CHANGE else {}


def refuse(log: TaskLog, *, sent: int, calls: int) -> dict[str, Any]:
    """Return the notes to store after the provider refused a window of `sent` tokens in a task with `calls` replies."""
    times, at = log.view.state.notes.get("refusals", (0, -1))
    times = times + 1 if at == calls else 1
    if times > MAX_REFUSALS:
        raise BudgetTooSmall(
            f"The provider refuses the request as too long, even after it was folded {MAX_REFUSALS} times in a row to "
            f"{sent:,} tokens.",
            needed=sent,
            allowed=log.limit,
            hint="Set context_length to what the server really offers, and use fewer tools or a shorter system prompt.",
        )
    scale = round(min(max(REFUSAL_FACTOR * log.scale, _scale_below(log, sent)), MOST_SCALE), 3)
    return {"scale": scale, "least_scale": scale, "refusals": [times, calls]}


def _scale_below(log: TaskLog, sent: int) -> float:
    """Return the scale at which there is clearly less room than a window of `sent` tokens took; 1 if none was sent."""
    if not sent:
        return 1.0
    config = log.config
    return (config.context_length - config.reserved_output) / max(1.0, sent / REFUSAL_FACTOR + log.schema_tokens)
