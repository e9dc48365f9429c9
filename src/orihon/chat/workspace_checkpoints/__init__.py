"""The file half of a checkpoint: a private git repository next to a workspace. The user's repository is never touched.

    checkpoints = WorkspaceCheckpoints(repository, workspace)
    snapshot = checkpoints.take("before the refactor")
    checkpoints.diff(snapshot.commit)                    # against the files as they are now
    result = checkpoints.restore(snapshot.commit)        # newer files stay; hard=True removes them
    checkpoints.restore(result.before, hard=True)        # undoes the restore

Every call takes the lock of the repository, repairs what a killed process left behind, and reads the state from disk.
Nothing is cached between calls. No absolute path is stored, so the repository can be moved or copied.

A restore destroys nothing that is not saved. A checkpoint is taken first, and only what it contains is replaced or
removed. Everything else in the way (ignored, too large, unreadable, or changed a moment ago) stays and is reported. A
restore can therefore be undone, and an interrupted one can be repeated.
"""

from __future__ import annotations

import errno
import fcntl
import os
import pwd
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import IO

import msgspec

from orihon.chat.workspace_checkpoints.git import Git, TreeChange, WorkspaceRoot, find_root
from orihon.chat.workspace_checkpoints.snapshot import (
    FileChange,
    FileCheckpoint,
    FileCheckpoints,
    SkippedFile,
    Snapshot,
    is_below,
    is_ignore_file,
    list_ignored,
)
from orihon.chat.workspace_checkpoints.worktree import MODES, Content, WorkTree, hash_blob
from orihon.errors import Conflict, NotWritten, UsageError
from orihon.retry import Backoff
from orihon.stores.files import (
    directory_handle,
    disk_errors,
    exists,
    make_directory,
    make_private_directory,
    open_file,
    read_file,
    replace_file,
)

__all__ = ["FileChange", "RestoreResult", "Snapshot", "WorkspaceCheckpoints"]

MAX_FILE_BYTES = 10_000_000
MAX_DIFF_BYTES = 100_000
LOCK = "turn"
LOCK_SECONDS = 30.0
LOCK_PAUSE_SECONDS = 0.02
MAX_NOTE_BYTES = 10_000
_BUSY = b"\0"
_LEFTOVERS = ("*.lock", "fast_import_crash_*", "refs/*/*.lock", "objects/pack/tmp_*", "objects/??/tmp_*")
_ATTRIBUTES = b"* -text !crlf !eol !ident !filter !working-tree-encoding !diff !merge !whitespace\n"
_SPECIAL = re.compile(r"([\\*?\[\]! #])")
_DIFF = ("diff-tree", "-r", "-p", "--no-renames", "--no-ext-diff", "--no-textconv", "--no-color")


class RestoreResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a restore did. `before` and `after` are checkpoints; restoring `before` with `hard` undoes it."""

    before: str
    after: str
    written: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()  # newer files that were left in place
    skipped: tuple[SkippedFile, ...] = ()


class WorkspaceCheckpoints:
    """The checkpoints of a workspace. Paths in `exclude` are never saved and never touched."""

    def __init__(
        self,
        repository: Path | str,
        workspace: Path | str,
        *,
        max_file_bytes: int = MAX_FILE_BYTES,
        exclude: Iterable[Path | str] = (),
    ) -> None:
        self.workspace = check_workspace(workspace)
        self.repository = Path(repository).resolve()
        if self.workspace.is_relative_to(self.repository):
            hint = "Choose another directory for the checkpoints."
            raise UsageError("A workspace cannot be inside its own checkpoints.", hint=hint)
        self._max_file_bytes = max_file_bytes
        paths = [self.repository, *(Path(path).resolve() for path in exclude)]
        inside = {path for path in paths if path.is_relative_to(self.workspace) and path != self.workspace}
        self._exclude = tuple(sorted(str(path.relative_to(self.workspace)) for path in inside))

    def take(self, label: str = "") -> Snapshot:
        """Save the files as they are now; return the last checkpoint if nothing has changed."""
        with self._open() as (checkpoints, _):
            return checkpoints.take(label)

    def changes(self, commit: str, other: str | None = None) -> tuple[FileChange, ...]:
        """Return what changed between a checkpoint and another one, or the workspace."""
        with self._open() as (checkpoints, _):
            return checkpoints.list_changes(*_find_trees(checkpoints, commit, other))

    def diff(self, commit: str, other: str | None = None, *, max_bytes: int = MAX_DIFF_BYTES) -> str:
        """Return the changes as a unified diff; a note replaces what exceeds the limit."""
        with self._open() as (checkpoints, _):
            trees = _find_trees(checkpoints, commit, other)
            with checkpoints.git.pipe(*_DIFF, *trees) as (_, stdout):
                output = stdout.read(max_bytes + 1)
                stdout.close()
        if len(output) <= max_bytes:
            return output.decode("utf-8", "replace")
        text = output[:max_bytes].decode("utf-8", "ignore").rpartition("\n")[0]
        return f"{text}\n(The rest is not shown: the limit is {max_bytes:,} bytes.)\n"

    def read_file(self, commit: str, path: str) -> bytes | None:
        """Return the bytes of a saved file, or the target of a saved link; None if there is neither."""
        with self._open() as (checkpoints, _):
            return checkpoints.read_file(commit, path)

    def restore(self, commit: str, *, hard: bool = False) -> RestoreResult:
        """Restore the files of a checkpoint.

        Newer files stay unless they are in the way; `hard` removes them. Files that are not saved are never touched.
        """
        with self._open() as (checkpoints, lock):
            return restore_files(checkpoints, commit, lock.note, hard=hard)

    def keep_only(self, commits: Iterable[str]) -> None:
        """Delete all other checkpoints and free their disk space."""
        with self._open() as (checkpoints, _):
            checkpoints.keep_only(commits)

    @contextmanager
    def _open(self) -> Iterator[tuple[FileCheckpoints, RepositoryLock]]:
        with disk_errors(f"The workspace {self.workspace} cannot be used"):
            files = WorkTree(self.workspace, self._max_file_bytes)
        with files, disk_errors(f"The checkpoints in {self.repository} cannot be used"):
            self._refuse_foreign_directory()
            make_directory(self.repository)
            with lock_repository(self.repository) as lock:
                if lock.leftover is not None:
                    self._repair(files, lock.leftover)
                lock.note()
                yield FileCheckpoints(self._prepare_git(lock.fd), files, self._exclude), lock

    def _refuse_foreign_directory(self) -> None:
        names = os.listdir(self.repository) if self.repository.is_dir() else []
        if names and LOCK not in names:
            message = f"{self.repository} contains something other than checkpoints."
            raise UsageError(message, hint="Choose a separate directory for the checkpoints.")

    def _repair(self, files: WorkTree, temporary: str) -> None:
        """Remove the leftovers of a killed process. Its git commands have ended, because they held the lock."""
        if temporary:
            files.remove_temporary(temporary)
        for pattern in _LEFTOVERS:
            for path in self.repository.glob(pattern):
                path.unlink(missing_ok=True)

    def _prepare_git(self, lock_fd: int) -> Git:
        root = find_root(self.workspace)
        git = Git(self.repository, self.workspace, root, lock_fd)
        if not (self.repository / "info" / "attributes").exists():
            _create_repository(git)
        if root.prefix and not git.run("check-ignore", "--no-index", ".", accept=(0, 1)).returncode:
            git.root = WorkspaceRoot(self.workspace)  # a workspace that is ignored as a whole is saved nevertheless
        _write_excludes(git, self._exclude)
        for path in self.repository.glob("index*"):
            if path != git.index:
                path.unlink(missing_ok=True)
        return git


class RepositoryLock:
    """The exclusive right to use a repository, with a note in the lock file for the next process.

    The lock is an flock, and git commands inherit it. It is free only when the process and all its git commands have
    ended. `leftover` is the note of a process that did not release the lock, and None otherwise.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        content = os.pread(fd, MAX_NOTE_BYTES, 0)
        self.leftover = os.fsdecode(content.partition(b"\0")[0]) if content else None

    def note(self, path: str = "") -> None:
        """Record the temporary file to remove if this process is killed now."""
        os.pwrite(self.fd, os.fsencode(path) + _BUSY, 0)


