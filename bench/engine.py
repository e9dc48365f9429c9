"""What the engine adds to a turn of an agent, without the model and the tool.

A turn is `window()`, its rendering for OpenAI, `add_reply()`, `pending_calls()` and one `tool()` whose result has
3.5 kB. The model needs no time, but when the next fold is being made: then it thinks until that is done, as every real
one does. After each turn the processor is given a loop that is always the same, and the disk the same lines,
replacements and syncs without an engine, so that both can be told from the engine in the same run: shared machines have
bad moments. "At even speed" is a turn divided by how much longer than at its best the loop took just after it.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import orihon
from bench.messages import passage, reply
from orihon.settings.schema import ContextStorage, Settings
from orihon.stores.files import open_directory, replace_file
from orihon.task_key import TaskKey

TURNS = int(os.environ.get("BENCH_TURNS", "5000"))
AROUND = 200  # turns that a figure is taken of
RESULT_CHARS, STATE_BYTES = 3_500, 1_024
LOOPS = 5_000
PARTS = ("window()", "openai()", "add_reply()", "pending_calls()", "tool()")
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": "read_file", "parameters": {"type": "object"}}}
]


class Turn(NamedTuple):
    """How long each part took, whether there was a fold, and how the machine was."""

    parts: list[float]
    folded: bool  # whether the window was folded since the one before
    loop: float  # seconds for work that is always the same
    disk: float  # seconds for the same lines and syncs without an engine

    @property
    def ms(self) -> float:
        return sum(self.parts) * 1000


def main() -> None:
    """Print the figures."""
    runs = {name: _run(name) for name in ("turn", "os")}
    print(f"A task of {TURNS:,} turns in plain files, a window of 128,000 tokens; ms, all turns:\n")
    print("| durability | what | p50 | p90 | p99 |\n|---|---|---|---|---|")
    for name, turns in runs.items():
        best = min(turn.loop for turn in turns)
        even = [turn.ms * best / turn.loop for turn in turns]
        _print_row(name, "a turn", [turn.ms for turn in turns])
        _print_row(name, "at even speed", even)
        _print_row(name, f"of these the first {AROUND}", even[:AROUND])
        _print_row(name, f"of these the last {AROUND}", even[-AROUND:])
        _print_row(name, "the loop, 1 at its best", [turn.loop / best for turn in turns])
        _print_row(name, "the disk alone", [turn.disk * 1000 for turn in turns])
    print("\nWhere the time goes, p50 in ms over all turns:\n")
    print(f"| durability | {' | '.join(f'`{part}`' for part in PARTS)} |\n|---|---|---|---|---|---|")
    for name, turns in runs.items():
        medians = (statistics.median(times) * 1000 for times in zip(*(turn.parts for turn in turns), strict=True))
        print(f"| `{name}` | {' | '.join(f'{median:.2f}' for median in medians)} |")
    print("\nTurns whose window is newly folded, in ms:\n")
    print("| durability | turns | p50 | slowest |\n|---|---|---|---|")
    for name, turns in runs.items():
        folded = [turn.ms for turn in turns if turn.folded]
        figures = (statistics.median(folded), max(folded))
        print(f"| `{name}` | {len(folded)} of {TURNS:,} | {' | '.join(f'{figure:.1f}' for figure in figures)} |")


def _print_row(name: str, what: str, values: list[float]) -> None:
    percentiles = statistics.quantiles(values, n=100)
    print(f"| `{name}` | {what} | {' | '.join(f'{percentiles[place]:.2f}' for place in (49, 89, 98))} |")


def _run(durability: Literal["turn", "os"]) -> list[Turn]:
    settings = Settings(context_storage=ContextStorage(durability=durability))
    with (
        tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as folder,
        orihon.open(Path(folder) / "contexts", settings=settings) as engine,
        engine.start(TaskKey.github("acme", "shop", issue=27), tools=TOOLS, context_length=128_000) as task,
    ):
        task.add("system", "You fix bugs.")
        task.add("user", "Fix the basket.")
        disk = _Disk(Path(folder), synced=durability != "os")
        return [_turn(task, number, disk) for number in range(1, TURNS + 1)]


def _turn(task: orihon.Task, number: int, disk: _Disk) -> Turn:
    answer, result = reply(number), passage(number, RESULT_CHARS)
    clock = _Clock()
    window = clock.time(task.window)
    clock.time(window.openai)
    clock.time(lambda: task.add_reply(answer))
    (call,) = clock.time(task.pending_calls)
    clock.time(lambda: _use(task, call, result))
    return Turn(clock.times, bool(window.report.reasons), _loop(), disk.turn())


def _loop() -> float:
    began = time.perf_counter()
    sum(number * number for number in range(LOOPS))
    return time.perf_counter() - began


def _use(task: orihon.Task, call: Any, result: str) -> None:
    with task.tool(call) as run:
        run.result = result


class _Disk:
    """What a turn asks of the disk: lines for three lists, four times a state, and a sync of each list."""

    def __init__(self, folder: Path, *, synced: bool) -> None:
        names = ("messages", "tools", "events")
        self._lists = [(folder / f"{name}.jsonl").open("ab", buffering=0) for name in names]
        self._folder, self._synced = open_directory(folder), synced
        replace_file("state.json", b"x" * STATE_BYTES, self._folder, durable=False)

    def turn(self) -> float:
        began = time.perf_counter()
        for _ in range(4):
            replace_file("state.json", b"x" * STATE_BYTES, self._folder, durable=False)
        for file in self._lists:
            file.write(b"x" * RESULT_CHARS)
            if self._synced:
                os.fsync(file.fileno())
        return time.perf_counter() - began


class _Clock:
    def __init__(self) -> None:
        self.times: list[float] = []

    def time(self, work: Callable[[], Any]) -> Any:
        began = time.perf_counter()
        try:
            return work()
        finally:
            self.times.append(time.perf_counter() - began)
