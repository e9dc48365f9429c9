"""What PostgreSQL costs: appends, claims, windows, bytes; and from these a model of a day with a million tasks.

It starts a server of its own that syncs every commit, or uses the one of ORIHON_TEST_POSTGRES.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from tests.support.postgres_server import GIVEN, PostgresServer, schema

import orihon
from bench.messages import text
from orihon.agent.queue import Job, enqueue
from orihon.records import Message
from orihon.settings.schema import ContextInheritance, Settings
from orihon.stores import open_store
from orihon.stores.base import Options, Store
from orihon.testing.samples import a_task

COUNT = int(os.environ.get("BENCH_MESSAGES", "1000"))
MANY = int(os.environ.get("BENCH_MANY", "100000"))
WORKERS = int(os.environ.get("BENCH_WORKERS", "8"))
SETTINGS = Settings(context_inheritance=ContextInheritance(enabled=False))
# of one task, for the model: what an agent on an issue does
MESSAGES, UPDATES, HELD_SECONDS = 60, 80, 300

CLAIMER = """
import sys
from orihon.agent.queue import claim, iter_waiting
from orihon.settings.schema import ContextInheritance, Settings
import orihon
with orihon.open(sys.argv[1], settings=Settings(context_inheritance=ContextInheritance(enabled=False))) as engine:
    input()
    done = 0
    while True:
        uuid = engine.store.queue.reserve([row.uuid for row in iter_waiting(engine)][:64])
        if uuid is None:
            break
        task = claim(engine, uuid)
        if task is not None:
            task.complete()
            done += 1
    print(done)
"""


def main() -> None:
    """Print the tables."""
    with _server() as url:
        rate, size = _appends(url)
        _windows(url)
        _claims(url)
        _model(rate, size)


@contextmanager
def _server() -> Iterator[str]:
    if GIVEN in os.environ:
        with schema(os.environ[GIVEN]) as url:
            yield url
        return
    with PostgresServer(fsync="on") as server, server.database() as url:
        yield url


def _message(number: int) -> Message:
    return Message(seq=0, role="user", content=text(number)[1], timestamp="", tokens=0)


def _appends(url: str) -> tuple[float, float]:
    print("| appends | per second |\n|---|---|")
    rates = {}
    for durability, name in (("turn", "one by one, each synced"), ("os", "one by one, `durability: os`")):
        with open_store(url, Options(durability=durability)) as store:  # type: ignore[arg-type]
            rates[durability] = _fill(store, COUNT)
        print(f"| {name} | {rates[durability]:,.0f} |")
    with open_store(url) as store:
        print(f"| together | {_fill(store, COUNT * 10, together=True):,.0f} |")
    print(f"| {WORKERS} threads, a task each | {_threads(url):,.0f} |")
    _saver(url)
    size = _bytes_of(url)
    mean = statistics.mean(len(text(number)[1]) for number in range(200))
    print(f"\nA message of {mean:,.0f} characters takes {size:,.0f} bytes.\n")
    return rates["turn"], size


def _fill(store: Store, count: int, *, together: bool = False) -> float:
    task = a_task()
    messages = [_message(number) for number in range(count)]
    with store.lease(task.uuid, create=task) as lease:
        began = time.perf_counter()
        if together:
            with lease.batch():
                for message in messages:
                    lease.append(message)
        else:
            for message in messages:
                lease.append(message)
        return count / (time.perf_counter() - began)


def _threads(url: str) -> float:
    with open_store(url) as store:
        began = time.perf_counter()
        threads = [threading.Thread(target=_fill, args=(store, COUNT // 4)) for _ in range(WORKERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return WORKERS * (COUNT // 4) / (time.perf_counter() - began)


def _saver(url: str) -> None:
    """LangGraph's saver, where it is installed: the same messages, one checkpoint each, as its graphs write them."""
    try:
        from langgraph.checkpoint.base import empty_checkpoint  # noqa: PLC0415
        from langgraph.checkpoint.postgres import PostgresSaver  # noqa: PLC0415
    except ImportError:
        print("| LangGraph's PostgreSQL saver | not installed |")
        return
    with PostgresSaver.from_conn_string(url) as saver:
        saver.setup()
        config = {"configurable": {"thread_id": str(uuid.uuid4()), "checkpoint_ns": ""}}
        said: list[str] = []
        count = min(COUNT, 500)
        began = time.perf_counter()
        for number in range(count):
            said.append(text(number)[1])
            checkpoint = empty_checkpoint() | {
                "channel_values": {"messages": list(said)}, "channel_versions": {"messages": number + 1}
            }  # fmt: skip
            config = saver.put(config, checkpoint, {}, {"messages": number + 1})
        rate = count / (time.perf_counter() - began)
        kept = saver.get_tuple(config)
        if kept is None or kept.checkpoint["channel_values"]["messages"] != said:
            raise SystemExit("LangGraph's saver does not give back what it was given.")
        print(f"| LangGraph's PostgreSQL saver, {count} messages | {rate:,.0f} |")


