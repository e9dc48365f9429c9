"""The tests run against the installed package; this refuses to run them against an old one."""

import filecmp
import os
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import orihon
from orihon.settings.schema import Settings
from support import process_state as inherited

inherited.reset()
pytest.register_assert_rewrite("support.store_properties")

# machines are noisy: no test fails because of the time it takes
settings.register_profile("orihon", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("orihon")

ROOT = Path(__file__).parent.parent


def pytest_sessionstart():
    source, installed = ROOT / "src" / "orihon", Path(orihon.__file__).parent
    stale = [
        path.relative_to(source)
        for path in source.rglob("*")
        if path.is_file()
        and path.suffix != ".pyc"
        and not ((there := installed / path.relative_to(source)).exists() and filecmp.cmp(path, there, shallow=False))
    ]
    if stale:
        pytest.exit(f"The installed package is older than src/ ({stale[0]}). Run: make test", returncode=3)


@pytest.fixture(scope="session")
def root() -> Path:
    """The top of the repository."""
    return ROOT


@pytest.fixture(scope="session")
def postgres_url():
    """A PostgreSQL server that lives as long as the session: that of ORIHON_TEST_POSTGRES, or one of our own."""
    from support.postgres_server import GIVEN, PostgresServer  # noqa: PLC0415 - most tests need none

    if GIVEN in os.environ:
        yield os.environ[GIVEN]
        return
    with PostgresServer() as server:
        yield server.url


@pytest.fixture
def postgres(postgres_url, tmp_path, monkeypatch):
    """A function from a place to the URL of a database that is empty when the place is first named."""
    from support.postgres_server import schema  # noqa: PLC0415

    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))  # where the index of such a store lies
    with ExitStack() as stack:
        urls = {}

        def url_at(place):
            if place not in urls:
                urls[place] = stack.enter_context(schema(postgres_url))
            return urls[place]

        yield url_at


@pytest.fixture
def url_at(request):
    """The URL of a store of some kind at a place; a PostgreSQL server is started when it is first asked for one."""

    def url_at(kind, place):
        if kind == "postgres":
            return request.getfixturevalue("postgres")(place)
        return {"memory": "memory:", "jsonl": f"{place}/contexts", "sqlite": f"sqlite:///{place}/contexts.db"}[kind]

    return url_at


@pytest.fixture(params=["memory", "jsonl", "sqlite", "postgres"])
def url(request, tmp_path, url_at):
    """Each of the stores."""
    return url_at(request.param, tmp_path)


@pytest.fixture(params=["jsonl", "sqlite", "postgres"])
def disk_url(request, tmp_path, url_at):
    """Stores that outlive a process."""
    return url_at(request.param, tmp_path)


@pytest.fixture
def engine(url):
    """An engine over each of the stores."""
    with orihon.open(url, settings=Settings()) as engine:
        yield engine
