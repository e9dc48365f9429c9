"""The life of one task in numbered steps, and the checks that hold wherever it is interrupted.

    python scenario.py URL UUID [FIRST]    play the steps from FIRST on; print one line per completed step
    python scenario.py URL UUID persist    play all steps; repeat a failed step as its error advises

Each line is an acknowledgement: the step, the kind of record, its number. `Evidence` compares a store with these lines:
no acknowledged record is missing, none is stored twice, and none is stored that was never appended.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from orihon import codec
from orihon.errors import NotFound, NotWritten, OrihonError, OutcomeUnknown, StoreUnavailable
from orihon.ingest import MAX_INLINE_BYTES
from orihon.records import Event, Message, Metadata, PlanEntry, Record, Summary, ToolCall
from orihon.stores import open_store
from orihon.stores.base import FORMAT, LISTS, Lease, Options, Store
from orihon.task_key import TaskKey

STORES = ("jsonl", "sqlite")  # the stores that outlive a process
KINDS: tuple[type[Record], ...] = (Message, Summary, ToolCall, Event, PlanEntry)
BIG = "0123456789abcdef" * (MAX_INLINE_BYTES // 16 + 99)

T = TypeVar("T")


def url_of(kind: str, place: Path) -> str:
    """Return the URL of a store of this kind in a directory."""
    return f"sqlite:///{place}/contexts.db" if kind == "sqlite" else str(place / "contexts")


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One call; `record` for an append, `changes` and `add` for an update."""

    number: int
    verb: str  # create, lease, append, sync, update, close
    record: Record | None = None
    changes: dict[str, Any] = {}
    add: dict[str, int] = {}


def steps() -> list[Step]:
    """Return the steps: create, 50 appends of all kinds, a sync after every five, a pause, another lease, the end."""
    plan: list[dict[str, Any]] = [{"verb": "create"}]
    for count in range(1, 51):
        plan.append({"verb": "append", "record": count})
        if count % 5 == 0:
            plan.append({"verb": "sync"})
        if count in {12, 33}:
            plan.append({"verb": "update", "changes": {"activity": "processing"}, "add": {"llm_call_count": 1}})
        if count == 28:
            plan += [{"verb": "update", "changes": {"status": "paused"}}, {"verb": "close"}, {"verb": "lease"}]
            plan.append({"verb": "update", "changes": {"status": "running"}, "add": {"resume_count": 1}})
    end = {"status": "completed", "final_summary": "done", "handoff": "{}"}
    plan += [{"verb": "update", "changes": end, "add": {"total_tokens": 7}}, {"verb": "close"}]
    return [
        Step(**fields | {"number": place, "record": _record(place, fields["record"]) if "record" in fields else None})
        for place, fields in enumerate(plan)
    ]


def _record(place: int, count: int) -> Record:
    """Return the record of a step. It holds the number of the step, which makes it unique."""
    name = f"step {place}"
    match count % 10:
        case 3:
            return ToolCall(
                seq=0, tool="read", args={"step": place}, result=name, status="success", duration_ms=1, timestamp=""
            )
        case 5:
            return Event(id=0, after=1, type="pin", data={"step": place}, timestamp="")
        case 7:
            return PlanEntry(id=0, type="plan", task_uuid="u", data={"step": place}, timestamp="")
        case 9:
            return Summary(
                id=0, start_seq=1, end_seq=1, summary=name, original_tokens=9, summary_tokens=1, ratio=0.1, timestamp=""
            )
        case rest:
            text = f"{name} {BIG if count in {4, 36} else 'x' * (count * 37)}"
            key = f"key-{place}" if rest % 2 else None
            return Message(seq=0, role="user", content=text, key=key, timestamp="", tokens=0)


def metadata(uuid: str) -> Metadata:
    """Return the metadata of the task."""
    key = TaskKey.github("acme", "shop", issue=1)
    return Metadata(uuid=uuid, task_key=key, created_at=codec.now(), user="alice", format=FORMAT)


def identity(store: Store, uuid: str, record: Record) -> tuple[str, int, str]:
    """Return list, step and digest of a record; they are the same before and after storage."""
    match record:
        case Message():
            text = store.blob(uuid, record.blob.sha256).decode() if record.blob else record.text
        case Summary():
            text = record.summary
        case ToolCall():
            text = str(record.result)
        case Event() | PlanEntry():
            text = f"step {record.data['step']}"
        case _:
            raise TypeError(type(record))
    return LISTS[type(record)][0], int(text.split(" ")[1]), hashlib.sha256(text.encode()).hexdigest()[:12]


def play(store: Store, uuid: str, say: Callable[[str], None], first: int = 0) -> None:
    """Play the steps from `first` on; all earlier steps were acknowledged."""
    lease: Lease | None = None
    for step in steps()[first:]:
        if lease is None and step.verb not in {"create", "lease"}:
            lease = store.lease(uuid)
        number = 0
        match step.verb:
            case "create":
                lease = _made(store, uuid)
            case "lease":
                lease = store.lease(uuid)
            case "close" if lease is not None:
                lease.close()
                lease = None
            case _ if lease is not None:
                number = _do(store, lease, step, again=step.number == first)
        say(f"{step.number} {LISTS[type(step.record)][0] if step.record else step.verb} {number}")


def _made(store: Store, uuid: str) -> Lease:
    try:
        store.row(uuid)
    except NotFound:
        return store.lease(uuid, create=metadata(uuid))
    return store.lease(uuid)


