"""SIGKILL at every call that changes a disk: what was acknowledged is there, and the work goes on by itself."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from orihon.records import Message, Metadata
from orihon.stores import open_store
from orihon.stores.base import Options
from orihon.stores.jsonl.layout import DIRECTORIES, decode_row
from orihon.stores.jsonl.line_reader import PlainSource, compress
from orihon.testing.samples import a_message
from support import scenario
from support.faults import (
    DEEP,
    NO_STRACE,
    Fault,
    Faults,
    fast_place,
    in_child,
    sampled,
    strace_command,
    strace_points,
)
from support.scenario import STORES, Evidence, counters, play, statuses, steps, url_of

UUID = "0f0e0d0c-task"
MIRRORED = ("status", "llm_call_count", "resume_count", "total_tokens", "activity", "updated_at")
# the system calls that SQLite makes; a short run looks at a few of them
INSIDE = [(kind, call) for kind in STORES for call in ("pwrite64", "fdatasync", "ftruncate", "unlink")]
SHORT = [("jsonl", "pwrite64"), ("sqlite", "pwrite64"), ("sqlite", "fdatasync")]


@pytest.fixture
def fast_path():
    with fast_place() as place:
        yield place


def played(url, first=0):
    def work(say):
        with open_store(url) as store:
            play(store, UUID, say, first)

    return work


def assert_whole(url, said, *, flight=1):
    """The store opens by itself; acknowledged records are there once; row, state and directory say the same."""
    evidence = Evidence(said)
    problems = []
    with open_store(url, Options(report=problems.append)) as store:
        assert evidence.check(store, UUID, flight=flight) == []
        rows = list(store.find())
        for row in rows:
            assert row.status in set(statuses(evidence.last))
            for name, value in counters(evidence.last).items():
                assert getattr(row, name) in {value, counters(evidence.last + flight)[name]}
        if "://" not in url:
            assert_files_agree(Path(url), rows)
    return problems


def assert_files_agree(base, rows):
    directories = [path for place in set(DIRECTORIES.values()) for path in (base / place).iterdir()]
    assert [path.name for path in directories] == [row.uuid for row in rows]
    assert not [path.name for path in base.iterdir() if path.name.startswith(".")]
    for row, path in zip(rows, directories, strict=True):
        assert path.parent.name == DIRECTORIES[row.status]
        metadata = msgspec.json.decode((path / "metadata.json").read_bytes(), type=Metadata)
        state = decode_row(metadata, (path / "state.json").read_bytes())
        assert {name: getattr(state, name) for name in MIRRORED} == {name: getattr(row, name) for name in MIRRORED}


def assert_carried_on(url, said):
    """A second process ends what the first one began."""
    last = Evidence(said).last
    ended = in_child(played(url, last + 1))
    assert (ended.signal, ended.code) == (0, 0)
    assert len(said) + len(ended.said) == len(steps())
    assert_whole(url, said + ended.said)


def calls_of(kind, place):
    (place / "counted").mkdir()
    with Faults() as faults:
        played(url_of(kind, place / "counted"))(lambda _: None)
    return faults.calls


@pytest.mark.slow
@pytest.mark.parametrize("how", ["kill before", "kill half", "kill after"])
@pytest.mark.parametrize("kind", STORES)
def test_killed_at_every_call(kind, how, fast_path):
    """Wherever it is killed, all that was acknowledged is there once, and a second process finishes the task."""
    calls = calls_of(kind, fast_path)
    points = [at for at, name in enumerate(calls, start=1) if how != "kill half" or name in {"write", "pwrite"}]
    for at in sampled(points, 20):
        place = fast_path / f"{at}"
        place.mkdir()
        url = url_of(kind, place)
        ended = in_child(played(url), Fault(at=at, how=how))
        try:
            assert ended.signal == signal.SIGKILL
            assert_whole(url, ended.said)
            assert_carried_on(url, ended.said)
        except BaseException as error:
            error.add_note(f"{kind}: {how} call {at} ({calls[at - 1]}), after step {len(ended.said) - 1}")
            raise
        shutil.rmtree(place)


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("strace"), reason=NO_STRACE)
@pytest.mark.parametrize(("kind", "call"), INSIDE if DEEP else SHORT)
def test_killed_inside_sqlite(kind, call, fast_path):
    """The same for the system calls that SQLite makes by itself, which Python cannot see."""
    command = [sys.executable, scenario.__file__]
    (fast_path / "counted").mkdir()
    for at in strace_points(call, [*command, url_of(kind, fast_path / "counted"), UUID], few=2):
        place = fast_path / f"{at}"
        place.mkdir()
        url = url_of(kind, place)
        ended = subprocess.run(
            strace_command(call, f"signal=SIGKILL:when={at}", [*command, url, UUID]),
            capture_output=True,
            text=True,
            check=False,
        )
        said = ended.stdout.splitlines()
        try:
            assert ended.returncode in {-signal.SIGKILL, 128 + signal.SIGKILL}, ended.stderr
            assert_whole(url, said)
            assert_carried_on(url, said)
        except BaseException as error:
            error.add_note(f"{kind}: killed at {call} number {at}, after step {len(said) - 1}")
            raise
        shutil.rmtree(place)


def torn(directory):
    with (directory / "messages.jsonl").open("ab") as file:
        file.write(b'{"seq":4,"role":"us')


def compressed(directory):
    plain = directory / "messages.jsonl"
    with plain.open("rb") as source, (directory / "messages.jsonl.gz").open("wb") as target:
        compress(PlainSource(source.fileno()), target.fileno())
    plain.unlink()


def without_index(directory):
    (directory / "messages.idx").write_bytes(b"nonsense" * 30)


def delete(store):
    store.delete(UUID)


def append(store):
    with store.lease(UUID) as lease:
        lease.append(a_message("four"))


@pytest.mark.slow
@pytest.mark.parametrize("how", ["kill before", "kill half", "kill after"])
@pytest.mark.parametrize(
    ("prepare", "act"), [(None, delete), (torn, append), (compressed, append), (without_index, append)]
)
def test_killed_while_it_is_mended_or_deleted(prepare, act, how, fast_path):
    """Whoever dies while he repairs, unpacks or deletes a task leaves it whole or gone, and the next one can go on."""

    def prepared(place):
        with open_store(place) as store, store.lease(UUID, create=scenario.metadata(UUID)) as lease:
            for text in ("one", "two", "three"):
                lease.append(a_message(text))
        if prepare is not None:
            prepare(place / "running" / UUID)
        return place

    def acted(place):
        with open_store(place, Options(report=lambda _: None)) as store:
            act(store)

    counted = prepared(fast_path / "counted")
    with Faults() as faults:
        acted(counted)
    for at in range(1, len(faults.calls) + 1):
        place = prepared(fast_path / f"{at}")
        ended = in_child(lambda _, place=place: acted(place), Fault(at=at, how=how))
        try:
            assert ended.signal == signal.SIGKILL
            with open_store(place, Options(report=lambda _: None)) as store:
                rows = list(store.find())
                texts = [message.content for message in store.read(UUID, Message)] if rows else []
                assert texts[:3] == ["one", "two", "three"] or (act is delete and not texts)
                assert texts[3:] in ([], ["four"])
                assert_files_agree(place, rows)
                if rows:
                    with store.lease(UUID) as lease:
                        assert lease.append(a_message("next")) == len(texts) + 1
                    store.delete(UUID)
        except BaseException as error:
            error.add_note(f"{how} call {at} ({faults.calls[at - 1]})")
            raise
        shutil.rmtree(place)
