"""The key of masked ids: 32 random bytes that are kept with a store, and with nothing that leaves it.

`orihon.ingest` says what it is for. It is made when the first id has to be masked, so most stores have none. A store
that lost it makes another one: what is stored stays as it is, and an id that is masked from then on looks different.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from orihon.errors import Corrupt
from orihon.stores.files import directory_handle, disk_errors, read_file, replace_file, sync

if TYPE_CHECKING:
    from orihon.stores.postgres_server import Server

KEY_BYTES = 32
FOUND = "SELECT key FROM mask_key"
MADE = "WITH made AS (INSERT INTO mask_key (key) VALUES (%s) ON CONFLICT DO NOTHING) SELECT 1"  # or another one has


def kept_key(path: Path | None) -> bytes:
    """Return the key in a file, which is made when it is not there; without a place for a file, a new key."""
    if path is None:
        return new_key()
    with disk_errors(f"{path} cannot be used"), directory_handle(path.parent) as directory:
        try:
            key = read_file(path.name, directory)
        except FileNotFoundError:
            _make(path.name, directory)
            key = read_file(path.name, directory)
    if len(key) != KEY_BYTES:
        raise Corrupt(f"{path} does not hold a key.", where=path.name, hint="Remove it; a new one is made.")
    return key


def shared_key(server: Server) -> bytes:
    """Return the key in a PostgreSQL database, which all workers share; it is made when it is not there."""
    found = server.all(FOUND)
    if not found:
        server.change(MADE, new_key())
        found = server.all(FOUND)
    return bytes(found[0][0])


def new_key() -> bytes:
    """Return a new key."""
    return os.urandom(KEY_BYTES)


def _make(name: str, directory: int) -> None:
    """Put a key there whole, unless another process was first."""
    fresh = f".{name}.{os.getpid()}.{threading.get_ident()}.new"
    replace_file(fresh, new_key(), directory, durable=True)
    try:
        with suppress(FileExistsError):
            os.link(fresh, name, src_dir_fd=directory, dst_dir_fd=directory)
        sync(directory)
    finally:
        os.unlink(fresh, dir_fd=directory)
