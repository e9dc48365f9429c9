"""The audit: one line for each look at a store, appended, masked, and readable by its owner alone.

{"timestamp": "2024-01-15T10:30:00.000Z", "user": "alice", "admin": false, "through": "show", "at": "task", "uuid": …}
"""

from __future__ import annotations

import logging
import os
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from orihon import codec
from orihon.errors import StoreError
from orihon.secrets import KnownSecrets, mask_value
from orihon.secrets.masking import mask_few
from orihon.stores.base import Store
from orihon.stores.files import directory_handle, disk_errors, open_file, write_all
from orihon.stores.jsonl import JsonlStore
from orihon.stores.sqlite import SqliteStore

log = logging.getLogger("orihon")


class Audit:
    """The file `audit.jsonl` of a store."""

    def __init__(self, path: Path, known: KnownSecrets | None = None) -> None:
        self.path, self._known = path, known

    def add(self, **what: Any) -> None:
        """Append a line; a look that cannot be written down is not prevented, but the log says so."""
        line = {"timestamp": codec.now()} | mask_value(codec.clean_value(what), known=self._known, by=mask_few)
        try:
            with disk_errors(str(self.path)), directory_handle(self.path.parent) as directory:
                file = open_file(self.path.name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, directory)
                try:
                    write_all(file, msgspec.json.encode(line) + b"\n")
                finally:
                    os.close(file)
        except StoreError as error:
            log.warning("The audit could not be written: %s", error)


class Look(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of the audit."""

    timestamp: str
    user: str = ""
    admin: bool = False
    through: str = ""  # the command, or the page
    at: str = ""  # what kind of thing
    uuid: str | None = None
    query: Any = None


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Which looks; every condition that is given must hold."""

    user: str | None = None
    uuid: str | None = None  # also its beginning
    through: str | None = None
    since: str | None = None
    until: str | None = None

    def fits(self, look: Look) -> bool:
        """Whether a look is one of them."""
        return (
            self.user in {None, look.user}
            and (self.uuid is None or (look.uuid or "").startswith(self.uuid))
            and self.through in {None, look.through}
            and (self.since is None or look.timestamp >= self.since)
            and (self.until is None or look.timestamp <= self.until)
        )


def looks(audit: Audit | None, chosen: Filter, limit: int) -> list[Look]:
    """The newest looks, the newest last; a line that cannot be read is left out."""
    if audit is None or not audit.path.exists():
        return []
    newest: deque[Look] = deque(maxlen=limit)
    with disk_errors(str(audit.path)), directory_handle(audit.path.parent) as directory:
        opened = os.fdopen(open_file(audit.path.name, os.O_RDONLY, directory), "rb")
    with opened as lines:
        for line in lines:
            with suppress(msgspec.DecodeError):
                look = msgspec.json.decode(line, type=Look)
                if chosen.fits(look):
                    newest.append(look)
    return list(newest)


def audit_of(store: Store) -> Audit | None:
    """The audit of a store; one that lives in memory has none."""
    if isinstance(store, JsonlStore):
        return Audit(store.base / "audit.jsonl", store.options.known)
    if isinstance(store, SqliteStore):
        return Audit(store.path.with_name(f"{store.path.name}.audit.jsonl"), store.options.known)
    return None
