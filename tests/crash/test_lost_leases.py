"""A holder whose lock, directory or files were taken away under it: it notices before it acknowledges anything."""

import os
import random
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

import orihon
from orihon.errors import LeaseHeld, LeaseLost, NotFound, OrihonError
from orihon.records import Event, Fold, Message, PlanEntry, Summary, ToolCall
from orihon.settings.schema import Settings
from orihon.stores import open_store
from orihon.stores.base import Options
from orihon.testing.samples import a_message, a_task, one_of_each
from support.faults import DEEP, Child, Faults, fast_place
from support.scenario import BIG

TASK = a_task()
QUIET = Options(heartbeat_seconds=3600)
SEEDS = range(40 if DEEP else 4)
BLOWS = 120 if DEEP else 60


@pytest.fixture
def place():
    with fast_place() as place:
        yield place


# what a person or a cleaner does


def remove_lock(base):
    (base / "running" / TASK.uuid / ".lock").unlink()


def replace_lock(base):
    lock = base / "running" / TASK.uuid / ".lock"
    lock.with_name("other").write_bytes(lock.read_bytes())
    lock.with_name("other").rename(lock)


def rename_lock(base):
    lock = base / "running" / TASK.uuid / ".lock"
    lock.rename(lock.with_name("lock"))


def remove_directory(base):
    shutil.rmtree(base / "running" / TASK.uuid)


def move_directory(base):
    (base / "running" / TASK.uuid).rename(base.parent / "away")


def hide_directory(base):
    (base / "running" / TASK.uuid).rename(base / "running" / "backup")


def rename_store(base):
    base.rename(base.parent / "renamed")


def copy_in_place(base):
    task = base / "running" / TASK.uuid
    task.rename(base.parent / "away")
    shutil.copytree(base.parent / "away", task)


DAMAGE = [
    remove_lock,
    replace_lock,
    rename_lock,
    remove_directory,
    move_directory,
    hide_directory,
    rename_store,
    copy_in_place,
]
VERBS = {
    **{type(record).__name__: (lambda lease, record=record: lease.append(record)) for record in one_of_each()},
    "Fold": lambda lease: lease.append(Fold(id=0, seq=1, text="…", tokens=1, timestamp="")),
    "a key again": lambda lease: lease.append(a_message("first", key="first")),
    "a large text": lambda lease: lease.append(a_message(BIG)),
    "put": lambda lease: lease.put(b"data"),
    "sync": lambda lease: lease.sync(),
    "update": lambda lease: lease.update(activity="processing"),
    "pause": lambda lease: lease.update(status="paused"),
    "end": lambda lease: lease.update(status="completed"),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)
def test_nothing_is_acknowledged(place, damage, verb):
    """Whatever was taken away, each verb says LeaseLost, the first time and ever after; to close is no error."""
    with open_store(place / "contexts", QUIET) as store:
        lease = store.lease(TASK.uuid, create=TASK)
        for record in one_of_each():
            lease.append(record)
        lease.append(a_message("first", key="first"))
        lease.put(b"data")
        damage(place / "contexts")
        for _ in range(2):
            with pytest.raises(LeaseLost, match=r"lock file|directory"):
                VERBS[verb](lease)
        assert lease.lost
        lease.close()


def test_there_is_a_verb_for_every_list():
    """The table above leaves out no kind of record."""
    assert {kind.__name__ for kind in (Message, Summary, ToolCall, Event, Fold, PlanEntry)} <= VERBS.keys()


@pytest.mark.parametrize("how", ["removed", "replaced", "truncated and replaced"])
@pytest.mark.parametrize("name", ["messages.jsonl", "events.jsonl", "planning"])
def test_a_list_is_taken_away(place, name, how):
    """A log that was removed or replaced under its writer is not written; what it says goes nowhere."""
    task = place / "contexts" / "running" / TASK.uuid
    with open_store(place / "contexts", QUIET) as store:
        lease = store.lease(TASK.uuid, create=TASK)
        for record in one_of_each():
            lease.append(record)
        (task / name).rename(place / "old")
        if how != "removed":
            (shutil.copytree if name == "planning" else shutil.copy)(place / "old", task / name)
        record = {"messages.jsonl": Message, "events.jsonl": Event, "planning": PlanEntry}[name]
        with pytest.raises(LeaseLost, match="was removed or replaced"):
            lease.append(next(each for each in one_of_each() if type(each) is record))
        with pytest.raises(LeaseLost):
            lease.sync()
        lease.close()


