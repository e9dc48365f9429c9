"""What an append, an open and a listing cost, beside the plainest way to do it, in one run on one disk."""

from __future__ import annotations

import cProfile
import io
import json
import os
import pstats
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.messages import text
from orihon import codec
from orihon.records import Message, Metadata, TaskRow
from orihon.stores import open_store
from orihon.stores.base import FORMAT, Lease, Query
from orihon.stores.jsonl.line_reader import PlainSource
from orihon.stores.jsonl.message_index import MessageIndex, fill_index
from orihon.stores.sql import rows
from orihon.task_key import TaskKey

COUNT = int(os.environ.get("BENCH_MESSAGES", "4000"))
MANY = int(os.environ.get("BENCH_MANY", "1000000"))
TASKS = int(os.environ.get("BENCH_TASKS", "100000"))


def main() -> None:
    """Print the tables."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as folder:
        place = Path(folder)
        _append(place)
        _flat(place)
        _memory(place)
        _tasks(place)


def _metadata() -> Metadata:
    key = TaskKey.github("acme", "shop", issue=27)
    return Metadata(uuid=str(uuid.uuid4()), task_key=key, created_at=codec.now(), user="alice", format=FORMAT)


def _message(role: str, content: str) -> Message:
    return Message(seq=0, role=role, content=content, timestamp="", tokens=0)  # type: ignore[arg-type]


@contextmanager
def _lease(url: str) -> Iterator[Lease]:
    about = _metadata()
    with open_store(url) as store, store.lease(about.uuid, create=about) as lease:
        yield lease


def _timed(work: Callable[[str, str], object], messages: list[tuple[str, str]]) -> list[float]:
    times = []
    for role, content in messages:
        began = time.perf_counter()
        work(role, content)
        times.append(time.perf_counter() - began)
    return times


def _append(place: Path) -> None:
    messages = [text(number) for number in range(COUNT)]
    size = sum(len(content.encode()) for _, content in messages)
    table = {
        'open("a") + json.dumps + flush': _bare(place, messages),
        "SQLite WAL, one row per commit, synced": _sqlite_rows(place, messages),
        "Orihon, plain files": _ours(str(place / "jsonl"), messages),
        "Orihon, one SQLite file": _ours(f"sqlite:///{place / 'one.db'}", messages),
    }
    base = sum(table['open("a") + json.dumps + flush'])
    print(f"Append of {COUNT:,} messages, mean {size / COUNT:,.0f} bytes, masked and counted, durability `turn`:\n")
    print("| store | messages/s | p50 µs | p99 µs | times the bare append |\n|---|---|---|---|---|")
    for name, times in table.items():
        cuts = statistics.quantiles(times, n=100)
        print(
            f"| {name} | {len(times) / sum(times):,.0f} | {cuts[49] * 1e6:,.0f} | {cuts[98] * 1e6:,.0f} "
            f"| {sum(times) / base * COUNT / len(times):.2f} |"
        )
    _sync_and_disk(place, size)
    print("\nWhere the time of an append goes:\n\n```")
    print(_profile(str(place / "profile"), messages))
    print("```")


def _bare(place: Path, messages: list[tuple[str, str]]) -> list[float]:
    with (place / "bare.jsonl").open("a", encoding="utf-8") as file:

        def write(role: str, content: str) -> None:
            file.write(json.dumps({"role": role, "content": content, "timestamp": codec.now()}) + "\n")
            file.flush()

        return _timed(write, messages)


def _sqlite_rows(place: Path, messages: list[tuple[str, str]]) -> list[float]:
    database = sqlite3.connect(place / "rows.db", isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    database.execute("CREATE TABLE messages (seq INTEGER PRIMARY KEY, role TEXT, content TEXT)")
    statement = "INSERT INTO messages (role, content) VALUES (?, ?)"
    times = _timed(lambda role, content: database.execute(statement, (role, content)), messages[: COUNT // 4])
    database.close()
    return times


def _ours(url: str, messages: list[tuple[str, str]]) -> list[float]:
    with _lease(url) as lease:
        lease.append(_message(*messages[0]))  # the rules for secrets are compiled once per process
        return _timed(lambda role, content: lease.append(_message(role, content)), messages)


def _sync_and_disk(place: Path, size: int) -> None:
    with _lease(str(place / "sync")) as lease:
        times = []
        for number in range(400):
            lease.append(_message(*text(number)))
            if number % 2:
                began = time.perf_counter()
                lease.sync()
                times.append(time.perf_counter() - began)
    print(f"\nA sync, once a turn: p50 {statistics.median(times) * 1000:.2f} ms.")
    stored = sum(
        path.stat().st_size for path in (place / "jsonl").rglob("*") if path.is_file() and "db" not in path.name
    )
    print(f"Bytes on disk per byte of content: {stored / size:.3f}.")


def _profile(url: str, messages: list[tuple[str, str]]) -> str:
    profile = cProfile.Profile()
    with _lease(url) as lease:
        profile.enable()
        for role, content in messages[:2000]:
            lease.append(_message(role, content))
        profile.disable()
    out = io.StringIO()
    pstats.Stats(profile, stream=out).sort_stats("tottime").print_stats(12)
    lines = out.getvalue().splitlines()
    start = next(place for place, line in enumerate(lines) if "ncalls" in line)
    return "\n".join(
        line.replace(str(Path(codec.__file__).parent.parent) + os.sep, "") for line in lines[start:]
    ).strip()


def _flat(place: Path) -> None:
    print(f"\nA log of {MANY:,} messages:\n")
    store_place = str(place / "many")
    body = "x" * 200
    with _lease(store_place) as lease:
        first = _timed(lambda role, content: lease.append(_message(role, content)), [("user", body)] * 2000)[1000:]
        for number in range(2000, MANY - 1000):
            lease.append(_message("user", body))
            if number % 10_000 == 0:
                lease.sync()
        last = _timed(lambda role, content: lease.append(_message(role, content)), [("user", body)] * 1000)
        task = lease.uuid
    early, late = statistics.median(first), statistics.median(last)
    print(f"- append p50 at 1,000: {early * 1e6:.1f} µs, at {MANY:,}: {late * 1e6:.1f} µs, ratio {late / early:.2f}")
    script = (
        "import sys, time; from orihon.stores import open_store; from orihon.records import Message\n"
        "import orihon.stores.jsonl.store\n"
        "t=time.perf_counter(); s=open_store(sys.argv[1]); l=s.lease(sys.argv[2])\n"
        "assert len(list(s.read(sys.argv[2], Message, first=-20))) == 20\n"
        "print((time.perf_counter()-t)*1000)"
    )
    opened = [float(_run(script, store_place, task)) for _ in range(5)]
    print(f"- open, take the lease and read the last 20, in a new process after import: {min(opened):.1f} ms")
    log = Path(store_place) / "running" / task / "messages.jsonl"
    with log.open("rb") as file, tempfile.TemporaryFile() as empty, tempfile.TemporaryFile() as new:
        source = PlainSource(file.fileno())
        began = time.perf_counter()
        fill_index(MessageIndex(new.fileno()), MessageIndex(empty.fileno()), source, source.size, lambda *_: None)
        seconds = time.perf_counter() - began
    print(f"- rebuild of its index ({source_size(log)}): {log.stat().st_size / seconds / 1e6:,.0f} MB/s")
    big = place / "big.jsonl"
    with big.open("wb") as out:
        for number in range(40_000):
            role, content = text(number)
            out.write(codec.encode_line(Message(seq=number + 1, role=role, content=content, timestamp="t", tokens=9)))  # type: ignore[arg-type]
    with big.open("rb") as file, tempfile.TemporaryFile() as empty, tempfile.TemporaryFile() as new:
        source = PlainSource(file.fileno())
        began = time.perf_counter()
        fill_index(MessageIndex(new.fileno()), MessageIndex(empty.fileno()), source, source.size, lambda *_: None)
        seconds = time.perf_counter() - began
    print(f"- rebuild of an index of 40,000 messages of 3.7 kB: {big.stat().st_size / seconds / 1e6:,.0f} MB/s")


def source_size(path: Path) -> str:
    """For people."""
    return f"{path.stat().st_size / 1e6:,.0f} MB"


MEMORY = """
import ctypes, sys
from bench.messages import TURN, text
from bench.stores import _lease, _message
from orihon.records import Message
def resident():
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1024
turns = 5000
text(0)
if sys.argv[1] == "list":
    before, kept = resident(), []
    for number in range(turns * TURN // 10):
        role, content = text(number)
        kept.append({"role": role, "content": content})
    print(resident() - before)
else:
    with _lease(sys.argv[2]) as lease:
        for number in range(100):
            lease.append(_message(*text(number)))
        before = resident()
        for number in range(100, turns * TURN // 10):
            lease.append(_message(*text(number)))
            if number % 2:
                lease.sync() if number % 50 == 1 else None
                if number % 501 == 0:
                    list(lease.store.read(lease.uuid, Message, first=-20))
        print(resident() - before)
"""


def _memory(place: Path) -> None:
    ours = float(_run(MEMORY, "ours", str(place / "memory")))
    plain = float(_run(MEMORY, "list"))
    print(f"\nMemory after 5,000 turns, over the start: {ours:.1f} MB; a list in memory: {plain:.1f} MB ")
    print(f"({1 - ours / plain:.0%} less).")


def _tasks(place: Path) -> None:
    with open_store(str(place / "tasks")) as store:
        database: rows.Database = store.database  # type: ignore[attr-defined]

        def fill(connection: sqlite3.Connection) -> None:
            for number in range(TASKS):
                about = Metadata(
                    uuid=str(uuid.UUID(int=number)),
                    task_key=TaskKey.github("acme", "shop", issue=number % 5000 + 1),
                    created_at=f"2024-01-15T10:30:00.{number:06d}Z",
                    user=f"user{number % 50}",
                    format=FORMAT,
                )
                status = ("completed", "failed", "stopped")[number % 3]
                rows.insert(connection, TaskRow.new(about, status))  # type: ignore[arg-type]

        database.transact(fill)
        print(f"\n{TASKS:,} tasks in tasks.db, a page of 50, ms:\n")
        print("| all | by user | by status | by key | page 1,000 |\n|---|---|---|---|---|")
        queries = (
            Query(limit=50),
            Query(limit=50, user="user7"),
            Query(limit=50, status=("failed",)),
            Query(limit=50, key="github/acme/shop/issue/42"),
            Query(limit=50, offset=50_000),
        )
        print("| " + " | ".join(f"{_best(lambda q=query: list(store.find(q))):.1f}" for query in queries) + " |")  # type: ignore[misc]


def _best(work: Callable[[], object]) -> float:
    times = []
    for _ in range(5):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times) * 1000


def _run(script: str, *arguments: str) -> str:
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: S603
