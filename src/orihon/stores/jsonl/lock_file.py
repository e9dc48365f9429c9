"""The lease of a task in plain files: an flock on `.lock`, which also says who holds it.

The kernel releases the lock when its holder dies, so nothing waits for a timeout. The descriptor is closed on exec and
in a forked child, so that no child keeps the lock of its parent. The file is removed when the lease is released; a
process that opened it just before notices and tries again.

A user or a cleaner can remove the file under its holder, and then another process can lock a new one. Therefore the
lock changes hands, and a holder checks its file and writes, only inside the guard: a second flock, on the directory,
held for the time of one write. A holder that finds its file in place writes before any other process takes the task.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import weakref
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NoReturn

import msgspec

from orihon import codec
from orihon.coerce import decode_json
from orihon.errors import LeaseHeld, LeaseLost, NotFound, StoreUnavailable
from orihon.retry import Backoff
from orihon.stores.files import Refused, disk_errors, find_identity, get_identity, open_file
from orihon.stores.jsonl.layout import LOCK, PLACES
from orihon.stores.liveness import current_owner

log = logging.getLogger("orihon")

ANNOUNCEMENT_BYTES = 512
# a guard is held for one write; only a process that was stopped in the middle of it holds it longer
TAKING = Backoff(max_seconds=10, first_seconds=0.001, longest_seconds=0.001, jitter=0)
WRITING = msgspec.structs.replace(TAKING, max_seconds=90)


class LockHolder(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the lock file."""

    process_id: int
    hostname: str
    acquired_at: str
    heartbeat_at: str
    fence: int = 0

    def __str__(self) -> str:
        return f"process {self.process_id} on {self.hostname}"


