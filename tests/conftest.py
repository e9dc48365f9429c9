"""The tests run against the installed package; this refuses to run them against an old one."""

import filecmp
from pathlib import Path

import pytest

import orihon

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
