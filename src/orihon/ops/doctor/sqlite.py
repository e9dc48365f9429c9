"""A store in one SQLite file, looked at as a whole."""

from __future__ import annotations

import hashlib
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from orihon import codec
from orihon.errors import Corrupt
from orihon.ops.blobs import named
from orihon.ops.doctor.entries import look_at_mode
from orihon.ops.doctor.finding import Finding, mended, not_too_many, note, problem
from orihon.ops.doctor.lists import LOST, TELL_EVERY
from orihon.ops.doctor.quiet import peek, signature
from orihon.ops.doctor.table import BESIDE, EARLIER, look_at_table, look_at_version
from orihon.ops.tally import Tally
from orihon.records import Message, Record
from orihon.stores import rows
from orihon.stores.base import LISTS
from orihon.stores.database import Database
from orihon.stores.fenced import TABLES, Holder
from orihon.stores.files import PRIVATE_FILE
from orihon.stores.identity import is_alive
from orihon.stores.sweeping import LEFT

# ruff: noqa: S608 - the statements are put together from the names of tables and columns that stand in the code
FREE = "UPDATE tasks SET lease_owner = NULL, heartbeat_at = NULL WHERE uuid = ? AND lease_owner = ?"
COPIES = ("role", "tokens", "timestamp", "key")  # what the table of messages says again beside the line


def examine_sqlite(path: Path, tally: Tally, *, fix: bool) -> Iterator[Finding]:
    """Look at everything; with `fix`, put right modes and leases of the dead."""
    started = time.monotonic()
    found = list(_look_at_file(path))
    if fix and any(finding.fixable for finding in found):
        found = list(mended(found, lambda: _mend(path), lambda: _look_at_file(path)))
    yield from found
    if not any(finding.level == "problem" and _hides_the_rest(finding) for finding in found):
        yield from _contents(path, tally)
    yield Finding("ok", str(path), f"Looked at {tally} in {time.monotonic() - started:.1f} seconds.")


def _hides_the_rest(finding: Finding) -> bool:
    return not finding.fixable or finding.sentence.startswith(EARLIER)


def _look_at_file(path: Path) -> Iterator[Finding]:
    for end in ("", *BESIDE):
        beside = Path(f"{path}{end}")
        if beside.exists():
            yield from look_at_mode(beside.lstat(), beside.name, PRIVATE_FILE)
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


def _dead(path: Path) -> Iterator[tuple[str, Holder, str]]:
    """Leases whose holder certainly does not run any more."""
    with peek(path) as connection:
        for uuid, owner in connection.execute("SELECT uuid, lease_owner FROM tasks WHERE lease_owner IS NOT NULL"):
            try:
                holder = msgspec.json.decode(owner, type=Holder)
            except msgspec.DecodeError:
                continue  # written by hand; it expires
            if is_alive(holder) is False:
                yield uuid, holder, owner


def _mend(path: Path) -> None:
    dead = [(uuid, owner) for uuid, _, owner in _dead(path)]
    with closing(Database(path, ("tasks", "lists"))) as database:  # opening it puts modes and columns right
        for uuid, owner in dead:
            database.change(FREE, uuid, owner)


def _contents(path: Path, tally: Tally) -> Iterator[Finding]:
    before = signature(path)
    try:
        with peek(path) as connection:
            yield from _look(connection, tally)
    except sqlite3.DatabaseError as error:
        if signature(path) == before:
            yield problem(path.name, f"It is not a sound SQLite file: {error}.")
        else:
            yield note(path.name, "It was written while it was read, and not all was seen. Look again.")


def _look(connection: sqlite3.Connection, tally: Tally) -> Iterator[Finding]:
    for values in connection.execute(f"SELECT {', '.join(rows.COLUMNS)} FROM tasks"):
        tally.add(tasks=1)
        try:
            rows.row_of(values)
        except msgspec.ValidationError as error:
            yield problem(f"task {values[0]}", f"Its row makes no sense: {error}. Its lists are still there.")
    for kind, (name, field) in LISTS.items():
        yield from not_too_many(name, _list(connection, kind, name, field, tally))
        yield from _orphans(connection, TABLES[name][0])
    yield from not_too_many("blobs", _blobs(connection, tally))
    yield from _orphans(connection, "blobs")
    for (uuid,) in connection.execute(LEFT):
        yield note(f"task {uuid}", "Somebody deletes it, or was interrupted; `orihon clean` finishes that.")
    bare = "SELECT uuid FROM tasks WHERE uuid NOT IN (SELECT uuid FROM metadata)"
    for (uuid,) in connection.execute(bare):
        yield problem(f"task {uuid}", "Its metadata are missing: what it worked on is in its row only.")


def _list(connection: sqlite3.Connection, kind: type[Record], name: str, field: str, tally: Tally) -> Iterator[Finding]:
    table, column = TABLES[name]
    copies = COPIES if kind is Message else ()
    chosen = ", ".join(("uuid", column, "CAST(line AS BLOB)", *copies))
    size = count = 0
    for count, (uuid, number, line, *said) in enumerate(connection.execute(f"SELECT {chosen} FROM {table}"), 1):
        where = f"task {uuid}, {name} {number}"
        size += len(line)
        if count % TELL_EVERY == 0:
            tally.add(records=TELL_EVERY, size_bytes=size)
            size = 0
        try:
            record = codec.decode_line(line, kind)
        except Corrupt as error:
            yield problem(where, f"{error.message} {LOST}")
            continue
        wrong = [copy for copy, value in zip(copies, said, strict=True) if getattr(record, copy) != value]
        if field and getattr(record, field) != number:
            yield problem(where, f"The line says it is number {getattr(record, field)}. It is left as it is.")
        elif wrong:
            yield problem(where, f"{' and '.join(wrong)} beside the line differ from the line, which is what counts.")
        if b'"sha256":' in line:
            yield from _missing(connection, uuid, record, where)
    tally.add(records=count % TELL_EVERY, size_bytes=size)


def _missing(connection: sqlite3.Connection, uuid: str, record: Record, where: str) -> Iterator[Finding]:
    for blob in named(record):
        values = (uuid, blob.sha256)
        if not connection.execute("SELECT 1 FROM blobs WHERE uuid = ? AND sha256 = ?", values).fetchone():
            lost = f"{blob.size_bytes:,} bytes are lost. What the line itself says is still there."
            yield problem(where, f"It names blob {blob.sha256}, which is not there: {lost}")


def _blobs(connection: sqlite3.Connection, tally: Tally) -> Iterator[Finding]:
    found: Iterator[tuple[Any, ...]] = connection.execute("SELECT uuid, sha256, data FROM blobs")
    for uuid, sha256, data in found:
        tally.add(size_bytes=len(data))
        if hashlib.sha256(data).hexdigest() != sha256:
            sentence = "Its bytes are not those that were stored (their sha256 differs); whoever asks for it hears so."
            yield problem(f"task {uuid}, blob {sha256}", sentence)


def _orphans(connection: sqlite3.Connection, table: str) -> Iterator[Finding]:
    known = f"SELECT uuid FROM tasks UNION ALL {LEFT}"
    lost = f"SELECT uuid, count(*) FROM {table} WHERE uuid NOT IN ({known}) GROUP BY uuid"
    for uuid, count in connection.execute(lost):
        yield problem(f"task {uuid}", f"It has {count:,} rows in {table}, but none in tasks, so nobody reads them.")
