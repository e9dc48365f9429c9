"""Find files by name, and lines by a regular expression, with bounded time and a bounded answer.

The files of a workspace are those that git lists, else those of a walk that follows `.gitignore` itself. `.git` is
never listed. Git runs without the settings that start programs, because the workspace may be a repository of someone
else. The search for lines runs in a process of its own, `_grep`, which can be stopped (docs/adr/0013).
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from orihon.agent.tools import _grep
from orihon.agent.tools.globs import Glob, GlobError, IgnoreRule, compile_glob, is_ignored, parse_gitignore
from orihon.agent.tools.workspace import Workspace
from orihon.errors import ToolError

MAX_LISTED = 500
MAX_FILES = 200_000
MAX_IGNORE_BYTES = 1_000_000
GIT_SECONDS = 30
MAX_SHOWN = 200
MAX_SECONDS = 30
MAX_PATTERN_CHARS = 2000
_GIT = ["git", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "core.quotePath=false"]
_LIST = ["ls-files", "-z", "--cached", "--others", "--exclude-standard", "--"]


class ListFiles(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """List the files of the workspace, except those that .gitignore excludes.

    Without `glob`, one directory is listed: its files with their sizes, and its directories with their number of
    files. With `glob`, every matching file below the directory is listed.
    """

    path: Annotated[str, Meta(description="A directory of the workspace.")] = "."
    glob: Annotated[str, Meta(description="Such as *.py or src/**/*.{ts,tsx}.")] = ""


class Search(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Search the workspace with a regular expression, line by line.

    Binary files, .git and files that .gitignore excludes are skipped; an ignored directory is searched when `path`
    names it.
    """

    pattern: Annotated[str, Meta(description="A regular expression of Python; (?i) at its start ignores case.")]
    path: Annotated[str, Meta(description="A file or a directory of the workspace.")] = "."
    glob: Annotated[str | None, Meta(description="Only files that match, such as *.py.")] = None


def list_files(workspace: Workspace, args: ListFiles, environ: Mapping[str, str]) -> str:
    """Return the files of one directory, or all files below it that match a pattern."""
    glob = parse_glob(args.glob)
    with workspace.open_directory(args.path) as (fd, path):
        names = sorted(name for name in iter_files(workspace, path, fd, environ) if glob is None or glob.matches(name))
        prefix = "" if path == "." else f"{path}/"
        lines = names if glob is not None else _render_level([name.removeprefix(prefix) for name in names], fd)
    if not lines:
        return f"There are no files in {path}{f' that match {args.glob}' if args.glob else ''}."
    omitted = len(lines) - MAX_LISTED
    note = [f"({omitted:,} more are not shown; narrow it with path or glob.)"] if omitted > 0 else []
    return "\n".join([*lines[:MAX_LISTED], *note])


def parse_glob(text: str | None) -> Glob | None:
    """Return the pattern that a model gave, or None if it is empty. Raise ToolError if it cannot be read."""
    try:
        return compile_glob(text) if text and text.strip() else None
    except GlobError as error:
        raise ToolError(f"The glob {text!a:.200} cannot be read: {error}.") from error


def _render_level(names: list[str], dir_fd: int) -> list[str]:
    counts = Counter(name.split("/", 1)[0] for name in names if "/" in name)
    directories = [f"{name}/  {count:,} {'file' if count == 1 else 'files'}" for name, count in sorted(counts.items())]
    return directories + [f"{name}  {_render_size(name, dir_fd)}" for name in names if "/" not in name]


def _render_size(name: str, dir_fd: int) -> str:
    try:
        status = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            return f"-> {os.readlink(name, dir_fd=dir_fd)}"
    except OSError:
        return "(gone)"
    return f"{status.st_size:,} bytes"


