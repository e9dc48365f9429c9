"""A task as the caller uses it: add, window, add_reply, tool, and an end.

`add` survives `kill -9` when it returns. `window` syncs everything to disk before it returns. A task is composed of
named parts, which all write through one `TaskWriter`:

    log         what is stored, read for a window           task.log
    writer      records, events and the row                 task.writer
    timeline    tangents, rewinds, checkpoints, pins, sticky files
    calls       pending tool calls and their results
    summaries   rolling, final, of a tangent
    lifecycle   pause and end
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, overload

import msgspec

from orihon.codec import clean_text, safe_str
from orihon.coerce import to_json_value, to_optional_text, to_text
from orihon.context import recall as lookup
from orihon.context.compress import Compression
from orihon.context.importance import weigh
from orihon.context.matter import INHERITED
from orihon.context.replies import parse_reply
from orihon.context.snapshot import Snapshot, from_data, merge_snapshot
from orihon.context.sticky import StickyList
from orihon.context.streams import ReplyStream, is_stream
from orihon.context.view import View
from orihon.errors import StoreError, TangentError, UsageError
from orihon.records import Issue, Message, Raw, Sent, Summary, TaskRow, ToolCall, Usage
from orihon.stores.base import Lease
from orihon.task.config import Summariser, TaskConfig, check_option_names
from orihon.task.entries import read_entries, to_items
from orihon.task.follow import Followed, Follower
from orihon.task.hooks import call_hooks, replace_window
from orihon.task.lifecycle import Ending, Lifecycle
from orihon.task.log import OPENING, Calibration, Stats, TaskLog, refuse
from orihon.task.messages import parse_message, parse_plan_entry, with_ids
from orihon.task.sticky import Files, FileVersion
from orihon.task.summaries import TANGENT_KEY, Summaries
from orihon.task.timeline import Keep, Timeline, check_keep
from orihon.task.tool_calls import ToolCalls
from orihon.task.tool_run import PendingCall, ToolRun
from orihon.task.window import Window
from orihon.task.writer import TaskWriter
from orihon.task_key import TaskKey, to_task_key

if TYPE_CHECKING:
    from orihon.inheritance import Handoff
    from orihon.settings.schema import ContextInheritance
    from orihon.task.sessions import Session


class Task:
    """One run on one thing. Use it in a `with` block: leaving the block completes, fails or pauses the task.

    A session stays open instead: leaving the block, or `close`, gives it back.
    """

    def __init__(
        self,
        lease: Lease,
        *,
        config: TaskConfig | None = None,
        view: View | None = None,
        summariser: Summariser | None = None,
        hooks: Sequence[Any] = (),
        inheritance: Handoff | None = None,
        inheriting: ContextInheritance | None = None,
    ) -> None:
        self.writer = TaskWriter(lease, view=view, config=config)
        self.uuid = lease.uuid
        self.inheritance = inheritance  # what this task took over from earlier runs
        self.session: Session | None = None  # who in this process shares it, if it stays open
        self._hooks = tuple(hooks)
        self._summaries = Summaries(self.writer, summariser)
        self._timeline = Timeline(self.writer, self._summaries.summarise_tangent)
        self._calls = ToolCalls(self.writer, lambda run: call_hooks(self._hooks, "after_tool", self, run), inheriting)
        parts = (self.writer, self._timeline, self._calls, self._summaries)
        self._lifecycle = Lifecycle(*parts, lambda status: call_hooks(self._hooks, f"on_{status}", self))
        self._follower = Follower(self.writer, self._timeline, self._add)
        self._calibration = Calibration()
        self._sent: Sent | None = None  # the window that the next reply answers
        self._uncounted = 0  # a reply that is stored but not yet counted in the row
        self._began = any(message.role == "user" for message in self.log.read(1, OPENING))

    @property
    def log(self) -> TaskLog:
        """What is stored of the task."""
        return self.writer.log

    @property
    def row(self) -> TaskRow:
        """The task's row: status, counters, times."""
        return self.writer.row

    @property
    def config(self) -> TaskConfig:
        """The settings of the task."""
        return self.writer.log.config

    @property
    def summariser(self) -> Summariser | None:
        """The callable that writes summaries; None means the extractive summariser."""
        return self._summaries.summariser

    @summariser.setter
    def summariser(self, summariser: Summariser | None) -> None:
        self._summaries.summariser = summariser

    # messages

    def add(
        self,
        role: str,
        content: Any,
        *,
        tool_calls: Sequence[Any] | None = None,
        tool_call_id: str | None = None,
        tool_name: str | None = None,
        is_error: bool = False,
        usage: Usage | dict[str, Any] | None = None,
        pinned: bool = False,
        key: str | None = None,
        issue: Issue | None = None,
        raw: Any = None,
    ) -> int:
        """Append a message and return its number. A message with the same `key` is stored once.

        `issue` holds the fields that the content was rendered from; a summary is made of them. `raw` is the message in
        the caller's own form, any JSON value: it is kept beside the message and comes back with `Window.items()`.
        """
        message = parse_message(
            role,
            content,
            tool_calls=tool_calls,
            tool_call_id=tool_call_id,
            tool_name=tool_name,
            is_error=is_error,
            usage=usage,
            key=key,
        )
        if issue is not None or raw is not None:
            kept = None if raw is None else Raw(value=to_json_value(raw, "The raw form of a message"))
            message = msgspec.structs.replace(message, issue=issue, raw=kept)
        writer = self.writer
        with writer.lock:
            writer.check_running()
            if pinned:
                self._timeline.check_pins(writer.log.counter.message(message))
            seq = self._add(message)
            if pinned and (first := writer.log.unit(seq)[0].seq) not in writer.log.view.state.pins:
                writer.event("pin", seq=first)
            return seq

    @overload
    def add_reply(
        self, reply: Iterator[Any] | AsyncIterator[Any], *, api: str | None = None, key: str | None = None
    ) -> ReplyStream: ...
    @overload
    def add_reply(self, reply: Any, *, api: str | None = None, key: str | None = None) -> int: ...
    def add_reply(self, reply: Any, *, api: str | None = None, key: str | None = None) -> int | ReplyStream:
        """Append a reply from any provider. Of a stream, return one to iterate over, which stores it at its end."""
        if is_stream(reply):
            return ReplyStream(reply, api, lambda value: self.add_reply(value, api=api, key=key))
        message = parse_reply(reply, api)
        writer = self.writer
        if key is not None or message.tool_calls:
            names = writer.log.tool_names
            calls = [
                msgspec.structs.replace(call, name=names[call.name]) if call.name in names else call
                for call in message.tool_calls
            ]
            message = msgspec.structs.replace(message, key=to_optional_text(key, "key"), tool_calls=calls)
        with writer.lock:
            writer.check_running()
            before = writer.log.last
            seq = self._append(message)
            if seq <= before and seq != self._uncounted:
                return seq  # it was stored with this key already
            self._count_reply(seq, message.usage)
            return seq

    def extend(self, messages: Iterable[Any], *, api: str = "openai", raw: bool = False) -> list[int]:
        """Append a list in a provider's form and return the numbers of its messages; `raw` keeps them as they are."""
        with self.writer.lock:
            self.writer.check_running()
            entries = list(read_entries(to_items(messages), api, model=self.config.model, raw=raw))
            return [self._add(message) for entry in entries for message in entry.messages]

    def follow(self, messages: Iterable[Any], *, api: str = "openai") -> Followed:
        """Make the conversation equal to a list of messages that the caller keeps, in a provider's form.

        What the list and the conversation begin with is kept. What the list no longer has is hidden by a rewind, and
        the rest of the list is appended.
        """
        with self.writer.lock:
            self.writer.check_running()
            return self._follower.follow(messages, api)

    def _add(self, message: Message) -> int:
        if message.role == "user" and not self._began:
            self._insert_inherited_block(message)
        if message.role == "tool" and not message.tool_call_id:
            message = self._calls.match(message)
        return self._append(message)

    def _append(self, message: Message) -> int:
        if message.role != "assistant":
            return self.writer.append(message)
        waiting = self._calls.waiting_ids() if message.tool_calls else ()
        message = with_ids(message, self.writer.log.last + 1, waiting)
        phase = str(self.writer.log.view.state.snapshot.get("current_phase", ""))
        message = weigh(message, phase=phase)
        seq = self.writer.append(msgspec.structs.replace(message, window=self._sent))
        self._sent = None
        if message.tool_calls:
            self._calls.remember(seq, message.tool_calls)
        return seq

    def _count_reply(self, seq: int, usage: Usage | None) -> None:
        writer = self.writer
        self._uncounted = seq
        context = writer.row.current_context_tokens
        tokens = context + writer.log.one(seq).tokens if usage is None else usage.input_tokens + usage.output_tokens
        writer.update(add={"llm_call_count": 1, "total_tokens": tokens}, last_activity="llm_reply")
        self._uncounted = 0
        writer.logger.info("LLM call #%d: %d tokens", writer.row.llm_call_count, tokens)
        if usage and usage.input_tokens and context:
            notes = self._calibration.report(writer.log, context, usage.input_tokens)
            if notes:
                writer.note(**notes)
        if self._hooks:
            call_hooks(self._hooks, "after_reply", self, writer.log.one(seq))

    def _insert_inherited_block(self, request: Message) -> None:
        """Append what the earlier runs left, just before the first request and in its language."""
        if self.inheritance is not None:
            self.inheritance = self.inheritance.for_request(request, self.config.language)
            seq = self.writer.append(parse_message("assistant", self.inheritance.text, key=INHERITED))
            if seq not in self.log.view.state.pins:
                self.writer.event("pin", seq=seq)
        self._began = True

    # the window

    def wants_reply(self) -> bool:
        """Return whether it is the model's turn."""
        with self.writer.lock:
            visible = self.log.backwards(self.log.view.state.ranges)
            newest = next((message for message in visible if not _keeps_turn(message)), None)
            if newest is None or self.row.status != "running":
                return False
            return newest.role != "assistant" or bool(newest.tool_calls)

    def window(self) -> Window:
        """Return the messages to send now: folded, summarised if necessary, valid, inside the budget, and on disk."""
        writer = self.writer
        with writer.lock:
            writer.check_running()
            writer.reload_if_uncertain()
            if self._summaries.threshold_has_effect and self._summaries.is_due():
                self._summaries.compact()
            composed = self._compose()
            sent = self._describe(composed)
            window = replace_window(self._hooks, self, composed)
            self._make_durable(window)
            self._sent = msgspec.structs.replace(sent, tokens=window.tokens, reasons=list(window.report.reasons))
        return window

    def _make_durable(self, window: Window) -> None:
        """Record that a request goes out, and sync what it is made of."""
        self.writer.update(activity="processing", last_activity="llm_call", current_context_tokens=window.tokens)
        self.writer.lease.sync()

    def _describe(self, window: Window) -> Sent:
        """Return what the reply keeps of its window, so that a reader can make it again."""
        report = window.report
        return Sent(
            after=self.log.last,
            event=self.log.view.last_event,
            limit=report.limit,
            tokens=report.tokens,
            sources=report.by_source,
            reasons=list(report.reasons),
        )

    def _compose(self) -> Window:
        """Return a window. New folds are stored before it is made of them, so that a resume makes the same one."""
        composed = self.log.compose()
        batch = composed.batch
        if batch is not None:
            folded = composed.report
            del composed  # so that its memory can be given back
            # folding had to hide old messages completely: a summary should stand for them
            shown = self._summaries.count_shown(batch.hidden) if self.summariser is not None else None
            if shown is not None and self._summaries.compact(keep_recent=shown) is not None:
                batch = self.log.compose().batch
            if batch is not None:
                self.writer.store_folds(batch)
            del batch
            return self.log.window(self.log.compose(), folded=folded)
        return self.log.window(composed)

    def shrink_budget(self) -> None:
        """Fold the next window harder, because the provider refused the last one as too long."""
        with self.writer.lock:
            self.writer.check_running()
            row = self.row
            self.writer.note(**refuse(self.log, sent=row.current_context_tokens, calls=row.llm_call_count))
            self.writer.logger.warning("The provider refused the last window; the next one is folded harder")

    def compact(self, *, focus: str = "", keep_recent: int | None = None, dry_run: bool = False) -> Compression | None:
        """Summarise the older messages now. Return None if nothing would be gained; `dry_run` changes nothing."""
        if keep_recent is not None and (not isinstance(keep_recent, int) or keep_recent < 0):
            raise UsageError(f"keep_recent cannot be {keep_recent!a:.40}.", hint="Give 0 or more.")
        focus = to_text(focus, "focus", hint="Say in a text what the summary should keep.")
        with self.writer.lock:
            self.writer.check_running()
            focus = self.writer.sanitiser.text(focus)  # the summariser reads it
            make = self._summaries.preview if dry_run else self._summaries.compact
            return make(focus=focus, keep_recent=keep_recent)

    def stats(self) -> Stats:
        """Return the size of the task."""
        with self.writer.lock:
            tokens, messages = self.log.count_uncovered()
            snapshot, lease, row = self.snapshot(), self.writer.lease, self.row
            return Stats(
                messages=self.log.last,
                unsummarised_messages=messages,
                unsummarised_tokens=tokens,
                summaries=lease.last(Summary),
                tool_calls=lease.last(ToolCall),
                llm_calls=row.llm_call_count,
                total_tokens=row.total_tokens,
                compressions=row.compression_count,
                current_context_tokens=row.current_context_tokens,
                completed_actions=len(snapshot.completed_actions) + snapshot.earlier_actions,
                has_snapshot=bool(snapshot),
            )

    def snapshot(self, **changes: Any) -> Snapshot:
        """Return the snapshot. `goal`, `completed_actions`, `current_phase`, `key_observations` change parts of it."""
        with self.writer.lock:
            current = from_data(self.log.view.state.snapshot)
            if not changes:
                return current
            try:
                snapshot = merge_snapshot(current, **changes, max_actions=self.config.max_actions)
            except (TypeError, AttributeError) as error:
                names = ", ".join(Snapshot.__struct_fields__[:4])
                raise UsageError(f"The snapshot cannot be changed: {error}.", hint=f"It has {names}.") from error
            self.writer.check_running()
            # all fields, including empty ones, so that removed values are gone
            self.writer.event("snapshot", **{name: getattr(snapshot, name) for name in Snapshot.__struct_fields__})
            return snapshot

    def reconfigure(self, **changes: Any) -> None:
        """Continue with another `model`, `context_length`, `tools` or other option; the log stays as it is."""
        with self.writer.lock:
            self.writer.check_running()
            check_option_names(changes)
            changes = self.config.complete_options(changes)
            if self.config.with_options(changes) != self.config:
                kept = self.log.view.state.notes.get("frozen", {})
                self.writer.note(frozen={**kept, **changes}, scale=None)  # another model counts differently

    # tool calls

    def pending_calls(self) -> list[PendingCall]:
        """Return the calls that wait for a result. The engine answers `unfold` and `recall` itself."""
        with self.writer.lock:
            self.writer.check_running()
            return self._calls.pending()

    def tool(self, call: PendingCall) -> AbstractContextManager[ToolRun]:
        """Run a tool: timed and recorded. An exception becomes an error result and is not raised again."""
        return self._calls.run(call)

    def answer(self, call: PendingCall, content: str, *, is_error: bool = False) -> None:
        """Answer a call without running a tool."""
        with self.writer.lock:
            self._calls.answer(call, content, is_error=is_error)

    def unfold(self, handle: str) -> str:
        """Return what a handle stands for, in full, as it is stored."""
        with self.writer.lock:
            first, last = lookup.parse_handle(handle)
            messages = [self.log.one(first)] if first == last else list(self.log.read(first, last))
            return "\n".join(lookup.whole(self.log.load_all(message)) for message in messages)

    def recall(self, query: str, *, of: Literal["task", "previous"] = "task") -> str:
        """Return the passages that say most about a query, in what the window hides or in earlier runs."""
        with self.writer.lock:
            return self._calls.recall(query, of)

    def lookups(self) -> list[Callable[..., str]]:
        """Return `unfold` and `recall` as functions for the tools of another loop; each has its `schema`."""
        return self._calls.lookups()

    # the timeline

    @contextmanager
    def tangent(self, question: str = "", *, keep: Keep = "none") -> Iterator[None]:
        """Open a side conversation with its first question. An exception inside keeps nothing of it."""
        check_keep(keep)
        event = self.begin_tangent()
        try:
            if question:
                self.add("user", question)
            yield
        except Exception:
            with self.writer.lock, suppress(TangentError):  # the exception matters more than a tangent closed inside
                self._timeline.leave_tangent(event, "none")
            raise
        with self.writer.lock:
            self._timeline.leave_tangent(event, keep)

    def begin_tangent(self, *, after: int | None = None, **data: Any) -> int:
        """Open a side conversation that leaves the main one untouched; with `after`, it began after that message."""
        with self.writer.lock:
            self.writer.check_running()
            return self._timeline.begin_tangent(after, **data)

    def end_tangent(self, keep: Keep = "none") -> None:
        """Close the innermost tangent and keep nothing, its last exchange, or a summary of it."""
        with self.writer.lock:
            self.writer.check_running()
            self._timeline.end_tangent(keep)

    def rewind(self, to: int, *, exact: bool = False) -> int:
        """Hide everything after message `to`, and return the event that `undo` takes.

        The results of a call stay with it, unless the rewind is `exact`.
        """
        with self.writer.lock:
            self.writer.check_running()
            return self._timeline.rewind(to, exact=exact)

    def reset(self) -> int:
        """Hide everything except the system prompt and the pins, and empty the snapshot."""
        with self.writer.lock:
            self.writer.check_running()
            return self.writer.event("clear")

    def undo(self, event: int | None = None) -> int:
        """Undo the last rewind, reset, compaction or restore; or the given one and those after it."""
        with self.writer.lock:
            self.writer.check_running()
            return self._timeline.undo(event)

    def checkpoint(self, label: str = "", **data: Any) -> int:
        """Remember the conversation as it is now, and return the number that `restore` takes."""
        with self.writer.lock:
            self.writer.check_running()
            return self._timeline.checkpoint(label, **data)

    def restore(self, checkpoint: int, **data: Any) -> int:
        """Go back to a checkpoint. This can be undone."""
        with self.writer.lock:
            self.writer.check_running()
            return self._timeline.restore(checkpoint, **data)

    def pin(self, seq: int) -> None:
        """Show a message, with its calls and results, in every window from the next fold on."""
        with self.writer.lock:
            self.writer.check_running()
            self._timeline.pin(seq)

    def unpin(self, seq: int) -> None:
        """Unpin a message."""
        with self.writer.lock:
            self.writer.check_running()
            self._timeline.unpin(seq)

    @property
    def sticky_files(self) -> StickyList:
        """The files that stand in every window, and what was declared to find them."""
        with self.writer.lock:
            return self._timeline.sticky_files

    def sticky(self, files: Files, *, declared: Sequence[str] = ()) -> int | None:
        """Keep these files in every window, in this order, instead of the earlier ones; None if nothing changed.

        A mapping gives the text of each path. A sequence holds what `version` returned and, for a file that has not
        changed, its entry of `sticky_files`.
        """
        with self.writer.lock:
            self.writer.check_running()
            return self._timeline.set_sticky(files, declared)

    def version(self, path: str, text: str, *, mark: tuple[int, ...] = ()) -> FileVersion:
        """Return a file as `sticky` takes it, masked and counted. Nothing is stored."""
        return self._timeline.file_version(path, text, mark)

    # what the task is about

    def link(self, key: TaskKey | str) -> None:
        """Say what this task became, such as the pull request of an issue, so that its first run inherits."""
        key = to_task_key(key)
        with self.writer.lock:
            self.writer.update(linked_key=str(self.writer.sanitiser.key(key)))

    def plan(self, entry: Any) -> int:
        """Append an entry to the task's planning history, and return its number.

        `entry` is a PlanEntry, or a mapping or an object that has its `type` and `data`.
        """
        record = parse_plan_entry(self.uuid, entry)
        with self.writer.lock:
            self.writer.check_running()
            return self.writer.append(record)

    # the end

    def complete(self) -> None:
        """Mark the task completed: write the final summary and release the lease."""
        with self.writer.lock:
            self._lifecycle.end(Ending("completed"))

    def fail(self, error: str, *, reason: str = "") -> None:
        """Mark the task failed."""
        ending = Ending("failed", error=clean_text(safe_str(error)), reason=to_optional_text(reason, "reason") or "")
        with self.writer.lock:
            self._lifecycle.end(ending)

    def stop(self, reason: str = "") -> None:
        """Mark the task stopped."""
        ending = Ending("stopped", reason=to_optional_text(reason, "reason") or "")
        with self.writer.lock:
            self._lifecycle.end(ending)

    def _drop(self, reason: str = "") -> None:
        """Stop a task that is pending or paused, without resuming it first."""
        with self.writer.lock:
            self._lifecycle.drop(to_optional_text(reason, "reason") or "")

    def _finish(self, ending: Ending) -> None:
        """Do the rest of an ending that another process began."""
        with self.writer.lock:
            self._lifecycle.finish(ending)

    def _interrupt_lost_calls(self) -> None:
        """Answer all open calls as interrupted, after a crash."""
        with self.writer.lock:
            self._calls.interrupt_unanswered()

    def pause(self, reason: str = "") -> None:
        """Pause the task; `engine.resume(uuid)` continues it."""
        with self.writer.lock:
            self._lifecycle.pause(to_optional_text(reason, "reason") or "")

    def close(self) -> None:
        """Release the lease; a task that still runs is paused first, and a session is given back."""
        if self.session is not None:
            self.session.let_go()
            return
        with self.writer.lock:
            self._lifecycle.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.session is not None:
            self.session.let_go()
            return
        with self.writer.lock:
            try:
                if self.row.status != "running":
                    return  # it ended inside the block
                if error is None:
                    self._lifecycle.complete_or_pause()
                elif isinstance(error, Exception):
                    self.fail(f"{type(error).__name__}: {safe_str(error)}")
                else:  # Ctrl-C, an exit, a cancellation: nothing is wrong with the task
                    self._lifecycle.pause()
            except StoreError as failure:
                if error is None:
                    raise
                self.writer.logger.error("The end of the task could not be stored: %s", failure)  # noqa: TRY400
            finally:
                self._lifecycle.release()


def _keeps_turn(message: Message) -> bool:
    """Return whether a message does not change whose turn it is: system notes, and what stands for a tangent."""
    return message.role == "system" or (message.key or "").startswith(TANGENT_KEY)
