"""What earlier runs teach: what worked, what failed and why, and what to look at before the work counts as done."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from orihon.planning.history.runs import Execution, ToolUse
from orihon.planning.schema import Action


class Learnings(Struct, frozen=True, kw_only=True):
    """Values for a planner."""

    tools: tuple[ToolUse, ...] = ()


def learnings(executions: Iterable[Execution]) -> Learnings:
    """What the runs teach together."""
    return Learnings(tools=tuple(use for run in executions for use in run.tools))


def relevant(learned: Learnings, action: Action) -> Learnings:
    """Only what concerns an action."""
    return Learnings(tools=tuple(use for use in learned.tools if use.tool == action.tool))
