"""`WorkspaceCheckpoints`: the checkpoints of a workspace in a private git repository.

Every call takes the lock of the repository, repairs what a killed process left behind, and reads the state from disk.
Nothing is cached between calls. No absolute path is stored, so the repository can be moved or copied.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from orihon.chat.workspace_checkpoints.diff_index import FileChange
from orihon.chat.workspace_checkpoints.git import Git
from orihon.chat.workspace_checkpoints.restore import RestoreResult, restore_files
from orihon.chat.workspace_checkpoints.root import WorkspaceRoot, check_workspace, find_root
from orihon.chat.workspace_checkpoints.snapshot import FileCheckpoints, Snapshot
from orihon.chat.workspace_checkpoints.worktree import WorkTree
from orihon.errors import Conflict, UsageError
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
        deadline = time.monotonic() + LOCK_SECONDS
        while not _try_lock(fd):
            if time.monotonic() > deadline:
                message = f"Another process has been using the checkpoints in {repository} for {LOCK_SECONDS:.0f} s."
                raise Conflict(message, hint="Wait until it has finished, then try again.")
            time.sleep(LOCK_PAUSE_SECONDS)
        yield RepositoryLock(fd)
        os.ftruncate(fd, 0)
    finally:
        os.close(fd)


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in {errno.EAGAIN, errno.EACCES, errno.EINTR}:
            raise
        return False
    return True


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
