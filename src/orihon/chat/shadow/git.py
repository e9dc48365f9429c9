"""The git command as a shadow uses it: with nothing of the user's settings, identity, hooks or environment.

Git is only asked what differs, what is ignored and what is stored. It never reads a file to save it and never writes
one into the workspace, so `.gitattributes` have no say in the bytes. What else they could do (drivers, filters,
encodings, when git compares) is set aside by `info/attributes`, which outranks them.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import IO, NamedTuple

from orihon.chat.shadow.ground import Ground
from orihon.errors import Corrupt, NotWritten, OrihonError, StoreUnavailable

OLDEST = (2, 32)  # the first that can be told to leave the user's settings alone
SECONDS = 120  # for one command
EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
_MAX_SAID = 300
_FULL = ("No space left on device", "Disk quota exceeded", "File too large")
_SETTINGS = {
    "core.bare": "false",
    "core.fileMode": "true",
    "core.symlinks": "true",
    "core.ignoreCase": "false",
    "core.autocrlf": "false",
    "core.protectHFS": "false",  # on Linux these are names like any other
    "core.protectNTFS": "false",
    "core.hooksPath": os.devnull,
    "core.fsmonitor": "false",
    "core.untrackedCache": "false",
    "core.logAllRefUpdates": "false",
    "core.quotePath": "false",
    "core.bigFileThreshold": "2m",  # the lines of larger files are not compared
    "core.fsync": "all,-index",  # the index can be made again
    "core.fsyncMethod": "fsync",  # what "batch" cannot move into its place, it loses without a word
    "gc.auto": "0",
    "maintenance.auto": "false",
}
_ENVIRONMENT = {
    "LC_ALL": "C",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "",
    "GIT_DEFAULT_HASH": "sha1",
    "GIT_DEFAULT_REF_FORMAT": "files",
}


class Difference(NamedTuple):
    """A path that is not the same on two sides; a mode of 000000 says that it is not there."""

    old_mode: str
    new_mode: str
    old_id: str
    new_id: str
    status: str
    path: str


class Git:
    """Git in one repository, for one workspace; `lock` is a handle that the commands inherit."""

    def __init__(self, repository: Path, workspace: Path, ground: Ground, lock: int) -> None:
        self.repository, self.workspace, self.ground, self._lock = repository, workspace, ground, lock

    def run(self, *arguments: str, given: bytes = b"") -> bytes:
        """What a command prints; one that fails, or takes too long, is an error in our words."""
        return self._outcome(self._start(arguments), arguments, given, (0,))[0]

    def ask(self, *arguments: str, no: int = 1) -> bytes | None:
        """What a command prints about something; None when it ends with the code that says no."""
        process = self._start(arguments)
        said, _ = self._outcome(process, arguments, b"", (0, no))
        return None if process.returncode else said

    def run_aloud(self, *arguments: str) -> tuple[bytes, bytes]:
        """What a command prints, and what it complains of though it does not fail."""
        return self._outcome(self._start(arguments), arguments, b"", (0,))

    @contextmanager
    def talk(self, *arguments: str) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
        """A command that is written to and read from while it runs; who has read enough closes what it tells."""
        with tempfile.TemporaryFile() as complaints:
            process = self._start(arguments, complaints)
            assert process.stdin is not None  # noqa: S101 - for the type checker
            assert process.stdout is not None  # noqa: S101
            ended_early = False
            try:
                try:
                    yield process.stdin, process.stdout
                except BrokenPipeError:
                    ended_early = True
                process.communicate(timeout=SECONDS)  # it ends with its input, and with what it has to tell
            except subprocess.TimeoutExpired as error:
                raise _too_slow(arguments) from error
            finally:
                _end(process)
            if ended_early or process.returncode not in {0, -signal.SIGPIPE}:
                complaints.seek(0)
                raise self._failed(arguments, process.returncode, complaints.read())

    @property
    def index(self) -> Path:
        """The file that remembers what was seen, for as long as the ground is the same."""
        return self.repository / f"index-{self.ground.mark}"

    def _start(
        self, arguments: tuple[str, ...], complaints: IO[bytes] | int = subprocess.PIPE
    ) -> subprocess.Popen[bytes]:
        exclude = self.ground.exclude or os.devnull
        settings = _SETTINGS | {"core.excludesFile": str(exclude)}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        environment = _ENVIRONMENT | {"PATH": os.environ.get("PATH", os.defpath)}
        if arguments[0] != "init":
            environment |= {"GIT_DIR": str(self.repository), "GIT_INDEX_FILE": str(self.index)}
            environment |= {"GIT_WORK_TREE": str(self.ground.top)}
        try:
            return subprocess.Popen(  # noqa: S603 - the arguments are ours
                [program(), *options, *arguments],
                cwd=self.workspace,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaints,
                umask=0o077,
                pass_fds=(self._lock,),
            )
        except OSError as error:
            raise StoreUnavailable(f"git cannot be started: {error.strerror or error}.") from error

    def _outcome(
        self, process: subprocess.Popen[bytes], arguments: tuple[str, ...], given: bytes, allowed: tuple[int, ...]
    ) -> tuple[bytes, bytes]:
        try:
            said, complained = process.communicate(given, SECONDS)
        except subprocess.TimeoutExpired as error:
            raise _too_slow(arguments) from error
        finally:
            _end(process)
        if process.returncode not in allowed:
            raise self._failed(arguments, process.returncode, complained)
        return said, complained

    def _failed(self, arguments: tuple[str, ...], code: int, complained: bytes) -> OrihonError:
        text = complained.decode("utf-8", "replace").strip()
        if any(words in text for words in _FULL):
            return NotWritten(
                "The checkpoint cannot be written: the disk is full.", hint="Free some space, then repeat it."
            )
        if code < 0:
            return StoreUnavailable(f"git {arguments[0]} was killed by signal {-code}.", hint="Try it again.")
        fatal = [line for line in text.splitlines() if line.startswith(("fatal:", "error:"))]
        reason = fatal[0][:_MAX_SAID] if fatal else f"it ended with {code}"
        return Corrupt(
            f"git {arguments[0]} failed in {self.repository}: {reason}",
            where=str(self.repository),
            hint=f"If it fails again, delete {self.repository}: the checkpoints are lost then, but no file of yours.",
        )


def program() -> str:
    """The git command; one that is missing or too old is refused."""
    found = shutil.which("git")
    if found is None:
        raise StoreUnavailable(
            "Checkpoints need the git command, and it is not installed.",
            hint=f"Install git {_written(OLDEST)} or newer; all the rest works without it.",
            retryable=False,
        )
    version = _version(found)
    if version < OLDEST:
        raise StoreUnavailable(
            f"Checkpoints need git {_written(OLDEST)} or newer; {found} is {_written(version)}.",
            hint="Install a newer git; all the rest works without it.",
            retryable=False,
        )
    return found


@cache
def _version(git: str) -> tuple[int, ...]:
    try:
        said = subprocess.run([git, "version"], capture_output=True, timeout=SECONDS, check=False).stdout  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StoreUnavailable(f"{git} cannot be run: {error}.", hint="Check your installation of git.") from error
    found = re.search(rb"(\d+)\.(\d+)", said)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _written(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def differences(said: bytes) -> list[Difference]:
    """What stands in `--raw -z`."""
    fields = said.split(b"\0")
    found = []
    for about, path in zip(fields[0:-1:2], fields[1:-1:2], strict=True):
        old_mode, new_mode, old_id, new_id, status = about.decode("ascii")[1:].split(" ")
        found.append(Difference(old_mode, new_mode, old_id, new_id, status, os.fsdecode(path)))
    return found


def names(said: bytes) -> list[str]:
    """What stands in a list with `-z`."""
    return [os.fsdecode(name) for name in said.split(b"\0") if name]


def _end(process: subprocess.Popen[bytes]) -> None:
    """Leave no command behind; one that ended already is not disturbed."""
    if process.poll() is None:
        process.kill()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with suppress(BrokenPipeError):
                pipe.close()
    process.wait()


def _too_slow(arguments: tuple[str, ...]) -> StoreUnavailable:
    return StoreUnavailable(
        f"git {arguments[0]} did not end within {SECONDS} s.",
        hint="Is the disk very slow, or a .gitignore something else than a file?",
    )
