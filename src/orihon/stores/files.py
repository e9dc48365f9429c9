"""Files that nobody else can read and that are there after a power cut.

Everything is opened relative to a directory handle and never through a link, so that a link planted in a data
directory leads nowhere. What is created is created private (0600, 0700), whatever the umask. The mode of a file or
directory that is there already is never changed: `warn_if_open` names the command that closes it. What belongs to
another user is refused.
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
MASK_KEY_BYTES = 32
OTHERS = 0o077  # the bits of a mode that let other users in
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a planted FIFO must not make us wait


class Refused(StoreError):
    """Something in the store's directory is not what it should be."""

    default_hint = "Look at it with `ls -la`; remove it if you did not put it there."


def sync(fd: int) -> None:
    """The bytes of a file, or the entries of a directory, are on the disk when this returns."""
    if sys.platform == "darwin":
        import fcntl  # noqa: PLC0415

        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)  # type: ignore[attr-defined]
    else:
        os.fsync(fd)


def sync_data(fd: int) -> None:
    """The bytes of a file are on the disk; when it was changed need not be."""
    if sys.platform == "linux":
        os.fdatasync(fd)
    else:
        sync(fd)


def begin_sync(fd: int, offset: int, size: int) -> None:
    """Let the disk begin with some bytes: files that are on their way together are synced sooner than one by one.

    It is a hint, by the only call for it that Python has: "I do not need these" makes Linux write them at once.
    """
    if sys.platform == "linux":
        with suppress(OSError):
            os.posix_fadvise(fd, offset, size, os.POSIX_FADV_DONTNEED)


def make_directory(path: Path) -> None:
    """Create a private directory and its missing parents; refuse one that is a link or another user's."""
    for directory in reversed([item for item in (path, *path.parents) if not item.exists()]):
        with suppress(FileExistsError):
            make_private_directory(directory)
        sync_directory(directory.parent)
    with directory_handle(path):
        pass  # opening it checks it


def make_private_directory(path: Path | str, within: int | None = None) -> None:
    """Create one directory with mode 0700, also where the umask takes bits of the owner away."""
    os.mkdir(path, PRIVATE_DIRECTORY, dir_fd=within)
    made = os.stat(path, dir_fd=within, follow_symlinks=False)
    if made.st_mode & PRIVATE_DIRECTORY != PRIVATE_DIRECTORY:
        os.chmod(path, PRIVATE_DIRECTORY, dir_fd=within)


_warned: set[str] = set()  # places that this process has spoken of


def warn_if_open(place: Path, *more: Path) -> None:
    """Say once, with the command that closes it, that other users have access to a store's place or its files."""
    wide = [path.absolute() for path in (place, *more) if _mode_of(path) & OTHERS]
    if not wide or str(place.absolute()) in _warned:
        return
    _warned.add(str(place.absolute()))
    log.warning(
        "Other users have access to %s (mode %04o). To close it, run: chmod %o %s",
        wide[0],
        _mode_of(wide[0]),
        PRIVATE_DIRECTORY if place.is_dir() else PRIVATE_FILE,
        " ".join(_quoted(str(path)) for path in wide),
    )


def _quoted(path: str) -> str:
    """A path for a shell, on one line: what a terminal could not show is said by its codes."""
    if path.isprintable():
        return shlex.quote(path)
    codes = (
        one if one.isprintable() and one not in "\\'" else "".join(f"\\0{byte:03o}" for byte in os.fsencode(one))
        for one in path
    )
    return f"\"$(printf '%b' '{''.join(codes)}')\""


def _mode_of(path: Path) -> int:
    """The mode of a file or a directory; 0 when there is none, and for a link, which has none."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return 0
    return 0 if stat.S_ISLNK(mode) else stat.S_IMODE(mode)


def sync_directory(path: Path) -> None:
    """The names in a directory are on the disk."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sync(fd)
    finally:
        os.close(fd)


@contextmanager
def directory_handle(path: Path | str, within: int | None = None) -> Iterator[int]:
    """A handle on a directory of ours, for as long as it is needed."""
    fd = open_directory(path, within)
    try:
        yield fd
    finally:
        os.close(fd)


def open_directory(path: Path | str, within: int | None = None) -> int:
    """A handle on a directory of ours; a link, a foreigner's, or something else is refused."""
    try:
        fd = os.open(path, _DIRECTORY, dir_fd=within)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENOTDIR} and (within is not None or os.path.lexists(path)):
            raise Refused(f"{path} is a link or not a directory; Orihon does not follow it.") from error
        raise
    try:
        refuse_foreign(os.fstat(fd), path)
    except BaseException:
        os.close(fd)
        raise
    return fd


def open_file(name: Path | str, flags: int, within: int | None = None) -> int:
    """A handle on a regular file of ours; with O_CREAT, a missing one is created private."""
    try:
        fd = _open_or_create(name, flags | _FILE, within)
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


def create_file(name: Path | str, within: int | None = None) -> int:
    """A handle on a new private file; one that a crash left under its name is removed first."""
    try:
        return _create(name, os.O_RDWR | _FILE, within)
    except FileExistsError:
        os.unlink(name, dir_fd=within)
        return _create(name, os.O_RDWR | _FILE, within)


