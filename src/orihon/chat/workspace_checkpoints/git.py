"""The git command, isolated from the user's settings, identity, hooks and environment.

Git only says what differs, what is ignored and what is stored. It never reads a file to save it and never writes one
into the workspace, so `.gitattributes` cannot change any bytes. Drivers, filters and encodings, which git would use
for comparing, are disabled by `info/attributes`, which has precedence over `.gitattributes`.

The user's repository is found as git finds it, upwards from the workspace. Only its `info/exclude` is ever read. The
`.gitignore` files apply from its top directory on, also to a workspace further down.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Container, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

from orihon.errors import Corrupt, NotWritten, OrihonError, StoreUnavailable

RULES = ".gitignore"
MAX_POINTER_BYTES = 10_000
OLDEST = (2, 32)  # the first version that can ignore the user's settings
TIMEOUT_SECONDS = 120  # for one command
EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
_MAX_REASON_CHARS = 300
_DISK_FULL = ("No space left on device", "Disk quota exceeded", "File too large")
_SETTINGS = {
    "core.bare": "false",
    "core.fileMode": "true",
    "core.symlinks": "true",
    "core.ignoreCase": "false",
    "core.autocrlf": "false",
    "core.protectHFS": "false",  # on Linux these names are like any other
    "core.protectNTFS": "false",
    "core.hooksPath": os.devnull,
    "core.fsmonitor": "false",
    "core.untrackedCache": "false",
    "core.logAllRefUpdates": "false",
    "core.quotePath": "false",
    "core.bigFileThreshold": "2m",  # larger files are not compared line by line
    "core.fsync": "all,-index",  # the index can be rebuilt
    "core.fsyncMethod": "fsync",  # "batch" silently loses files that it cannot move into place
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


Version = tuple[str, str]  # the mode and the blob id of a file
ABSENT: Version = ("000000", "0" * 40)


class TreeChange(NamedTuple):
    """A path that differs between two trees."""

    old: Version
    new: Version
    status: str
    path: str


class WorkspaceRoot(NamedTuple):
    """The directory where ignore rules begin, and the path from there to the workspace: empty, or ending in `/`."""

    top: Path
    prefix: str = ""
    exclude: Path | None = None  # the repository's own list of rules

    @property
    def fingerprint(self) -> str:
        """Return a digest of the prefix and of the state of all rule files outside the workspace."""
        names = self.prefix.split("/")[:-1]
        rules = [self.top.joinpath(*names[:depth], RULES) for depth in range(len(names))]
        digest = hashlib.sha256(os.fsencode(self.prefix))
        for path in [*rules, *([self.exclude] if self.exclude else [])]:
            with suppress(OSError):
                status = path.stat()
                digest.update(f"\0{path.name} {status.st_ino} {status.st_size} {status.st_mtime_ns}".encode())
        return digest.hexdigest()[:16]


class Git:
    """Runs git in one repository for one workspace. The commands inherit the lock."""

    def __init__(self, repository: Path, workspace: Path, root: WorkspaceRoot, lock_fd: int) -> None:
        self.repository, self.workspace, self.root, self._lock_fd = repository, workspace, root, lock_fd

    @property
    def index(self) -> Path:
        """The file where git caches file times and sizes. It is a new one when the root changes."""
        return self.repository / f"index-{self.root.fingerprint}"

    def run(
        self, *arguments: str, stdin: bytes = b"", accept: Container[int] = (0,)
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a command to its end; raise an OrihonError if it fails or takes too long."""
        options = self._build_options(arguments) | {"input": stdin, "capture_output": True, "timeout": TIMEOUT_SECONDS}
        try:
            done: subprocess.CompletedProcess[bytes] = subprocess.run(check=False, **options)
        except subprocess.TimeoutExpired as error:
            raise _make_timeout_error(arguments) from error
        if done.returncode not in accept:
            raise self._make_error(arguments, done.returncode, done.stderr)
        return done

    @contextmanager
    def pipe(self, *arguments: str) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
        """Run a command while the caller writes to its stdin and reads its stdout.

        A caller that does not want the rest of the output closes stdout.
        """
        with tempfile.TemporaryFile() as stderr:
            options = self._build_options(arguments) | {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            ended_early = False
            with subprocess.Popen(stderr=stderr, **options) as process:
                stdin, stdout = cast("IO[bytes]", process.stdin), cast("IO[bytes]", process.stdout)
                try:
                    try:
                        yield stdin, stdout
                    except BrokenPipeError:
                        ended_early = True
                    process.communicate(timeout=TIMEOUT_SECONDS)
                except subprocess.TimeoutExpired as error:
                    raise _make_timeout_error(arguments) from error
                finally:
                    process.kill()  # without effect if it has ended
                    with suppress(BrokenPipeError):
                        stdin.close()
            if ended_early or process.returncode not in {0, -signal.SIGPIPE}:
                stderr.seek(0)
                raise self._make_error(arguments, process.returncode, stderr.read())

    def _build_options(self, arguments: tuple[str, ...]) -> dict[str, Any]:
        settings = _SETTINGS | {"core.excludesFile": str(self.root.exclude or os.devnull)}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        environment = _ENVIRONMENT | {"PATH": os.environ.get("PATH", os.defpath)}
        if arguments[0] != "init":
            environment |= {"GIT_DIR": str(self.repository), "GIT_INDEX_FILE": str(self.index)}
            environment |= {"GIT_WORK_TREE": str(self.root.top)}
        return {
            "args": [find_git(), *options, *arguments],
            "cwd": self.workspace,
            "env": environment,
            "umask": 0o077,
            "pass_fds": (self._lock_fd,),
        }

    def _make_error(self, arguments: tuple[str, ...], code: int, stderr: bytes) -> OrihonError:
        text = stderr.decode("utf-8", "replace").strip()
        if any(phrase in text for phrase in _DISK_FULL):
            hint = "Free some space, then try again."
            return NotWritten("The checkpoint cannot be written: the disk is full.", hint=hint)
        if code < 0:
            return StoreUnavailable(f"git {arguments[0]} was killed by signal {-code}.", hint="Try again.")
        fatal = [line for line in text.splitlines() if line.startswith(("fatal:", "error:"))]
        reason = fatal[0][:_MAX_REASON_CHARS] if fatal else f"exit code {code}"
        return Corrupt(
            f"git {arguments[0]} failed in {self.repository}: {reason}",
            where=str(self.repository),
            hint=f"If it fails again, delete {self.repository}. This deletes the checkpoints, but none of your files.",
        )


def find_git() -> str:
    """Return the path of the git command; raise StoreUnavailable if it is missing or too old."""
    path, oldest = shutil.which("git"), "{}.{}".format(*OLDEST)
    version = _read_version(path) if path else (0, 0)
    if path is None or version < OLDEST:
        problem = "it is not installed" if path is None else f"{path} is {'{}.{}'.format(*version)}"
        hint = f"Install git {oldest} or newer. Everything else works without it."
        raise StoreUnavailable(f"Checkpoints need git {oldest} or newer; {problem}.", hint=hint, retryable=False)
    return path


@cache
def _read_version(git: str) -> tuple[int, int]:
    try:
        done = subprocess.run([git, "version"], capture_output=True, timeout=TIMEOUT_SECONDS, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StoreUnavailable(f"{git} cannot be run: {error}.", hint="Check your installation of git.") from error
    match = re.search(rb"(\d+)\.(\d+)", done.stdout)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _make_timeout_error(arguments: tuple[str, ...]) -> StoreUnavailable:
    return StoreUnavailable(
        f"git {arguments[0]} did not finish within {TIMEOUT_SECONDS} s.",
        hint="Check whether the disk is very slow, or whether a .gitignore is not a regular file.",
    )


def parse_tree_changes(output: bytes) -> list[TreeChange]:
    """Parse the output of `git diff-tree --raw -z`."""
    fields = output.split(b"\0")
    changes = []
    for columns, path in zip(fields[0:-1:2], fields[1:-1:2], strict=True):
        old_mode, new_mode, old_id, new_id, status = columns.decode("ascii")[1:].split(" ")
        changes.append(TreeChange((old_mode, old_id), (new_mode, new_id), status, os.fsdecode(path)))
    return changes


def split_names(output: bytes) -> list[str]:
    """Parse a list of names that git printed with `-z`."""
    return [os.fsdecode(name) for name in output.split(b"\0") if name]


# where ignore rules begin


def find_root(workspace: Path) -> WorkspaceRoot:
    """Return the root of a workspace: the nearest repository around it, or the workspace itself."""
    for top in (workspace, *workspace.parents):
        directory = _find_git_directory(top / ".git")
        if directory is not None:
            prefix = "" if top == workspace else f"{workspace.relative_to(top)}/"
            common = _read_pointer(directory / "commondir")  # a worktree shares the repository of another directory
            exclude = directory / common / "info" / "exclude"
            return WorkspaceRoot(top, prefix, exclude if exclude.is_file() else None)
    return WorkspaceRoot(workspace)


def _find_git_directory(path: Path) -> Path | None:
    """Return the git directory at `.git`, or the one that a worktree's or submodule's `.git` file names."""
    try:
        if path.is_dir():
            return path if (path / "HEAD").exists() else None
    except OSError:
        return None
    text = _read_pointer(path)
    return path.parent / text.removeprefix("gitdir:").strip() if text.startswith("gitdir:") else None


def _read_pointer(path: Path) -> str:
    """Return the path that a file of git's holds; empty if there is no such regular file."""
    try:
        if path.is_file():  # opening a FIFO would block
            with path.open("rb") as file:
                return os.fsdecode(file.read(MAX_POINTER_BYTES).strip(b"\r\n"))
    except OSError:
        pass
    return ""
