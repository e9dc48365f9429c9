"""The store in one SQLite file keeps the contract."""

from orihon.stores.sql.sqlite import SqliteStore
from orihon.testing import DurableStoreContract
from support.store_properties import StoreProperties


class TestSqlite(StoreProperties, DurableStoreContract):
    """All of it."""

    def open(self, path, options):
        return SqliteStore(path / "contexts.db", options)