class Guard:
    """`with guard:` lets one process at a time write in a directory or take its lock.

    It is not a generator, because a signal can leave a generator unfinished. When that is collected later, it would
    unlock whatever file has the number of its descriptor by then. A guard that Ctrl-C left locked is unlocked by the
    next block, or when the descriptor is closed.
    """

    def __init__(self, dir_fd: int) -> None:
        self._directory = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=dir_fd)
        self.backoff = TAKING

    def __enter__(self) -> None:
        try:
            fcntl.flock(self._directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._wait()

    def __exit__(self, *_: object) -> None:
        fcntl.flock(self._directory, fcntl.LOCK_UN)

    def _wait(self) -> None:
        take = partial(fcntl.flock, self._directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            self.backoff.call(take, should_retry=lambda error: isinstance(error, BlockingIOError))
        except BlockingIOError:
            raise StoreUnavailable("Another process is in the middle of a write and does not go on.") from None

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._directory)


class LockFile:
    """The lock of a task, held by this process."""

    def __init__(self, fd: int, dir_fd: int, guard: Guard) -> None:
        self.fd, self._dir_fd, self.guard = fd, dir_fd, guard
        self.guard.backoff = WRITING
        self.identity = get_identity(os.fstat(fd))
        self._acquired_at = codec.now()
        _held.add(self)
        try:
            self.announce(fence=0)  # in place of the name of a dead holder
        except OSError as error:  # the disk is full; the lock does not depend on it
            log.warning("%s cannot be written: %s", LOCK, error)

    @classmethod
    def take(cls, uuid: str, dir_fd: int) -> LockFile:
        """Take the lock of the task in this directory; raise LeaseHeld if another process has it."""
        try:
            guard = Guard(dir_fd)
        except FileNotFoundError:  # the directory itself was removed
            raise NotFound(kind="task", id=uuid) from None
        try:
            fd = _lock_inside(guard, uuid, dir_fd)
        except BaseException:
            guard.close()
            raise
        return cls(fd, dir_fd, guard)

    def announce(self, fence: int) -> None:
        """Write who holds the lock, since when, and that the holder is alive now."""
        owner = current_owner()
        holder = LockHolder(
            process_id=owner.process_id,
            hostname=owner.hostname,
            acquired_at=self._acquired_at,
            heartbeat_at=codec.now(),
            fence=fence,
        )
        # one write of fixed length: a reader never sees the end of an older text behind a newer one
        os.pwrite(self.fd, msgspec.json.encode(holder).ljust(ANNOUNCEMENT_BYTES - 1) + b"\n", 0)

    def is_at(self, path: str) -> bool:
        """Return whether a path leads to the locked file."""
        return find_identity(path) == self.identity

    def release(self) -> None:
        """Release the lock. A file that another process has locked since is left alone."""
        try:
            with self.guard:
                if _is_in_place(self.fd, self._dir_fd):
                    os.unlink(LOCK, dir_fd=self._dir_fd)
        except (OSError, StoreUnavailable) as error:  # a file without a lock on it means nothing
            log.warning("%s cannot be removed: %s", LOCK, error)
        finally:
            self.forget()

    def forget(self) -> None:
        """Close the descriptors; in a forked child this leaves the parent's lock alone."""
        _held.discard(self)
        os.close(self.fd)
        self.guard.close()


class Hold:
    """Proof that a task is still ours to write; `with hold:` encloses one write.

    The lock file can be removed or replaced, and the directory deleted or moved away. The next process goes by the
    name, so the holder compares the file at that name with the file that it locked. Once the two differ the lease is
    lost for good, even if the name comes back: another process may have written meanwhile.
    """

    def __init__(self, base: Path, uuid: str, lock: LockFile) -> None:
        self._uuid, self._lock = uuid, lock
        self._paths = [f"{base}/{place}/{uuid}/{LOCK}" for place in PLACES]
        self._path = self._paths[0]  # where it was last; only its holder moves it
        self._reason = ""

    @property
    def lost(self) -> bool:
        """Whether the lease is known to be lost."""
        return bool(self._reason)

    def __enter__(self) -> None:
        self._lock.guard.__enter__()
        try:
            self.check()
        except BaseException:
            self._lock.guard.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        self._lock.guard.__exit__()

    def check(self) -> None:
        """Raise LeaseLost if the lock is no longer where another process would look for it."""
        if self._reason:
            self.lose(self._reason)
        with suppress(OSError):  # the search below says what is wrong
            found = os.stat(self._path, follow_symlinks=False)  # noqa: PTH116 - a path is slower
            if (found.st_dev, found.st_ino) == self._lock.identity:
                return
        with disk_errors(f"Task {self._uuid} cannot be checked"):
            path = next(filter(self._lock.is_at, self._paths), None)
        if path is None:
            there = any(os.path.lexists(os.path.dirname(path)) for path in self._paths)  # noqa: PTH120
            self.lose("its lock file was removed or replaced" if there else "its directory was removed or moved away")
        self._path = path

    def lose(self, reason: str) -> NoReturn:
        """Raise LeaseLost, now and from now on."""
        self._reason = reason
        raise LeaseLost(
            f"Task {self._uuid} is no longer ours to write: {reason}. Nothing more was written to it.",
            hint="Look where the directory of the task is; then resume it.",
        )


def _lock_inside(guard: Guard, uuid: str, dir_fd: int) -> int:
    """Return a descriptor of the locked lock file; raise LeaseHeld if another process has it."""
    try:
        with guard:
            fd = _lock(dir_fd)
    except FileNotFoundError:
        raise NotFound(kind="task", id=uuid) from None
    except StoreUnavailable:
        fd = None
    if fd is None:
        raise _held_error(uuid, dir_fd)
    return fd


def _lock(dir_fd: int) -> int | None:
    """Return a descriptor of the locked lock file of a directory; None if another process has it."""
    while True:
        fd = open_file(LOCK, os.O_RDWR | os.O_CREAT, dir_fd)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            released = not _is_in_place(fd, dir_fd)
            os.close(fd)
            if error.errno not in {errno.EWOULDBLOCK, errno.EACCES}:
                raise
            if not released:
                return None
        else:
            if _is_in_place(fd, dir_fd):
                return fd
            os.close(fd)


def _is_in_place(fd: int, dir_fd: int) -> bool:
    """Return whether the open lock file is the one that other processes find."""
    return get_identity(os.fstat(fd)) == find_identity(LOCK, dir_fd)


def read_holder(dir_fd: int) -> LockHolder | None:
    """Return who holds the task, as far as the lock file says; None if it was released or is not written yet."""
    try:
        fd = open_file(LOCK, os.O_RDONLY, dir_fd)
    except FileNotFoundError:
        return None
    try:
        return decode_json(os.read(fd, 4096), type=LockHolder)
    except ValueError:
        return None
    finally:
        os.close(fd)


def find_holder(dir_fd: int) -> str | None:
    """Return the process that writes the task in a directory; None if there is none, whatever the lock file says."""
    try:
        fd = open_file(LOCK, os.O_RDONLY, dir_fd)
    except (OSError, Refused):
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return str(read_holder(dir_fd) or "another process")
    finally:
        os.close(fd)
    return None


def _held_error(uuid: str, dir_fd: int) -> LeaseHeld:
    """Return the error that names the holder."""
    holder = read_holder(dir_fd)
    if holder is None:
        return LeaseHeld(f"Task {uuid} is being taken by another process.")
    return LeaseHeld(f"Task {uuid} is held by {holder} since {holder.acquired_at}.", owner=str(holder))


_held: weakref.WeakSet[LockFile] = weakref.WeakSet()


def _forget_all() -> None:
    for lock in list(_held):
        lock.forget()


os.register_at_fork(after_in_child=_forget_all)
