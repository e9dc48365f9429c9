"""What a window costs on a short log and on a long one, and what a fold costs."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

import msgspec

import orihon
from bench.messages import text
from orihon.context.frame import Budget, Texts
from orihon.context.view import View
from orihon.context.window import compose
from orihon.records import Message
from orihon.settings.schema import Settings
from orihon.tokens import counter

COUNTER = counter("estimate")
CONTEXT_LENGTH = 32_000


def main() -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as folder:
        small = _window_ms(Path(folder) / "small", 1_000)
        large = _window_ms(Path(folder) / "large", 100_000)
    print("| messages in the log | window p50 ms | the first one, with its fold, ms |\n|---|---|---|")
    for name, (window, fold) in (("1,000", small), ("100,000", large)):
        print(f"| {name} | {window:.2f} | {fold:.0f} |")
    print(f"\nRatio of the windows: {large[0] / small[0]:.2f}.")
    print(f"A fold of a log of 60,000 tokens: {_fold_ms(60_000):.0f} ms.")


def _window_ms(place: Path, count: int) -> tuple[float, float]:
    """The time of `task.window()` when it needs no fold, and of the first one, with its fold."""
    with (
        orihon.open(place, settings=Settings()) as engine,
        engine.start(orihon.TaskKey.local("window"), context_length=CONTEXT_LENGTH, reserved_output=0) as task,
    ):
        for number in range(count):
            task.add("user" if number % 9 == 0 else "assistant", f"message {number} about part_{number % 50}.py")
        first = _timed(task)
        times = []
        for number in range(40):
            task.add("user", f"and now {number}")
            times.append(_timed(task))
        task.pause()  # its final summary is no part of this
    return statistics.median(times), first


def _timed(task: orihon.Task) -> float:
    began = time.perf_counter()
    task.window().openai()
    return (time.perf_counter() - began) * 1000


def _fold_ms(tokens: int) -> float:
    log: list[Message] = []
    while sum(message.tokens for message in log) < tokens:
        role, content = text(len(log))
        role = "assistant" if role == "tool" else role
        made = Message(seq=len(log) + 1, role=role, content=content, timestamp="", tokens=0)  # type: ignore[arg-type]
        log.append(msgspec.structs.replace(made, tokens=COUNTER.message(made)))
    times = []
    for _ in range(5):
        began = time.perf_counter()
        compose(
            View(),
            lambda first, last: log[first - 1 : last],
            len(log),
            budget=Budget(context_length=CONTEXT_LENGTH),
            counter=COUNTER,
            texts=Texts(),
            stand_ins={},
        )
        times.append(time.perf_counter() - began)
    return min(times) * 1000
