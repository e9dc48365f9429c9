"""One task as one file: everything is in it, it comes back equal, and a hostile one is refused in a sentence."""

import base64
import gzip
import hashlib
import json
import os
import stat
import zlib

import msgspec
import pytest

from orihon import codec
from orihon.errors import Conflict, Corrupt, OrihonError, SchemaMismatch, UsageError
from orihon.ops import task_file
from orihon.ops.copy import COLUMNS
from orihon.ops.task_file import open_task_file, write_task_file
from orihon.records import Event, Fold, Message, Metadata, Part, PlanEntry, Summary, ToolCall
from orihon.stores import open_store
from orihon.stores.base import Options
from orihon.testing.samples import a_message, a_task, one_of_each

KINDS = (Metadata, Message, Summary, ToolCall, Event, Fold, PlanEntry)
STORES = ["jsonl", "memory", "sqlite", "postgres"]


@pytest.fixture
def opened(url_at):
    def opened(kind, place):
        place.mkdir(exist_ok=True)
        return open_store(url_at(kind, place), Options(durability="os"))

    return opened


def fill(store, *, status="completed", **task):
    """A task with everything that a task can have; its row."""
    made = msgspec.structs.replace(a_task(**task), unknown={"made by": "somebody"})
    with store.lease(made.uuid, create=made) as lease:
        for place in range(20):
            lease.append(a_message(f"message {place} 日本語\u2028", unknown={"later": [place, 1.5, None, {"x": "y"}]}))
        for record in one_of_each()[1:-1]:
            lease.append(record)
        lease.append(PlanEntry(id=0, type="plan", task_uuid=made.uuid, data={"goal": "g"}, timestamp=""))
        lease.append(a_message(seq=40, timestamp="2024-01-15T10:30:00.000000Z", tokens=7, key="after a gap"))
        lease.append(a_message("long " * 60_000))
        picture = Part(type="image", data=base64.b64encode(b"png").decode(), media_type="image/png")
        lease.append(a_message([Part(type="text", text="see"), picture]))
        blob = lease.put(b"")
        data = {"files": [{"sha256": blob.sha256, "size_bytes": blob.size_bytes}]}
        lease.append(Event(id=0, after=1, type="checkpoint", data=data, timestamp=""))
        lease.update(status=status, add={"total_tokens": 77}, final_summary="done", kept=True)
    return store.row(made.uuid)


def everything(store, uuid):
    row = store.row(uuid)
    lists = [codec.encode_line(record) for kind in KINDS for record in store.read(uuid, kind)]
    return lists, [getattr(row, name) for name in COLUMNS]


@pytest.mark.parametrize("kind", STORES)
def test_out_and_in_again(opened, tmp_path, kind, monkeypatch):
    """What comes in is what went out: numbers, gaps, times, unknown fields, blobs and row; twice is as good as once."""
    monkeypatch.setattr(task_file, "PIECE_BYTES", 100_000)
    path = tmp_path / "task.orihon"
    with opened(kind, tmp_path / "a") as source, opened(kind, tmp_path / "b") as target:
        row = fill(source)
        figures = write_task_file(source, row, path)
        assert (figures.records, figures.blobs) == (29, 3)
        for appended in (29, 0):
            with open_task_file(path) as portable:
                assert portable.copy_to(target).appended == appended
        assert everything(source, row.uuid) == everything(target, row.uuid)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path).count("task.orihon") == 1
    lines = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    assert lines[0] == {"orihon": "task", "version": 1, "uuid": row.uuid}
    assert [line["messages"]["seq"] for line in lines if "messages" in line] == [*range(1, 21), 40, 41, 42]


