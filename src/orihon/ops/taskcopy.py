"""One task on its way from one store to another: compare, append what is missing, compare again."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Literal, TypeVar

import msgspec

from orihon import codec
from orihon.context.events import problem
from orihon.errors import Conflict, Corrupt, NotFound
from orihon.ops.blobs import named, renamed
from orihon.ops.progress import ProgressCounter
from orihon.parts import is_textual
from orihon.records import Blob, Call, Event, Message, Metadata, Part, Record, TaskRow
from orihon.stores.base import LISTS, Lease, Problem, Store
from orihon.stores.numbers import newest

R = TypeVar("R", bound=Record)
Owner = TypeVar("Owner", Message, Part, Call)

Admit = Callable[[bytes], bytes]
Step = Literal["look", "write", "prove"]

KINDS = tuple(kind for kind, (_, field) in LISTS.items() if field)
LEASE = frozenset({"fence", "lease_owner", "heartbeat_at"})
HERE = frozenset({"packed_bytes"})  # is about the disk of one store
COLUMNS = tuple(name for name in TaskRow.__struct_fields__ if name not in LEASE | HERE | {"unknown"})
HINT = "Nothing was changed there. Keep the right one: delete the task in the target, or copy to another store."


class Figures(msgspec.Struct):
    """What was found equal in both stores, and how it came there."""

    records: int = 0
    blobs: int = 0
    size_bytes: int = 0
    changed: int = 0
    appended: int = 0
    notes: list[str] = []  # what was left out


class TaskCopy:
    """One task; the lease of the target is taken only if there is something to write.

    With `sound_only`, events that no import would take are left out, and a note says so.
    """

    def __init__(
        self,
        source: Store,
        target: Store,
        row: TaskRow,
        progress: ProgressCounter,
        flawed: set[str],
        *,
        sound_only: bool = False,
    ) -> None:
        self.source, self.target, self.progress, self.flawed = source, target, progress, flawed
        self.row = target.sanitiser.record(_whole_or_stub(row))
        self.uuid = row.uuid
        self.notes: list[str] = []
        self.sound_only = sound_only
        self._lease: Lease | None = None
        self._moved: dict[str, Blob] = {}
        self._delivered: set[str] = set()  # two blobs may be equal once they are masked
        self._lacks = False

    def run(self) -> Figures:
        """Do it; Conflict names what differs, and leaves the target as it was."""
        # the lists that name messages end first, so that what they name is there
        ends = {kind: newest(self.source, self.uuid, kind) for kind in reversed(KINDS)}
        if self.row.lease_owner is not None:
            self.notes.append("it has a writer at the source; what was there at the start is copied.")
        try:
            if self._copy_metadata():
                self._lacks = True
            else:
                figures = self._walk(ends, "look")
            if self._lacks:
                with self._writer().together():
                    figures = self._walk(ends, "write")
            self._copy_row()
        finally:
            if self._lease is not None:
                self._lease.close()
        if self._lease is not None:
            figures = msgspec.structs.replace(self._walk(ends, "prove"), appended=figures.appended)
        self._compare_rows()
        return figures

    # what is not in a list

    def _copy_metadata(self) -> bool:
        """Make the task, if the target does not have it; whether it was made."""
        given = self._metadata(self.source)
        try:
            there = self._metadata(self.target)
        except NotFound:
            # its own status comes last, so that nobody takes half a task for a whole one
            self._lease = self.target.lease(self.uuid, create=given, status="paused")
            return True
        if codec.encode(there) != codec.encode(given):
            raise Conflict("Its metadata differ from those in the target.", hint=HINT)
        return False

    def _metadata(self, store: Store) -> Metadata:
        for metadata in store.read(self.uuid, Metadata):
            return self.target.sanitiser.record(metadata)
        raise Corrupt(f"Its metadata in {store.url} cannot be read.")

    def _copy_row(self) -> None:
        if any(self._row_differences()):
            lease = self._writer()
            stamped = {"updated_at", "message_count"}  # what the store would set itself
            names = stamped.union(self._row_differences())
            changes = {name: getattr(self.row, name) for name in names}
            if "archived" in changes:  # a stub takes no room, and one that got its records back is not compressed
                changes["packed_bytes"] = 0 if self.row.archived else None
            lease.update(**changes)

    def _compare_rows(self) -> None:
        for name in self._row_differences():
            raise Conflict(f"Its row has another {name} in the target.", hint=HINT)

    def _row_differences(self) -> list[str]:
        return differences(self.target.row(self.uuid), self.row)

    # lists

    def _walk(self, ends: dict[type[Record], int], step: Step) -> Figures:
        """Go through all lists of both and compare; what the target lacks is noticed, written, or an error by now."""
        figures = Figures()
        self._step = step
        self._moved.clear()
        self._delivered.clear()
        for kind, last in ends.items():
            name, field = LISTS[kind]
            for given, there in self._pairs(kind, last):
                record = self._admitted(given, figures)
                line = codec.encode_line(record)
                if there is not None:
                    if codec.encode_line(there) != line:
                        raise Conflict(f"{name} {getattr(given, field)} differs in the target.", hint=HINT)
                elif self._wants(f"{name} {getattr(given, field)}"):
                    self._append(record, name, getattr(record, field), line)
                    figures.appended += 1
                figures.records += 1
                figures.size_bytes += len(line)
                figures.changed += record != given
                self.progress.add(records=1, size_bytes=len(line))
        return figures

    def _pairs(self, kind: type[R], last: int) -> Iterator[tuple[R, R | None]]:
        """Records of the source, each with that of the target which has its number."""
        name, field = LISTS[kind]
        theirs = self.target.read(self.uuid, kind)
        there = next(theirs, None)
        for given in self._given(kind, last):
            number = getattr(given, field)
            while there is not None and getattr(there, field) < number:
                self._only_there(name, getattr(there, field))
                there = next(theirs, None)
            if there is None:
                yield given, None
                continue
            if getattr(there, field) > number:
                later = getattr(there, field)
                raise Conflict(f"The target has {name} {later}, but not {number}, and numbers only grow.", hint=HINT)
            yield given, there
            there = next(theirs, None)
        while there is not None:
            self._only_there(name, getattr(there, field))
            there = next(theirs, None)

    def _given(self, kind: type[R], last: int) -> Iterator[R]:
        """The records of the source that are copied."""
        for record in self.source.read(self.uuid, kind, last=last):
            reason = self._flaw(record) if self.sound_only and isinstance(record, Event) else ""
            if not reason:
                yield record
            elif (sentence := f"It is left out: {reason}.") not in self.notes:
                self.notes.append(sentence)

    def _flaw(self, event: Event) -> str:
        """What is wrong with an event, as it was stored or as it is once it is masked."""
        return problem(event) or problem(self.target.sanitiser.record(event))

    def _only_there(self, name: str, number: int) -> None:
        if self.uuid not in self.flawed:
            raise Conflict(f"{name} {number} is in the target, but not in the source.", hint=HINT)
        if self._step != "prove":
            self.notes.append(f"{name} {number} cannot be read in the source; the target has it from earlier.")

    def _append(self, record: Record, name: str, number: int, line: bytes) -> None:
        # not `Lease.append`: number, time and tokens are given, and a key that came back after long stays where it is
        lease = self._writer()
        with lease.lock:
            lease.write(name, number, line, record)

    def _wants(self, what: str) -> bool:
        """Whether something that the target lacks is written now."""
        if self._step == "prove":
            raise Conflict(f"{what} did not arrive in the target.")
        self._lacks = True
        return self._step == "write"

    def _writer(self) -> Lease:
        if self._lease is None:
            self._lease = self.target.lease(self.uuid)
        return self._lease

    # the sanitiser, and blobs

    def _admitted(self, record: R, figures: Figures) -> R:
        """The record as the target may have it, its blobs first."""
        record = self.target.sanitiser.record(record)
        if isinstance(record, Event):
            admit = self._text if record.type == "sticky" else self.target.sanitiser.data
            moved = {blob.sha256: self._move(blob, figures, admit) for blob in named(record)}
            return msgspec.structs.replace(record, data=renamed(record.data, moved)) if moved else record
        if not isinstance(record, Message):
            return record
        changes: dict[str, object] = {}
        if record.blob is not None:
            changes["blob"] = self._move(record.blob, figures, self._text)
        if isinstance(record.content, list) and any(part.blob for part in record.content):
            changes["content"] = [self._with_blob(part, figures, self._way_of(part)) for part in record.content]
        if any(call.blob for call in record.tool_calls):
            changes["tool_calls"] = [self._with_blob(call, figures, self._text) for call in record.tool_calls]
        return msgspec.structs.replace(record, **changes) if changes else record

    def _with_blob(self, owner: Owner, figures: Figures, admit: Admit) -> Owner:
        if owner.blob is None:
            return owner
        return msgspec.structs.replace(owner, blob=self._move(owner.blob, figures, admit))

    def _text(self, data: bytes) -> bytes:
        return self.target.sanitiser.text(data.decode("utf-8", "replace")).encode()

    def _way_of(self, part: Part) -> Admit:
        return self._text if part.text is not None else partial(self.target.sanitiser.data, textual=is_textual(part))

    def _move(self, blob: Blob, figures: Figures, admit: Admit) -> Blob:
        """A blob that the target has, or gets; it passes the sanitiser, as it did when it was first stored."""
        if blob.sha256 in self._moved:
            return self._moved[blob.sha256]
        self._moved[blob.sha256] = blob
        try:
            data = self.source.blob(self.uuid, blob.sha256)
        except (NotFound, Corrupt) as error:
            self.source.report(Problem(self.uuid, f"blob {blob.sha256}", 0, error.message))
            return blob
        masked = admit(data)
        if masked != data:
            data, before = masked, blob.sha256
            sha256 = hashlib.sha256(data).hexdigest()
            blob = self._moved[before] = msgspec.structs.replace(blob, sha256=sha256, size_bytes=len(data))
        self._deliver(blob, data)
        figures.blobs += 1
        figures.size_bytes += len(data)
        return blob

    def _deliver(self, blob: Blob, data: bytes) -> None:
        if blob.sha256 in self._delivered:
            return
        self._delivered.add(blob.sha256)
        try:
            there = self.target.blob(self.uuid, blob.sha256)
        except NotFound:
            if self._wants(f"blob {blob.sha256}"):
                self._writer().put(data)
            return
        if there != data:
            raise Conflict(f"Blob {blob.sha256} differs in the target.", hint=HINT)


def differences(one: TaskRow, other: TaskRow) -> list[str]:
    """The columns in which two rows of a task differ, but for what is only about the store that has them."""
    one, other = _whole_or_stub(one), _whole_or_stub(other)
    return [name for name in COLUMNS if getattr(one, name) != getattr(other, name)]


def _whole_or_stub(row: TaskRow) -> TaskRow:
    """Whether a store keeps a task compressed is its own affair; whether only a stub is left is not."""
    return msgspec.structs.replace(row, archived="stub" if row.archived in {"going", "stub"} else "")
