"""A conversation: a task with a person in front of it. It has no history of its own; everything is in the log.

    with start(engine, Path("."), name="shop") as conversation:
        conversation.say("Why does test_total fail?")
        conversation.task.add_reply(model.reply(conversation.task.window()))

Between two sittings it is paused. What the person typed and nobody has sent yet is kept too, so that a crash does not
take it.
"""

from __future__ import annotations

import uuid as uuids
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from orihon import codec
from orihon.chat.entries import CANCELLED, EMPTY_PROMPT, HistoryEntry, Said, entries_of
from orihon.chat.transcript import ERROR, transcript
from orihon.context.ranges import Ranges, upto
from orihon.context.view import Tangent
from orihon.errors import TangentError, UsageError
from orihon.records import Message
from orihon.task.branches import Keep
from orihon.task.task import Task

MAX_ENTRIES = 10_000
LEAVING = 100  # entries that leave at once, so that the view does not change with every answer
ABOUT = "conversation"  # the first note: its name, its directory, what it was begun with
NEXT, TURN, STEPS, LEFT = "next_message", "turn", "steps", "oldest_left"
STOPPED = "[cancelled by the user]"

Tell = Callable[[str], None]


class Conversation:
    """One conversation in one directory. Use it in a `with` block: leaving it pauses it."""

    def __init__(self, task: Task, *, name: str, workspace: Path, tell: Tell | None = None) -> None:
        self.task, self.name, self.workspace = task, name, workspace
        self.tell: Tell = tell or (lambda _: None)
        self._counted: tuple[Ranges, int, int] = ((), 0, 0)  # the ranges, the last message, the entries in them

    @property
    def conversation_id(self) -> str:
        """The id of its task."""
        return self.task.uuid

    # what was said

    @property
    def notes(self) -> dict[str, Any]:
        """What it keeps beside the log."""
        return self.task.history.view.state.notes

    @property
    def turn(self) -> int:
        """How often the person has said something."""
        return int(self.notes.get(TURN, 0))

    @property
    def next_message(self) -> str | None:
        """What was typed and is not sent yet."""
        waiting = self.notes.get(NEXT)
        return str(waiting["text"]) if waiting else None

    def set_next(self, text: str) -> None:
        """Keep what will be said next; there is one at a time, and it is never empty."""
        if self.next_message is not None:
            raise UsageError("A message waits to be sent already.", hint="Send it, or drop it first.")
        self.task.event("note", **{NEXT: {"text": text if text.strip() else EMPTY_PROMPT, "id": uuids.uuid4().hex}})

    def drop_next(self) -> None:
        """Forget it."""
        if self.next_message is not None:
            self.task.event("note", **{NEXT: None})

    def send(self) -> int:
        """Say what waits; calls that nobody has answered are cancelled by it. Returns the number of the message."""
        waiting = self.notes.get(NEXT)
        if not waiting:
            raise UsageError("There is no message to send.", hint="Say something first.")
        self._cancel_calls()
        # by its key it is said once, also when the process dies before the next line
        seq = self.task.add("user", str(waiting["text"]), key=f"orihon:next:{waiting['id']}")
        self.task.event("note", **{NEXT: None, TURN: self.turn + 1, STEPS: 0})
        self._limit()
        return seq

    def say(self, text: str) -> int:
        """Say something now."""
        self.set_next(text)
        return self.send()

    def cancel(self, heard: str = "") -> None:
        """The person does not want the running answer; what was heard of it stays, and the history stays valid."""
        self._cancel_calls()
        newest = next(self.task.history.backwards(self.task.history.view.state.ranges), None)
        if newest is None or newest.role == "assistant":
            return
        if heard.strip() or newest.role == "user":
            self.task.add("assistant", "\n\n".join(part for part in (heard.strip(), STOPPED) if part))

    def _cancel_calls(self) -> None:
        for call in self.task.pending_calls():
            self.task.answer(call, CANCELLED, is_error=True)

    def error(self, text: str) -> None:
        """Keep what went wrong in the transcript."""
        self.task.event(ERROR, text=text)

    def clear(self) -> int:
        """Begin anew: nothing is visible but the system prompt and the pins, and nothing waits to be sent."""
        self.drop_next()
        return self.task.reset()

    # how it is read

    def messages(self) -> Iterator[Message]:
        """What is visible, in order."""
        for first, last in upto(self.task.history.view.state.ranges, self.task.history.last):
            yield from self.task.history.read(first, last)

    def entries(self) -> Iterator[HistoryEntry | Said]:
        """What is visible, in pairs."""
        return entries_of(self.messages())

    @property
    def transcript(self) -> list[str]:
        """What is visible, for people."""
        return transcript(self.task.history, self.task.history.view.state.ranges)

    @property
    def mcp_enabled(self) -> bool:
        """Whether the tools of MCP servers are offered."""
        return bool(self.notes.get(ABOUT, {}).get("mcp_enabled", True))

    def _limit(self) -> None:
        """Let the oldest entries leave the view when there are too many; the log keeps them."""
        history = self.task.history
        ranges = upto(history.view.state.ranges, history.last)
        if sum(last - first + 1 for first, last in ranges) <= MAX_ENTRIES:
            return
        count = self._count(ranges)
        if count <= MAX_ENTRIES:
            return
        leaving = count - MAX_ENTRIES + LEAVING
        pairs = (entry for entry in self.entries() if isinstance(entry, HistoryEntry))
        upto_seq = next(entry.assistant.seq for number, entry in enumerate(pairs, 1) if number == leaving)
        first_time = not self.notes.get(LEFT)
        self.task.event("leave", upto=upto_seq)
        self._counted = (upto(history.view.state.ranges, history.last), history.last, count - leaving)
        if first_time:
            self.task.event("note", **{LEFT: True})
            self.tell(
                f"More than {MAX_ENTRIES:,} entries: the oldest {leaving:,} left the conversation; the log keeps them."
            )

    def _count(self, ranges: Ranges) -> int:
        """The entries in these ranges; what was counted before is not counted again."""
        before, last, count = self._counted
        if upto(ranges, last) != before:
            before, last, count = (), 0, 0
        newer = (message for message in self._after(last) if message.role == "assistant")
        count += sum(1 for _ in newer)
        self._counted = (ranges, self.task.history.last, count)
        return count

    def _after(self, seq: int) -> Iterator[Message]:
        history = self.task.history
        for first, last in upto(history.view.state.ranges, history.last):
            if last > seq:
                yield from history.read(max(first, seq + 1), last)

    # side conversations

    @property
    def tangents(self) -> tuple[Tangent, ...]:
        """Those that are open, the outermost first."""
        return self.task.history.view.tangents

    @property
    def is_in_tangent(self) -> bool:
        """Whether a side conversation is open."""
        return bool(self.tangents)

    @property
    def tangent_seconds(self) -> int | None:
        """How long the innermost one has been open."""
        if not self.tangents:
            return None
        return max(0, int((datetime.now(UTC) - _moment(self.tangents[-1].timestamp)).total_seconds()))

    def enter_tangent(self, *, after: int | None = None, commit: str = "") -> None:
        """Open a side conversation; with `after`, what was said since that message was one.

        `commit` are the files as they are now, for whoever wants them back.
        """
        self.task.begin_tangent(after=after, **({"commit": commit} if commit else {}))

    def leave_tangent(self, keep: Keep = "none") -> None:
        """Back to the main conversation, with nothing of it, its last exchange, or a summary."""
        if not self.is_in_tangent:
            raise TangentError("No tangent is open.")
        self._cancel_calls()
        self.task.end_tangent(keep)

    # its end

    def close(self) -> None:
        """Until the next sitting."""
        self.task.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text or codec.now())
