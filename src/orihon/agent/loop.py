"""Turns of one task: check whether to continue, build a window, ask the model, run the tools.

A run that ends early ends with an exception that gives the reason, so that nothing ends as a success by accident. The
log keeps everything up to that point.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from orihon.agent.models import OnText, was_cut
from orihon.codec import safe_str
from orihon.context.matter import NOTICE
from orihon.errors import ContextOverflow, LimitReached, ModelError, ToolError
from orihon.records import Message, Usage
from orihon.task.task import Task
from orihon.task.tool_run import PendingCall
from orihon.task.window import Window

MAX_FAILURES = 3  # of one tool, or empty replies, in a row
MAX_CUTS = 5  # replies in a row that ran out of tokens
STATS_EVERY = 5  # turns
RESULT_CHARS = 200  # of a result, for `on_step`
CUT = "cut"  # note with the number of a reply that was cut

_CONTINUE = "Your last reply was cut because it was too long. Go on exactly where it broke off; repeat nothing."
_NOT_EMPTY = "Your last reply was empty. Go on with the task, or say that it is done."


class Model(Protocol):
    """Answers windows. A model with the attribute `structured` also takes the `schema` of the answer."""

    def reply(self, window: Window, *, on_text: OnText | None = None) -> Any: ...


class Tools(Protocol):
    """Carry out calls."""

    @property
    def schemas(self) -> list[dict[str, Any]]: ...

    def run(self, call: PendingCall) -> Any: ...


class PauseRequested(Exception):
    """The task is to be paused; the message is the reason."""


class StopRequested(Exception):
    """The task is to be stopped; the message is the reason."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a run; None means unlimited. Calls and tokens count over all sittings of a task."""

    calls: int | None = 1000
    tokens: int | None = None
    seconds: float | None = None
    cost: float | None = None
    input_price: float = 0.0  # per million tokens
    output_price: float = 0.0


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened in a run."""

    kind: str  # turn, text, call, result, note
    text: str = ""
    turn: int = 0
    phase: str = ""
    tokens: int = 0
    limit: int = 0
    by_source: dict[str, int] = {}
    folded: int = 0
    is_error: bool = False


OnStep = Callable[[Step], None]


class Loop:
    """The turns of one task."""

    def __init__(
        self,
        task: Task,
        model: Model,
        tools: Tools,
        *,
        checks: Sequence[Callable[[Task], None]] = (),
        limits: Limits = Limits(),  # noqa: B008 - it is frozen
        on_step: OnStep | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.task, self.model, self.tools = task, model, tools
        self.checks, self.limits = checks, limits
        self.on_step: OnStep = on_step or (lambda _: None)
        self._clock, self._started = clock, clock()
        self._failures: dict[str, int] = {}
        self._empty_replies = 0
        self._cut_texts: list[str] = []  # of one answer that takes several replies
        self._is_cut = False
        self._cost: float | None = None if limits.cost is not None else 0.0

    def ask(self, text: str, *, key: str | None = None, schema: dict[str, Any] | None = None) -> str:
        """Add a message and return the model's answer, when it has no more calls.

        A message with a known key is not added again, and a message that was answered is not asked again. If there is a
        schema, the keys of the replies begin with that of the message, so that they are known not to be conversation.
        """
        return self.continue_from(self.task.add("user", text, key=key), schema=schema)

    def continue_from(self, seq: int, *, schema: dict[str, Any] | None = None) -> str:
        """Return the model's answer to an earlier message."""
        for message in self.task.log.read(seq + 1, self.task.log.last):
            if message.role == "assistant" and not message.tool_calls and message.text.strip():
                return message.text
        return self.run_until_done(schema=schema, key=self.task.log.one(seq).key if schema else None)

    def run_until_done(self, *, schema: dict[str, Any] | None = None, key: str | None = None) -> str:
        """Run turns until the model has no more calls. Return its answer."""
        answer = ""
        self._run_pending_calls()  # of before a pause
        self._follow_up_stored_reply()
        while self.task.wants_reply():
            start = "".join(self._cut_texts)
            answer = start + self.run_turn(schema=schema, key=key).text
        return answer

    def run_turn(self, *, schema: dict[str, Any] | None = None, key: str | None = None) -> Message:
        """Run one turn: a window, a reply, and its calls."""
        self.check()
        message = self._get_reply(schema, key)
        self._handle_empty_reply(message)
        self._handle_cut_reply(message)
        self._run_pending_calls()
        return message

    def check(self) -> None:
        """Raise if the run must not continue. This precedes every turn, and long work outside of turns."""
        for check in self.checks:
            check(self.task)
        self._check_limits()

    def announce(self, text: str) -> None:
        """Pass a note to `on_step`."""
        self.on_step(Step(kind="note", text=self.task.writer.sanitiser.text(text)))

    def _run_pending_calls(self) -> None:
        for call in self.task.pending_calls():
            self._run_call(call)

    def _get_reply(self, schema: dict[str, Any] | None, key: str | None) -> Message:
        options = {"schema": schema} if schema and getattr(self.model, "structured", False) else {}
        while True:
            window = self.task.window()
            self._report_turn(window)
            try:
                reply = self.model.reply(
                    window, on_text=lambda text: self.on_step(Step(kind="text", text=text)), **options
                )
            except ContextOverflow:
                self.task.shrink_budget()  # raises when nothing is left to fold
                continue
            self._is_cut = isinstance(reply, dict) and was_cut(reply)
            if self._is_cut:  # noted before it is stored, so that a crash cannot turn it into an answer
                self.task.writer.event("note", **{CUT: self.task.log.last + 1})
            key = f"{key}:{self.task.log.last + 1}" if key else None
            message = self.task.log.one(self.task.add_reply(reply, key=key))
            self._cost = self.cost + (compute_cost(message.usage, self.limits) if message.usage else 0.0)
            return message

    def _run_call(self, call: PendingCall) -> None:
        mask = self.task.writer.sanitiser.text  # listeners may shorten, print or send the text
        self.on_step(Step(kind="call", text=f"{mask(call.name)} {self.task.writer.sanitiser.arguments(call.text)}"))
        with self.task.tool(call) as run:
            run.result = self.tools.run(call)
        self.on_step(Step(kind="result", text=mask(safe_str(run.result))[:RESULT_CHARS], is_error=run.is_error))
        failures = self._failures.get(call.name, 0) + 1 if run.is_error else 0
        self._failures[call.name] = failures
        if failures >= MAX_FAILURES:
            self._failures[call.name] = 0  # a caller that continues gets the same number of attempts
            raise ToolError(mask(f"{call.name} failed {failures} times in a row: {run.result}"))

    def _follow_up_stored_reply(self) -> None:
        """Continue after an empty or cut reply that was stored just before a crash."""
        newest = next(self.task.log.backwards(self.task.log.view.state.ranges), None)
        if newest is None or newest.role != "assistant" or newest.tool_calls:
            return
        self._is_cut = self.task.log.view.state.notes.get(CUT) == newest.seq
        self._handle_empty_reply(newest)
        self._handle_cut_reply(newest)

    def _handle_empty_reply(self, message: Message) -> None:
        self._empty_replies = 0 if message.text.strip() or message.tool_calls else self._empty_replies + 1
        if self._empty_replies >= MAX_FAILURES:
            raise ModelError(f"The model gave an empty reply {self._empty_replies} times in a row.")
        if self._empty_replies:
            self.task.add("user", _NOT_EMPTY, key=f"{NOTICE}{self.task.log.last}")

    def _handle_cut_reply(self, message: Message) -> None:
        """Ask for the rest of a text that was cut. A call that was cut is answered with an error elsewhere."""
        if not self._is_cut or message.tool_calls or not message.text.strip():
            self._cut_texts = []
            return
        self._cut_texts.append(message.text)
        if len(self._cut_texts) >= MAX_CUTS:
            hint = "Set a larger `window.reserved_output`."
            raise ModelError(f"The model's reply was cut {MAX_CUTS} times in a row.", hint=hint)
        self.task.add("user", _CONTINUE, key=f"{NOTICE}{self.task.log.last}")

    def _check_limits(self) -> None:
        row, limits = self.task.row, self.limits
        reached = {
            "calls": limits.calls is not None and row.llm_call_count >= limits.calls,
            "tokens": limits.tokens is not None and row.total_tokens >= limits.tokens,
            "seconds": limits.seconds is not None and self._clock() - self._started >= limits.seconds,
            "cost": limits.cost is not None and self.cost >= limits.cost,
        }
        for name, is_reached in reached.items():
            if is_reached:
                raise LimitReached(f"The run has reached its limit of {getattr(limits, name):,} {name}.", limit=name)

    @property
    def cost(self) -> float:
        """The cost of all replies of the task, by the given prices. Earlier sittings are read once."""
        if self._cost is None:
            messages = self.task.writer.lease.store.read(self.task.uuid, Message)
            self._cost = sum(compute_cost(message.usage, self.limits) for message in messages if message.usage)
        return self._cost

    def _report_turn(self, window: Window) -> None:
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
            self.task.writer.logger.debug("Context stats: %d messages, ~%d tokens", len(window.messages), report.tokens)


def compute_cost(usage: Usage, limits: Limits) -> float:
    """Return the cost of a usage, by the prices of the limits."""
    return (usage.input_tokens * limits.input_price + usage.output_tokens * limits.output_price) / 1_000_000
