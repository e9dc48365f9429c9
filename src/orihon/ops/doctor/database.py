"""Lists and blobs in a database, SQLite or PostgreSQL: does a line say what it should, and is what it names there?"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from orihon import codec
from orihon.errors import Corrupt
from orihon.ops.blobs import iter_blobs
from orihon.ops.doctor.finding import Finding, note, problem
from orihon.ops.doctor.lists import LOST, TELL_EVERY, UNUSED, flaw_of
from orihon.ops.progress import ProgressCounter
from orihon.records import Message, Record
from orihon.stores.base import LISTS
from orihon.stores.sql.sweeping import LEFT

COPIES = ("role", "tokens", "timestamp", "key")  # what the table of messages says again beside the line

Rows = Iterable[tuple[Any, ...]]
HasBlob = Callable[[str, str], bool]  # from a uuid and a sha256


def copies_of(kind: type[Record]) -> tuple[str, ...]:
    """The columns that stand beside a line and repeat it."""
    return COPIES if kind is Message else ()


def look_at_lines(kind: type[Record], rows: Rows, has_blob: HasBlob, progress: ProgressCounter) -> Iterator[Finding]:
    """Rows of uuid, number, line and copies, as a table has them."""
    name, field = LISTS[kind]
    copies = copies_of(kind)
    size = count = 0
    for count, (uuid, number, line, *said) in enumerate(rows, 1):
        where = f"task {uuid}, {name} {number}"
        size += len(line)
        if count % TELL_EVERY == 0:
            progress.add(records=TELL_EVERY, size_bytes=size)
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
        if reason := flaw_of(record):
            yield problem(where, f"The line cannot be used: {reason}. {UNUSED}")
        if b'"sha256":' in line:
            yield from _missing(uuid, record, has_blob, where)
    progress.add(records=count % TELL_EVERY, size_bytes=size)


def _missing(uuid: str, record: Record, has_blob: HasBlob, where: str) -> Iterator[Finding]:
    for blob in iter_blobs(record):
        if not has_blob(uuid, blob.sha256):
            lost = f"{blob.size_bytes:,} bytes are lost. What the line itself says is still there."
            yield problem(where, f"It names blob {blob.sha256}, which is not there: {lost}")


def look_at_blobs(rows: Rows, progress: ProgressCounter) -> Iterator[Finding]:
    """Rows of uuid, sha256 and data."""
    for uuid, sha256, data in rows:
        progress.add(size_bytes=len(data))
        if hashlib.sha256(data).hexdigest() != sha256:
            sentence = "Its bytes are not those that were stored (their sha256 differs); whoever asks for it hears so."
            yield problem(f"task {uuid}, blob {sha256}", sentence)


def without_a_task(rows: Rows, table: str) -> Iterator[Finding]:
    """Rows of uuid and count."""
    for uuid, count in rows:
        yield problem(f"task {uuid}", f"It has {count:,} rows in {table}, but none in tasks, so nobody reads them.")


def being_deleted(rows: Rows) -> Iterator[Finding]:
    """Rows of uuid."""
    for (uuid,) in rows:
        yield note(f"task {uuid}", "Somebody deletes it, or was interrupted; `orihon clean` finishes that.")


def without_metadata(rows: Rows) -> Iterator[Finding]:
    """Rows of uuid."""
    for (uuid,) in rows:
        yield problem(f"task {uuid}", "Its metadata are missing: what it worked on is in its row only.")


def orphans_in(table: str) -> str:
    """The query for rows that belong to no task, nor to one that is being deleted."""
    return (
        f"SELECT uuid, count(*) FROM {table} AS lost "  # noqa: S608 - a name that stands in the code
        "WHERE NOT EXISTS (SELECT 1 FROM tasks WHERE tasks.uuid = lost.uuid) "
        f"AND uuid NOT IN ({LEFT}) GROUP BY uuid"
    )


BARE = "SELECT uuid FROM tasks WHERE NOT EXISTS (SELECT 1 FROM metadata WHERE metadata.uuid = tasks.uuid)"
