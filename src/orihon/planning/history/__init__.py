"""What earlier runs of the same task key planned, did and learned.

    past_executions(store, key)   the newest runs that have a plan, as values
    execution(store, row)         one run
    learnings(executions)         what a planner can use of them
    outline(execution)            a small dict that outlives the run's directory
    sections(executions, …)       the texts that a new run is given

A run is found by its whole task key, never by an issue's number alone, and "three plans" are three runs.
"""

from __future__ import annotations

from orihon.planning.history.learnings import Learnings, learnings, relevant
from orihon.planning.history.outline import outline
from orihon.planning.history.runs import Execution, ToolUse, execution, past_executions
from orihon.planning.history.sections import sections

__all__ = [
    "Execution",
    "Learnings",
    "ToolUse",
    "execution",
    "learnings",
    "outline",
    "past_executions",
    "relevant",
    "sections",
]