def test_a_sync_looks_as_well(place):
    """What was appended before the log was removed is not there, so that a sync does not say that it is."""
    with open_store(place / "contexts", QUIET) as store:
        lease = store.lease(TASK.uuid, create=TASK)
        lease.append(a_message())
        (place / "contexts" / "running" / TASK.uuid / "messages.jsonl").unlink()
        with pytest.raises(LeaseLost, match=r"messages\.jsonl was removed"):
            lease.sync()


def test_blobs_that_were_moved(place):
    """A blob goes into the directory that readers look into."""
    with open_store(place / "contexts", QUIET) as store:
        lease = store.lease(TASK.uuid, create=TASK)
        lease.put(b"one")
        (place / "contexts" / "running" / TASK.uuid / "blobs").rename(place / "blobs")
        with pytest.raises(LeaseLost, match="blobs was removed"):
            lease.put(b"two")


@pytest.mark.parametrize("damage", ["removed", "moved", "replaced", "log removed"])
def test_a_sqlite_file_is_taken_away(place, damage):
    """SQLite would write on into a file that has no name any more; the holder hears LeaseLost instead."""
    path = place / "contexts.db"
    with open_store(f"sqlite:///{path}", QUIET) as store:
        lease = store.lease(TASK.uuid, create=TASK)
        lease.append(a_message("first", key="first"))
        if damage == "log removed":
            path.with_name("contexts.db-wal").unlink()
        else:
            path.rename(place / "moved.db")
        if damage == "replaced":
            shutil.copy(place / "moved.db", path)
        for verb in ("Message", "a key again", "put", "sync", "update"):
            with pytest.raises(LeaseLost):
                VERBS[verb](lease)
        lease.close()


def test_the_next_holder_is_left_alone(place):
    """The first holder goes, and touches neither the lock nor the state nor the row of the second."""
    url = place / "contexts"
    first = open_store(url, QUIET)
    lost = first.lease(TASK.uuid, create=TASK)
    lost.append(a_message("first"))
    remove_lock(url)
    second = open_store(url, QUIET)
    lease = second.lease(TASK.uuid)
    assert lease.append(a_message("second")) == 2
    lease.update(activity="compressing")
    task = url / "running" / TASK.uuid
    before = ((task / ".lock").stat().st_ino, (task / "state.json").read_bytes(), second.row(TASK.uuid))
    with pytest.raises(LeaseLost):
        lost.append(a_message("lost"))
    with pytest.raises(LeaseLost):
        lost.update(activity="processing")
    lost._beat()
    lost.close()
    first.close()
    assert ((task / ".lock").stat().st_ino, (task / "state.json").read_bytes(), second.row(TASK.uuid)) == before
    with open_store(url, QUIET) as third, pytest.raises(LeaseHeld):
        third.lease(TASK.uuid)
    assert lease.append(a_message("third")) == 3
    assert [message.content for message in second.read(TASK.uuid, Message)] == ["first", "second", "third"]
    second.close()


def test_the_heartbeat_notices(place, caplog):
    """It says so in the log, writes nothing more, and the next verb says it too."""
    with open_store(place / "contexts", Options(heartbeat_seconds=0.01)) as store:
        lease = store.lease(TASK.uuid, create=TASK)
        remove_lock(place / "contexts")
        while not lease.lost:
            time.sleep(0.005)
        with pytest.raises(LeaseLost, match="lock file"):
            lease.sync()
        lease.close()
    assert len([record for record in caplog.records if "no longer ours" in record.getMessage()]) == 1


def test_a_loss_that_close_is_the_first_to_see(place):
    """A caller that was not told yet hears it from `close`, which gives back all that it has."""
    with open_store(place / "contexts", QUIET) as store:
        lease = store.lease(TASK.uuid, create=TASK)
        lease.append(a_message())
        remove_lock(place / "contexts")
        open_files = len(os.listdir("/proc/self/fd"))
        with pytest.raises(LeaseLost):
            lease.close()
        assert len(os.listdir("/proc/self/fd")) < open_files
        lease.close()
        store.lease(TASK.uuid).close()


PROGRAM = """
import shutil, sys
import orihon
from pathlib import Path
from orihon.errors import LeaseLost

place, how = Path(sys.argv[1]), sys.argv[2]
engine = orihon.open(place / "contexts", settings=orihon.Settings())
task = engine.start("local/issue/1")
task.add("user", "hello")
(place / "contexts" / "running" / task.uuid / ".lock").unlink()
if how == "block":
    try:
        with task:
            task.add("user", "lost")
    except LeaseLost:
        print("told")
elif how != "nothing":
    try:
        task.add("user", "lost")
    except LeaseLost:
        print("told")
if how == "task":
    task.close()
if how != "exit":
    engine.close()
"""


