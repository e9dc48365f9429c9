"""Search the files of the workspace with a regular expression; bounded in time, and the answer in size."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from orihon.agent.tools import grep
from orihon.agent.tools.list_files import iter_files, pattern_of
from orihon.agent.tools.workspace import Workspace
from orihon.errors import ToolError

MAX_SHOWN = 200
SECONDS = 30
MAX_PATTERN_CHARS = 2000


class Search(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Search the workspace with a regular expression, line by line.

    Binary files, .git and what .gitignore leaves out are skipped; a directory that is ignored is searched when `path`
    names it.
    """

    pattern: Annotated[str, Meta(description="A regular expression of Python; (?i) at its begin ignores case.")]
    path: Annotated[str, Meta(description="A file or a directory of the workspace.")] = "."
    glob: Annotated[str | None, Meta(description="Only files that fit, such as *.py.")] = None


def search(workspace: Workspace, asked: Search, environ: Mapping[str, str], *, seconds: float = SECONDS) -> str:
    """The lines that match, with how many there are."""
    if len(asked.pattern) > MAX_PATTERN_CHARS:
        chars = f"{len(asked.pattern):,} characters; {MAX_PATTERN_CHARS:,} are allowed"
        raise ToolError(f"The pattern has {chars}. Search for a part of it.")
    names = list(_names(workspace, asked, environ))
    request = {"pattern": asked.pattern, "most": MAX_SHOWN, "fd": workspace.fd}
    lines, whole = _asked(request, names, workspace.fd, seconds)
    counts: dict[str, Any] = lines.pop() if whole else {}
    if reason := counts.get("refused"):
        raise ToolError(f"The pattern cannot be read: {reason}. Put \\ before a character that is meant as itself.")
    found = _by_file(lines)
    if not whole:
        note = f"The search was stopped after {seconds:g} s; use a simpler pattern, or narrow it with path or glob."
        if not found:
            raise ToolError(note)
        return f"{found}\n({note})"
    if not counts["matches"]:
        return f"No line matches, in {counts['looked']:,} files."
    total = f"{counts['matches']:,} in {counts['files']:,} of {counts['looked']:,} files"
    rest = f"; the first {MAX_SHOWN} are shown" if counts["matches"] > MAX_SHOWN else ""
    return f"{found}\n(Matches: {total}{rest}.)"


def _names(workspace: Workspace, asked: Search, environ: Mapping[str, str]) -> Iterator[str]:
    """The files to look at, those of one directory together."""
    pattern = pattern_of(asked.glob or "")
    try:
        with workspace.open_file(asked.path) as (_, place):
            yield place.path
            return
    except ToolError:
        pass  # a directory, or nothing, about which the next line speaks
    with workspace.open_directory(asked.path) as (fd, where):
        found = (name for name in iter_files(workspace, where, fd, environ) if pattern is None or pattern.matches(name))
        yield from sorted(found, key=lambda name: (os.path.dirname(name), name))  # noqa: PTH120 - 200,000 of them


def _asked(request: dict[str, Any], names: list[str], fd: int, seconds: float) -> tuple[list[Any], bool]:
    """What the other process says, and whether it came to an end."""
    data = json.dumps(request).encode() + b"\n" + b"\0".join(os.fsencode(name) for name in names)
    try:
        done = subprocess.run(  # noqa: S603 - our own file
            [sys.executable, "-I", "-S", grep.__file__],
            input=data,
            capture_output=True,
            pass_fds=[fd],
            timeout=seconds,
            check=False,
        )
        output, whole = done.stdout, done.returncode == 0
    except subprocess.TimeoutExpired as error:
        output, whole = error.stdout or b"", False
    except OSError as error:
        raise ToolError(f"The search could not be started: {error.strerror}.") from error
    complete = output[: output.rfind(b"\n") + 1]
    return [json.loads(line) for line in complete.splitlines()], whole


def _by_file(lines: list[Any]) -> str:
    """Matches under the name of their file, which saves saying it each time."""
    shown: list[str] = []
    last = None
    for name, number, text in lines:
        if name != last:
            shown.append(name if last is None else f"\n{name}")
            last = name
        shown.append(f"{number:>6}\t{text}")
    return "\n".join(shown)
