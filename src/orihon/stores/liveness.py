"""Who holds a lease, and whether that process still runs; shared by all stores.

A process id alone is reused. Together with the boot id of the machine and the start time of the process it is unique.
Containers count their processes separately and may share a host name, so the pid namespace belongs to it as well.
"""

from __future__ import annotations

import functools
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from queue import Empty, SimpleQueue

from msgspec import Struct

log = logging.getLogger("orihon")


class Owner(Struct, frozen=True, kw_only=True):
    """One process on one machine since one boot."""

    hostname: str
    boot_id: str
    process_id: int
    started: str
    namespace: str = ""

    def __str__(self) -> str:
        return f"process {self.process_id} on {self.hostname}"


def current_owner() -> Owner:
    """Return the current process. A forked child is a different owner than its parent."""
    return _describe_process(os.getpid())


@functools.lru_cache(maxsize=1)
def _describe_process(process_id: int) -> Owner:
    return Owner(
        hostname=os.uname().nodename,
        boot_id=_boot_id(),
        process_id=process_id,
        started=_start_time(process_id) or "?",
        namespace=_namespace(),
    )


def is_alive(owner: Owner) -> bool | None:
    """Return whether a process still runs; None if that cannot be known from here."""
    if owner.hostname != os.uname().nodename:
        return None
    if owner.boot_id != _boot_id():
        return False
    if owner.namespace != _namespace():
        return None
    return _start_time(owner.process_id) == owner.started


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def _start_time(process_id: int) -> str | None:
    """Return the kernel's start tick of a process; None if there is no such process, or only a zombie."""
    try:
        stat = Path(f"/proc/{process_id}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return _check_process_id(process_id)
    # the name in brackets may contain brackets, so the fields are counted after the last one
    fields = stat.rpartition(")")[2].split()
    return fields[19] if fields[0] not in {"Z", "X"} else None


def _check_process_id(process_id: int) -> str | None:
    """Return "?" if the process id is in use. This is all that a system without /proc tells."""
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    return "?"


class Heartbeat:
    """A thread that calls `beat` at every interval until it is stopped; a beat that fails is logged."""

    def __init__(self, beat: Callable[[], None], interval_seconds: float) -> None:
        self._beat = beat
        self._interval_seconds = interval_seconds
        # not an Event: a signal can leave its lock held for ever, and `stop` would then never return
        self._stopped: SimpleQueue[None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="orihon-heartbeat", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._wait():
            try:
                self._beat()
            except Exception as error:  # noqa: BLE001 - a full disk must not end the thread that outlives it
                log.warning("The heartbeat failed: %s", error)

    def _wait(self) -> bool:
        """Wait for one interval; return whether the thread was stopped meanwhile."""
        try:
            self._stopped.get(timeout=self._interval_seconds)
        except Empty:
            return False
        return True

    def stop(self) -> None:
        """End the thread; return when no beat is running any more."""
        self._stopped.put(None)
        if self._thread is not threading.current_thread():
            self._thread.join()
