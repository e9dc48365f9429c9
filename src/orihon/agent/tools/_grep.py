"""The child process of a search. It needs only the standard library, so that it starts quickly.

Input: a JSON line with the request, then file names separated by NUL. Output: a JSON line per match that is shown, and
one with the counts, or a single one that says why the pattern is invalid. Compiling can take long too, so it happens
here. Files are opened below the given directory without following links.
"""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from collections.abc import Iterator
from typing import BinaryIO

MAX_LINE_BYTES = 100_000  # the rest of a longer line is not searched
SHOWN_CHARS = 300
SNIFFED_BYTES = 8192
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Opener:
    """Opens files below a directory and keeps the handle of the last directory, because names come sorted."""

    def __init__(self, top: int) -> None:
        self.top, self.fd, self.directory = top, os.dup(top), b""

    def open(self, name: bytes) -> int:
        directory, _, last = name.rpartition(b"/")
        if directory != self.directory:
            self._change_directory(directory)
        fd = os.open(last, _FILE, dir_fd=self.fd)
        if stat.S_ISREG(os.fstat(fd).st_mode):
            return fd
        os.close(fd)
        raise OSError

    def _change_directory(self, directory: bytes) -> None:
        os.close(self.fd)
        self.fd, self.directory = os.dup(self.top), b""
        for part in directory.split(b"/"):
            if part == b"..":
                raise OSError
            inner = os.open(part, _DIRECTORY, dir_fd=self.fd)
            os.close(self.fd)
            self.fd = inner
        self.directory = directory


def iter_lines(file: BinaryIO) -> Iterator[str]:
    """Yield the lines of a text file; nothing for a binary one."""
    if b"\0" in file.read(SNIFFED_BYTES):
        return
    file.seek(0)
    while line := file.readline(MAX_LINE_BYTES):
        yield line.decode("utf-8", "replace").rstrip("\r\n")
        while len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
            line = file.readline(MAX_LINE_BYTES)


def shorten(line: str, at: int) -> str:
    """Return the line, or the part of a long one around the match."""
    if len(line) <= SHOWN_CHARS:
        return line
    begin = max(0, min(at - SHOWN_CHARS // 4, len(line) - SHOWN_CHARS))
    end = begin + SHOWN_CHARS
    return f"{'…' if begin else ''}{line[begin:end]}{'…' if end < len(line) else ''}"


def main() -> None:
    """Answer the request on standard input."""
    head, _, names = sys.stdin.buffer.read().partition(b"\n")
    request = json.loads(head)
    try:
        expression, limit = re.compile(request["pattern"]), request["limit"]
    except (re.error, OverflowError, RecursionError) as error:
        print(json.dumps({"refused": str(error)}))  # noqa: T201
        return
    opener = Opener(request["fd"])
    matches = files = searched = 0
    for name in names.split(b"\0") if names else ():
        try:
            file = os.fdopen(opener.open(name), "rb")
        except OSError:
            continue
        with file:
            searched += 1
            before = matches
            for number, line in enumerate(iter_lines(file), 1):
                match = expression.search(line)
                if match is None:
                    continue
                matches += 1
                if matches <= limit:
                    print(json.dumps([os.fsdecode(name), number, shorten(line, match.start())]), flush=True)  # noqa: T201
            files += matches > before
    print(json.dumps({"matches": matches, "files": files, "searched": searched}))  # noqa: T201


if __name__ == "__main__":
    main()
