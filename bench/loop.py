"""Measure how long the event loop stands still while `orihon.aio` works, and while the engine works in the loop itself.

The first line is of a loop that does nothing: what the machine is busy with besides. `ORIHON_SWITCH=0.001` sets the
seconds after which a thread of Python gives way to another one.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from orihon import aio
from orihon.settings.schema import Settings

TICK = 0.001
TARGET = 5.0  # milliseconds
SHORT, LONG, HUGE = 2_000, 200_000, 2_000_000  # characters of a message


async def tick(gaps: list[float]) -> None:
    """Note how late each tick is, in milliseconds."""
    while True:
        before = time.perf_counter()
        await asyncio.sleep(TICK)
        gaps.append(max(0.0, (time.perf_counter() - before - TICK) * 1000))


async def gaps_during(work: Callable[[], Awaitable[Any]]) -> list[float]:
    """Return how late the ticks were while something worked, in order of size."""
    gaps: list[float] = []
    ticker = asyncio.create_task(tick(gaps))
    await asyncio.sleep(0.05)
    gaps.clear()
    await work()
    ticker.cancel()
    return sorted(gaps)


def text_of(size: int) -> str:
    """Return a log of a build, as tools return it."""
    line = "2026-11-19T04:00:00Z INFO build step {} compiled src/orihon/module_{}.py in 12 ms, path=/tmp/x, ok\n"
    return "".join(line.format(number, number % 97) for number in range(size // 90))


async def rounds(task: Any, size: int, count: int) -> None:
    """Take some rounds of a loop."""
    text = text_of(size)
    for number in range(count):
        await task.add("user", f"{number} {text}")
        await task.window()
        await task.add_reply({"choices": [{"message": {"role": "assistant", "content": f"Fine, {number}."}}]})


class InLoop:
    """A task whose methods are called in the loop's own thread."""

    def __init__(self, task: Any) -> None:
        self._task = task

    def __getattr__(self, name: str) -> Any:
        async def call(*arguments: Any, **options: Any) -> Any:
            await asyncio.sleep(0)
            return getattr(self._task, name)(*arguments, **options)

        return call


async def measure(url: str, size: int, count: int, *, in_loop: bool) -> list[float]:
    """Return the gaps of some rounds."""
    async with aio.open(url, settings=Settings()) as engine, engine.session(f"{size}", context_length=32_000) as task:
        front: Any = InLoop(task.sync) if in_loop else task
        await rounds(front, size, 2)
        return await gaps_during(lambda: rounds(front, size, count))


def report(name: str, size: str, where: str, gaps: list[float]) -> None:
    """Print one line of the table."""
    gaps = gaps or [0.0]
    middle, most = gaps[len(gaps) // 2], gaps[int(len(gaps) * 0.99)]
    print(f"| {name} | {size} | {where} | {middle:.1f} | {most:.1f} | {gaps[-1]:.1f} |", flush=True)


def main() -> None:
    """Print the gaps for messages of three sizes and two stores."""
    sys.setswitchinterval(float(os.environ.get("ORIHON_SWITCH", "0.005")))
    print(f"| store | a message | calls | median, ms | 99 %, ms | longest, ms (target {TARGET:g}) |")
    print("|---|---|---|---|---|---|")
    report("none", "", "none", asyncio.run(gaps_during(lambda: asyncio.sleep(2))))
    for name, form in (("files", "{}/contexts"), ("SQLite", "sqlite:///{}/contexts.db")):
        for size, count in ((SHORT, 150), (LONG, 20), (HUGE, 4)):
            for in_loop in (False, True):
                with tempfile.TemporaryDirectory() as directory:
                    url = form.format(Path(directory))
                    gaps = asyncio.run(measure(url, size, count, in_loop=in_loop))
                where = "in the loop" if in_loop else "`orihon.aio`"
                report(name, f"{size:,} characters", where, gaps)
