"""A store of plain files, looked at as a whole."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

from orihon.errors import OrihonError, UsageError
from orihon.ops.doctor import table as tables
from orihon.ops.doctor.entries import is_id, look_at_entries, look_at_mode, strange
from orihon.ops.doctor.finding import Finding, mended, note, problem
from orihon.ops.doctor.quiet import OpenTable, PeekedTable, Table, holder_of, open_quietly
from orihon.ops.doctor.repair import Bench, mend_directories, mend_task
from orihon.ops.doctor.task import Whereabouts, is_at_work, look_at_task
from orihon.ops.progress import ProgressCounter
from orihon.stores import mounts
from orihon.stores.files import PRIVATE_DIRECTORY
from orihon.stores.jsonl.layout import NEW, PLACES, TRASH


def examine_files(base: Path, progress: ProgressCounter, *, fix: bool, rebuild: bool) -> Iterator[Finding]:
    """Look at everything, with `fix` repair what can be, with `rebuild` make `tasks.db` again first."""
    started = time.monotonic()
    if rebuild:
        yield tables.rebuild(base)
    found = list(_look_at_store(base))
    if fix and any(finding.fixable for finding in found):
        found = list(mended(found, lambda: _mend_store(base), lambda: _look_at_store(base)))
    yield from found
    sound = not any(finding.level == "problem" and finding.where == tables.NAME for finding in found)
    with ExitStack() as stack:
        table: Table | None = None
        bench = None
        if fix and sound:
            bench = stack.enter_context(Bench(base))
            table = OpenTable(bench.database)
        elif sound:
            table = stack.enter_context(closing(PeekedTable(base / tables.NAME)))
        yield from _tasks(base, table, bench, progress)
        if table is not None:
            yield from _rows_alone(base, table)
    yield Finding("ok", str(base), f"Looked at {progress} in {time.monotonic() - started:.1f} seconds.")


def _tasks(base: Path, table: Table | None, bench: Bench | None, progress: ProgressCounter) -> Iterator[Finding]:
    for place, name in tables.each_task(base):
        task = Whereabouts(base, place, name)
        found = look_at_task(task, table, progress)
        if bench is not None and any(finding.fixable for finding in found):
            yield from _mended_task(bench, task, found, table)
        else:
            yield from found


def _mended_task(bench: Bench, task: Whereabouts, found: list[Finding], table: Table | None) -> Iterator[Finding]:
    def look_again() -> list[Finding]:
        place = bench.place_of(task.uuid)  # it may have been moved to where it belongs
        return look_at_task(task._replace(place=place), table, ProgressCounter()) if place else []

    try:
        yield from mended(found, lambda: mend_task(bench, task.uuid, found), look_again)
    except OrihonError as error:
        if bench.place_of(task.uuid) != task.place or is_at_work(task):
            return  # somebody moved or deleted it meanwhile, and is at work on it
        yield from found
        yield problem(task.where, f"It could not be repaired: {error.message}")


def _look_at_store(base: Path) -> Iterator[Finding]:
    try:
        mounts.require_local(base)
    except UsageError as error:
        yield problem(".", f"{error.message} {error.hint}")
    with open_quietly(base, directory=True) as directory:
        yield from look_at_entries(directory, ".")
    for place in PLACES:
        if (base / place).is_dir() and not (base / place).is_symlink():
            yield from _look_at_place(base / place)
        else:
            yield problem(place, "There is no such directory in the store.", fixable=True)
    for entry in sorted(base.iterdir()):
        if entry.name.startswith(TRASH):
            sentence = "A deletion was interrupted; what is left of the task waits to be removed."
            yield note(entry.name, sentence, fixable=True)
        elif entry.name.startswith(NEW) and not _is_being_made(entry):
            yield note(entry.name, "A task was never finished being made, and nobody was told of it.", fixable=True)
        elif entry.name.startswith(f"{tables.NAME}.old-"):
            yield note(entry.name, "An older tasks.db, kept when it was made again. Remove it when you like.")
    if (base / tables.NAME).is_file():
        yield from tables.look_at_table(base / tables.NAME)
    else:
        yield problem(tables.NAME, "It is missing.", fixable=True)
    yield from tables.look_at_version(tables.NAME, "the files, not this table, are the truth")


def _is_being_made(path: Path) -> bool:
    try:
        with open_quietly(path, directory=True) as directory:
            return holder_of(directory) is not None
    except (OSError, OrihonError):
        return True  # it is in its place by now


def _look_at_place(place: Path) -> Iterator[Finding]:
    """The mode of one of the four directories, and what stands in it that is not a task."""
    yield from look_at_mode(place.lstat(), place.name, PRIVATE_DIRECTORY)
    with os.scandir(place) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False) and is_id(entry.name):
                continue
            here = f"{place.name}/{entry.name}"
            if entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False):
                yield note(here, "It is not a task, and is left alone.")
            else:
                yield strange(entry.stat(follow_symlinks=False).st_mode, here)


def _mend_store(base: Path) -> None:
    path = base / tables.NAME
    if not path.exists() or any(finding.fixable for finding in tables.look_at_table(path)):
        tables.rebuild(base)
    mend_directories(base)


def _rows_alone(base: Path, table: Table) -> Iterator[Finding]:
    for page in table.pages():
        for uuid in [uuid for uuid in page if not _has_directory(base, uuid)]:
            # asked again, because it may have been moving; and a deletion takes the row between directory and trash
            if _has_directory(base, uuid) or os.path.lexists(base / f"{TRASH}{uuid}"):
                continue
            table.refresh()
            if table.query("SELECT 1 FROM tasks WHERE uuid = ?", uuid):
                yield problem(
                    f"tasks.db, task {uuid}",
                    "The row has no directory: the lists of the task are lost, and the row is all that is left of it. "
                    "`--rebuild` makes a table without it and keeps the old one.",
                )


def _has_directory(base: Path, uuid: str) -> bool:
    return any(os.path.lexists(base / place / uuid) for place in PLACES)
