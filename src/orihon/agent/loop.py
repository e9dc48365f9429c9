"""One turn after another: look whether to go on, make a window, ask the model, run the tools.

Everything that ends a run early is an exception with its reason, so that nothing ends as a success by accident. What
was said and done until then is in the log.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from orihon.agent.models.base import was_cut
from orihon.codec import as_text
from orihon.errors import ContextOverflow, LimitReached, ModelError, ToolError
from orihon.records import Message, Usage
from orihon.task.runs import PendingCall
from orihon.task.task import Task
from orihon.task.window import Window

MAX_FAILURES = 3  # of one tool, or of replies that say nothing, in a row
MAX_CUTS = 5  # replies in a row that ran out of tokens
STATS_EVERY = 5
RESULT_CHARS = 200  # of a result, for whoever watches
CUT = "cut"  # the note that names a reply that broke off


class Model(Protocol):
    """Who answers. One that can hold to a form says so by `structured`, and is given it as `schema`."""

    def reply(self, window: Window, *, on_text: Callable[[str], None] | None = None) -> Any: ...


class Tools(Protocol):
    """What can be done."""

    def run(self, call: PendingCall) -> Any: ...


class PauseRequested(Exception):
    """Somebody wants the task to wait."""


class StopRequested(Exception):
    """Somebody does not want it done any more."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How far a run may go; None means as far as it likes. Calls and tokens count over all sittings of a task."""

    calls: int | None = 1000
    tokens: int | None = None
    seconds: float | None = None
    cost: float | None = None
    input_price: float = 0.0  # per million tokens
    output_price: float = 0.0


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened, for whoever watches."""

    kind: str  # turn, text, call, result, note
    text: str = ""
    turn: int = 0
    phase: str = ""
    tokens: int = 0
    limit: int = 0
    by_source: dict[str, int] = {}
    folded: int = 0
    is_error: bool = False


Watch = Callable[[Step], None]


class Loop:
    """Turns of one task."""

    def __init__(
        self,
        task: Task,
        model: Model,
        tools: Tools,
        *,
        checks: Sequence[Callable[[Task], None]] = (),
        limits: Limits = Limits(),  # noqa: B008 - it is frozen
        on_step: Watch | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.task, self.model, self.tools = task, model, tools
        self.checks, self.limits = checks, limits
        self.on_step: Watch = on_step or (lambda _: None)
        self._clock, self._began = clock, clock()
        self._failures: dict[str, int] = {}
        self._silent = 0
        self._halves: list[str] = []  # of a text that the model could not end in one reply
        self._is_cut = False
        self._spent: float | None = None if limits.cost is not None else 0.0

    def ask(self, text: str, *, key: str | None = None, schema: dict[str, Any] | None = None) -> str:
        """Say something, and go on until the model has nothing more to ask for; its last words.

        What was said before with the same key is not said again, and what was answered is not asked again.
        """
        return self.continue_from(self.task.add("user", text, key=key), schema=schema)

    def continue_from(self, seq: int, *, schema: dict[str, Any] | None = None) -> str:
        """The model's last words about something that was said before."""
        answer = self._answer_to(seq)
        return answer if answer is not None else self.run_until_done(schema=schema)

    def run_until_done(self, *, schema: dict[str, Any] | None = None) -> str:
        """Go on until the model has nothing more to ask for; its last words."""
        said = ""
        self._run_pending()  # what was asked for before a pause
        self._take_up()
        while self.task.wants_reply():
            halves = "".join(self._halves)
            said = halves + self.turn(schema=schema).text
        return said

    def turn(self, *, schema: dict[str, Any] | None = None) -> Message:
        """One window, one reply, and the tools that it asks for."""
        self.check()
        message = self._reply(schema)
        self._watch_for_silence(message)
        self._watch_for_halves(message)
        self._run_pending()
        return message

    def check(self) -> None:
        """Whether to go on: asked before every turn, and wherever a long piece of work could be left."""
        for check in self.checks:
            check(self.task)
        self._check_limits()

    def announce(self, text: str) -> None:
        """Tell whoever watches."""
        self.on_step(Step(kind="note", text=self.task.sanitiser.text(text)))

    def _answer_to(self, seq: int) -> str | None:
        """What the model answered to a message, in an earlier sitting; None when it has still to."""
        for message in self.task.history.read(seq + 1, self.task.history.last):
            if message.role == "assistant" and not message.tool_calls and message.text.strip():
                return message.text
        return None

    def _run_pending(self) -> None:
        for call in self.task.pending_calls():
            self._run(call)

    def _reply(self, schema: dict[str, Any] | None = None) -> Message:
        form = {"schema": schema} if schema and getattr(self.model, "structured", False) else {}
        while True:
            window = self.task.window()
            self._report(window)
            try:
                reply = self.model.reply(window, on_text=self._tell, **form)
            except ContextOverflow:
                self.task.shrink_budget()  # it says when there is nothing left to fold
                continue
            self._is_cut = isinstance(reply, dict) and was_cut(reply)
            if self._is_cut:  # before it is stored, so that a crash cannot make an answer of it
                self.task.event("note", **{CUT: self.task.history.last + 1})
            message = self.task.history.one(self.task.add_reply(reply))
            self._spent = self.cost + (compute_cost(message.usage, self.limits) if message.usage else 0.0)
            return message

    def _run(self, call: PendingCall) -> None:
        shown = self.task.sanitiser.text  # whoever watches may cut it, print it or send it on
        self.on_step(Step(kind="call", text=f"{shown(call.name)} {self.task.sanitiser.arguments(call.text)}"))
        with self.task.tool(call) as run:
            run.result = self.tools.run(call)
        self.on_step(Step(kind="result", text=shown(as_text(run.result))[:RESULT_CHARS], is_error=run.is_error))
        failures = self._failures.get(call.name, 0) + 1 if run.is_error else 0
        self._failures[call.name] = failures
        if failures >= MAX_FAILURES:
            self._failures[call.name] = 0  # who goes on after that has tries again
            raise ToolError(shown(f"{call.name} failed {failures} times in a row: {run.result}"))

    def _take_up(self) -> None:
        """A reply that was stored just before a crash, and is none, is followed up now."""
        newest = next(self.task.history.backwards(self.task.history.view.state.ranges), None)
        if newest is None or newest.role != "assistant" or newest.tool_calls:
            return
        self._is_cut = self.task.history.view.state.notes.get(CUT) == newest.seq
        self._watch_for_silence(newest)
        self._watch_for_halves(newest)

    def _watch_for_silence(self, message: Message) -> None:
        self._silent = 0 if message.text.strip() or message.tool_calls else self._silent + 1
        if self._silent >= MAX_FAILURES:
            raise ModelError(f"The model said nothing {self._silent} times in a row.")
        if self._silent:
            self.task.add("user", _SAY_SOMETHING)

    def _watch_for_halves(self, message: Message) -> None:
        """A text that broke off is no answer: the model is asked for the rest. A call that broke off reads why."""
        if not self._is_cut or message.tool_calls or not message.text.strip():
            self._halves = []
            return
        self._halves.append(message.text)
        if len(self._halves) >= MAX_CUTS:
            raise ModelError(
                f"The model's reply was cut {MAX_CUTS} times in a row.", hint="Set a larger `window.reserved_output`."
            )
        self.task.add("user", _GO_ON)

    def _check_limits(self) -> None:
        row, limits = self.task.row, self.limits
        reached = {
            "calls": limits.calls is not None and row.llm_call_count >= limits.calls,
            "tokens": limits.tokens is not None and row.total_tokens >= limits.tokens,
            "seconds": limits.seconds is not None and self._clock() - self._began >= limits.seconds,
            "cost": limits.cost is not None and self.cost >= limits.cost,
        }
        for name, is_reached in reached.items():
            if is_reached:
                raise LimitReached(f"The run has reached its limit of {getattr(limits, name):,} {name}.", limit=name)

    @property
    def cost(self) -> float:
        """What the replies of the task cost so far, by the prices that were given; earlier sittings are read once."""
        if self._spent is None:
            messages = self.task.lease.store.read(self.task.uuid, Message)
            self._spent = sum(compute_cost(message.usage, self.limits) for message in messages if message.usage)
        return self._spent

    def _report(self, window: Window) -> None:
        turn, report = self.task.row.llm_call_count + 1, window.report
        self.on_step(
            Step(
                kind="turn",
                turn=turn,
                phase=self.task.snapshot().current_phase,
                tokens=report.tokens,
                limit=report.limit,
                by_source=report.by_source,
                folded=report.folded + report.left_out,
            )
        )
        if turn % STATS_EVERY == 0:
            stats = len(window.messages)
            self.task.log.debug("Context stats: %d messages, ~%d tokens", stats, report.tokens)

    def _tell(self, text: str) -> None:
        self.on_step(Step(kind="text", text=text))


def compute_cost(usage: Usage, limits: Limits) -> float:
    """What a usage costs by these prices."""
    spent = usage.input_tokens * limits.input_price + usage.output_tokens * limits.output_price
    return spent / 1_000_000


_GO_ON = "Your last reply was cut because it was too long. Go on exactly where it broke off; repeat nothing."
_SAY_SOMETHING = "Your last reply was empty. Go on with the task, or say that it is done."
