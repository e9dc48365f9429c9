"""What a search costs: the time after indexing, the index itself, and what writers notice of it.

`python -m bench search` makes a small store of its own; ORIHON_MANY names a large one to use instead.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable

from bench.messages import text
from orihon.ops.access import AuthorizedStore, Principal
from orihon.ops.search import SearchQuery, search
from orihon.ops.search.index import index_path, remove_index
from orihon.stores import open_store
from orihon.stores.base import Options, Store
from orihon.testing.samples import a_message, a_task

TASKS, MESSAGES = 500, 8
QUERIES = ("invoice", "the", '"the limit is reached"', "設定", "max_retries error", "nothingatall")
WRITERS, APPENDS = 8, 400

WRITER = """
import sys, time
from orihon.stores import open_store
from orihon.testing.samples import a_message, a_task
times = []
with open_store(sys.argv[1]) as store:
    task = a_task()
    with store.lease(task.uuid, create=task) as lease:
        for number in range(int(sys.argv[2])):
            began = time.perf_counter()
            lease.append(a_message(f"number {number} of a writer " * 20))
            times.append((time.perf_counter() - began) * 1000)
            time.sleep(0.01)  # a model takes longer; without it they would measure how they share the processor
        stored = lease.last(type(a_message()))
        lease.update(status="completed")
print(stored, max(times), sorted(times)[len(times) * 999 // 1000])
"""


def main() -> None:
    """Print the figures."""
    given = os.environ.get("ORIHON_MANY")
    with tempfile.TemporaryDirectory() as folder:
        url = given or _made(f"{folder}/contexts")
        _searches(url)
        for kind in ("jsonl", "sqlite"):
            place = f"{folder}/{kind}" if kind == "jsonl" else f"sqlite:///{folder}/writers.db"
            _writers(kind, place)


def _made(url: str) -> str:
    with open_store(url, Options(durability="os")) as store:
        for number in range(TASKS):
            task = a_task(number + 1)
            with store.lease(task.uuid, create=task) as lease:
                for place in range(MESSAGES):
                    lease.append(a_message(text(number * MESSAGES + place)[1][:400]))
                lease.update(status="completed")
    return url


def _searches(url: str) -> None:
    with open_store(url, Options(durability="os")) as store:
        path = index_path(store)
        if path is not None and not os.environ.get("ORIHON_MANY"):
            remove_index(path)
        began = time.perf_counter()
        _search(store, "invoice")
        print(f"The index was brought up to date in {time.perf_counter() - began:.1f} s.\n")
        print("| query | ms, median of 5 | ms for one of 20 users | tasks shown |\n|---|---|---|---|")
        for query in QUERIES:
            everybody, shown = _timed(lambda query=query: _search(store, query))  # type: ignore[misc]
            one, _ = _timed(lambda query=query: _search(store, query, Principal("user1")))  # type: ignore[misc]
            print(f"| `{query}` | {everybody:.0f} | {one:.0f} | {shown} |")
    print(f"\nPeak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB.")


def _search(store: Store, query: str, who: Principal | None = None) -> int:
    authorized = AuthorizedStore(store, who or Principal("root", admin=True), command="bench")
    return len(search(authorized, SearchQuery(text=query)))


def _timed(work: Callable[[], int]) -> tuple[float, int]:
    times, shown = [], 0
    for _ in range(5):
        began = time.perf_counter()
        shown = work()
        times.append((time.perf_counter() - began) * 1000)
    return statistics.median(times), shown


def _writers(kind: str, url: str) -> None:
    """Appends of eight processes, alone and while somebody searches all the time."""
    with open_store(url):
        pass
    alone = _appended(url)
    over = threading.Event()
    searches: list[int] = []
    thread = threading.Thread(target=_keep_searching, args=(url, over, searches))
    thread.start()
    beside = _appended(url)
    over.set()
    thread.join()
    stored = sum(count for count, _, _ in beside)
    print(
        f"\n{kind}: {WRITERS} writers, {stored:,} of {WRITERS * APPENDS:,} messages stored, {len(searches)} searches."
    )
    for name, figures in (("alone", alone), ("with searches", beside)):
        worst, most = max(worst for _, worst, _ in figures), max(usual for _, _, usual in figures)
        print(f"- {name}: an append took {worst:.0f} ms at most, 99.9 % took {most:.1f} ms or less")


def _keep_searching(url: str, over: threading.Event, searches: list[int]) -> None:
    with open_store(url) as store:
        while not over.is_set():
            searches.append(_search(store, "number writer"))


def _appended(url: str) -> list[tuple[int, float, float]]:
    command = [sys.executable, "-c", WRITER, url, str(APPENDS)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(WRITERS)]  # noqa: S603
    printed = [process.communicate()[0].split() for process in processes]
    return [(int(stored), float(worst), float(usual)) for stored, worst, usual in printed]


if __name__ == "__main__":
    main()
