"""One PostgreSQL database: connections that are kept, work that is repeated when one breaks, and where it is.

A connection is borrowed for one piece of work, which ends with its transaction, so nothing is held while a caller
thinks. When it breaks, the work is done again on a new one, for up to half the time that a lease lives without its
holder: a server that restarts is a pause and not an error. So every piece of work must be harmless to repeat; those
of the stores are, because appends have numbers, changes of a row have revisions, and leases have owners. And each is
one statement, so that a connection cut in the middle leaves no transaction behind that would block the repetition.

The connections are kept here and not by `psycopg_pool`: its threads keep the reason of a failure to themselves, wait
up to a minute before they try again, and do not survive a fork.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import psycopg
from psycopg import conninfo
from psycopg.pq import TransactionStatus

from orihon.errors import StoreUnavailable, UsageError
from orihon.stores.sql.postgres_errors import broken_off, comes_back, passes, refused_connection, translated

KEPT = 4  # idle connections; one process seldom needs more than two at a time
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.05, 1.0

# what a URL does not say: a server that is gone is noticed, and in `pg_stat_activity` it is seen who we are
DEFAULTS = {
    "connect_timeout": "10",
    "application_name": "orihon",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}

FORMS = {"host": re.compile(r"/.*|[\w.:,-]*"), "port": re.compile(r"[\d,]*"), "dbname": re.compile(r"[^@/]*")}

Connection = psycopg.Connection[tuple[Any, ...]]
T = TypeVar("T")


class Server:
    """The database that a URL names."""

    def __init__(self, url: str, *, patience_seconds: float, synced: bool = True) -> None:
        self.options, self.shown = place_of(url)
        self.patience_seconds = patience_seconds
        if not synced:
            self.options["options"] = f"{self.options.get('options', '')} -c synchronous_commit=off".strip()
        self._idle: list[Connection] = []
        self._lock = threading.Lock()
        self._process_id = os.getpid()
        self._closed = False
        try:
            first = self.connect()
        except psycopg.Error as error:  # whoever mistyped a URL hears of it at once
            raise refused_connection(error, self.shown) from error
        self.role = first.info.user
        self._give_back(first)
        encoding = first.info.parameter_status("server_encoding")
        if encoding != "UTF8":
            self.close()
            hint = "Make one with `createdb --encoding UTF8 --template template0 NAME`."
            raise UsageError(f"The database {self.shown} is encoded in {encoding}, not in UTF8.", hint=hint)

    def connect(self) -> Connection:
        """A new connection of one's own."""
        return psycopg.connect(autocommit=True, **self.options)

    def all(self, statement: str, *values: Any, prepare: bool | None = None) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        return self.run(lambda it: it.execute(_text(statement), values, prepare=prepare, binary=True).fetchall())

    def change(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """One statement that writes, in a transaction of its own; what it returns."""
        return self.run(lambda it: it.execute(_text(statement), values, binary=True).fetchall(), writing=True)

    def run(self, work: Callable[[Connection], T], *, writing: bool = False) -> T:
        """Do some work; when the connection breaks, do it again on another, as long as it makes sense."""
        self._check()
        give_up = time.monotonic() + self.patience_seconds
        pause, began = FIRST_PAUSE_SECONDS, False
        while True:
            try:
                connection = self._borrow()
            except psycopg.Error as error:
                lost, again = error, comes_back(error)
                if not again and not began:
                    raise refused_connection(error, self.shown) from error
            else:
                began = True
                try:
                    return work(connection)
                except psycopg.Error as error:
                    lost, again = error, passes(error)
                    if not again:
                        raise translated(error, self.shown, writing=writing) from error
                    self._drop_idle()  # they were idle on the same server, and are most likely cut as well
                finally:
                    self._give_back(connection)
            if not again or time.monotonic() + pause > give_up:
                raise broken_off(lost, self.shown, writing=writing, began=began) from lost
            time.sleep(pause)
            pause = min(LONGEST_PAUSE_SECONDS, pause * 2)

    def hurry(self) -> None:
        """Wait for a server that is away no longer: whoever closes a store has waited for it once."""
        self.patience_seconds = 0

    def close(self) -> None:
        """Let go of all connections."""
        if self._process_id == os.getpid():  # a child has nothing to give back
            self._closed = True
            self._drop_idle()

    def _borrow(self) -> Connection:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        return self.connect()

    def _drop_idle(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _give_back(self, connection: Connection) -> None:
        _end_statement(connection)
        healthy = not connection.closed and connection.info.transaction_status is TransactionStatus.IDLE
        with self._lock:
            if healthy and not self._closed and len(self._idle) < KEPT:
                self._idle.append(connection)
                return
        connection.close()

    def _check(self) -> None:
        if self._process_id != os.getpid():
            raise UsageError(
                f"{self.shown} was opened by the parent of this process, and a connection cannot be shared.",
                hint="Open the store again after a fork.",
            )
        if self._closed:
            raise StoreUnavailable(f"The store {self.shown} is closed.", hint="Open it again.", retryable=False)


def _end_statement(connection: Connection) -> None:
    """Cancel a statement that Ctrl-C left running and wait for its end, so that it cannot commit later."""
    if connection.closed or connection.info.transaction_status is not TransactionStatus.ACTIVE:
        return
    with suppress(psycopg.Error):
        connection.pgconn.get_cancel().cancel()
        while connection.pgconn.get_result() is not None:
            pass


def place_of(url: str) -> tuple[dict[str, Any], str]:
    """What libpq needs to connect, and the URL as it may be shown: without its password."""
    try:
        given = conninfo.conninfo_to_dict(url)
    except psycopg.Error:
        given = {"host": "?"}
    # a password that is not encoded ends up as part of a host, a port or a name, and would be shown with it
    odd = [name for name, form in FORMS.items() if not form.fullmatch(str(given.get(name, "")))]
    if odd:
        hint = "It looks like postgresql://USER@HOST:PORT/DATABASE; `:`, `/`, `@` and `%` in a password are %-encoded."
        raise UsageError("The URL of the PostgreSQL database cannot be read.", hint=hint)
    host, more = str(given.get("host", "")), {"options": given.get("options")}
    if host.startswith("/"):  # a socket
        host, more["host"] = "", host
    user = f"{quote(str(given['user']))}@" if given.get("user") else ""
    port = f":{given['port']}" if given.get("port") else ""
    query = urlencode({name: value for name, value in more.items() if value}, quote_via=quote, safe="/")
    place = f"{user}{quote(host, safe=':,[]')}{port}/{quote(str(given.get('dbname', '')))}"
    return DEFAULTS | given, f"postgresql://{place}{'?' if query else ''}{query}"


def _text(statement: str) -> bytes:
    return statement.encode()
