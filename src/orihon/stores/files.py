"""Files that are private, survive a power cut, and are never reached through a link.

Files are opened relative to a directory descriptor (`dir_fd`) and never through a symbolic link, so that a link planted
in a data directory leads nowhere. New files and directories get mode 0600 and 0700, whatever the umask. The mode of an
existing file is never changed; `warn_if_open` names the command that does. Files of another user are refused.
"""

from __future__ import annotations

import errno
import logging
import os
import shlex
import stat
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from orihon.errors import Corrupt, NotWritten, OutcomeUnknown, StoreError, StoreUnavailable

log = logging.getLogger("orihon")

PRIVATE_FILE, PRIVATE_DIRECTORY = 0o600, 0o700
OTHERS = 0o077  # the bits of a mode that let other users in
MASK_KEY_BYTES = 32
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # opening a planted FIFO must not block


class Refused(StoreError):
    """A file in the store's directory is not what it should be."""

    default_hint = "Look at it with `ls -la`; remove it if you did not put it there."


# syncing


def sync(fd: int) -> None:
    """Write a file, or the entries of a directory, to the disk."""
    if sys.platform == "darwin":
        import fcntl  # noqa: PLC0415 - only there

        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)  # type: ignore[attr-defined]
    else:
        os.fsync(fd)


def sync_data(fd: int) -> None:
    """Write the bytes of a file to the disk, without its times."""
    if sys.platform == "linux":
        os.fdatasync(fd)
    else:
        sync(fd)


def start_sync(fd: int, offset: int, size: int) -> None:
    """Start writeback early, so that the syncs of several files overlap.

    It is a hint, given through the only call for it that Python has: DONTNEED makes Linux write dirty pages at once.
    """
    if sys.platform == "linux":
        with suppress(OSError):
            os.posix_fadvise(fd, offset, size, os.POSIX_FADV_DONTNEED)


def sync_directory(path: Path) -> None:
    """Write the entries of a directory to the disk."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sync(fd)
    finally:
        os.close(fd)


# directories


def make_directory(path: Path) -> None:
    """Create a private directory and its missing parents; refuse a link or a directory of another user."""
    for directory in reversed([item for item in (path, *path.parents) if not item.exists()]):
        with suppress(FileExistsError):
            make_private_directory(directory)
        sync_directory(directory.parent)
    with directory_handle(path):
        pass  # opening it checks it


def make_private_directory(path: Path | str, dir_fd: int | None = None) -> None:
    """Create one directory with mode 0700, whatever the umask."""
    os.mkdir(path, PRIVATE_DIRECTORY, dir_fd=dir_fd)
    created = os.stat(path, dir_fd=dir_fd, follow_symlinks=False)
    if created.st_mode & PRIVATE_DIRECTORY != PRIVATE_DIRECTORY:
        os.chmod(path, PRIVATE_DIRECTORY, dir_fd=dir_fd)


@contextmanager
def directory_handle(path: Path | str, dir_fd: int | None = None) -> Iterator[int]:
    """Open a directory for the time of a block."""
    fd = open_directory(path, dir_fd)
    try:
        yield fd
    finally:
        os.close(fd)


def open_directory(path: Path | str, dir_fd: int | None = None) -> int:
    """Return a descriptor of a directory; refuse a link, another kind of file, or another user's directory."""
    try:
        fd = os.open(path, _DIRECTORY, dir_fd=dir_fd)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENOTDIR} and (dir_fd is not None or os.path.lexists(path)):
            raise Refused(f"{path} is a link or not a directory; Orihon does not follow it.") from error
        raise
    try:
        refuse_foreign(os.fstat(fd), path)
    except BaseException:
        os.close(fd)
        raise
    return fd


_warned: set[str] = set()  # paths that this process has warned about


def warn_if_open(path: Path, *others: Path) -> None:
    """Log once that other users have access to a path or to other files of its store, and how to close it."""
    wide = [file.absolute() for file in (path, *others) if _read_mode(file) & OTHERS]
    if not wide or str(path.absolute()) in _warned:
        return
    _warned.add(str(path.absolute()))
    log.warning(
        "Other users have access to %s (mode %04o). To close it, run: chmod %o %s",
        wide[0],
        _read_mode(wide[0]),
        PRIVATE_DIRECTORY if path.is_dir() else PRIVATE_FILE,
        " ".join(_quote(str(file)) for file in wide),
    )


def _quote(path: str) -> str:
    """Quote a path for a shell, on one line; unprintable characters are written as their codes."""
    if path.isprintable():
        return shlex.quote(path)
    codes = (
        char if char.isprintable() and char not in "\\'" else "".join(f"\\0{byte:03o}" for byte in os.fsencode(char))
        for char in path
    )
    return f"\"$(printf '%b' '{''.join(codes)}')\""


