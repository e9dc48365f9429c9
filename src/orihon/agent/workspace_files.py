"""Which files a path, a pattern or a directory means, and opening them.

Patterns and directories stay inside the workspace, leave out ignored files, and do not follow links that lead outside.
A file that is ignored or outside the workspace is meant only by its exact path.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from orihon.agent.tools.globs import GlobError, compile_glob
from orihon.agent.tools.search import iter_files
from orihon.agent.tools.workspace import Workspace, make_tool_error
from orihon.errors import ToolError, UsageError

RECENT_NS = 100_000_000  # a file that was changed so recently may change again without a new time stamp
_WILDCARD = re.compile(r"[*?\[{]")
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC  # opening a FIFO must not block


class OpenFile(NamedTuple):
    """A file opened for reading. An equal `mark` means an unchanged file; it is empty for a recently changed one."""

    path: str
    mark: tuple[int, ...]
    size_bytes: int
    fd: int

    def read(self, max_bytes: int) -> bytes:
        """Return the content; raise ToolError if it is larger, or cannot be read."""
        if self.size_bytes > max_bytes:
            raise ToolError(f"has {self.size_bytes:,} bytes, more than can fit")
        try:
            with os.fdopen(os.dup(self.fd), "rb") as file:
                data = file.read(max_bytes + 1)
        except OSError as error:
            raise make_tool_error(error, self.path) from error
        if len(data) > max_bytes:
            raise ToolError(f"has more than {max_bytes:,} bytes, which cannot fit")
        return data


def parse_entry(text: str, workspace: Workspace) -> str:
    """Return the stored form of an entry: relative to the workspace, or the absolute path of a file outside."""
    path = text.strip()
    if path == "~" or path.startswith("~/"):
        path = os.path.expanduser(path)  # noqa: PTH111 - the rest may be a pattern
    try:
        names = workspace.split_path("." if path == "/" else path.lstrip("/"))
        if path.startswith("/"):
            try:
                names = workspace.split_path(path)
            except ToolError:  # it is outside
                return "/" + "/".join(names)
    except ToolError as error:
        raise UsageError(error.message, hint="Give a path, a directory, or a pattern such as src/**/*.py.") from error
    if ".." in names:
        hint = "Write the path relative to the workspace, or the absolute path of a file outside it."
        raise UsageError(f"{text!a:.200} contains `..`.", hint=hint)
    return "/".join(names) or "."


def resolve_paths(entry: str, workspace: Workspace) -> list[str]:
    """Return the paths that an entry means, in order; none if it matches nothing."""
    if entry.startswith("/"):
        return [entry] if os.path.lexists(entry) else []
    try:
        with workspace.locate(entry) as place:
            mode = os.stat(place.name or ".", dir_fd=place.dir_fd, follow_symlinks=False).st_mode
    except (ToolError, FileNotFoundError):
        return _match_pattern(entry, workspace)
    except OSError:
        return [entry]  # it exists; opening it reports the problem
    return _list_below(entry, workspace) if stat.S_ISDIR(mode) else [entry]


def _match_pattern(entry: str, workspace: Workspace) -> list[str]:
    wildcard = _WILDCARD.search(entry)
    if wildcard is None:  # such as a link that leads outside
        return [entry] if os.path.lexists(Path(workspace.root, entry)) else []
    try:
        pattern = compile_glob(entry)
        paths = _list_below(entry[: wildcard.start()].rpartition("/")[0] or ".", workspace)
    except (GlobError, ToolError):
        return []
    return [path for path in paths if pattern.matches(path)]


def _list_below(directory: str, workspace: Workspace) -> list[str]:
    with workspace.open_directory(directory) as (fd, path):
        return sorted(iter_files(workspace, path, fd, os.environ))


@contextmanager
def open_path(path: str, workspace: Workspace) -> Iterator[OpenFile]:
    """Open a regular file of the workspace, or one outside by its absolute path; raise ToolError otherwise."""
    if path.startswith("/"):
        try:
            fd = os.open(path, _READ)
        except OSError as error:
            raise make_tool_error(error, path) from error
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise ToolError(f"{path} is not a regular file.")
            yield _describe(path, fd)
        finally:
            os.close(fd)
    else:
        with workspace.open_file(path) as (fd, place):
            yield _describe(place.path, fd)


def _describe(path: str, fd: int) -> OpenFile:
    status = os.fstat(fd)
    mark = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    is_settled = max(status.st_mtime_ns, status.st_ctime_ns) < time.time_ns() - RECENT_NS
    return OpenFile(path, mark if is_settled else (), status.st_size, fd)
