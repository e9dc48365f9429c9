"""The files of a workspace, by path and never through a link: nothing outside the workspace is read or written.

A path is walked with directory handles, and every name on the way must be a directory. A file is written under a
temporary name, which is recorded first, and then renamed into place.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, Self

from orihon.chat.workspace_checkpoints.git import Version
from orihon.stores.files import write_all

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # opening a FIFO must not block
MODES = FILE, PROGRAM, LINK = "100644", "100755", "120000"  # as git writes them
GIT = ".git"
TEMPORARY = ".orihon-"
MAX_DEPTH = 100  # of directories that are listed
_OTHER_TYPE = "is not a file, a link or a directory"


class Content(NamedTuple):
    """The mode and the bytes of a file, or the target of a link."""

    mode: str
    data: bytes

    @property
    def version(self) -> Version:
        """The mode and the id that git gives to the bytes."""
        return self.mode, hash_blob(self.data)


def hash_blob(data: bytes) -> str:
    """Return the id that git gives to these bytes."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


class WorkTree:
    """An open directory and the files in it."""

    def __init__(self, root: Path, max_file_bytes: int) -> None:
        self._fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._max_file_bytes = max_file_bytes

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    @contextmanager
    def _open_parent(self, path: str, *, create: bool = False) -> Iterator[tuple[int, str]]:
        """Yield a handle on the directory of a path, and the last name in the path."""
        *parents, name = path.split("/")
        if any(part in {"", ".", ".."} or part.lower() == GIT for part in (*parents, name)):
            raise OSError(errno.EINVAL, "git does not allow this name")
        dir_fd = os.dup(self._fd)
        try:
            for part in parents:
                if create:
                    with suppress(FileExistsError):
                        os.mkdir(part, dir_fd=dir_fd)
                child_fd = os.open(part, _DIRECTORY, dir_fd=dir_fd)
                os.close(dir_fd)
                dir_fd = child_fd
            yield dir_fd, name
        finally:
            os.close(dir_fd)

    def read(self, path: str) -> Content | str | None:
        """Return what is at a path now, or why it cannot be saved; None if there is nothing or a directory."""
        try:
            with self._open_parent(path) as (dir_fd, name):
                return self._read(name, dir_fd)
        except OSError as error:
            if error.errno in {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}:
                return None
            return f"cannot be saved: {error.strerror}"

    def _read(self, name: str, dir_fd: int) -> Content | str | None:
        mode = os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_mode
        if stat.S_ISDIR(mode):
            return None
        if stat.S_ISLNK(mode):
            return Content(LINK, os.fsencode(os.readlink(name, dir_fd=dir_fd)))
        if not stat.S_ISREG(mode):
            return _OTHER_TYPE
        with os.fdopen(os.open(name, _FILE, dir_fd=dir_fd), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                return _OTHER_TYPE
            data = b"" if status.st_size > self._max_file_bytes else file.read(self._max_file_bytes + 1)
        size = max(status.st_size, len(data))
        if size > self._max_file_bytes:
            return f"has {size:,} bytes; the limit is {self._max_file_bytes:,}"
        return Content(PROGRAM if status.st_mode & stat.S_IXUSR else FILE, data)

    def is_directory(self, path: str) -> bool:
        """Return whether a path is a directory; a link to one is not."""
        with suppress(OSError), self._open_parent(path) as (dir_fd, name):
            return stat.S_ISDIR(os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_mode)
        return False

    def list_below(self, path: str) -> list[str]:
        """List everything but directories below a directory; one that cannot be opened, or `.git`, is listed itself."""
        try:
            with self._open_parent(path) as (dir_fd, name):
                return list(_list_below(name, dir_fd, path))
        except OSError:
            return [path]

    def put(self, path: str, content: Content, on_temporary: Callable[[str], None]) -> None:
        """Replace a file or a link atomically; a replaced file passes its permissions on."""
        with self._open_parent(path, create=True) as (dir_fd, name):
            if self.is_directory(path):
                _remove_empty(name, dir_fd)
            temporary = f"{TEMPORARY}{secrets.token_hex(8)}"
            on_temporary(path[: -len(name)] + temporary)
            try:
                _write(temporary, dir_fd, content, _stat_file(name, dir_fd))
                os.replace(temporary, name, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
            except BaseException:
                with suppress(OSError):
                    os.unlink(temporary, dir_fd=dir_fd)
                raise

    def remove(self, path: str) -> None:
        """Remove a file or a link, and the parent directories that become empty."""
        with self._open_parent(path) as (dir_fd, name):
            os.unlink(name, dir_fd=dir_fd)
        while "/" in path:
            path = path.rpartition("/")[0]
            try:
                with self._open_parent(path) as (dir_fd, name):
                    os.rmdir(name, dir_fd=dir_fd)
            except OSError:  # it is not empty
                return

    def remove_temporary(self, path: str) -> None:
        """Remove the temporary file of a process that was killed during `put`."""
        if path.rpartition("/")[2].startswith(TEMPORARY):
            with suppress(OSError), self._open_parent(path) as (dir_fd, name):
                os.unlink(name, dir_fd=dir_fd)


def _stat_file(name: str, dir_fd: int) -> os.stat_result | None:
    """Return the status of a regular file; None for anything else."""
    try:
        status = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return status if stat.S_ISREG(status.st_mode) else None


def _write(name: str, dir_fd: int, content: Content, replaced: os.stat_result | None) -> None:
    if content.mode == LINK:
        os.symlink(content.data, os.fsencode(name), dir_fd=dir_fd)
        return
    executable = content.mode == PROGRAM
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(name, flags, 0o777 if executable else 0o666, dir_fd=dir_fd)  # the umask applies to a new file
    try:
        if replaced is not None:
            with suppress(OSError):  # only root can change the owner
                os.fchown(fd, replaced.st_uid, replaced.st_gid)
            mode = replaced.st_mode & 0o777
            os.fchmod(fd, mode | (mode & 0o444) >> 2 if executable else mode & ~0o111)
        write_all(fd, content.data)
    finally:
        os.close(fd)


def _list_below(name: str, dir_fd: int, path: str, depth: int = 0) -> Iterator[str]:
    try:
        fd = os.open(name, _DIRECTORY, dir_fd=dir_fd)
    except OSError:
        yield path
        return
    try:
        if depth > MAX_DEPTH or name.lower() == GIT:
            yield path
            return
        for child in os.listdir(fd):
            yield from _list_below(child, fd, f"{path}/{child}", depth + 1)
    finally:
        os.close(fd)


def _remove_empty(name: str, dir_fd: int) -> None:
    """Remove a directory that contains nothing but directories."""
    for _, children, _, fd in os.fwalk(name, topdown=False, dir_fd=dir_fd):
        for child in children:
            os.rmdir(child, dir_fd=fd)
    os.rmdir(name, dir_fd=dir_fd)
