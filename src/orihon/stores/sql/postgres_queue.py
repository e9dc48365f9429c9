"""The queue of a PostgreSQL store: users in turn, no two workers on one task, and a sign when something is put in."""

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
from orihon.stores.sql.store import holder_of

if TYPE_CHECKING:
    from orihon.stores.sql.postgres import PostgresStore

log = logging.getLogger("orihon")

# ruff: noqa: S608 - the statements are put together from what stands here
# the clock of the database, as all stores write the time
NOW = """to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')"""
AGO = NOW.replace("clock_timestamp()", "(clock_timestamp() - make_interval(secs => %s))")
LATER = NOW.replace("clock_timestamp()", "(clock_timestamp() + make_interval(secs => %s))")

CHANNEL = "orihon_queue"
LISTEN_AGAIN_SECONDS = 10
PER_USER = 32  # nobody needs to see a thousand tasks of one user to choose the next one
RESERVED_SECONDS = 30  # for a child to start and take the lease

# one look into the index per user that has something to do, however much he has
WAITING = f"""
WITH RECURSIVE users AS (
    (SELECT coalesce("user", '') AS name FROM tasks WHERE status = 'pending' ORDER BY 1 LIMIT 1)
    UNION ALL
    SELECT (SELECT coalesce("user", '') FROM tasks
            WHERE status = 'pending' AND coalesce("user", '') > users.name ORDER BY 1 LIMIT 1)
    FROM users WHERE users.name IS NOT NULL
)
SELECT {", ".join(f"first.{rows.quoted(name)}" for name in rows.COLUMNS)} FROM users, LATERAL (
    SELECT * FROM tasks WHERE status = 'pending' AND coalesce("user", '') = users.name
    AND lease_owner IS NULL AND coalesce(reserved_until, '') < {NOW}
    ORDER BY priority DESC, created_at, uuid LIMIT {PER_USER}
) AS first"""
RESERVE = f"""
UPDATE tasks SET reserved_until = {LATER} WHERE uuid = (
    SELECT uuid FROM tasks WHERE uuid = ANY(%s) AND status IN ('pending', 'paused')
    AND lease_owner IS NULL AND coalesce(reserved_until, '') < {NOW}
    ORDER BY array_position(%s, uuid) LIMIT 1 FOR UPDATE SKIP LOCKED
) RETURNING uuid"""
RELEASE = "UPDATE tasks SET reserved_until = NULL WHERE uuid = %s AND lease_owner IS NULL RETURNING uuid"
# also those whose worker died between the lease and the first step: they wait, and nobody could put them by
ABANDONED = f"""
SELECT {rows.SELECTED}, silent FROM (
    SELECT *, lease_owner IS NULL OR coalesce(heartbeat_at, '') < {AGO} AS silent FROM (
        SELECT * FROM tasks WHERE status = 'running'
        UNION ALL SELECT * FROM tasks WHERE status IN ('pending', 'paused') AND lease_owner IS NOT NULL
    ) AS held
) AS running WHERE silent OR lease_owner LIKE %s"""


class PostgresQueue(Queue):
    """The queue of a database that many machines share."""

    store: PostgresStore
    reserves = True

    def __init__(self, store: PostgresStore) -> None:
        super().__init__(store)
        self._listening: Connection | None = None
        self._listen_again_at = 0.0

    def waiting(self) -> Iterator[TaskRow]:
        return map(rows.usable_row, self.store.server.all(WAITING))

    def abandoned(self) -> Iterator[TaskRow]:
        # those of other machines by their silence, those of this one also by a look at the process
        here = f'%"boot_id":"{current_owner().boot_id}"%'
        found = self.store.server.all(ABANDONED, self.store.options.expiry_seconds, here)
        for *values, silent in found:
            row = rows.usable_row(tuple(values))
            if silent or died_here(row.uuid, row.lease_owner or ""):
                yield row

    def reserve(self, uuids: Sequence[str]) -> str | None:
        found = self.store.server.change(RESERVE, RESERVED_SECONDS, list(uuids), list(uuids))
        return found[0][0] if found else None

    def release(self, uuid: str) -> None:
        self.store.server.change(RELEASE, uuid)

    def wait(self, seconds: float) -> bool:
        """Where it cannot be listened to (behind pgbouncer, or while the server is away), time passes instead."""
        try:
            if self._listening is None and time.monotonic() >= self._listen_again_at:
                self._listening = self.store.server.connect()
                self._listening.execute(f"LISTEN {CHANNEL}".encode())
            if self._listening is not None:
                return any(True for _ in self._listening.notifies(timeout=seconds, stop_after=1))
        except psycopg.Error as error:
            log.info("The queue cannot be listened to now: %s", type(error).__name__)
            self.close()
            self._listen_again_at = time.monotonic() + LISTEN_AGAIN_SECONDS
        time.sleep(seconds)
        return False

    def close(self) -> None:
        """Listen no more."""
        if self._listening is not None:
            self._listening.close()
            self._listening = None


def died_here(uuid: str, owner: str) -> bool:
    """Whether a holder is certainly dead. On another machine nobody knows, and host names are not unique."""
    try:
        holder = holder_of(uuid, owner)
    except LeaseHeld:
        return False
    return holder.boot_id == current_owner().boot_id and is_alive(holder) is False
