"""What a person can do to the view: side conversations, going back, checkpoints, undo, sticky files.

The log itself never changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from orihon.codec import as_text
from orihon.coerce import list_of, text_of
from orihon.context.sticky import StickyFile, StickyList
from orihon.context.view import saved
from orihon.context.window import STICKY_SHARE
from orihon.errors import NotFound, TangentError, UsageError
from orihon.records import Event
from orihon.task import summaries
from orihon.task.config import Summariser
from orihon.task.sticky import NEWS_SHARE, Version, version
from orihon.task.writer import Writer

Keep = Literal["none", "tail", "summary"]
KEEPS = ("none", "tail", "summary")


def check_keep(keep: str) -> None:
    """Refuse a way to leave a tangent that does not exist."""
    if keep not in KEEPS:
        raise UsageError(f"A tangent cannot keep {keep!a}.", hint=f"Give one of {', '.join(KEEPS)}.")


class Branches(Writer):
    """Changes of what is visible, each of them one event."""

    summariser: Summariser | None = None

    def begin_tangent(self, *, after: int | None = None, **beside: Any) -> int:
        """Open a side conversation that leaves the main one untouched; tangents nest.

        With `after`, what was said after that message has been one all along.
        """
        with self.lock:
            self.check_running()
            if after is None:
                return self.event("tangent", **beside)
            opened = self.history.view.tangents[-1].after if self.history.view.tangents else 0
            if not isinstance(after, int) or not opened <= after <= self.history.last:
                hint = f"Give a number from {opened} to {self.history.last}."
                raise TangentError(f"A tangent cannot have begun after message {after!a}.", hint=hint)
            return self.event("tangent", **beside, **{"from": self._border(after)})

    def end_tangent(self, keep: Keep = "none") -> None:
        """Close the innermost one: nothing of it stays, or its last exchange, or a summary in its place."""
        check_keep(keep)
        with self.lock:
            self.check_running()
            if not self.history.view.tangents:
                raise TangentError("No tangent is open.")
            first = self.history.view.tangents[-1].after + 1
            if keep == "tail" and (exchange := self._last_exchange(first)):
                self.event("end", keep="tail", tail=exchange)
            elif keep == "summary" and (seq := summaries.aside(self, self.summariser, first)):
                self.event("end", keep="summary", tail=(seq, seq))
            else:
                self.event("end", keep="none")

    def leave(self, opened: int, keep: Keep) -> None:
        """Close this tangent and those that were opened inside it."""
        with self.lock:
            if self.row.status != "running":
                return  # it ended inside, and what ends closes its tangents
            if not any(tangent.event == opened for tangent in self.history.view.tangents):
                raise TangentError("The tangent was closed already.")
            while self.history.view.tangents[-1].event != opened:
                self.end_tangent("none")
            self.end_tangent(keep)

    def _last_exchange(self, first: int) -> tuple[int, int] | None:
        """From the last question of the side conversation to its end."""
        for message in self.history.backwards(self.history.view.state.ranges):
            if message.seq < first:
                return None
            if message.role == "user":
                return message.seq, self.history.last
        return None

    def rewind(self, to: int) -> int:
        """Go back to just after message `to`; what came after it is for people only. Returns what `undo` takes."""
        with self.lock:
            self.check_running()
            if not isinstance(to, int) or not 0 <= to <= self.history.last:
                raise UsageError(
                    f"There is no message {as_text(to)[:40]}.", hint=f"Give a number up to {self.history.last}."
                )
            return self.event("rewind", to=self._border(to))

    def _border(self, to: int) -> int:
        """A cut falls on the border of a unit: results stay with their call."""
        calls: set[str] = set()
        for message in self.history.read(max(1, to - 64), min(self.history.last, to + 64)):
            if message.seq <= to and message.role == "assistant":
                calls = {call.id for call in message.tool_calls}
            elif message.seq > to and message.role == "tool" and message.tool_call_id in calls:
                to = message.seq
            elif message.seq > to:
                break
        return to

    def reset(self) -> int:
        """Start with an empty view: only the system prompt and the pins stay, and the snapshot is empty."""
        with self.lock:
            self.check_running()
            return self.event("clear")

    def undo(self, event: int | None = None) -> int:
        """Take back a rewind, a reset, a compression or a restore: the last one, or this one and those after it."""
        with self.lock:
            self.check_running()
            self.settle()
            possible = [undo.event for undo in self.history.view.undoable]
            number = event if event is not None else (possible[-1] if possible else 0)
            if number not in possible:
                known = ", ".join(map(str, possible)) or "none"
                raise UsageError("There is nothing to undo.", hint=f"What can be taken back: {known}.")
            return self.event("undo", event=number)

    def checkpoint(self, label: str = "", **beside: Any) -> int:
        """Remember the conversation as it is now, and what else belongs to it; the number is what `restore` takes."""
        with self.lock:
            self.check_running()
            return self.event(
                "checkpoint", label=text_of(label, "The label of a checkpoint"), **beside, **saved(self.history.view)
            )

    def restore(self, checkpoint: int, **beside: Any) -> int:
        """Go back to a checkpoint; this can be undone."""
        with self.lock:
            self.check_running()
            known = self.lease.store.read(self.uuid, Event, first=checkpoint, last=checkpoint)
            found = next(known, None) if isinstance(checkpoint, int) and checkpoint > 0 else None
            if found is None or found.type != "checkpoint":
                raise NotFound(
                    kind="checkpoint", id=f"{checkpoint!a:.40}", hint="task.checkpoint(…) returned its number."
                )
            data = {name: found.data[name] for name in ("state", "tangents") if name in found.data}
            return self.event("restore", after=found.after, checkpoint=checkpoint, **beside, **data)

    # sticky files

    @property
    def sticky_files(self) -> StickyList:
        """The files that are kept in every window, as they were last given, and what was declared to find them."""
        with self.lock:
            return self.history.stickies.listed(self.history.view.state.sticky)

    def version(self, path: str, text: str, *, mark: tuple[int, ...] = ()) -> Version:
        """A file as it may be kept, masked and counted; nothing is stored before `sticky` is given it."""
        return version(path, text, sanitiser=self.sanitiser, counter=self.history.counter, mark=mark)

    def sticky(
        self, files: Mapping[str, str] | Sequence[StickyFile | Version], *, declared: Sequence[str] = ()
    ) -> int | None:
        """Keep these files in every window, in this order, instead of those before; None when nothing is new.

        A mapping says the text of each path. A sequence holds what `version` made and, for a file that has not
        changed, what the list had.
        """
        given = [self.version(*one) for one in files.items()] if isinstance(files, Mapping) else _files(files)
        with self.lock:
            self.check_running()
            self.settle()
            now = tuple({file.path: file for file in map(_file_of, given)}.values())
            before = self.sticky_files
            if before.declared == tuple(declared) and [file.version for file in before.files] == [
                file.version for file in now
            ]:
                return None
            self._check_room(now)
            for one in given:
                if isinstance(one, Version):
                    self.lease.put(one.text.encode())
            listed = StickyList(now, tuple(declared), self._news_room(), self._nothing_sent())
            return self.event("sticky", **msgspec.to_builtins(listed))

    def _check_room(self, files: Sequence[StickyFile]) -> None:
        tokens, limit = sum(file.tokens for file in files), self.history.limit
        most = int(STICKY_SHARE * limit)
        if tokens > most:
            raise UsageError(
                f"The sticky files would take {tokens:,} tokens; {most:,} are allowed, three quarters of the {limit:,} "
                "of the window.",
                hint="Keep fewer or shorter files.",
            )

    def _news_room(self) -> int:
        """What is left to tell of changed files before the next fold."""
        told = sum(self.history.counter.text(news.text) for news in self.history.sticky_texts.news)
        return max(0, int(NEWS_SHARE * self.history.limit) - told)

    def _nothing_sent(self) -> bool:
        """Whether no window was made of what is visible, so that nothing can move."""
        visible = self.history.backwards(self.history.view.state.ranges)
        return not self.row.current_context_tokens or next(visible, None) is None


def _files(given: Any) -> list[StickyFile | Version]:
    hint = "Give a mapping from paths to texts, or what `version` made."
    files = list_of(given, "Sticky files", hint=hint)
    if not all(isinstance(one, StickyFile | Version) for one in files):
        raise UsageError("Sticky files are given with their texts.", hint=hint)
    return files


def _file_of(given: StickyFile | Version) -> StickyFile:
    return given.file if isinstance(given, Version) else given
