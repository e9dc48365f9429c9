"""What a planned run keeps, so that whoever resumes it goes on and does nothing twice.

A piece of work is what lies between two calls of `save`. Inside it, what is said has a key, what was answered is read
instead of asked, and what is recorded is recorded once. So a piece that was cut off is simply done again, and comes to
the same end.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from orihon.errors import ModelError
from orihon.planning.history.progress import NOTE, Phase, Progress, advanced, progress_of
from orihon.planning.schema import Plan, Revision, Value, parse, value_of
from orihon.planning.schema.values import KIND_OF
from orihon.planning.telling import Telling, form
from orihon.records import PlanEntry
from orihon.task.task import Task

REPEATS = 2  # times that an answer which cannot be read is asked for again
KEY = "orihon:planning:{}"

V = TypeVar("V", bound=Value)


class Unreadable(ModelError):
    """The model's answer cannot be read, however often it is asked."""

    default_hint = "Use a model that can answer in JSON."


class Loop(Protocol):
    """Turns of a task: what a plan needs of the agent."""

    task: Task

    def ask(self, text: str, *, key: str | None = None, schema: dict[str, Any] | None = None) -> str: ...

    def continue_from(self, seq: int, *, schema: dict[str, Any] | None = None) -> str: ...

    def check(self) -> None: ...

    def announce(self, text: str) -> None: ...


class Notebook:
    """The plan and its progress as they stand."""

    telling: Telling

    def __init__(self, loop: Loop) -> None:
        self.loop, self.task = loop, loop.task
        self.progress = progress_of(self.task.history.view.state.notes) or Progress()
        self.plan = advanced(self._stored_plan(), self.progress)
        self._asked, self._entries = self.progress.asked, self.progress.entries
        cut_off = self.task.history.read(self.progress.since + 1, self.task.history.last)
        self._said = {message.key: message.seq for message in cut_off if message.role == "user"}

    # keeping

    def save(self, phase: Phase, **changes: Any) -> None:
        """The piece of work is done, and this is the next."""
        counts = {"asked": self._asked, "entries": self._entries, "since": self.task.history.last, "open_question": 0}
        self.remember(phase=phase, **counts, **self.steps(), **changes)

    def remember(self, **changes: Any) -> None:
        """Note something inside a piece of work, which still begins where it began."""
        self.progress = replace(self.progress, **changes)
        self.task.event("note", **{NOTE: msgspec.to_builtins(self.progress)})

    def steps(self) -> dict[str, Any]:
        """How the actions stand."""
        actions = self.plan.actions
        errors = {str(number): action.error for number, action in enumerate(actions) if action.error}
        return {"steps": tuple(action.status for action in actions), "errors": errors}

    def record(self, value: V) -> V:
        """Keep a value in the planning history, once, and give it as it is kept."""
        self._entries += 1
        if self.task.lease.last(PlanEntry) < self._entries:
            self.task.plan(value)
        kept = next(self.recorded(first=self._entries, last=self._entries), None)
        return kept if isinstance(kept, type(value)) else value

    def recorded(self, **numbers: int) -> Any:
        """Values of the planning history."""
        return map(value_of, self.task.lease.store.read(self.task.uuid, PlanEntry, **numbers))

    def _stored_plan(self) -> Plan:
        """The newest whole plan."""
        plan = Plan()
        for value in self.recorded(last=self.progress.entries) if self.progress.entries else ():
            if isinstance(value, Plan):
                plan = value
            elif isinstance(value, Revision) and value.updated_plan is not None:
                plan = value.updated_plan
        return plan

    # asking

    def ask(self, text: str, schema: dict[str, Any] | None = None) -> str:
        """Say the next thing of this piece."""
        self._asked += 1
        key = KEY.format(self._asked)
        if key in self._said:  # before it was cut off
            return self.loop.continue_from(self._said[key], schema=schema)
        return self.loop.ask(text, key=key, schema=schema)

    def answer(self, kind: type[V], prompt: str) -> V:
        """An answer that can be read; Unreadable when there is none after all."""
        return self.answers(prompt, kind)[0]

    def answers(self, prompt: str, kind: type[V], *, beside: bool = False) -> tuple[V, Revision | None]:
        """The same, with the revision of the plan that may stand `beside` it."""
        name = next(name for struct, name in KIND_OF.items() if struct is kind)
        schema = form(name, "revision") if beside else form(name)
        problem = ""
        for _ in range(REPEATS + 1):
            text = self.ask(prompt, schema)
            try:
                value = parse(text, name)
            except ModelError as error:
                problem = error.message
                prompt = self.telling.again(problem, schema)
                continue
            if isinstance(value, kind):
                return value, _revision(text) if beside else None
        raise Unreadable(problem)

    def tell(self, text: str, *, warning: bool = False) -> None:
        """Say something to whoever watches."""
        if warning:
            self.task.log.warning("%s", text)
        if text:
            self.loop.announce(text)


def _revision(text: str) -> Revision | None:
    try:
        value = parse(text, "revision")
    except ModelError:
        return None
    return value if isinstance(value, Revision) else None
