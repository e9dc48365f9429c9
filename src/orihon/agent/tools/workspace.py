"""The directory that the tools work in, and that no path leads out of.

A path is walked by hand, one directory handle after the other, and the kernel is never let through a link: a link is
read, and what it says is walked in the same way. So a link that is swapped between the check and the use leads
nowhere new, and links that stay inside work as everybody expects. Hard links and mounts are not looked through.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, Self

from orihon.errors import ToolError, UsageError

MAX_LINKS = 40  # as the kernel has it
MAX_PATH_CHARS = 4096
MAX_NAMES = 10_000  # among which one is looked for that was perhaps meant
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a FIFO must not make us wait
_DRIVE = re.compile(r"[A-Za-z]:")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class Place(NamedTuple):
    """Where a path ends: a handle on a directory, the last name (empty for the workspace itself), and the real path."""

    within: int
    name: str
    path: str


class Workspace:
    """A directory and what is in it."""

    def __init__(self, root: Path | str) -> None:
        self.given = Path(os.path.abspath(root))  # noqa: PTH100 - resolve() would follow links, which is the next line
        try:
            self.root = self.given.resolve(strict=True)
            self.fd = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            message = f"{root} cannot be the workspace: {reason}."
            raise UsageError(message, hint="Give a directory that exists.") from error

    def close(self) -> None:
        """Let go of the directory; a second time does nothing."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def parts(self, path: str) -> list[str]:
        """The names in a path; what cannot be one, or begins outside, is refused with a sentence for the model."""
        if not path.strip():
            raise ToolError("The path is empty; give one inside the workspace, such as src/main.py.")
        if _CONTROL.search(path):
            raise ToolError("The path holds a control character; no file of the workspace is called so.")
        if "\\" in path or _DRIVE.match(path):
            raise ToolError(f"{short(path)} is a path of Windows; write / between the names, from the workspace on.")
        if len(path) > MAX_PATH_CHARS:
            raise ToolError(f"The path has {len(path):,} characters; {MAX_PATH_CHARS:,} are allowed.")
        try:
            os.fsencode(path)
        except UnicodeEncodeError as error:
            raise ToolError("The path holds half a character; no file is called so.") from error
        if path == "~" or path.startswith("~/"):
            raise ToolError(f"{short(path)} is outside of the workspace; paths begin at the workspace, not at home.")
        return self._inside(path) if path.startswith("/") else _names(path)

    def _inside(self, path: str) -> list[str]:
        """The names of an absolute path after the workspace; `..` in it is for the walk to judge."""
        names = _names(path)
        for root in (self.root, self.given):
            first = list(root.parts[1:])
            if names[: len(first)] == first:
                return names[len(first) :]
        raise _outside(path)

    @contextmanager
    def place(self, path: str, *, change: bool = False, make: bool = False) -> Iterator[Place]:
        """Where a path ends, all links walked. To `change` something `.git` is shut; `make` makes directories."""
        with ExitStack() as handles:
            yield self._walk(path, handles, change=change, make=make)

    def _walk(self, path: str, handles: ExitStack, *, change: bool, make: bool) -> Place:
        ahead = self.parts(path)[::-1]
        behind: list[tuple[str, int]] = []  # the names walked, with their handles
        links = 0
        while ahead:
            name = ahead.pop()
            within = behind[-1][1] if behind else self.fd
            if name == "..":
                if not behind:
                    raise _outside(path)
                behind.pop()
                continue
            if change and name.lower() == ".git":
                raise ToolError(f"{short(path)} is inside .git, which is not for writing; use git in the shell.")
            target = _link(name, within, path)
            if target is not None:
                links += 1
                if links > MAX_LINKS:
                    raise ToolError(f"{short(path)} goes in circles: too many links.")
                if target.startswith("/"):
                    behind.clear()
                ahead += self._through(target, path)[::-1]
            elif not ahead:
                return Place(within, name, "/".join([*(walked for walked, _ in behind), name]))
            else:
                fd = _open_directory(name, within, path, make=make)
                handles.callback(os.close, fd)
                behind.append((name, fd))
        if not behind:
            return Place(self.fd, "", ".")
        name = behind[-1][0]
        within = behind[-2][1] if len(behind) > 1 else self.fd
        return Place(within, name, "/".join(walked for walked, _ in behind))

    def _through(self, target: str, path: str) -> list[str]:
        """The names that a link stands for."""
        try:
            return self._inside(target) if target.startswith("/") else _names(target)
        except ToolError as error:
            raise _outside(path, f"; it goes through a link to {short(target)}") from error

    @contextmanager
    def file(self, path: str) -> Iterator[tuple[int, Place]]:
        """A handle for reading a regular file, and where it is."""
        with self.place(path) as place:
            fd = open_file(place)
            try:
                yield fd, place
            finally:
                os.close(fd)

    @contextmanager
    def directory(self, path: str) -> Iterator[tuple[int, str]]:
        """A handle on a directory and its path from the workspace on, which is `.` for the workspace itself."""
        with self.place(path) as place:
            fd = _open_directory(place.name or ".", place.within, path, make=False)
            try:
                yield fd, place.path
            finally:
                os.close(fd)


