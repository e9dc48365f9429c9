"""Workers: take what waits in the queue, one process per task, and let nothing be lost when one of them dies.

The parent looks for tasks and starts a child for each; the child takes the lease, runs the task and ends. When the
parent is asked to stop it takes no more, asks its children to pause, and waits for them; what they paused is taken up
again by the next worker. Where several workers go for the same task, those that came too late choose among more of the
queue the next time. A second signal interrupts what the children do, and their tasks are paused all the same. A
parent that is killed takes nobody along: its children go on, and other workers leave their tasks alone.
"""

from __future__ import annotations

import logging
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from orihon import codec
from orihon.agent import queue
from orihon.agent.signals import temporary_handler
from orihon.engine import Engine
from orihon.errors import StoreError
from orihon.stores.files import create_file

log = logging.getLogger("orihon")

POLL_SECONDS = 1.0
FIND_SECONDS = 60.0  # between two looks for new work
GRACE_SECONDS = 600.0  # a model call may take that long
LAST_SECONDS = 10.0  # for whoever was interrupted
TAKEN = 75  # the exit code of a child that came too late
MOST_SPREAD = 32
BACKOFF_SECONDS = (0.5, 60.0)  # before a child for the same task is started again


class Worker:
    """The parent; `command` gives the command line of the child for a task."""

    def __init__(
        self,
        engine: Engine,
        command: Callable[[str], Sequence[str]],
        *,
        jobs: int = 1,
        health: Path | None = None,
        find: Callable[[], object] | None = None,
        recovered: Callable[[queue.RecoveredTask], object] | None = None,
        idle: Callable[[], object] | None = None,
        poll_seconds: float = POLL_SECONDS,
        grace_seconds: float = GRACE_SECONDS,
    ) -> None:
        self.engine, self.command, self.jobs, self.health = engine, command, jobs, health
        self.find, self.recovered, self.idle = find, recovered, idle
        self.poll_seconds, self.grace_seconds = poll_seconds, grace_seconds
        self.children: dict[str, subprocess.Popen[bytes]] = {}
        self.asked = 0  # how often somebody asked us to stop
        self._find_at = 0.0
        self._spread = 1  # among how many tasks the next one is chosen
        self._starts: dict[str, tuple[int, float]] = {}  # how often a child was started, and when it may be again

    def run(self, *, once: bool = False) -> None:
        """Work until asked to stop; `once` until nothing waits."""
        with self._signals():
            while not self.asked:
                try:
                    self._look_after()
                    waits = self._start_some()
                except StoreError as error:
                    if not error.retryable:
                        raise
                    log.warning("The store does not answer now: %s", error)
                    waits = True
                if once and not waits and not self.children:
                    return
                if self.idle is not None and not waits and not self.children:
                    self.idle()
                self._rest()
            self._drain()

    def _rest(self) -> None:
        """Until the next look: a moment, or less if a child ends or somebody asks us to stop."""
        seconds = self.poll_seconds * random.uniform(0.5, 1.0)  # noqa: S311 - so that workers do not collide
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self.asked:
            if any(child.poll() is not None for child in self.children.values()):
                return
            if self.engine.store.queue.wait(min(0.05, seconds)):
                return

    def _look_after(self) -> None:
        """Children that ended, tasks whose worker died, new work, and the sign that we are alive."""
        self._breathe()
        for uuid, child in list(self.children.items()):
            if child.poll() is not None:
                del self.children[uuid]
                self.engine.store.queue.release(uuid)
                self._wait_a_little(uuid)
                late = child.returncode == TAKEN
                self._spread = min(MOST_SPREAD, self._spread * 4) if late else max(1, self._spread - 1)
        for one in queue.recover(self.engine):
            if self.recovered is not None:
                self.recovered(one)
        if self.find is not None and time.monotonic() >= self._find_at:
            self.find()
            self._find_at = time.monotonic() + FIND_SECONDS

    def _wait_a_little(self, uuid: str) -> None:
        """A task that is still there after its child has ended is not tried at once, and ever less often."""
        count = self._starts.get(uuid, (0, 0.0))[0]
        first, most = BACKOFF_SECONDS
        self._starts[uuid] = (count + 1, time.monotonic() + min(most, first * 2**count))

    def _start_some(self) -> bool:
        """A child for each task that there is room for; whether anything waits."""
        rows = list(queue.iter_waiting(self.engine))
        now = time.monotonic()
        free = [row for row in rows if row.uuid not in self.children and self._starts.get(row.uuid, (0, 0.0))[1] <= now]
        while free and len(self.children) < self.jobs:
            uuid = self._choose([row.uuid for row in free])
            if uuid is None:
                break
            free = [row for row in free if row.uuid != uuid]
            self.children[uuid] = subprocess.Popen(  # noqa: S603 - our own command line
                [*self.command(uuid)], stdin=subprocess.DEVNULL, start_new_session=True
            )
        return bool(rows)

    def _choose(self, uuids: list[str]) -> str | None:
        """The first that can be had; where others may go for the same, it is one of the first."""
        waiting = self.engine.store.queue
        if not waiting.reserves:
            uuids = [uuids[random.randrange(min(self._spread, len(uuids)))]]  # noqa: S311
        return waiting.reserve(uuids)

    def _drain(self) -> None:
        """Ask the children to pause, and wait; those that do not hear are ended, and nothing of theirs is lost."""
        log.info("Asked to stop: %d tasks are paused.", len(self.children))
        for number, patience in ((signal.SIGTERM, self.grace_seconds), (signal.SIGTERM, LAST_SECONDS)):
            self._tell_children(number)
            give_up, asked = time.monotonic() + patience, self.asked
            while self.children and time.monotonic() < give_up and self.asked == asked:
                self.children = {uuid: child for uuid, child in self.children.items() if child.poll() is None}
                self._breathe()
                time.sleep(0.05)
        self._tell_children(signal.SIGKILL)
        for child in self.children.values():
            child.wait()

    def _tell_children(self, number: signal.Signals) -> None:
        for child in self.children.values():
            if child.poll() is None:
                child.send_signal(number)

    def _breathe(self) -> None:
        if self.health is None:
            return
        draft = self.health.with_name(f"{self.health.name}.{os.getpid()}")
        with os.fdopen(create_file(draft), "w", encoding="ascii") as file:
            file.write(f"{codec.now()}\n")
        draft.replace(self.health)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        def ask(*_: Any) -> None:
            self.asked += 1

        with temporary_handler(ask, signal.SIGTERM, signal.SIGINT):
            yield