def _bytes_of(url: str) -> float:
    with psycopg.connect(url, autocommit=True) as connection:
        found = connection.execute(
            "SELECT pg_total_relation_size('messages')::float / count(*) FROM messages"
        ).fetchone()
    return found[0] if found else 0.0


def _windows(url: str) -> None:
    """Two tasks side by side, turn by turn, so that what else the machine does hits both."""
    print("| messages in the log | append p50 | window p50 |\n|---|---|---|")
    with orihon.open(url, settings=SETTINGS) as engine:
        tasks = {count: _long(engine, count) for count in (1000, MANY)}
        appends: dict[int, list[float]] = {count: [] for count in tasks}
        windows: dict[int, list[float]] = {count: [] for count in tasks}
        for number in range(40):
            for count, task in tasks.items():
                began = time.perf_counter()
                task.add("user", f"next {number}")
                appends[count].append(time.perf_counter() - began)
                began = time.perf_counter()
                task.window().openai()
                windows[count].append(time.perf_counter() - began)
        for count, task in tasks.items():
            task.pause()
            append, window = statistics.median(appends[count]), statistics.median(windows[count])
            print(f"| {count:,} | {append * 1e3:.1f} ms | {window * 1e3:.1f} ms |")
    print()


def _long(engine: orihon.Engine, count: int) -> orihon.Task:
    task = engine.start("local/issue/x", context_length=32_000)
    task.add("user", "Go.")
    with task.writer.lease.batch():
        for number in range(count):
            task.writer.append(Message(seq=0, role="assistant", content=f"step {number}", timestamp="", tokens=0))
    task.window()
    return task


def _claims(url: str) -> None:
    count = COUNT // 5
    with orihon.open(url, settings=SETTINGS) as engine:
        for number in range(count):
            key = orihon.TaskKey.local(f"t{number}")
            enqueue(engine, key, Job(request="Go."), user=f"user{number % 7}")
    with open_store(url) as store:
        uuids = [row.uuid for row in store.queue.waiting()]
        began = time.perf_counter()
        for _ in uuids[: len(uuids) // 2]:
            store.lease(store.queue.reserve(uuids) or "").close()
        rate = len(uuids) // 2 / (time.perf_counter() - began)
    print(f"One process claims {rate:,.0f} tasks a second (put by, lease taken and given back).")
    children = [
        subprocess.Popen(  # noqa: S603 - our own command line
            [sys.executable, "-c", CLAIMER, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    began = time.perf_counter()
    done = [int(child.communicate("\n")[0]) for child in children]
    seconds = time.perf_counter() - began
    print(
        f"{sum(done):,} of {count:,} tasks were taken and ended by 4 processes, {sum(done) / seconds:,.0f} a second.\n"
    )


def _model(rate: float, size: float) -> None:
    """A million tasks a day, by what was measured."""
    a_second = 1_000_000 / 86_400
    print("| a million tasks a day | |\n|---|---|")
    print(f"| tasks a second | {a_second:.1f} |")
    print(f"| running at the same time, {HELD_SECONDS} s each | {a_second * HELD_SECONDS:,.0f} |")
    print(f"| commits a second ({MESSAGES} messages and {UPDATES} changes of the row each) | "
          f"{a_second * (MESSAGES + UPDATES):,.0f} |")  # fmt: skip
    print(f"| heartbeats a second | {a_second * HELD_SECONDS / 30:,.0f} |")
    print(f"| one connection commits here | {rate:,.0f} a second |")
    print(f"| messages a day | {MESSAGES:,} million, {MESSAGES * size / 1e3:,.0f} GB |")
    print(f"| kept for 30 days | {MESSAGES * size * 30 / 1e6:,.1f} TB |")
