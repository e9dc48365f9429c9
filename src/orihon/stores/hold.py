"""Whether a task in plain files is still ours to write, asked of the disk before anything is acknowledged.

The lock file can be removed or replaced, and the directory deleted or moved away, by a person or a cleaner. The name is
what the next process will go by, so the holder compares what the name leads to with what it holds. Once the two differ
the lease is lost for good, also if the name comes back: another process may have been there meanwhile.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

from orihon.errors import LeaseLost
from orihon.stores.files import disk_errors, identity_at
from orihon.stores.lockfile import NAME, LockFile
from orihon.stores.making import PLACES

if TYPE_CHECKING:
    from orihon.stores.jsonl import JsonlStore


class Hold:
    """The right to write one task. `with hold:` is for one write: no other process takes the task inside."""

    def __init__(self, store: JsonlStore, uuid: str, lock: LockFile) -> None:
        self._uuid, self._lock = uuid, lock
        self._paths = [f"{store.base}/{place}/{uuid}/{NAME}" for place in PLACES]
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
