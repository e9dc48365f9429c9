"""`restore(directory, authorized)`: tasks from a backup into a store, compared record by record.

A task that is not there comes whole, one of which only a stub is left gets its records back, and one that a restore
before this had begun is finished. A task that is there and differs is an error that names the difference and changes
nothing. A backup may have been in anybody's hands: see `generation` and `portablefile` for what is not believed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from orihon.errors import Conflict, Corrupt, NotFound, StoreError, UsageError
from orihon.ops.access import AuthorizedStore
from orihon.ops.generation import HINT, Entry, checksum, chosen, entries, file_of
from orihon.ops.portable import Portable, read_portable, take_in
from orihon.ops.progress import OnProgress, ProgressCounter
from orihon.ops.taskcopy import differences
from orihon.records import TaskRow
from orihon.task.lifecycle import ENDED

MANY = 1000  # sentences that are kept


class Restored(msgspec.Struct, kw_only=True):
    """What was done."""

    generation: str
    store: str
    restored: int = 0  # compared record by record afterwards
    equal: int = 0  # were there already
    records: int = 0
    blobs: int = 0
    failures: list[str] = []
    seconds: float = 0


def restore(
    directory: Path,
    authorized: AuthorizedStore,
    *,
    generation: str | None = None,
    tasks: Sequence[str] = (),
    on_progress: OnProgress = None,
) -> Restored:
    """Bring tasks back, all or some; one that fails does not stop the rest."""
    began, place = time.monotonic(), chosen(directory, generation)
    done = Restored(generation=str(place), store=authorized.store.url)
    progress = ProgressCounter(on_progress)
    for entry in _wanted(place, authorized, tasks):
        progress.add(tasks=1)
        try:
            _restore(place, entry, authorized, done, progress)
        except (StoreError, UsageError) as error:
            if len(done.failures) < MANY:
                done.failures.append(f"Task {entry.uuid}: {error.message}")
    authorized.record_access("restore", generation=done.generation, tasks=done.restored)
    done.seconds = time.monotonic() - began
    return done


def _wanted(place: Path, authorized: AuthorizedStore, tasks: Sequence[str]) -> Iterator[Entry]:
    """The tasks that were asked for and that this person may see; each is looked for before any is restored."""
    if not tasks:
        for _ in entries(place):
            pass  # a manifest that is broken at its end is not used at all
        yield from (entry for entry in entries(place) if authorized.allows(entry.user))
        return
    found: dict[str, list[Entry]] = {uuid: [] for uuid in tasks}
    for entry in entries(place):
        for uuid, listed in found.items():
            wanted = entry.uuid == uuid or (uuid and entry.uuid.startswith(uuid) and len(listed) <= 1)
            if wanted and authorized.allows(entry.user):
                listed.append(entry)
    for uuid, listed in found.items():
        whole = [entry for entry in listed if entry.uuid == uuid] or listed
        if not whole:
            raise NotFound(kind="task", id=uuid, hint=f"{place} does not have it. {HINT}")
        if len(whole) > 1:
            raise UsageError(f"Several tasks of the backup begin with {uuid!a}.", hint="Give more of the id.")
        yield whole[0]


def _restore(place: Path, entry: Entry, authorized: AuthorizedStore, done: Restored, progress: ProgressCounter) -> None:
    file = file_of(place, entry.uuid)
    if checksum(file) != (entry.size_bytes, entry.sha256):
        raise Corrupt(f"{file} is not the file that the manifest names.", where=str(file), hint=HINT)
    with read_portable(file, authorized.store.options) as portable:
        row = _row(portable, entry, authorized)
        is_new = not _is_there(authorized, row)
        figures = take_in(portable, authorized.store, on_progress=progress.on_progress)
    if is_new or figures.appended:
        done.restored += 1
    else:
        done.equal += 1
    done.records += figures.records
    done.blobs += figures.blobs


def _row(portable: Portable, entry: Entry, authorized: AuthorizedStore) -> TaskRow:
    (row,) = portable.find()
    if (row.uuid, row.user, row.status) != (entry.uuid, entry.user, entry.status) or row.status not in ENDED:
        raise Corrupt(f"{portable.path} is another task than the manifest says.", hint=HINT)
    if not authorized.allows(row.user):
        raise NotFound(kind="task", id=row.uuid)
    return row


def _is_there(authorized: AuthorizedStore, row: TaskRow) -> bool:
    """Whether the store has the task; one that is whole and not the same is a Conflict, also by its row alone."""
    try:
        there = authorized.store.row(row.uuid)
    except NotFound:
        return False
    if there.status in ENDED and there.archived not in {"going", "stub"}:
        for name in differences(there, row):
            raise Conflict(f"It is there already, with another {name}; it is left as it is.")
    return True
