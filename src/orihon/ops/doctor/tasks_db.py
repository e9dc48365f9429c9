"""`tasks.db`: whether it is sound, and how it is rebuilt from the files of the tasks."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path

from msgspec import ValidationError

from orihon import codec
from orihon.errors import Corrupt, LeaseHeld, UsageError
from orihon.ops.doctor.finding import Finding, note, problem
from orihon.ops.doctor.readonly import TaskTable, find_holder, peek, signature
from orihon.records import Metadata, TaskRow
from orihon.stores.files import Refused, directory_handle, read_file, sync_directory
from orihon.stores.jsonl.layout import PLACES, decode_row, guess_row
from orihon.stores.sql import rows
from orihon.stores.sql.database import SCHEMA_VERSION, Database
from orihon.stores.validation import validate_task_id

NAME = "tasks.db"
FRESH = ".tasks.db.new"
EARLIER = "It was made by an earlier version of Orihon"
SOUND_SINCE = (3, 51, 3)
LOG_ENDINGS = ("-wal", "-shm", "-journal")
HINT = "Stop the processes that use this store, then rebuild."


def check_sqlite_version(where: str) -> Iterator[Finding]:
    """Report a version of SQLite that has a known bug."""
    if sqlite3.sqlite_version_info < SOUND_SINCE:
        yield note(
            where,
            f"SQLite {sqlite3.sqlite_version} has a rare bug, fixed in 3.51.3, by which a commit can be lost when two "
            "processes write. Orihon avoids it; a copy made with `orihon copy` is still a good thing to have.",
        )


def check_table(path: Path, pragma: str = "quick_check") -> Iterator[Finding]:
    """Check that a SQLite file is sound and has the columns of a task. All findings are fixable for `tasks.db`."""
    for _ in range(3):
        before = signature(path)
        findings = list(_check_table(path, pragma))
        if not findings or signature(path) == before:
            break  # else it was written meanwhile, which can look like damage
    yield from findings


def _check_table(path: Path, pragma: str) -> Iterator[Finding]:
    try:
        with peek(path) as connection:
            for (message,) in connection.execute(f"PRAGMA {pragma}(10)"):
                if message != "ok":
                    yield problem(path.name, f"SQLite says: {message}.", fixable=True)
            ((version,),) = connection.execute("PRAGMA user_version")
            columns = {name for _, name, *_ in connection.execute("PRAGMA table_info(tasks)")}
    except sqlite3.DatabaseError as error:
        yield problem(path.name, f"It is not a sound SQLite file: {error}.", fixable=True)
        return
    missing = set(rows.COLUMNS) - columns
    if version > SCHEMA_VERSION:
        sentence = f"It has schema {version}; this version of Orihon knows {SCHEMA_VERSION}. Use a newer version."
        yield problem(path.name, sentence)
    elif missing and version < SCHEMA_VERSION:
        yield problem(path.name, f"{EARLIER} and is upgraded when it is opened.", fixable=True)
    elif missing:
        yield problem(path.name, f"Its table of tasks lacks {', '.join(sorted(missing))}.", fixable=True)


def is_task_id(name: str) -> bool:
    """Return whether a directory can belong to a task."""
    try:
        validate_task_id(name)
    except UsageError:
        return False
    return True


def iter_tasks(base: Path) -> Iterator[tuple[str, str]]:
    """Yield the place and the id of every task in a store."""
    for place in PLACES:
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(base / place) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False) and is_task_id(entry.name):
                    yield place, entry.name


def rebuild(base: Path) -> Finding:
    """Rebuild `tasks.db` from the files and keep the old one. Raise LeaseHeld if the store is in use."""
    _refuse_if_used(base)
    for end in ("", *LOG_ENDINGS):
        (base / f"{FRESH}{end}").unlink(missing_ok=True)
    with closing(Database(base / FRESH, ("tasks",))) as database:
        count = _fill(database, base)
    kept_as = _keep_old(base)
    (base / FRESH).replace(base / NAME)
    sync_directory(base)
    kept = f"; the old one is {kept_as}" if kept_as else ""
    return Finding("fixed", NAME, f"It was rebuilt from the files, with {count:,} rows{kept}.")


def _fill(database: Database, base: Path) -> int:
    with ExitStack() as stack:
        old: TaskTable | None = None
        if (base / NAME).exists() and not any(_check_table(base / NAME, "quick_check")):
            old = stack.enter_context(closing(TaskTable(base / NAME)))

        def fill(connection: sqlite3.Connection) -> int:
            found = (_read_row(base, place, uuid, old) for place, uuid in iter_tasks(base))
            count = 0
            for row in filter(None, found):
                rows.insert(connection, row)
                count += 1
            return count

        return database.transact(fill, durable=True)


def _read_row(base: Path, place: str, uuid: str, old: TaskTable | None) -> TaskRow | None:
    """Return the row that the files of a task say, or else the old row."""
    try:
        known = old.row(uuid) if old is not None else None
    except ValidationError:
        known = None
    try:
        with directory_handle(base / place / uuid) as dir_fd:
            metadata = codec.decode_line(read_file("metadata.json", dir_fd), Metadata)
            with suppress(OSError, Corrupt, Refused):
                return decode_row(metadata, read_file("state.json", dir_fd))
    except (OSError, Corrupt, Refused):
        return known
    return guess_row(metadata, place, known)


def _refuse_if_used(base: Path) -> None:
    for place, uuid in iter_tasks(base):
        with suppress(OSError, Refused), directory_handle(base / place / uuid) as dir_fd:
            if holder := find_holder(dir_fd):
                sentence = f"Task {uuid} is being written by {holder}, which would go on writing to the old tasks.db."
                raise LeaseHeld(sentence, owner=holder, hint=HINT)
    if not (base / NAME).exists():
        return
    with suppress(sqlite3.DatabaseError), closing(sqlite3.connect(base / NAME, timeout=0)) as connection:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("COMMIT")  # closing then copies the log back, so that the old file is complete
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                raise LeaseHeld("tasks.db is open in another process.", hint=HINT) from error
            raise


def _keep_old(base: Path) -> str:
    """Link the old file to a second name, so that there is a `tasks.db` at every moment, and return that name."""
    if not (base / NAME).exists():
        return ""
    stamp = codec.now().translate(str.maketrans("", "", "-:."))
    kept_as = f"{NAME}.old-{stamp}"
    for end in ("", *LOG_ENDINGS):
        with suppress(FileNotFoundError):
            (base / f"{kept_as}{end}").hardlink_to(base / f"{NAME}{end}")
    sync_directory(base)
    for end in LOG_ENDINGS:  # the new file must not meet the log of the old one
        (base / f"{NAME}{end}").unlink(missing_ok=True)
    return kept_as
