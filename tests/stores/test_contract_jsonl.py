"""The store of plain files keeps the contract."""

from orihon.stores.jsonl.store import JsonlStore
from orihon.testing import DurableStoreContract
from support.store_properties import StoreProperties


class TestJsonl(StoreProperties, DurableStoreContract):
    """All of it."""

    def open(self, path, options):
        return JsonlStore(path / "contexts", options)
