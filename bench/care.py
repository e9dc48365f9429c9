"""What care of a store costs: a dry run over many tasks, and what writers feel while others clean and back up.

Eight processes append messages, each to a task of its own, and measure every call; meanwhile the store is cleaned and
backed up. At the end every record that was acknowledged is there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.many import fill
from orihon.records import Message
from orihon.stores import open_store
from orihon.stores.base import Query

TASKS = int(os.environ.get("BENCH_TASKS", "100000"))
OLD_TASKS = int(os.environ.get("BENCH_OLD_TASKS", "300"))
WRITERS = 8
WARM = 1000
PACE_SECONDS = 0.02  # between two messages of a writer; an agent needs seconds
PEAK = "import resource, sys; print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)"


def main() -> None:
    """Print the tables."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as folder:
        place = Path(folder)
        _dry_run(place)
        _writers(place)


def _dry_run(place: Path) -> None:
    print(f"`orihon clean --dry-run` over {TASKS:,} tasks, a new process each time, the best of 3.\n")
    print("| store | seconds | memory |\n|---|---|---|")
    for name, url in (("files", f"{place}/many"), ("SQLite", f"sqlite:///{place}/many.db")):
        fill(url, TASKS)
        seconds, peak = min(_timed("clean", "--dry-run", "--store", url) for _ in range(3))
        print(f"| {name} | {seconds:.2f} | {peak / 1024:.0f} MB |", flush=True)


def _timed(*arguments: str) -> tuple[float, int]:
    began = time.monotonic()
    command = [sys.executable, "-m", "orihon", *arguments]
    program = f"import subprocess; subprocess.run({command!r}, check=True, stdout=subprocess.DEVNULL); {PEAK}"
    ended = subprocess.run(  # noqa: S603 - our own command line
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return time.monotonic() - began, int(ended.stderr)


def _writers(place: Path) -> None:
    print(f"\n{WRITERS} writers, {OLD_TASKS} old tasks; the longest of all appends and of all windows, in ms.\n")
    print("| store | beside | appends | longest append | over 100 ms | longest sync | lost |")
    print("|---|---|---|---|---|---|---|")
    for name in ("files", "SQLite"):
        for work in ((), ("clean",), ("backup", f"{place}/backups-{name}")):
            at = place / f"{name}-{work[0] if work else 'nothing'}"
            url = f"sqlite:///{at}.db" if name == "SQLite" else str(at)
            fill(url, OLD_TASKS, messages=40)
            appends, syncs = _measured(url, list(work))
            lost = len(appends) - _there(url)
            print(
                f"| {name} | {work[0] if work else 'nothing'} | {len(appends):,} | {max(appends) * 1000:.1f} | "
                f"{sum(one > 0.1 for one in appends)} | "
                f"{max(syncs) * 1000:.1f} | {lost} |",
                flush=True,
            )


def _measured(url: str, work: list[str]) -> tuple[list[float], list[float]]:
    """How long each append and each sync took while the work went on."""
    with _started(url) as writers:
        if work:
            command = [sys.executable, "-m", "orihon", *work, "--store", url]
            subprocess.run(command, check=True, capture_output=True)  # noqa: S603 - our own command line
        else:
            time.sleep(15)
        for writer in writers:
            if writer.stdin is not None:
                writer.stdin.close()  # which ends it
        said = [json.loads(_line(writer)) for writer in writers]
    return [one for each in said for one in each["appends"]], [one for each in said for one in each["syncs"]]


@contextmanager
def _started(url: str) -> Iterator[list[subprocess.Popen[str]]]:
    command = [sys.executable, "-m", "bench.care", url]
    writers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # noqa: S603
        for _ in range(WRITERS)
    ]
    try:
        for writer in writers:
            _line(writer)  # it is ready
        yield writers
    finally:
        for writer in writers:
            writer.kill()
            writer.wait()


def _line(writer: subprocess.Popen[str]) -> str:
    return writer.stdout.readline() if writer.stdout is not None else ""


def _there(url: str) -> int:
    with open_store(url) as store:
        rows = store.find(Query(user="writer"))
        return sum(sum(1 for _ in store.read(row.uuid, Message)) for row in rows)


def write(url: str) -> None:
    """One writer, until its input ends: a message at a time, and a sync after every ten, as before a window."""
    import select  # noqa: PLC0415 - only the child needs it

    from orihon.testing.samples import a_message, a_task  # noqa: PLC0415

    appends, syncs = [], []
    about = a_task(user="writer")
    with open_store("memory:") as warm, warm.lease(about.uuid, create=about) as lease:
        for _ in range(WARM):  # who writes much compiles his rules for masking once; nobody else has a part in that
            lease.append(a_message("x" * 2000))
    with open_store(url) as store, store.lease(about.uuid, create=about) as lease:
        print("ready", flush=True)
        while not select.select([sys.stdin], [], [], PACE_SECONDS)[0]:
            began = time.monotonic()
            lease.append(a_message("x" * 2000))
            appends.append(time.monotonic() - began)
            if len(appends) % 10 == 0:
                began = time.monotonic()
                lease.sync()
                lease.update(add={"llm_call_count": 1})
                syncs.append(time.monotonic() - began)
    print(json.dumps({"appends": appends, "syncs": syncs or [0]}), flush=True)


if __name__ == "__main__":
    write(sys.argv[1])