@pytest.mark.parametrize("how", ["block", "task", "engine", "exit", "nothing"])
def test_the_process_ends_without_a_traceback(place, how):
    """After LeaseLost a task and an engine are closed without an error, and so they are when nobody closes them."""
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, place, how], capture_output=True, text=True, check=False, timeout=60
    )
    assert ended.returncode == 0, ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stdout == ("" if how == "nothing" else "told\n")


def test_our_own_moves_are_none(place):
    """A task goes through all its directories, also when the process has changed its own."""
    before = Path.cwd()
    try:
        os.chdir(place)
        with orihon.open("contexts", settings=Settings()) as engine:
            task = engine.start("local/issue/1", queued=True)
            task.close()
            os.chdir("/")
            with engine.resume(task.uuid) as task:
                task.add("user", "one")
                task.pause()
            with engine.resume(task.uuid) as task:
                task.add("user", "two")
                task.checkpoint("here")
            assert engine.row(task.uuid).status == "completed"
            assert [message.content for message in engine.read(task.uuid).messages()] == ["one", "two"]
    finally:
        os.chdir(before)
    assert (place / "contexts" / "completed" / task.uuid).is_dir()


def take_over(base, say):
    """Take the task as soon as it can be had, and write one message."""
    with open_store(base, QUIET) as store:
        while True:
            try:
                lease = store.lease(TASK.uuid)
            except LeaseHeld:
                time.sleep(0.001)
            else:
                break
        say(f"{lease.append(a_message('of the second'))}")
        lease.close()


def test_a_lock_that_goes_in_the_middle_of_a_write(place):
    """The second process waits until the write under way is done: both messages are there, each with its number."""
    base = place / "contexts"
    children = []

    def pull(name, args, _named):
        if name == "write" and b"of the first" in bytes(args[1]) and not children:
            remove_lock(base)
            children.append(Child(lambda say: take_over(base, say)))
            time.sleep(0.2)  # time to take it, if that could be done

    with open_store(base, QUIET) as store:
        lease = store.lease(TASK.uuid, create=TASK)
        with Faults(watch=pull):
            assert lease.append(a_message("of the first")) == 1
        assert children[0].wait().said == ["2"]
        with pytest.raises(LeaseLost):
            lease.append(a_message("lost"))
        read = [(message.seq, message.content) for message in store.read(TASK.uuid, Message)]
        assert read == [(1, "of the first"), (2, "of the second")]


def test_a_log_that_goes_in_the_middle_of_a_write(place):
    """The line is in a file that nobody finds, and is not acknowledged."""
    base = place / "contexts"

    def pull(name, args, _named):
        if name == "write" and b"second" in bytes(args[1]):
            (base / "running" / TASK.uuid / "messages.jsonl").unlink()

    with open_store(base, QUIET) as store:
        lease = store.lease(TASK.uuid, create=TASK)
        lease.append(a_message("first"))
        with Faults(watch=pull), pytest.raises(LeaseLost):
            lease.append(a_message("second"))


def test_a_lock_that_goes_while_the_task_is_made(place):
    """The maker takes back what nobody was told of, but not what another process has taken and written."""
    base = place / "contexts"
    children = []

    def pull(name, args, _named, _result):
        if name == "rename" and Path(args[1]).name == TASK.uuid:
            remove_lock(base)
            children.append(Child(lambda say: take_over(base, say)).wait())

    with open_store(base, QUIET) as store:
        with Faults(done=pull), pytest.raises(LeaseLost):
            store.lease(TASK.uuid, create=TASK)
        assert children[0].said == ["1"]
        assert [message.content for message in store.read(TASK.uuid, Message)] == ["of the second"]


def test_half_a_task_that_is_replaced_while_it_is_discarded(place):
    """Whoever opens the store removes what was never finished, and not the task that has its name by then."""
    base = place / "contexts"
    open_store(base).close()
    (base / "running" / TASK.uuid).mkdir()

    def replace(name, _args, _named):
        if name == "pwrite" and (base / "running" / TASK.uuid).exists() and not list(place.glob("away")):
            move_directory(base)
            with open_store(place / "other", QUIET) as other, other.lease(TASK.uuid, create=TASK) as lease:
                lease.append(a_message("of the second"))
            (place / "other" / "running" / TASK.uuid).rename(base / "running" / TASK.uuid)

    with Faults(watch=replace), open_store(base, Options(report=lambda _: None)):
        assert (place / "away").exists()
    with open_store(base, QUIET) as store:
        assert [message.content for message in store.read(TASK.uuid, Message)] == ["of the second"]


