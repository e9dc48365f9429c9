"""The sticky files of a task: which files the user declared, what they cost, and which of them fit.

Files are taken in declared order as long as they fit into a share of the window. A file that is too large, binary or
unreadable is left out and named, without affecting the others. A file is read again only if it looks changed, and the
task gets an event only if a text has changed. The task stores the list and the texts; the window renders them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import msgspec

from orihon.agent.tools.workspace import Workspace, shorten_path
from orihon.agent.workspace_files import OpenFile, open_path, parse_entry, resolve_paths
from orihon.context.sticky import StickyFile, shown_path
from orihon.context.window import STICKY_SHARE
from orihon.errors import ToolError, UsageError
from orihon.task.sticky import FileVersion
from orihon.task.task import Task

DEFAULT_SHARE = 0.25  # of the window
MAX_ENTRIES = 200
MAX_FILES = 400
MAX_FILE_BYTES = 8_000_000
BYTES_PER_TOKEN = 16  # more than any text has: a longer file cannot fit

Weighed = dict[str, tuple[tuple[int, ...], StickyFile]]  # by path: the mark of the file when it was weighed


class StickyRow(msgspec.Struct, frozen=True, kw_only=True):
    """One file in the list."""

    path: str
    tokens: int = 0
    share: float = 0.0  # of the window
    shown: bool = False
    note: str = ""  # why it is not shown, or what is special about it


class StickyListing(msgspec.Struct, frozen=True, kw_only=True):
    """The declared entries, their files, and what these take of the window."""

    declared: tuple[str, ...]
    rows: tuple[StickyRow, ...]
    tokens: int  # of the files that are shown
    max_tokens: int
    window_tokens: int

    @property
    def left_out(self) -> tuple[StickyRow, ...]:
        """The files that are not shown."""
        return tuple(row for row in self.rows if not row.shown)


class StickyChanges(msgspec.Struct, frozen=True, kw_only=True):
    """What is new for the model, and the list as it is now. It is true if anything is new."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    listing: StickyListing

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed)


class StickyFiles:
    """The sticky files of one task. The task stores the declared entries, so they survive a resume."""

    def __init__(self, task: Task, workspace: Workspace, *, share: float = DEFAULT_SHARE) -> None:
        if not 0 < share <= STICKY_SHARE:
            hint = f"Give a share above 0 and at most {STICKY_SHARE}."
            raise UsageError(f"Sticky files cannot have {share!a:.40} of the window.", hint=hint)
        self.task, self.workspace, self.share = task, workspace, share
        self._weighed: Weighed = {file.path: (file.mark, file) for file in task.sticky_files.files}

    @property
    def declared(self) -> tuple[str, ...]:
        """The declared entries, in order."""
        return self.task.sticky_files.declared

    @property
    def length(self) -> int:
        """The number of characters that the files take in the window. It is cached until they change."""
        return len(self.task.log.sticky_texts.files.text)

    def add(self, *texts: str, force: bool = False) -> StickyChanges:
        """Declare paths, patterns or directories; with `force` also ones that match nothing yet."""
        declared = list(self.declared)
        for text in texts:
            entry = parse_entry(text, self.workspace)
            if entry in declared:
                raise UsageError(f"{entry} is sticky already.", hint="Its files are read again when they change.")
            self._check(entry, force=force)
            declared.append(entry)
        if len(declared) > MAX_ENTRIES:
            raise UsageError(f"No more than {MAX_ENTRIES} entries can be declared.", hint="Declare a directory.")
        return self._update(declared)

    def _check(self, entry: str, *, force: bool) -> None:
        if self.task.version(entry, "").file.path != entry:
            hint = "Declare the directory it is in, or rename the file."
            raise UsageError(f"{entry} contains what looks like a secret or an address.", hint=hint)
        if entry.startswith("/") and os.path.isdir(entry):  # noqa: PTH112 - entries are texts
            hint = "Only single files outside the workspace can be sticky. Give the absolute path of one."
            raise UsageError(f"{entry} is a directory outside the workspace.", hint=hint)
        if not force and not resolve_paths(entry, self.workspace):
            hint = (
                f"Check the path, relative to {self.workspace.root}, or use force for a file that does not exist yet."
            )
            raise UsageError(f"{entry} matches no file.", hint=hint)

    def remove(self, text: str) -> StickyChanges:
        """Remove a declared entry."""
        entry = parse_entry(text, self.workspace)
        if entry in self.declared:
            return self._update([other for other in self.declared if other != entry])
        for other in self.declared:
            if entry in resolve_paths(other, self.workspace):
                raise UsageError(f"{entry} is sticky because of {other}.", hint=f"Remove {other}.")
        known = ", ".join(self.declared) or "nothing"
        raise UsageError(f"{entry} is not sticky.", hint=f"Declared: {known}.")

    def refresh(self) -> StickyChanges:
        """Check the files for changes."""
        return self._update(self.declared)

    def list_files(self) -> StickyListing:
        """Return the list as it is now, without changing the task."""
        return self._fit(self.declared)[0]

    def _update(self, declared: Sequence[str]) -> StickyChanges:
        before = {file.path: file for file in self.task.sticky_files.files}
        listing, files = self._fit(declared)
        self.task.sticky(files, declared=declared)
        after = {file.path: file for file in self.task.sticky_files.files}
        return StickyChanges(
            added=tuple(path for path in after if path not in before),
            changed=tuple(path for path in after if path in before and after[path].sha256 != before[path].sha256),
            removed=tuple(path for path in before if path not in after),
            listing=listing,
        )

    def _fit(self, declared: Sequence[str]) -> tuple[StickyListing, list[StickyFile | FileVersion]]:
        window_tokens = self.task.log.limit
        fitting = _Fitting(self.task, self.workspace, int(self.share * window_tokens), self._weighed)
        for entry in declared:
            paths = resolve_paths(entry, self.workspace)
            if not paths:
                fitting.leave_out(entry, "matches no file")
            for path in paths:
                fitting.try_path(path)
        self._weighed = fitting.weighed
        listing = StickyListing(
            declared=tuple(declared),
            rows=tuple(fitting.list_rows(window_tokens)),
            tokens=fitting.max_tokens - fitting.room,
            max_tokens=fitting.max_tokens,
            window_tokens=window_tokens,
        )
        return listing, fitting.files


