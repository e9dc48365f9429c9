"""No secret leaves by any channel: what `bench/channels.py` measures, with one shape in each store.

A secret of its own goes into each channel; then every file, archive, page of a database, log line, screen and window is
searched for any eight characters of it. The same with masking switched off shows that each channel leads somewhere.
"""

from weakref import WeakSet

import pytest
from bench.artefacts import Scene
from bench.channels import CHANNELS, leaks, shapes

from orihon import ingest

COPIES = ["{place}/copy-{number}", "sqlite:///{place}/copy-{number}.db"]
# what is masked whatever the settings say: the names of tasks, the audit, and commands that have no store yet
ALWAYS = {
    *("key: request", "key: file", "key: directory", "import: file name"),
    *("command: search", "command: bad option", "command: bad key", "command: unknown task", "agent: reply cache"),
}


def of_kind(kind):
    """Shapes of one kind; the benchmark tries them all."""
    return lambda dice: [shape for shape in shapes(dice) if shape.kind == kind]


def scene(kind, url_at, tmp_path, **options):
    place = tmp_path / "scene"
    place.mkdir()
    copies = [*COPIES, url_at("postgres", "copy")] if kind == "postgres" else COPIES
    return Scene(url_at(kind, place), place, copies=copies, **options)


def test_there_are_many_channels():
    """A new way in belongs here."""
    assert len(CHANNELS) >= 100


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "secret"), [("jsonl", "password"), ("sqlite", "bare token")])
def test_no_channel_leaks(kind, secret, url_at, tmp_path):
    """Nothing of any secret is left in anything that was written, printed, logged or sent."""
    found, count = leaks(scene(kind, url_at, tmp_path, shown=kind == "jsonl"), of_kind(secret))
    assert count == len(CHANNELS)
    assert found == []


@pytest.mark.slow
def test_no_channel_leaks_into_a_database(url_at, tmp_path, monkeypatch):
    """Nor in the tables of PostgreSQL."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "scene" / "data"))
    found, _ = leaks(scene("postgres", url_at, tmp_path, shown=0), of_kind("bare token"))
    assert found == []


@pytest.mark.slow
def test_every_channel_leads_somewhere(url_at, tmp_path, monkeypatch):
    """Without masking each of them is found, so that the test above looks where the strings are."""
    monkeypatch.setattr(ingest, "_listening", WeakSet())  # a store of another test would mask what is logged
    found, _ = leaks(scene("sqlite", url_at, tmp_path, kinds="[]", shown=1), of_kind("bare token"))
    assert set(CHANNELS) - {leak.channel for leak in found} <= ALWAYS
