"""The store in a PostgreSQL database keeps the contract."""

import pytest

from orihon.stores.sql.postgres import PostgresStore
from orihon.testing import DurableStoreContract


class TestPostgres(DurableStoreContract):
    """All of it."""

    examples = 10

    @pytest.fixture(autouse=True)
    def server(self, postgres):
        self.postgres = postgres

    def open(self, place, options):
        return PostgresStore(self.postgres(place), options)
