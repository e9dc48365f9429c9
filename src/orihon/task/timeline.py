"""Changes of what is visible: tangents, rewinds, checkpoints, undo, pins and sticky files.

Each change is one event. The log itself never changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from orihon.codec import safe_str
from orihon.coerce import to_text
from orihon.context.sticky import StickyFile, StickyList
from orihon.context.view import saved
from orihon.context.window import STICKY_SHARE
from orihon.errors import NotFound, TangentError, UsageError
from orihon.records import Event
from orihon.task.sticky import Files, FileVersion, parse_files
from orihon.task.writer import TaskWriter

Keep = Literal["none", "tail", "summary"]
KEEPS = ("none", "tail", "summary")
PINNED_SHARE = 0.25  # of the limit, for all pins
NEWS_SHARE = 0.25  # of the limit, for what is said about changed sticky files between two folds
UNIT = 64  # messages among which the end of a unit is searched


def check_keep(keep: str) -> None:
    """Raise UsageError unless a tangent can be left this way."""
    if keep not in KEEPS:
        raise UsageError(f"A tangent cannot keep {keep!a}.", hint=f"Give one of {', '.join(KEEPS)}.")


class Timeline:
    """The changes of a task's view. Callers hold the writer's lock."""

    def __init__(self, writer: TaskWriter, summarise_tangent: Callable[[int], int | None]) -> None:
        self._writer = writer
        self._summarise_tangent = summarise_tangent  # from its first message to the message that stands for it

    def begin_tangent(self, after: int | None = None, **data: Any) -> int:
        """Open a side conversation and return its event; with `after`, it began after that message."""
        log = self._writer.log
        if after is None:
            return self._writer.event("tangent", **data)
        earliest = log.view.tangents[-1].after if log.view.tangents else 0
        if not isinstance(after, int) or not earliest <= after <= log.last:
            raise TangentError(
                f"A tangent cannot have begun after message {after!a}.",
                hint=f"Give a number from {earliest} to {log.last}.",
            )
        return self._writer.event("tangent", **data, **{"from": self._unit_end(after)})

    def end_tangent(self, keep: Keep = "none") -> None:
        """Close the innermost tangent and keep nothing, its last exchange, or a summary of it."""
        check_keep(keep)
        tangents = self._writer.log.view.tangents
        if not tangents:
            raise TangentError("No tangent is open.")
        first = tangents[-1].after + 1
        if keep == "tail" and (exchange := self._last_exchange(first)):
            self._writer.event("end", keep="tail", tail=exchange)
        elif keep == "summary" and (seq := self._summarise_tangent(first)):
            self._writer.event("end", keep="summary", tail=(seq, seq))
        else:
            self._writer.event("end", keep="none")

    def leave_tangent(self, event: int, keep: Keep) -> None:
        """Close a tangent and those opened inside it. A task that ended inside has closed them already."""
        if self._writer.row.status != "running":
            return
        if not any(tangent.event == event for tangent in self._writer.log.view.tangents):
            raise TangentError("The tangent was closed already.")
        while self._writer.log.view.tangents[-1].event != event:
            self.end_tangent("none")
        self.end_tangent(keep)

    def close_tangents(self) -> None:
        """Close all tangents and keep nothing of them."""
        while self._writer.log.view.tangents:
            self._writer.event("end", keep="none")

    def rewind(self, to: int, *, exact: bool = False) -> int:
        """Hide what came after message `to`, or after its unit, and return the event, which `undo` takes."""
        last = self._writer.log.last
        if not isinstance(to, int) or not 0 <= to <= last:
            raise UsageError(f"There is no message {safe_str(to)[:40]}.", hint=f"Give a number up to {last}.")
        return self._writer.event("rewind", to=to if exact else self._unit_end(to))

    def undo(self, event: int | None = None) -> int:
        """Undo the last rewind, reset, compaction or restore; or this one and those after it."""
        self._writer.reload_if_uncertain()
        undoable = [undo.event for undo in self._writer.log.view.undoable]
        number = event if event is not None else (undoable[-1] if undoable else 0)
        if number not in undoable:
            known = ", ".join(map(str, undoable)) or "none"
            raise UsageError("There is nothing to undo.", hint=f"Events that can be undone: {known}.")
        return self._writer.event("undo", event=number)

    def checkpoint(self, label: str = "", **data: Any) -> int:
        """Remember the view as it is now and return the event, which `restore` takes."""
        label = to_text(label, "The label of a checkpoint")
        return self._writer.event("checkpoint", label=label, **data, **saved(self._writer.log.view))

    def restore(self, checkpoint: int, **data: Any) -> int:
        """Go back to a checkpoint and return the event, which `undo` takes."""
        writer = self._writer
        stored = writer.lease.store.read(writer.uuid, Event, first=checkpoint, last=checkpoint)
        event = next(stored, None) if isinstance(checkpoint, int) and checkpoint > 0 else None
        if event is None or event.type != "checkpoint":
            raise NotFound(kind="checkpoint", id=f"{checkpoint!a:.40}", hint="task.checkpoint(…) returned its number.")
        state = {name: event.data[name] for name in ("state", "tangents") if name in event.data}
        return writer.event("restore", after=event.after, checkpoint=checkpoint, **data, **state)

    # pins

    def pin(self, seq: int) -> None:
        """Show a message, with its calls and results, in every window from the next fold on."""
        log = self._writer.log
        unit = log.unit(seq)
        if unit[0].seq in log.view.state.pins:
            return
        if not log.view.shows(seq):
            raise UsageError(f"m{seq} is no longer part of the conversation.", hint="`undo` may bring it back.")
        self.check_pins(sum(message.tokens for message in unit))
        self._writer.event("pin", seq=unit[0].seq)

    def unpin(self, seq: int) -> None:
        """Unpin a message."""
        head = self._writer.log.unit(seq)[0].seq
        if head in self._writer.log.view.state.pins:
            self._writer.event("unpin", seq=head)

    def check_pins(self, tokens: int) -> None:
        """Raise UsageError if the pins would take too much of the window with so many tokens more."""
        log = self._writer.log
        pinned = sum(message.tokens for seq in log.view.state.pins for message in log.unit(seq))
        allowed = int(PINNED_SHARE * log.limit)
        if pinned + tokens > allowed:
            raise UsageError(
                f"With {tokens:,} tokens more the pins would take {pinned + tokens:,}; {allowed:,} are allowed, a "
                f"quarter of the {log.limit:,} of the window.",
                hint="Unpin something, or pin a shorter message.",
            )

    # sticky files

    @property
    def sticky_files(self) -> StickyList:
        """The files that stand in every window, and what was declared to find them."""
        return self._writer.log.sticky.list_at(self._writer.log.view.state.sticky)

    def set_sticky(self, files: Files, declared: Sequence[str] = ()) -> int | None:
        """Replace the list of sticky files and return the event; None if nothing changed."""
        writer = self._writer
        writer.reload_if_uncertain()
        versions = self._versions(files)
        listed = tuple({file.path: file for file in map(_file_of, versions)}.values())
        before = self.sticky_files
        if before.declared == tuple(declared) and [file.version for file in before.files] == [
            file.version for file in listed
        ]:
            return None
        self._check_sticky(listed)
        for version in versions:
            if isinstance(version, FileVersion):
                writer.lease.put(version.text.encode())
        sticky = StickyList(listed, tuple(declared), self._news_room(), self._nothing_sent())
        return writer.event("sticky", **msgspec.to_builtins(sticky))

    def file_version(self, path: str, text: str, mark: tuple[int, ...] = ()) -> FileVersion:
        """Return a version of a file, masked and counted; nothing is stored."""
        writer = self._writer
        return FileVersion.make(path, text, sanitiser=writer.sanitiser, counter=writer.log.counter, mark=mark)

    def _versions(self, files: Files) -> list[StickyFile | FileVersion]:
        if isinstance(files, Mapping):
            return [self.file_version(path, text) for path, text in files.items()]
        return parse_files(files)

    def _check_sticky(self, files: Sequence[StickyFile]) -> None:
        tokens, limit = sum(file.tokens for file in files), self._writer.log.limit
        allowed = int(STICKY_SHARE * limit)
        if tokens > allowed:
            raise UsageError(
                f"The sticky files would take {tokens:,} tokens; {allowed:,} are allowed, three quarters of the "
                f"{limit:,} of the window.",
                hint="Keep fewer or shorter files.",
            )

    def _news_room(self) -> int:
        """Return the tokens left to announce changed files before the next fold."""
        log = self._writer.log
        announced = sum(log.counter.text(news.text) for news in log.sticky_texts.news)
        return max(0, int(NEWS_SHARE * log.limit) - announced)

    def _nothing_sent(self) -> bool:
        """Return whether no window was made of what is visible, so that nothing can move."""
        visible = self._writer.log.backwards(self._writer.log.view.state.ranges)
        return not self._writer.row.current_context_tokens or next(visible, None) is None

    # where units end

    def _last_exchange(self, first: int) -> tuple[int, int] | None:
        """Return the range from the last question of a tangent to its end."""
        log = self._writer.log
        for message in log.backwards(log.view.state.ranges):
            if message.seq < first:
                return None
            if message.role == "user":
                return message.seq, log.last
        return None

    def _unit_end(self, seq: int) -> int:
        """Return the last message of the unit that a message belongs to: results stay with their call."""
        calls: set[str] = set()
        for message in self._writer.log.read(max(1, seq - UNIT), min(self._writer.log.last, seq + UNIT)):
            if message.seq <= seq and message.role == "assistant":
                calls = {call.id for call in message.tool_calls}
            elif message.seq > seq and message.role == "tool" and message.tool_call_id in calls:
                seq = message.seq
            elif message.seq > seq:
                break
        return seq


def _file_of(version: StickyFile | FileVersion) -> StickyFile:
    return version.file if isinstance(version, FileVersion) else version
