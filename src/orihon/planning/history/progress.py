"""How far a plan is: kept as the note `planning` of a task, so that a pause or a crash loses nothing of it.

The plan itself is in the entries of the planning history; here is how its steps stand, what was counted, and what a
person was asked. The counters only grow: no new plan sets one back.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from orihon.context.view import RECORD_EVERY, view
from orihon.errors import StoreError
from orihon.planning.schema import Plan, StepStatus
from orihon.records import Event
from orihon.stores.base import Store

NOTE = "planning"

Phase = Literal["inheritance", "planning", "execution", "reflection", "replanning", "verification", "mending", "done"]
Applicability = Literal["new", "reference", "continue"]


class Question(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a person was asked, the answer if there was one, and what is assumed if not."""

    questions: tuple[str, ...] = ()
    answer: str | None = None
    assumptions: tuple[str, ...] = ()


class Progress(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a run with a plan stands; `asked` and `entries` count what the log and the history hold of it."""

    phase: Phase = "inheritance"
    applicability: Applicability = "new"  # of the plan of the run before
    inherited: tuple[str, ...] = ()  # the runs that are learned from
    asked: int = 0
    entries: int = 0
    steps: tuple[StepStatus, ...] = ()  # of the actions of the plan, in their order
    errors: dict[str, str] = {}  # by the number of the action
    step: int = 0  # the action that is worked on, or was last
    since: int = 0  # the message after which this piece of work began
    advice: str = ""  # for the next try of it
    actions: int = 0
    revisions: int = 0
    replans: dict[str, int] = {}  # by type, and all together
    pairs: dict[str, int] = {}  # how often a type was used at a place
    questions: tuple[Question, ...] = ()
    open_question: int = 0  # what had been said when a person was asked in this piece of work
    round: int = 0


def progress_of(notes: dict[str, Any]) -> Progress | None:
    """The progress that the notes of a task hold; None when there is none."""
    try:
        return msgspec.convert(notes[NOTE], Progress) if NOTE in notes else None
    except msgspec.ValidationError:
        return None


def stored_progress(store: Store, uuid: str) -> Progress | None:
    """The progress of any run, read from its newest events; None when they cannot be read."""
    from orihon.context.events import sound  # noqa: PLC0415 - only reading needs the schemas

    try:
        newest = list(store.read(uuid, Event, first=-2 * RECORD_EVERY))  # a record of the whole view is among so many
    except StoreError:
        return None
    return progress_of(view(sound(newest)).state.notes)


def advanced(plan: Plan, progress: Progress | None) -> Plan:
    """The plan with its steps as they stand."""
    if progress is None or len(progress.steps) != len(plan.actions):
        return plan
    actions = tuple(
        replace(action, status=status, error=progress.errors.get(str(number), ""))
        for number, (action, status) in enumerate(zip(plan.actions, progress.steps, strict=True))
    )
    return replace(plan, action_plan=replace(plan.action_plan, actions=actions))
