"""What a queue asks of a store: what waits, whose worker is gone, which task is for whom, and when to look again.

Any store can answer by looking at all of its tasks, and that is what stands here. One that many machines share declares
that it can do better: it keeps a task from others while its worker starts, and says when something was put in.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

from orihon.records import Status, TaskRow

if TYPE_CHECKING:
    from orihon.stores.base import Store


class Queue:
    """The queue of a store."""

    reserves: ClassVar[bool] = False  # does `reserve` keep a task from others?

    def __init__(self, store: Store) -> None:
        self.store = store

    def waiting(self) -> Iterator[TaskRow]:
        """Tasks that wait to be begun; of each user at least the next ones."""
        return self._of_status("pending")

    def abandoned(self) -> Iterator[TaskRow]:
        """Tasks whose holder may be gone, running or about to; whoever can take the lease knows."""
        return self._of_status("running")

    def reserve(self, uuids: Sequence[str]) -> str | None:
        """Put the first of these by that nobody else has; None if there is none."""
        return next(iter(uuids), None)

    def release(self, uuid: str) -> None:
        """No longer put it by: whoever was to begin it has ended."""

    def wait(self, seconds: float) -> bool:
        """Wait until something is put into the queue, or for some time; whether something was."""
        time.sleep(seconds)
        return False

    def _of_status(self, status: Status) -> Iterator[TaskRow]:
        from orihon.stores.base import Query  # noqa: PLC0415 - the two know each other

        return self.store.find(Query(status=(status,)))
