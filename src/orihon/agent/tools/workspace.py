"""The directory that the tools work in. No path leads out of it.

A path is walked one directory handle at a time, and the kernel never follows a link: a link is read, and its target is
walked in the same way. A link that is swapped between check and use therefore cannot lead out of the workspace, while
links that stay inside work as usual. Hard links and mounts are not checked.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, Self

from orihon.errors import ToolError, UsageError

MAX_BYTES = 20_000_000  # the content of a larger file is not passed to listeners
MAX_LINKS = 40  # the kernel's own limit
MAX_PATH_CHARS = 4096
MAX_SHOWN_CHARS = 200
MAX_NAMES = 10_000  # names of a directory that are compared with a mistyped one
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # opening a FIFO must not block
_DRIVE = re.compile(r"[A-Za-z]:")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class Location(NamedTuple):
    """The end of a path: a directory handle, the last name (empty for the workspace itself) and the real path."""

    dir_fd: int
    name: str
    path: str


class FileSeen(NamedTuple):
    """The model has read a file, or written it; `before` is the content that was replaced."""

    path: str
    content: bytes
    wrote: bool = False
    before: bytes | None = None


class ProgramRan(NamedTuple):
    """A command or a tool of a server is about to run, or has ended. In between it may change any file."""

    name: str
    is_over: bool


OnEvent = Callable[[FileSeen | ProgramRan], None]


class Workspace:
    """A directory and its contents. Close it, or use it in a `with` block."""

    def __init__(self, root: Path | str) -> None:
        self.given = Path(os.path.abspath(root))  # noqa: PTH100 - resolve() would follow links, as the next line does
        try:
            self.root = self.given.resolve(strict=True)
            self.fd = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            message = f"{root} cannot be the workspace: {reason}."
            raise UsageError(message, hint="Give a directory that exists.") from error

    def close(self) -> None:
        """Close the directory handle. A second call does nothing."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def split_path(self, path: str) -> list[str]:
        """Return the names in a path. Raise ToolError for an invalid path or one that starts outside."""
        if not path.strip():
            raise ToolError("The path is empty; give one inside the workspace, such as src/main.py.")
        if _CONTROL.search(path):
            raise ToolError("The path contains a control character.")
        if "\\" in path or _DRIVE.match(path):
            raise ToolError(f"{shorten_path(path)} is a Windows path; write paths relative to the workspace, with /.")
        if len(path) > MAX_PATH_CHARS:
            raise ToolError(f"The path has {len(path):,} characters; the maximum is {MAX_PATH_CHARS:,}.")
        try:
            os.fsencode(path)
        except UnicodeEncodeError as error:
            raise ToolError("The path contains half a character (a lone surrogate).") from error
        if path == "~" or path.startswith("~/"):
            raise ToolError(f"{shorten_path(path)} is outside of the workspace; paths start at the workspace.")
        return self._relative_names(path) if path.startswith("/") else _split(path)

    def _relative_names(self, path: str) -> list[str]:
        """Return the names of an absolute path below the workspace. `..` is left for the walk to judge."""
        names = _split(path)
        for root in (self.root, self.given):
            prefix = list(root.parts[1:])
            if names[: len(prefix)] == prefix:
                return names[len(prefix) :]
        raise _make_outside_error(path)

    @contextmanager
    def locate(self, path: str, *, writing: bool = False, create: bool = False) -> Iterator[Location]:
        """Yield the location of a path, links resolved.

        `writing` refuses paths inside `.git`; `create` creates missing directories.
        """
        with ExitStack() as handles:
            yield self._walk(path, handles, writing=writing, create=create)

    def _walk(self, path: str, handles: ExitStack, *, writing: bool, create: bool) -> Location:
        ahead = self.split_path(path)[::-1]
        behind: list[tuple[str, int]] = []  # names already walked, with their handles
        links = 0
        while ahead:
            name = ahead.pop()
            dir_fd = behind[-1][1] if behind else self.fd
            if name == "..":
                if not behind:
                    raise _make_outside_error(path)
                behind.pop()
                continue
            if writing and name.lower() == ".git":
                raise ToolError(f"{shorten_path(path)} is inside .git, which cannot be written; use git in the shell.")
            target = _read_link(name, dir_fd, path)
            if target is not None:
                links += 1
                if links > MAX_LINKS:
                    raise ToolError(f"{shorten_path(path)} has too many links.")
                if target.startswith("/"):
                    behind.clear()
                ahead += self._split_target(target, path)[::-1]
            elif not ahead:
                return Location(dir_fd, name, "/".join([*(walked for walked, _ in behind), name]))
            else:
                fd = _open_directory(name, dir_fd, path, create=create)
                handles.callback(os.close, fd)
                behind.append((name, fd))
        if not behind:
            return Location(self.fd, "", ".")
        dir_fd = behind[-2][1] if len(behind) > 1 else self.fd
        return Location(dir_fd, behind[-1][0], "/".join(walked for walked, _ in behind))

    def _split_target(self, target: str, path: str) -> list[str]:
        """Return the names of a link's target."""
        try:
            return self._relative_names(target) if target.startswith("/") else _split(target)
        except ToolError as error:
            raise _make_outside_error(path, f"; it goes through a link to {shorten_path(target)}") from error

    @contextmanager
    def open_file(self, path: str) -> Iterator[tuple[int, Location]]:
        """Yield a handle for reading a regular file, and its location."""
        with self.locate(path) as location:
            fd = open_regular_file(location)
            try:
                yield fd, location
            finally:
                os.close(fd)

    @contextmanager
    def open_directory(self, path: str) -> Iterator[tuple[int, str]]:
        """Yield a handle for a directory and its path in the workspace, `.` for the workspace itself."""
        with self.locate(path) as location:
            fd = _open_directory(location.name or ".", location.dir_fd, path, create=False)
            try:
                yield fd, location.path
            finally:
                os.close(fd)


