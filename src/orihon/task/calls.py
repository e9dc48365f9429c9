"""The tool calls of a task: which wait, how one is run and recorded, and those that the engine answers itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import msgspec

from orihon.coerce import text_of
from orihon.context import recall as lookup
from orihon.context.ranges import contains
from orihon.context.repair import INTERRUPTED
from orihon.context.snapshot import MAX_ACTIONS
from orihon.errors import OrihonError, StoreError, UsageError
from orihon.records import Call, ToolCall
from orihon.stores.base import Lease
from orihon.task import hooks as hooking
from orihon.task.branches import Branches
from orihon.task.config import TaskConfig
from orihon.task.runs import PendingCall, Run, arguments_of, noticed


class Calls(Branches):
    """What the model asked for, and what came of it."""

    def __init__(self, lease: Lease, config: TaskConfig, hooks: Sequence[Any] = ()) -> None:
        super().__init__(lease, config)
        self.hooks = hooks
        self.previous = config.inherited_from  # what the engine allowed; no event brings another one back
        self._raw: dict[tuple[int, str], Call] = {}  # of the newest reply, with the arguments that must not be stored
        self._running: dict[str, PendingCall] = {}

    def pending_calls(self) -> list[PendingCall]:
        """The calls that wait for an answer; `unfold` and `recall` are answered here, and so is what cannot be read."""
        with self.lock:
            self.check_running()
            waiting: list[PendingCall] = []
            for call in self._unanswered():
                pending = PendingCall(id=call.id, name=call.name, arguments={}, text=call.arguments)
                if call.masked:  # what the model wrote is not known any more
                    self.interrupt([pending])
                    continue
                try:
                    pending = msgspec.structs.replace(pending, arguments=arguments_of(call.arguments))
                except ValueError as error:
                    self.answer(pending, str(error), is_error=True)
                    continue
                if call.name in self.config.ours:
                    self._look_up(pending)
                else:
                    waiting.append(pending)
            return waiting

    def _unanswered(self) -> list[Call]:
        """The calls of the newest reply without a result, with the arguments that the model wrote."""
        answered: set[str | None] = set(self._running)
        folds = self.history.view.state.folds
        # what a summary stands for, and what was left out whole, has been left behind
        for message in self.history.backwards(self.history.uncovered):
            if message.role == "tool":
                answered.add(message.tool_call_id)  # also one that the window leaves out of a unit of many calls
                continue
            if folds and contains(folds.hidden, message.seq):
                continue
            calls = message.tool_calls if message.role == "assistant" else []
            return [self._as_written(message.seq, call) for call in calls if call.id not in answered]
        return []

    def _as_written(self, seq: int, call: Call) -> Call:
        if (seq, call.id) in self._raw:
            return self._raw[seq, call.id]
        if call.blob is not None:
            return msgspec.structs.replace(call, arguments=self.history.load(call.blob).decode("utf-8", "replace"))
        return call

    @contextmanager
    def tool(self, call: PendingCall) -> Iterator[Run]:
        """Run a tool: timed and recorded. An exception becomes an error result and is not raised again."""
        with self.lock:
            self.check_running()
            self.log.info("Tool execution: %s", call.name)
            self.update(activity="processing", last_activity="tool_execution")
            self._running[call.id] = call
        run = Run(call)
        try:
            yield run
        except Exception as error:  # noqa: BLE001 - the model reads it, and the record keeps it
            run.end(error)
        except BaseException as error:
            run.end(error)
            run.result = INTERRUPTED
            self._record(run)
            raise
        else:
            run.end(None)
        self._record(run)

    def _record(self, run: Run) -> None:
        with self.lock:
            if run.call.id not in self._running:
                self.log.warning("The result of %s came after the task was left, and is dropped.", run.call.name)
                return
            seq = self._stored(run)
            del self._running[run.call.id]  # only now: if Ctrl-C came meanwhile, a pause says so of it
            self.append(run.record(self.history.one(seq)))
            self._raw = {place: call for place, call in self._raw.items() if place[1] != run.call.id}
            if isinstance(self.lease.newest, ToolCall):
                self.event("snapshot", **noticed(self.lease.newest), **self._cap())
            self.update(add={"tool_call_count": 1}, last_activity="tool_result")
            hooking.call(self.hooks, "after_tool", self, run)

    def _stored(self, run: Run) -> int:
        """Store the answer; where that fails the caller hears of it, and the call waits again."""
        try:
            try:
                return self.append(run.message(self.sanitiser.value))
            except UsageError as error:  # a result that no line can hold
                run.fail(f"The result cannot be kept: {error.message}")
                return self.append(run.message(self.sanitiser.value))
        except StoreError:
            del self._running[run.call.id]
            raise

    def answer(self, call: PendingCall, content: str, *, is_error: bool) -> None:
        """A result that the engine gives itself; it is recorded like any other."""
        run = Run(call)
        run.result, run.is_error = content, is_error
        run.end(None)
        self._running[call.id] = call
        self._record(run)

    def _look_up(self, call: PendingCall) -> None:
        try:
            if call.name == "unfold":
                message = self.history.one(lookup.seq_of(str(call.arguments.get("handle", ""))))
                if not self.history.view.shows(message.seq):
                    raise UsageError(f"There is nothing under m{message.seq}.", hint="Use a handle that you see.")
                content = lookup.unfold(self.history.everything(message), lines=str(call.arguments.get("lines") or ""))
            else:
                content = self.recall(str(call.arguments.get("query", "")), of=call.arguments.get("of") or "task")
        except OrihonError as error:
            self.answer(call, f"{error.message} {error.hint}", is_error=True)
        else:
            self.answer(call, content, is_error=False)

    def unfold(self, handle: str) -> str:
        """What a handle stands for, whole, as it is stored."""
        with self.lock:
            return lookup.whole(self.history.everything(self.history.one(lookup.seq_of(handle))))

    def recall(self, query: str, *, of: Literal["task", "previous"] = "task") -> str:
        """The passages that say most about a query: in what the window hides, or in the run that was inherited."""
        query = text_of(query, "A query", hint="Give the words to look for.")
        if of == "previous":
            if not self.previous:
                return "There is no previous run of this task."
            from orihon.inheritance import consult  # noqa: PLC0415 - few tasks ask an earlier run

            return consult(self.lease.store, self.previous, query)
        if of != "task":
            raise UsageError(f"There is nothing to recall of {of!a:.40}.", hint="Give `task` or `previous`.")
        with self.lock:
            return lookup.said(lookup.recall(self.history.hidden(), query))

    def interrupt(self, calls: Sequence[PendingCall]) -> None:
        """Say of calls that nobody will finish them."""
        for call in calls:
            self.answer(call, INTERRUPTED, is_error=True)

    def interrupt_lost(self) -> None:
        """After a crash: nobody knows what became of the calls."""
        lost = self._unanswered()
        self.interrupt([PendingCall(id=call.id, name=call.name, arguments={}, text=call.arguments) for call in lost])

    def _cap(self) -> dict[str, int]:
        return {} if self.config.max_actions == MAX_ACTIONS else {"max_actions": self.config.max_actions}
