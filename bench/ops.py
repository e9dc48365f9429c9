"""What commands take on a store of many tasks: a whole process each, its time and its memory.

`BENCH_STORE` names a store that `python -m bench.many` made before; without it one is made, and removed.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.many import TASKS, fill

RUNS = 9
# what, its arguments, and what it should take at most, in ms
COMMANDS = [
    ("`ls`", ["ls"], 300),
    ("`ls --sort tokens`", ["ls", "--sort", "tokens"], None),
    ("`ls --user user3 --status failed`", ["ls", "--user", "user3", "--status", "failed"], None),
    ("`stats --summary`", ["stats", "--summary"], 300),
    ("`stats --status failed --json`", ["stats", "--status", "failed", "--json"], None),
    ("`show UUID`", ["show", "{uuid}"], None),
    ("`similar UUID`, 20,000 tasks compared", ["similar", "{uuid}"], None),
    ("`--help`, for comparison", ["--help"], None),
]


def main() -> None:
    """Print the table."""
    tasks = int(os.environ.get("BENCH_TASKS", str(TASKS)))
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as folder:
        url = os.environ.get("BENCH_STORE") or str(Path(folder) / "many")
        if not Path(url).exists():
            fill(url, tasks)
        uuid = next(iter(sorted(os.listdir(Path(url) / "completed"))))
        print(f"{tasks:,} tasks in plain files, a new process each, {RUNS} runs after one to warm up:\n")
        print("| command | median ms | best ms | CPU ms | memory MB | at most ms |\n|---|---|---|---|---|---|")
        for what, arguments, most in COMMANDS:
            given = [part.format(uuid=uuid) for part in arguments]
            store = [] if given == ["--help"] else ["--store", url]
            runs = [ran(given + store) for _ in range(RUNS + 1)][1:]
            walls, cpus = zip(*runs, strict=True)
            print(
                f"| {what} | {statistics.median(walls):.0f} | {min(walls):.0f} | {statistics.median(cpus):.0f} "
                f"| {memory(given + store):.0f} | {most or ''} |"
            )


def ran(arguments: list[str]) -> tuple[float, float]:
    """Wall and processor milliseconds of a command."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    began = time.perf_counter()
    actions = [(os.POSIX_SPAWN_DUP2, nowhere, 1), (os.POSIX_SPAWN_DUP2, nowhere, 2)]
    command = [sys.executable, "-m", "orihon", *arguments]
    child = os.posix_spawn(sys.executable, command, os.environ, file_actions=actions)
    _, status, usage = os.wait4(child, 0)
    wall = time.perf_counter() - began
    os.close(nowhere)
    if status:
        sys.exit(f"orihon {' '.join(arguments)} failed.")
    return wall * 1000, (usage.ru_utime + usage.ru_stime) * 1000


MEMORY = """
import atexit, sys
from orihon.cli import main
def tell():
    with open("/proc/self/status") as status:
        print(next(line.split()[1] for line in status if line.startswith("VmHWM")), file=sys.stderr)
atexit.register(tell)
main(sys.argv[1:])
"""


def memory(arguments: list[str]) -> float:
    """The memory of a command at the most, in MB."""
    command = [sys.executable, "-c", MEMORY, *arguments]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stderr  # noqa: S603
    return int(said.split()[-1]) / 1024


if __name__ == "__main__":
    main()
