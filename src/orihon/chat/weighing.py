"""One look at declared files: each is opened once, read only if it looks changed, and taken if it fits."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from orihon.agent.tools.workspace import Workspace, shorten_path
from orihon.chat.finding import Opened, opened
from orihon.context.sticky import StickyFile, shown_path
from orihon.errors import ToolError
from orihon.task.sticky import Version
from orihon.task.task import Task

MAX_FILES = 400  # that are looked at
MAX_BYTES = 8_000_000  # of one file
BYTES_PER_TOKEN = 16  # more than a text has, so that a longer file cannot fit

Seen = dict[str, tuple[tuple[int, ...], StickyFile]]  # by real path: how the file looked when it was weighed


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One file as a person sees it in the list."""

    path: str
    tokens: int = 0
    share: float = 0.0  # of the window
    shown: bool = False
    note: str = ""  # why it is not shown, or what is special about it


class Look:
    """What has been found so far, and the room that is left."""

    def __init__(self, task: Task, workspace: Workspace, most: int, seen: Seen) -> None:
        self.task, self.workspace = task, workspace
        self.most = self.room = most
        self.seen: Seen = {}
        self.kept: list[StickyFile | Version] = []
        self._before = seen
        self._stored = {file.version: file for file in task.sticky_files.files}
        self._rows: dict[str, Row] = {}
        self._too_many = 0

    def at(self, path: str) -> None:
        """Take a file if it fits; whatever is wrong with it is said of it alone."""
        if len(self._rows) >= MAX_FILES:
            self._too_many += 1
            return
        try:
            with opened(path, self.workspace) as file:
                if file.path not in self._rows:
                    self._take(file)
        except ToolError as error:
            self.leave_out(path, error.message.removeprefix(f"{path} ").removeprefix(f"{path}: ").rstrip("."))

    def leave_out(self, path: str, reason: str) -> None:
        """Name what is not shown."""
        self._rows.setdefault(path, Row(path=_drawn(path), note=reason))

    def rows(self, window_tokens: int) -> Iterator[Row]:
        """The files in their order, with their shares."""
        for row in self._rows.values():
            yield msgspec.structs.replace(row, share=row.tokens / window_tokens)
        if self._too_many:
            note = f"{self._too_many:,} more are not looked at; {MAX_FILES} files can be sticky"
            yield Row(path="…", note=note)

    def _take(self, file: Opened) -> None:
        weighed = self._weighed(file)
        known = weighed.file if isinstance(weighed, Version) else weighed
        self.seen[file.path] = (file.mark, known)
        fits = known.tokens <= self.room
        note = f"needs {known.tokens:,} tokens, and {self.room:,} are left"
        if fits:
            self.room -= known.tokens
            self.kept.append(weighed)
            note = "outside of the workspace" if file.path.startswith("/") else ""
        self._rows[file.path] = Row(path=_drawn(known.path), tokens=known.tokens, shown=fits, note=note)

    def _weighed(self, file: Opened) -> StickyFile | Version:
        """What the file costs; its text is read only if it looks changed, or is needed and not stored."""
        mark, known = self._before.get(file.path, ((), None))
        if known is not None and mark and mark == file.mark:
            if known.tokens > self.room:
                return known
            if known.version in self._stored:
                return self._stored[known.version]
        return self.task.version(file.path, self._text(file), mark=file.mark)

    def _text(self, file: Opened) -> str:
        data = file.read(min(MAX_BYTES, BYTES_PER_TOKEN * self.most))
        if b"\0" in data:
            raise ToolError("is binary")
        try:
            return data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise ToolError(f"is not UTF-8, from byte {error.start:,} on") from error


def _drawn(path: str) -> str:
    """A path that every terminal can show in one line."""
    return shorten_path(shown_path(path))
