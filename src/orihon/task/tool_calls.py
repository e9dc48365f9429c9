"""The tool calls of a task: which are pending, how one is run and recorded, and those that the engine answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import Any, Literal

import msgspec

from orihon.coerce import to_text
from orihon.context import recall as lookup
from orihon.context.ranges import contains
from orihon.context.repair import INTERRUPTED
from orihon.context.snapshot import MAX_ACTIONS
from orihon.context.units import is_same_reply
from orihon.errors import OrihonError, StoreError, UsageError
from orihon.parts import shorten_name
from orihon.records import Call, Message, ToolCall
from orihon.settings.schema import ContextInheritance
from orihon.task.config import tool_name
from orihon.task.tool_run import PendingCall, ToolRun, describe_action, parse_arguments
from orihon.task.writer import TaskWriter

PAGE_TOKENS = 2_500  # of one answer of `unfold`, at most
PAGES_SHARE = 0.25  # of the limit, for all the answers to one reply


class ToolCalls:
    """The calls of the newest reply. Callers hold the writer's lock, except around `run`."""

    def __init__(
        self,
        writer: TaskWriter,
        on_result: Callable[[ToolRun], None],
        inheriting: ContextInheritance | None = None,
    ) -> None:
        self._inheriting = inheriting
        self._writer = writer
        self._on_result = on_result
        self._previous = writer.config.inherited_from  # what the engine allowed; no event can change it
        self._written: dict[tuple[int, str], Call] = {}  # calls with arguments that must not be stored
        self._running: dict[str, PendingCall] = {}

    def waiting_ids(self) -> set[str]:
        """Return the ids that an item added now to the newest reply cannot have; forget the calls of earlier ones."""
        log = self._writer.log
        if not log.last or not log.view.shows(log.last) or log.one(log.last).role != "assistant":
            self._written.clear()
        return {call_id for _, call_id in self._written}

    def remember(self, seq: int, calls: Iterable[Call]) -> None:
        """Keep the calls of a reply as the model wrote them; what is stored may be masked."""
        ids = [call.id for call in self._writer.log.one(seq).tool_calls]  # the first ones, if a key was repeated
        self._written |= {
            (seq, call_id): msgspec.structs.replace(call, id=call_id) for call_id, call in zip(ids, calls, strict=False)
        }

    def pending(self) -> list[PendingCall]:
        """Return the calls that wait for a result. Calls that the engine can answer are answered here."""
        waiting: list[PendingCall] = []
        calls = self.unanswered()
        room = self._page_tokens(calls)
        for call in calls:
            pending = PendingCall(id=call.id, name=call.name, arguments={}, text=call.arguments)
            if call.masked:  # the arguments that the model wrote are unknown
                self._answer_interrupted([pending])
                continue
            try:
                pending = msgspec.structs.replace(pending, arguments=parse_arguments(call.arguments))
            except ValueError as error:
                self.answer(pending, str(error), is_error=True)
                continue
            if call.name in self._writer.log.engine_tools:
                self._look_up(pending, room)
            elif not self._writer.log.has_tool(call.name):
                self.answer(pending, self._describe_tools(call.name), is_error=True)
            else:
                waiting.append(pending)
        return waiting

    def unanswered(self) -> list[Call]:
        """Return the calls of the newest reply that have no result, with the arguments that the model wrote."""
        answered: set[str | None] = set(self._running)
        named: list[str | None] = []  # the tools of results without an id, as older programs stored them
        log = self._writer.log
        folds = log.view.state.folds
        items: list[Message] = []  # of the newest reply, the newest first
        for message in log.backwards(log.uncovered):  # a summary leaves its calls behind
            if message.role == "tool" and not items:
                answered.add(message.tool_call_id)  # the window may leave it out of a unit of many calls
                named += [] if message.tool_call_id else [message.tool_name]
            elif not (folds and contains(folds.hidden, message.seq)):
                if message.role != "assistant" or (items and not is_same_reply(message, items[-1])):
                    break
                items.append(message)
        calls = [(item.seq, call) for item in reversed(items) for call in item.tool_calls]
        waiting = [pair for pair in calls if pair[1].id not in answered and not _take(named, pair[1].name)]
        return [self._as_written(seq, call) for seq, call in waiting]

    def match(self, result: Message) -> Message:
        """Return a result that names no call as the answer to the first one that waits, as the window shows it."""
        waiting = (call for call in self.unanswered() if result.tool_name in {None, call.name})
        call = next(waiting, None)
        return msgspec.structs.replace(result, tool_call_id=call.id, tool_name=call.name) if call else result

    @contextmanager
    def run(self, call: PendingCall) -> Iterator[ToolRun]:
        """Run a tool and record it. An exception becomes an error result and is not raised again."""
        writer = self._writer
        with writer.lock:
            writer.check_running()
            writer.logger.info("Tool execution: %s", call.name)
            writer.update(activity="processing", last_activity="tool_execution")
            self._running[call.id] = call
        run = ToolRun(call)
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

    def answer(self, call: PendingCall, content: str, *, is_error: bool) -> None:
        """Answer a call without running a tool; it is recorded like any other."""
        run = ToolRun(call)
        run.result, run.is_error = content, is_error
        run.end(None)
        self._running[call.id] = call
        self._record(run)

    def interrupt_running(self) -> None:
        """Answer the calls whose tools are still running as interrupted."""
        self._answer_interrupted(list(self._running.values()))

    def interrupt_unanswered(self) -> None:
        """Answer all open calls as interrupted: after a crash their outcome is unknown."""
        lost = self.unanswered()
        self._answer_interrupted(
            [PendingCall(id=call.id, name=call.name, arguments={}, text=call.arguments) for call in lost]
        )

    def recall(self, query: str, scope: Literal["task", "previous"] = "task") -> str:
        """Return the passages that say most about a query, in the hidden part of the log or in the previous run."""
        query = to_text(query, "A query", hint="Give the words to look for.")
        if scope == "previous":
            if not self._previous:
                return "There is no previous run of this task."
            from orihon.inheritance import consult  # noqa: PLC0415 - few tasks ask an earlier run

            return consult(
                self._writer.lease.store, self._previous, query, task=self._writer.row, settings=self._inheriting
            )
        if scope != "task":
            raise UsageError(f"There is nothing to recall of {scope!a:.40}.", hint="Give `task` or `previous`.")
        return lookup.render_hits(lookup.recall(self._writer.log.hidden(), query))

    def _explain(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Return the answer of `unfold` or `recall`, or what is wrong with the call."""
        with self._writer.lock:
            try:
                return self._find(name, arguments, self._page_tokens(()))
            except OrihonError as error:
                return f"{error.message} {error.hint}"

    def lookups(self) -> list[Callable[..., str]]:
        """Return `unfold` and `recall` as plain functions. What goes wrong is said in the answer."""
        return make_lookups(self._explain)

    def _describe_tools(self, name: str) -> str:
        """Return what the model reads that called a tool of this name, which does not exist."""
        names = ", ".join(filter(None, map(tool_name, self._writer.log.schemas)))
        return f"There is no tool named {shorten_name(name)!r}. The tools are: {names}. Call one of them instead."

    def _as_written(self, seq: int, call: Call) -> Call:
        if (seq, call.id) in self._written:
            return self._written[seq, call.id]
        if call.blob is not None:
            text = self._writer.log.load(call.blob).decode("utf-8", "replace")
            return msgspec.structs.replace(call, arguments=text)
        return call

    def _answer_interrupted(self, calls: Iterable[PendingCall]) -> None:
        for call in calls:
            self.answer(call, INTERRUPTED, is_error=True)

    def _look_up(self, call: PendingCall, room: float) -> None:
        """Answer `unfold`, in so many tokens, or `recall`."""
        try:
            content = self._find(call.name, call.arguments, room)
        except OrihonError as error:
            self.answer(call, f"{error.message} {error.hint}", is_error=True)
        else:
            self.answer(call, content, is_error=False)

    def _find(self, name: str, arguments: Mapping[str, Any], room: float) -> str:
        """Return the answer of `unfold`, in so many tokens, or of `recall`."""
        if name == "unfold":
            return self._unfold(arguments, room)
        return self.recall(str(arguments.get("query", "")), arguments.get("of") or "task")

    def _unfold(self, arguments: Mapping[str, Any], room: float) -> str:
        log = self._writer.log
        handle = str(arguments.get("handle", ""))
        first, last = lookup.parse_handle(handle)
        messages = (log.load_all(message) for message in log.read(first, last) if log.view.shows(message.seq))
        newest = next(messages, None)
        if newest is None:
            raise UsageError(f"There is nothing under {handle.strip()}.", hint="Use a handle that you see.")
        return lookup.unfold(
            chain([newest], messages),
            last=min(last, log.last) if last > first else 0,
            lines=str(arguments.get("lines") or ""),
            room=room,
            cost=log.counter.text,
        )

    def _page_tokens(self, calls: Iterable[Call]) -> float:
        """Return how long a page may be that the next window can show whole, beside the others that are asked for."""
        log = self._writer.log
        asked = sum(call.name in log.engine_tools for call in calls)
        return min(PAGE_TOKENS, PAGES_SHARE * log.limit / max(1, asked))

    def _record(self, run: ToolRun) -> None:
        writer = self._writer
        with writer.lock:
            if run.call.id not in self._running:
                writer.logger.warning("The result of %s came after the task was left, and is dropped.", run.call.name)
                return
            seq = self._append_result(run)
            del self._running[run.call.id]  # only now: if Ctrl-C comes first, a pause answers the call
            writer.append(run.record(writer.log.one(seq)))
            self._written = {key: call for key, call in self._written.items() if key[1] != run.call.id}
            if isinstance(writer.lease.newest, ToolCall):
                writer.event("snapshot", **describe_action(writer.lease.newest), **self._max_actions())
            writer.update(add={"tool_call_count": 1}, last_activity="tool_result")
            self._on_result(run)

    def _append_result(self, run: ToolRun) -> int:
        """Store the result. If that fails, the caller gets the error and the call waits again."""
        writer = self._writer
        try:
            try:
                return writer.append(run.message(writer.sanitiser.value))
            except UsageError as error:  # no line can hold this result
                run.fail(f"The result cannot be stored: {error.message}")
                return writer.append(run.message(writer.sanitiser.value))
        except StoreError:
            del self._running[run.call.id]
            raise

    def _max_actions(self) -> dict[str, int]:
        limit = self._writer.config.max_actions
        return {} if limit == MAX_ACTIONS else {"max_actions": limit}


def make_lookups(answer: Callable[[str, dict[str, Any]], str]) -> list[Callable[..., str]]:
    """Return `unfold` and `recall` as plain functions; `answer` gets the name of a call and its arguments."""

    def unfold(handle: str, lines: str = "") -> str:
        """Show a folded part of this conversation whole. Marks such as […61 lines, m4] name its handle.

        Args:
            handle: such as m4 or m4-m9
            lines: which lines, such as 40-90; all if left out
        """
        return answer("unfold", {"handle": handle, "lines": lines})

    def recall(query: str, of: Literal["task", "previous"] = "task") -> str:
        """Search what is folded or summarised in this conversation, or the previous run of this task.

        Args:
            query: words to look for
            of: task if left out
        """
        return answer("recall", {"query": query, "of": of})

    unfold.schema, recall.schema = lookup.UNFOLD, lookup.RECALL  # type: ignore[attr-defined]
    return [unfold, recall]


def _take(names: list[str | None], name: str) -> bool:
    """Remove a name once; return whether it was there."""
    if name not in names:
        return False
    names.remove(name)
    return True
