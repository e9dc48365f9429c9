"""The audit: one line for each look at a store, appended, masked, and readable by its owner alone.

{"timestamp": "2024-01-15T10:30:00.000Z", "user": "alice", "admin": false, "through": "show", "at": "task", "uuid": …}
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import msgspec

from orihon import codec
from orihon.errors import StoreError
from orihon.secrets import KnownSecrets, mask_value
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
        line = {"timestamp": codec.now()} | mask_value(codec.clean_value(what), known=self._known)
        try:
            with disk_errors(str(self.path)), directory_handle(self.path.parent) as directory:
                file = open_file(self.path.name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, directory)
                try:
                    write_all(file, msgspec.json.encode(line) + b"\n")
                finally:
                    os.close(file)
        except StoreError as error:
            log.warning("The audit could not be written: %s", error)


def audit_of(store: Store) -> Audit | None:
    """The audit of a store; one that lives in memory has none."""
    if isinstance(store, JsonlStore):
        return Audit(store.base / "audit.jsonl", store.options.known)
    if isinstance(store, SqliteStore):
        return Audit(store.path.with_name(f"{store.path.name}.audit.jsonl"), store.options.known)
    return None
