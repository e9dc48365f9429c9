"""Leases that are columns of a row: who has the task, when he was last heard of, and a fence that only grows.

What is the same in SQLite and PostgreSQL stands here. Every write names fence and owner in its own statement, so
whoever slept and woke, however late, touches no row and hears LeaseLost. By his own clock, too: a holder that could
not renew in time asks the store before he goes on.
"""

from __future__ import annotations

import logging
import os
import time
from abc import abstractmethod

import msgspec

from orihon import codec
from orihon.coerce import decode_json
from orihon.errors import LeaseHeld, LeaseLost, NotWritten, OutcomeUnknown, StoreUnavailable
from orihon.records import Message, Metadata, Record
from orihon.stores.base import LISTS, Lease, Store
from orihon.stores.liveness import Heartbeat, Owner, current_owner

log = logging.getLogger("orihon")

# where each list lives, and the column that numbers it
TABLES = {name: ("tool_calls" if name == "tools" else name, field or "id") for name, field in LISTS.values()}


class Holder(Owner, frozen=True, kw_only=True):
    """Who holds a lease, and since when: what `lease_owner` says, as JSON."""

    since: str


def new_holder() -> Holder:
    """This process, from now on."""
    return Holder(**msgspec.structs.asdict(current_owner()), since=codec.now())


def holder_of(uuid: str, owner: str) -> Holder:
    """What `lease_owner` says. Somebody may have written it by hand: then it holds until it expires."""
    try:
        return decode_json(owner, type=Holder)
    except ValueError:
        raise LeaseHeld(f"Task {uuid} is held by {owner!r}.", owner=owner) from None


def held(uuid: str, holder: Holder) -> LeaseHeld:
    """The error that says who has a task."""
    return LeaseHeld(f"Task {uuid} is held by {holder} since {holder.since}.", owner=str(holder))


class FencedStore(Store):
    """A store that knows who holds its leases."""

    leases: set[Lease]


class FencedLease(Lease):
    """The right to write one task, by a fence and a heartbeat."""

    store: FencedStore

    def __init__(self, store: FencedStore, metadata: Metadata, fence: int, owner: str, numbers: dict[str, int]) -> None:
        super().__init__(store, metadata, fence)
        self._mine = (self.uuid, fence, owner)
        self._numbers: dict[str, int] | None = numbers
        self._process_id = os.getpid()
        self._closed = self._lost = False
        self._renewed = time.monotonic()
        self._heartbeat = Heartbeat(self._beat, store.options.heartbeat_seconds)

    @property
    def lost(self) -> bool:
        return self._lost

    # what each store does in its own way

    @abstractmethod
    def read_numbers(self) -> dict[str, int]:
        """The newest number of every list, as it is stored."""

    @abstractmethod
    def write_line(self, name: str, number: int, line: bytes, message: Message | None) -> bool:
        """Put one line there, if the lease is still ours; whether it is there now."""

    @abstractmethod
    def renew(self, *, beat: bool = False, durable: bool = False) -> bool:
        """Say that the holder is alive; whether the lease was still his. A beat waits for no writer."""

    @abstractmethod
    def release(self) -> None:
        """Give the lease back, if it is still ours."""

    # what is the same

    def last(self, kind: type[Record]) -> int:
        with self.lock:
            if self._numbers is None:
                self._numbers = self.read_numbers()
            return self._numbers[LISTS[kind][0]]

    def write(self, name: str, number: int, line: bytes, record: Record) -> None:
        self._check()
        # forgotten until it is certain: whatever goes wrong, the next append looks what is there
        numbers, self._numbers = self._numbers, None
        message = record if isinstance(record, Message) else None
        if not self.write_line(name, number, line.removesuffix(b"\n"), message):
            self._lose()
        self._numbers = numbers and numbers | {name: number}

    def close(self) -> None:
        if self._process_id != os.getpid():
            return  # a child has nothing to give back
        with self.lock:
            if self._closed:
                return
            self._heartbeat.stop()
            self._closed = True
            self.store.leases.discard(self)
            try:
                if not self._lost:
                    self.release()
            except (NotWritten, OutcomeUnknown, StoreUnavailable) as error:
                raise type(error)(
                    f"The lease on task {self.uuid} could not be given back: {error.message} "
                    f"It is free when this process ends, or in {self.store.options.expiry_seconds:g} seconds.",
                    hint="Nothing that was appended is lost.",
                    retryable=False,
                ) from error

    def _check(self) -> None:
        """Refuse whoever has no right to write; whoever was silent for too long asks before he goes on."""
        if self._process_id != os.getpid():
            raise LeaseLost(f"Task {self.uuid} belongs to the parent process; nothing was written.")
        if self._closed or self._lost:
            raise LeaseLost
        if time.monotonic() - self._renewed > self.store.options.expiry_seconds:
            self._renew()

    def _renew(self, *, beat: bool = False, durable: bool = False) -> None:
        asked = time.monotonic()
        if not self.renew(beat=beat, durable=durable):
            self._lose()
        self._renewed = asked

    def _lose(self, message: str = "") -> None:
        self._lost = True
        raise LeaseLost(message)

    def _beat(self) -> None:
        try:
            self._renew(beat=True)
        except LeaseLost:
            log.warning("[uuid:%s] Somebody else took the lease.", self.uuid[:8])
            self._heartbeat.stop()
