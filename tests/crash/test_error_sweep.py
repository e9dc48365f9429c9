"""ENOSPC and EIO at every call that changes a disk: the caller is told the truth, and a repetition doubles nothing."""

import errno
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from orihon.errors import NotWritten, OrihonError, OutcomeUnknown, StoreUnavailable
from orihon.records import Message
from orihon.stores import open_store
from orihon.stores.base import Options
from orihon.testing.samples import a_message, a_task
from support import scenario
from support.faults import DEEP, NO_STRACE, Fault, Faults, fast_place, sampled, strace_command, strace_points
from support.scenario import STORES, Evidence, Persistent, url_of

UUID = "0f0e0d0c-task"
ROOM = ("write", "pwrite", "open", "mkdir", "rename", "replace")  # what a full disk refuses
SHORT = [("jsonl", "pwrite64"), ("sqlite", "pwrite64"), ("sqlite", "fdatasync")]
INSIDE = [(kind, call) for kind in STORES for call in ("pwrite64", "fdatasync", "ftruncate", "unlink")]


@pytest.fixture
def fast_path():
    with fast_place() as place:
        yield place


def assert_done(url, said):
    with open_store(url) as store:
        assert Evidence(said).check(store, UUID) == []
        row = store.row(UUID)
        assert (row.status, row.llm_call_count, row.resume_count, row.total_tokens) == ("completed", 2, 1, 7)


def handles():
    return len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0


def calls_of(kind, place):
    (place / "counted").mkdir()
    with Faults() as faults:
        Persistent(url_of(kind, place / "counted"), UUID, lambda _: None, lambda _: None).play()
    return faults.calls


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "how"),
    [(errno.ENOSPC, "fail"), (errno.EIO, "fail"), (errno.ENOSPC, "fail half"), (errno.EIO, "fail after")],
)
@pytest.mark.parametrize("kind", STORES)
def test_every_call_fails_once(kind, code, how, fast_path):
    """One failure anywhere: the error is ours and true, nothing is lost, nothing doubled, no handle is left open."""
    calls = calls_of(kind, fast_path)
    for at in sampled([*range(1, len(calls) + 1)], 40):
        if how == "fail half" and calls[at - 1] not in {"write", "pwrite"}:
            continue
        place = fast_path / f"{at}"
        place.mkdir()
        url, said, before = url_of(kind, place), [], handles()
        with Faults(Fault(at=at, how=how, errno=code)) as faults:
            try:
                Persistent(url, UUID, said.append, lambda _, faults=faults: faults.free()).play()
                faults.free()
                assert_done(url, said)
                assert handles() == before
            except BaseException as error:
                error.add_note(
                    f"{kind}: {how} with {errno.errorcode[code]} at call {at} ({calls[at - 1]}), step {len(said)}"
                )
                raise
        shutil.rmtree(place)


@pytest.mark.slow
@pytest.mark.parametrize("kind", STORES)
def test_a_full_disk_that_is_freed_later(kind, fast_path):
    """A disk that is full from any call on loses nothing; with room again, the same lease goes on."""
    calls = calls_of(kind, fast_path)
    for at in sampled([*range(1, len(calls) + 1)], 40):
        place = fast_path / f"{at}"
        place.mkdir()
        url, said, errors = url_of(kind, place), [], []
        with Faults(Fault(at=at, how="fail", errno=errno.ENOSPC, onwards=True, only=ROOM)) as faults:

            def heard(error, url=url, faults=faults, errors=errors, said=said):
                errors.append(error)
                if len(errors) == 2:  # he repeated it once in vain, and then looked
                    faults.free()
                    with open_store(url) as store:
                        assert Evidence(said).check(store, UUID) == []

            try:
                Persistent(url, UUID, said.append, heard).play()
                faults.free()
                assert_done(url, said)
            except BaseException as error:
                error.add_note(f"{kind}: full from call {at} ({calls[at - 1]}) on, step {len(said)}: {errors}")
                raise
        shutil.rmtree(place)


@pytest.mark.skipif(not shutil.which("strace"), reason=NO_STRACE)
@pytest.mark.parametrize("code", ["ENOSPC", "EIO"])
@pytest.mark.parametrize(("kind", "call"), INSIDE if DEEP else SHORT)
def test_every_call_of_sqlite_fails_once(kind, call, code, fast_path):
    """The same for the system calls that SQLite makes by itself."""
    command = [sys.executable, scenario.__file__]
    (fast_path / "counted").mkdir()
    for at in strace_points(call, [*command, url_of(kind, fast_path / "counted"), UUID], few=1):
        place = fast_path / f"{at}"
        place.mkdir()
        url = url_of(kind, place)
        ended = subprocess.run(
            strace_command(call, f"error={code}:when={at}", [*command, url, UUID, "persist"]),
            capture_output=True,
            text=True,
            check=False,
        )
        lines = ended.stdout.splitlines()
        said = [line for line in lines if not line.startswith("!")]
        try:
            assert ended.returncode == 0, ended.stderr
            assert_done(url, said)
        except BaseException as error:
            errors = [line for line in lines if line.startswith("!")]
            error.add_note(f"{kind}: {code} at {call} number {at}, {errors}")
            raise
        shutil.rmtree(place)


