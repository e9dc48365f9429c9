"""A worker: it takes tasks from the queue and runs each in a process of its own.

The parent finds tasks and starts a child for each; the child takes the lease, runs the task and ends. When the parent
is asked to stop, it starts no more children, asks the running ones to pause, and waits; the next worker continues
their tasks. A second signal interrupts the children, which pause all the same. Killing the parent does not kill its
children, and other workers leave their tasks alone. Workers that compete for the same task choose among more of the
queue next time.
"""

from __future__ import annotations

import logging
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from orihon import codec
from orihon.agent import queue
from orihon.agent.signals import temporary_handler
from orihon.engine import Engine
from orihon.errors import StoreError
from orihon.retry import Backoff
from orihon.stores.files import create_file

log = logging.getLogger("orihon")

POLL_SECONDS = 1.0
FIND_SECONDS = 60.0  # between two searches for new work
GRACE_SECONDS = 600.0  # a model call may take that long
LAST_SECONDS = 10.0  # after an interrupt
ALREADY_TAKEN = 75  # exit code of a child that came too late
MAX_SPREAD = 32
RESTARTS = Backoff(first_seconds=0.5, longest_seconds=60.0, jitter=0)  # of a child for the same task


class Worker:
    """The parent. `command` returns the command line of the child for a task."""

    def __init__(
        self,
        engine: Engine,
        command: Callable[[str], Sequence[str]],
        *,
        jobs: int = 1,
        health: Path | None = None,
        find: Callable[[], object] | None = None,
        on_recovered: Callable[[queue.RecoveredTask], object] | None = None,
        on_idle: Callable[[], object] | None = None,
        poll_seconds: float = POLL_SECONDS,
        grace_seconds: float = GRACE_SECONDS,
    ) -> None:
        self.engine, self.command, self.jobs, self.health = engine, command, jobs, health
        self.find, self.on_recovered, self.on_idle = find, on_recovered, on_idle
        self.poll_seconds, self.grace_seconds = poll_seconds, grace_seconds
        self.children: dict[str, subprocess.Popen[bytes]] = {}
        self.stop_requests = 0
        self._find_at = 0.0
        self._spread = 1  # among how many tasks the next one is chosen
        self._starts: dict[str, tuple[int, float]] = {}  # ended children of a task, and when the next may start

    def run(self, *, once: bool = False) -> None:
        """Work until a signal asks to stop; with `once`, until nothing waits."""
        with temporary_handler(self._handle_signal, signal.SIGTERM, signal.SIGINT):
            while not self.stop_requests:
                try:
                    self._maintain()
                    is_waiting = self._start_children()
                except StoreError as error:
                    if not error.retryable:
                        raise
                    log.warning("The store does not answer now: %s", error)
                    is_waiting = True
                if not is_waiting and not self.children:
                    if once:
                        return
                    if self.on_idle is not None:
                        self.on_idle()
                self._rest()
            self._drain()

    def _handle_signal(self, *_: object) -> None:
        self.stop_requests += 1

    def _rest(self) -> None:
        """Wait for the next poll, the end of a child, a queued task or a signal."""
        seconds = self.poll_seconds * random.uniform(0.5, 1.0)  # noqa: S311 - so that workers do not collide
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not self.stop_requests:
            if any(child.poll() is not None for child in self.children.values()):
                return
            if self.engine.store.queue.wait(min(0.05, seconds)):
                return

    def _maintain(self) -> None:
        """Write the health file, reap children, recover tasks of dead workers, and look for new work."""
        self._write_health()
        for uuid, child in list(self.children.items()):
            if child.poll() is not None:
                self._reap(uuid, child)
        for task in queue.recover(self.engine):
            if self.on_recovered is not None:
                self.on_recovered(task)
        if self.find is not None and time.monotonic() >= self._find_at:
            self.find()
            self._find_at = time.monotonic() + FIND_SECONDS

    def _reap(self, uuid: str, child: subprocess.Popen[bytes]) -> None:
        """Release an ended child. A task that is still queued is not tried again at once, and ever less often."""
        del self.children[uuid]
        self.engine.store.queue.release(uuid)
        count = self._starts.get(uuid, (0, 0.0))[0] + 1
        self._starts[uuid] = (count, time.monotonic() + RESTARTS.pause_seconds(count))
        came_late = child.returncode == ALREADY_TAKEN
        self._spread = min(MAX_SPREAD, self._spread * 4) if came_late else max(1, self._spread - 1)

    def _start_children(self) -> bool:
        """Start a child for each task that there is room for. Return whether tasks wait."""
        rows, now = list(queue.iter_waiting(self.engine)), time.monotonic()
        uuids = [row.uuid for row in rows if row.uuid not in self.children]
        uuids = [uuid for uuid in uuids if self._starts.get(uuid, (0, 0.0))[1] <= now]
        while uuids and len(self.children) < self.jobs:
            uuid = self._reserve(uuids)
            if uuid is None:
                break
            uuids.remove(uuid)
            self.children[uuid] = subprocess.Popen(  # noqa: S603 - our own command line
                [*self.command(uuid)], stdin=subprocess.DEVNULL, start_new_session=True
            )
        return bool(rows)

    def _reserve(self, uuids: list[str]) -> str | None:
        """Reserve the first free task; in a store without reservations choose one of the first."""
        waiting = self.engine.store.queue
        if not waiting.reserves:
            uuids = [uuids[random.randrange(min(self._spread, len(uuids)))]]  # noqa: S311
        return waiting.reserve(uuids)

    def _drain(self) -> None:
        """Ask the children to pause, and wait. Kill those that do not end; their tasks are requeued."""
        log.info("Stopping: %d tasks are being paused.", len(self.children))
        for seconds in (self.grace_seconds, LAST_SECONDS):
            self._signal_children(signal.SIGTERM)
            deadline, requests = time.monotonic() + seconds, self.stop_requests
            while self.children and time.monotonic() < deadline and self.stop_requests == requests:
                self.children = {uuid: child for uuid, child in self.children.items() if child.poll() is None}
                self._write_health()
                time.sleep(0.05)
        self._signal_children(signal.SIGKILL)
        for child in self.children.values():
            child.wait()

    def _signal_children(self, number: signal.Signals) -> None:
        for child in self.children.values():
            if child.poll() is None:
                child.send_signal(number)

    def _write_health(self) -> None:
        if self.health is None:
            return
        temporary = self.health.with_name(f"{self.health.name}.{os.getpid()}")
        with os.fdopen(create_file(temporary), "w", encoding="ascii") as file:
            file.write(f"{codec.now()}\n")
        temporary.replace(self.health)
