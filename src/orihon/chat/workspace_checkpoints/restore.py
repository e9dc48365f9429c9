"""Restoring the files of a checkpoint without destroying anything that is not saved.

A checkpoint is taken first. Only what it contains is replaced or removed. Everything else in the way (ignored, too
large, unreadable, or changed a moment ago) stays and is reported. A restore can therefore be undone, and an
interrupted one can be repeated.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import IO

import msgspec

from orihon.chat.workspace_checkpoints.diff_index import SkippedFile, is_ignore_file, list_ignored
from orihon.chat.workspace_checkpoints.git import TreeChange
from orihon.chat.workspace_checkpoints.snapshot import FileCheckpoint, FileCheckpoints, is_below
from orihon.chat.workspace_checkpoints.worktree import MODES, Content, hash_blob
from orihon.errors import NotWritten


class RestoreResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a restore did. `before` and `after` are checkpoints; restoring `before` with `hard` undoes it."""

    before: str
    after: str
    written: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()  # newer files that were left in place
    skipped: tuple[SkippedFile, ...] = ()


def restore_files(
    checkpoints: FileCheckpoints, commit: str, on_temporary: Callable[[str], None], *, hard: bool
) -> RestoreResult:
    """Restore the files of a checkpoint; with `hard`, also remove the files that it does not have."""
    target = checkpoints.find(commit)
    before = checkpoints.take(f"before restoring {commit}", check_all_rules=True).commit
    restore = Restore(checkpoints, before, target, on_temporary)
    try:
        restore.clear_the_way()
        restore.write()
        if hard:
            restore.remove_newer()
        after = checkpoints.take(f"after restoring {commit}").commit
    except NotWritten as error:
        hint = f"Free some space, then restore again. Checkpoint {before} has the files as they were."
        raise NotWritten("The disk is full: only some of the files were restored.", hint=hint) from error
    restore.verify(after)
    return RestoreResult(
        before=before,
        after=after,
        written=tuple(restore.written),
        removed=tuple(sorted(restore.removed)),
        kept=tuple(sorted(restore.newer.keys() - restore.removed - restore.skipped.keys())),
        skipped=tuple(restore.skipped[path] for path in sorted(restore.skipped)),
    )


class Restore:
    """A restore in progress."""

    def __init__(
        self, checkpoints: FileCheckpoints, before: str, target: FileCheckpoint, on_temporary: Callable[[str], None]
    ) -> None:
        self.checkpoints, self.files, self.target = checkpoints, checkpoints.files, target
        self._on_temporary = on_temporary
        changes = checkpoints.compare(checkpoints.find(before).files, target.files)
        changes = [change for change in changes if not is_below(change.path, checkpoints.exclude)]
        self.wanted = {change.path: change for change in changes if change.status != "D"}
        self.newer = {change.path: change for change in changes if change.status == "D"}
        self.written: list[str] = []
        self.removed: set[str] = set()
        self.skipped: dict[str, SkippedFile] = {}

    def clear_the_way(self) -> None:
        """Remove newer files where a directory is needed, and newer directories where a file is needed."""
        for path in self.wanted:
            for parent in map(str, PurePosixPath(path).parents):
                if parent in self.newer:
                    self._remove(self.newer[parent])
        for path in self.wanted:
            if self.files.is_directory(path):
                self._clear_directory(path)

    def _clear_directory(self, path: str) -> None:
        names = self.files.list_below(path)
        unsaved = [name for name in names if name not in self.newer]
        if unsaved:
            self._skip(path, f"cannot be restored: {unsaved[0]} is in its place and not saved")
            return
        for name in names:
            self._remove(self.newer[name])

    def write(self) -> None:
        """Write the files of the checkpoint."""
        with self.checkpoints.git.pipe("cat-file", "--batch") as (stdin, stdout):
            for path, change in self.wanted.items():
                if path not in self.skipped and self._may_replace(change):
                    mode, blob = change.new
                    data = _read_blob(stdin, stdout, blob)
                    if data is None:
                        self._skip(path, "cannot be restored: its bytes are missing from the checkpoint")
                    else:
                        self._put(path, Content(mode, data))

    def _may_replace(self, change: TreeChange) -> bool:
        """Return whether the present file is saved and is not yet the wanted one; report an unsaved one."""
        if change.new[0] not in MODES:
            self._skip(change.path, "is of a type that cannot be restored")
            return False
        content = self.files.read(change.path)
        if content is None:
            return True
        if isinstance(content, str):
            self._skip(change.path, f"stays as it is: it {content}")
            return False
        if content.version not in {change.old, change.new}:
            self._skip(change.path, "stays as it is: it is not saved, because it is ignored or was just changed")
        return content.version == change.old

    def _put(self, path: str, content: Content) -> None:
        try:
            self.files.put(path, content, self._on_temporary)
        except OSError as error:
            if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
                raise NotWritten from error
            self._skip(path, f"cannot be written: {error.strerror}")
        else:
            self.written.append(path)

    def remove_newer(self) -> None:
        """Remove files that the checkpoint does not have, but none that it skipped or that its own rules ignore."""
        for path, change in self.newer.items():
            if is_ignore_file(path):
                self._remove(change)
        ignored = list_ignored(self.checkpoints.git)
        for path, change in self.newer.items():
            if path not in ignored and not is_below(path, self.target.skipped):
                self._remove(change)

    def _remove(self, change: TreeChange) -> None:
        if change.path in self.removed:
            return
        content = self.files.read(change.path)
        if content is None:
            self.removed.add(change.path)  # by another process
            return
        if isinstance(content, str) or content.version != change.old:
            self._skip(change.path, "stays: it is not saved, because it was just changed")
            return
        try:
            self.files.remove(change.path)
        except OSError as error:
            self._skip(change.path, f"cannot be removed: {error.strerror}")
        else:
            self.removed.add(change.path)

    def verify(self, after: str) -> None:
        """Report the files that another process changed during the restore."""
        for change in self.checkpoints.compare(self.checkpoints.find(after).files, self.target.files):
            if change.path not in self.wanted or change.path in self.skipped:
                continue
            content = self.files.read(change.path)
            if not isinstance(content, Content) or content.version != change.new:
                self._skip(change.path, "was changed by another process at the same time")

    def _skip(self, path: str, reason: str) -> None:
        self.skipped[path] = SkippedFile(path, reason)


def _read_blob(stdin: IO[bytes], stdout: IO[bytes], id: str) -> bytes | None:
    """Return the bytes of a file from `cat-file --batch`; None if they are missing or damaged."""
    stdin.write(id.encode() + b"\n")
    stdin.flush()
    *_, size = stdout.readline().split() or [b""]
    data = stdout.read(int(size) + 1)[:-1] if size.isdigit() else b""
    return data if hash_blob(data) == id else None
