"""A store of one's own, held to the same contract as ours: `pytest examples/own_store.py`.

It keeps everything in memory and remembers who took which lease. Yours will do something more useful; the lines at
the end stay the same.
"""

from pathlib import Path
from typing import Any

from orihon.stores.base import Lease, Options
from orihon.stores.memory import MemoryStore
from orihon.testing import StoreContract


class RememberingStore(MemoryStore):
    """Tasks in dictionaries, and a list of the leases that were taken."""

    def lease(self, uuid: str, **options: Any) -> Lease:
        """Take a lease, and remember it."""
        lease = super().lease(uuid, **options)
        self.taken = [*getattr(self, "taken", []), (uuid, lease.fence)]
        return lease


class TestRememberingStore(StoreContract):
    """Everything that the contract asks for."""

    def open(self, place: Path, options: Options) -> RememberingStore:  # noqa: ARG002 - memory has no place
        """Open the store; the contract does the rest."""
        return RememberingStore(options=options)
