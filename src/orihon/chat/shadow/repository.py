"""`Shadow`: the checkpoints of a workspace in a git repository of our own.

Every call takes the lock of the repository, mends what a process that was killed has left, and asks the disk what is
true; nothing is remembered between calls. No absolute path is stored, so the repository can be moved or copied.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from orihon.chat.shadow.checkpoints import Checkpoints
from orihon.chat.shadow.git import Git
from orihon.chat.shadow.ground import Ground, check_workspace, ground_of
from orihon.chat.shadow.restoring import restore
from orihon.chat.shadow.turn import NAME, Turn, turn
from orihon.chat.shadow.values import Change, Restored, Taken
from orihon.chat.shadow.worktree import WorkTree
from orihon.errors import UsageError
from orihon.stores.files import (
    directory_handle,
    disk_errors,
    exists,
    make_directory,
    make_private_directory,
    read_file,
    replace_file,
)

MAX_FILE_BYTES = 10_000_000
MAX_DIFF_BYTES = 100_000
_LEFT = ("*.lock", "fast_import_crash_*", "refs/*/*.lock", "objects/pack/tmp_*", "objects/??/tmp_*")
_ATTRIBUTES = b"* -text !crlf !eol !ident !filter !working-tree-encoding !diff !merge !whitespace\n"
_SPECIAL = re.compile(r"([\\*?\[\]! #])")


class Shadow:
    """The files of a workspace at many moments. What is below the paths `apart` is never saved and never touched."""

    def __init__(
        self,
        repository: Path | str,
        workspace: Path | str,
        *,
        max_file_bytes: int = MAX_FILE_BYTES,
        apart: Iterable[Path | str] = (),
    ) -> None:
        self.workspace = check_workspace(workspace)
        self.repository = Path(repository).resolve()
        if self.workspace.is_relative_to(self.repository):
            raise UsageError("A workspace cannot be inside its own checkpoints.", hint="Give them another place.")
        self._max_file_bytes = max_file_bytes
        places = [self.repository, *(Path(path).resolve() for path in apart)]
        inside = {place for place in places if place.is_relative_to(self.workspace) and place != self.workspace}
        self._apart = tuple(sorted(str(place.relative_to(self.workspace)) for place in inside))

    def take(self, label: str = "") -> Taken:
        """Save the files as they are now; the checkpoint before it again when nothing has changed."""
        with self._opened() as (checkpoints, _):
            return checkpoints.take(label)

    def changes(self, commit: str, other: str | None = None) -> tuple[Change, ...]:
        """What differs from a checkpoint, in the workspace or in another one."""
        with self._opened() as (checkpoints, _):
            return checkpoints.changes(*_trees(checkpoints, commit, other))

    def diff(self, commit: str, other: str | None = None, *, max_bytes: int = MAX_DIFF_BYTES) -> str:
        """The same as lines, for reading; the rest of a long one is left out, and it says so."""
        with self._opened() as (checkpoints, _):
            trees = _trees(checkpoints, commit, other)
            options = ("-r", "-p", "--no-renames", "--no-ext-diff", "--no-textconv", "--no-color")
            with checkpoints.git.talk("diff-tree", *options, *trees) as (_, told):
                said = told.read(max_bytes + 1)
                told.close()
        if len(said) <= max_bytes:
            return said.decode("utf-8", "replace")
        shown = said[:max_bytes].decode("utf-8", "ignore").rpartition("\n")[0]
        return f"{shown}\n(The rest is not shown: there are more than {max_bytes:,} bytes.)\n"

    def text(self, commit: str, path: str) -> bytes | None:
        """The bytes of one file then, or where a link led; None when it was not there."""
        with self._opened() as (checkpoints, _):
            return checkpoints.content(commit, path)

    def restore(self, commit: str, *, hard: bool = False) -> Restored:
        """Bring back the files of a checkpoint; `hard` removes newer ones, which stay unless they stand in the way.

        Ignored files, and whatever else is not saved, are never touched.
        """
        with self._opened() as (checkpoints, mine):
            return restore(checkpoints, commit, mine.note, hard=hard)

    def keep_only(self, commits: Iterable[str]) -> None:
        """Forget all other checkpoints, and give their space on the disk back."""
        with self._opened() as (checkpoints, _):
            checkpoints.keep_only(commits)

    @contextmanager
    def _opened(self) -> Iterator[tuple[Checkpoints, Turn]]:
        with disk_errors(f"The workspace {self.workspace} cannot be used"):
            files = WorkTree(self.workspace, self._max_file_bytes)
        with files, disk_errors(f"The checkpoints in {self.repository} cannot be used"):
            self._refuse_foreign()
            make_directory(self.repository)
            with turn(self.repository) as mine:
                if mine.left is not None:
                    self._mend(files, mine.left)
                mine.note()
                git = self._git(mine.fd)
                yield Checkpoints(git, files, self._apart), mine

    def _refuse_foreign(self) -> None:
        """A directory that is used for something else, and be it the user's own repository, is not ours to fill."""
        names = os.listdir(self.repository) if self.repository.is_dir() else []
        if names and NAME not in names:
            message = f"{self.repository} holds something else than checkpoints."
            raise UsageError(message, hint="Give checkpoints a directory of their own.")

    def _mend(self, files: WorkTree, temporary: str) -> None:
        """Remove what a process has left that was killed; we have the lock, so none of its git commands is running."""
        if temporary:
            files.remove_temporary(temporary)
        for pattern in _LEFT:
            for place in self.repository.glob(pattern):
                place.unlink(missing_ok=True)

    def _git(self, lock: int) -> Git:
        ground = ground_of(self.workspace)
        git = Git(self.repository, self.workspace, ground, lock)
        if not (self.repository / "info" / "attributes").exists():
            _make(git)
        if ground.prefix and git.ask("check-ignore", "--no-index", "."):
            git.ground = Ground(self.workspace)  # who works in an ignored directory wants its files saved
        _leave_out(git, self._apart)
        for place in self.repository.glob("index*"):
            if place != git.index:
                place.unlink(missing_ok=True)
        return git


def _trees(checkpoints: Checkpoints, commit: str, other: str | None) -> tuple[str, str]:
    old = checkpoints.find(commit).files
    return old, checkpoints.now() if other is None else checkpoints.find(other).files


def _make(git: Git) -> None:
    """Make the repository, or finish making it."""
    git.run("init", "--quiet", "--bare", "--template=", "--initial-branch=last", str(git.repository))
    info = git.repository / "info"
    with suppress(FileExistsError):
        make_private_directory(info)
    with directory_handle(info) as within:  # this file comes last, and says that the rest is there
        replace_file("attributes", _ATTRIBUTES, within, durable=True)


def _leave_out(git: Git, apart: Iterable[str]) -> None:
    """Spare git the way into what is never saved."""
    lines = [_SPECIAL.sub(r"\\\1", f"/{git.ground.prefix}{path}") for path in apart if "\n" not in path]
    rules = "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape")
    with directory_handle(git.repository / "info") as within:
        if not exists("exclude", within) or read_file("exclude", within) != rules:
            replace_file("exclude", rules, within, durable=False)
