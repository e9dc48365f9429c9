"""The lease of a task in plain files: an flock on `.lock`, and in it, for people, who has it.

The kernel frees the lock the moment its holder dies, so there is no waiting for a time-out and no guessing whether a
process is alive. The handle is closed on exec, and in a child that was forked, so that no child keeps the lock of its
parent. The file is removed when the lease is given back; whoever opened it just before notices and looks again.

A person or a cleaner can remove the file under its holder, and then another process can lock a new one. So the lock
changes hands, and a holder looks for its file and writes, only inside the guard: a second flock, on the directory, held
for as long as one write takes. A holder that finds its file in place writes before any other process takes the task.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import time
import weakref
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import msgspec

from orihon import codec
from orihon.coerce import decode_json
from orihon.errors import LeaseHeld, LeaseLost, NotFound, StoreUnavailable
from orihon.stores.files import disk_errors, identity_at, identity_of, open_file
from orihon.stores.jsonl.layout import PLACES
from orihon.stores.liveness import current_owner

log = logging.getLogger("orihon")

NAME = ".lock"
SAID_BYTES = 512
# a guard is held for one write; only a process that was stopped in the middle holds it longer
TAKING_SECONDS, WRITING_SECONDS = 10, 90
LOOK_SECONDS = 0.001


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """What the file says."""

    process_id: int
    hostname: str
    acquired_at: str
    heartbeat_at: str
    fence: int = 0


class Guard:
    """`with guard:` lets one process at a time write in a directory or take its lock.

    It is not a generator, which a signal can leave behind: forgotten later, it would unlock whatever has the number of
    its handle by then. A guard that Ctrl-C left locked is unlocked by the next block, or when the handle is closed.
    """

    def __init__(self, within: int) -> None:
        self._directory = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=within)
        self.patience_seconds = TAKING_SECONDS

    def __enter__(self) -> None:
        self.lock()

    def __exit__(self, *_: object) -> None:
        self.unlock()

    def lock(self) -> None:
        """Wait until no other process is inside."""
        give_up = 0.0
        while True:
            try:
                fcntl.flock(self._directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                give_up = give_up or time.monotonic() + self.patience_seconds
                if time.monotonic() > give_up:
                    raise StoreUnavailable("Another process is in the middle of a write and does not go on.") from None
                time.sleep(LOOK_SECONDS)
            else:
                return

    def unlock(self) -> None:
        """Let the next one in."""
        fcntl.flock(self._directory, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the handle."""
        os.close(self._directory)


class LockFile:
    """A lock that is held."""

    def __init__(self, fd: int, within: int, guard: Guard) -> None:
        self.fd, self._within, self.guard = fd, within, guard
        self.guard.patience_seconds = WRITING_SECONDS
        self._identity = identity_of(os.fstat(fd))
        self._acquired_at = codec.now()
        _held.add(self)

    @classmethod
    def take(cls, uuid: str, within: int) -> LockFile:
        """The lock of the task in this directory; LeaseHeld says who has it."""
        try:
            guard = Guard(within)
        except FileNotFoundError:  # the directory itself was removed
            raise NotFound(kind="task", id=uuid) from None
        try:
            fd = _locked_inside(guard, uuid, within)
        except BaseException:
            guard.close()
            raise
        return cls._announced(fd, within, guard)

    @classmethod
    def _announced(cls, fd: int, within: int, guard: Guard) -> LockFile:
        """The name of a dead holder must not stand there while we open what is ours."""
        lock = cls(fd, within, guard)
        try:
            lock.say(fence=0)
        except OSError as error:  # a full disk; the lock holds without words
            log.warning("%s cannot be written: %s", NAME, error)
        return lock

    def say(self, fence: int) -> None:
        """Write who holds the lock, since when, and that he is alive now."""
        owner = current_owner()
        holder = Holder(
            process_id=owner.process_id,
            hostname=owner.hostname,
            acquired_at=self._acquired_at,
            heartbeat_at=codec.now(),
            fence=fence,
        )
        # one write of fixed length, so that a reader never sees the end of an older text behind a newer one
        os.pwrite(self.fd, msgspec.json.encode(holder).ljust(SAID_BYTES - 1) + b"\n", 0)

    def is_at(self, path: str) -> bool:
        """Whether a path leads to the file that we locked."""
        return identity_at(path) == self._identity

    def release(self) -> None:
        """Give the lock back; a file that another process has locked since is left alone."""
        try:
            with self.guard:
                if _is_still_there(self.fd, self._within):
                    os.unlink(NAME, dir_fd=self._within)
        except (OSError, StoreUnavailable) as error:  # without a lock on it the file says nothing
            log.warning("%s cannot be removed: %s", NAME, error)
        finally:
            self.forget()

    def forget(self) -> None:
        """Close the handle; in a forked child this leaves the parent's lock alone."""
        _held.discard(self)
        os.close(self.fd)
        self.guard.close()


