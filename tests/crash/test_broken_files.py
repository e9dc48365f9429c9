"""Files that something broke: opened, reported with file, line and reason, and nothing behind it is hidden."""

import os
import random
import struct
import subprocess
import sys

import pytest

from orihon.records import Message
from orihon.stores import open_store
from orihon.stores.base import Options
from orihon.testing.samples import a_message, a_task
from support.faults import fast_place

TASK = a_task()
TEXTS = [f"message {number}: 日本語" for number in range(1, 9)]
NOISE = random.Random(7).randbytes(4096)


@pytest.fixture
def place():
    """A store with one closed task of eight messages."""
    with fast_place() as place:
        with open_store(place / "contexts") as store, store.lease(TASK.uuid, create=TASK) as lease:
            for text in TEXTS:
                lease.append(a_message(text))
        yield place / "contexts"


def file_of(place, name="messages.jsonl"):
    return place / "running" / TASK.uuid / name


def broken(lines, at, new):
    return b"".join([*lines[: at - 1], new, *lines[at:]])


# what the lines become; the numbers of the messages that can still be read; the lines that are reported
CASES = {
    "NUL block at the end": (lambda ls: b"".join(ls) + b"\0" * 4096, range(1, 9), [9]),
    "NUL block in the middle": (lambda ls: b"".join([*ls[:3], b"\0" * 4096, *ls[3:]]), range(1, 9), []),
    "NUL block as a line": (lambda ls: b"".join([*ls[:3], b"\0" * 4096 + b"\n", *ls[3:]]), range(1, 9), [4]),
    "half a line, NULs, and the next": (lambda ls: broken(ls, 4, ls[3][:40] + b"\0" * 4096), [1, 2, 3, 6, 7, 8], [4]),
    "invalid UTF-8 in a text": (
        lambda ls: broken(ls, 4, ls[3].replace(b"message 4", b"message \xff")),
        range(1, 9),
        [],
    ),
    "a line of noise": (lambda ls: broken(ls, 4, NOISE.replace(b"\n", b"") + b"\n"), [1, 2, 3, 5, 6, 7, 8], [4]),
    "BOM": (lambda ls: b"\xef\xbb\xbf" + b"".join(ls), range(1, 9), []),
    "CRLF": (lambda ls: b"".join(ls).replace(b"\n", b"\r\n"), range(1, 9), []),
    "duplicated line": (lambda ls: broken(ls, 4, ls[3] * 2), range(1, 9), [5]),
    "missing final newline": (lambda ls: b"".join(ls)[:-1], range(1, 9), [8]),
    "empty line": (lambda ls: broken(ls, 4, ls[3] + b"\n"), range(1, 9), [5]),
    "half a line in the middle": (lambda ls: broken(ls, 4, ls[3][:40] + b"\n"), [1, 2, 3, 5, 6, 7, 8], [4]),
    "a list, not an object": (lambda ls: broken(ls, 4, b"[1,2]\n"), [1, 2, 3, 5, 6, 7, 8], [4]),
    "a hundred thousand brackets": (lambda ls: broken(ls, 4, b"[" * 100_000 + b"\n"), [1, 2, 3, 5, 6, 7, 8], [4]),
    "the last line broken": (lambda ls: broken(ls, 8, ls[7][:40] + b"\n"), range(1, 8), [8]),
    "a number that became too high": (
        lambda ls: broken(ls, 4, ls[3].replace(b'"seq":4,', b'"seq":900,')),
        [1, 2, 3, 900, 5, 6, 7, 8],
        [5],
    ),
    "all lines broken": (lambda ls: b"".join(line[:40] + b"\n" for line in ls), [], list(range(1, 9))),
    "an empty file": (lambda _: b"", [], []),
}


@pytest.mark.parametrize("case", CASES)
def test_broken_logs(place, case):
    """What can be read is read, what cannot is named by its line, and new messages come behind it all."""
    change, numbers, lines = CASES[case]
    log = file_of(place)
    log.write_bytes(change(log.read_bytes().splitlines(keepends=True)))
    problems = []
    with open_store(place, Options(report=problems.append)) as store:
        assert [message.seq for message in store.read(TASK.uuid, Message)] == list(numbers)
        assert [problem.line for problem in problems] == lines
        assert all(problem.where.endswith("messages.jsonl") and problem.reason for problem in problems)
        for first in range(2, 10):
            expected = [number for number in numbers if number >= first]
            assert [message.seq for message in store.read(TASK.uuid, Message, first=first)] == expected
        with store.lease(TASK.uuid) as lease:
            new = lease.append(a_message("new"))
            assert new == max(numbers, default=0) + 1
        assert [message.seq for message in store.read(TASK.uuid, Message)] == [*numbers, new]
        assert [message.seq for message in store.read(TASK.uuid, Message, first=new)] == [new]