def _open_or_create(name: Path | str, flags: int, within: int | None) -> int:
    while True:
        if not flags & os.O_EXCL:
            try:
                return os.open(name, flags & ~os.O_CREAT, dir_fd=within)
            except FileNotFoundError:
                if not flags & os.O_CREAT:
                    raise
        try:
            return _create(name, flags, within)
        except FileExistsError:
            if flags & os.O_EXCL:
                raise  # else another process was faster: its file is opened


def _create(name: Path | str, flags: int, within: int | None) -> int:
    fd = os.open(name, flags | os.O_CREAT | os.O_EXCL, PRIVATE_FILE, dir_fd=within)
    if os.fstat(fd).st_mode & PRIVATE_FILE != PRIVATE_FILE:  # the umask took bits of the owner away
        os.fchmod(fd, PRIVATE_FILE)
    return fd


def refuse_foreign(found: os.stat_result, name: Path | str) -> None:
    """What belongs to somebody else is not ours to use, whatever its mode allows."""
    if found.st_uid != os.geteuid() and os.geteuid() != 0:
        raise Refused(f"{name} belongs to another user (uid {found.st_uid}).", hint="Use a directory of your own.")


def read_file(name: str, within: int) -> bytes:
    """The whole of a small file."""
    fd = open_file(name, os.O_RDONLY, within)
    with os.fdopen(fd, "rb") as file:
        return file.read()


def replace_file(name: str, data: bytes, within: int, *, durable: bool, whole: bool = False) -> None:
    """Put a file in place of another in one step; nobody ever sees half of it.

    With `whole`, a power cut leaves the old bytes or the new ones; with `durable`, it leaves the new ones.
    """
    temporary = f".{name}.new"
    try:
        fd = create_file(temporary, within)
        try:
            write_all(fd, data)
            if durable or whole:
                sync(fd)
        finally:
            os.close(fd)
        os.replace(temporary, name, src_dir_fd=within, dst_dir_fd=within)
    except OSError:
        with suppress(OSError):  # it takes room on a disk that may be full; the next try uses it again
            os.unlink(temporary, dir_fd=within)
        raise
    if durable:
        try:
            sync(within)
        except OSError as error:
            raise OutcomeUnknown(f"{name} is in its place, but may not stay there: {error.strerror}.") from error


def swap_file(name: str, data: bytes, within: int) -> None:
    """Put a file in place of another in one step, and keep the other one for the next time.

    For what changes all the time and need not last. ext4 writes a new file to the disk when it takes the place of an
    old one, and not an old file with new bytes, which takes a fifth of the time. A power cut may leave what was in it.
    """
    spare, put_by = _spares(name)
    try:
        _overwrite(spare, data, within)
        with suppress(OSError):  # somebody was interrupted after it, or there are no links here: the next one is new
            os.link(name, put_by, src_dir_fd=within, dst_dir_fd=within)
        os.replace(spare, name, src_dir_fd=within, dst_dir_fd=within)
    except OSError:
        with suppress(OSError):  # they take room on a disk that may be full
            drop_spares(name, within)
        raise
    with suppress(OSError):
        os.replace(put_by, spare, src_dir_fd=within, dst_dir_fd=within)


def drop_spares(name: str, within: int) -> None:
    """Nothing is left of what `swap_file` had kept: the next file is a new one."""
    for spare in _spares(name):
        with suppress(FileNotFoundError):
            os.unlink(spare, dir_fd=within)


def _spares(name: str) -> tuple[str, str]:
    return f".{name}.spare", f".{name}.spare.new"


def _overwrite(name: str, data: bytes, within: int) -> None:
    fd = open_file(name, os.O_WRONLY | os.O_CREAT, within)
    try:
        found = os.fstat(fd)
        if found.st_nlink > 1 or found.st_mode & OTHERS:  # a backup has it too, or other users can read it
            os.close(fd)
            fd = create_file(name, within)
        write_all(fd, data)
        if found.st_size > len(data):
            os.ftruncate(fd, len(data))
    finally:
        os.close(fd)


def write_all(fd: int, data: bytes) -> None:
    """Write until all is written; a disk that takes nothing more is an error."""
    view = memoryview(data)
    while view:
        written = os.write(fd, view)
        if not written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        view = view[written:]


def identity_of(found: os.stat_result) -> tuple[int, int]:
    """What tells a file from every other, as long as somebody has it open."""
    return found.st_dev, found.st_ino


def identity_at(path: str, within: int | None = None) -> tuple[int, int] | None:
    """The identity of the file that a path leads to; None when there is none."""
    try:
        return identity_of(os.stat(path, dir_fd=within, follow_symlinks=False))
    except (FileNotFoundError, NotADirectoryError):
        return None


def exists(name: str, within: int) -> bool:
    """Whether there is something of that name; a link counts."""
    try:
        os.stat(name, dir_fd=within, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def size_of(name: str, within: int) -> int:
    """How many bytes a file has; -1 when there is none."""
    try:
        return os.stat(name, dir_fd=within, follow_symlinks=False).st_size
    except FileNotFoundError:
        return -1


@contextmanager
def disk_errors(what: str) -> Iterator[None]:
    """The operating system's errors in our words: nothing was written, or the place cannot be used."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
            raise NotWritten(f"{what}: {reason}.", hint="Free some space, then repeat it.") from error
        raise StoreUnavailable(f"{what}: {reason}.") from error


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