class Hold:
    """The right to write one task. `with hold:` is for one write: no other process takes the task inside."""

    def __init__(self, base: Path, uuid: str, lock: LockFile) -> None:
        self._uuid, self._lock = uuid, lock
        self._paths = [f"{base}/{place}/{uuid}/{NAME}" for place in PLACES]
        self._last = self._paths[0]  # where it was last; only its holder moves it
        self._why = ""

    @property
    def lost(self) -> bool:
        """Whether the lease is known to be lost."""
        return bool(self._why)

    def __enter__(self) -> None:
        self._lock.guard.lock()
        try:
            self.check()
        except BaseException:
            self._lock.guard.unlock()
            raise

    def __exit__(self, *_: object) -> None:
        self._lock.guard.unlock()

    def check(self) -> None:
        """Raise LeaseLost when the lock is no longer where another process would look for it."""
        if self._why:
            self.lose(self._why)
        with suppress(OSError):  # most often this is the only look; the next one says what is wrong
            if self._lock.is_at(self._last):
                return
        with disk_errors(f"Task {self._uuid} cannot be looked at"):
            found = next(filter(self._lock.is_at, self._paths), None)
        if found is None:
            there = any(os.path.lexists(os.path.dirname(path)) for path in self._paths)  # noqa: PTH120
            self.lose("its lock file was removed or replaced" if there else "its directory was removed or moved away")
        self._last = found

    def check_file(self, name: str, directory: int, identity: tuple[int, int]) -> None:
        """Raise LeaseLost when a name in the task's directory leads to another file than the one that is open."""
        with disk_errors(f"Task {self._uuid} cannot be looked at"):
            found = identity_at(name, directory)
        if found != identity:
            self.lose(f"{name} was removed or replaced")

    def lose(self, why: str) -> NoReturn:
        """The lease is lost from now on."""
        self._why = why
        raise LeaseLost(
            f"Task {self._uuid} is no longer ours to write: {why}. Nothing more was written to it.",
            hint="Look where the directory of the task is; then resume it.",
        )


def read(within: int) -> Holder | None:
    """Who holds the task, as far as the file says; None when nobody wrote it, or not yet."""
    try:
        fd = open_file(NAME, os.O_RDONLY, within)
    except FileNotFoundError:  # it was given back
        return None
    try:
        return decode_json(os.read(fd, 4096), type=Holder)
    except ValueError:
        return None
    finally:
        os.close(fd)


def held(uuid: str, within: int) -> LeaseHeld:
    """The error that names the holder."""
    holder = read(within)
    if holder is None:
        return LeaseHeld(f"Task {uuid} is being taken by another process.")
    owner = f"process {holder.process_id} on {holder.hostname}"
    return LeaseHeld(f"Task {uuid} is held by {owner} since {holder.acquired_at}.", owner=owner)


def _locked_inside(guard: Guard, uuid: str, within: int) -> int:
    """A handle on the lock file, locked; LeaseHeld says who has it."""
    try:
        with guard:
            fd = _locked(within)
    except FileNotFoundError:
        raise NotFound(kind="task", id=uuid) from None
    except StoreUnavailable:
        fd = None
    if fd is None:
        raise held(uuid, within)
    return fd


def _locked(within: int) -> int | None:
    """A handle on the lock file of a directory, with the lock on it; None when another process has it."""
    while True:
        fd = open_file(NAME, os.O_RDWR | os.O_CREAT, within)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            given_back = not _is_still_there(fd, within)
            os.close(fd)
            if error.errno not in {errno.EWOULDBLOCK, errno.EACCES}:
                raise
            if not given_back:
                return None
        else:
            if _is_still_there(fd, within):
                return fd
            os.close(fd)


def _is_still_there(fd: int, within: int) -> bool:
    """Whether the file that we locked is the one that others will look at."""
    return identity_of(os.fstat(fd)) == identity_at(NAME, within)


_held: weakref.WeakSet[LockFile] = weakref.WeakSet()


def _forget_all() -> None:
    for lock in list(_held):
        lock.forget()


os.register_at_fork(after_in_child=_forget_all)
