"""Which files a person means by a path, a pattern or a directory, and how one of them is opened.

Patterns and directories stay inside the workspace, leave out what `.gitignore` leaves out, and follow no link that
leads out. A file that is outside, or ignored, is meant only by whoever writes its path whole.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from orihon.agent.tools.globs import GlobError, compile_glob
from orihon.agent.tools.list_files import iter_files
from orihon.agent.tools.workspace import Workspace, make_tool_error
from orihon.errors import ToolError, UsageError

JUST_NOW_NS = 100_000_000  # a file so young may change again and look the same
_PATTERN = re.compile(r"[*?\[{]")
_OUTSIDE = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC  # a FIFO must not make us wait


class Opened(NamedTuple):
    """A file that can be read: its real path, how it is recognised while it is the same, its size, and a handle."""

    path: str
    mark: tuple[int, ...]  # nothing of a file that was changed just now
    size_bytes: int
    fd: int

    def read(self, max_bytes: int) -> bytes:
        """What is in it; a ToolError says that there is more, or that it cannot be read."""
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


def entry_of(given: str, workspace: Workspace) -> str:
    """What a person wrote, as it is kept: from the workspace on, or the whole path of a file outside of it."""
    path = _at_home(given.strip())
    try:
        names = workspace.split_path("." if path == "/" else path.lstrip("/"))  # what cannot be a path at all
        if path.startswith("/"):
            try:
                names = workspace.split_path(path)
            except ToolError:
                return "/" + "/".join(names)
    except ToolError as error:
        raise UsageError(error.message, hint="Give a path, a directory, or a pattern such as src/**/*.py.") from error
    if ".." in names:
        hint = "Write the path from the workspace on, and of a file outside of it the whole path, from / on."
        raise UsageError(f"{given!a:.200} goes up with `..`.", hint=hint)
    return "/".join(names) or "."


def _at_home(path: str) -> str:
    if path == "~" or path.startswith("~/"):
        return os.path.expanduser(path)  # noqa: PTH111 - what is behind it may hold a pattern
    return path


def paths_of(entry: str, workspace: Workspace, environ: Mapping[str, str]) -> list[str]:
    """The paths that an entry means, in order; none when it names nothing."""
    if entry.startswith("/"):
        return [entry] if os.path.lexists(entry) else []
    try:
        with workspace.locate(entry) as place:
            mode = os.stat(place.name or ".", dir_fd=place.dir_fd, follow_symlinks=False).st_mode
    except (ToolError, FileNotFoundError):
        return _fitting(entry, workspace, environ)
    except OSError:
        return [entry]  # it is there; why it cannot be read is said when it is opened
    return _below(entry, workspace, environ) if stat.S_ISDIR(mode) else [entry]


def _fitting(entry: str, workspace: Workspace, environ: Mapping[str, str]) -> list[str]:
    """The files that fit a pattern; looked for below the directories that it begins with."""
    found = _PATTERN.search(entry)
    if found is None:
        return [entry] if _is_there(entry, workspace) else []
    try:
        pattern = compile_glob(entry)
        names = _below(entry[: found.start()].rpartition("/")[0] or ".", workspace, environ)
    except (GlobError, ToolError):
        return []
    return [name for name in names if pattern.matches(name)]


def _is_there(entry: str, workspace: Workspace) -> bool:
    """Whether something has this name, such as a link that leads out."""
    return os.path.lexists(Path(workspace.root, entry))


def _below(directory: str, workspace: Workspace, environ: Mapping[str, str]) -> list[str]:
    with workspace.open_directory(directory) as (fd, where):
        return sorted(iter_files(workspace, where, fd, environ))


@contextmanager
def opened(path: str, workspace: Workspace) -> Iterator[Opened]:
    """A regular file of the workspace, or one outside whose whole path was written; ToolError says why not."""
    if path.startswith("/"):
        with _opened_outside(path) as fd:
            yield _known(path, fd)
    else:
        with workspace.open_file(path) as (fd, place):
            yield _known(place.path, fd)


@contextmanager
def _opened_outside(path: str) -> Iterator[int]:
    try:
        fd = os.open(path, _OUTSIDE)
    except OSError as error:
        raise make_tool_error(error, path) from error
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise ToolError(f"{path} is not a regular file.")
        yield fd
    finally:
        os.close(fd)


def _known(path: str, fd: int) -> Opened:
    found = os.fstat(fd)
    mark = (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    settled = max(found.st_mtime_ns, found.st_ctime_ns) < time.time_ns() - JUST_NOW_NS
    return Opened(path, mark if settled else (), found.st_size, fd)