@contextmanager
def lock_repository(repository: Path) -> Iterator[RepositoryLock]:
    """Wait for the lock and hold it; raise Conflict if another process does not release it in time."""
    with directory_handle(repository) as dir_fd:
        fd = open_file(LOCK, os.O_RDWR | os.O_CREAT, dir_fd)
    try:
        backoff = Backoff(max_seconds=LOCK_SECONDS, first_seconds=LOCK_PAUSE_SECONDS, factor=1, jitter=0)
        try:
            backoff.call(lambda: fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB), should_retry=_is_taken)
        except OSError as error:
            if not _is_taken(error):
                raise
            message = f"Another process has been using the checkpoints in {repository} for {LOCK_SECONDS:.0f} s."
            raise Conflict(message, hint="Wait until it has finished, then try again.") from error
        yield RepositoryLock(fd)
        os.ftruncate(fd, 0)
    finally:
        os.close(fd)


def _is_taken(error: Exception) -> bool:
    return isinstance(error, OSError) and error.errno in {errno.EAGAIN, errno.EACCES, errno.EINTR}


def _find_trees(checkpoints: FileCheckpoints, commit: str, other: str | None) -> tuple[str, str]:
    old = checkpoints.find(commit).files
    return old, checkpoints.write_current_tree() if other is None else checkpoints.find(other).files


def _create_repository(git: Git) -> None:
    """Create the repository, or finish an interrupted creation."""
    git.run("init", "--quiet", "--bare", "--template=", "--initial-branch=last", str(git.repository))
    info = git.repository / "info"
    with suppress(FileExistsError):
        make_private_directory(info)
    with directory_handle(info) as dir_fd:  # written last: this file marks the repository as complete
        replace_file("attributes", _ATTRIBUTES, dir_fd, durable=True)


def _write_excludes(git: Git, exclude: Iterable[str]) -> None:
    """Write ignore rules for the excluded paths, which keep git from scanning them."""
    lines = [_SPECIAL.sub(r"\\\1", f"/{git.root.prefix}{path}") for path in exclude if "\n" not in path]
    rules = "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape")
    with directory_handle(git.repository / "info") as dir_fd:
        if not exists("exclude", dir_fd) or read_file("exclude", dir_fd) != rules:
            replace_file("exclude", rules, dir_fd, durable=False)


def check_workspace(path: Path | str) -> Path:
    """Return the real path of a directory that may have checkpoints.

    Raise UsageError for the file system root, a home directory, a parent of one, and the inside of `.git`.
    """
    reason = None
    try:
        workspace = Path(path).resolve(strict=True)
    except (OSError, RuntimeError, ValueError):
        reason = "it does not exist"
    else:
        homes = _find_homes()
        if not workspace.is_dir():
            reason = "it is not a directory"
        elif workspace == Path(workspace.anchor):
            reason = "it is the root directory"
        elif workspace in homes:
            reason = "it is a home directory"
        elif any(workspace in home.parents for home in homes):
            reason = "it contains a home directory"
        elif ".git" in workspace.parts:
            reason = "it is inside .git"
    if reason:
        hint = "Change to the directory of a project, or work without checkpoints."
        raise UsageError(f"{path} cannot have checkpoints: {reason}.", hint=hint)
    return workspace


def _find_homes() -> list[Path]:
    """Return the home directories that the environment and the user database name."""
    names = [os.environ.get("HOME", "")]
    with suppress(KeyError):  # some containers have users without an entry
        names.append(pwd.getpwuid(os.geteuid()).pw_dir)
    homes = []
    for name in names:
        if name.startswith("/"):
            with suppress(OSError, RuntimeError):
                homes.append(Path(name).resolve())
    return homes


# restoring


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
