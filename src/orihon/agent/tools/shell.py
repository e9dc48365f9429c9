"""Run a command in the workspace, bounded in time and memory, and end it with every process that it started.

The command is not confined: it can do whatever the user can do, and leave the workspace. Approval comes before it. The
start and the end of its output are kept; the middle is counted and dropped while it runs. A process in the background
lives until the toolbox is closed, and no one waits for it.

A command gets a marker in its environment, which its children inherit. On Linux it is ended with the processes that
have the marker, those of its session, and their children; elsewhere with its process group. A process that clears its
environment, leaves the session and outlives its parent is not found. docs/adr/0012 explains why this is not psutil.
"""

from __future__ import annotations

import codecs
import itertools
import os
import re
import select
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from orihon.errors import ToolError
from orihon.ingest import mask_output
from orihon.redaction import looks_secret, mask, masks_in

HEAD_BYTES, TAIL_BYTES = 20_000, 30_000
ERROR_CHARS = 1500
WORD_BYTES = 4096  # no secret is longer
MAX_SECONDS = 3600.0
CHUNK = 65_536
PIPE_BYTES = 1 << 20  # capacity of a pipe
GRACE_SECONDS = 1.0  # between SIGTERM and SIGKILL
MAX_ROUNDS = 2000
QUIET_ROUNDS = 8  # scans without a new member before the tree counts as stopped
# No pager, no colours, no questions: there is no terminal.
QUIET = {"TERM": "dumb", "NO_COLOR": "1", "PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0"}
_TICK, _PAUSE = 0.05, 0.005
_PROC = Path("/proc")
_SPACES = (b" ", b"\n", b"\t")
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")

OnOutput = Callable[[str], None]


