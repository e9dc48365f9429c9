"""The store contract: what a backend must implement and what callers may rely on.

A store keeps tasks. Of each task it keeps the metadata, a row, numbered lists of records (messages, summaries, tool
calls, events, folds, plan entries) and blobs. Readers need no lease and never wait. A writer holds the lease of the
task. There is at most one writer; one that lost its lease is refused.

    store.lease(uuid)      the right to write a task, or to create it; LeaseHeld names the holder
    store.find(query)      rows, newest first
    store.read(uuid, kind) records of one kind in order, in bounded memory
    store.blob(uuid, sha)  bytes, checked against their hash
    store.delete(uuid)     remove a task and its row, or everything but what a later task inherits
    lease.append(record)   when it returns, the record survives kill -9
    lease.put(data)        store a blob; it is on disk before a line can name it
    lease.update(...)      change the row; a new status moves the task; counters are incremented
    lease.sync()           when it returns, everything appended survives a power cut
    lease.close()          sync, and release the lease
    lease.suspend()        release the lease for a while; lease.retake() takes it again at little cost

`append` numbers a record, has `ingest.finish` make a line of it, and writes the line. Numbers grow by one. A record
that brings its own number, as copies do, may leave a gap but never go back. Two calls of `append` with the same `key`
store one message, as long as the first is among the newest 1,000.

Errors say what happened to the record: NotWritten (it is not stored), OutcomeUnknown (it may be stored; repeat the call
with its key and it is stored once), LeaseLost (another process writes this task now; nothing was written).
"""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter as Counts
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, TypeVar

import msgspec

from orihon import codec
from orihon.errors import Corrupt, NotFound, SchemaMismatch, UsageError
from orihon.ingest import Sanitiser, finish, listen
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
from orihon.stores.files import new_mask_key, read_mask_key
from orihon.tokens import Counter, counter

log = logging.getLogger("orihon")

FORMAT = 1
REMEMBERED_KEYS = 1000
RETENTION_PARTS = 10_000  # the sum of retentions is a whole number of these

R = TypeVar("R", bound=Record)
Durability = Literal["os", "turn", "message"]
Order = Literal["created", "duration", "tokens", "calls", "messages", "size"]
GroupBy = Literal["status", "user", "day"]

FIXED = frozenset(
    ("uuid", "task_source", "owner", "repo", "task_type", "task_id", "project_id", "task_key", "fence", "unknown")
)
CHANGEABLE = dict.fromkeys(name for name in TaskRow.__struct_fields__ if name not in FIXED)

