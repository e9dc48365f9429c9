"""Who holds a lease: a process that can be told from every other, also from a later one with the same number.

A process id alone is reused; with the machine's boot id and the start time of the process it is not. Containers count
their processes each for itself, and may share a host name, so the namespace of the number belongs to it.
"""

from __future__ import annotations

import functools
import os
import socket
from pathlib import Path

from msgspec import Struct


class Owner(Struct, frozen=True, kw_only=True):
    """One process on one machine since one boot."""

    hostname: str
    boot_id: str
    process_id: int
    started: str
    namespace: str = ""

    def __str__(self) -> str:
        return f"process {self.process_id} on {self.hostname}"


def me() -> Owner:
    """The present process; asked again after a fork, because a child is somebody else."""
    return _owner_of(os.getpid())


@functools.lru_cache(maxsize=1)
def _owner_of(process_id: int) -> Owner:
    return Owner(
        hostname=socket.gethostname(),
        boot_id=_boot_id(),
        process_id=process_id,
        started=_start_time(process_id) or "?",
        namespace=_namespace(),
    )


def is_alive(owner: Owner) -> bool | None:
    """Whether the holder still runs; None when it cannot be known from here."""
    if owner.hostname != socket.gethostname():
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
    """The kernel's start tick of a process; None when there is no such process, or only its remains."""
    try:
        stat = Path(f"/proc/{process_id}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return _exists(process_id)
    # the name in brackets may hold anything, brackets included, so the fields are counted after the last one
    fields = stat.rpartition(")")[2].split()
    return fields[19] if fields[0] not in {"Z", "X"} else None


def _exists(process_id: int) -> str | None:
    """Without /proc: only whether the number is in use."""
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    return "?"