def open_regular_file(location: Location) -> int:
    """Return a handle for reading. Raise ToolError for everything but a regular file."""
    name = shorten_path(location.path)
    is_directory = ToolError(f"{name} is a directory; list_files shows its contents.")
    if not location.name:
        raise is_directory
    try:
        fd = os.open(location.name, _FILE, dir_fd=location.dir_fd)
    except FileNotFoundError as error:
        raise ToolError(f"There is no file {name}.{_suggest_names(location)}") from error
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise ToolError(f"{name} became a link while it was opened; links are not followed here.") from error
        if error.errno == errno.ENXIO:
            raise ToolError(f"{name} is not a regular file.") from error
        raise make_tool_error(error, name) from error
    mode = os.fstat(fd).st_mode
    if stat.S_ISREG(mode):
        return fd
    os.close(fd)
    raise is_directory if stat.S_ISDIR(mode) else ToolError(f"{name} is not a regular file.")


def make_tool_error(error: OSError, name: str) -> ToolError:
    """Return an error of the operating system as a sentence for the model."""
    if error.errno == errno.ENAMETOOLONG:
        return ToolError("A name in the path is too long for a file.")
    return ToolError(f"{name}: {error.strerror or error}.")


def shorten_path(text: str) -> str:
    """Return a path as it can stand in a sentence."""
    printable = text.encode("utf-8", "backslashreplace").decode()
    return printable if len(printable) <= MAX_SHOWN_CHARS else f"{printable[:MAX_SHOWN_CHARS]}…"


def _open_directory(name: str, dir_fd: int, path: str, *, create: bool) -> int:
    try:
        if create:
            with suppress(FileExistsError):
                os.mkdir(name, dir_fd=dir_fd)
        return os.open(name, _DIRECTORY, dir_fd=dir_fd)
    except FileNotFoundError as error:
        raise ToolError(f"There is no directory {shorten_path(name)} in {shorten_path(path)}.") from error
    except OSError as error:
        if error.errno in {errno.ENOTDIR, errno.ELOOP}:
            raise ToolError(f"{shorten_path(name)} in {shorten_path(path)} is not a directory.") from error
        raise make_tool_error(error, shorten_path(path)) from error


def _read_link(name: str, dir_fd: int, path: str) -> str | None:
    """Return the target of a link, None for everything else, including a missing name."""
    try:
        return os.readlink(name, dir_fd=dir_fd)
    except OSError as error:
        if error.errno in {errno.EINVAL, errno.ENOENT, errno.ENOTDIR}:
            return None
        raise make_tool_error(error, shorten_path(path)) from error


def _split(path: str) -> list[str]:
    return [name for name in path.split("/") if name not in {"", "."}]


def _make_outside_error(path: str, reason: str = "") -> ToolError:
    return ToolError(f"{shorten_path(path)} is outside of the workspace{reason}; the file tools cannot leave it.")


def _suggest_names(location: Location) -> str:
    """Return a sentence with similar names in the same directory, or an empty string."""
    from orihon.agent.tools.fuzzy_match import find_similar  # noqa: PLC0415 - difflib is loaded only after a typo

    try:
        names = sorted(os.listdir(location.dir_fd))[:MAX_NAMES]
    except OSError:
        return ""
    similar = find_similar(location.name, names, limit=3)
    return f" Did you mean {', '.join(similar)}?" if similar else ""