_SAMPLE_ROW = dict.fromkeys(("uuid", "task_source", "task_type", "task_id", "task_key", "created_at"), "x")
_SAMPLE_ROW["status"] = "running"

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
    list: str = ""  # the name of the list

    def __str__(self) -> str:
        return f"{self.where}, line {self.line}: {self.reason}" if self.line else f"{self.where}: {self.reason}"


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How a store behaves; the times are settings so that tests can be fast."""

    durability: Durability = "turn"
    heartbeat_seconds: float = 30
    expiry_seconds: float = 60
    known: KnownSecrets | None = None
    kinds: frozenset[str] | None = None  # kinds of secrets to mask; None means all
    report: Callable[[Problem], None] | None = None


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """Conditions on rows. All that are given must hold."""

    uuid: str | None = None  # an id, or its beginning
    status: tuple[Status, ...] = ()
    user: str | None = None
    key: str | None = None
    linked: str | None = None  # the key that a task was linked to
    created_from: str | None = None
    created_to: str | None = None
    completed_from: str | None = None
    ended_from: str | None = None
    ended_before: str | None = None  # an ended task without an end time counts from its creation
    reason: str | None = None  # why it paused or ended
    kept: bool | None = None
    archived: tuple[Archived, ...] = ()
    order: Order = "created"  # the newest, the longest, the largest first
    limit: int | None = None
    offset: int = 0

    def sanitised(self, sanitiser: Sanitiser) -> Query:
        """Return the query with users and keys as they are stored."""
        names = {"user": self.user, "task_key": self.key, "linked_key": self.linked}
        stored = sanitiser.row_changes(names)
        if stored == names:
            return self
        return msgspec.structs.replace(self, user=stored["user"], key=stored["task_key"], linked=stored["linked_key"])


class Totals(msgspec.Struct, kw_only=True):
    """Sums over tasks."""

    tasks: int = 0
    messages: int = 0
    tokens: int = 0
    llm_calls: int = 0
    tool_calls: int = 0
    compressions: int = 0
    timed: int = 0  # tasks that began and ended; `seconds` is the sum of their durations
    seconds: float = 0
    size_bytes: int = 0
    packed_bytes: int = 0  # like `size_bytes`, with archived tasks at their compressed size
    summaries: int = 0
    summary_failures: int = 0
    summarised_tokens: int = 0
    summary_tokens: int = 0
    retention_count: int = 0
    retention_sum: int = 0  # in parts of 1 / RETENTION_PARTS

    def add(self, other: Totals) -> None:
        """Add other sums to these."""
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


def sum_rows(rows: Iterable[TaskRow], by: GroupBy) -> dict[str, Totals]:
    """Return the sums of each group, computed row by row."""
    totals: dict[str, Totals] = {}
    for row in rows:
        group = {"status": row.status, "user": row.user or "", "day": row.created_at[:10]}[by]
        totals.setdefault(group, Totals()).add(_count_row(row))
    return totals


def duration_seconds(row: TaskRow) -> float | None:
    """Return how long a task took; None if it has not begun and ended."""
    try:
        began, ended = (datetime.fromisoformat(moment or "") for moment in (row.started_at, row.completed_at))
        return (ended - began).total_seconds()
    except (ValueError, TypeError):  # a missing time, or one that was edited
        return None


def _count_row(row: TaskRow) -> Totals:
    seconds = duration_seconds(row)
    return Totals(
        tasks=1,
        messages=row.message_count,
        tokens=row.total_tokens,
        llm_calls=row.llm_call_count,
        tool_calls=row.tool_call_count,
        compressions=row.compression_count,
        timed=seconds is not None,
        seconds=seconds or 0,
        size_bytes=row.size_bytes,
        packed_bytes=row.size_bytes if row.packed_bytes is None else row.packed_bytes,
        summaries=row.summary_count,
        summary_failures=row.summary_failures,
        summarised_tokens=row.summarised_tokens,
        summary_tokens=row.summary_tokens,
        retention_count=row.retention_count,
        retention_sum=row.retention_sum,
    )


class Queue:
    """The queue of a store. This one looks at all tasks; a store that many machines share does better."""

    reserves: ClassVar[bool] = False  # whether `reserve` keeps a task from other workers

    def __init__(self, store: Store) -> None:
        self.store = store

    def waiting(self) -> Iterator[TaskRow]:
        """Return pending tasks; of each user at least the next ones."""
        return self.store.find(Query(status=("pending",)))

    def abandoned(self) -> Iterator[TaskRow]:
        """Return tasks whose holder may be gone, sessions aside. Taking the lease tells for certain."""
        return (row for row in self.store.find(Query(status=("running",))) if not row.is_session)

    def reserve(self, uuids: Sequence[str]) -> str | None:
        """Reserve the first uuid that is not reserved yet; return None if there is none."""
        return next(iter(uuids), None)

    def release(self, uuid: str) -> None:
        """End the reservation of a task."""

    def wait(self, seconds: float) -> bool:
        """Wait until a task is put into the queue, at most for some seconds; return whether one was."""
        time.sleep(seconds)
        return False


class Store(ABC):
    """Where the bytes of tasks live."""

    leases_expire: ClassVar[bool]  # False: a lease is held until its holder releases it or dies
    archives: ClassVar[bool] = False  # whether `archive` can compress a task

    def __init__(self, url: str, options: Options | None = None) -> None:
        self.url = url
        self.options = options or Options()
        self.sanitiser = listen(Sanitiser(self.options.known, self.options.kinds, self.mask_key))

    @property
    def identity(self) -> str:
        """What two objects for the same store have in common."""
        return self.url

    @abstractmethod
    def lease(self, uuid: str, *, create: Metadata | None = None, status: Status = "running") -> Lease:
        """Take the right to write a task; with `create`, create the task first."""

    @abstractmethod
    def find(self, query: Query | None = None) -> Iterator[TaskRow]:
        """Return rows, newest first."""

    @abstractmethod
    def blob(self, uuid: str, sha256: str) -> bytes:
        """Return the bytes of a blob; raise Corrupt if they do not match the hash."""

    @abstractmethod
    def delete(self, uuid: str, *, fence: int | None = None, stub: bool = False) -> None:
        """Delete a task; with `stub`, keep its metadata and its row.

        Raise LeaseHeld if the task is being written, Conflict if it was written since its row had this `fence`.
        """

    @abstractmethod
    def close(self) -> None:
        """Close leases, files and connections."""

    @abstractmethod
    def lines(self, uuid: str, name: str, first: int, last: int | None) -> Iterator[tuple[int, bytes]]:
        """Return the lines of one list with their positions, beginning at number `first` or before.

        A negative `first` counts from the end.
        """

    def read(self, uuid: str, kind: type[R], *, first: int = 1, last: int | None = None) -> Iterator[R]:
        """Return records in order. An unreadable line is reported and does not hide the lines after it."""
        name, field = LISTS[kind]
        before = newest = 0  # the numbers of the last two records
        for position, line in self.lines(uuid, name, first, last):
            try:
                record = codec.decode_line(line, kind)
            except Corrupt as error:
                self.report(self.problem(uuid, name, position, error.message))
                continue
            number = getattr(record, field) if field else 1
            if number <= before or number == newest:
                reason = f"the line repeats number {number} and is left out"
                self.report(self.problem(uuid, name, position, reason))
                continue
            if number < newest:  # the number before was too high and must not hide what follows
                self.report(self.problem(uuid, name, position, f"number {number} comes after number {newest}"))
            elif last is not None and last < number <= newest + 1:
                return
            before, newest = min(newest, number - 1), number
            if first <= number and (last is None or number <= last):
                yield record

    def last_number(self, uuid: str, kind: type[Record]) -> int:
        """Return the highest number of a list, also if lines at its end are broken; 0 if the list is empty."""
        _, field = LISTS[kind]
        for first in (-1, -64, 1):
            number: int = max((getattr(record, field) for record in self.read(uuid, kind, first=first)), default=0)
            if number:
                return number
        return 0

    def problem(self, uuid: str, name: str, position: int, reason: str) -> Problem:
        """Return the problem at a position that `lines` gave."""
        return Problem(uuid, name, position, reason, name)

    def report(self, problem: Problem) -> None:
        """Pass a problem to `Options.report`, else log it."""
        if self.options.report is not None:
            self.options.report(problem)
        else:
            log.warning("[uuid:%s] %s", problem.uuid[:8], problem)

    def totals(self, query: Query, by: GroupBy) -> dict[str, Totals]:
        """Return the sums over the rows of a query, by group."""
        return sum_rows(self.find(query), by)

    def count(self, query: Query) -> tuple[int, int]:
        """Return the number of tasks and the bytes that they take, regardless of limit and offset."""
        sizes = [row.size_bytes if row.packed_bytes is None else row.packed_bytes for row in self.find(query)]
        return len(sizes), sum(sizes)

    def archive(self, uuid: str, *, fence: int) -> tuple[int, int]:  # noqa: ARG002 - the others use it
        """Compress an ended task; return its bytes before and after. Refused like `delete`."""
        raise UsageError(f"{self.url} cannot compress task {uuid}.", hint="Delete it instead.")

    def disk_bytes(self) -> int:
        """Return the bytes that the store takes on disk; 0 if that is unknown."""
        return 0

    def sidecar_path(self, name: str) -> Path | None:  # noqa: ARG002 - the others use it
        """Return the path of a file that belongs to the store as a whole; None if there is no place for one."""
        return None

    def mask_key(self) -> bytes:
        """Return the key of masked ids. It is created when the first id is masked."""
        path = self.sidecar_path("mask.key")
        return new_mask_key() if path is None else read_mask_key(path)

    def vacuum(self) -> int:
        """Finish interrupted deletions and return free space to the disk; return its bytes."""
        return 0

    def row(self, uuid: str) -> TaskRow:
        """Return the row of one task."""
        row = next((row for row in self.find(Query(uuid=uuid)) if row.uuid == uuid), None)
        if row is None:
            raise NotFound(kind="task", id=uuid)
        return row

    def is_abandoned(self, row: TaskRow) -> bool:  # noqa: ARG002 - the others use it
        """Return whether the process that ran a task is gone, as far as that can be seen without taking the lease."""
        return False

    @property
    def queue(self) -> Queue:
        """The queue of tasks in this store."""
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
        self.newest: Record | None = None  # the record that was appended last, as it is stored
        self.check: Callable[[Record], None] = _accept  # the writer's own check of a record before it is stored
        self._keys: OrderedDict[str, int] | None = None
        self._uncounted: Counts[str] = Counts()  # what was appended since the last change of the row
        self._row_messages = -1  # the row's `message_count`, which is written only when it changes

    @property
    def lost(self) -> bool:
        """Whether the lease is known to be lost. Writes then fail, and `close` does not."""
        return False

    # each store implements these

    @abstractmethod
    def last(self, kind: type[Record]) -> int:
        """Return the number of the newest record of a kind; 0 if there is none. Does not read the list."""

    @abstractmethod
    def write(self, name: str, number: int, line: bytes, record: Record) -> None:
        """Append one line to a list."""

    @abstractmethod
    def put(self, data: bytes) -> Blob:
        """Store bytes; they are on disk before a line can name them. The same bytes are stored once."""

    @abstractmethod
    def change(self, changes: dict[str, Any], add: dict[str, int]) -> TaskRow:
        """Set some columns of the row and add to others, atomically."""

    @abstractmethod
    def sync(self) -> None:
        """Make everything that was appended survive a power cut."""

    @abstractmethod
    def close(self) -> None:
        """Sync and release the lease. A second call does nothing."""

    # each store can do these better

    def suspend(self) -> None:
        """Release the lease without a sync, so that any process can take the task, and keep what `retake` needs."""
        self.close()

    def retake(self) -> bool:
        """Take a suspended lease again, unless the task was written meanwhile.

        Return False if it was, or if the lease was closed; then only `store.lease` can take the task. Raise
        LeaseHeld if another process has it now.
        """
        return False

    # the same for all stores

    def read_row(self) -> TaskRow:
        """Return the row as it is now."""
        return self.store.row(self.uuid)

    def update(self, *, add: dict[str, int] | None = None, **changes: Any) -> TaskRow:
        """Change the row: `add` increments counters, the rest is set. A new status moves the task.

        Records that were appended since the last change are counted in the same step.
        """
        uncounted, self._uncounted = self._uncounted, Counts()
        increments = Counts(add or {})
        increments.update({name: number for name, number in uncounted.items() if name not in changes})
        messages = self.last(Message)
        counted = {} if messages == self._row_messages else {"message_count": messages}
        try:
            row = self.change(self._validate(counted | changes, increments), increments)
        except BaseException:
            self._uncounted.update(uncounted)
            raise
        self._row_messages = row.message_count
        return row

    def _validate(self, changes: dict[str, Any], increments: dict[str, int]) -> dict[str, Any]:
        """Return changes of the row, cleaned and masked; raise UsageError for an unknown column or a wrong type."""
        wrong = sorted((changes.keys() | increments.keys()) - CHANGEABLE.keys())
        if wrong:
            raise UsageError(f"Unknown column {wrong[0]!a}.", hint=f"Columns: {', '.join(CHANGEABLE)}.")
        changes = self.store.sanitiser.row_changes(changes)
        try:
            msgspec.convert(_SAMPLE_ROW | changes | increments, TaskRow)
        except msgspec.ValidationError as error:
            hint = "orihon.records.TaskRow describes the columns."
            raise UsageError(f"The row cannot be changed: {error}.", hint=hint) from error
        return changes

    @property
    def is_counted(self) -> bool:
        """Whether the row counts everything that was appended."""
        return not self._uncounted and self._row_messages == self.last(Message)

    def append(self, record: Record) -> int:
        """Store a record and return its number."""
        with self.lock:
            kind = type(record)
            if isinstance(record, Message) and record.key is not None:
                known = self.find_key(self.store.sanitiser.id(record.key))
                if known is not None:
                    return known
            if kind not in LISTS or kind is Metadata:
                raise UsageError(f"A {kind.__name__} cannot be appended.", hint="Append a record of a list.")
            name, field = LISTS[kind]
            number = self._next_number(kind, getattr(record, field))
            record, line = finish(
                record, self.store.sanitiser, number={field: number}, counter=self.counter, put=self._put_counted
            )
            self.check(record)
            try:
                self.write(name, number, line, record)
                if isinstance(record, Message) and record.key is not None:
                    self._remember_key(record.key, number)
            except BaseException:
                self._keys = None  # the record may be stored all the same; the next key is looked up in the list
                raise
            self.newest = record
            self._uncounted["size_bytes"] += len(line)
            if isinstance(record, Summary):
                self._uncounted["summary_count"] += 1
                self._uncounted["summarised_tokens"] += record.original_tokens
                self._uncounted["summary_tokens"] += record.summary_tokens
                if record.retention is not None:
                    self._uncounted["retention_count"] += 1
                    self._uncounted["retention_sum"] += round(record.retention * RETENTION_PARTS)
            return number

    def _next_number(self, kind: type[Record], given: int) -> int:
        """Return the number of the next record: the given one, which only grows, else the one after the newest."""
        last = self.last(kind)
        if given and given <= last:
            raise UsageError(f"Number {given} was given, but the newest one is {last}.", hint="Numbers only grow.")
        return given or last + 1

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Send the records that are appended inside together. They are stored when the block ends, however it ends."""
        yield

    def _put_counted(self, data: bytes) -> Blob:
        self._uncounted["size_bytes"] += len(data)
        return self.put(data)

    def find_key(self, key: str) -> int | None:
        """Return the number of the message with this key, if it is among the newest 1,000."""
        return self._newest_keys().get(key)

    def _newest_keys(self) -> OrderedDict[str, int]:
        """Return the keys of the newest messages. They are read when the first key is used."""
        if self._keys is None:
            newest = self.store.read(self.uuid, Message, first=-REMEMBERED_KEYS)
            self._keys = OrderedDict((message.key, message.seq) for message in newest if message.key is not None)
        return self._keys

    def _remember_key(self, key: str, number: int) -> None:
        keys = self._newest_keys()
        keys[key] = number
        while len(keys) > REMEMBERED_KEYS:
            keys.popitem(last=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _accept(record: Record) -> None:
    """Accept every record."""
    del record
