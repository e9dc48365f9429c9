"""A last record torn at any byte: the others are read, it is reported, put aside, and its number used again."""

import pytest

from orihon.records import Event, Message
from orihon.stores import open_store
from orihon.stores.base import Options
from orihon.testing.samples import a_message, a_task
from support.faults import fast_place, sampled

TASK = a_task()


def a_record(kind, text):
    if kind is Message:
        return a_message(f'{text}: 日本語 😀 \\ " {{')
    return Event(id=0, after=1, type="pin", data={"text": text}, timestamp="")


@pytest.fixture(params=[Message, Event], ids=["messages", "events"])
def torn(request):
    """A closed task of three records, its file, and the bytes of it."""
    with fast_place() as place:
        with open_store(place / "contexts") as store, store.lease(TASK.uuid, create=TASK) as lease:
            for text in ("one", "two", "three"):
                lease.append(a_record(request.param, text))
        name = "messages.jsonl" if request.param is Message else "events.jsonl"
        file = place / "contexts" / "running" / TASK.uuid / name
        yield request.param, file, file.read_bytes()


def test_every_byte(torn):
    """Cut anywhere in the last line: two records or three, never a wrong one, for reading and for writing."""
    kind, file, whole = torn
    place, aside = file.parents[2], file.with_name(f"{file.name}.torn")
    start = whole[:-1].rfind(b"\n") + 1
    for size in sampled([*range(start, len(whole))], 40):
        file.write_bytes(whole[:size])
        aside.unlink(missing_ok=True)
        there = 3 if size == len(whole) - 1 else 2
        problems = []
        with open_store(place, Options(report=problems.append)) as store:
            assert len(list(store.read(TASK.uuid, kind))) == there
            assert len(list(store.read(TASK.uuid, kind, first=-1))) == 1
            assert len(problems) == (0 if size == start else 2), (size, problems)
            for problem in problems:
                assert problem.where.endswith(file.name)
                assert problem.line == 3
            problems.clear()
            with store.lease(TASK.uuid) as lease:
                assert lease.last(kind) == there
                assert lease.append(a_record(kind, "new")) == there + 1
            read = list(store.read(TASK.uuid, kind))
            assert len(read) == there + 1
            assert "new" in str(read[-1])
            assert len(problems) == (size != start), (size, problems)
        assert aside.exists() == (there == 2 and size > start)
        if aside.exists():
            assert aside.read_bytes() == whole[start:size] + b"\n"


def test_a_writer_at_work_is_not_a_torn_tail(torn):
    """While somebody holds the task, half a line is one that is being written: nobody is alarmed."""
    kind, file, whole = torn
    problems = []
    with open_store(file.parents[2], Options(report=problems.append)) as store, store.lease(TASK.uuid):
        file.write_bytes(whole[:-9])
        assert len(list(store.read(TASK.uuid, kind))) == 2
        file.write_bytes(whole)
        assert len(list(store.read(TASK.uuid, kind))) == 3
    assert problems == []
