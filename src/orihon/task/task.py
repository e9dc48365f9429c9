"""A task as a user writes it: add, window, add_reply, tool, and an end. Everything is on disk when a call returns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, cast, get_args

import msgspec

from orihon.codec import as_text
from orihon.coerce import mapping_of, text_of, text_or_none
from orihon.context.compress import Compression
from orihon.context.repair import plain_name
from orihon.context.replies import reply_of
from orihon.context.snapshot import Snapshot, from_data, merged
from orihon.errors import TangentError, UsageError
from orihon.ingest import shown
from orihon.records import Event, Message, PlanEntry, PlanKind, Summary, ToolCall, Usage
from orihon.stores.base import Lease
from orihon.task import hooks as hooking
from orihon.task import scale, summaries
from orihon.task.branches import Keep, check_keep
from orihon.task.config import (
    Summariser,
    TaskConfig,
    changed,
    check_names,
    config_from_metadata,
    name_of,
    plain_options,
)
from orihon.task.endings import Endings
from orihon.task.history import History
from orihon.task.messages import message_of, with_ids
from orihon.task.window import Window
from orihon.task_key import TaskKey, key_of

if TYPE_CHECKING:
    from orihon.inheritance import Handoff

PINNED_SHARE = 0.25  # of the limit, for all pins together
HANDOFF_KEY = "orihon:handoff"


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """How much there is of a task."""

    messages: int
    unsummarised_messages: int
    unsummarised_tokens: int
    summaries: int
    tool_calls: int
    llm_calls: int
    total_tokens: int
    compressions: int
    current_context_tokens: int
    completed_actions: int
    has_snapshot: bool


class Task(Endings):
    """One run on one thing. Use it in a `with` block: leaving it completes the task, or fails it, or pauses it."""

    def __init__(
        self,
        lease: Lease,
        config: TaskConfig,
        *,
        summariser: Summariser | None = None,
        hooks: Sequence[Any] = (),
        handoff: Handoff | None = None,
    ) -> None:
        super().__init__(lease, config, hooks)
        self.summariser = summariser
        self.handoff = handoff
        self._names = _names_of(config)
        self._uncounted = 0  # a reply that is stored, but not in the sums yet
        self._pairs: scale.Pairs = []
        self.began = any(message.role == "user" for message in self.history.read(1, 16))

    # saying things

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
    ) -> int:
        """Append a message and return its number; with the same `key` it is stored once, however often it is said."""
        message = message_of(
            role,
            content,
            tool_calls=tool_calls,
            tool_call_id=tool_call_id,
            tool_name=tool_name,
            is_error=is_error,
            usage=usage,
            key=key,
        )
        with self.lock:
            self.check_running()
            if pinned:
                self._check_pins(self.history.counter.message(message))
            if role == "user":
                self._hand_over()
            if role == "tool" and not tool_call_id:
                message = self._for_the_next_call(message)
            seq = self._say(message)
            first = self.history.unit(seq)[0].seq if pinned else 0
            if pinned and first not in self.history.view.state.pins:
                self.event("pin", seq=first)
            return seq

    def add_reply(self, reply: Any, *, api: str | None = None, key: str | None = None) -> int:
        """Append what a model answered: text, calls and usage, from any provider's reply."""
        message = msgspec.structs.replace(reply_of(reply, api), key=text_or_none(key, "key"))
        named = ((self._names.get(call.name, call.name), call) for call in message.tool_calls)
        calls = [msgspec.structs.replace(call, name=name) for name, call in named]
        with self.lock:
            self.check_running()
            before = self.history.last
            seq = self._say(msgspec.structs.replace(message, tool_calls=calls))
            if seq <= before and seq != self._uncounted:
                return seq  # it was said with this key already
            self._uncounted = seq
            usage, context = message.usage, self.row.current_context_tokens
            stored = self.history.one(seq)
            used = usage.input_tokens + usage.output_tokens if usage else context + stored.tokens
            self.update(add={"llm_call_count": 1, "total_tokens": used}, last_activity="llm_reply")
            self._uncounted = 0
            self.log.info("LLM call #%d: %d tokens", self.row.llm_call_count, used)
            if usage and usage.input_tokens and context:
                self._calibrate(context, usage.input_tokens)
            hooking.call(self.hooks, "after_reply", self, stored)
            return seq

    def _say(self, message: Message) -> int:
        message = with_ids(message, self.history.last + 1)
        seq = self.append(message)
        if message.role == "assistant":
            ids = [call.id for call in self.history.one(seq).tool_calls]  # of the first time, where a key is repeated
            self._raw = {
                (seq, own): msgspec.structs.replace(call, id=own)
                for own, call in zip(ids, message.tool_calls, strict=False)
            }
        return seq

    def _for_the_next_call(self, result: Message) -> Message:
        """A result that names no call answers the first one that waits, as it does in the window."""
        waiting = (call for call in self._unanswered() if result.tool_name in {None, call.name})
        call = next(waiting, None)
        return msgspec.structs.replace(result, tool_call_id=call.id, tool_name=call.name) if call else result

    def _hand_over(self) -> None:
        """What the last run on the same thing left stands just before the first request."""
        if not self.began and self.handoff is not None:
            said = message_of("assistant", self.handoff.text, key=HANDOFF_KEY)
            seq = self.append(said)
            if seq not in self.history.view.state.pins:
                self.event("pin", seq=seq)
        self.began = True

    def _calibrate(self, counted: int, reported: int) -> None:
        """Where the provider counts more than we do, the window is made for its numbers."""
        self._pairs = [*self._pairs, (counted + self.history.schema_tokens, reported)][-scale.PAIRS :]
        if learned := scale.reported(self.history, self._pairs):
            self.event("note", **learned)

    # what the model sees

    def wants_reply(self) -> bool:
        """Whether it is the model's turn."""
        with self.lock:
            visible = self.history.backwards(self.history.view.state.ranges)
            newest = next((message for message in visible if not _is_note(message)), None)
            if newest is None or self.row.status != "running":
                return False
            return newest.role != "assistant" or bool(newest.tool_calls)

    def window(self) -> Window:
        """The messages to send now: folded, summarised if it must be, valid, inside the budget, and safe on disk."""
        with self.lock:
            self.check_running()
            self.settle()
            if self.config.window == "plain" and summaries.is_due(self):
                self._roll()
            window = self._folded()
            self.update(activity="processing", last_activity="llm_call", current_context_tokens=window.tokens)
            self.lease.sync()
            hooking.call(self.hooks, "before_request", self, window)
        return window

    def shrink_budget(self) -> None:
        """The provider finds the last window too long: fold the next one harder. BudgetTooSmall when it stays so."""
        with self.lock:
            self.check_running()
            row = self.row
            self.event("note", **scale.refused(self.history, sent=row.current_context_tokens, calls=row.llm_call_count))
            self.log.warning("The last window was too long for the provider; the next one is folded harder")

    def _folded(self) -> Window:
        """A window; new folds are stored before it is made of them, so that a resume makes the same one."""
        composed = self.history.composed()
        batch = composed.batch
        if batch is not None:
            # folding had to leave old messages out whole: a summary should stand for them
            newest = summaries.kept_by(self, batch.hidden) if self.summariser is not None else None
            if newest is not None and self._roll(keep_recent=newest) is not None:
                batch = self.history.composed().batch
            if batch is not None:
                self.keep(batch)
            reasons = composed.report.reasons
            composed = self.history.composed()
            report = msgspec.structs.replace(composed.report, reasons=reasons)
            composed = msgspec.structs.replace(composed, report=report)
        return self.history.window(composed)

    def _roll(self, **options: Any) -> Compression | None:
        self.log.info("Context compression triggered")
        self.update(activity="compressing")
        made = summaries.roll(self, self.summariser, **options)
        if made is None:
            self.update(activity="processing")
        return made

    def compact(self, *, focus: str = "", keep_recent: int | None = None, dry_run: bool = False) -> Compression | None:
        """Summarise the older messages now; None when there is nothing to gain. `dry_run` changes nothing."""
        if keep_recent is not None and (not isinstance(keep_recent, int) or keep_recent < 0):
            raise UsageError(f"keep_recent cannot be {keep_recent!a:.40}.", hint="Give 0 or more.")
        focus = text_of(focus, "focus", hint="Say in a text what the summary should keep.")
        with self.lock:
            self.check_running()
            focus = self.sanitiser.text(focus)  # the summariser reads it
            if dry_run:
                return summaries.roll(self, self.summariser, focus=focus, keep_recent=keep_recent, dry=True)
            return self._roll(focus=focus, keep_recent=keep_recent)

    def stats(self) -> Stats:
        """How much there is."""
        with self.lock:
            tokens, messages = self.history.unsummarised()
            snapshot = self.snapshot()
            return Stats(
                messages=self.history.last,
                unsummarised_messages=messages,
                unsummarised_tokens=tokens,
                summaries=self.lease.last(Summary),
                tool_calls=self.lease.last(ToolCall),
                llm_calls=self.row.llm_call_count,
                total_tokens=self.row.total_tokens,
                compressions=self.row.compression_count,
                current_context_tokens=self.row.current_context_tokens,
                completed_actions=len(snapshot.completed_actions) + snapshot.earlier_actions,
                has_snapshot=bool(snapshot),
            )

    def snapshot(self, **changes: Any) -> Snapshot:
        """How far the task is; `goal`, `completed_actions`, `current_phase`, `key_observations` change it in part."""
        with self.lock:
            current = from_data(self.history.view.state.snapshot)
            if not changes:
                return current
            try:
                changed = merged(current, **changes, max_actions=self.config.max_actions)
            except (TypeError, AttributeError) as error:
                names = ", ".join(Snapshot.__struct_fields__[:4])
                raise UsageError(f"The snapshot cannot be changed so: {error}.", hint=f"It has {names}.") from error
            self.check_running()
            self.event("snapshot", **_full(changed))
            return changed

    def pin(self, seq: int) -> None:
        """Show a message, with its calls and results, in every window from the next fold on."""
        with self.lock:
            self.check_running()
            unit = self.history.unit(seq)
            if unit[0].seq in self.history.view.state.pins:
                return
            if not self.history.view.shows(seq):
                raise UsageError(f"m{seq} is not part of the conversation any more.", hint="`undo` may bring it back.")
            self._check_pins(sum(message.tokens for message in unit))
            self.event("pin", seq=unit[0].seq)

    def unpin(self, seq: int) -> None:
        """No longer do that."""
        with self.lock:
            self.check_running()
            head = self.history.unit(seq)[0].seq
            if head in self.history.view.state.pins:
                self.event("unpin", seq=head)

    def _check_pins(self, more: int) -> None:
        pins = self.history.view.state.pins
        pinned = sum(message.tokens for seq in pins for message in self.history.unit(seq))
        most = int(PINNED_SHARE * self.history.limit)
        if pinned + more > most:
            raise UsageError(
                f"With {more:,} tokens more the pins would take {pinned + more:,}; {most:,} are allowed, a quarter of "
                f"the {self.history.limit:,} of the window.",
                hint="Unpin something, or pin a shorter message.",
            )

    @contextmanager
    def tangent(self, question: str = "", *, keep: Keep = "none") -> Iterator[None]:
        """A side conversation, with its first question; an exception inside keeps nothing of it."""
        check_keep(keep)
        opened = self.begin_tangent()
        try:
            if question:
                self.add("user", question)
            yield
        except Exception:
            with suppress(TangentError):  # it was left inside; the error that led here is the one to hear about
                self.leave(opened, "none")
            raise
        self.leave(opened, keep)

    def reconfigure(self, **changes: Any) -> None:
        """Go on with another `model`, `context_length` or `tools`; what was said stays, and is rendered for them."""
        with self.lock:
            self.check_running()
            check_names(changes)
            changes = plain_options(changes)
            if changed(self.config, changes) != self.config:
                kept = self.history.view.state.notes.get("frozen", {})
                self.event("note", frozen={**kept, **changes}, scale=None)  # another model counts otherwise

    def event(self, type: str, **data: Any) -> int:
        """As the writer does; leaving a tangent, or going back, may also bring another model back."""
        before = self.history.view.state.notes.get("frozen")
        number = super().event(type, **data)
        kept = self.history.view.state.notes.get("frozen")
        if kept != before:
            self._thaw(config_from_metadata(self.lease.metadata.config | (kept or {})))
        return number

    def _thaw(self, config: TaskConfig) -> None:
        self.config, self._names, self._pairs = config, _names_of(config), []
        self.history = History(
            self.lease.store, self.uuid, config, last=self.lease.last(Message), last_event=self.lease.last(Event)
        )

    def link(self, key: TaskKey | str) -> None:
        """Say what this task became, such as the pull request of an issue, so that its first run inherits."""
        key = key_of(key)
        with self.lock:
            self.update(linked_key=str(self.sanitiser.key(key)))

    def plan(self, entry: Any) -> int:
        """Append an entry to the task's planning history, and return its number.

        `entry` is a PlanEntry, or a mapping or an object that has its `type` and `data`.
        """
        record = _plan_entry(self.uuid, entry)
        with self.lock:
            self.check_running()
            return self.append(record)


