"""An engine over every store."""

import pytest

import orihon
from orihon.settings import Settings


@pytest.fixture(params=["memory", "jsonl", "sqlite", "postgres"])
def url(request, tmp_path, url_at):
    return url_at(request.param, tmp_path)


@pytest.fixture(params=["jsonl", "sqlite", "postgres"])
def disk_url(request, tmp_path, url_at):
    """Stores that outlive a process."""
    return url_at(request.param, tmp_path)


@pytest.fixture
def engine(url):
    with orihon.open(url, settings=Settings()) as engine:
        yield engine
