"""Compressed tasks are read like plain ones, and written again after they were unpacked."""

import gzip
import os
import subprocess

import pytest

from orihon.records import Message, ToolCall
from orihon.stores.jsonl.line_reader import BLOCK_BYTES, GzipSource, PlainSource, compress, read_lines
from orihon.stores.jsonl.store import JsonlStore
from orihon.testing.samples import a_message, a_task, one_of_each


def pack(path):
    """What retention does to a list."""
    with path.open("rb") as plain, (path.parent / f"{path.name}.gz").open("wb") as packed:
        compress(PlainSource(plain.fileno()), packed.fileno())
    path.unlink()


def pack_otherwise(path):
    """What a person does to a list."""
    (path.parent / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()


@pytest.fixture
def task(tmp_path):
    """A completed task of 700 messages and one record of each other kind."""
    about = a_task()
    with JsonlStore(tmp_path / "contexts") as store, store.lease(about.uuid, create=about) as lease:
        for number in range(700):
            lease.append(a_message(f"message {number} " + "x" * 2000))
        for record in one_of_each()[1:]:
            lease.append(record)
        lease.update(status="completed")
    return about


@pytest.mark.parametrize("packer", [pack, pack_otherwise], ids=["ours", "gzip"])
def test_every_verb_reads_archives(tmp_path, task, packer):
    """From the start, from the middle, from the end, and every kind."""
    for path in (tmp_path / "contexts" / "completed" / task.uuid).rglob("*.jsonl"):
        packer(path)
    with JsonlStore(tmp_path / "contexts") as store:
        assert [message.seq for message in store.read(task.uuid, Message)] == list(range(1, 701))
        assert [message.seq for message in store.read(task.uuid, Message, first=300, last=302)] == [300, 301, 302]
        assert [message.seq for message in store.read(task.uuid, Message, first=-2)] == [699, 700]
        assert len(list(store.read(task.uuid, ToolCall))) == 1


@pytest.mark.parametrize("packer", [pack, pack_otherwise], ids=["ours", "gzip"])
def test_an_archive_can_be_written_again(tmp_path, task, packer):
    """Taking the lease unpacks the lists; numbers go on where they were."""
    folder = tmp_path / "contexts" / "completed" / task.uuid
    for path in folder.rglob("*.jsonl"):
        packer(path)
    with JsonlStore(tmp_path / "contexts") as store:
        with store.lease(task.uuid) as lease:
            assert lease.append(a_message("one more")) == 701
            assert lease.append(one_of_each()[1]) == 2
        assert [message.seq for message in store.read(task.uuid, Message, first=-1)] == [701]
    assert not list(folder.rglob("*.gz"))


def test_zcat_reads_them(tmp_path, task):
    """The archive is an ordinary gzip file of many members."""
    log = tmp_path / "contexts" / "completed" / task.uuid / "messages.jsonl"
    plain = log.read_bytes()
    pack(log)
    packed = log.parent / "messages.jsonl.gz"
    assert subprocess.run(["gzip", "-dc", packed], capture_output=True, check=True).stdout == plain
    assert packed.stat().st_size < len(plain) / 4


def test_a_seek_unpacks_only_what_it_needs(tmp_path):
    """Reading at the end of a large archive touches one or two members."""
    log = tmp_path / "log.jsonl"
    log.write_bytes(b"".join(b'{"n":%07d}\n' % number for number in range(200_000)))
    with log.open("rb") as plain, (tmp_path / "log.gz").open("wb") as packed:
        compress(PlainSource(plain.fileno()), packed.fileno())
    source = GzipSource(os.open(tmp_path / "log.gz", os.O_RDONLY))
    read, pread = [], os.pread
    try:
        assert source.size == log.stat().st_size
        os.pread = lambda fd, size, place: read.append(place) or pread(fd, size, place)
        lines = list(read_lines(source, source.size - 28))
    finally:
        os.pread = pread
        source.close()
    assert [line.data for line in lines] == [b'{"n":0199998}', b'{"n":0199999}']
    assert len(read) <= 2
    assert log.stat().st_size > 8 * BLOCK_BYTES
