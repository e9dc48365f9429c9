"""Examination of a store in a database: SQLite and PostgreSQL, by the same statements.

A PostgreSQL database is read in one transaction, as it is at one moment, while other processes write.
"""

from __future__ import annotations

import hashlib
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from orihon.errors import LeaseHeld, OrihonError, StoreUnavailable
from orihon.ops.doctor.finding import (
    Finding,
    Line,
    check_lines,
    check_mode,
    limit_findings,
    note,
    problem,
    repair_and_recheck,
    report_figures,
)
from orihon.ops.progress import ProgressCounter
from orihon.records import Message, Record, TaskRow
from orihon.stores.base import LISTS
from orihon.stores.files import PRIVATE_FILE
from orihon.stores.liveness import is_alive
from orihon.stores.sql import rows
from orihon.stores.sql.database import SCHEMA_VERSION, Database
from orihon.stores.sql.store import LEFTOVERS, RELEASE, TABLES, LeaseHolder, parse_holder

if TYPE_CHECKING:
    from orihon.stores.sql.postgres_pool import Connection, Server

# ruff: noqa: S608 - the statements consist of names of tables and columns in the code
REPEATED_COLUMNS = ("role", "tokens", "timestamp", "key")  # of a message: they repeat what its line says
UNSAFE_SETTINGS = ("fsync", "full_page_writes", "synchronous_commit")
HELD = "SELECT uuid, lease_owner FROM tasks WHERE lease_owner IS NOT NULL"
HAS_BLOB = "SELECT 1 FROM blobs WHERE uuid = ? AND sha256 = ?"
NO_METADATA = "SELECT uuid FROM tasks WHERE NOT EXISTS (SELECT 1 FROM metadata WHERE metadata.uuid = tasks.uuid)"
ORPHANS = (
    "SELECT uuid, count(*) FROM {table} AS lost WHERE NOT EXISTS (SELECT 1 FROM tasks WHERE tasks.uuid = lost.uuid) "
    f"AND uuid NOT IN ({LEFTOVERS}) GROUP BY uuid"
)

COPIED_BYTES = 256 * 1024 * 1024
ATTEMPTS = 5
SOUND_SINCE = (3, 51, 3)
LOG_ENDINGS = ("-wal", "-shm", "-journal")
EARLIER = "It was made by an earlier version of Orihon"
_ROW = f"SELECT {rows.SELECTED} FROM tasks WHERE uuid = ?"
_PAGE = "SELECT uuid FROM tasks WHERE uuid > ? ORDER BY uuid LIMIT 1000"

Query = Callable[..., Iterator[tuple[Any, ...]]]  # from a statement with `?` and its values


def examine_sqlite(path: Path, progress: ProgressCounter, *, fix: bool) -> Iterator[Finding]:
    """Examine a SQLite file. With `fix`, correct modes and release the leases of dead processes."""
    findings = list(_check_file(path))
    if fix:
        findings = repair_and_recheck(findings, lambda: _repair_file(path), lambda: _check_file(path))
    yield from findings
    if not any(finding.level == "problem" and not _is_harmless(finding) for finding in findings):
        before = signature(path)
        try:
            with peek(path) as connection:

                def query(statement: str, *values: Any) -> Iterator[tuple[Any, ...]]:
                    return connection.execute(statement, values)

                yield from _check_contents(query, progress, "CAST(line AS BLOB)")
        except sqlite3.DatabaseError as error:
            if signature(path) == before:
                yield problem(path.name, f"It is not a sound SQLite file: {error}.")
            else:
                yield note(path.name, "It was written while it was read, and was not read completely. Try again.")
    yield report_figures(str(path), progress)


def examine_postgres(url: str, progress: ProgressCounter, *, fix: bool) -> Iterator[Finding]:
    """Examine a PostgreSQL database. With `fix`, release the leases of dead processes."""
    from orihon.stores.sql.migrations import require_tables  # noqa: PLC0415 - only with psycopg
    from orihon.stores.sql.postgres_pool import Server  # noqa: PLC0415

    with closing(Server(url, retry_seconds=0)) as server:
        try:
            require_tables(server)
        except OrihonError as error:
            yield problem(server.safe_url, f"{error.message} {error.hint}")
            return
        statement = "SELECT name, setting FROM pg_settings WHERE name = ANY(%s) AND setting = 'off'"
        for name, setting in server.all(statement, list(UNSAFE_SETTINGS)):
            yield note(server.safe_url, f"`{name}` is {setting} on this server: a crash can undo what was stored.")
        findings = [_report_dead(uuid, holder) for uuid, holder, _ in _dead_on_server(server)]
        yield from repair_and_recheck(findings, lambda: _release_on_server(server), list) if fix else findings
        with closing(server.connect()) as connection:
            yield from _check_snapshot(connection, progress)
        yield report_figures(server.safe_url, progress)


