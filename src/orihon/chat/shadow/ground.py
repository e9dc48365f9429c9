"""The place that a shadow stands on: which directories can have one, and whose rules say what is ignored there.

The user's repository is looked for as git does, upwards from the workspace, and only one file of it is ever read:
`info/exclude`. Its top is where its `.gitignore` files begin to count, also for a workspace further down.
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
_HINT = "Change to the directory of a project, or work without checkpoints."


class Ground(NamedTuple):
    """Where the rules begin to count, and the way from there to the workspace: empty, or with a `/` at its end."""

    top: Path
    prefix: str = ""
    exclude: Path | None = None  # more rules, which are nobody else's

    @property
    def mark(self) -> str:
        """Another one when the way to the workspace, or a rule outside of it, is another."""
        names = self.prefix.split("/")[:-1]
        rules = [self.top.joinpath(*names[:depth], RULES) for depth in range(len(names))]
        seen = hashlib.sha256(os.fsencode(self.prefix))
        for place in [*rules, *([self.exclude] if self.exclude else [])]:
            with suppress(OSError):
                found = place.stat()
                seen.update(f"\0{place.name} {found.st_ino} {found.st_size} {found.st_mtime_ns}".encode())
        return seen.hexdigest()[:16]


def check_workspace(path: Path | str) -> Path:
    """The real path of a directory; home, what is above it, and the root are refused, through links too."""
    try:
        workspace = Path(path).resolve(strict=True)
    except (OSError, RuntimeError, ValueError) as error:
        raise UsageError(f"{path} cannot have checkpoints: it is not there.", hint=_HINT) from error
    if not workspace.is_dir():
        raise UsageError(f"{path} cannot have checkpoints: it is not a directory.", hint=_HINT)
    if workspace == Path(workspace.anchor):
        raise UsageError("The root directory cannot have checkpoints: it would be all files there are.", hint=_HINT)
    for home in _homes():
        if workspace == home:
            raise UsageError(f"{path} is a home directory, which is too much for checkpoints.", hint=_HINT)
        if workspace in home.parents:
            raise UsageError(f"{path} holds a home directory, which is too much for checkpoints.", hint=_HINT)
    if ".git" in workspace.parts:
        raise UsageError(f"{path} is inside .git, which checkpoints never touch.", hint=_HINT)
    return workspace


def _homes() -> list[Path]:
    """By the environment, and by the system, which knows it also when the environment does not."""
    named = [os.environ.get("HOME", "")]
    with suppress(KeyError):  # a user without an entry, as in some containers
        named.append(pwd.getpwuid(os.geteuid()).pw_dir)
    found = []
    for name in named:
        if name.startswith("/"):
            with suppress(OSError, RuntimeError):
                found.append(Path(name).resolve())
    return found


def ground_of(workspace: Path) -> Ground:
    """The ground of a workspace, by the nearest repository of the user's around it, if there is one."""
    for top in (workspace, *workspace.parents):
        directory = _git_directory(top / ".git")
        if directory is not None:
            prefix = "" if top == workspace else f"{workspace.relative_to(top)}/"
            exclude = _common(directory) / "info" / "exclude"
            return Ground(top, prefix, exclude if exclude.is_file() else None)
    return Ground(workspace)


def _git_directory(place: Path) -> Path | None:
    """What `.git` is or, in a worktree or a submodule, says."""
    try:
        if place.is_dir():
            return place if (place / "HEAD").exists() else None
        said = _pointer(place)
    except OSError:
        return None
    return place.parent / said.removeprefix("gitdir:").strip() if said.startswith("gitdir:") else None


def _common(directory: Path) -> Path:
    """The repository that a worktree belongs to."""
    try:
        said = _pointer(directory / "commondir")
    except OSError:
        return directory
    return directory / said if said else directory


def _pointer(place: Path) -> str:
    if not place.is_file():  # a FIFO would make us wait
        return ""
    with place.open("rb") as file:
        return os.fsdecode(file.read(MAX_POINTER_BYTES).strip(b"\r\n"))
