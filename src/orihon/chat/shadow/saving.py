"""The workspace as a commit: what differs from the last one is read, and one command of git stores all of it.

Git's fast-import takes the bytes of the files, makes the trees and the commit, and moves the references when all of it
is on the disk. The files are read here, not by git, so that no link is followed, no attribute changes a byte, and a
file that cannot be read is only that.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import IO, NamedTuple

from orihon.chat.shadow.git import Git
from orihon.chat.shadow.listing import ABSENT, Version, ignored, is_rules, look
from orihon.chat.shadow.values import Change, Skipped, Status
from orihon.chat.shadow.worktree import LINK, Content, Unsaved, WorkTree

_WHO = "Orihon <orihon@localhost>"
_QUOTED = [bytes([byte]) if 32 <= byte < 127 and byte not in b'"\\' else b"\\%03o" % byte for byte in range(256)]  # noqa: PLR2004


class Delta(NamedTuple):
    """What was found when the files were read that may differ."""

    present: dict[str, Version]
    gone: set[str]  # removed, or not to be saved
    dropped: set[str]  # of these, what the last checkpoint has and what is still there
    changes: list[Change]
    skipped: list[Skipped]


@contextmanager
def importing(git: Git) -> Iterator[Import]:
    """Store something; all of it counts when this is left, or nothing."""
    with ExitStack() as stack:
        into = Import(git, stack)
        yield into
        into.end()


class Import:
    """One run of fast-import, begun when there is something to store."""

    def __init__(self, git: Git, stack: ExitStack) -> None:
        self._git, self._stack = git, stack
        self._pipes: tuple[IO[bytes], IO[bytes]] | None = None

    def blob(self, data: bytes) -> None:
        """Store the bytes of a file."""
        self._send(b"blob\ndata %d\n" % len(data), data, b"\n")

    def commit(self, ref: str, base: str, delta: Delta, message: bytes) -> str:
        """Store a commit without parents, a tree and what is different in it, and give its id."""
        prefix = os.fsencode(self._git.ground.prefix)
        about = f"commit {ref}\nmark :1\ncommitter {_WHO} {int(time.time())} +0000\ndata {len(message)}\n"
        removed = [b"D %s\n" % _quoted(prefix, path) for path in delta.gone]
        put = [
            b"M %s %s %s\n" % (mode.encode(), blob.encode(), _quoted(prefix, path))
            for path, (mode, blob) in delta.present.items()
        ]
        begin = f'M 040000 {base} ""\n' if base else ""
        into, told = self._send(about.encode(), message, b"\n", begin.encode(), *removed, *put, b"\nget-mark :1\n")
        into.flush()
        return told.readline().decode().strip()

    def refer(self, ref: str) -> None:
        """Let a reference lead to the commit."""
        self._send(f"reset {ref}\nfrom :1\n\n".encode())

    def end(self) -> None:
        """Say that this was all; without it nothing counts."""
        if self._pipes is not None:
            self._send(b"done\n")

    def _send(self, *parts: bytes) -> tuple[IO[bytes], IO[bytes]]:
        if self._pipes is None:
            self._pipes = self._stack.enter_context(
                self._git.talk("fast-import", "--quiet", "--done", "--force", "--depth=0")
            )
        self._pipes[0].writelines(parts)
        return self._pipes


def read(git: Git, files: WorkTree, apart: tuple[str, ...], into: Import, *, thorough: bool) -> Delta:
    """Read what may differ from the last checkpoint, and store the bytes; the paths `apart` are never looked at.

    A file that was saved before and is ignored by now is dropped when it can be seen that the rules have changed; when
    it is `thorough`, they are asked about every file.
    """
    listing = look(git)
    left_out = ignored(git) if thorough or any(map(is_rules, listing.versions)) else set[str]()
    delta = Delta({}, {*left_out}, {*left_out}, [], [*listing.closed])
    for path, old in listing.versions.items():
        if path in left_out or is_apart(path, apart):
            continue
        found = files.read(path)
        if isinstance(found, Content) and path not in listing.unseen:
            new = found.mode, identity(found.data)
            delta.present[path] = new
            if new != old:
                into.blob(found.data)
                delta.changes.append(Change(_status(old, new), path))
            continue
        delta.gone.add(path)
        if isinstance(found, Unsaved):
            delta.skipped.append(Skipped(path, found.reason))
        if old != ABSENT and found is None:
            delta.changes.append(Change("D", path))
        elif old != ABSENT:
            delta.dropped.add(path)
    return delta


def is_apart(path: str, apart: Iterable[str]) -> bool:
    """Whether a path is one of these or below it."""
    return any(path == one or path.startswith(f"{one}/") for one in apart)


def identity(data: bytes) -> str:
    """The id that git gives to these bytes."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def _status(old: Version, new: Version) -> Status:
    if old == ABSENT:
        return "A"
    return "T" if (old[0] == LINK) != (new[0] == LINK) else "M"


def _quoted(prefix: bytes, path: str) -> bytes:
    """A path as fast-import reads it."""
    return b'"%s"' % b"".join(_QUOTED[byte] for byte in prefix + os.fsencode(path))