def _check_snapshot(connection: Connection, progress: ProgressCounter) -> Iterator[Finding]:
    from psycopg import IsolationLevel  # noqa: PLC0415

    connection.isolation_level = IsolationLevel.REPEATABLE_READ
    connection.read_only = True
    numbers = count()

    def query(statement: str, *values: Any) -> Iterator[tuple[Any, ...]]:
        statement = statement.replace("?", "%s")
        if values:
            yield from connection.execute(statement.encode(), values)
            return
        with connection.cursor(name=f"doctor_{next(numbers)}", binary=True) as cursor:
            cursor.itersize = 1 if " data " in statement else 200  # blobs are large
            cursor.execute(statement.encode())
            yield from cursor

    with connection.transaction():
        yield from _check_contents(query, progress, "line")


# leases


def _report_dead(uuid: str, holder: LeaseHolder) -> Finding:
    return note(f"task {uuid}", f"Its holder, {holder}, died without releasing the lease.", fixable=True)


def _parse_holders(leases: Iterator[tuple[str, str]]) -> Iterator[tuple[str, LeaseHolder, str]]:
    for uuid, owner in leases:
        try:
            yield uuid, parse_holder(uuid, owner), owner
        except LeaseHeld:
            continue  # not written by Orihon; it expires


def _dead_in_file(path: Path) -> list[tuple[str, LeaseHolder, str]]:
    with peek(path) as connection:
        return [lease for lease in _parse_holders(connection.execute(HELD)) if is_alive(lease[1]) is False]


def _dead_on_server(server: Server) -> list[tuple[str, LeaseHolder, str]]:
    """Return the leases of this machine whose holder is dead. For other machines that is not known."""
    from orihon.stores.sql.postgres_queue import died_here  # noqa: PLC0415

    return [lease for lease in _parse_holders(iter(server.all(HELD))) if died_here(lease[0], lease[2])]


def _release_on_server(server: Server) -> None:
    for uuid, _, owner in _dead_on_server(server):
        server.execute(RELEASE, uuid, owner)


# the SQLite file


def _is_harmless(finding: Finding) -> bool:
    """Return whether the contents can be examined in spite of a problem."""
    return finding.fixable and not finding.sentence.startswith(EARLIER)


def _check_file(path: Path) -> Iterator[Finding]:
    for file in _list_files(path):
        yield from check_mode(file.lstat().st_mode, file.name, PRIVATE_FILE)
    is_sound = True
    for finding in check_sqlite_file(path, "integrity_check"):
        if finding.level == "note" or finding.sentence.startswith(EARLIER):
            yield finding
        else:
            advice = "Keep a copy of the file, and save what can be read with `orihon copy`."
            yield problem(finding.where, f"{finding.sentence} {advice}")
        is_sound = is_sound and finding.level == "note"
    if is_sound:
        yield from (_report_dead(uuid, holder) for uuid, holder, _ in _dead_in_file(path))


def _list_files(path: Path) -> list[Path]:
    endings = ("", *LOG_ENDINGS, "-reserve", ".mask.key", ".audit.jsonl", ".statistics.json")
    return [file for ending in endings if (file := Path(f"{path}{ending}")).exists()]


def _repair_file(path: Path) -> None:
    dead = _dead_in_file(path)
    for file in _list_files(path):
        file.chmod(PRIVATE_FILE)  # before it is opened, because SQLite gives this mode to the log
    with closing(Database(path, ("tasks", "lists"))) as database:  # opening it adds missing columns
        for uuid, _, owner in dead:
            database.change(RELEASE, uuid, owner)


# rows, lists and blobs


def _check_contents(query: Query, progress: ProgressCounter, line: str) -> Iterator[Finding]:
    """Check rows, lists and blobs; `line` is the SQL expression for the bytes of a line."""
    ((progress.total,),) = query("SELECT count(*) FROM tasks")
    for values in query(f"SELECT {rows.SELECTED} FROM tasks"):
        progress.add(tasks=1)
        try:
            rows.parse_row(values)
        except msgspec.ValidationError as error:
            yield problem(f"task {values[0]}", f"Its row is invalid: {error}. Its lists are still there.")
    for kind, (name, _) in LISTS.items():
        yield from limit_findings(name, _check_list(query, kind, progress, line))
    yield from limit_findings("blobs", _check_blobs(query, progress))
    for table in (*(table for table, _ in TABLES.values()), "blobs"):
        for uuid, rows_left in query(ORPHANS.format(table=table)):
            yield problem(
                f"task {uuid}", f"It has {rows_left:,} rows in {table}, but none in tasks: they are never read."
            )
    for (uuid,) in query(LEFTOVERS):
        yield note(f"task {uuid}", "It is being deleted, or its deletion was interrupted; `orihon clean` finishes it.")
    for (uuid,) in query(NO_METADATA):
        yield problem(f"task {uuid}", "Its metadata are missing: only its row says what it worked on.")


