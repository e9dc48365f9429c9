"""The store of plain files keeps the contract."""

from orihon.stores.jsonl.store import JsonlStore
from orihon.testing import DurableStoreContract


class TestJsonl(DurableStoreContract):
    """All of it."""

    def open(self, place, options):
        return JsonlStore(place / "contexts", options)
