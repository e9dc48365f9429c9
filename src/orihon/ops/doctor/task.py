"""One task in plain files: its directory, what its files say, its row, its lock, its lists."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from msgspec import ValidationError

from orihon import codec
from orihon.errors import Corrupt
from orihon.ops.doctor.entries import look_at_entries, look_at_folders
from orihon.ops.doctor.finding import Finding, note, problem
from orihon.ops.doctor.lists import ListLook
from orihon.ops.doctor.quiet import Table, holder_of, open_quietly, read_quietly, reason_of
from orihon.ops.progress import ProgressCounter
from orihon.records import Metadata, TaskRow
from orihon.stores.base import FORMAT
from orihon.stores.files import exists
from orihon.stores.jsonl import lock_file
from orihon.stores.jsonl.layout import DIRECTORIES, PLACES, decode_row
from orihon.stores.sql import rows

LEASE = frozenset({"lease_owner", "heartbeat_at"})  # what a row says beside what the files say
TRIES = 3
AT_WORK_SECONDS = 5


class Whereabouts(NamedTuple):
    """Where a task is."""

    base: Path
    place: str
    uuid: str

    @property
    def where(self) -> str:
        """As it is said to people."""
        return f"{self.place}/{self.uuid}"


def look_at_task(task: Whereabouts, table: Table | None, progress: ProgressCounter) -> list[Finding]:
    """Everything about one task. Whoever works on it meanwhile is no problem: then it is looked at again."""
    progress.add(tasks=1)
    for _ in range(TRIES):
        found = list(_look(task, table, progress))
        if not any(finding.level == "problem" for finding in found):
            break
        if not os.path.lexists(task.base / task.where):
            return []  # it has moved on, and is met again where it went
        if table is None or not (table.refresh() or is_at_work(task)):
            break
        time.sleep(0.1)  # whoever is at it has written one half, and the other comes in a moment
        progress = ProgressCounter()  # what is looked at twice is counted once
    return found


def is_at_work(task: Whereabouts) -> bool:
    """Whether somebody wrote the task's state just now."""
    try:
        return time.time() - (task.base / task.where / "state.json").stat().st_mtime < AT_WORK_SECONDS
    except OSError:
        return False


def _look(task: Whereabouts, table: Table | None, progress: ProgressCounter) -> Iterator[Finding]:
    try:
        with open_quietly(task.base / task.where, directory=True) as directory:
            holder = holder_of(directory)
            yield from look_at_entries(directory, task.where)
            yield from look_at_folders(directory, task.where)
            if holder is None:
                yield from _look_at_rest(task, directory, table)
            else:
                yield note(task.where, f"It is being written by {holder}: it was looked at, and is not repaired now.")
            yield from ListLook(task.uuid, directory, task.where, progress, held=holder is not None).all()
    except FileNotFoundError:
        return
    except OSError as error:
        yield problem(task.where, f"It cannot be opened: {reason_of(error)}")


def _look_at_rest(task: Whereabouts, directory: int, table: Table | None) -> Iterator[Finding]:
    """What only a task at rest can be asked: whether directory, files and row agree."""
    if exists(lock_file.NAME, directory):
        yield note(f"{task.where}/.lock", "Its holder is gone without giving the lease back.", fixable=True)
    for place in PLACES:
        if place != task.place and os.path.lexists(task.base / place / task.uuid):
            yield problem(task.where, f"There is a second directory of this task in {place}/. Keep the right one.")
    metadata, wrong = _metadata(task, directory)
    yield from wrong
    if metadata is None:
        return
    said, wrong = _state(task, directory, metadata)
    yield from wrong
    if said is not None and DIRECTORIES[said.status] != task.place:
        yield problem(
            task.where,
            f"state.json says {said.status}, so it belongs in {DIRECTORIES[said.status]}/: a move was interrupted.",
            fixable=True,
        )
    if table is not None:
        yield from _look_at_row(task, table, said)


def _metadata(task: Whereabouts, directory: int) -> tuple[Metadata | None, list[Finding]]:
    where = f"{task.where}/metadata.json"
    try:
        metadata = codec.decode_line(read_quietly("metadata.json", directory, codec.MAX_LINE_BYTES), Metadata)
    except FileNotFoundError:
        if all(name == "state.json" or name.startswith(".") for name in os.listdir(directory)):
            return None, [note(task.where, "The task was never finished being made.", fixable=True)]
        return None, [problem(where, "It is missing: what the task worked on is lost. Its lists are still there.")]
    except (OSError, Corrupt) as error:
        return None, [problem(where, f"It cannot be read: {reason_of(error)} Its lists are still there.")]
    if metadata.uuid != task.uuid:
        return None, [problem(where, f"It is of another task ({metadata.uuid}).")]
    if metadata.format > FORMAT:
        sentence = f"It has format {metadata.format}; this version of Orihon knows {FORMAT}."
        return metadata, [problem(where, f"{sentence} Use a newer one.")]
    return metadata, []


def _state(task: Whereabouts, directory: int, metadata: Metadata) -> tuple[TaskRow | None, list[Finding]]:
    where = f"{task.where}/state.json"
    try:
        return decode_row(metadata, read_quietly("state.json", directory, codec.MAX_LINE_BYTES)), []
    except FileNotFoundError:
        reason = "It is missing."
    except (OSError, Corrupt) as error:
        reason = f"It cannot be read: {reason_of(error)}"
    return None, [problem(where, f"{reason} It can be written again from the row and from where it is.", fixable=True)]


def _look_at_row(task: Whereabouts, table: Table, said: TaskRow | None) -> Iterator[Finding]:
    try:
        row = table.row(task.uuid)
    except ValidationError as error:
        yield problem(task.where, f"Its row in tasks.db makes no sense: {error}.", fixable=True)
        return
    if row is None:
        yield problem(task.where, "It has no row in tasks.db, so no list of tasks shows it.", fixable=True)
        return
    if row.lease_owner is not None:
        yield note(task.where, f"Its row names {row.lease_owner} as its holder, who is gone.", fixable=True)
    differing = [
        f"{name} {getattr(row, name)!r}, not {getattr(said, name)!r}"
        for name in rows.COLUMNS
        if said is not None and name not in LEASE and getattr(row, name) != getattr(said, name)
    ]
    if differing:
        yield problem(task.where, f"Its row differs from its files: it says {'; '.join(differing[:3])}.", fixable=True)
