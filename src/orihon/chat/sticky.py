"""The sticky files of a conversation: which files a person declared, what they cost, and what of them fits.

Files are taken in the order in which they were declared, as long as they fit into a share of the window. One that is
too large, binary or cannot be read is left out and named, and never keeps the others out. A file is read again only
when it looks changed, and the task hears of it only when its text has changed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from orihon.agent.tools.workspace import Workspace
from orihon.chat.finding import entry_of, paths_of
from orihon.chat.weighing import Look, Row, Seen
from orihon.context.sticky import StickyFile
from orihon.errors import UsageError
from orihon.task.sticky import Version
from orihon.task.task import Task

SHARE = 0.25  # of the window
MOST_SHARE = 0.75
MAX_ENTRIES = 200


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """What was declared, the files that it means, and what they take of the window."""

    declared: tuple[str, ...]
    rows: tuple[Row, ...]
    tokens: int  # of those that are shown
    max_tokens: int
    window_tokens: int

    @property
    def left_out(self) -> tuple[Row, ...]:
        """The files that are not shown, each with its reason."""
        return tuple(row for row in self.rows if not row.shown)


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """What is new for the model, and the list as it is now."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    listing: Listing

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed)


class StickyFiles:
    """The files of one task. What was declared is kept by the task, so a resume goes on with it."""

    def __init__(
        self, task: Task, workspace: Workspace, *, share: float = SHARE, environ: Mapping[str, str] | None = None
    ) -> None:
        if not 0 < share <= MOST_SHARE:
            message = f"Sticky files cannot have {share!a:.40} of the window."
            raise UsageError(message, hint=f"Give a share above 0 and at most {MOST_SHARE}.")
        self.task, self.workspace, self.share = task, workspace, share
        self.environ = os.environ if environ is None else environ
        self._seen: Seen = {file.path: (file.mark, file) for file in task.sticky_files.files}

    @property
    def declared(self) -> tuple[str, ...]:
        """What was declared, in order."""
        return self.task.sticky_files.declared

    @property
    def length(self) -> int:
        """How many characters the files take in the window; it is remembered until they change."""
        return len(self.task.history.sticky_texts.files.text)

    def add(self, *given: str, force: bool = False) -> Changes:
        """Declare paths, patterns or directories; with `force` also what is not there yet."""
        declared = list(self.declared)
        for one in given:
            entry = entry_of(one, self.workspace)
            if entry in declared:
                raise UsageError(f"{entry} is sticky already.", hint="Its files are read again when they change.")
            self._check(entry, force=force)
            declared.append(entry)
        if len(declared) > MAX_ENTRIES:
            raise UsageError(f"No more than {MAX_ENTRIES} entries can be declared.", hint="Declare a directory.")
        return self._keep(declared)

    def _check(self, entry: str, *, force: bool) -> None:
        if self.task.version(entry, "").file.path != entry:
            hint = "Declare the directory it is in, or give the file another name."
            raise UsageError(f"{entry} holds what looks like a secret or an address, and is not stored.", hint=hint)
        if entry.startswith("/") and os.path.isdir(entry):  # noqa: PTH112 - a text, as everywhere here
            hint = "Name a file in it by its whole path; only single files outside of the workspace can be sticky."
            raise UsageError(f"{entry} is a directory outside of the workspace.", hint=hint)
        if not force and not paths_of(entry, self.workspace, self.environ):
            hint = f"Check the name from {self.workspace.root} on, or force it for a file that is still to come."
            raise UsageError(f"{entry} names no file.", hint=hint)

    def remove(self, given: str) -> Changes:
        """No longer declare something."""
        entry = entry_of(given, self.workspace)
        if entry in self.declared:
            return self._keep([one for one in self.declared if one != entry])
        for one in self.declared:
            if entry in paths_of(one, self.workspace, self.environ):
                raise UsageError(f"{entry} is sticky because of {one}.", hint=f"Remove {one}.")
        known = ", ".join(self.declared) or "nothing"
        raise UsageError(f"{entry} is not sticky.", hint=f"Declared are: {known}.")

    def refresh(self) -> Changes:
        """Look at the files again; the task gets an event only if something is new."""
        return self._keep(self.declared)

    def listing(self) -> Listing:
        """The files as they are now; nothing is changed by looking."""
        return self._look(self.declared)[0]

    def _keep(self, declared: Sequence[str]) -> Changes:
        before = {file.path: file for file in self.task.sticky_files.files}
        listing, kept = self._look(declared)
        self.task.sticky(kept, declared=declared)
        now = {file.path: file for file in self.task.sticky_files.files}
        return Changes(
            added=tuple(path for path in now if path not in before),
            changed=tuple(path for path in now if path in before and now[path].sha256 != before[path].sha256),
            removed=tuple(path for path in before if path not in now),
            listing=listing,
        )

    def _look(self, declared: Iterable[str]) -> tuple[Listing, list[StickyFile | Version]]:
        """Weigh the files in their order, and take those that fit."""
        limit = self.task.history.limit
        look = Look(self.task, self.workspace, int(self.share * limit), self._seen)
        for entry in declared:
            paths = paths_of(entry, self.workspace, self.environ)
            if not paths:
                look.leave_out(entry, "names no file")
            for path in paths:
                look.at(path)
        self._seen = look.seen
        listing = Listing(
            declared=tuple(declared),
            rows=tuple(look.rows(limit)),
            tokens=look.most - look.room,
            max_tokens=look.most,
            window_tokens=limit,
        )
        return listing, look.kept