@pytest.mark.slow
def test_reports_leave_no_handles_open(place):
    """A file with thousands of broken lines is reported line by line without running out of handles."""
    log = file_of(place)
    log.write_bytes(b"broken\n" * 3000 + log.read_bytes())
    problems = []
    with open_store(place, Options(report=problems.append)) as store:
        before = len(os.listdir("/proc/self/fd"))
        assert len(list(store.read(TASK.uuid, Message))) == 8
        assert len(os.listdir("/proc/self/fd")) == before
    assert [problem.line for problem in problems] == list(range(1, 3001))


ENTRY = struct.Struct("<QQQIII4x")
INDEXES = {
    "missing": lambda _: None,
    "empty": lambda _: b"",
    "short": lambda data: data[: len(data) // 2 + 7],
    "noise": lambda _: NOISE,
    "noise behind a good header": lambda data: data[: ENTRY.size] + NOISE[: 10 * ENTRY.size],
    "zeros": lambda data: bytes(len(data)),
    "zeros behind a good header": lambda data: data[: ENTRY.size].ljust(len(data), b"\0"),
    "zeros in the middle": lambda data: data[: 3 * ENTRY.size] + bytes(3 * ENTRY.size) + data[6 * ENTRY.size :],
    "zeros at the end": lambda data: data[:-100] + bytes(100),
    "too long": lambda data: data + data[ENTRY.size :],
    "offsets beyond all measure": lambda data: data[: ENTRY.size] + ENTRY.pack(2**64 - 1, 5, 9, 2**32 - 1, 1, 0) * 8,
    "of another log": lambda data: (
        data[: ENTRY.size] + b"".join(ENTRY.pack(77 * place, place + 1, place, 70, 1, 0) for place in range(8))
    ),
    "numbers shifted by one": lambda data: data[: ENTRY.size] + data[2 * ENTRY.size :],
    "lines swapped": lambda data: (
        data[: ENTRY.size]
        + b"".join(data[at : at + ENTRY.size] for at in range(len(data) - ENTRY.size, 0, -ENTRY.size))
    ),
}


@pytest.mark.parametrize("case", INDEXES)
def test_broken_indexes(place, case):
    """An index that is missing, short or wrong costs time, never a message."""
    index = file_of(place, "messages.idx")
    data = INDEXES[case](index.read_bytes())
    index.unlink() if data is None else index.write_bytes(data)
    with open_store(place, Options(report=lambda _: None)) as store:
        tokens = sum(message.tokens for message in store.read(TASK.uuid, Message))
        for _ in range(2):
            for first in range(1, 9):
                expected = TEXTS[first - 1 :]
                assert [message.content for message in store.read(TASK.uuid, Message, first=first)] == expected
            with store.lease(TASK.uuid) as lease:
                assert lease.last(Message) == 8
                assert lease.tokens == tokens


LONG = """
import resource, sys
from orihon.records import Message
from orihon.stores import open_store
from orihon.stores.base import Options
from orihon.testing.samples import a_message
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
before, problems = peak(), []
with open_store(sys.argv[1], Options(report=problems.append)) as store:
    print([message.seq for message in store.read(sys.argv[2], Message)], [problem.line for problem in problems])
    with store.lease(sys.argv[2]) as lease:
        print(lease.append(a_message("new")))
    print([message.seq for message in store.read(sys.argv[2], Message, first=-3)])
print((peak() - before) >> 20)
"""


@pytest.mark.parametrize("end", [b"\n", b""], ids=["in the middle", "at the end"])
def test_a_line_of_100_megabytes(place, end):
    """It is left out and reported; memory stays bounded, and the messages behind it are there."""
    log = file_of(place)
    lines = log.read_bytes().splitlines(keepends=True)
    with log.open("wb") as file:
        file.write(b"".join(lines[:4] if end else lines))
        for _ in range(100):
            file.write(b"x" * (1 << 20))
        file.write(end + b"".join(lines[4:] if end else []))
    ended = subprocess.run(
        [sys.executable, "-c", LONG, str(place), TASK.uuid], capture_output=True, text=True, check=True
    )
    seen, number, last, megabytes = ended.stdout.splitlines()
    assert seen == f"[1, 2, 3, 4, 5, 6, 7, 8] [{5 if end else 9}]"
    assert number == "9"
    assert last.endswith("9]")
    assert int(megabytes) < 90, "a line may have 16 MiB, and a reader holds a few copies of it"