# any interleaving


def writer(base, name):
    """Take the task whenever it can be had, make it when it is gone, append, and say what was acknowledged when."""

    def work(say):
        luck, count = random.Random(name), 0
        while not (base.parent / "enough").exists():
            with suppress(OrihonError), open_store(base, Options(report=lambda _: None)) as store:
                count = one_turn(store, say, name, luck, count)

    return work


def one_turn(store, say, name, luck, count):
    try:
        lease = store.lease(TASK.uuid)
    except NotFound:
        lease = store.lease(TASK.uuid, create=TASK)
    try:
        for _ in range(luck.randrange(1, 60)):
            count += 1
            began = time.monotonic_ns()
            lease.append(a_message(f"{name}-{count}"))
            say(f"kept {began} {name}-{count}")
            (store.base.parent / f"turn of {name}").touch()
            if luck.random() < 0.1:
                lease.sync()
                lease.update(add={"llm_call_count": 1})
    except LeaseLost:
        say("lost")
    finally:
        with suppress(LeaseLost):  # the lock may go at any moment
            lease.close()
    return count


class Vandal:
    """Takes away what the writers have, and remembers when."""

    def __init__(self, base, seed):
        self.task, self.base, self.luck = base / "running" / TASK.uuid, base, random.Random(seed)
        self.moved, self.removed = [], []  # when each had been done

    def strike(self):
        blow = self.luck.choices([self.lock, self.replace, self.move, self.remove], weights=[8, 2, 1, 1])[0]
        with suppress(FileNotFoundError):
            blow()

    def lock(self):
        (self.task / ".lock").unlink()

    def replace(self):
        (self.task / "other").touch()
        (self.task / "other").rename(self.task / ".lock")

    def move(self):
        self.task.rename(self.base.parent / f"away-{len(self.moved)}")
        self.moved.append(time.monotonic_ns())

    def remove(self):
        while self.task.exists():
            shutil.rmtree(self.task, ignore_errors=True)
        self.removed.append(time.monotonic_ns())


@pytest.mark.parametrize("seed", SEEDS)
def test_any_interleaving(place, seed):
    """What was acknowledged is read back, unless its directory was removed or moved away after the append had begun."""
    base = place / "contexts"
    open_store(base).close()
    children = [Child(writer(base, name)) for name in "AB"]
    vandal = Vandal(base, seed)
    for blow in range(100 * BLOWS):
        if blow >= BLOWS and len(list(place.glob("turn of *"))) == len(children):
            break  # both had their turns, however slow the machine is
        time.sleep(vandal.luck.random() / 100)
        vandal.strike()
    (place / "enough").touch()
    ended = [child.wait() for child in children]
    assert [(end.signal, end.code) for end in ended] == [(0, 0), (0, 0)]
    said = [line.split(" ") for end in ended for line in end.said]
    kept = {text: int(began) for word, *rest in said if word == "kept" for began, text in [rest]}
    away = {text for each in sorted(place.glob("away-*")) for text in texts_in(place, each)}
    there = set(texts_in(place, vandal.task))
    last_move, last_removal = max(vandal.moved, default=0), max(vandal.removed, default=0)
    assert [text for text, began in kept.items() if began > max(last_move, last_removal) and text not in there] == []
    assert [text for text, began in kept.items() if began > last_removal and text not in there | away] == []
    assert {name[0] for name in kept} == {"A", "B"}


def texts_in(place, task):
    """The messages in a directory of a task, as a store reads them; none of them is there twice or left out."""
    if not task.exists():
        return []
    base = place / "looked-at"
    shutil.rmtree(base, ignore_errors=True)
    shutil.copytree(task, base / "running" / TASK.uuid)
    problems = []
    with suppress(OrihonError), open_store(base, Options(report=problems.append)) as store:
        read = [message.content for message in store.read(TASK.uuid, Message)]
        assert [problem for problem in problems if "repeats" in problem.reason or "comes after" in problem.reason] == []
        assert len(set(read)) == len(read)
        return read
    return []