@pytest.mark.parametrize(("status", "then"), [("running", "paused"), ("paused", "paused"), ("failed", "failed")])
def test_what_runs_there_does_not_run_here(opened, tmp_path, status, then):
    """A task that was running elsewhere has no holder here, so it is paused."""
    path = tmp_path / "task.orihon"
    with opened("memory", tmp_path) as source, opened("memory", tmp_path) as target:
        write_task_file(source, fill(source, status=status), path)
        with open_task_file(path) as portable:
            portable.copy_to(target)
        (row,) = target.find()
        assert (row.status, row.lease_owner) == (then, None)


def test_another_name(opened, tmp_path):
    """A task can be taken in under another id and for another user; its plan goes with it."""
    path = tmp_path / "task.orihon"
    with opened("memory", tmp_path) as source, opened("jsonl", tmp_path / "b") as target:
        row = fill(source)
        write_task_file(source, row, path)
        with open_task_file(path) as portable:
            portable.rename(uuid="another", user="bob")
            portable.copy_to(target)
        (found,) = target.find()
        assert (found.uuid, found.user, found.task_key) == ("another", "bob", row.task_key)
        assert [entry.task_uuid for entry in target.read("another", PlanEntry)] == ["another"]


def test_a_broken_task_is_not_exported(opened, tmp_path):
    """A task that cannot be read whole gives no file, and the file of yesterday stays."""
    path = tmp_path / "task.orihon"
    path.write_text("yesterday")
    with opened("jsonl", tmp_path / "a") as store:
        row = fill(store)
        messages = tmp_path / "a" / "contexts" / "completed" / row.uuid / "messages.jsonl"
        messages.write_bytes(messages.read_bytes().replace(b'"message 3 ', b"\xff\x00{{", 1))
        with pytest.raises(Corrupt, match="cannot be exported completely"):
            write_task_file(store, row, path)
    assert path.read_text() == "yesterday"
    assert sorted(os.listdir(tmp_path)) == ["a", "task.orihon"]


def test_a_different_task_of_that_id_is_left_alone(opened, tmp_path):
    """A file does not overwrite what is there."""
    path = tmp_path / "task.orihon"
    with opened("memory", tmp_path) as source, opened("memory", tmp_path) as target:
        row = fill(source)
        write_task_file(source, row, path)
        with target.lease(row.uuid, create=next(source.read(row.uuid, Metadata))) as lease:
            lease.append(a_message("something else"))
        with open_task_file(path) as portable, pytest.raises(Conflict, match="messages 1 differs"):
            portable.copy_to(target)


def made(tmp_path, change=lambda lines: lines, *, seal=True):
    """A portable file whose lines were changed by somebody, who knows how to make a checksum."""
    path = tmp_path / "task.orihon"
    with open_store("memory:") as store:
        write_task_file(store, fill(store), path)
    *lines, end = gzip.decompress(path.read_bytes()).splitlines(keepends=True)
    lines = change(lines)
    if seal:
        total = hashlib.sha256(b"".join(lines)).hexdigest()
        end = json.dumps({"end": {"lines": len(lines), "sha256": total}}, separators=(",", ":")).encode() + b"\n"
    path.write_bytes(gzip.compress(b"".join([*lines, end])))
    return path


def replaced(old, new):
    return lambda lines: [line.replace(old, new) for line in lines]


