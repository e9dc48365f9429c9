"""What a checkpoint of the files costs: in time, beside `git add` and `git commit`, and on the disk."""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from orihon.chat.workspace_checkpoints import WorkspaceCheckpoints

FILES = int(os.environ.get("BENCH_FILES", "10000"))
TIMES = int(os.environ.get("BENCH_CHECKPOINTS", "60"))
IN_A_DIRECTORY = 50
CHANCE = random.Random(1)  # noqa: S311 - a benchmark has no secrets
WORDS = Path(__file__).read_text(encoding="utf-8").split()


def main() -> None:
    """Print the tables."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as folder:
        place = Path(folder)
        files = _workspace(place / "workspace")
        _time(place, files)
        _disk(place, files)


def _workspace(root: Path) -> list[Path]:
    """Files of some 4 kB in directories of directories, and a few rules."""
    files = []
    for number in range(FILES):
        directory = root / f"package{number // 1000}" / f"part{number // IN_A_DIRECTORY}"
        directory.mkdir(parents=True, exist_ok=True)
        files.append(directory / f"module{number}.py")
        files[-1].write_text(_text(), encoding="utf-8")
    (root / ".gitignore").write_text("*.pyc\n__pycache__/\nbuild/\n/dist\n*.log\n", encoding="utf-8")
    return files


def _text() -> str:
    return "\n".join(" ".join(CHANCE.choices(WORDS, k=10)) for _ in range(60))


def _time(place: Path, files: list[Path]) -> None:
    checkpoints = WorkspaceCheckpoints(place / "repository", place / "workspace")
    began = time.perf_counter()
    checkpoints.take("first")
    seconds = time.perf_counter() - began
    checkpoints.take("second")  # which reads the files once more, and from then on knows their times
    table = {
        "one file changed": _timed(lambda: checkpoints.take("one"), files, 1),
        "ten files changed": _timed(lambda: checkpoints.take("ten"), files, 10),
        "nothing changed": _timed(lambda: checkpoints.take("none"), files, 0),
        "restore, one file changed": _timed(_back(checkpoints), files, 1, times=TIMES // 2),
        "`git add -A` and `git commit`, one file changed": _timed(_plain(place), files, 1),
    }
    print(f"A workspace of {FILES:,} files, {_size(place / 'workspace') / 1e6:.0f} MB. ", end="")
    print(f"The first checkpoint takes {seconds:.2f} s; then, in ms:\n")
    print("| what | p50 | p95 | processor's time, p50 |\n|---|---|---|---|")
    for name, (wall, cpu) in table.items():
        cuts = statistics.quantiles(wall, n=20)
        print(f"| {name} | {cuts[9] * 1000:.0f} | {cuts[18] * 1000:.0f} | {statistics.median(cpu) * 1000:.0f} |")


def _back(checkpoints: WorkspaceCheckpoints) -> Callable[[], object]:
    taken = checkpoints.take("to go back to")
    return lambda: checkpoints.restore(taken.commit)


def _timed(
    work: Callable[[], object], files: list[Path], changed: int, times: int = TIMES
) -> tuple[list[float], list[float]]:
    wall, cpu = [], []
    for _ in range(times):
        for path in CHANCE.sample(files, changed):
            path.write_text(_text(), encoding="utf-8")
        began, used = time.perf_counter(), _cpu()
        work()
        wall.append(time.perf_counter() - began)
        cpu.append(_cpu() - used)
    return wall, cpu


def _cpu() -> float:
    """Of this process and of those that it started and that have ended."""
    return sum(os.times()[:4])


def _plain(place: Path) -> Callable[[], object]:
    """The plainest way to keep the files in git; the repository is beside the workspace as well."""
    identity = {f"GIT_{who}_{what}": "bench" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    where = {"GIT_DIR": str(place / "plain"), "GIT_WORK_TREE": str(place / "workspace")}
    environment = os.environ | identity | where | {"GIT_CONFIG_GLOBAL": os.devnull}

    def git(*arguments: str) -> None:
        subprocess.run(["git", *arguments], cwd=place / "workspace", env=environment, check=True)  # noqa: S603, S607

    def commit() -> None:
        git("add", "-A")
        git("commit", "-q", "-m", "one")

    git("init", "-q")
    commit()
    return commit


def _disk(place: Path, files: list[Path]) -> None:
    checkpoints = WorkspaceCheckpoints(place / "fresh", place / "workspace")
    commits = [checkpoints.take("first").commit]
    checkpoints.take("second")
    sizes = [_size(checkpoints.repository)]
    for _ in range(TIMES):
        CHANCE.choice(files).write_text(_text(), encoding="utf-8")
        commits.append(checkpoints.take("one").commit)
    sizes.append(_size(checkpoints.repository))
    for _ in range(10):
        checkpoints.take("none")
    sizes.append(_size(checkpoints.repository))
    for kept in (commits, commits[:1]):
        checkpoints.keep_only(kept)
        sizes.append(_size(checkpoints.repository))
    first, changed, same, packed, left = (size / 1000 for size in sizes)
    print("\nOn the disk, in blocks of 4 kB, a changed file having some 4 kB itself:\n")
    print("| after | kB | for each checkpoint |\n|---|---|---|")
    print(f"| the first checkpoint | {first:,.0f} | |")
    print(f"| {TIMES} more, one file changed | {changed:,.0f} | {(changed - first) / TIMES:.1f} |")
    print(f"| 10 more, nothing changed | {same:,.0f} | {(same - changed) / 10:.1f} |")
    print(f"| packing all of them | {packed:,.0f} | |")
    print(f"| forgetting all but the first | {left:,.0f} | |")


def _size(root: Path) -> int:
    """What the files take, in whole blocks."""
    return sum(path.stat().st_blocks * 512 for path in root.rglob("*") if path.is_file())
