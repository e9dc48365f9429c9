"""Killed while a task is compressed or cut down: it is whole or cut down, never half, and the next one finishes it."""

import shutil
import signal
from datetime import UTC, datetime, timedelta

import pytest

from orihon.ops.access import AuthorizedStore, Principal
from orihon.ops.clean import clean
from orihon.ops.doctor import examine
from orihon.records import Message
from orihon.settings.schema import Settings
from orihon.stores import open_store
from orihon.stores.base import LISTS, Options
from orihon.testing.samples import a_message, one_of_each
from support import scenario
from support.faults import Fault, Faults, fast_place, in_child, sampled

UUID = "0f8fad5b-d9cb-469f-a165-70867728950e"
ENDED = "2024-01-01T00:00:00.000000Z"
DAYS = {"compressed": 10, "reduced": 40, "deleted": 100}


@pytest.fixture
def fast_path():
    with fast_place() as place:
        yield place


def prepared(place):
    """A completed task with lists, a blob, and a summary that a later one inherits."""
    with open_store(place) as store, store.lease(UUID, create=scenario.metadata(UUID)) as lease:
        lease.put(b"words " * 1000)
        for record in (a_message("one"), a_message("x" * 3000), *one_of_each()[1:]):
            lease.append(record)
        lease.update(status="completed", completed_at=ENDED, final_summary="done", handoff="{}")
    return place


def everything(store):
    return {kind: list(store.read(UUID, kind)) for kind in LISTS}


def cleaned(place, days):
    now = datetime.fromisoformat(ENDED) + timedelta(days=days)
    with open_store(place, Options(report=lambda _: None)) as store:
        return clean(
            AuthorizedStore(store, Principal("root", admin=True), command="clean"), Settings(), now=now.astimezone(UTC)
        )


@pytest.mark.parametrize("how", ["kill before", "kill half", "kill after"])
@pytest.mark.parametrize("action", DAYS)
def test_killed_while_it_cleans(action, how, fast_path):
    """At every call that changes the disk."""
    with open_store(prepared(fast_path / "whole")) as store:
        whole = everything(store)
    counted = shutil.copytree(fast_path / "whole", fast_path / "counted")
    with Faults() as faults:
        assert getattr(cleaned(counted, DAYS[action]), action) == 1
    points = [at for at, name in enumerate(faults.calls, 1) if how != "kill half" or name in {"write", "pwrite"}]
    for at in sampled(points, 12):
        place = shutil.copytree(fast_path / "whole", fast_path / f"{at}")
        ended = in_child(lambda _, place=place: cleaned(place, DAYS[action]), Fault(at=at, how=how))
        try:
            assert ended.signal == signal.SIGKILL
            assert_sound(place, whole, action)
            cleaned(place, DAYS[action])
            assert_finished(place, whole, action)
        except BaseException as error:
            error.add_note(f"{action}: {how} call {at} ({faults.calls[at - 1]})")
            raise
        shutil.rmtree(place)


def assert_sound(place, whole, action):
    """Whole, or said to be going, or gone; what a later task inherits is there unless all is gone."""
    with open_store(place, Options(report=lambda _: None)) as store:
        rows = list(store.find())
        if not rows:
            assert action == "deleted"
            return
        assert rows[0].final_summary == "done"
        if rows[0].archived in {"", "gzip"}:
            assert everything(store) == whole
            assert store.blob(UUID, next(iter(sha_of(place)))) == b"words " * 1000
        else:
            assert action == "reduced"


def sha_of(place):
    return [path.name.removesuffix(".gz") for path in (place / "completed" / UUID / "blobs").glob("[0-9a-f]*")]


def assert_finished(place, whole, action):
    with open_store(place) as store:
        rows = list(store.find())
        if action == "deleted":
            assert rows == []
            assert not (place / "completed" / UUID).exists()
            return
        assert rows[0].archived == {"compressed": "gzip", "reduced": "stub"}[action]
        if action == "compressed":
            assert everything(store) == whole
            with store.lease(UUID) as lease:
                assert lease.append(a_message("next")) == 3
        else:
            assert not list(store.read(UUID, Message))
    assert not [found for found in examine(str(place)) if found.level == "problem"]
