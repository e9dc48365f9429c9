"""How a task leaves a PostgreSQL database, without a long transaction and without anybody having to wait.

As in a SQLite file, the row goes first, or says `going`, so the task is out of sight in one step; its lists and blobs
follow in pieces, and what a crash leaves is found by that word, or by metadata with number 0, which go last. A piece is
taken from all lists at once, so that a task of ordinary size is gone in four statements. The room is used again after
the next autovacuum, which comes early: see `sql/postgres/004_figures.sql`.
"""

from __future__ import annotations

from orihon.stores.sql.postgres_pool import Server
from orihon.stores.sql.store import TABLES
from orihon.stores.sql.sweeping import LEFT, PIECE_ROWS, Tables

# ruff: noqa: S608 - the statements are put together from what stands here
# whoever deletes holds the lease until this step, and nobody needs it afterwards
GO = (
    "WITH gone AS (DELETE FROM tasks WHERE uuid = %s AND lease_owner = %s RETURNING uuid) "
    "UPDATE metadata SET id = 0 FROM gone WHERE metadata.uuid = gone.uuid RETURNING id"
)
FALL = (
    "UPDATE tasks SET archived = 'going', lease_owner = NULL, heartbeat_at = NULL "
    "WHERE uuid = %s AND lease_owner = %s RETURNING uuid"
)
FALLEN = "UPDATE tasks SET archived = 'stub', packed_bytes = 0 WHERE uuid = %s AND archived = 'going' RETURNING uuid"
GONE = "NOT EXISTS (SELECT 1 FROM tasks WHERE tasks.uuid = one.uuid)"
GOING = "EXISTS (SELECT 1 FROM tasks WHERE tasks.uuid = one.uuid AND archived = 'going')"
FORGET = "DELETE FROM metadata WHERE uuid = %s AND id = 0 RETURNING id"

# blobs behind the lines that name them, so that whoever reads meanwhile misses none
_LISTS = tuple(place for name, place in TABLES.items() if name != "metadata")
_SWEPT = (_LISTS, (("blobs", "sha256"),))
_PIECE = (
    "swept_{table} AS (DELETE FROM {table} USING one WHERE {table}.uuid = one.uuid AND {number} IN "
    f"(SELECT {{number}} FROM {{table}}, one WHERE {{table}}.uuid = one.uuid LIMIT {PIECE_ROWS}) "
    "AND {condition} RETURNING 1)"
)


def _sweep(tables: Tables, condition: str) -> str:
    pieces = ", ".join(_PIECE.format(table=table, number=number, condition=condition) for table, number in tables)
    counts = ", ".join(f"(SELECT count(*) FROM swept_{table})" for table, _ in tables)
    return f"WITH one AS (SELECT %s AS uuid), {pieces} SELECT greatest({counts})"


SWEEP = {condition: [_sweep(tables, condition) for tables in _SWEPT] for condition in (GONE, GOING)}


def go(server: Server, uuid: str, owner: str) -> None:
    """Remove a task whose lease the owner has."""
    server.change(GO, uuid, owner)
    finish_gone(server, uuid)


def fall(server: Server, uuid: str, owner: str) -> None:
    """Leave its row and its metadata of a task whose lease the owner has."""
    server.change(FALL, uuid, owner)
    finish_going(server, uuid)


def finish_going(server: Server, uuid: str) -> None:
    """Cut a task down to its stub, if that was begun."""
    sweep(server, uuid, GOING)
    server.change(FALLEN, uuid)


def finish_gone(server: Server, uuid: str) -> None:
    """Remove what is left of a task that is gone."""
    sweep(server, uuid, GONE)
    server.change(FORGET, uuid)


def finish(server: Server) -> None:
    """Remove what is left of tasks whose deletion was interrupted."""
    for (uuid,) in server.all(LEFT):
        finish_gone(server, uuid)


def sweep(server: Server, uuid: str, condition: str) -> None:
    """Remove lists and blobs, for as long as the condition holds."""
    for statement in SWEEP[condition]:
        while server.change(statement, uuid)[0][0] == PIECE_ROWS:
            pass