class _Fitting:
    """One pass over the declared files: each is opened once, read only if it looks changed, and taken if it fits."""

    def __init__(self, task: Task, workspace: Workspace, max_tokens: int, weighed: Weighed) -> None:
        self.task, self.workspace = task, workspace
        self.max_tokens = self.room = max_tokens
        self.weighed: Weighed = {}
        self.files: list[StickyFile | FileVersion] = []
        self._previous = weighed
        self._stored = {file.version: file for file in task.sticky_files.files}
        self._rows: dict[str, StickyRow] = {}
        self._too_many = 0

    def try_path(self, path: str) -> None:
        if len(self._rows) >= MAX_FILES:
            self._too_many += 1
            return
        try:
            with open_path(path, self.workspace) as file:
                if file.path not in self._rows:
                    self._try_file(file)
        except ToolError as error:
            self.leave_out(path, error.message.removeprefix(f"{path} ").removeprefix(f"{path}: ").rstrip("."))

    def leave_out(self, path: str, reason: str) -> None:
        self._rows.setdefault(path, StickyRow(path=_format_path(path), note=reason))

    def list_rows(self, window_tokens: int) -> Iterator[StickyRow]:
        for row in self._rows.values():
            yield msgspec.structs.replace(row, share=row.tokens / window_tokens)
        if self._too_many:
            yield StickyRow(path="…", note=f"{self._too_many:,} more files; the limit is {MAX_FILES}")

    def _try_file(self, file: OpenFile) -> None:
        version = self._weigh(file)
        sticky = version.file if isinstance(version, FileVersion) else version
        self.weighed[file.path] = (file.mark, sticky)
        fits = sticky.tokens <= self.room
        note = f"needs {sticky.tokens:,} tokens, and {self.room:,} are left"
        if fits:
            self.room -= sticky.tokens
            self.files.append(version)
            note = "outside the workspace" if file.path.startswith("/") else ""
        self._rows[file.path] = StickyRow(path=_format_path(sticky.path), tokens=sticky.tokens, shown=fits, note=note)

    def _weigh(self, file: OpenFile) -> StickyFile | FileVersion:
        """Return the file with its cost; read it only if it looks changed, or if it fits and is not stored."""
        mark, known = self._previous.get(file.path, ((), None))
        if known is not None and mark and mark == file.mark:
            if known.tokens > self.room:
                return known
            if known.version in self._stored:
                return self._stored[known.version]
        return self.task.version(file.path, self._read_text(file), mark=file.mark)

    def _read_text(self, file: OpenFile) -> str:
        data = file.read(min(MAX_FILE_BYTES, BYTES_PER_TOKEN * self.max_tokens))
        if b"\0" in data:
            raise ToolError("is binary")
        try:
            return data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise ToolError(f"is not UTF-8 at byte {error.start:,}") from error


def _format_path(path: str) -> str:
    """Return a path as one printable line."""
    return shorten_path(shown_path(path))
