"""The outline of a run: a small plain dict that can be kept when the run's directory is gone."""

from __future__ import annotations

from typing import Any

from orihon.planning.history.runs import Execution


def outline(execution: Execution) -> dict[str, Any]:
    """The outline of a run."""
    return {"uuid": execution.uuid, "goal": execution.plan.goal if execution.plan else ""}
