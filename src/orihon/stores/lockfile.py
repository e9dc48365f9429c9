"""The lease of a task in plain files: an flock on `.lock`, and in it, for people, who has it.

The kernel frees the lock the moment its holder dies, so there is no waiting for a time-out and no guessing whether a
process is alive. The handle is closed on exec, and in a child that was forked, so that no child keeps the lock of its
parent. The file is removed when the lease is given back; whoever opened it just before notices and looks again.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import weakref

import msgspec

from orihon import codec
from orihon.errors import LeaseHeld, NotFound
from orihon.stores.files import open_file
from orihon.stores.identity import me

log = logging.getLogger("orihon")

NAME = ".lock"
SAID_BYTES = 512


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """What the file says."""

    process_id: int
    hostname: str
    acquired_at: str
    heartbeat_at: str
    fence: int = 0


class LockFile:
    """A lock that is held."""

    def __init__(self, fd: int, within: int) -> None:
        self.fd, self._within = fd, within
        self._acquired_at = codec.now()
        _held.add(self)

    @classmethod
    def take(cls, uuid: str, within: int) -> LockFile:
        """The lock of the task in this directory; LeaseHeld says who has it."""
        while True:
            try:
                fd = open_file(NAME, os.O_RDWR | os.O_CREAT, within)
            except FileNotFoundError:  # the directory itself was removed
                raise NotFound(kind="task", id=uuid) from None
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                given_back = not _is_still_there(fd, within)
                os.close(fd)
                if error.errno not in {errno.EWOULDBLOCK, errno.EACCES}:
                    raise
                if given_back:
                    continue
                raise held(uuid, within) from None
            if _is_still_there(fd, within):
                return cls._announced(fd, within)
            os.close(fd)

    @classmethod
    def _announced(cls, fd: int, within: int) -> LockFile:
        """The name of a dead holder must not stand there while we open what is ours."""
        lock = cls(fd, within)
        try:
            lock.say(fence=0)
        except OSError as error:  # a full disk; the lock holds without words
            log.warning("%s cannot be written: %s", NAME, error)
        return lock

    def say(self, fence: int) -> None:
        """Write who holds the lock, since when, and that he is alive now."""
        owner = me()
        holder = Holder(
            process_id=owner.process_id,
            hostname=owner.hostname,
            acquired_at=self._acquired_at,
            heartbeat_at=codec.now(),
            fence=fence,
        )
        # one write of fixed length, so that a reader never sees the end of an older text behind a newer one
        os.pwrite(self.fd, msgspec.json.encode(holder).ljust(SAID_BYTES - 1) + b"\n", 0)

    def release(self) -> None:
        """Give the lock back."""
        try:
            os.unlink(NAME, dir_fd=self._within)
        except FileNotFoundError:
            pass  # the task was deleted
        except OSError as error:  # without a lock on it the file says nothing
            log.warning("%s cannot be removed: %s", NAME, error)
        finally:
            self.forget()

    def forget(self) -> None:
        """Close the handle; in a forked child this leaves the parent's lock alone."""
        _held.discard(self)
        os.close(self.fd)


def read(within: int) -> Holder | None:
    """Who holds the task, as far as the file says; None when nobody wrote it, or not yet."""
    try:
        fd = open_file(NAME, os.O_RDONLY, within)
    except FileNotFoundError:  # it was given back
        return None
    try:
        return msgspec.json.decode(os.read(fd, 4096), type=Holder)
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


def _is_still_there(fd: int, within: int) -> bool:
    """Whether the file that we locked is the one that others will look at."""
    try:
        return os.fstat(fd).st_ino == os.stat(NAME, dir_fd=within, follow_symlinks=False).st_ino
    except FileNotFoundError:
        return False


_held: weakref.WeakSet[LockFile] = weakref.WeakSet()


def _forget_all() -> None:
    for lock in list(_held):
        lock.forget()


os.register_at_fork(after_in_child=_forget_all)
