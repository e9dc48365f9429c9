"""The sections that tell a new run about the earlier ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from orihon.planning.history.outline import outline
from orihon.planning.history.runs import Execution


def sections(
    executions: Execution | dict[str, Any] | Iterable[Execution | dict[str, Any]],
    *,
    language: str = "en",  # noqa: ARG001
    plans: bool = True,
    verifications: bool = True,  # noqa: ARG001
    reflections: bool = True,  # noqa: ARG001
    patterns: bool = True,  # noqa: ARG001
    detail: bool = True,  # noqa: ARG001
) -> list[tuple[str, str]]:
    """The sections, each with its name and its text."""
    runs = [executions] if isinstance(executions, Execution | dict) else list(executions)
    outlines = [run if isinstance(run, dict) else outline(run) for run in runs]
    return [("Previous Plan Summary", "\n".join(item["goal"] for item in outlines))] if plans else []
