"""An engine over every store."""

import pytest

import orihon
from orihon.settings import Settings


@pytest.fixture(params=["memory", "jsonl", "sqlite"])
def url(request, tmp_path):
    return {
        "memory": "memory:", "jsonl": str(tmp_path / "contexts"), "sqlite": f"sqlite:///{tmp_path}/contexts.db"
    }[request.param]  # fmt: skip


@pytest.fixture(params=["jsonl", "sqlite"])
def disk_url(request, tmp_path):
    """Stores that outlive a process."""
    return str(tmp_path / "contexts") if request.param == "jsonl" else f"sqlite:///{tmp_path}/contexts.db"


@pytest.fixture
def engine(url):
    with orihon.open(url, settings=Settings()) as engine:
        yield engine
