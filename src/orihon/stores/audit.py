"""The audit: one line for each look at a store and for each refused attempt, appended and masked.

It is the file `audit.jsonl` of a store of files, and a table where many machines share one database. A line says who,
when, through which command, at what, what of it was read, and whether it was refused. A token is never in it.

{"timestamp": "2024-01-15T10:30:00.000Z", "user": "alice", "admin": false, "through": "show", "at": "task", "uuid": …,
 "read": ["messages"]}
{"timestamp": "2024-01-15T10:31:00.000Z", "user": "bob", "admin": false, "through": "show", "at": "task", "uuid": …,
 "denied": true}
"""

from __future__ import annotations

import logging
import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from orihon import codec
from orihon.access import Principal, Trail
from orihon.coerce import decode_json
from orihon.errors import NotFound, StoreError, StoreUnavailable, UsageError
from orihon.ingest import Sanitiser
from orihon.stores import is_postgres, open_store, require_store, sidecar_path
from orihon.stores.base import Options, Store
from orihon.stores.files import disk_errors, open_file, read_mask_key, write_all

if TYPE_CHECKING:
    from orihon.stores.sql.postgres import PostgresStore
    from orihon.stores.sql.postgres_pool import Server

log = logging.getLogger("orihon")

ADD = "WITH added AS (INSERT INTO audit (line) VALUES (%s)) SELECT 1"  # adding must not require the right to read
PAGE = "SELECT id, line FROM audit WHERE id > %s ORDER BY id LIMIT 1000"


class Audit(ABC):
    """The lines about looks at a store."""

    def __init__(self, sanitiser: Sanitiser) -> None:
        self.sanitiser = sanitiser

    @abstractmethod
    def append(self, line: bytes) -> None:
        """Put a line at the end."""

    @abstractmethod
    def lines(self) -> Iterator[bytes]:
        """Return all lines, the oldest first."""

    def add(self, **what: Any) -> None:
        """Append a line; a look that cannot be written down is not prevented, but the log says so."""
        line = {"timestamp": codec.now()} | self.sanitiser.value(what) | {"user": self.sanitiser.user(what["user"])}
        try:
            self.append(msgspec.json.encode(line))
        except StoreError as error:
            log.warning("The audit could not be written: %s", error)


class AuditFile(Audit):
    """The file `audit.jsonl` of a store."""

    def __init__(self, path: Path, sanitiser: Sanitiser) -> None:
        super().__init__(sanitiser)
        self.path = path

    def append(self, line: bytes) -> None:
        with disk_errors(str(self.path)):
            file = open_file(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            try:
                write_all(file, line + b"\n")
            finally:
                os.close(file)

    def lines(self) -> Iterator[bytes]:
        if not self.path.exists():
            return
        with disk_errors(str(self.path)):
            opened = os.fdopen(open_file(self.path, os.O_RDONLY), "rb")
        with opened as lines:
            yield from lines


class AuditTable(Audit):
    """The table `audit` of a PostgreSQL database: what people did on all machines, in one place."""

    def __init__(self, server: Server, sanitiser: Sanitiser) -> None:
        super().__init__(sanitiser)
        self._server = server

    def append(self, line: bytes) -> None:
        self._server.change(ADD, line)

    def lines(self) -> Iterator[bytes]:
        page: list[tuple[Any, ...]] = [(0, b"")]
        while page := self._server.all(PAGE, page[-1][0]):
            yield from (line for _, line in page)


@contextmanager
def open_trail(url: str, options: Options, principal: Principal, command: str) -> Iterator[Trail]:
    """Yield the trail of a store that the command does not open. Without a store it writes nothing.

    A store of files stays closed: it may be damaged, and opening it could repair what the doctor is to find.
    """
    with ExitStack() as stack:
        audit: Audit | None = None
        try:
            require_store(url)
            if path := sidecar_path(url, "audit.jsonl"):
                key_path = cast("Path", sidecar_path(url, "mask.key"))
                audit = AuditFile(path, Sanitiser(options.known, options.kinds, lambda: read_mask_key(key_path)))
            else:
                audit = open_audit(stack.enter_context(open_store(url, options)))
        except (UsageError, NotFound, StoreUnavailable):
            pass  # without a store there is no audit; the command itself says what is wrong
        except StoreError as error:
            log.warning("The audit could not be written: %s", error)
        yield Trail(audit, principal, command)


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the audit."""

    timestamp: str
    user: str = ""
    admin: bool = False
    through: str = ""  # the command, or the page
    at: str = ""  # what kind of thing
    uuid: str | None = None
    query: Any = None
    read: list[str] = []  # which parts of a task
    denied: bool = False  # it was refused
    more: dict[str, Any] = {}  # what else the line says, such as the words of a search
    line: dict[str, Any] = {}  # all that it says, as it is stored


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Which looks; every condition that is given must hold."""

    user: str | None = None
    uuid: str | None = None  # also its beginning
    through: str | None = None
    since: str | None = None
    until: str | None = None

    def fits(self, look: Look) -> bool:
        """Return whether a look matches the filters."""
        return (
            self.user in {None, look.user}
            and (self.uuid is None or (look.uuid or "").startswith(self.uuid))
            and self.through in {None, look.through}
            and (self.since is None or look.timestamp >= self.since)
            and (self.until is None or look.timestamp <= self.until)
        )


def looks(audit: Audit | None, chosen: Filter, limit: int) -> list[Look]:
    """Return the newest looks, the newest last; a line that cannot be read is left out."""
    newest: deque[Look] = deque(maxlen=limit)
    for line in () if audit is None else audit.lines():
        with suppress(ValueError):
            look = _look(decode_json(line, type=dict[str, Any]))
            if chosen.fits(look):
                newest.append(look)
    return list(newest)


def _look(line: dict[str, Any]) -> Look:
    own = {name: value for name, value in line.items() if name in _OWN}
    more = {name: value for name, value in line.items() if name not in own}
    return msgspec.convert(own | {"more": more, "line": line}, Look)


_OWN = frozenset(Look.__struct_fields__) - {"more", "line"}


def open_audit(store: Store) -> Audit | None:
    """Return the audit of a store; one that lives in memory has none."""
    if is_postgres(store.url):
        return AuditTable(cast("PostgresStore", store).server, store.sanitiser)
    path = store.sidecar_path("audit.jsonl")
    return None if path is None else AuditFile(path, store.sanitiser)