def _do(store: Store, lease: Lease, step: Step, *, again: bool) -> int:
    """Take one step. With `again`, first look whether a step without a key was already taken."""
    if step.record is not None:
        if again and not getattr(step.record, "key", None):
            for record in store.read(lease.uuid, type(step.record), first=-1):
                if identity(store, lease.uuid, record)[1] == step.number:
                    return lease.last(type(record))
        return lease.append(step.record)
    if step.verb == "update":
        wanted = counters(step.number)
        row = store.row(lease.uuid)
        done = again and all(getattr(row, name) == wanted[name] for name in step.add)
        lease.update(add={} if done else step.add, **step.changes)
    else:
        lease.sync()
    return 0


class Persistent:
    """A caller that repeats a failed step, and looks at the store first unless the error says that nothing was done."""

    def __init__(self, url: str, uuid: str, say: Callable[[str], None], heard: Callable[[OrihonError], None]) -> None:
        self.url, self.uuid, self.say, self.heard = url, uuid, say, heard
        self.lease: Lease | None = None

    def play(self) -> None:
        """Play all steps, each until it succeeds."""
        with self._until_done(lambda *, again: open_store(self.url, Options())) as store:  # noqa: ARG005
            for step in steps():
                number = self._until_done(lambda *, again, step=step: self._step(store, step, again=again))
                self.say(f"{step.number} {LISTS[type(step.record)][0] if step.record else step.verb} {number}")

    def _until_done(self, work: Callable[..., T], tries: int = 4) -> T:
        again = False
        for left in reversed(range(tries)):
            try:
                return work(again=again)
            except (NotWritten, OutcomeUnknown, StoreUnavailable) as error:
                self.heard(error)
                if not left:
                    raise
                again = not isinstance(error, NotWritten)  # NotWritten promises that nothing was done
        raise AssertionError

    def _step(self, store: Store, step: Step, *, again: bool) -> int:
        if step.verb == "create":
            self.lease = _made(store, self.uuid) if again else store.lease(self.uuid, create=metadata(self.uuid))
        elif step.verb == "lease":
            self.lease = store.lease(self.uuid)
        elif self.lease is not None and step.verb == "close":
            self.lease.close()
        elif self.lease is not None:
            return _do(store, self.lease, step, again=again)
        return 0


def counters(last: int) -> dict[str, int]:
    """Return the counters after all steps up to this one."""
    sums: dict[str, int] = {"llm_call_count": 0, "resume_count": 0, "total_tokens": 0}
    for step in steps()[: last + 1]:
        for name, more in step.add.items():
            sums[name] += more
    return sums


def statuses(last: int) -> Iterator[str]:
    """Yield the possible statuses after this step was acknowledged: its own, and that of the step in flight."""
    done = [step.changes["status"] for step in steps()[: last + 1] if "status" in step.changes]
    yield (done or ["running"])[-1]
    yield from (step.changes["status"] for step in steps()[last + 1 : last + 2] if "status" in step.changes)


class Evidence:
    """The acknowledged steps, and the checks that compare a store with them."""

    def __init__(self, said: list[str]) -> None:
        self.numbers = {int(step): int(number) for step, _, number in (line.split(" ") for line in said)}
        self.last = max(self.numbers, default=-1)

    @property
    def safe(self) -> int:
        """The last step that made all records before it durable: a sync, or a change of status."""
        return self._last_of("create", "sync", "close")

    @property
    def counted(self) -> int:
        """The last step that made the counters of the row durable; -1 if none did.

        A change of status and the end of a lease are synced. A later change without a sync may lose the counters.
        """
        synced = self._last_of("create", "close")
        later = steps()[synced + 1 : self.last + 2]  # with the step in flight
        destroyed = any(step.verb in {"lease", "update"} and "status" not in step.changes for step in later)
        return -1 if destroyed else synced

    def _last_of(self, *verbs: str) -> int:
        promised = [step.number for step in steps() if step.verb in verbs or "status" in step.changes]
        return max((number for number in promised if number <= self.last), default=-1)

    def check(self, store: Store, uuid: str, *, safe: int | None = None, flight: int = 1) -> list[str]:
        """Return what is wrong. All steps up to `safe` must be stored; `flight` more may be."""
        safe = self.last if safe is None else safe
        records = {step.number: step.record for step in steps() if step.record is not None}
        rows = [row for row in store.find() if row.uuid == uuid]
        if not rows:
            return ["the task is gone"] if safe >= 0 else []
        wrong = [f"there are {len(rows)} rows"] if len(rows) > 1 else []
        seen: dict[int, int] = {}
        for kind in KINDS:
            for place, record in enumerate(store.read(uuid, kind), start=1):
                found = identity(store, uuid, record)
                number = getattr(record, LISTS[kind][1])
                if number != place and (found[1] <= safe or number < place):
                    wrong.append(f"{found} has number {number}, not {place}")
                wrong += [f"{found} is there twice"] if found[1] in seen else []
                seen[found[1]] = number
                if found[1] not in records or found != identity(store, uuid, records[found[1]]):
                    wrong.append(f"{found} was never said")
        missing = [step for step in records if step <= safe and step not in seen]
        wrong += [f"steps {missing} are lost"] if missing else []
        wrong += [f"step {step} was not said yet" for step in seen if step > self.last + flight]
        moved = [step for step, number in self.numbers.items() if step in seen and seen[step] != number]
        wrong += [f"steps {moved} have other numbers than they were told"] if moved else []
        return wrong


def main() -> None:
    """Run the command line."""
    url, uuid, first = (*sys.argv[1:], "0")[:3]
    if first == "persist":
        Persistent(url, uuid, _print, lambda error: _print(f"! {type(error).__name__}: {error}")).play()
        return
    with open_store(url, Options()) as store:
        play(store, uuid, _print, int(first))


def _print(line: str) -> None:
    print(line, flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
