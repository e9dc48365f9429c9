"""The part of a search that runs in a process of its own, because Python cannot stop an expression without end.

Reads a request from its input: a JSON line, then names separated by NUL. Writes a JSON line for each match that is to
be shown and one with the counts, or only one that says why the pattern is refused. To compile a pattern can take long
as well, so it is done here. It needs nothing but the standard library, so that it starts at once, and it opens
files below the directory it was given without going through any link.
"""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from collections.abc import Iterator
from typing import BinaryIO

MAX_LINE_BYTES = 100_000  # what is behind it, in a line without end, is not searched
SHOWN_CHARS = 300
SNIFFED = 8192
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Opener:
    """Opens files below a directory; those of one directory come one after the other, so its handle is kept."""

    def __init__(self, top: int) -> None:
        self.top, self.fd, self.directory = top, os.dup(top), b""

    def open(self, name: bytes) -> int:
        directory, _, last = name.rpartition(b"/")
        if directory != self.directory:
            self._go(directory)
        fd = os.open(last, _FILE, dir_fd=self.fd)
        if stat.S_ISREG(os.fstat(fd).st_mode):
            return fd
        os.close(fd)
        raise OSError

    def _go(self, directory: bytes) -> None:
        os.close(self.fd)
        self.fd, self.directory = os.dup(self.top), b""
        for part in directory.split(b"/"):
            if part == b"..":
                raise OSError
            inner = os.open(part, _DIRECTORY, dir_fd=self.fd)
            os.close(self.fd)
            self.fd = inner
        self.directory = directory


def lines_of(file: BinaryIO) -> Iterator[str]:
    """The lines of a text; nothing of a binary."""
    if b"\0" in file.read(SNIFFED):
        return
    file.seek(0)
    while line := file.readline(MAX_LINE_BYTES):
        yield line.decode("utf-8", "replace").rstrip("\r\n")
        while len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
            line = file.readline(MAX_LINE_BYTES)


def shown(line: str, at: int) -> str:
    """A line, or the part of a long one that is around the match."""
    if len(line) <= SHOWN_CHARS:
        return line
    begin = max(0, min(at - SHOWN_CHARS // 4, len(line) - SHOWN_CHARS))
    end = begin + SHOWN_CHARS
    return f"{'…' if begin else ''}{line[begin:end]}{'…' if end < len(line) else ''}"


def main() -> None:
    """Answer the request on the input."""
    head, _, names = sys.stdin.buffer.read().partition(b"\n")
    request = json.loads(head)
    try:
        expression, most = re.compile(request["pattern"]), request["most"]
    except (re.error, OverflowError, RecursionError) as error:
        print(json.dumps({"refused": str(error)}))  # noqa: T201
        return
    opener = Opener(request["fd"])
    matches = files = looked = 0
    for name in names.split(b"\0") if names else ():
        try:
            file = os.fdopen(opener.open(name), "rb")
        except OSError:
            continue
        with file:
            looked += 1
            before = matches
            for number, line in enumerate(lines_of(file), 1):
                found = expression.search(line)
                if found is None:
                    continue
                matches += 1
                if matches <= most:
                    print(json.dumps([os.fsdecode(name), number, shown(line, found.start())]), flush=True)  # noqa: T201
            files += matches > before
    print(json.dumps({"matches": matches, "files": files, "looked": looked}))  # noqa: T201


if __name__ == "__main__":
    main()