def open_file(place: Place) -> int:
    """A handle for reading; only a regular file has something to read."""
    name = short(place.path)
    if not place.name:
        raise ToolError(f"{name} is a directory; list_files shows what is in it.")
    try:
        fd = os.open(place.name, _FILE, dir_fd=place.within)
    except FileNotFoundError as error:
        raise ToolError(f"There is no file {name}.{_alike(place)}") from error
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise ToolError(f"{name} became a link while it was opened; it is not followed.") from error
        if error.errno == errno.ENXIO:
            raise ToolError(f"{name} is not a regular file.") from error
        raise said(error, name) from error
    mode = os.fstat(fd).st_mode
    if stat.S_ISREG(mode):
        return fd
    os.close(fd)
    if stat.S_ISDIR(mode):
        raise ToolError(f"{name} is a directory; list_files shows what is in it.")
    raise ToolError(f"{name} is not a regular file.")


def said(error: OSError, name: str) -> ToolError:
    """An error of the operating system, in a sentence for the model."""
    if error.errno == errno.ENAMETOOLONG:
        return ToolError("A name in the path is too long for a file.")
    return ToolError(f"{name}: {error.strerror or error}.")


def _open_directory(name: str, within: int, path: str, *, make: bool) -> int:
    if make:
        with suppress(FileExistsError):
            try:
                os.mkdir(name, dir_fd=within)
            except FileExistsError:
                raise
            except OSError as error:
                raise said(error, short(path)) from error
    try:
        return os.open(name, _DIRECTORY, dir_fd=within)
    except FileNotFoundError as error:
        raise ToolError(f"There is no directory {short(name)} on the way to {short(path)}.") from error
    except OSError as error:
        if error.errno in {errno.ENOTDIR, errno.ELOOP}:
            raise ToolError(f"{short(name)} in {short(path)} is not a directory.") from error
        raise said(error, short(path)) from error


def _link(name: str, within: int, path: str) -> str | None:
    """What a link says; None for everything else, also for nothing."""
    try:
        return os.readlink(name, dir_fd=within)
    except OSError as error:
        if error.errno in {errno.EINVAL, errno.ENOENT, errno.ENOTDIR}:
            return None
        raise said(error, short(path)) from error


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name not in {"", "."}]


def _outside(path: str, how: str = "") -> ToolError:
    return ToolError(f"{short(path)} is outside of the workspace{how}; the tools for files cannot leave it.")


def short(text: str) -> str:
    """A path as a sentence can hold it."""
    shown = text.encode("utf-8", "backslashreplace").decode()
    return shown if len(shown) <= 200 else f"{shown[:200]}…"  # noqa: PLR2004 - enough to recognise it


def _alike(place: Place) -> str:
    """Names in the same directory that were perhaps meant."""
    from orihon.agent.tools.nearest import alike  # noqa: PLC0415 - only for those who mistyped

    try:
        names = sorted(os.listdir(place.within))[:MAX_NAMES]
    except OSError:
        return ""
    near = alike(place.name, names, most=3)
    return f" Did you mean {', '.join(near)}?" if near else ""
