"""The record of a planned run, so that a run that was interrupted continues without doing anything twice.

A piece of work is everything between two calls of `save`. Inside it every prompt has a key, a prompt that was already
answered is read instead of asked, and a value is recorded once. A piece that was interrupted is repeated from its
beginning and ends the same way.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from orihon.errors import ModelError
from orihon.inheritance import outline
from orihon.planning import plan_state
from orihon.planning.digest import make_digest
from orihon.planning.history import Run, read_run
from orihon.planning.parser import parse_reply, read_entry
from orihon.planning.plan_state import Phase, Progress, apply_progress, read_progress, settle_subtasks
from orihon.planning.prompts import PromptBuilder, make_form
from orihon.planning.schema import KIND_OF, Plan, Revision, Value, make_entry
from orihon.records import PlanEntry
from orihon.task.task import Task

MAX_REPEATS = 2  # further attempts after an unreadable reply
KEY = "orihon:planning:{}"

V = TypeVar("V", bound=Value)


class Unreadable(ModelError):
    """The model's replies cannot be read, even after repeated requests."""

    default_hint = "Use a model that can answer in JSON."


class Loop(Protocol):
    """The turns of a task: what planning needs of the agent."""

    task: Task

    def ask(self, text: str, *, key: str | None = None, schema: dict[str, Any] | None = None) -> str: ...

    def continue_from(self, seq: int, *, schema: dict[str, Any] | None = None) -> str: ...

    def check(self) -> None: ...

    def announce(self, text: str) -> None: ...


def record_value(task: Task, value: Value) -> None:
    """Append a value to a task's planning history and refresh its digest, for programs that plan without a model."""
    task.plan(make_entry(value))
    run = read_run(task.lease.store, task.row)
    task.event("note", **{outline.NOTE: msgspec.to_builtins(make_digest(run, task.history.language))})


class Journal:
    """The plan of a run and its progress."""

    prompts: PromptBuilder

    def __init__(self, loop: Loop) -> None:
        self.loop, self.task = loop, loop.task
        notes = self.task.history.view.state.notes
        self.progress = read_progress(notes) or Progress()
        self._digest = notes.get(outline.NOTE)
        self._run = Run()  # the entries so far, for the digest
        plan = Plan()
        for value in self.read_values(last=self.progress.entries) if self.progress.entries else ():
            self._run.add(value)
            if isinstance(value, Plan):
                plan = value
            elif isinstance(value, Revision) and value.updated_plan is not None:
                plan = value.updated_plan
        self.plan = apply_progress(plan, self.progress)
        self._asked, self._entries = self.progress.asked, self.progress.entries
        interrupted = self.task.history.read(self.progress.since + 1, self.task.history.last)
        self._prompted = {message.key: message.seq for message in interrupted if message.role == "user"}

    # storing

    def save(self, phase: Phase, **changes: Any) -> None:
        """End this piece of work; the next one is `phase`."""
        counts = {"asked": self._asked, "entries": self._entries, "since": self.task.history.last, "open_question": 0}
        self.update_progress(phase=phase, **counts, **changes)

    def update_progress(self, **changes: Any) -> None:
        """Store the progress and the digest inside a piece of work, which still begins where it began."""
        actions = self.plan.actions
        errors = {str(number): action.error for number, action in enumerate(actions) if action.error}
        steps = tuple(action.status for action in actions)
        self.progress = replace(self.progress, steps=steps, errors=errors, **changes)
        notes = {plan_state.NOTE: msgspec.to_builtins(self.progress)}
        run = replace(self._run, plan=settle_subtasks(self.plan))
        digest = msgspec.to_builtins(make_digest(run, self.task.history.language))
        if digest != self._digest:
            self._digest = notes[outline.NOTE] = digest
        self.task.event("note", **notes)

    def record(self, value: V) -> V:
        """Append a value to the planning history, once, and return it as it is stored."""
        self._entries += 1
        if self.task.lease.last(PlanEntry) < self._entries:
            self.task.plan(make_entry(value))
        stored = next(self.read_values(first=self._entries, last=self._entries), None)
        self._run.add(stored)
        return stored if isinstance(stored, type(value)) else value

    def read_values(self, **numbers: int) -> Iterator[Value | None]:
        """Yield values of the planning history."""
        return map(read_entry, self.task.lease.store.read(self.task.uuid, PlanEntry, **numbers))

    # asking

    def ask(self, prompt: str, form: dict[str, Any] | None = None) -> str:
        """Send the next prompt of this piece of work and return the reply."""
        self._asked += 1
        key = KEY.format(self._asked)
        if key in self._prompted:  # before the interruption
            return self.loop.continue_from(self._prompted[key], schema=form)
        return self.loop.ask(prompt, key=key, schema=form)

    def ask_for(self, struct: type[V], prompt: str, form: dict[str, Any] | None = None) -> tuple[V, str]:
        """Return a value and the reply that holds it. Raise Unreadable if no reply can be read."""
        form = form or make_form(KIND_OF[struct])
        problem = ""
        for _ in range(MAX_REPEATS + 1):
            reply = self.ask(prompt, form)
            try:
                return parse_reply(reply, struct), reply
            except ModelError as error:
                problem = error.message
                prompt = self.prompts.ask_again(problem, form)
        raise Unreadable(problem)

    def announce(self, text: str, *, warning: bool = False) -> None:
        """Show a text to the user who watches the run."""
        if warning:
            self.task.log.warning("%s", text)
        if text:
            self.loop.announce(text)
