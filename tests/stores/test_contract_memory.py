"""The store in memory keeps the contract."""

from orihon.stores.memory import MemoryStore
from orihon.testing import StoreContract
from support.store_properties import StoreProperties


class TestMemory(StoreProperties, StoreContract):
    """All of it, but for what only a disk can do."""

    survives = False

    def open(self, path, options):  # noqa: ARG002
        return MemoryStore(options=options)
