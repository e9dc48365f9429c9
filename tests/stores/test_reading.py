"""Lists without an index: a reader who wants the newest lines does not pay for all that came before."""

import random

import pytest

from orihon import codec
from orihon.records import Event
from orihon.stores import open_store
from orihon.stores.base import Options
from orihon.testing.samples import a_task
from support.faults import fast_place

TASK = a_task()
COUNT = 400


@pytest.fixture
def events():
    """A closed task of many events, its store, and the file."""
    with fast_place() as place, open_store(place / "contexts", Options(report=lambda _: None)) as store:
        with store.lease(TASK.uuid, create=TASK) as lease:
            for number in range(1, COUNT + 1):
                lease.append(Event(id=0, after=number, type="note", data={"n": "x" * (number % 90)}, timestamp=""))
        yield store, place / "contexts" / "running" / TASK.uuid / "events.jsonl"


def ids(store, **bounds):
    return [event.id for event in store.read(TASK.uuid, Event, **bounds)]


def test_only_what_is_asked_for_is_looked_at(events, monkeypatch):
    """A few lines more than were asked for, wherever they stand."""
    store, _ = events
    looked_at = []
    decode = codec.decode_line
    monkeypatch.setattr(codec, "decode_line", lambda line, kind: looked_at.append(1) or decode(line, kind))
    for first in (2, COUNT // 2, COUNT):
        looked_at.clear()
        assert ids(store, first=first, last=first + 3) == list(range(first, min(first + 3, COUNT) + 1))
        assert len(looked_at) <= 8
    assert ids(store, first=COUNT + 1) == []


def gaps(lines, luck):
    return [line for line in lines if luck.random() < 0.9]


def repeated(lines, luck):
    return [line for line in lines for _ in range(luck.choice((1, 1, 1, 2)))]


def broken(lines, luck):
    return [line if luck.random() < 0.9 else line[: len(line) // 2] + b"\n" for line in lines]


def strangers(lines, luck):
    return [line for one in lines for line in ((one, b"\n", b"what is this?\n") if luck.random() < 0.1 else (one,))]


@pytest.mark.parametrize("damage", [gaps, repeated, broken, strangers])
@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_missed_in_a_damaged_list(events, damage, seed):
    """What a reader from the beginning finds behind a number, a reader who begins there finds too."""
    store, file = events
    luck = random.Random(f"{damage.__name__} {seed}")
    file.write_bytes(b"".join(damage(file.read_bytes().splitlines(keepends=True), luck)))
    everything = ids(store)
    assert len(everything) > COUNT // 2
    for first in luck.sample(range(1, COUNT + 20), 30):
        assert ids(store, first=first) == [number for number in everything if number >= first]