class RunShell(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Run a command with the shell, in the workspace. Every call is a new shell without input.

    Of a long output the start and the end are shown. A command that runs too long is ended with everything it started;
    start servers in the background with &, and they keep running.
    """

    command: Annotated[str, Meta(description="The command, as /bin/sh or bash takes it.")]
    timeout: Annotated[float, Meta(description="Seconds that it may take; 0 is the default.", ge=0)] = 0


class Output:
    """The start and the end of an output that may exceed the memory."""

    def __init__(self) -> None:
        self.head, self.tail = bytearray(), bytearray()
        self.dropped = self.dropped_lines = 0

    def add(self, data: bytes) -> None:
        """Add a chunk."""
        room = HEAD_BYTES - len(self.head)
        self.head += data[:room]
        self.tail += data[room:]
        excess = max(0, len(self.tail) - TAIL_BYTES)
        self.dropped += excess
        self.dropped_lines += self.tail.count(b"\n", 0, excess)
        del self.tail[:excess]

    def text(self) -> str:
        """Return the kept output, with a line that counts the rest."""
        if not self.dropped:
            return clean_output(bytes(self.head + self.tail))
        head, tail = _trim_words(bytes(self.head), bytes(self.tail))
        dropped = self.dropped + len(self.head) - len(head) + len(self.tail) - len(tail)
        note = f"[… {dropped:,} bytes, {self.dropped_lines:,} lines, are left out here …]"
        return f"{clean_output(head)}\n{note}\n{clean_output(tail)}"


def _trim_words(head: bytes, tail: bytes) -> tuple[bytes, bytes]:
    """Return both without the word at the cut: half a secret is not recognised."""
    end = 1 + max(head.rfind(space) for space in _SPACES)
    start = min((at for space in _SPACES if (at := tail.find(space)) >= 0), default=len(tail))
    return head[:end] if len(head) - end <= WORD_BYTES else head, tail[start:] if start <= WORD_BYTES else tail


def clean_output(data: bytes) -> str:
    """Return output without colours; of an overwritten line only the last state."""
    text = _ESCAPE.sub("", data.decode("utf-8", "replace")).replace("\r\n", "\n")
    if "\r" in text:
        text = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return text


def filter_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a command: everything but secrets.

    A variable is left out if its name or its value looks like a secret. Mail addresses stay, because git needs them.
    """

    def is_secret(name: str, value: str) -> bool:
        line = f"{name}={value}"
        return looks_secret(name) or bool(masks_in(mask(line)) - masks_in(line) - {"[EMAIL]"})

    return {name: value for name, value in environ.items() if not is_secret(name, value)} | QUIET


class Shell:
    """Starts commands and marks what they start."""

    def __init__(self, root: Path, environ: Mapping[str, str], default_seconds: float) -> None:
        self.root, self.default_seconds = root, default_seconds
        self._marker = f"ORIHON_SHELL_{uuid.uuid4().hex}"  # unique, so that nested shells keep both markers
        self._environ = filter_environ(environ)
        self._program = "/bin/bash" if Path("/bin/bash").exists() else "/bin/sh"
        self._numbers = itertools.count(1)
        self._used = False
        self._closed = Event()
        self._drains: list[Thread] = []

    def run(self, args: RunShell, on_output: OnOutput | None = None) -> str:
        """Return the output of a command and how it ended."""
        if not args.command.strip():
            raise ToolError("The command is empty.")
        if "\0" in args.command:
            raise ToolError("The command contains a NUL character.")
        seconds = min(args.timeout or self.default_seconds, MAX_SECONDS)
        self._used = True
        number = f"{next(self._numbers)}."
        reading, writing = os.pipe()
        output, process, in_time = Output(), None, False
        try:
            process = self._start(args.command, number, writing)
            in_time = _follow(process, reading, output, time.monotonic() + seconds, on_output)
        finally:
            if not in_time:  # or Ctrl-C was pressed, perhaps before the process is known; the marker is enough
                self._end(number, process)
                os.close(reading)
        if not in_time:
            last = mask_output(output.text().strip())[-ERROR_CHARS:]
            said = f" The end of its output:\n{last}" if last else " It wrote no output."
            raise ToolError(f"The command ran longer than {seconds:g} s and was ended with all it started.{said}")
        if _is_readable(reading, 0) and not os.read(reading, 1):
            os.close(reading)
        else:  # a process in the background holds the other end
            self._drain(reading)
        text, code = output.text().rstrip("\n"), process.returncode
        ending = f"ended by signal {-code}" if code < 0 else f"exit code {code}"
        return f"{text}\n({ending})" if text else f"({ending}, no output)"

    def close(self) -> None:
        """End everything that was started here and still runs."""
        if self._used and not self._closed.is_set():
            self._end("", None)
        self._closed.set()
        for thread in self._drains:
            thread.join()

    def _start(self, command: str, number: str, writing: int) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(  # noqa: S603 - running commands is its purpose
                [self._program, "-c", command],
                cwd=self.root,
                env=self._environ | {self._marker: number},
                stdin=subprocess.DEVNULL,
                stdout=writing,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise ToolError(f"The command could not be started: {error}.") from error
        finally:
            os.close(writing)

    def _end(self, number: str, process: subprocess.Popen[bytes] | None) -> None:
        end_processes(f"{self._marker}={number}".encode(), process.pid if process is not None else None)
        if process is not None:
            process.wait()

    def _drain(self, reading: int) -> None:
        """Read and drop what the background still writes, so that it neither blocks nor dies of SIGPIPE."""
        self._drains = [thread for thread in self._drains if thread.is_alive()]
        thread = Thread(target=_drop, args=(reading, self._closed), name="orihon-drain", daemon=True)
        self._drains.append(thread)
        thread.start()


def _follow(
    process: subprocess.Popen[bytes], reading: int, output: Output, deadline: float, on_output: OnOutput | None
) -> bool:
    """Read until the command ends. Return False if it did not end in time."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    remaining = PIPE_BYTES  # left in the pipe when the command ended; anything beyond is from the background
    is_open, has_ended = True, False
    while remaining > 0:
        has_ended = has_ended or process.poll() is not None
        if not has_ended and time.monotonic() >= deadline:
            return False
        if not is_open or not _is_readable(reading, 0 if has_ended else _TICK):
            if has_ended:
                break
            if not is_open:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_TICK)
            continue
        data = os.read(reading, CHUNK)
        is_open = bool(data)
        remaining -= len(data) if has_ended else 0
        output.add(data)
        if on_output is not None and (text := decoder.decode(data, final=not data)):
            on_output(text)
    return True


def _is_readable(reading: int, seconds: float) -> bool:
    poll = select.poll()
    poll.register(reading, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def _drop(reading: int, closed: Event) -> None:
    try:
        while not closed.is_set():
            if _is_readable(reading, 4 * _TICK) and not os.read(reading, CHUNK):
                return
    finally:
        os.close(reading)


class _Process(NamedTuple):
    pid: int
    start: bytes  # a pid is used again, with another start

    def send(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(self.pid, number)


def end_processes(marker: bytes, session: int | None = None, *, grace_seconds: float = GRACE_SECONDS) -> None:
    """End all processes of a session, or with an environment variable that starts with `marker`."""
    if not _PROC.is_dir():
        _end_group(session, grace_seconds)
        return
    tree = _ProcessTree(marker, session)
    asked: set[_Process] = set()
    deadline = time.monotonic() + grace_seconds
    while time.monotonic() < deadline and _send_to_new(tree, asked, signal.SIGTERM):
        time.sleep(_PAUSE)
    # A stopped process can start nothing, so that even processes that keep forking are caught.
    stopped: set[_Process] = set()
    quiet = 0
    for _ in range(MAX_ROUNDS):
        before = len(stopped)
        _send_to_new(tree, stopped, signal.SIGSTOP)
        quiet = quiet + 1 if len(stopped) == before else 0
        if quiet >= QUIET_ROUNDS:
            break
        time.sleep(_PAUSE)
    for process in stopped:
        process.send(signal.SIGKILL)
    deadline = time.monotonic() + grace_seconds
    while time.monotonic() < deadline and any(True for _ in tree.iter_members()):
        time.sleep(_PAUSE)


def _send_to_new(tree: _ProcessTree, reached: set[_Process], number: signal.Signals) -> bool:
    """Send a signal to the members that have not got it yet. Return whether there are members."""
    is_alive = False
    for process in tree.iter_members():
        is_alive = True
        if process not in reached:
            reached.add(process)
            process.send(number)
    return is_alive


class _ProcessTree:
    """Finds the living members of a tree, scan by scan. A process that is no member is examined once."""

    def __init__(self, marker: bytes, session: int | None) -> None:
        self._marker, self._session = marker, session
        self._members: set[_Process] = set()
        self._others: set[_Process] = set()

    def iter_members(self) -> Iterator[_Process]:
        """Yield each member as soon as it is found, the newest first: it may be gone a moment later."""
        candidates: dict[_Process, int] = {}
        for pid in sorted((int(name) for name in os.listdir(_PROC) if name.isdecimal()), reverse=True):
            try:
                process, parent, session = _read_stat(pid)
            except (OSError, ValueError, IndexError):
                continue
            if process in self._others or pid == os.getpid():
                continue
            if process in self._members or session == self._session or self._is_marked(pid):
                self._members.add(process)
                yield process
            else:
                candidates[process] = parent
        pids = {process.pid for process in self._members}
        while children := {process for process, parent in candidates.items() if parent in pids}:
            self._members |= children
            pids = {process.pid for process in children}
            candidates = {process: parent for process, parent in candidates.items() if process not in children}
            yield from children
        # a child of this process may not have its environment yet
        self._others |= {process for process, parent in candidates.items() if parent != os.getpid()}

    def _is_marked(self, pid: int) -> bool:
        with suppress(OSError):
            return any(
                item.startswith(self._marker) for item in (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
            )
        return False


def _read_stat(pid: int) -> tuple[_Process, int, int]:
    """Return a living process, its parent and its session. Raise ProcessLookupError for a dead one."""
    # the program's name may contain anything, so the fields count from the last bracket
    state, parent, _, session, *rest = (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
    if state in {b"Z", b"X"}:
        raise ProcessLookupError
    return _Process(pid, rest[15]), int(parent), int(session)


def _end_group(session: int | None, grace_seconds: float) -> None:
    if session is None:
        return
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(session, signal.SIGTERM)
        deadline = time.monotonic() + grace_seconds
        while time.monotonic() < deadline:
            os.killpg(session, 0)
            time.sleep(_PAUSE)
        os.killpg(session, signal.SIGKILL)