def _read_mode(path: Path) -> int:
    """Return the mode of a file or directory; 0 for a link or if nothing is there."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return 0
    return 0 if stat.S_ISLNK(mode) else stat.S_IMODE(mode)


# files


def open_file(name: Path | str, flags: int, dir_fd: int | None = None) -> int:
    """Return a descriptor of a regular file; with O_CREAT, a missing file is created private."""
    try:
        fd = _open_or_create(name, flags | _FILE, dir_fd)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENXIO, errno.EISDIR}:
            raise Refused(f"{name} is not a regular file; Orihon does not use it.") from error
        raise
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise Refused(f"{name} is not a regular file; Orihon does not use it.")  # noqa: TRY301
        refuse_foreign(found, name)
    except BaseException:
        os.close(fd)
        raise
    return fd


def create_file(name: Path | str, dir_fd: int | None = None) -> int:
    """Return a descriptor of a new private file; a file that a crash left under this name is removed first."""
    try:
        return _create(name, os.O_RDWR | _FILE, dir_fd)
    except FileExistsError:
        os.unlink(name, dir_fd=dir_fd)
        return _create(name, os.O_RDWR | _FILE, dir_fd)


def _open_or_create(name: Path | str, flags: int, dir_fd: int | None) -> int:
    while True:
        if not flags & os.O_EXCL:
            try:
                return os.open(name, flags & ~os.O_CREAT, dir_fd=dir_fd)
            except FileNotFoundError:
                if not flags & os.O_CREAT:
                    raise
        try:
            return _create(name, flags, dir_fd)
        except FileExistsError:
            if flags & os.O_EXCL:
                raise  # else another process was faster, and its file is opened


def _create(name: Path | str, flags: int, dir_fd: int | None) -> int:
    fd = os.open(name, flags | os.O_CREAT | os.O_EXCL, PRIVATE_FILE, dir_fd=dir_fd)
    if os.fstat(fd).st_mode & PRIVATE_FILE != PRIVATE_FILE:  # the umask took bits of the owner away
        os.fchmod(fd, PRIVATE_FILE)
    return fd


def refuse_foreign(found: os.stat_result, name: Path | str) -> None:
    """Raise Refused if a file belongs to another user, whatever its mode allows."""
    if found.st_uid != os.geteuid() and os.geteuid() != 0:
        raise Refused(f"{name} belongs to another user (uid {found.st_uid}).", hint="Use a directory of your own.")


def read_file(name: str, dir_fd: int) -> bytes:
    """Return the content of a small file."""
    fd = open_file(name, os.O_RDONLY, dir_fd)
    with os.fdopen(fd, "rb") as file:
        return file.read()


def replace_file(name: str, data: bytes, dir_fd: int, *, durable: bool, atomic: bool = False) -> None:
    """Replace a file in one step; no process ever sees a part of it.

    A power cut leaves the old or the new content if `atomic`, the new content if `durable`, else possibly neither.
    """
    temporary = f".{name}.new"
    try:
        fd = create_file(temporary, dir_fd)
        try:
            write_all(fd, data)
            if durable or atomic:
                sync(fd)
        finally:
            os.close(fd)
        os.replace(temporary, name, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
    except OSError:
        with suppress(OSError):  # it takes space on a disk that may be full
            os.unlink(temporary, dir_fd=dir_fd)
        raise
    if durable:
        try:
            sync(dir_fd)
        except OSError as error:
            raise OutcomeUnknown(f"{name} was replaced, but may not survive: {error.strerror}.") from error


def write_all(fd: int, data: bytes) -> None:
    """Write all bytes; a disk that takes no more is an error."""
    view = memoryview(data)
    while view:
        written = os.write(fd, view)
        if not written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        view = view[written:]


def get_identity(found: os.stat_result) -> tuple[int, int]:
    """Return what tells an open file from every other."""
    return found.st_dev, found.st_ino


def find_identity(path: str, dir_fd: int | None = None) -> tuple[int, int] | None:
    """Return the identity of the file at a path; None if there is none."""
    try:
        found = os.stat(path, dir_fd=dir_fd, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


def exists(name: str, dir_fd: int) -> bool:
    """Return whether a name exists in a directory; a link counts."""
    return find_identity(name, dir_fd) is not None


@contextmanager
def disk_errors(what: str) -> Iterator[None]:
    """Translate OSError: NotWritten if the disk is full, else StoreUnavailable."""
    try:
        yield
    except OSError as error:
        raise disk_error(error, what) from error


def disk_error(error: OSError, what: str) -> NotWritten | StoreUnavailable:
    """Return the error that `disk_errors` raises."""
    reason = error.strerror or str(error)
    if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
        return NotWritten(f"{what}: {reason}.", hint="Free some space, then repeat it.")
    return StoreUnavailable(f"{what}: {reason}.")


# files of a store or of the user


def data_home() -> Path:
    """Return the user's data directory of Orihon, for files of a store that has no place on this machine."""
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "orihon"


def read_mask_key(path: Path) -> bytes:
    """Return the key of masked ids in a file; create it if it is missing.

    Most stores have none, because it is created when the first id is masked. If the file is lost, ids that are masked
    from then on look different.
    """
    with disk_errors(f"{path} cannot be used"), directory_handle(path.parent) as directory:
        try:
            key = read_file(path.name, directory)
        except FileNotFoundError:
            _create_mask_key(path.name, directory)
            key = read_file(path.name, directory)
    if len(key) != MASK_KEY_BYTES:
        raise Corrupt(f"{path} does not hold a key.", where=path.name, hint="Remove it; a new one is created.")
    return key


def new_mask_key() -> bytes:
    """Return a new random key."""
    return os.urandom(MASK_KEY_BYTES)


def _create_mask_key(name: str, directory: int) -> None:
    """Create the file atomically, unless another process was first."""
    temporary = f".{name}.{os.getpid()}.{threading.get_ident()}.new"
    replace_file(temporary, new_mask_key(), directory, durable=True)
    try:
        with suppress(FileExistsError):
            os.link(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
        sync(directory)
    finally:
        os.unlink(temporary, dir_fd=directory)
