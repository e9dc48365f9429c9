"""A store in one SQLite file, looked at as a whole."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec

from orihon.coerce import decode_json
from orihon.ops.doctor.database import (
    BARE,
    being_deleted,
    copies_of,
    look_at_blobs,
    look_at_lines,
    orphans_in,
    without_a_task,
    without_metadata,
)
from orihon.ops.doctor.entries import look_at_mode
from orihon.ops.doctor.finding import Finding, mended, not_too_many, note, problem
from orihon.ops.doctor.quiet import peek, signature
from orihon.ops.doctor.table import BESIDE, EARLIER, look_at_table, look_at_version
from orihon.ops.progress import ProgressCounter
from orihon.records import Record
from orihon.stores.base import LISTS
from orihon.stores.files import PRIVATE_FILE
from orihon.stores.liveness import is_alive
from orihon.stores.sql import rows
from orihon.stores.sql.database import Database
from orihon.stores.sql.store import TABLES, Holder
from orihon.stores.sql.sweeping import LEFT

# ruff: noqa: S608 - the statements are put together from the names of tables and columns that stand in the code
FREE = "UPDATE tasks SET lease_owner = NULL, heartbeat_at = NULL WHERE uuid = ? AND lease_owner = ?"


def examine_sqlite(path: Path, progress: ProgressCounter, *, fix: bool) -> Iterator[Finding]:
    """Look at everything; with `fix`, put right modes and leases of the dead."""
    started = time.monotonic()
    found = list(_look_at_file(path))
    if fix and any(finding.fixable for finding in found):
        found = list(mended(found, lambda: _mend(path), lambda: _look_at_file(path)))
    yield from found
    if not any(finding.level == "problem" and _hides_the_rest(finding) for finding in found):
        yield from _contents(path, progress)
    yield Finding("ok", str(path), f"Looked at {progress} in {time.monotonic() - started:.1f} seconds.")


def _hides_the_rest(finding: Finding) -> bool:
    return not finding.fixable or finding.sentence.startswith(EARLIER)


def _look_at_file(path: Path) -> Iterator[Finding]:
    for file in _files(path):
        yield from look_at_mode(file.lstat(), file.name, PRIVATE_FILE)
    sound = True
    for finding in look_at_table(path, "integrity_check"):
        sound = False
        if finding.sentence.startswith(EARLIER):
            yield finding
            continue
        lost = "Here the file is the truth: keep a copy of it, and save what can be read with `orihon copy`."
        yield problem(finding.where, f"{finding.sentence} {lost}")
    yield from look_at_version(path.name, "a copy made with `orihon copy` is a good thing to have")
    if sound:
        for uuid, holder, _ in _dead(path):
            yield note(f"task {uuid}", f"Its holder, {holder}, is gone without giving the lease back.", fixable=True)


def _files(path: Path) -> list[Path]:
    return [
        file
        for end in ("", *BESIDE, "-reserve", ".mask.key", ".audit.jsonl")
        if (file := Path(f"{path}{end}")).exists()
    ]


def _dead(path: Path) -> Iterator[tuple[str, Holder, str]]:
    """Leases whose holder certainly does not run any more."""
    with peek(path) as connection:
        for uuid, owner in connection.execute("SELECT uuid, lease_owner FROM tasks WHERE lease_owner IS NOT NULL"):
            try:
                holder = decode_json(owner, type=Holder)
            except ValueError:
                continue  # written by hand; it expires
            if is_alive(holder) is False:
                yield uuid, holder, owner


def _mend(path: Path) -> None:
    dead = [(uuid, owner) for uuid, _, owner in _dead(path)]
    for file in _files(path):
        file.chmod(PRIVATE_FILE)  # before it is opened: SQLite gives this mode to the files that it makes beside it
    with closing(Database(path, ("tasks", "lists"))) as database:  # opening it adds missing columns
        for uuid, owner in dead:
            database.change(FREE, uuid, owner)


def _contents(path: Path, progress: ProgressCounter) -> Iterator[Finding]:
    before = signature(path)
    try:
        with peek(path) as connection:
            yield from _look(connection, progress)
    except sqlite3.DatabaseError as error:
        if signature(path) == before:
            yield problem(path.name, f"It is not a sound SQLite file: {error}.")
        else:
            yield note(path.name, "It was written while it was read, and not all was seen. Look again.")


def _look(connection: sqlite3.Connection, progress: ProgressCounter) -> Iterator[Finding]:
    for values in connection.execute(f"SELECT {', '.join(rows.COLUMNS)} FROM tasks"):
        progress.add(tasks=1)
        try:
            rows.row_of(values)
        except msgspec.ValidationError as error:
            yield problem(f"task {values[0]}", f"Its row makes no sense: {error}. Its lists are still there.")
    for kind, (name, _) in LISTS.items():
        yield from not_too_many(name, _list(connection, kind, name, progress))
        yield from without_a_task(connection.execute(orphans_in(TABLES[name][0])), TABLES[name][0])
    blobs = connection.execute("SELECT uuid, sha256, data FROM blobs")
    yield from not_too_many("blobs", look_at_blobs(blobs, progress))
    yield from without_a_task(connection.execute(orphans_in("blobs")), "blobs")
    yield from being_deleted(connection.execute(LEFT))
    yield from without_metadata(connection.execute(BARE))


def _list(
    connection: sqlite3.Connection, kind: type[Record], name: str, progress: ProgressCounter
) -> Iterator[Finding]:
    table, column = TABLES[name]
    chosen = ", ".join(("uuid", column, "CAST(line AS BLOB)", *copies_of(kind)))

    def has_blob(uuid: str, sha256: str) -> bool:
        found = connection.execute("SELECT 1 FROM blobs WHERE uuid = ? AND sha256 = ?", (uuid, sha256)).fetchone()
        return found is not None

    yield from look_at_lines(kind, connection.execute(f"SELECT {chosen} FROM {table}"), has_blob, progress)