def _plan_entry(task_uuid: str, entry: Any) -> PlanEntry:
    fields = mapping_of(entry) or {}
    kind, data = fields.get("type"), mapping_of(fields.get("data"))
    if not isinstance(kind, str) or kind not in get_args(PlanKind) or data is None:
        hint = (
            "Give `type` and `data`; orihon.planning.schema.make_entry makes them from a Plan, a Revision and the like."
        )
        raise UsageError(f"This is not an entry of a plan: {shown(as_text(entry))!a:.80}.", hint=hint)
    return PlanEntry(id=0, type=cast("PlanKind", kind), task_uuid=task_uuid, data=data, timestamp="")


def _is_note(message: Message) -> bool:
    """Whether it leaves the turn with whoever had it: what the system says, and what stands for a side conversation."""
    return message.role == "system" or (message.key or "").startswith(summaries.ASIDE_KEY)


def _names_of(config: TaskConfig) -> dict[str, str]:
    """The tools by the names that providers make of theirs."""
    return {plain_name(name): name for schema in config.tools or () if (name := name_of(schema))}


def _full(snapshot: Snapshot) -> dict[str, Any]:
    """All fields, also the empty ones, so that what was taken out is gone."""
    return {name: getattr(snapshot, name) for name in Snapshot.__struct_fields__}
