"""Which files a workspace has: what git knows and does not ignore, else a walk that minds `.gitignore` itself.

`.git` is never listed. Git is asked without the settings that make it start programs, because a repository that
somebody else wrote may be the workspace.
"""

from __future__ import annotations

import os
import stat
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Annotated

import msgspec
from msgspec import Meta

from orihon.agent.tools import globs
from orihon.agent.tools.globs import GlobError, Pattern, Rule, ignored, rules_of
from orihon.agent.tools.workspace import Workspace
from orihon.errors import ToolError

MAX_LISTED = 500
MAX_FILES = 200_000
MAX_IGNORE_BYTES = 1_000_000
GIT_SECONDS = 30
_GIT = ["git", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "core.quotePath=false"]
_LIST = ["ls-files", "-z", "--cached", "--others", "--exclude-standard", "--"]


class ListFiles(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """List the files of the workspace, without those that .gitignore leaves out.

    Without `glob` it shows one directory: its files with their sizes, and its directories with how many files are
    below. With `glob` it shows every file below that fits.
    """

    path: Annotated[str, Meta(description="A directory of the workspace.")] = "."
    glob: Annotated[str, Meta(description="Such as *.py or src/**/*.{ts,tsx}.")] = ""


def list_files(workspace: Workspace, asked: ListFiles, environ: Mapping[str, str]) -> str:
    """One directory, or all files below it that fit a pattern."""
    pattern = pattern_of(asked.glob)
    with workspace.open_directory(asked.path) as (fd, where):
        below = sorted(
            name for name in iter_files(workspace, where, fd, environ) if pattern is None or pattern.matches(name)
        )
        top = "" if where == "." else f"{where}/"
        lines = (
            below if pattern is not None else _one_level(workspace, [name.removeprefix(top) for name in below], where)
        )
    if not lines:
        return f"There are no files in {where}{f' that fit {asked.glob}' if asked.glob else ''}."
    more = len(lines) - MAX_LISTED
    rest = [f"({more:,} more are not shown; narrow it with path or glob.)"] if more > 0 else []
    return "\n".join([*lines[:MAX_LISTED], *rest])


def pattern_of(text: str) -> Pattern | None:
    """The pattern that a model gave; one that cannot be read is refused."""
    try:
        return globs.compile_glob(text) if text.strip() else None
    except GlobError as error:
        raise ToolError(f"The glob {text!a:.200} cannot be read: {error}.") from error


def _one_level(workspace: Workspace, names: list[str], where: str) -> list[str]:
    counts = Counter(name.split("/", 1)[0] for name in names if "/" in name)
    directories = [f"{name}/  {count:,} {'file' if count == 1 else 'files'}" for name, count in sorted(counts.items())]
    with workspace.open_directory(where) as (fd, _):
        return directories + [f"{name}  {_size(name, fd)}" for name in names if "/" not in name]


def _size(name: str, within: int) -> str:
    try:
        found = os.stat(name, dir_fd=within, follow_symlinks=False)
    except OSError:
        return "(gone)"
    if stat.S_ISLNK(found.st_mode):
        with suppress(OSError):
            return f"-> {os.readlink(name, dir_fd=within)}"
    return f"{found.st_size:,} bytes"


def iter_files(workspace: Workspace, where: str, fd: int, environ: Mapping[str, str]) -> Iterator[str]:
    """The files below a directory, as paths from the workspace on; at most as many as a search can look at."""
    known = _known_to_git(workspace, where, environ)
    names = iter(known) if known else _walked(workspace, where, fd)
    for number, name in enumerate(names):
        if number >= MAX_FILES:
            return
        yield name


def _known_to_git(workspace: Workspace, where: str, environ: Mapping[str, str]) -> list[str]:
    """What git lists; nothing when there is no repository, no git, or the directory itself is ignored."""
    kept = {name: environ[name] for name in ("PATH", "HOME") if name in environ}
    try:
        done = subprocess.run(  # noqa: S603 - the arguments are ours, and the path stands after `--`
            [*_GIT, *_LIST, f":(literal){where}"],
            cwd=workspace.root,
            env=kept | {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=GIT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    if done.returncode:
        return []
    names = {os.fsdecode(name) for name in done.stdout.split(b"\0") if name}
    return sorted(name for name in names if ".git" not in name.split("/"))


def _walked(workspace: Workspace, where: str, fd: int) -> Iterator[str]:
    top = "" if where == "." else where
    rules = {"": _rules_above(workspace, top)}
    for found, directories, names, within in os.fwalk(".", dir_fd=fd, follow_symlinks=False):
        here = found.removeprefix(".").lstrip("/")
        base = "/".join(part for part in (top, here) if part)
        mine = [*rules.pop(here, []), *_rules_in(within, base)]
        prefix = f"{base}/" if base else ""
        directories[:] = sorted(
            name
            for name in directories
            if name != ".git" and not _is_link(name, within) and not ignored(f"{prefix}{name}", mine, directory=True)
        )
        rules |= {f"{here}/{name}".lstrip("/"): mine for name in directories}
        yield from (
            f"{prefix}{name}" for name in sorted(names) if not ignored(f"{prefix}{name}", mine, directory=False)
        )


def _rules_above(workspace: Workspace, top: str) -> list[Rule]:
    """What the directories above the one that is walked ignore."""
    names = top.split("/") if top else []
    found: list[Rule] = []
    for depth in range(len(names)):
        base = "/".join(names[:depth])
        with suppress(ToolError), workspace.open_directory(base or ".") as (fd, _):
            found += _rules_in(fd, base)
    return found


def _rules_in(within: int, base: str) -> list[Rule]:
    try:
        fd = os.open(".gitignore", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=within)
    except OSError:
        return []
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return []
        return rules_of(file.read(MAX_IGNORE_BYTES).decode("utf-8", "replace"), base)


def _is_link(name: str, within: int) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=within, follow_symlinks=False).st_mode)
    except OSError:
        return True
