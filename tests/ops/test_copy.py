"""Copies between any two stores: whole, provably equal, and harmless to repeat."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, suppress
from itertools import product
from pathlib import Path

import msgspec
import psycopg
import pytest

import orihon
from orihon import codec
from orihon.errors import NotFound, UsageError
from orihon.ops.copy import COLUMNS, copy_tasks
from orihon.records import Event, Message, Metadata, Part, PlanEntry, Summary, ToolCall
from orihon.stores import open_store
from orihon.stores.base import Options
from orihon.stores.jsonl.line_reader import PlainSource, compress
from orihon.testing.samples import TOKEN, a_message, a_task, one_of_each

SOURCE = str(Path(orihon.__file__).parent.parent)
KINDS = (Metadata, Message, Summary, ToolCall, Event, PlanEntry)
STORES = ["jsonl", "memory", "sqlite", "postgres"]
DURABLE = ["jsonl", "sqlite", "postgres"]


@pytest.fixture
def opened(url_at):
    """A function that opens a store of some kind at a place."""

    def opened(kind, place):
        place.mkdir(exist_ok=True)
        return open_store(url_at(kind, place), Options(durability="os"))

    return opened


def fill(store, *, number=1, messages=30, status="completed"):
    """One task with everything that a task can have; its uuid."""
    task = msgspec.structs.replace(a_task(number), unknown={"made by": "somebody"})
    with store.lease(task.uuid, create=task) as lease:
        for place in range(messages):
            lease.append(a_message(f"message {place} 日本語\u2028", unknown={"later": [place, 1.5, None, {"x": "y"}]}))
        for record in one_of_each()[1:]:
            lease.append(record)
        lease.append(a_message(seq=messages + 10, timestamp="2024-01-15T10:30:00.000000Z", tokens=7, key="after a gap"))
        lease.append(a_message("long " * 200_000))
        lease.append(
            a_message([Part(type="text", text="see"), Part(type="image", data="iVBORw==", media_type="image/png")])
        )
        blob = lease.put(b"a checkpoint" * 1000)
        data = {"files": [{"sha256": blob.sha256, "size_bytes": blob.size_bytes}]}
        lease.append(Event(id=0, after=1, type="checkpoint", data=data, timestamp=""))
        lease.update(
            status=status, add={"total_tokens": 77}, final_summary="done", completed_at="2024-01-15", kept=True
        )
    return task.uuid


def everything(store, uuid):
    """All that can be read of a task, but for its lease."""
    row = store.row(uuid)
    lists = [codec.encode_line(record) for kind in KINDS for record in store.read(uuid, kind)]
    return lists, [getattr(row, name) for name in COLUMNS]


@pytest.mark.parametrize(("first", "second"), list(product(STORES, STORES)))
def test_between_any_two(tmp_path, first, second, opened):
    """Everything arrives: numbers, gaps, times, tokens, unknown fields, blobs, row; and a second run writes nothing."""
    with opened(first, tmp_path / "a") as source, opened(second, tmp_path / "b") as target:
        uuids = [fill(source, number=number, status=status) for number, status in ((1, "completed"), (2, "paused"))]
        copied = copy_tasks(source, target)
        assert (copied.tasks, copied.records, copied.appended, copied.blobs) == (2, 78, 78, 6)
        assert (copied.failures, copied.notes, copied.changed, copied.broken) == ([], [], 0, 0)
        fences = [row.fence for row in target.find()]
        for uuid in uuids:
            assert everything(source, uuid) == everything(target, uuid)
            for blob in (message.blob for message in source.read(uuid, Message) if message.blob):
                assert target.blob(uuid, blob.sha256) == source.blob(uuid, blob.sha256)
        again = copy_tasks(source, target)
        assert (again.tasks, again.records, again.appended) == (2, 78, 0)
        assert [row.fence for row in target.find()] == fences


@pytest.mark.parametrize("kind", STORES)
def test_what_was_added_follows(tmp_path, kind, opened):
    """A copy of a task that went on brings what is new, and its new status."""
    with opened("jsonl", tmp_path / "a") as source, opened(kind, tmp_path / "b") as target:
        uuid = fill(source, status="paused")
        copy_tasks(source, target)
        with source.lease(uuid) as lease:
            lease.append(a_message("more"))
            lease.append(one_of_each()[1])
            lease.update(status="failed", error_message="tired")
        assert copy_tasks(source, target).appended == 2
        assert everything(source, uuid) == everything(target, uuid)


@pytest.mark.parametrize("kind", STORES)
def test_other_tasks_are_left_alone(tmp_path, kind, opened):
    """Tasks of the target stay, and only the tasks that are asked for are copied, also by the beginning of the uuid."""
    with opened("jsonl", tmp_path / "a") as source, opened(kind, tmp_path / "b") as target:
        wanted, other, own = fill(source), fill(source, number=2), fill(target, number=3)
        before = everything(target, own)
        assert copy_tasks(source, target, tasks=[wanted[:13]]).tasks == 1
        assert {row.uuid for row in target.find()} == {wanted, own}
        assert everything(target, own) == before
        with pytest.raises(NotFound):
            copy_tasks(source, target, tasks=["0f8fad5b"])
        assert copy_tasks(source, target, tasks=[other, wanted]).appended == 39


@pytest.mark.parametrize("kind", STORES)
def test_a_difference_is_an_error_that_names_it(tmp_path, kind, opened):
    """A record that is not the same is named, nothing of that task is changed, and the others are copied."""
    with opened("jsonl", tmp_path / "a") as source, opened(kind, tmp_path / "b") as target:
        task = a_task()
        for store, text in ((source, "this"), (target, "that")):
            with store.lease(task.uuid, create=task) as lease:
                lease.append(a_message("same", timestamp="t"))
                lease.append(a_message(text, timestamp="t"))
        with source.lease(task.uuid) as lease:
            lease.append(a_message("new"))
            lease.append(one_of_each()[3])
        before = everything(target, task.uuid)
        other = fill(source, number=2)
        copied = copy_tasks(source, target)
        assert copied.failures == [f"Task {task.uuid}: messages 2 differs in the target."]
        assert everything(target, task.uuid) == before
        assert everything(target, other) == everything(source, other)


def test_a_target_that_went_on_is_not_overwritten(tmp_path, opened):
    """Records that only the target has are an error, and stay."""
    with opened("jsonl", tmp_path / "a") as source, opened("sqlite", tmp_path / "b") as target:
        uuid = fill(source)
        copy_tasks(source, target)
        with target.lease(uuid) as lease:
            number = lease.append(a_message("resumed over there"))
        before = everything(target, uuid)
        assert copy_tasks(source, target).failures == [
            f"Task {uuid}: messages {number} is in the target, but not in the source."
        ]
        assert everything(target, uuid) == before


def test_a_key_that_came_back(tmp_path, opened):
    """Two messages with one key, far from each other, are two messages in the copy as well."""
    with opened("jsonl", tmp_path / "a") as source, opened("sqlite", tmp_path / "b") as target:
        task = a_task()
        with source.lease(task.uuid, create=task) as lease:
            lease.append(a_message("first", key="k"))
            for _ in range(1100):
                lease.append(a_message("between"))
        with source.lease(task.uuid) as lease:
            assert lease.append(a_message("second", key="k")) == 1102
        assert copy_tasks(source, target).records == 1102
        assert everything(source, task.uuid) == everything(target, task.uuid)


def raw(place, uuid, line):
    """Write a line that no sanitiser has seen."""
    (path,) = (place / "contexts").glob(f"*/{uuid}/messages.jsonl")
    with path.open("ab") as file:
        file.write(line + b"\n")


@pytest.mark.parametrize("kind", STORES)
def test_the_funnel_stands_before_the_target(tmp_path, kind, opened):
    """A secret at the source, in a line or in a blob, is masked on the way, counted, and the copy is still proved."""
    with opened("jsonl", tmp_path / "a") as source, opened(kind, tmp_path / "b") as target:
        uuid = fill(source)
        raw(tmp_path / "a", uuid, f'{{"seq":90,"role":"user","content":"{TOKEN}","timestamp":"t","tokens":1}}'.encode())
        with source.lease(uuid) as lease:
            blob = lease.put(f"a text with {TOKEN} in it".encode())
            lease.append(a_message("a text", blob=blob, seq=91))
            lease.append(a_message(TOKEN, seq=92))
            file = {"path": "a.md", "sha256": blob.sha256, "size_bytes": blob.size_bytes, "tokens": 9}
            sticky = lease.append(Event(id=0, after=1, type="sticky", data={"files": [file]}, timestamp=""))
        for run in (1, 2):
            copied = copy_tasks(source, target)
            assert (copied.changed, copied.failures) == (3, []), run
        messages = {message.seq: message for message in target.read(uuid, Message)}
        assert messages[90].content == messages[92].content == "[GITHUB_TOKEN]"
        assert messages[92] == next(source.read(uuid, Message, first=92))
        assert target.blob(uuid, messages[91].blob.sha256) == b"a text with [GITHUB_TOKEN] in it"
        (event,) = target.read(uuid, Event, first=sticky)
        assert event.data == {"files": [file | msgspec.to_builtins(messages[91].blob)]}


def test_what_is_broken_is_skipped_and_said(tmp_path, opened):
    """Broken lines and lost blobs are reported once each, the rest is copied, and numbers keep their gaps."""
    with opened("jsonl", tmp_path / "a") as source, opened("sqlite", tmp_path / "b") as target:
        uuid = fill(source)
        raw(tmp_path / "a", uuid, b"{broken")
        raw(tmp_path / "a", uuid, b'{"seq":99,"role":"user","content":"after","timestamp":"t","tokens":0}')
        raw(tmp_path / "a", uuid, b"{broken at the end")
        for blob in (tmp_path / "a").glob("contexts/*/*/blobs/*"):
            blob.unlink()
        for run in (1, 2):
            copied = copy_tasks(source, target)
            assert (copied.tasks, copied.broken, len(copied.notes), copied.failures) == (1, 5, 5, []), run
        assert any("line 34" in note or "messages.jsonl" in note for note in copied.notes)
        assert everything(source, uuid) == everything(target, uuid)
        assert [message.seq for message in target.read(uuid, Message, first=41)] == [41, 42, 99]


def test_what_broke_later_stays_in_the_target(tmp_path, opened):
    """A line that was copied while it was sound is not missed in the source, and not lost in the target."""
    with opened("jsonl", tmp_path / "a") as source, opened("sqlite", tmp_path / "b") as target:
        uuid = fill(source)
        copy_tasks(source, target)
        before = everything(target, uuid)
        (path,) = (tmp_path / "a").glob(f"contexts/*/{uuid}/messages.jsonl")
        path.write_bytes(path.read_bytes().replace(b'{"seq":5,', b'{"seq":?,', 1))
        copied = copy_tasks(source, target)
        assert (copied.failures, copied.broken) == ([], 1)
        assert any("messages 5 cannot be read in the source; the target has it" in note for note in copied.notes)
        assert everything(target, uuid) == before


def test_a_task_that_is_being_written(tmp_path, opened):
    """What was there at the start is copied, with a note; what came later follows with the next copy."""
    with opened("sqlite", tmp_path / "a") as source, opened("jsonl", tmp_path / "b") as target:
        task = a_task()
        lease = source.lease(task.uuid, create=task)
        for place in range(50):
            lease.append(a_message(f"before {place}"))
        told = []

        def on_progress(progress):
            if progress.records:
                told.append(lease.append(a_message("meanwhile")))

        copied = copy_tasks(source, target, on_progress=on_progress)
        assert (copied.failures, copied.records) == ([], 50)
        assert "has a writer at the source" in copied.notes[0]
        lease.close()
        assert copy_tasks(source, target).appended == len(told)
        assert everything(source, task.uuid) == everything(target, task.uuid)


def test_archives_are_read(tmp_path, opened):
    """A list that retention has compressed is copied like any other."""
    with opened("jsonl", tmp_path / "a") as source, opened("jsonl", tmp_path / "b") as target:
        uuid = fill(source)
        before = everything(source, uuid)
        for path in list((tmp_path / "a").glob(f"contexts/*/{uuid}/**/*.jsonl")):
            with path.open("rb") as plain, Path(f"{path}.gz").open("wb") as packed:
                compress(PlainSource(plain.fileno()), packed.fileno())
            path.unlink()
        assert copy_tasks(source, target).records == 39
        assert everything(source, uuid) == everything(target, uuid) == before


def test_the_same_store_is_refused(tmp_path, opened):
    """Also when it is named in another way."""
    for kind in STORES:
        with opened(kind, tmp_path) as store, pytest.raises(UsageError, match="same store"):
            copy_tasks(store, store)
    (tmp_path / "other").symlink_to(tmp_path)
    for kind in DURABLE:
        with (
            opened(kind, tmp_path) as store,
            opened(kind, tmp_path if kind == "postgres" else tmp_path / "other") as other,
            pytest.raises(UsageError, match="same store"),
        ):
            copy_tasks(store, other)


# in a process of its own


def size_of(place):
    total = 0
    for folder, _, names in os.walk(place):  # which does not mind when a directory moves
        for name in names:
            with suppress(FileNotFoundError):
                total += (Path(folder) / name).stat().st_size
    return total


def stored(url):
    """How many bytes of lines a PostgreSQL database has, as far as they are in."""
    with psycopg.connect(url) as connection:
        if connection.execute("SELECT to_regclass('messages')").fetchone() == (None,):
            return 0
        sizes = "SELECT coalesce(sum(octet_length(line)), 0) + (SELECT count(*) FROM messages) * 600 FROM messages"
        return connection.execute(sizes).fetchone()[0]


def command(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "orihon", *map(str, arguments)],
        capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": SOURCE},
    )  # fmt: skip


KILLED = [*product(["jsonl", "sqlite"], repeat=2), ("jsonl", "postgres"), ("postgres", "jsonl")]


@pytest.mark.slow
@pytest.mark.parametrize(("first", "second"), KILLED)
def test_a_copy_that_was_killed_goes_on(tmp_path, first, second, opened, url_at):
    """kill -9 at any moment, and the next run brings the rest; nothing is doubled, and the proof holds."""
    with opened(first, tmp_path / "a") as source:
        uuids = [fill(source, number=number, messages=800) for number in range(1, 6)]
    (tmp_path / "b").mkdir()
    urls = url_at(first, tmp_path / "a"), url_at(second, tmp_path / "b")
    for size in (100_000, 1_500_000, 3_000_000):
        child = subprocess.Popen(
            [sys.executable, "-m", "orihon", "copy", *urls],
            stdout=subprocess.DEVNULL, env=os.environ | {"PYTHONPATH": SOURCE},
        )  # fmt: skip
        while child.poll() is None and (stored(urls[1]) if second == "postgres" else size_of(tmp_path / "b")) < size:
            time.sleep(0.005)
        child.send_signal(signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL, "it was half-way"
    shown = command("copy", *urls, "--json")
    assert (shown.returncode, shown.stderr) == (0, "")
    copied = json.loads(shown.stdout)
    assert (copied["tasks"], copied["records"], copied["failures"]) == (5, 5 * 809, [])
    with open_store(urls[0]) as source, open_store(urls[1]) as target:
        for uuid in uuids:
            assert everything(source, uuid) == everything(target, uuid)


@pytest.mark.slow
def test_the_command(tmp_path, opened, url_at):
    """Figures for people and for programs, and an exit code that says whether all is equal."""
    with opened("jsonl", tmp_path) as source:
        uuid = fill(source)
    urls = url_at("jsonl", tmp_path), url_at("sqlite", tmp_path)
    shown = command("copy", *urls)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "compared one by one: 1 task, 39 records, 3 blobs, 1.0 MB. New in the target: 39 records." in shown.stdout
    assert json.loads(command("copy", *urls, "--task", uuid[:8], "--json").stdout)["appended"] == 0
    with closing(sqlite3.connect(tmp_path / "contexts.db")) as connection, connection:
        connection.execute("UPDATE messages SET line = replace(line, 'message 4', 'message X')")
    differs = command("copy", *urls)
    assert differs.returncode == 3
    assert f"Task {uuid}: messages 5 differs in the target." in differs.stderr
    assert command("copy", tmp_path / "nothing", urls[1]).returncode == 3
    assert not (tmp_path / "nothing").exists()
    assert command("copy", urls[0], urls[0]).returncode == 2