@pytest.mark.parametrize("fresh", [False, True], ids=["open before", "opened on the full disk"])
@pytest.mark.parametrize("kind", STORES)
def test_a_really_full_disk(kind, fresh, small_disk):
    """On a full disk a store can be opened, listed and read, and a task deleted; then there is room again."""
    url = url_of(kind, small_disk)
    old, new = a_task(1), a_task(2)
    store = open_store(url)
    for task in (old, new):
        with store.lease(task.uuid, create=task) as lease:
            for count in range(20):
                lease.append(a_message(f"{count} {'x' * 9000}"))
    lease = store.lease(new.uuid)
    written = 20
    with suppress(NotWritten, OutcomeUnknown, StoreUnavailable):
        while written < 1000:
            lease.append(a_message(f"{written} {'y' * 9000}"))
            written += 1
    assert written < 1000
    with (small_disk / "ballast").open("wb", buffering=0) as ballast, suppress(OSError):
        while ballast.write(b"z" * 4096):
            pass
    if fresh:
        for full in (lease, store):
            with suppress(OrihonError):  # to say in the row that the lease is free takes room, too
                full.close()
        store = open_store(url, Options(expiry_seconds=0))
    try:
        assert {row.uuid for row in store.find()} == {old.uuid, new.uuid}
        assert len(list(store.read(new.uuid, Message))) == written
        store.delete(old.uuid)
        assert [row.uuid for row in store.find()] == [new.uuid]
        lease = store.lease(new.uuid) if fresh else lease
        assert lease.append(a_message("there is room again")) == written + 1
        lease.close()
    finally:
        store.close()


def test_a_failed_sync_is_not_believed_the_second_time(tmp_path):
    """After a failed sync the kernel may call lost bytes clean, so they are written once more before the next one."""
    task = a_task()
    with open_store(tmp_path / "contexts") as store, store.lease(task.uuid, create=task) as lease:
        lease.append(a_message("kept"))
        with Faults(Fault(at=1, how="fail", errno=errno.EIO)), pytest.raises(OutcomeUnknown):
            lease.sync()
        with Faults() as faults:
            lease.sync()
        assert "pwrite" in faults.calls
        assert [message.content for message in store.read(task.uuid, Message)] == ["kept"]


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("key", ["k", None])
def test_a_sync_that_fails_after_the_write_doubles_nothing(kind, key, tmp_path):
    """With `message` durability the line is there when its sync fails; the same key finds it."""
    task = a_task()
    with (
        open_store(url_of(kind, tmp_path), Options(durability="message")) as store,
        store.lease(task.uuid, create=task) as lease,
    ):
        lease.append(a_message("first", key="first"))
        with Faults(Fault(at=2, how="fail", errno=errno.EIO)) as faults:
            try:
                lease.append(a_message("second", key=key))
            except OutcomeUnknown:
                faults.free()
                if key:
                    lease.append(a_message("second", key=key))
        lease.append(a_message("third"))
        read = list(store.read(task.uuid, Message))
        assert [message.content for message in read] == ["first", "second", "third"]
        assert [message.seq for message in read] == [1, 2, 3]


@pytest.mark.parametrize("kind", STORES)
def test_ctrl_c_at_any_moment(kind, fast_path):
    """An append that is interrupted may have stored its record or not; those that follow are kept as ever."""
    task = a_task()
    interrupted = sampled([*range(1, 400)], 120)
    with open_store(url_of(kind, fast_path)) as store, store.lease(task.uuid, create=task) as lease:
        said = {}
        for count in range(1, 400):
            if count in interrupted:
                with suppress(KeyboardInterrupt), interrupt_after(count % 97 + 1):
                    lease.append(a_message(f"interrupted {count}"))
            said[lease.append(a_message(f"kept {count}"))] = f"kept {count}"
        tokens = sum(message.tokens for message in store.read(task.uuid, Message))
        assert kind != "jsonl" or lease.tokens == tokens
    with open_store(url_of(kind, fast_path), Options(report=pytest.fail)) as store:
        read = {message.seq: message.content for message in store.read(task.uuid, Message)}
    assert list(read) == list(range(1, len(read) + 1))
    assert {number: text for number, text in said.items() if read.get(number) != text} == {}


@contextmanager
def interrupt_after(lines):
    """Ctrl-C after so many lines of the stores' code."""
    left = [lines]

    def trace(frame, event, _arg):
        if f"{os.sep}stores{os.sep}" not in frame.f_code.co_filename:
            return None
        left[0] -= event == "line"
        if left[0] == 0 and event == "line":
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


def test_a_doubtful_write_does_not_use_a_number_twice(tmp_path):
    """When a failed write could not even be taken back, the next append and the next sync look what is there."""
    task = a_task()
    for then in ("append", "sync"):
        with open_store(tmp_path / then) as store, store.lease(task.uuid, create=task) as lease:
            lease.append(a_message("first"))
            with Faults(Fault(at=1, how="fail after", errno=errno.EIO, onwards=True)), pytest.raises(OutcomeUnknown):
                lease.append(a_message("second"))
            if then == "sync":
                lease.sync()
            assert lease.append(a_message("third")) in {2, 3}
            read = list(store.read(task.uuid, Message))
            assert [message.seq for message in read] == list(range(1, len(read) + 1))
            assert read[-1].content == "third"
            assert lease.tokens == sum(message.tokens for message in read)
