"""The files of a workspace by their paths, never through a link: neither read nor written outside of it.

A path is walked by directory handles, and every name on the way must be a directory itself. A file is put in place
whole: it is written beside its place under another name, of which a note is left first, and then takes it in one step.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, Self

from orihon.stores.files import write_all

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a FIFO must not make us wait
MODES = FILE, PROGRAM, LINK = "100644", "100755", "120000"  # as git writes them
GIT = ".git"
TEMPORARY = ".orihon-"
MAX_DEPTH = 100  # of directories that are looked through by hand


class Content(NamedTuple):
    """What a file or a link holds, and which of them it is."""

    mode: str
    data: bytes


class Unsaved(NamedTuple):
    """Why something cannot be saved, as the end of a sentence that begins with its path."""

    reason: str


class WorkTree:
    """A directory, held open."""

    def __init__(self, root: Path, max_file_bytes: int) -> None:
        self._fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._max_file_bytes = max_file_bytes

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    @contextmanager
    def _parent(self, path: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
        """A handle on the directory that a path is in, and its last name."""
        *above, name = path.split("/")
        if any(part in {"", ".", ".."} or part.lower() == GIT for part in (*above, name)):
            raise OSError(errno.EINVAL, "git keeps no file of this name")
        here = os.dup(self._fd)
        try:
            for part in above:
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(part, dir_fd=here)
                below = os.open(part, _DIRECTORY, dir_fd=here)
                os.close(here)
                here = below
            yield here, name
        finally:
            os.close(here)

    def read(self, path: str) -> Content | Unsaved | None:
        """What is there now; None for nothing and for directories."""
        try:
            with self._parent(path) as (within, name):
                return self._read(name, within)
        except OSError as error:
            if error.errno in {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}:
                return None
            return Unsaved(f"cannot be saved: {error.strerror}")

    def _read(self, name: str, within: int) -> Content | Unsaved | None:
        kind = os.stat(name, dir_fd=within, follow_symlinks=False).st_mode
        if stat.S_ISDIR(kind):
            return None
        if stat.S_ISLNK(kind):
            return Content(LINK, os.fsencode(os.readlink(name, dir_fd=within)))
        if not stat.S_ISREG(kind):
            return Unsaved("is not a file, a link or a directory")
        with os.fdopen(os.open(name, _FILE, dir_fd=within), "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                return Unsaved("is not a file, a link or a directory")
            data = b"" if found.st_size > self._max_file_bytes else file.read(self._max_file_bytes + 1)
        size = max(found.st_size, len(data))
        if size > self._max_file_bytes:
            return Unsaved(f"has {size:,} bytes; up to {self._max_file_bytes:,} are saved")
        return Content(PROGRAM if found.st_mode & stat.S_IXUSR else FILE, data)

    def is_directory(self, path: str) -> bool:
        """Whether a directory, and no link to one, is there."""
        with suppress(OSError), self._parent(path) as (within, name):
            return stat.S_ISDIR(os.stat(name, dir_fd=within, follow_symlinks=False).st_mode)
        return False

    def below(self, path: str) -> list[str]:
        """All that is not a directory below one; what cannot be opened, and `.git`, stand for what is in them."""
        try:
            with self._parent(path) as (within, name):
                return list(_below(name, within, path))
        except OSError:
            return [path]

    def put(self, path: str, content: Content, note: Callable[[str], None]) -> None:
        """Put a file or a link in its place; one that is there gives its permissions to the new one."""
        with self._parent(path, make=True) as (within, name):
            if self.is_directory(path):
                _remove_empty(name, within)
            temporary = f"{TEMPORARY}{secrets.token_hex(8)}"
            note(path[: -len(name)] + temporary)
            try:
                _write(temporary, within, content, _regular(name, within))
                os.replace(temporary, name, src_dir_fd=within, dst_dir_fd=within)
            except BaseException:
                with suppress(OSError):
                    os.unlink(temporary, dir_fd=within)
                raise

    def remove(self, path: str) -> None:
        """Remove a file or a link, and the directories that are empty without it."""
        with self._parent(path) as (within, name):
            os.unlink(name, dir_fd=within)
        while "/" in path:
            path = path.rpartition("/")[0]
            try:
                with self._parent(path) as (within, name):
                    os.rmdir(name, dir_fd=within)
            except OSError:  # it is not empty
                return

    def remove_temporary(self, path: str) -> None:
        """Remove what somebody left who was killed while he put a file in place."""
        if path.rpartition("/")[2].startswith(TEMPORARY):
            with suppress(OSError), self._parent(path) as (within, name):
                os.unlink(name, dir_fd=within)


def _regular(name: str, within: int) -> os.stat_result | None:
    try:
        found = os.stat(name, dir_fd=within, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return found if stat.S_ISREG(found.st_mode) else None


def _write(name: str, within: int, content: Content, like: os.stat_result | None) -> None:
    if content.mode == LINK:
        os.symlink(content.data, os.fsencode(name), dir_fd=within)
        return
    program = content.mode == PROGRAM
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(name, flags, 0o777 if program else 0o666, dir_fd=within)  # the umask has its say about a new file
    try:
        if like is not None:
            with suppress(OSError):  # only root can give files away
                os.fchown(fd, like.st_uid, like.st_gid)
            mode = like.st_mode & 0o777
            os.fchmod(fd, mode | (mode & 0o444) >> 2 if program else mode & ~0o111)
        write_all(fd, content.data)
    finally:
        os.close(fd)


def _below(name: str, within: int, path: str, depth: int = 0) -> Iterator[str]:
    try:
        here = os.open(name, _DIRECTORY, dir_fd=within)
    except OSError:
        yield path
        return
    try:
        if depth > MAX_DEPTH or name.lower() == GIT:
            yield path
            return
        for one in os.listdir(here):
            yield from _below(one, here, f"{path}/{one}", depth + 1)
    finally:
        os.close(here)


def _remove_empty(name: str, within: int) -> None:
    """Remove a directory that holds nothing but directories."""
    here = os.open(name, _DIRECTORY, dir_fd=within)
    try:
        for one in os.listdir(here):
            _remove_empty(one, here)
    finally:
        os.close(here)
    os.rmdir(name, dir_fd=within)
