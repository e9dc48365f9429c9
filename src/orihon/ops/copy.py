"""`copy(source, target)`: tasks from one store to another, and the proof that they are equal.

A task is first compared with what the target has of it, then what is missing is appended, then everything is read back
from both and compared. So a copy that was interrupted goes on where it stopped, a finished one writes nothing when it
is run again, and a record that differs is an error that names it and changes nothing. What comes in is sanitised
like everything else; a record that is changed by it is compared as it was let in, and counted.

While a task is being copied, it is `paused` in the target; its own status comes with its row, last.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from orihon.errors import Conflict, Corrupt, LeaseHeld, NotFound, StoreUnavailable, UsageError
from orihon.ops.progress import OnProgress, ProgressCounter
from orihon.ops.taskcopy import Figures, TaskCopy
from orihon.records import TaskRow
from orihon.stores import is_postgres
from orihon.stores.base import Problem, Store
from orihon.stores.files import Refused
from orihon.stores.lookup import find_row

MANY = 1000  # sentences that are kept


class Copied(msgspec.Struct, kw_only=True):
    """What was done; equal in both stores, unless `failures` says otherwise."""

    source: str
    target: str
    tasks: int = 0
    records: int = 0  # compared, record by record, at the end
    blobs: int = 0
    size_bytes: int = 0  # of the lines and blobs that were compared
    appended: int = 0  # records that the target did not have
    changed: int = 0  # records that the sanitiser cleaned or masked on the way
    broken: int = 0  # what could not be read at the source
    notes: list[str] = []
    failures: list[str] = []
    seconds: float = 0

    def count(self, task: Figures) -> None:
        """One more task is equal in both stores."""
        self.tasks += 1
        for name in task.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(task, name))

    def note(self, sentence: str) -> None:
        """Something to know."""
        if len(self.notes) < MANY:
            self.notes.append(sentence)


def copy(source: Store, target: Store, *, tasks: Iterable[str] = (), on_progress: OnProgress = None) -> Copied:
    """Copy all tasks, or some; other tasks of the target are left alone. A task that fails does not stop the rest."""
    _refuse_if_same(source, target)
    started = time.monotonic()
    copied = Copied(source=source.url, target=target.url)
    progress = ProgressCounter(on_progress)
    flawed: set[str] = set()
    with _listening(source, copied, flawed):
        for row in _chosen(source, list(tasks)):
            progress.add(tasks=1)
            task = TaskCopy(source, target, row, progress, flawed)
            try:
                figures = task.run()
            except (Conflict, Corrupt, LeaseHeld, NotFound, Refused, StoreUnavailable, UsageError) as error:
                copied.failures.append(f"Task {row.uuid}: {error.message}")
            else:
                copied.count(figures)
            for sentence in task.notes:
                copied.note(f"Task {row.uuid}: {sentence}")
    copied.seconds = time.monotonic() - started
    return copied


def _chosen(source: Store, tasks: list[str]) -> Iterator[TaskRow]:
    if not tasks:
        yield from source.find()
        return
    for uuid in dict.fromkeys(tasks):
        yield find_row(source, uuid)


@contextmanager
def _listening(source: Store, copied: Copied, flawed: set[str]) -> Iterator[None]:
    """Hear what the source cannot read; each place is told once, though it is read more than once."""
    heard: set[tuple[str, str, int]] = set()
    before = source.options

    def report(problem: Problem) -> None:
        place = (problem.uuid, problem.where, problem.line)
        if place not in heard:
            heard.add(place)
            flawed.add(problem.uuid)
            copied.broken += 1
            copied.note(f"Task {problem.uuid} cannot be copied whole: {problem}")

    source.options = msgspec.structs.replace(before, report=report)
    try:
        yield
    finally:
        source.options = before


def _refuse_if_same(source: Store, target: Store) -> None:
    places = [Path(store.url.removeprefix("sqlite:///")) for store in (source, target)]
    there = all(place.exists() for place in places) and source.url != "memory:" != target.url
    same = is_postgres(source.url) and source.url == target.url
    if source is target or same or (there and places[0].samefile(places[1])):
        raise UsageError("Source and target are the same store.", hint="Copy to another place.")
