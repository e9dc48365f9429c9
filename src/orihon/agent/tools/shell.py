"""Run a command in the workspace: bounded in time and in memory, ended with everything it started.

The command is not confined: it can do what the user can do, and leave the workspace. Approval is what stands before
it. What it says is kept from its begin and its end, and what is between is counted and dropped while it runs. A
process that it leaves in the background lives on until the toolbox is closed, and does not keep anybody waiting.
"""

from __future__ import annotations

import codecs
import itertools
import os
import re
import select
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import Annotated

import msgspec
from msgspec import Meta

from orihon.agent.tools import process_tree as processes
from orihon.agent.tools.environment import reduced
from orihon.errors import ToolError
from orihon.ingest import shown

HEAD_BYTES, TAIL_BYTES = 20_000, 30_000
ERROR_CHARS = 1500
WORD_BYTES = 4096  # no secret is a longer word
MAX_SECONDS = 3600.0
CHUNK = 65_536
PIPE_BYTES = 1 << 20  # what a pipe can hold at most
_TICK = 0.05
_SPACES = (b" ", b"\n", b"\t")
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")

Tell = Callable[[str], None]


class RunShell(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Run a command with the shell, in the workspace; every call is a new shell, and there is no input.

    Of a long output the begin and the end are shown. What runs too long is ended with everything it started; start
    servers in the background with &, and they run on.
    """

    command: Annotated[str, Meta(description="The command, as /bin/sh or bash takes it.")]
    timeout: Annotated[float, Meta(description="Seconds that it may take; 0 means as usual.", ge=0)] = 0


class Output:
    """The begin and the end of a text that may be longer than the memory."""

    def __init__(self) -> None:
        self.head, self.tail = bytearray(), bytearray()
        self.dropped = self.dropped_lines = 0

    def add(self, data: bytes) -> None:
        """More of it."""
        room = HEAD_BYTES - len(self.head)
        self.head += data[:room]
        self.tail += data[room:] if room < len(data) else b""
        if len(self.tail) > TAIL_BYTES + CHUNK:
            self._drop(len(self.tail) - TAIL_BYTES)

    def _drop(self, count: int) -> None:
        self.dropped += count
        self.dropped_lines += self.tail.count(b"\n", 0, count)
        del self.tail[:count]

    def text(self) -> str:
        """What was kept, with a line that says what was not."""
        if len(self.tail) > TAIL_BYTES:
            self._drop(len(self.tail) - TAIL_BYTES)
        if not self.dropped:
            return plain(bytes(self.head + self.tail))
        head, tail = _whole_words(bytes(self.head), bytes(self.tail))
        dropped = self.dropped + len(self.head) - len(head) + len(self.tail) - len(tail)
        note = f"[… {dropped:,} bytes, {self.dropped_lines:,} lines, are left out here …]"
        return f"{plain(head)}\n{note}\n{plain(tail)}"


def _whole_words(head: bytes, tail: bytes) -> tuple[bytes, bytes]:
    """The two without the word that was cut: half a secret is not recognised any more."""
    end = 1 + max(head.rfind(space) for space in _SPACES)
    begin = min((at for space in _SPACES if (at := tail.find(space)) >= 0), default=len(tail))
    return head[:end] if len(head) - end <= WORD_BYTES else head, tail[begin:] if begin <= WORD_BYTES else tail


def plain(data: bytes) -> str:
    """Output as text: without colours, and of a line that was written over only what stood there last."""
    text = _ESCAPE.sub("", data.decode("utf-8", "replace")).replace("\r\n", "\n")
    if "\r" in text:
        text = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return text


class Shell:
    """Starts commands, and remembers by a marker what they started."""

    def __init__(self, root: Path, environ: Mapping[str, str], seconds: float) -> None:
        self.root, self.seconds = root, seconds
        self._name = f"{processes.MARKER}_{uuid.uuid4().hex}"  # of its own, so that one inside another keeps both
        self._environ = reduced(environ)
        self._program = "/bin/bash" if Path("/bin/bash").exists() else "/bin/sh"
        self._numbers = itertools.count(1)
        self._used = False
        self._closed = Event()
        self._drains: list[Thread] = []

    def run(self, asked: RunShell, on_output: Tell | None = None) -> str:
        """What a command said, and how it ended."""
        if not asked.command.strip():
            raise ToolError("The command is empty.")
        if "\0" in asked.command:
            raise ToolError("The command holds a NUL character, which no command can.")
        seconds = min(asked.timeout or self.seconds, MAX_SECONDS)
        self._used = True
        marker = f"{next(self._numbers)}."
        reading, writing = os.pipe()
        output = Output()
        process = None
        try:
            process = self._start(asked.command, marker, writing)
            in_time = _follow(process, reading, output, time.monotonic() + seconds, on_output)
        except BaseException as error:
            # Ctrl-C can come while a process is being started, before we know its number; the marker is enough.
            if not isinstance(error, ToolError):
                self._end(marker, process)
            os.close(reading)
            raise
        if not in_time:
            self._end(marker, process)
            os.close(reading)
            last = shown(output.text().strip())[-ERROR_CHARS:]
            so_far = f" The end of what it said:\n{last}" if last else " It had said nothing."
            raise ToolError(f"The command ran longer than {seconds:g} s and was ended with all it started.{so_far}")
        if _readable(reading, 0) and not os.read(reading, 1):
            os.close(reading)
        else:  # somebody in the background holds the other end
            self._drain(reading)
        return _said(output, process.returncode)

    def close(self) -> None:
        """End everything that was started here and still runs."""
        if self._used and not self._closed.is_set():
            processes.end(self._marker(""))
        self._closed.set()
        for thread in self._drains:
            thread.join()

    def _marker(self, marker: str) -> bytes:
        return f"{self._name}={marker}".encode()

    def _start(self, command: str, marker: str, writing: int) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(  # noqa: S603 - running commands is what it is for
                [self._program, "-c", command],
                cwd=self.root,
                env=self._environ | {self._name: marker},
                stdin=subprocess.DEVNULL,
                stdout=writing,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise ToolError(f"The command could not be started: {error}.") from error
        finally:
            os.close(writing)

    def _end(self, marker: str, process: subprocess.Popen[bytes] | None) -> None:
        processes.end(self._marker(marker), process.pid if process is not None else None)
        if process is not None:
            process.wait()

    def _drain(self, reading: int) -> None:
        """What the background still says is read and dropped, so that nobody waits for us or dies of it."""
        self._drains = [thread for thread in self._drains if thread.is_alive()]
        thread = Thread(target=_drop, args=(reading, self._closed), name="orihon-drain", daemon=True)
        self._drains.append(thread)
        thread.start()


def _follow(
    process: subprocess.Popen[bytes], reading: int, output: Output, deadline: float, on_output: Tell | None
) -> bool:
    """Read until the command ends; False when it did not in time."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    left = PIPE_BYTES  # of what was in the pipe when the command ended; more can only come from the background
    open_, ended = True, False
    while left > 0:
        ended = ended or process.poll() is not None
        if not ended and time.monotonic() >= deadline:
            return False
        if not open_:
            if ended:
                break
            with suppress(subprocess.TimeoutExpired):
                process.wait(_TICK)
            continue
        if not _readable(reading, 0 if ended else _TICK):
            if ended:
                break
            continue
        data = os.read(reading, CHUNK)
        open_ = bool(data)
        left -= len(data) if ended else 0
        output.add(data)
        if on_output is not None and (text := decoder.decode(data, final=not data)):
            on_output(text)
    return True


def _readable(reading: int, seconds: float) -> bool:
    """Whether there is something to read, be it the end."""
    poll = select.poll()
    poll.register(reading, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def _drop(reading: int, closed: Event) -> None:
    try:
        while not closed.is_set():
            if _readable(reading, 4 * _TICK) and not os.read(reading, CHUNK):
                return
    finally:
        os.close(reading)


def _said(output: Output, code: int) -> str:
    text = output.text().rstrip("\n")
    how = f"ended by signal {-code}" if code < 0 else f"exit code {code}"
    return f"{text}\n({how})" if text else f"({how}, no output)"
