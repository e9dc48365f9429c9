"""Search the files of the workspace with a regular expression, in bounded time and with a bounded answer.

The search runs in a process of its own, `_grep`, which can be stopped (docs/adr/0013).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from orihon.agent.tools import _grep
from orihon.agent.tools.list_files import iter_files, parse_glob
from orihon.agent.tools.workspace import Workspace
from orihon.errors import ToolError

MAX_SHOWN = 200
MAX_SECONDS = 30
MAX_PATTERN_CHARS = 2000


class Search(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Search the workspace with a regular expression, line by line.

    Binary files, .git and files that .gitignore excludes are skipped; an ignored directory is searched when `path`
    names it.
    """

    pattern: Annotated[str, Meta(description="A regular expression of Python; (?i) at its start ignores case.")]
    path: Annotated[str, Meta(description="A file or a directory of the workspace.")] = "."
    glob: Annotated[str | None, Meta(description="Only files that match, such as *.py.")] = None


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
