"""Let calls of the operating system fail or kill the process, one call at a time.

    with Faults(Fault(at=7, how="fail", errno=errno.ENOSPC)):
        lease.append(record)                     # the seventh call that changes a disk finds it full

    ended = in_child(work, Fault(at=7, how="kill half"))
    ended.said                                   # the lines that `work` had acknowledged before it was killed

Counted are the calls through which Python code changes files: write, pwrite, fsync, ftruncate, link, rename, replace,
mkdir, rmdir, unlink, and open when it creates or truncates. Calls made by C libraries such as SQLite are not seen;
`strace_command` kills or fails a whole program at its n-th system call.

A sweep takes a sample of its points with `sampled`, five times as large when ORIHON_DEEP is set.
"""

from __future__ import annotations

import faulthandler
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

import msgspec

How = Literal["kill before", "kill half", "kill after", "fail", "fail half", "fail after"]

CALLS = ("write", "pwrite", "fsync", "ftruncate", "link", "rename", "replace", "mkdir", "rmdir", "unlink", "open")
CHANGES = os.O_CREAT | os.O_TRUNC
CHILD_SECONDS = 180
DEEP = bool(os.environ.get("ORIHON_DEEP"))
MEMORY = Path("/dev/shm")  # noqa: S108 - where a sync costs nothing
MANY = 100  # a commit of SQLite writes many pages; killing it between any two of them adds little
NO_STRACE = "strace is not installed (apt-get install strace)"

T = TypeVar("T")
Watch = Callable[[str, tuple[Any, ...], dict[str, Any]], None]  # the name of a call and its arguments
Work = Callable[[Callable[[str], None]], None]
Done = Callable[[str, tuple[Any, ...], dict[str, Any], Any], None]  # and its result


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """The fault at the n-th call, from 1. `half` of a write is half of its bytes; `half` of another call is nothing."""

    at: int
    how: How
    errno: int = 0
    onwards: bool = False  # every call from the n-th on fails, as on a full disk
    only: tuple[str, ...] = CALLS  # the calls that can fail

    def strikes(self, name: str, count: int) -> bool:
        """Return whether this call fails."""
        return name in self.only and (count == self.at or (self.onwards and count > self.at))


class Faults:
    """Counts calls while entered and lets one fail. `watch` runs before each call, `done` after it."""

    def __init__(self, fault: Fault | None = None, watch: Watch | None = None, done: Done | None = None) -> None:
        self.fault, self.watch, self.done = fault, watch, done
        self.calls: list[str] = []
        self._real: dict[str, Callable[..., Any]] = {}

    def __enter__(self) -> Self:
        for name in CALLS:
            self._real[name] = getattr(os, name)
            setattr(os, name, self._wrapped(name, self._real[name]))
        return self

    def __exit__(self, *_: object) -> None:
        for name, real in self._real.items():
            setattr(os, name, real)

    def free(self) -> None:
        """Remove the fault: the disk works again."""
        self.fault = None

    def _wrapped(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            if name == "open" and not args[1] & CHANGES:
                return real(*args, **named)
            self.calls.append(name)
            if self.watch is not None:
                self.watch(name, args, named)
            fault = self.fault
            if fault is not None and fault.strikes(name, len(self.calls)):
                return self._break(fault, name, lambda part: real(*part, **named), args)
            result = real(*args, **named)
            if self.done is not None:
                self.done(name, args, named, result)
            return result

        return call

    def _break(self, fault: Fault, name: str, real: Callable[[tuple[Any, ...]], Any], args: tuple[Any, ...]) -> Any:
        verb, _, when = fault.how.partition(" ")
        try:
            if when == "after":
                result = real(args)
                if name == "open":
                    os.close(result)
            elif when == "half" and name in {"write", "pwrite"}:
                real((args[0], bytes(args[1])[: len(args[1]) // 2], *args[2:]))
        finally:
            if verb == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
        raise OSError(fault.errno, os.strerror(fault.errno))


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a child: its lines, and the signal that killed it or its exit code."""

    said: list[str]
    signal: int
    code: int


class Child:
    """A forked child that runs `work(say)` with a fault. Each line passed to `say` is an acknowledgement."""

    def __init__(self, work: Work, fault: Fault | None = None) -> None:
        reading, writing = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _run_child(work, fault, writing)
        os.close(writing)
        self._pipe = os.fdopen(reading, encoding="utf-8")

    def line(self) -> str:
        """Return the next line of the child, or an empty string when it has ended."""
        return self._pipe.readline().rstrip("\n")

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send the child a signal."""
        os.kill(self.pid, number)

    def end(self) -> None:
        """Kill the child, without waiting for its own children."""
        self.kill()
        os.waitpid(self.pid, 0)
        self._pipe.close()

    def wait(self) -> Ended:
        """Wait for the end of the child and return it with the remaining lines."""
        with self._pipe:
            said = self._pipe.read().splitlines()
        _, status = os.waitpid(self.pid, 0)
        killed = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        return Ended(said=said, signal=killed, code=0 if killed else os.WEXITSTATUS(status))


def in_child(work: Work, fault: Fault | None = None) -> Ended:
    """Run `work(say)` in a child and wait for its end."""
    return Child(work, fault).wait()


def _run_child(work: Work, fault: Fault | None, pipe: int) -> None:
    real, code = os.write, 1

    def say(line: str) -> None:
        real(pipe, f"{line}\n".encode())

    faulthandler.dump_traceback_later(CHILD_SECONDS, exit=True, file=2)  # a hanging child prints its stack and exits
    try:
        with Faults(fault):
            work(say)
        code = 0
    except BaseException:  # noqa: BLE001 - the child must not return into the code of the parent
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def strace_command(call: str, effect: str, command: list[str], output: str = os.devnull) -> list[str]:
    """Return the command under strace, with an effect such as "signal=SIGKILL:when=7" or "error=EIO:when=7"."""
    strace = shutil.which("strace")
    if strace is None:
        raise FileNotFoundError(NO_STRACE)
    inject = ["-e", f"inject={call}:{effect}"] if effect else []
    return [strace, "-f", "-qq", "-o", output, "-e", f"trace={call}", *inject, *command]


def strace_points(call: str, command: list[str], few: int) -> list[int]:
    """Run a program once to count its system calls of one name. Return the numbers of a sample of them."""
    with tempfile.NamedTemporaryFile("r", encoding="utf-8", errors="replace") as output:
        subprocess.run(strace_command(call, "", command, output.name), stdout=subprocess.DEVNULL, check=True)
        count = sum(f"{call}(" in line for line in output)
    return sampled([*range(1, count + 1, -(-count // MANY))], few)


def sampled(points: list[T], count: int) -> list[T]:
    """Return about `count` evenly spaced points with the first and the last; five times as many in a deep run."""
    count *= 5 if DEEP else 1
    return points if len(points) <= count else points[:: -(-len(points) // count)] + points[-1:]


@contextmanager
def fast_place() -> Iterator[Path]:
    """Yield an empty directory, in memory where possible: only a power cut needs a real disk."""
    with tempfile.TemporaryDirectory(dir=MEMORY if os.access(MEMORY, os.W_OK) else None) as place:
        yield Path(place)
