"""The contract of a store: ten verbs, and what each of them promises.

A store keeps tasks. Of each task it keeps the metadata, the row, numbered lists of records (messages, summaries, tool
calls, events, plan entries), and blobs. Readers need nothing and never wait. A writer holds the task's lease; there
is at most one, and the store refuses whoever lost his.

    store.lease(uuid)      the right to write a task, also a new one; LeaseHeld names who has it
    store.find(query)      rows, newest first
    store.read(uuid, kind) records of one kind in order, in bounded memory
    store.blob(uuid, sha)  bytes, checked against their name
    store.delete(uuid)     the task is gone, and so is its row; or all but what a later task inherits
    store.close()
    lease.append(record)   when it returns, kill -9 cannot take the record back
    lease.put(data)        a blob, on disk before a line can name it
    lease.update(...)      the row; a new status moves the task; counters are added to, not set
    lease.sync()           when it returns, a power cut cannot take back what was appended
    lease.close()          the lease is free; everything is synced

What comes in passes the sanitiser (cleaned and masked) and is stamped with number, time and tokens where these are not
given. Numbers grow by one; a record that brings its own number (a copy of another store's) may leave a gap, never go
back. Two calls of `append` with the same `key` store one message, as long as the first is among the newest 1,000.

Errors say what happened to the record: NotWritten (it is not there), OutcomeUnknown (it may be; repeat it with its key
and it is there once), LeaseLost (somebody else writes this task now; nothing was written).
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, TypeVar

import msgspec

from orihon import codec
from orihon.errors import Corrupt, NotFound, SchemaMismatch, UsageError
from orihon.ingest import Sanitiser, listen
from orihon.records import (
    Archived,
    Blob,
    Event,
    Fold,
    Message,
    Metadata,
    PlanEntry,
    Record,
    Status,
    Summary,
    TaskRow,
    ToolCall,
)
from orihon.redaction import KnownSecrets
from orihon.stores.checks import checked_changes
from orihon.stores.queue import Queue
from orihon.stores.spill import spilled
from orihon.stores.totals import By, Totals, summed
from orihon.tokens import Counter, counter

log = logging.getLogger("orihon")

FORMAT = 1
REMEMBERED_KEYS = 1000

R = TypeVar("R", bound=Record)
Durability = Literal["os", "turn", "message"]
Order = Literal["created", "duration", "tokens", "calls", "messages", "size"]

# the name of each list, and the field that numbers it
LISTS: dict[type[Record], tuple[str, str]] = {
    Metadata: ("metadata", ""),
    Message: ("messages", "seq"),
    Summary: ("summaries", "id"),
    ToolCall: ("tools", "seq"),
    Event: ("events", "id"),
    Fold: ("folds", "id"),
    PlanEntry: ("planning", "id"),
}


class Problem(msgspec.Struct, frozen=True):
    """Something that could not be read, and where it is."""

    uuid: str
    where: str
    line: int
    reason: str
    list: str = ""  # which list of the task it is

    def __str__(self) -> str:
        return f"{self.where}, line {self.line}: {self.reason}" if self.line else f"{self.where}: {self.reason}"


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How a store behaves; the times are settings so that tests can be fast."""

    durability: Durability = "turn"
    heartbeat_seconds: float = 30
    expiry_seconds: float = 60
    known: KnownSecrets | None = None
    kinds: frozenset[str] | None = None  # of secrets that are masked; None means all
    report: Callable[[Problem], None] | None = None


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """Which rows; every condition that is given must hold."""

    uuid: str | None = None  # also its beginning
    status: tuple[Status, ...] = ()
    user: str | None = None
    key: str | None = None
    linked: str | None = None  # the key that a task was linked to
    created_from: str | None = None
    created_to: str | None = None
    completed_from: str | None = None
    ended_from: str | None = None
    ended_before: str | None = None  # and ended; one that does not say when counts from its beginning
    reason: str | None = None  # why it paused or ended
    kept: bool | None = None
    archived: tuple[Archived, ...] = ()
    order: Order = "created"  # the newest, the longest, the largest first
    limit: int | None = None
    offset: int = 0


