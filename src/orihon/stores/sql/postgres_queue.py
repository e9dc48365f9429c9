"""The queue of a PostgreSQL store: users take turns, no two workers get one task, and a new task wakes a worker."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import psycopg

from orihon.errors import LeaseHeld
from orihon.records import TaskRow
from orihon.stores.base import Queue
from orihon.stores.liveness import current_owner, is_alive
from orihon.stores.sql import rows
from orihon.stores.sql.postgres_pool import Connection
from orihon.stores.sql.store import parse_holder

if TYPE_CHECKING:
    from orihon.stores.sql.postgres import PostgresStore

log = logging.getLogger("orihon")

# ruff: noqa: S608 - the statements consist of constants
# the clock of the database, in the form of all timestamps
NOW = """to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')"""
AGO = NOW.replace("clock_timestamp()", "(clock_timestamp() - make_interval(secs => ?))")
LATER = NOW.replace("clock_timestamp()", "(clock_timestamp() + make_interval(secs => ?))")

CHANNEL = "orihon_queue"
LISTEN_AGAIN_SECONDS = 10
PER_USER = 32  # tasks of one user that are enough to choose the next one
RESERVED_SECONDS = 30  # for a child to start and take the lease

# one index lookup for each user with waiting tasks, however many there are
WAITING = f"""
WITH RECURSIVE users AS (
    (SELECT coalesce("user", '') AS name FROM tasks WHERE status = 'pending' ORDER BY 1 LIMIT 1)
    UNION ALL
    SELECT (SELECT coalesce("user", '') FROM tasks
            WHERE status = 'pending' AND coalesce("user", '') > users.name ORDER BY 1 LIMIT 1)
    FROM users WHERE users.name IS NOT NULL
)
SELECT {", ".join(f"first.{rows.quote(name)}" for name in rows.COLUMNS)} FROM users, LATERAL (
    SELECT * FROM tasks WHERE status = 'pending' AND coalesce("user", '') = users.name
    AND lease_owner IS NULL AND coalesce(reserved_until, '') < {NOW}
    ORDER BY priority DESC, created_at, uuid LIMIT {PER_USER}
) AS first"""
RESERVE = f"""
UPDATE tasks SET reserved_until = {LATER} WHERE uuid = (
    SELECT uuid FROM tasks WHERE uuid = ANY(?) AND status IN ('pending', 'paused')
    AND lease_owner IS NULL AND coalesce(reserved_until, '') < {NOW}
    ORDER BY array_position(?, uuid) LIMIT 1 FOR UPDATE SKIP LOCKED
) RETURNING uuid"""
RELEASE = "UPDATE tasks SET reserved_until = NULL WHERE uuid = ? AND lease_owner IS NULL RETURNING uuid"
# also tasks whose worker died between the lease and the first step: they wait and cannot be reserved
ABANDONED = f"""
SELECT {rows.SELECTED}, silent FROM (
    SELECT *, lease_owner IS NULL OR coalesce(heartbeat_at, '') < {AGO} AS silent FROM (
        SELECT * FROM tasks WHERE status = 'running'
        UNION ALL SELECT * FROM tasks WHERE status IN ('pending', 'paused') AND lease_owner IS NOT NULL
    ) AS held
) AS running WHERE silent OR lease_owner LIKE ?"""


class PostgresQueue(Queue):
    """The queue of a database that many machines share."""

    store: PostgresStore
    reserves = True

    def __init__(self, store: PostgresStore) -> None:
        super().__init__(store)
        self._listening: Connection | None = None
        self._listen_again_at = 0.0

    def waiting(self) -> Iterator[TaskRow]:
        return map(rows.parse_row_leniently, self.store.server.all(WAITING))

    def abandoned(self) -> Iterator[TaskRow]:
        # a holder on another machine is known to be gone by its silence, one on this machine also by its process
        here = f'%"boot_id":"{current_owner().boot_id}"%'
        for *values, is_silent in self.store.server.all(ABANDONED, self.store.options.expiry_seconds, here):
            row = rows.parse_row_leniently(tuple(values))
            if row.is_session:
                continue
            if is_silent or died_here(row.uuid, row.lease_owner or ""):
                yield row

    def reserve(self, uuids: Sequence[str]) -> str | None:
        reserved = self.store.server.change(RESERVE, RESERVED_SECONDS, list(uuids), list(uuids))
        return reserved[0][0] if reserved else None

    def release(self, uuid: str) -> None:
        self.store.server.change(RELEASE, uuid)

    def wait(self, seconds: float) -> bool:
        """Wait for a notification. Where there are none, behind pgbouncer or while the server is away, sleep."""
        try:
            if self._listening is None and time.monotonic() >= self._listen_again_at:
                self._listening = self.store.server.connect()
                self._listening.execute(f"LISTEN {CHANNEL}".encode())
            if self._listening is not None:
                return any(True for _ in self._listening.notifies(timeout=seconds, stop_after=1))
        except psycopg.Error as error:
            log.info("Notifications of the queue cannot be received now: %s", type(error).__name__)
            self.close()
            self._listen_again_at = time.monotonic() + LISTEN_AGAIN_SECONDS
        time.sleep(seconds)
        return False

    def close(self) -> None:
        """Close the connection that receives notifications."""
        if self._listening is not None:
            self._listening.close()
            self._listening = None


def died_here(uuid: str, owner: str) -> bool:
    """Return whether a holder is certainly dead. On another machine that is unknown; host names are not unique."""
    try:
        holder = parse_holder(uuid, owner)
    except LeaseHeld:
        return False
    return holder.boot_id == current_owner().boot_id and is_alive(holder) is False
