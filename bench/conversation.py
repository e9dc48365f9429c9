"""What a conversation costs when it has become long: saying something, a window, taking it up again, and memory.

An entry is a question of 300 characters and an answer of 900. Every size has a process of its own.
"""

from __future__ import annotations

import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import orihon
from bench import resident
from bench.messages import passage
from orihon.chat import registry
from orihon.chat.conversation import Conversation
from orihon.settings.schema import ContextStorage, Settings

SIZES = (100, 1_000, 10_000, 12_000)
MEASURED = 100  # entries, at the end
OPTIONS: dict[str, Any] = {"context_length": 32_768, "model": "gpt-4o"}


def main() -> None:
    """Print the table."""
    print("| entries | an entry, ms | p95 | taken up again, ms | memory, MB | entries visible |")
    print("|---|---|---|---|---|---|")
    rows = {size: _in_a_process(size) for size in SIZES}
    for size, row in rows.items():
        print(
            f"| {size:,} | {row['entry']:.2f} | {row['p95']:.2f} | {row['resume']:.0f} | {row['memory']:.1f} | "
            f"{row['visible']:,} |"
        )
    few, some, many = rows[100], rows[1_000], rows[10_000]
    print(
        f"\n10,000 entries: an entry takes {many['entry'] / few['entry']:.2f} times what it takes at 100, memory "
        f"{many['memory'] / some['memory']:.2f} times what it is at 1,000, where the window is full as well."
    )


def _in_a_process(size: int) -> dict[str, float]:
    script = f"from bench.conversation import child; child({size})"
    done = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, check=True)  # noqa: S603
    found: dict[str, float] = json.loads(done.stdout)
    return found


def child(size: int) -> None:
    """Measure one size, and print it."""
    settings = Settings(context_storage=ContextStorage(durability="os"))
    with tempfile.TemporaryDirectory() as place, orihon.open(Path(place) / "store", settings=settings) as engine:
        with registry.start(engine, Path(place), name="long", **OPTIONS) as talk:
            _exchange(talk, 0)
            talk.task.window()
            gc.collect()
            before = resident("VmRSS")
            for number in range(1, size - MEASURED):
                _exchange(talk, number)
            talk.task.window()  # if it must be folded, it is now
            uuid = talk.conversation_id
        began = time.perf_counter()
        with registry.resume(engine, uuid) as talk:
            talk.task.window()
            resumed = time.perf_counter() - began
            times = [_timed(talk, number) for number in range(size - MEASURED, size)]
            gc.collect()
            memory = resident("VmRSS") - before
            visible = sum(1 for _ in talk.entries())
    figures = {
        "entry": statistics.median(times),
        "p95": statistics.quantiles(times, n=20)[-1],
        "resume": resumed * 1000,
        "memory": max(memory, 0.1),
        "visible": visible,
    }
    os.write(1, json.dumps(figures).encode())


def _timed(talk: Conversation, number: int) -> float:
    began = time.perf_counter()
    _exchange(talk, number, with_window=True)
    return (time.perf_counter() - began) * 1000


def _exchange(talk: Conversation, number: int, *, with_window: bool = False) -> None:
    talk.say(passage(number, 300))
    if with_window or number % 50 == 0:
        talk.task.window().openai()
    talk.task.add_reply({"choices": [{"message": {"role": "assistant", "content": passage(number + 1, 900)}}]})
