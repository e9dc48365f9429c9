"""What PostgreSQL says, in our words: one sentence and a way out, and never a password.

What must be right is `passes` and `comes_back`: whether an error is of the kind that goes away by itself (a server that
restarts, a connection that was cut), so that whoever met it may try again.
"""

from __future__ import annotations

import re

import psycopg
from psycopg import errors

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

# a server that starts, stops, restarts, is full, or is a standby since a failover; two transactions in each other's way
PASSING = ("57P01", "57P02", "57P03", "57P05", "53300", "25006", "40001", "40P01")
MIGRATE = "`orihon migrate URL`, as the owner of the database, makes the tables and brings them up to date."

# what a refused connection says, and what helps; libpq gives no code for these
_LASTING = (
    ("password", "Check the password in the URL, in PGPASSWORD or in ~/.pgpass."),
    ("no pg_hba.conf entry", "The server's pg_hba.conf decides who may come from where."),
    ("authentication failed", "The server's pg_hba.conf decides who may come from where, and how."),
    ("does not exist", "Check the names in the URL: postgresql://USER@HOST/DATABASE; `createdb` makes a database."),
    ("permission denied", "The role needs the right to CONNECT to this database."),
    ("could not translate host name", "Check the host in the URL."),
    ("does not support SSL", "Check `sslmode` in the URL."),
    ("certificate", "Check `sslmode` in the URL, and the certificates."),
)
_AWAY = "Check that the server runs and can be reached from here, then try again."


def passes(error: psycopg.Error) -> bool:
    """Whether the same statement may go well in a moment, on another connection."""
    if error.sqlstate is not None:
        return error.sqlstate in PASSING or error.sqlstate.startswith("08")
    return isinstance(error, psycopg.OperationalError)


def comes_back(error: psycopg.Error) -> bool:
    """Whether a server that cannot be reached may be there in a moment."""
    return not _lasting(str(error))


def refused_connection(error: psycopg.Error, shown: str) -> OrihonError:
    """Why nobody could be reached, as it is said to people."""
    hint = _lasting(str(error))
    sentence = f"PostgreSQL at {shown} cannot be used: {_cause(str(error))}."
    return StoreUnavailable(sentence, hint=hint or _AWAY, retryable=not hint)


def broken_off(error: psycopg.Error, shown: str, *, writing: bool, began: bool) -> OrihonError:
    """The connection was lost, and could not be had again in time."""
    cause = _cause(str(error))
    if writing and began:
        return OutcomeUnknown(f"The connection to PostgreSQL at {shown} broke during a write: {cause}.")
    if writing:
        return NotWritten(f"PostgreSQL at {shown} cannot be reached: {cause}.", hint=_AWAY)
    return StoreUnavailable(f"PostgreSQL at {shown} cannot be reached: {cause}.", hint=_AWAY)


def translated(error: psycopg.Error, shown: str, *, writing: bool) -> OrihonError:  # noqa: PLR0911 - a table
    """What the server answered to a statement, in our words; nothing of it was written."""
    cause = _cause(error.diag.message_primary or str(error))
    match error:
        case errors.UniqueViolation():
            return Conflict(f"The database has this already: {cause}.")
        case errors.InsufficientPrivilege():
            sentence = f"The role may not do this in {shown}: {cause}."
            hint = "The owner of the database grants rights; docs/scale.md shows which."
            return StoreUnavailable(sentence, hint=hint, retryable=False)
        case errors.UndefinedTable() | errors.UndefinedColumn() | errors.UndefinedFunction():
            return SchemaMismatch(f"The tables in {shown} are not those of this version: {cause}.", hint=MIGRATE)
        case errors.UndefinedObject():
            return UsageError(f"{cause[:1].upper()}{cause[1:]}.", hint="`CREATE ROLE name LOGIN` makes a role.")
        case errors.ProgramLimitExceeded() | errors.DataException() | psycopg.DataError():
            return UsageError(f"PostgreSQL cannot keep this: {cause}.", hint="Give a shorter or a plainer value.")
        case errors.DataCorrupted() | errors.IndexCorrupted():
            return Corrupt(f"PostgreSQL at {shown} found broken data: {cause}.", hint="Restore a backup.")
    if writing:
        hint = "Look at the server's disk, settings and log, then repeat the call."
        return NotWritten(f"PostgreSQL at {shown} did not write: {cause}.", hint=hint)
    return StoreUnavailable(f"PostgreSQL at {shown} did not answer: {cause}.")


def _lasting(text: str) -> str:
    return next((hint for words, hint in _LASTING if words in text), "")


def _cause(text: str) -> str:
    """The heart of a message: its last reason, without the addresses that were tried."""
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    first = next((line for line in lines if "failed:" in line), lines[0] if lines else "no reason was given")
    said = re.split(r"failed: ", first)[-1]
    return re.sub(r"^(FATAL|ERROR|PANIC):\s+", "", said).rstrip(".:")