def _check_list(query: Query, kind: type[Record], progress: ProgressCounter, line: str) -> Iterator[Finding]:
    name, field = LISTS[kind]
    table, number = TABLES[name]
    repeated = ((number,) if field else ()) + (REPEATED_COLUMNS if kind is Message else ())
    found = query(f"SELECT {', '.join(('uuid', number, line, *repeated))} FROM {table}")
    lines = (
        Line(uuid, f"task {uuid}, {name} {number}", "", data, dict(zip(repeated, values, strict=True)))
        for uuid, number, data, *values in found
    )
    yield from check_lines(kind, lines, lambda uuid, sha256: any(query(HAS_BLOB, uuid, sha256)), progress)


def _check_blobs(query: Query, progress: ProgressCounter) -> Iterator[Finding]:
    for uuid, sha256, data in query("SELECT uuid, sha256, data FROM blobs"):
        progress.add(size_bytes=len(data))
        if hashlib.sha256(data).hexdigest() != sha256:
            yield problem(f"task {uuid}, blob {sha256}", "Its sha256 differs, so it is not what was stored.")


# a SQLite file that other processes may write, read without changing it


@contextmanager
def peek(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a SQLite file with its log, without changing either."""
    with tempfile.TemporaryDirectory(prefix="orihon-") as folder:
        copy = Path(folder) / path.name
        if not any(_size(path, end) for end in ("-wal", "-journal")):
            url = f"{path.absolute().as_uri()}?immutable=1"  # SQLite then creates no -shm
        elif _copy_with_log(path, copy):
            url = copy.as_uri()
        else:
            url = f"{path.absolute().as_uri()}?mode=ro"  # too large or too busy to copy; may refresh its -shm
        with closing(sqlite3.connect(url, uri=True)) as connection:
            yield connection


def _copy_with_log(path: Path, copy: Path) -> bool:
    """Copy file and log of one moment. The log only grows, unless it is checkpointed, which changes the file."""
    if sum(_size(path, end) for end in ("", "-wal")) > COPIED_BYTES:
        return False
    for _ in range(ATTEMPTS):
        before = _stamp(path)
        for end in ("", "-wal", "-journal"):
            with suppress(FileNotFoundError):
                shutil.copyfile(f"{path}{end}", f"{copy}{end}")
        if _stamp(path) == before:
            return True
    return False


def signature(path: Path) -> tuple[object, ...]:
    """Return a value that changes with every commit."""
    return _stamp(path), _stamp(Path(f"{path}-wal"))


def _size(path: Path, end: str) -> int:
    stamp = _stamp(Path(f"{path}{end}"))
    return stamp[1] if stamp else 0


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def check_sqlite_file(path: Path, pragma: str) -> list[Finding]:
    """Check that a SQLite file is sound and has the columns of a task, and report a version with a known bug."""
    for _ in range(ATTEMPTS):
        before = signature(path)
        findings = list(_check_once(path, pragma))
        if not findings or signature(path) == before:
            break  # else it was written meanwhile, which can look like damage
    if sqlite3.sqlite_version_info < SOUND_SINCE:
        sentence = (
            f"SQLite {sqlite3.sqlite_version} has a rare bug, fixed in 3.51.3, by which a commit can be lost when two "
            "processes write. Orihon avoids it; a copy made with `orihon copy` is still a good thing to have."
        )
        findings.append(note(path.name, sentence))
    return findings


def _check_once(path: Path, pragma: str) -> Iterator[Finding]:
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


class TaskTable:
    """The rows in `tasks.db`: of an open database, else of the file as it is now."""

    def __init__(self, path: Path, database: Database | None = None) -> None:
        self.path, self._database, self._stack = path, database, ExitStack()
        if database is None:
            self._open()

    def _open(self) -> None:
        self._signature = signature(self.path)
        self._connection = self._stack.enter_context(peek(self.path))

    def query(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        if self._database is not None:
            return self._database.all(statement, *values)
        for _ in range(ATTEMPTS):
            try:
                return self._connection.execute(statement, values).fetchall()
            except sqlite3.DatabaseError:
                if not self.refresh():  # the file did not change meanwhile, so it is damaged
                    raise
        raise StoreUnavailable(f"{self.path} changes too fast to be examined.")

    def refresh(self) -> bool:
        """Reopen the file if it has changed, and return whether it had."""
        if self._database is not None or signature(self.path) == self._signature:
            return False
        self.close()
        self._open()
        return True

    def row(self, uuid: str) -> TaskRow | None:
        """Return the row of a task. Raise ValidationError if a column holds an invalid value."""
        found = self.query(_ROW, uuid)
        return rows.parse_row(found[0]) if found else None

    def uuids(self) -> Iterator[str]:
        """Yield the ids of all rows."""
        page = [""]
        while page := [uuid for (uuid,) in self.query(_PAGE, page[-1])]:
            yield from page

    def close(self) -> None:
        """Close the file."""
        self._stack.close()