def iter_files(workspace: Workspace, path: str, fd: int, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the files below a directory, as paths in the workspace; at most MAX_FILES."""
    return islice(_list_by_git(workspace, path, environ) or _walk(workspace, path, fd), MAX_FILES)


def _list_by_git(workspace: Workspace, path: str, environ: Mapping[str, str]) -> list[str]:
    """Return the files that git lists; none without a repository or git, or if the directory itself is ignored."""
    kept = {name: environ[name] for name in ("PATH", "HOME") if name in environ}
    try:
        completed = subprocess.run(  # noqa: S603 - the arguments are ours, and the path stands after `--`
            [*_GIT, *_LIST, f":(literal){path}"],
            cwd=workspace.root,
            env=kept | {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=GIT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    if completed.returncode:
        return []
    names = {os.fsdecode(name) for name in completed.stdout.split(b"\0") if name}
    return sorted(name for name in names if ".git" not in name.split("/"))


def _walk(workspace: Workspace, path: str, fd: int) -> Iterator[str]:
    top = "" if path == "." else path
    rules = {"": _load_rules_above(workspace, top)}
    for found, directories, names, dir_fd in os.fwalk(".", dir_fd=fd, follow_symlinks=False):
        here = found.removeprefix(".").lstrip("/")
        base = "/".join(part for part in (top, here) if part)
        prefix = f"{base}/" if base else ""
        own_rules = [*rules.pop(here, []), *_load_rules(dir_fd, base)]

        def is_kept(name: str, *, is_directory: bool) -> bool:
            return not is_ignored(f"{prefix}{name}", own_rules, is_directory=is_directory)  # noqa: B023 - used at once

        directories[:] = sorted(
            name
            for name in directories
            if name != ".git" and not _is_link(name, dir_fd) and is_kept(name, is_directory=True)
        )
        rules |= {f"{here}/{name}".lstrip("/"): own_rules for name in directories}
        yield from (f"{prefix}{name}" for name in sorted(names) if is_kept(name, is_directory=False))


def _load_rules_above(workspace: Workspace, path: str) -> list[IgnoreRule]:
    """Return the rules of the directories above the one that is walked."""
    names = path.split("/") if path else []
    rules: list[IgnoreRule] = []
    for depth in range(len(names)):
        base = "/".join(names[:depth])
        with suppress(ToolError), workspace.open_directory(base or ".") as (fd, _):
            rules += _load_rules(fd, base)
    return rules


def _load_rules(dir_fd: int, base: str) -> list[IgnoreRule]:
    try:
        fd = os.open(".gitignore", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=dir_fd)
    except OSError:
        return []
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return []
        return parse_gitignore(file.read(MAX_IGNORE_BYTES).decode("utf-8", "replace"), base)


def _is_link(name: str, dir_fd: int) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_mode)
    except OSError:
        return True


# the lines that match


def search(workspace: Workspace, args: Search, environ: Mapping[str, str], *, max_seconds: float = MAX_SECONDS) -> str:
    """Return the lines that match, and their number."""
    if len(args.pattern) > MAX_PATTERN_CHARS:
        count = f"{len(args.pattern):,} characters; the maximum is {MAX_PATTERN_CHARS:,}"
        raise ToolError(f"The pattern has {count}. Search for a part of it.")
    names = list(_list_names(workspace, args, environ))
    request = {"pattern": args.pattern, "limit": MAX_SHOWN, "fd": workspace.fd}
    lines, is_complete = _run_grep(request, names, workspace.fd, max_seconds)
    counts: dict[str, Any] = lines.pop() if is_complete else {}
    if reason := counts.get("refused"):
        raise ToolError(f"The pattern is invalid: {reason}. Put \\ before a character that is meant literally.")
    matches = _group_by_file(lines)
    if not is_complete:
        note = f"The search was stopped after {max_seconds:g} s; simplify the pattern, or narrow it with path or glob."
        if not matches:
            raise ToolError(note)
        return f"{matches}\n({note})"
    if not counts["matches"]:
        return f"No line matches, in {counts['searched']:,} files."
    total = f"{counts['matches']:,} in {counts['files']:,} of {counts['searched']:,} files"
    rest = f"; the first {MAX_SHOWN} are shown" if counts["matches"] > MAX_SHOWN else ""
    return f"{matches}\n(Matches: {total}{rest}.)"


def _list_names(workspace: Workspace, args: Search, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the files to search, those of one directory together."""
    glob = parse_glob(args.glob)
    try:
        with workspace.open_file(args.path) as (_, location):
            yield location.path
            return
    except ToolError:
        pass  # a directory, or nothing, which the next statement reports
    with workspace.open_directory(args.path) as (fd, path):
        names = (name for name in iter_files(workspace, path, fd, environ) if glob is None or glob.matches(name))
        yield from sorted(names, key=lambda name: (os.path.dirname(name), name))  # noqa: PTH120 - 200,000 of them


def _run_grep(request: dict[str, Any], names: list[str], fd: int, max_seconds: float) -> tuple[list[Any], bool]:
    """Return the output of the child, and whether it is complete."""
    data = json.dumps(request).encode() + b"\n" + b"\0".join(os.fsencode(name) for name in names)
    try:
        completed = subprocess.run(  # noqa: S603 - our own file
            [sys.executable, "-I", "-S", _grep.__file__],
            input=data,
            capture_output=True,
            pass_fds=[fd],
            timeout=max_seconds,
            check=False,
        )
        output, is_complete = completed.stdout, completed.returncode == 0
    except subprocess.TimeoutExpired as error:
        output, is_complete = error.stdout or b"", False
    except OSError as error:
        raise ToolError(f"The search could not be started: {error.strerror}.") from error
    return [json.loads(line) for line in output[: output.rfind(b"\n") + 1].splitlines()], is_complete


def _group_by_file(lines: list[Any]) -> str:
    """Return the matches below the name of their file."""
    rendered: list[str] = []
    previous = None
    for name, number, text in lines:
        if name != previous:
            rendered.append(name if previous is None else f"\n{name}")
            previous = name
        rendered.append(f"{number:>6}\t{text}")
    return "\n".join(rendered)
