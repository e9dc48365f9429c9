"""What a window costs on a short log and on a long one, and what a fold costs."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

import msgspec

from bench.messages import text
from orihon.context.frame import Budget, Composed, Texts
from orihon.context.pick import StandIn
from orihon.context.view import View, step
from orihon.context.window import Shelf, compose
from orihon.context.wire import openai
from orihon.records import Event, Message
from orihon.stores.base import Lease
from orihon.tokens import counter

COUNTER = counter("estimate")
BUDGET = Budget(context_length=32_000)


def main() -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as folder:
        small = _window_ms(Path(folder) / "small", 1_000)
        large = _window_ms(Path(folder) / "large", 100_000)
    print("| messages in the log | window p50 ms | the fold before it, ms |\n|---|---|---|")
    for name, (window, fold) in (("1,000", small), ("100,000", large)):
        print(f"| {name} | {window:.2f} | {fold:.0f} |")
    print(f"\nRatio of the windows: {large[0] / small[0]:.2f}.")
    print(f"A fold of a log of 60,000 tokens: {_fold_ms(60_000):.0f} ms.")


def _window_ms(place: Path, count: int) -> tuple[float, float]:
    """The time of a window that needs no fold, read from the store, and of the fold before it."""
    from bench.stores import _lease, _message  # noqa: PLC0415 - what the two benchmarks share

    with _lease(str(place)) as lease:
        for number in range(count):
            lease.append(
                _message("user" if number % 9 == 0 else "assistant", f"message {number} about part_{number % 50}.py")
            )
        view, stand_ins, fold = _folded(lease)
        shelf = Shelf()
        times = []
        for number in range(40):
            lease.append(_message("user", f"and now {number}"))
            began = time.perf_counter()
            composed = _compose(lease, view, stand_ins, shelf)
            openai(composed.messages)
            times.append(time.perf_counter() - began)
    return statistics.median(times) * 1000, fold


def _folded(lease: Lease) -> tuple[View, dict[int, StandIn], float]:
    began = time.perf_counter()
    batch = _compose(lease, View(), {}).batch
    fold = (time.perf_counter() - began) * 1000
    if batch is None:
        return View(), {}, 0.0
    event = Event(
        id=1, after=lease.last(Message), type="folds", data=batch.event(1, len(batch.stand_ins)), timestamp="t"
    )
    return step(View(), event), {one.seq: one for one in batch.stand_ins}, fold


def _compose(lease: Lease, view: View, stand_ins: dict[int, StandIn], shelf: Shelf | None = None) -> Composed:
    def read(first: int, last: int) -> list[Message]:
        return list(lease.store.read(lease.uuid, Message, first=first, last=last))

    return compose(
        view, read, lease.last(Message), budget=BUDGET, counter=COUNTER, texts=Texts(), stand_ins=stand_ins, shelf=shelf
    )


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
            budget=Budget(context_length=32_000),
            counter=COUNTER,
            texts=Texts(),
            stand_ins={},
        )
        times.append(time.perf_counter() - began)
    return min(times) * 1000
