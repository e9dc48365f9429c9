"""How many of the provider's tokens one of ours is: learned from what it reports, and from what it refuses.

A refusal counts for ever: nothing that is reported later takes the scale below what the refusals taught.
"""

from __future__ import annotations

from typing import Any

from orihon.errors import BudgetTooSmall
from orihon.task.history import History
from orihon.tokens import MIN_PAIRS, MOST_SCALE, calibrate

PAIRS = 16  # requests that the calibration looks at
STEP = 0.05  # smaller differences are not worth a change
TIGHTER = 1.25  # what was refused is so much larger than the room that is left then
MOST_REFUSALS = 4  # in a row

Pairs = list[tuple[int, int]]  # what we counted of a request, and what the provider did


def reported(history: History, pairs: Pairs) -> dict[str, Any]:
    """What to note after a reply with usage; nothing, when it changes little or there is too little to go by."""
    if len(pairs) < MIN_PAIRS:
        return {}  # what was found out before a resume holds until there is as much again
    scale = max(1.0, float(history.view.state.notes.get("least_scale", 1.0)), calibrate(pairs))
    return {"scale": round(scale, 3)} if abs(scale - history.scale) > STEP else {}


def refused(history: History, *, sent: int, calls: int) -> dict[str, Any]:
    """What to note after the provider found a window of `sent` tokens too long, in a task with so many replies."""
    times, at = history.view.state.notes.get("refusals", (0, -1))
    times = times + 1 if at == calls else 1
    if times > MOST_REFUSALS:
        raise BudgetTooSmall(
            f"The provider finds the request too long, even after it was folded {MOST_REFUSALS} times in a row to "
            f"{sent:,} tokens.",
            needed=sent,
            allowed=history.limit,
            hint="Set context_length to what the server really offers, and use fewer tools or a shorter system prompt.",
        )
    scale = round(min(max(TIGHTER * history.scale, _too_small_for(history, sent)), MOST_SCALE), 3)
    return {"scale": scale, "least_scale": scale, "refusals": [times, calls]}


def _too_small_for(history: History, sent: int) -> float:
    """The scale at which there is clearly less room than the last window took; 1 when none was sent."""
    if not sent:
        return 1.0
    config = history.config
    return (config.context_length - config.reserved_output) / max(1.0, sent / TIGHTER + history.schema_tokens)