class Store(ABC):
    """Where the bytes of tasks live."""

    leases_expire: ClassVar[bool]  # or are they held until the holder gives them back or dies?
    archives: ClassVar[bool] = False  # whether `archive` can make a task smaller

    def __init__(self, url: str, options: Options | None = None) -> None:
        self.url = url
        self.options = options or Options()
        self.sanitiser = listen(Sanitiser(self.options.known, self.options.kinds, self.mask_key))

    @abstractmethod
    def lease(self, uuid: str, *, create: Metadata | None = None, status: Status = "running") -> Lease:
        """Take the right to write a task; with `create`, make the task first."""

    @abstractmethod
    def find(self, query: Query | None = None) -> Iterator[TaskRow]:
        """Rows, the newest first."""

    @abstractmethod
    def blob(self, uuid: str, sha256: str) -> bytes:
        """The bytes of a blob; Corrupt when they are not those that were put there."""

    @abstractmethod
    def delete(self, uuid: str, *, fence: int | None = None, stub: bool = False) -> None:
        """Remove a task whole; with `stub`, all but its metadata and its row. One that is written now is LeaseHeld.

        One that was written since its row had this `fence` is a Conflict.
        """

    @abstractmethod
    def close(self) -> None:
        """Let go of files and connections. Leases are closed before."""

    @abstractmethod
    def lines(self, uuid: str, name: str, first: int, last: int | None) -> Iterator[tuple[int, bytes]]:
        """Lines of one list with their places, from number `first` on at the latest; a negative one is from the end."""

    def read(self, uuid: str, kind: type[R], *, first: int = 1, last: int | None = None) -> Iterator[R]:
        """Records in order; what cannot be read is reported and does not hide what follows."""
        name, field = LISTS[kind]
        before = newest = 0  # the numbers of the last two records
        for place, line in self.lines(uuid, name, first, last):
            try:
                record = codec.decode_line(line, kind)
            except Corrupt as error:
                self.report(self.problem(uuid, name, place, error.message))
                continue
            number = getattr(record, field) if field else 1
            if number <= before or number == newest:
                self.report(self.problem(uuid, name, place, f"the line repeats number {number} and is left out"))
                continue
            if number < newest:  # the one before it was too high, and must not hide those that follow
                self.report(self.problem(uuid, name, place, f"number {number} comes after number {newest}"))
            elif last is not None and last < number <= newest + 1:
                return
            before, newest = min(newest, number - 1), number
            if first <= number and (last is None or number <= last):
                yield record

    def problem(self, uuid: str, name: str, place: int, reason: str) -> Problem:
        """What is wrong at a place that `lines` gave."""
        return Problem(uuid, name, place, reason, name)

    def report(self, problem: Problem) -> None:
        """Say what could not be read, where the caller wants to hear it, else in the log."""
        if self.options.report is not None:
            self.options.report(problem)
        else:
            log.warning("[uuid:%s] %s", problem.uuid[:8], problem)

    def totals(self, query: Query, by: By) -> dict[str, Totals]:
        """What the rows add up to, group by group; a store that can sum does it itself."""
        return summed(self.find(query), by)

    def count(self, query: Query) -> tuple[int, int]:
        """How many tasks there are, and how many bytes they have; limit and offset do not count."""
        sizes = [row.size_bytes if row.packed_bytes is None else row.packed_bytes for row in self.find(query)]
        return len(sizes), sum(sizes)

    def archive(self, uuid: str, *, fence: int) -> tuple[int, int]:
        """Keep an ended task in less room, and read it as before; its bytes before and after. Refused like `delete`."""
        raise UsageError(f"{self.url} does not compress task {uuid}.", hint=f"Delete it instead; fence {fence}.")

    def disk_bytes(self) -> int:
        """What the store takes on the disk; 0 when it takes nothing, or that cannot be told."""
        return 0

    def beside(self, name: str) -> Path | None:  # noqa: ARG002 - the others use it
        """Where a file about the whole store lies on this machine; None when there is no place for one."""
        return None

    def mask_key(self) -> bytes:
        """The key of masked ids, kept with the store; it is made when the first id is masked."""
        from orihon.stores.maskkey import kept_key  # noqa: PLC0415 - few stores ever need it

        return kept_key(self.beside("mask.key"))

    def tidy(self) -> int:
        """Finish deletions that were interrupted, and give room back to the disk; how many bytes."""
        return 0

    def row(self, uuid: str) -> TaskRow:
        """The row of one task."""
        found = next((row for row in self.find(Query(uuid=uuid)) if row.uuid == uuid), None)
        if found is None:
            raise NotFound(kind="task", id=uuid)
        return found

    @property
    def queue(self) -> Queue:
        """What a queue asks of a store."""
        return Queue(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Lease(ABC):
    """The right to write one task."""

    def __init__(self, store: Store, metadata: Metadata, fence: int) -> None:
        if metadata.format > FORMAT:
            raise SchemaMismatch(f"Task {metadata.uuid} has format {metadata.format}; this version knows {FORMAT}.")
        self.store = store
        self.metadata = metadata
        self.uuid = metadata.uuid
        self.fence = fence
        self.counter: Counter = counter(metadata.config.get("tokens", "estimate"))
        self.lock = threading.RLock()
        self.newest: Record | None = None  # what was appended last, as it is stored
        self.check: Callable[[Record], None] = _accept  # what the writer asks of a record, as it will be stored
        self._keys: OrderedDict[str, int] | None = None
        self._more: dict[str, int] = {}  # what was appended and not yet counted in the row
        self._messages_said = -1  # what the row says of their number; sums are kept of it, and cost time

    @property
    def lost(self) -> bool:
        """Whether the lease is known to be lost: nothing can be written any more, and `close` does not fail."""
        return False

    # what each store does in its own way

    @abstractmethod
    def last(self, kind: type[Record]) -> int:
        """The number of the newest record of a kind; 0 when there is none. Costs nothing."""

    @abstractmethod
    def write(self, name: str, number: int, line: bytes, record: Record) -> None:
        """Append one line to a list; this is the moment that counts."""

    @abstractmethod
    def put(self, data: bytes) -> Blob:
        """Keep bytes; they are on disk before a line can name them. The same bytes are kept once."""

    @abstractmethod
    def change(self, changes: dict[str, Any], add: dict[str, int]) -> TaskRow:
        """Set some columns of the row and add to others, in one step that a crash does not tear."""

    @abstractmethod
    def sync(self) -> None:
        """Everything appended is safe from a power cut when this returns."""

    @abstractmethod
    def close(self) -> None:
        """Sync, and give the lease back. A second call does nothing."""

    # what is the same for all of them

    def update(self, *, add: dict[str, int] | None = None, **changes: Any) -> TaskRow:
        """Change the row: `add` increments counters, the rest is set. A new status moves the task.

        What was appended since is counted in the same step.
        """
        given, more, self._more = add or {}, self._more, {}
        counts = {name: given.get(name, 0) + more.get(name, 0) for name in given | more if name not in changes}
        messages = self.last(Message)
        said = {} if messages == self._messages_said else {"message_count": messages}
        try:
            row = self.change(*checked_changes(said | changes, counts, self.store.sanitiser))
        except BaseException:
            self._count(**more)
            raise
        self._messages_said = row.message_count
        return row

    def _count(self, **more: int) -> None:
        for name, number in more.items():
            self._more[name] = self._more.get(name, 0) + number

    def append(self, record: Record) -> int:
        """Store a record and return its number."""
        with self.lock:
            if isinstance(record, Message) and record.key is not None:
                known = self.number_of(self.store.sanitiser.id(record.key))
                if known is not None:
                    return known
            if type(record) not in LISTS or isinstance(record, Metadata):
                raise UsageError(f"A {type(record).__name__} cannot be appended.", hint="Append a record of a list.")
            name, field = LISTS[type(record)]
            record = self._stamp(self.store.sanitiser.record(record), field)
            number: int = getattr(record, field)
            record, line = _encoded(record)
            if len(line) > codec.MAX_LINE_BYTES:
                raise UsageError(
                    f"One of the {name} has {len(line):,} bytes; a line holds {codec.MAX_LINE_BYTES:,} at most.",
                    hint="Keep large data in a blob (`put`) and name it in the record.",
                )
            record = codec.check(line, type(record))  # from here on as every reader gets it
            self.check(record)
            try:
                self.write(name, number, line, record)
                if isinstance(record, Message) and record.key is not None:
                    self._remember(record.key, number)
            except BaseException:
                self._keys = None  # it may be there all the same (an I/O error, Ctrl-C): the next key looks again
                raise
            self.newest = record
            self._count(size_bytes=len(line))
            if isinstance(record, Summary):
                tokens = {"summarised_tokens": record.original_tokens, "summary_tokens": record.summary_tokens}
                self._count(summary_count=1, **tokens)
            return number

    @contextmanager
    def together(self) -> Iterator[None]:
        """Records appended inside may travel together; they count when the block has ended, whatever ended it."""
        yield

    def _stamp(self, record: Record, field: str) -> Record:
        """Number, time and tokens, where they are not given, and blobs for what is too large for a line."""
        last = self.last(type(record))
        number = getattr(record, field)
        if number and number <= last:
            raise UsageError(f"Number {number} was given, but the newest one is {last}.", hint="Numbers only grow.")
        stamps: dict[str, Any] = {} if number else {field: last + 1}
        if not record.timestamp:  # type: ignore[attr-defined]
            stamps["timestamp"] = codec.now()
        if isinstance(record, Message):
            stamps |= {} if record.tokens else {"tokens": self.counter.message(record)}
            stamps |= spilled(record, self._keep)
        return msgspec.structs.replace(record, **stamps) if stamps else record

    def _keep(self, data: bytes) -> Blob:
        self._count(size_bytes=len(data))
        return self.put(data)

    def number_of(self, key: str) -> int | None:
        """The message that was stored with a key, if it is among the newest; a store that can look further does."""
        return self._known_keys().get(key)

    def _known_keys(self) -> OrderedDict[str, int]:
        """The keys of the newest messages; read once, when the first key is used."""
        if self._keys is None:
            newest = self.store.read(self.uuid, Message, first=-REMEMBERED_KEYS)
            self._keys = OrderedDict((message.key, message.seq) for message in newest if message.key is not None)
        return self._keys

    def _remember(self, key: str, number: int) -> None:
        keys = self._known_keys()
        keys[key] = number
        while len(keys) > REMEMBERED_KEYS:
            keys.popitem(last=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _accept(record: Record) -> None:
    """Ask nothing of a record."""
    del record


def _encoded(record: Record) -> tuple[Record, bytes]:
    """The record and its line; one that no encoder knows how to write is made of plain values first."""
    try:
        return record, codec.encode_line(record)
    except (UnicodeEncodeError, TypeError):  # half a character where nobody reads text, or another library's value
        try:
            record = codec.cleaned(record)
        except msgspec.ValidationError as error:
            hint = "See orihon.records."
            raise UsageError(f"A {type(record).__name__} cannot be stored so: {error}.", hint=hint) from error
        return record, codec.encode_line(record)
