"""`tasks.db`: whether it is sound, and how it is made again from the files, which are the truth."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

from msgspec import ValidationError

from orihon import codec
from orihon.errors import Corrupt, LeaseHeld
from orihon.ops.doctor.entries import is_id
from orihon.ops.doctor.finding import Finding, note, problem
from orihon.ops.doctor.quiet import PeekedTable, Table, holder_of, open_quietly, peek, read_quietly, signature
from orihon.records import Metadata, TaskRow
from orihon.stores.files import exists, sync_directory
from orihon.stores.jsonl.layout import KEPT, PLACES, decode_row, row_left
from orihon.stores.sql import rows
from orihon.stores.sql.database import SCHEMA_VERSION, Database

NAME = "tasks.db"
FRESH = ".tasks.db.new"
EARLIER = "It was made by an earlier version of Orihon"
SOUND_SINCE = (3, 51, 3)
BESIDE = ("-wal", "-shm", "-journal")


def look_at_version(where: str, remedy: str) -> Iterator[Finding]:
    """One sentence about an old SQLite."""
    if sqlite3.sqlite_version_info < SOUND_SINCE:
        yield note(
            where,
            f"SQLite {sqlite3.sqlite_version} has a rare bug, mended in 3.51.3, by which a commit can be lost when "
            f"two processes write; Orihon steers clear of it, and {remedy}.",
        )


def look_at_table(path: Path, check: str = "quick_check") -> Iterator[Finding]:
    """Whether the file is sound and has the columns that are needed; fixable, because the files are the truth."""
    for _ in range(3):
        before = signature(path)
        found = list(_look(path, check))
        if not found or signature(path) == before:
            break  # else somebody wrote while we read, and it may have been that
    yield from found


def _look(path: Path, check: str) -> Iterator[Finding]:
    try:
        with peek(path) as connection:
            for (said,) in connection.execute(f"PRAGMA {check}(10)"):
                if said != "ok":
                    yield problem(path.name, f"SQLite says: {said}.", fixable=True)
            ((version,),) = connection.execute("PRAGMA user_version")
            columns = {name for _, name, *_ in connection.execute("PRAGMA table_info(tasks)")}
    except sqlite3.DatabaseError as error:
        yield problem(path.name, f"It is not a sound SQLite file: {error}.", fixable=True)
        return
    missing = set(rows.COLUMNS) - columns
    if version > SCHEMA_VERSION:
        said = f"It has schema {version}; this version of Orihon knows {SCHEMA_VERSION}."
        yield problem(path.name, f"{said} Use a newer one.")
    elif missing and version < SCHEMA_VERSION:
        yield problem(path.name, f"{EARLIER}; it is brought up to date when it is opened next.", fixable=True)
    elif missing:
        yield problem(path.name, f"Its table of tasks lacks {', '.join(sorted(missing))}.", fixable=True)


def each_task(base: Path) -> Iterator[tuple[str, str]]:
    """Place and name of every task in a store."""
    for place in PLACES:
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(base / place) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False) and is_id(entry.name):
                    yield place, entry.name


def rebuild(base: Path) -> Finding:
    """Make a new `tasks.db` from the files and keep the old one aside; a store in use is refused with LeaseHeld."""
    _refuse_if_used(base)
    for end in ("", *BESIDE):
        (base / f"{FRESH}{end}").unlink(missing_ok=True)
    database = Database(base / FRESH, ("tasks",))
    try:
        count = _fill(database, base)
    finally:
        database.close()
    aside = _put_aside(base)
    (base / FRESH).replace(base / NAME)
    sync_directory(base)
    kept = f"; the old one is {aside}" if aside else ""
    return Finding("fixed", NAME, f"It was made again from the files, with {count:,} rows{kept}.")


def _fill(database: Database, base: Path) -> int:
    old = _old(base / NAME)

    def fill(connection: sqlite3.Connection) -> int:
        count = 0
        for place, uuid in each_task(base):
            row = _row(base, place, uuid, old)
            if row is not None:
                rows.insert(connection, row)
                count += 1
        return count

    try:
        return database.transact(fill, durable=True)
    finally:
        if old is not None:
            old.close()


def _old(path: Path) -> PeekedTable | None:
    """The rows so far, for tasks whose files do not tell; None when they cannot be read."""
    if not path.exists() or any(_look(path, "quick_check")):
        return None
    return PeekedTable(path)


def _row(base: Path, place: str, uuid: str, old: Table | None) -> TaskRow | None:
    try:
        known = old.row(uuid) if old is not None else None
    except ValidationError:
        known = None
    try:
        with open_quietly(base / place / uuid, directory=True) as directory:
            metadata = codec.decode_line(read_quietly("metadata.json", directory, codec.MAX_LINE_BYTES), Metadata)
            with suppress(OSError, Corrupt):
                return decode_row(metadata, read_quietly("state.json", directory, codec.MAX_LINE_BYTES))
            kept = read_quietly(KEPT, directory, codec.MAX_LINE_BYTES) if exists(KEPT, directory) else b""
    except (OSError, Corrupt):
        return known
    return row_left(metadata, place, kept=kept, known=known)


def _refuse_if_used(base: Path) -> None:
    for place, uuid in each_task(base):
        with suppress(OSError), open_quietly(base / place / uuid, directory=True) as directory:
            if holder := holder_of(directory):
                raise LeaseHeld(
                    f"Task {uuid} is being written by {holder}, who would go on writing to the old tasks.db.",
                    owner=holder,
                    hint="Stop what works on this store, then rebuild it.",
                )
    if not (base / NAME).exists():
        return
    with suppress(sqlite3.DatabaseError), closing(sqlite3.connect(base / NAME, timeout=0)) as connection:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("COMMIT")  # and closing it copies the log back, so that the old file is whole
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                hint = "Stop what works on this store, then rebuild it."
                raise LeaseHeld("tasks.db is open in another process.", hint=hint) from error
            raise


def _put_aside(base: Path) -> str:
    """A second name for the old file, so that there is a `tasks.db` at every moment."""
    if not (base / NAME).exists():
        return ""
    stamp = codec.now().translate(str.maketrans("", "", "-:."))
    aside = f"{NAME}.old-{stamp}"
    for end in ("", *BESIDE):
        with suppress(FileNotFoundError):
            (base / f"{aside}{end}").hardlink_to(base / f"{NAME}{end}")
    sync_directory(base)
    for end in BESIDE:  # a new file must not meet the log of the old one
        (base / f"{NAME}{end}").unlink(missing_ok=True)
    return aside
