"""The directory that checkpoints cover: which directories are allowed, and which ignore rules apply in them.

The user's repository is found as git finds it, upwards from the workspace. Only its `info/exclude` is ever read. The
`.gitignore` files apply from its top directory on, also to a workspace further down.
"""

from __future__ import annotations

import hashlib
import os
import pwd
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from orihon.errors import UsageError

RULES = ".gitignore"
MAX_POINTER_BYTES = 10_000


class WorkspaceRoot(NamedTuple):
    """The directory where ignore rules begin, and the path from there to the workspace: empty, or ending in `/`."""

    top: Path
    prefix: str = ""
    exclude: Path | None = None  # the repository's own list of rules

    @property
    def fingerprint(self) -> str:
        """Return a digest of the prefix and of the state of all rule files outside the workspace."""
        names = self.prefix.split("/")[:-1]
        rules = [self.top.joinpath(*names[:depth], RULES) for depth in range(len(names))]
        digest = hashlib.sha256(os.fsencode(self.prefix))
        for path in [*rules, *([self.exclude] if self.exclude else [])]:
            with suppress(OSError):
                status = path.stat()
                digest.update(f"\0{path.name} {status.st_ino} {status.st_size} {status.st_mtime_ns}".encode())
        return digest.hexdigest()[:16]


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


def find_root(workspace: Path) -> WorkspaceRoot:
    """Return the root of a workspace: the nearest repository around it, or the workspace itself."""
    for top in (workspace, *workspace.parents):
        directory = _find_git_directory(top / ".git")
        if directory is not None:
            prefix = "" if top == workspace else f"{workspace.relative_to(top)}/"
            common = _read_pointer(directory / "commondir")  # a worktree shares the repository of another directory
            exclude = directory / common / "info" / "exclude"
            return WorkspaceRoot(top, prefix, exclude if exclude.is_file() else None)
    return WorkspaceRoot(workspace)


def _find_git_directory(path: Path) -> Path | None:
    """Return the git directory at `.git`, or the one that a worktree's or submodule's `.git` file names."""
    try:
        if path.is_dir():
            return path if (path / "HEAD").exists() else None
    except OSError:
        return None
    text = _read_pointer(path)
    return path.parent / text.removeprefix("gitdir:").strip() if text.startswith("gitdir:") else None


def _read_pointer(path: Path) -> str:
    """Return the path that a file of git's holds; empty if there is no such regular file."""
    try:
        if path.is_file():  # opening a FIFO would block
            with path.open("rb") as file:
                return os.fsdecode(file.read(MAX_POINTER_BYTES).strip(b"\r\n"))
    except OSError:
        pass
    return ""
