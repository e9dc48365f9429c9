"""One PostgreSQL database: a pool of connections, work that is repeated when one breaks, and the server's errors.

A connection is borrowed for one piece of work, which ends with its transaction, so that none is held while the caller
does something else. When it breaks, the work is repeated on a new one, for up to half the time after which a lease
expires: a server that restarts is a pause and not an error. Therefore all work must be harmless to repeat. That of the
stores is, because appends have numbers, changes of a row have revisions, and leases have owners. Each piece is one
statement, so that a broken connection leaves no open transaction that would block the repetition.

docs/adr/0015-own-connection-pool.md says why `psycopg_pool` is not used. Messages never contain a password.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import psycopg
from psycopg import conninfo, errors
from psycopg.pq import TransactionStatus

from orihon.errors import (
    Conflict,
    Corrupt,
    NotWritten,
    OrihonError,
    OutcomeUnknown,
    SchemaMismatch,
    StoreUnavailable,
    UsageError,
)
from orihon.retry import Backoff

MAX_IDLE = 4  # connections; a process seldom needs more than two at a time
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.05, 1.0

# defaults of the URL: a server that is gone is noticed, and `pg_stat_activity` shows who is connected
DEFAULTS = {
    "connect_timeout": "10",
    "application_name": "orihon",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}

FORMS = {"host": re.compile(r"/.*|[\w.:,-]*"), "port": re.compile(r"[\d,]*"), "dbname": re.compile(r"[^@/]*")}

# a server that starts, stops, restarts, is full, or became a standby; two transactions that block each other
TRANSIENT_STATES = ("57P01", "57P02", "57P03", "57P05", "53300", "25006", "40001", "40P01")
MIGRATE_HINT = "`orihon migrate URL`, as the owner of the database, creates the tables and brings them up to date."
_UNREACHABLE_HINT = "Check that the server runs and can be reached from here, then try again."
_REFUSALS = (  # parts of libpq's message, which has no code, and hints; none of them goes away without the user
    ("password", "Check the password in the URL, in PGPASSWORD or in ~/.pgpass."),
    ("no pg_hba.conf entry", "The server's pg_hba.conf decides who may connect from where."),
    ("authentication failed", "The server's pg_hba.conf decides who may connect from where, and how."),
    ("does not exist", "Check the names in the URL: postgresql://USER@HOST/DATABASE; `createdb` makes a database."),
    ("permission denied", "The role needs the right to CONNECT to this database."),
    ("could not translate host name", "Check the host in the URL."),
    ("does not support SSL", "Check `sslmode` in the URL."),
    ("certificate", "Check `sslmode` in the URL, and the certificates."),
)

Connection = psycopg.Connection[tuple[Any, ...]]
T = TypeVar("T")


class Server:
    """The database that a URL names, and its connections."""

    def __init__(self, url: str, *, retry_seconds: float, synced: bool = True) -> None:
        self.options, self.safe_url = parse_url(url)
        self.retry_seconds = retry_seconds
        if not synced:
            self.options["options"] = f"{self.options.get('options', '')} -c synchronous_commit=off".strip()
        self._idle: list[Connection] = []
        self._lock = threading.Lock()
        self._process_id = os.getpid()
        self._closed = False
        try:
            first = self.connect()
        except psycopg.Error as error:  # no retry: the URL may be wrong
            raise _make_refusal(error, self.safe_url) from error
        self.role = first.info.user
        self._give_back(first)
        encoding = first.info.parameter_status("server_encoding")
        if encoding != "UTF8":
            self.close()
            hint = "Create one with `createdb --encoding UTF8 --template template0 NAME`."
            raise UsageError(f"The database {self.safe_url} is encoded in {encoding}, not in UTF8.", hint=hint)

    def connect(self) -> Connection:
        """Return a new connection, which the caller closes."""
        return psycopg.connect(autocommit=True, **self.options)

    def all(self, statement: str, *values: Any, prepare: bool | None = None) -> list[tuple[Any, ...]]:
        """Return the rows of a query. Values replace its `?`."""
        query = _convert(statement)
        return self.run(lambda conn: conn.execute(query, values, prepare=prepare, binary=True).fetchall())

    def change(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run one statement that writes, in its own transaction; return the rows that it returns."""
        query = _convert(statement)
        return self.run(lambda conn: conn.execute(query, values, binary=True).fetchall(), writing=True)

    def execute(self, statement: str, *values: Any) -> int:
        """Run one statement that writes, in its own transaction; return the number of rows."""
        query = _convert(statement)
        return self.run(lambda conn: conn.execute(query, values).rowcount, writing=True)

    def run(self, work: Callable[[Connection], T], *, writing: bool = False) -> T:
        """Run work; when the connection breaks, repeat it on another one for up to `retry_seconds`."""
        self._check_usable()
        connected = started = False

        def attempt() -> T:
            nonlocal connected, started
            connected = False
            connection = self._borrow()
            connected = started = True
            try:
                return work(connection)
            except psycopg.Error as error:
                if is_transient(error):
                    self._close_idle()  # most likely broken as well
                raise
            finally:
                self._give_back(connection)

        def should_retry(error: Exception) -> bool:
            return isinstance(error, psycopg.Error) and (
                is_transient(error) if connected else not _find_refusal_hint(error)
            )

        backoff = Backoff(
            max_seconds=self.retry_seconds,
            first_seconds=FIRST_PAUSE_SECONDS,
            longest_seconds=LONGEST_PAUSE_SECONDS,
            jitter=0,
        )
        try:
            return backoff.call(attempt, should_retry=should_retry)
        except psycopg.Error as error:
            if connected and not is_transient(error):
                raise _translate(error, self.safe_url, writing=writing) from error
            if not started and _find_refusal_hint(error):
                raise _make_refusal(error, self.safe_url) from error
            raise _make_disconnection(error, self.safe_url, writing=writing, started=started) from error

    def stop_retrying(self) -> None:
        """Do not wait any longer for a server that is away."""
        self.retry_seconds = 0

    def close(self) -> None:
        """Close all idle connections, and every other one when it is given back."""
        if self._process_id == os.getpid():  # the connections of a forked child are its parent's
            self._closed = True
            self._close_idle()

    def _borrow(self) -> Connection:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        return self.connect()

    def _close_idle(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _give_back(self, connection: Connection) -> None:
        _end_statement(connection)
        is_healthy = not connection.closed and connection.info.transaction_status is TransactionStatus.IDLE
        with self._lock:
            if is_healthy and not self._closed and len(self._idle) < MAX_IDLE:
                self._idle.append(connection)
                return
        connection.close()

    def _check_usable(self) -> None:
        if self._process_id != os.getpid():
            raise UsageError(
                f"{self.safe_url} was opened by the parent of this process, and a connection cannot be shared.",
                hint="Open the store again after a fork.",
            )
        if self._closed:
            raise StoreUnavailable(f"The store {self.safe_url} is closed.", hint="Open it again.", retryable=False)


def _convert(statement: str) -> bytes:
    """Return a statement in psycopg's form: `%s` instead of `?`."""
    return statement.replace("?", "%s").encode()


def _end_statement(connection: Connection) -> None:
    """Cancel a statement that Ctrl-C left running and wait for its end, so that it cannot commit later."""
    if connection.closed or connection.info.transaction_status is not TransactionStatus.ACTIVE:
        return
    with suppress(psycopg.Error):
        connection.pgconn.get_cancel().cancel()
        while connection.pgconn.get_result() is not None:
            pass


def parse_url(url: str) -> tuple[dict[str, Any], str]:
    """Return the arguments of a connection, and the URL without its password."""
    try:
        options = conninfo.conninfo_to_dict(url)
    except psycopg.Error:
        options = {"host": "?"}
    # a password that is not encoded ends up in the host, the port or the name, and would be shown there
    if any(not form.fullmatch(str(options.get(name, ""))) for name, form in FORMS.items()):
        hint = "It looks like postgresql://USER@HOST:PORT/DATABASE; `:`, `/`, `@` and `%` in a password are %-encoded."
        raise UsageError("The URL of the PostgreSQL database cannot be read.", hint=hint)
    host, parameters = str(options.get("host", "")), {"options": options.get("options")}
    if host.startswith("/"):  # a socket
        host, parameters["host"] = "", host
    user = f"{quote(str(options['user']))}@" if options.get("user") else ""
    port = f":{options['port']}" if options.get("port") else ""
    query = urlencode({name: value for name, value in parameters.items() if value}, quote_via=quote, safe="/")
    location = f"{user}{quote(host, safe=':,[]')}{port}/{quote(str(options.get('dbname', '')))}"
    return DEFAULTS | options, f"postgresql://{location}{'?' if query else ''}{query}"


# errors


def is_transient(error: psycopg.Error) -> bool:
    """Return whether the same statement may succeed in a moment, on another connection."""
    if error.sqlstate is not None:
        return error.sqlstate in TRANSIENT_STATES or error.sqlstate.startswith("08")
    return isinstance(error, psycopg.OperationalError)


def _find_refusal_hint(error: psycopg.Error) -> str:
    """Return the hint for a connection that will be refused again, or "" if the server may be back in a moment."""
    return next((hint for words, hint in _REFUSALS if words in str(error)), "")


def _make_refusal(error: psycopg.Error, url: str) -> OrihonError:
    hint = _find_refusal_hint(error)
    sentence = f"PostgreSQL at {url} cannot be used: {_extract_cause(str(error))}."
    return StoreUnavailable(sentence, hint=hint or _UNREACHABLE_HINT, retryable=not hint)


def _make_disconnection(error: psycopg.Error, url: str, *, writing: bool, started: bool) -> OrihonError:
    cause = _extract_cause(str(error))
    if writing and started:
        return OutcomeUnknown(f"The connection to PostgreSQL at {url} broke during a write: {cause}.")
    kind = NotWritten if writing else StoreUnavailable
    return kind(f"PostgreSQL at {url} cannot be reached: {cause}.", hint=_UNREACHABLE_HINT)


def _translate(error: psycopg.Error, url: str, *, writing: bool) -> OrihonError:  # noqa: PLR0911 - a table
    """Return the error for the server's answer to a statement. Nothing was written."""
    cause = _extract_cause(error.diag.message_primary or str(error))
    match error:
        case errors.UniqueViolation():
            return Conflict(f"The database has this already: {cause}.")
        case errors.InsufficientPrivilege():
            sentence = f"The role may not do this in {url}: {cause}."
            hint = "The owner of the database grants rights; docs/scale.md shows which."
            return StoreUnavailable(sentence, hint=hint, retryable=False)
        case errors.UndefinedTable() | errors.UndefinedColumn() | errors.UndefinedFunction():
            return SchemaMismatch(f"The tables in {url} are not those of this version: {cause}.", hint=MIGRATE_HINT)
        case errors.UndefinedObject():
            return UsageError(f"{cause[:1].upper()}{cause[1:]}.", hint="`CREATE ROLE name LOGIN` creates a role.")
        case errors.ProgramLimitExceeded() | errors.DataException() | psycopg.DataError():
            return UsageError(f"PostgreSQL cannot store this: {cause}.", hint="Give a shorter or a plainer value.")
        case errors.DataCorrupted() | errors.IndexCorrupted():
            return Corrupt(f"PostgreSQL at {url} found corrupt data: {cause}.", hint="Restore a backup.")
    if writing:
        hint = "Check the server's disk, settings and log, then repeat the call."
        return NotWritten(f"PostgreSQL at {url} did not write: {cause}.", hint=hint)
    return StoreUnavailable(f"PostgreSQL at {url} did not answer: {cause}.")


def _extract_cause(text: str) -> str:
    """Return the last reason in a message, without the addresses that were tried."""
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    first = next((line for line in lines if "failed:" in line), lines[0] if lines else "no reason was given")
    return re.sub(r"^(FATAL|ERROR|PANIC):\s+", "", first.split("failed: ")[-1]).rstrip(".:")