HOSTILE = {
    "a path for an id": (replaced(b'"uuid":"', b'"uuid":"../../'), UsageError, "Invalid task id"),
    "a newer version": (replaced(b'"version":1', b'"version":2'), SchemaMismatch, "version 2"),
    "a newer format": (replaced(b'"format":1', b'"format":9'), SchemaMismatch, "format 9"),
    "two tasks": (replaced(b'"row":{"uuid":"', b'"row":{"uuid":"x'), Corrupt, "different tasks"),
    "a key of nobody": (replaced(b'"task_source":"github"', b'"task_source":"ftp"'), Corrupt, "cannot be read"),
    "a broken line": (replaced(b'"role":"user"', b'"role":"root"'), Corrupt, "cannot be read"),
    "a blob with a path": (replaced(b'{"blob":{"sha256":"', b'{"blob":{"sha256":"../'), Corrupt, "invalid name"),
    "another blob": (replaced(b'"data":"cG5n"', b'"data":"cG5o"'), Corrupt, "does not match its name"),
    "no base64": (replaced(b'"data":"cG5n"', b'"data":"c!5n"'), Corrupt, "not base64"),
    "an unknown list": (lambda lines: [*lines, b'{"links":{"to":"/etc/passwd"}}\n'], Corrupt, "not part of the format"),
    "no row": (lambda lines: [line for line in lines if b'{"row"' not in line], Corrupt, "missing"),
    "no blob": (lambda lines: [line for line in lines if b'"cG5n"' not in line], Corrupt, "cannot be imported"),
    "a list in two places": (
        lambda lines: [*lines, next(line for line in lines if line.startswith(b'{"messages"'))],
        Corrupt,
        "two places",
    ),
    "a number twice": (
        lambda lines: [line for line in lines for _ in range(1 + line.startswith(b'{"messages":{"seq":3,'))],
        Corrupt,
        "repeats number 3",
    ),
    "no header": (lambda lines: lines[1:], UsageError, "not a portable task"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_files(opened, tmp_path, what):
    """Whatever somebody wrote into it, he gets a sentence, and nothing is left in the store."""
    change, error, words = HOSTILE[what]
    path = made(tmp_path, change)
    with opened("memory", tmp_path) as target:
        with pytest.raises(error, match=words) as caught, open_task_file(path) as portable:
            portable.copy_to(target)
        assert isinstance(caught.value, OrihonError)
        assert not list(target.find())


def test_a_wrong_checksum(tmp_path):
    """One changed letter is noticed."""
    path = made(tmp_path, replaced(b"message 7", b"massage 7"), seal=False)
    with pytest.raises(Corrupt, match="checksum is wrong"):
        open_task_file(path)


@pytest.mark.parametrize("cut", [0, 10, 200, -1, -9])
def test_cut_off(tmp_path, cut):
    """Half a file is no file."""
    path = made(tmp_path)
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(Corrupt, match=r"truncated|empty"):
        open_task_file(path)


def test_something_behind_the_end(tmp_path):
    """Nothing can be hidden behind the end, packed or not."""
    path = made(tmp_path)
    whole = path.read_bytes()
    for more in (gzip.compress(b"{}\n"), b"more"):
        path.write_bytes(whole + more)
        with pytest.raises(Corrupt, match=r"follows its end|cannot be decompressed"):
            open_task_file(path)


def test_a_bomb(tmp_path, monkeypatch):
    """A file that unpacks to far more than a task is given up early."""
    monkeypatch.setattr(task_file, "BOMB_BYTES", 1_000_000)
    header = b'{"orihon":"task","version":1,"uuid":"u"}\n'
    lines = b'{"messages":{"seq":1,"role":"user","content":"' + b"0" * 100_000 + b'","timestamp":"","tokens":0}}\n'
    packer = zlib.compressobj(9, wbits=31)
    packed = packer.compress(header) + b"".join(packer.compress(lines) for _ in range(1000)) + packer.flush()
    path = tmp_path / "bomb.orihon"
    path.write_bytes(packed)
    with pytest.raises(Corrupt, match="larger than"):
        open_task_file(path)
    path.write_bytes(gzip.compress(header + b"0" * (task_file.MAX_LINE_BYTES + 2)))
    with pytest.raises(Corrupt, match="longer than"):
        open_task_file(path)


def test_a_link_is_not_followed_when_writing(opened, tmp_path):
    """A link that lies where the file goes is replaced, not followed."""
    target, path = tmp_path / "precious", tmp_path / "task.orihon"
    target.write_text("precious")
    path.symlink_to(target)
    with opened("memory", tmp_path) as store:
        write_task_file(store, fill(store), path)
    assert target.read_text() == "precious"
    assert not path.is_symlink()
