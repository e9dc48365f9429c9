"""The store in a PostgreSQL database keeps the contract."""

import pytest

from orihon.stores.sql.postgres import PostgresStore
from orihon.testing import DurableStoreContract
from support.store_properties import StoreProperties


class TestPostgres(StoreProperties, DurableStoreContract):
    """All of it."""

    examples = 10

    @pytest.fixture(autouse=True)
    def server(self, postgres):
        self.postgres = postgres

    def open(self, path, options):
        return PostgresStore(self.postgres(path), options)
