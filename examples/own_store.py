"""Your own store, tested against the store contract: `pytest examples/own_store.py`.

It keeps everything in memory and remembers who took which lease. Yours will do something more useful; the lines at
the end stay the same.
"""

from pathlib import Path
from typing import Any

from orihon.stores.base import Lease, Options
from orihon.stores.memory import MemoryStore
from orihon.testing import StoreContract


class RememberingStore(MemoryStore):
    """A memory store that also lists the leases it gave."""

    def lease(self, uuid: str, **options: Any) -> Lease:
        """Take a lease and record it."""
        lease = super().lease(uuid, **options)
        self.taken = [*getattr(self, "taken", []), (uuid, lease.fence)]
        return lease


class TestRememberingStore(StoreContract):
    """The tests of the contract for this store."""

    def open(self, path: Path, options: Options) -> RememberingStore:  # noqa: ARG002 - memory needs no path
        """Open the store for a test."""
        return RememberingStore(options=options)
