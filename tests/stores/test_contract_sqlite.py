"""The store in one SQLite file keeps the contract."""

from orihon.stores.sql.sqlite import SqliteStore
from orihon.testing import DurableStoreContract


class TestSqlite(DurableStoreContract):
    """All of it."""

    def open(self, place, options):
        return SqliteStore(place / "contexts.db", options)
