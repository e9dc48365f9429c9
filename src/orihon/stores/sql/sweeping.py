"""How much is removed from a SQLite file without anybody having to wait for it.

A large task goes piece by piece, each in a transaction of its own, and others have their turn in between. The row goes
first, or says `going`, so the task is out of sight in one step. What a crash leaves is found by that word, or by its
metadata, which get number 0 and go last. Free pages are given back to the disk in small steps as well; a file that was
made by an earlier version cannot do that, and uses its free pages again instead.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence

from orihon.stores.sql.database import PAGE_BYTES, Database

PIECE_ROWS = 200
PIECE_PAGES = 32
LONGEST_PAUSE_SECONDS = 0.05

# ruff: noqa: S608 - the names of tables stand in this package
GONE = "NOT EXISTS (SELECT 1 FROM tasks WHERE uuid = ?1)"
GOING = "EXISTS (SELECT 1 FROM tasks WHERE uuid = ?1 AND archived = 'going')"
PIECE = (
    "DELETE FROM {table} WHERE uuid = ?1 AND {number} IN "
    "(SELECT {number} FROM {table} WHERE uuid = ?1 LIMIT {limit}) AND {condition}"
)
MARK = "UPDATE metadata SET id = 0 WHERE uuid = ?"
LEFT = "SELECT uuid FROM metadata WHERE id = 0"

Tables = Sequence[tuple[str, str]]  # each with the column that numbers it; the last one goes last


def sweep(database: Database, uuid: str, tables: Tables, condition: str) -> None:
    """Remove what a task has in these tables, for as long as the condition holds."""
    for table, number in tables:
        statement = PIECE.format(table=table, number=number, limit=PIECE_ROWS, condition=condition)
        while True:
            began = time.monotonic()
            if not database.change(statement, uuid):
                break
            # as long as it took, so that whoever waits gets his turn
            time.sleep(min(LONGEST_PAUSE_SECONDS, time.monotonic() - began))


def sweep_at_once(connection: sqlite3.Connection, uuid: str, tables: Tables) -> None:
    """The same inside a transaction, for the rare one who needs the place now."""
    for table, _ in tables:
        connection.execute(f"DELETE FROM {table} WHERE uuid = ?", (uuid,))


def finish(database: Database, tables: Tables) -> None:
    """Remove what is left of tasks whose deletion was interrupted."""
    for (uuid,) in database.all(LEFT):
        sweep(database, uuid, tables, GONE)


def give_back(database: Database) -> int:
    """Return free pages to the disk; how many bytes."""
    given = 0
    ((mode,),) = database.all("PRAGMA auto_vacuum")
    while mode and database.all("PRAGMA freelist_count") != [(0,)]:
        began, before = time.monotonic(), _pages(database)
        database.transact(_free_a_piece, size_bytes=PIECE_PAGES * PAGE_BYTES)
        freed = before - _pages(database)
        if freed <= 0:
            break  # somebody else needs them
        given += freed
        time.sleep(min(LONGEST_PAUSE_SECONDS, time.monotonic() - began))
    database.transact(_nothing, durable=True)  # which copies the log back, if it is long: only then is the file shorter
    return given * PAGE_BYTES


def _free_a_piece(connection: sqlite3.Connection) -> None:
    for _ in range(PIECE_PAGES):  # Python takes one step, which is one page, however many are asked for
        connection.execute("PRAGMA incremental_vacuum(1)").close()


def _nothing(_connection: sqlite3.Connection) -> None:
    pass


def _pages(database: Database) -> int:
    ((count,),) = database.all("PRAGMA page_count")
    return int(count)
