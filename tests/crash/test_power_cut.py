"""The power goes after any operation: what a sync or a lifecycle step promised is there, and the store opens clean."""

import random
import shutil

import pytest

from orihon.records import Message
from orihon.stores import open_store
from orihon.stores.base import Options
from orihon.stores.jsonl import lock_file
from orihon.testing.samples import a_message
from support.faults import DEEP, fast_place, sampled
from support.power_cut import Disk, Operation, Recorder
from support.scenario import Evidence, counters, play, statuses, steps

UUID = "0f0e0d0c-task"
SEEDS = 8 if DEEP else 2
DATABASE = ("tasks.db", "tasks.db-wal")


class Killed(BaseException):
    """The process ends here, in this test's imagination."""


class Recording:
    """One scripted task, and copies of tasks.db on the way."""

    def __init__(self, place, killed_after=None):
        self.place = place
        self.copies = []
        self.killed_after = killed_after
        with Recorder(place) as self.recorder:
            try:
                self._play(0)
            except Killed:
                lock_file._forget_all()  # what the kernel does when a process dies
                self._play(killed_after + 1)
        self.operations = self.recorder.operations

    def _play(self, first):
        # a heartbeat that never comes: it would outlive its lease in this one process
        with open_store(self.place / "contexts", Options(heartbeat_seconds=1e6)) as store:
            play(store, UUID, self._said, first)

    def _said(self, line):
        self.recorder.mark(line)
        files = {name: self.place / "contexts" / name for name in DATABASE}
        copy = {name: path.read_bytes() for name, path in files.items() if path.exists()}
        self.copies.append((len(self.recorder.operations), copy))
        if int(line.split(" ")[0]) == self.killed_after:
            self.killed_after = None
            raise Killed

    def cut(self, count, seed, target):
        """The place as it may be found when the power went after this many operations; what had been promised."""
        luck = random.Random(f"{count} {seed}")
        disk = Disk(self.operations[:count])
        disk.write_to(target, luck)
        copies = [copy for place, copy in self.copies if place <= count]
        if copies and (target / "contexts").exists() and luck.random() < 0.7:
            for name, data in luck.choice(copies).items():  # any earlier one, or none at all
                path = target / "contexts" / name
                path.touch(mode=0o600)
                path.write_bytes(data)
        return Evidence(disk.marks)


def assert_survived(place, evidence):
    """The store opens by itself, shows what was promised, invents nothing, and goes on."""
    with open_store(place / "contexts") as store:
        assert evidence.check(store, UUID, safe=evidence.safe) == []
        if evidence.last < 0 and not list(store.find()):
            return
        row = store.row(UUID)
        assert row.status in set(statuses(evidence.last))
        assert all(getattr(row, name) >= value for name, value in counters(evidence.counted).items())
        assert all(getattr(row, name) <= value for name, value in counters(evidence.last + 1).items())
        with store.lease(UUID) as lease:
            lease.append(a_message("step 999 after the cut"))
            lease.sync()
            lease.update(status="completed")
    with open_store(place / "contexts") as store:
        assert store.row(UUID).status == "completed"
        *before, last = store.read(UUID, Message)
        assert last.content == "step 999 after the cut"
        assert [message.seq for message in before] == sorted({message.seq for message in before})


@pytest.mark.parametrize(
    "killed_after", [None, 11, 33, 51], ids=["whole", "killed-early", "killed-middle", "killed-late"]
)
def test_cut_after_every_operation(killed_after):
    """Whatever the disk made of the unsynced part, and whether or not the writer had been killed before."""
    with fast_place() as origin, fast_place() as rest:
        recording = Recording(origin, killed_after)
        counts = [
            count for count in range(1, len(recording.operations) + 1) if recording.operations[count - 1].verb != "mark"
        ]
        for count in sampled(counts, 90 if killed_after is None else 30):
            for seed in range(SEEDS):
                target = rest / f"{count}-{seed}"
                target.mkdir()
                evidence = recording.cut(count, seed, target)
                try:
                    assert_survived(target, evidence)
                except BaseException as error:
                    last = recording.operations[count - 1]
                    error.add_note(
                        f"cut after operation {count} ({last.verb} {last.name}), seed {seed}, "
                        f"step {evidence.last}, safe up to {evidence.safe}"
                    )
                    raise
                shutil.rmtree(target)


def test_the_model_loses_what_was_not_synced():
    """The layer itself: unsynced bytes and names can vanish, synced ones never do."""
    made = Operation(verb="make", node=1, within=0, name="a")
    wrote = Operation(verb="write", node=1, offset=0, data=b"abc")
    more = Operation(verb="write", node=1, offset=3, data=b"def")
    safe = [made, wrote, Operation(verb="sync", node=1), Operation(verb="sync", node=0), more]
    found = {"unsynced": set(), "synced": set(), "replaced": set()}
    over = [*safe, Operation(verb="sync", node=1), Operation(verb="write", node=1, offset=0, data=b"x" * 1024)]
    over += [Operation(verb="sync", node=1), Operation(verb="write", node=1, offset=0, data=b"y" * 1024)]
    for name, operations in (("unsynced", [made, wrote]), ("synced", safe), ("replaced", over)):
        for seed in range(100):
            with fast_place() as place:
                Disk(operations).write_to(place, random.Random(seed))
                found[name].add((place / "a").read_bytes() if (place / "a").exists() else None)
    assert {None, b"", b"abc", b"\0\0\0"} <= found["unsynced"]
    assert {b"abc", b"abcdef", b"abc\0\0\0"} <= found["synced"]
    assert all(data and data.startswith(b"abc") for data in found["synced"])
    assert found["replaced"] == {one * 512 + other * 512 for one in (b"x", b"y") for other in (b"x", b"y")}


def test_the_script_promises_something():
    """The sweep is not empty: the script has syncs and lifecycle steps all along."""
    said = [f"{step.number} {step.verb} 0" for step in steps()]
    assert [Evidence(said[:count]).safe for count in (0, 1, 8, len(said))] == [-1, 0, 6, len(said) - 1]
