"""The store in memory keeps the contract."""

from orihon.stores.memory import MemoryStore
from orihon.testing import StoreContract


class TestMemory(StoreContract):
    """All of it, but for what only a disk can do."""

    def open(self, place, options):  # noqa: ARG002
        return MemoryStore(options=options)
