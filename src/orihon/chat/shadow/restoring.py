"""Bring files back, and destroy nothing that is not saved.

A checkpoint is taken first. What the workspace has by that checkpoint may be replaced or removed, because it can be
had back; whatever else stands in the way (ignored, too large, unreadable, changed a moment ago) stays, and is named.
So a restore can be taken back, and one that was killed half-way can be repeated.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import IO

from orihon.chat.shadow.checkpoints import Checkpoint, Checkpoints
from orihon.chat.shadow.git import Difference
from orihon.chat.shadow.listing import ignored, is_rules
from orihon.chat.shadow.saving import identity, is_apart
from orihon.chat.shadow.values import Restored, Skipped
from orihon.chat.shadow.worktree import MODES, Content, Unsaved
from orihon.errors import NotWritten


def restore(checkpoints: Checkpoints, commit: str, note: Callable[[str], None], *, hard: bool) -> Restored:
    """Bring back the files of a checkpoint; with `hard`, remove what it did not have."""
    target = checkpoints.find(commit)
    before = checkpoints.take(f"before restoring {commit}", thorough=True).commit
    work = Restoring(checkpoints, before, target, note)
    try:
        work.clear_the_way()
        work.write()
        if hard:
            work.remove_newer()
        after = checkpoints.take(f"after restoring {commit}").commit
    except NotWritten as error:
        hint = f"Free some space, then restore again; checkpoint {before} has the files as they were."
        raise NotWritten("The restore stopped half-way: the disk is full.", hint=hint) from error
    work.compare(after)
    return Restored(
        before=before,
        after=after,
        written=tuple(work.written),
        removed=tuple(sorted(work.removed)),
        kept=tuple(sorted(work.newer.keys() - work.removed - work.skipped.keys())),
        skipped=tuple(work.skipped[path] for path in sorted(work.skipped)),
    )


class Restoring:
    """A restore under way: what is wanted, what is newer, and what became of it."""

    def __init__(self, checkpoints: Checkpoints, before: str, target: Checkpoint, note: Callable[[str], None]) -> None:
        self.checkpoints, self.target, self.note = checkpoints, target, note
        self.files = checkpoints.files
        found = checkpoints.differences(checkpoints.find(before).files, target.files)
        ours = [one for one in found if not is_apart(one.path, checkpoints.apart)]
        self.wanted = {one.path: one for one in ours if one.status != "D"}
        self.newer = {one.path: one for one in ours if one.status == "D"}
        self.written: list[str] = []
        self.removed: set[str] = set()
        self.skipped: dict[str, Skipped] = {}

    def clear_the_way(self) -> None:
        """Remove newer files where a directory must be, and newer directories where a file must be."""
        for path in self.wanted:
            for above in _above(path):
                if above in self.newer:
                    self._remove(self.newer[above])
        for path in self.wanted:
            if self.files.is_directory(path):
                self._clear_directory(path)

    def _clear_directory(self, path: str) -> None:
        there = self.files.below(path)
        unsaved = [below for below in there if below not in self.newer]
        if unsaved:
            self._skip(path, f"cannot come back: {unsaved[0]} is in its place and not saved")
            return
        for below in there:
            self._remove(self.newer[below])

    def write(self) -> None:
        """Put the files in their places."""
        with self.checkpoints.git.talk("cat-file", "--batch") as (asked, told):
            for path, one in self.wanted.items():
                if path not in self.skipped and self._may_be_replaced(one):
                    data = _blob(asked, told, one.new_id)
                    if data is None:
                        self._skip(path, "cannot come back: its bytes are missing from the checkpoint")
                    else:
                        self._put(path, Content(one.new_mode, data))

    def _may_be_replaced(self, one: Difference) -> bool:
        """Whether what is in its place is saved, and is not what is wanted already."""
        if one.new_mode not in MODES:
            self._skip(one.path, "is of a kind that does not come back")
            return False
        found = self.files.read(one.path)
        if found is None:
            return True
        if isinstance(found, Unsaved):
            self._skip(one.path, f"stays as it is: it {found.reason}")
            return False
        now = found.mode, identity(found.data)
        if now not in {(one.old_mode, one.old_id), (one.new_mode, one.new_id)}:
            self._skip(one.path, "stays as it is: it is ignored, or was changed a moment ago, and so is not saved")
        return now == (one.old_mode, one.old_id)

    def _put(self, path: str, content: Content) -> None:
        try:
            self.files.put(path, content, self.note)
        except OSError as error:
            if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
                raise NotWritten from error
            self._skip(path, f"cannot be written: {error.strerror}")
        else:
            self.written.append(path)

    def remove_newer(self) -> None:
        """Remove what the checkpoint does not have; not what it had skipped, nor what its own rules ignored."""
        for path, one in self.newer.items():
            if is_rules(path):
                self._remove(one)
        now_ignored = ignored(self.checkpoints.git)
        for path, one in self.newer.items():
            if path not in now_ignored and not is_apart(path, self.target.skipped):
                self._remove(one)

    def _remove(self, one: Difference) -> None:
        if one.path in self.removed:
            return
        found = self.files.read(one.path)
        if found is None:
            self.removed.add(one.path)  # by somebody else, just now
            return
        if isinstance(found, Unsaved) or (found.mode, identity(found.data)) != (one.old_mode, one.old_id):
            self._skip(one.path, "stays: it was changed a moment ago, and so is not saved")
            return
        try:
            self.files.remove(one.path)
        except OSError as error:
            self._skip(one.path, f"cannot be removed: {error.strerror}")
        else:
            self.removed.add(one.path)

    def compare(self, after: str) -> None:
        """Look whether all came back; somebody else may have written at the same time."""
        for one in self.checkpoints.differences(self.checkpoints.find(after).files, self.target.files):
            wanted = self.wanted.get(one.path)
            if wanted is None or one.path in self.skipped:
                continue
            found = self.files.read(one.path)
            if not isinstance(found, Content) or (found.mode, identity(found.data)) != (one.new_mode, one.new_id):
                self._skip(one.path, "was changed by somebody else at the same time")

    def _skip(self, path: str, reason: str) -> None:
        self.skipped[path] = Skipped(path, reason)


def _above(path: str) -> list[str]:
    """The directories that a path is in."""
    parts = path.split("/")
    return ["/".join(parts[:length]) for length in range(1, len(parts))]


def _blob(asked: IO[bytes], told: IO[bytes], id: str) -> bytes | None:
    """The bytes of a file; None when they are not what they were."""
    asked.write(id.encode() + b"\n")
    asked.flush()
    *_, size = told.readline().split() or [b""]
    data = told.read(int(size) + 1)[:-1] if size.isdigit() else b""
    return data if identity(data) == id else None
