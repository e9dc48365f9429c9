"""Read a file: text in pages with the numbers of the lines, pictures as pictures, nothing else."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterator
from typing import Annotated, BinaryIO

import msgspec
from msgspec import Meta

from orihon.agent.tools.events import MAX_BYTES, FileSeen, Watch
from orihon.agent.tools.workspace import Workspace
from orihon.errors import ToolError
from orihon.records import Part

PAGE_LINES = 2000
PAGE_BYTES = 60_000
LINE_BYTES = 4000  # a longer line is cut; nobody edits it by reading it
MAX_PICTURE_BYTES = 5_000_000
COUNTED_BYTES = 256_000_000  # the lines of a larger file are not counted
SNIFFED = 8192
_RANGE = re.compile(r"\s*+(\d{1,12})?\s*+(-)?\s*+(\d{1,12})?\s*+")  # possessive, so that no blanks are tried twice
_PICTURES = {
    "image/png": re.compile(rb"\x89PNG\r\n\x1a\n"),
    "image/jpeg": re.compile(rb"\xff\xd8\xff"),
    "image/gif": re.compile(rb"GIF8[79]a"),
    "image/webp": re.compile(rb"RIFF....WEBP", re.DOTALL),
}


class Read(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Read a file of the workspace: text with the numbers of its lines (they and the tab are not part of the file).

    A long file comes in pages, and the end of a page says how to go on. Pictures are shown.
    """

    path: Annotated[str, Meta(description="A file of the workspace.")]
    lines: Annotated[str, Meta(description="Which lines: 40-90, 40- or 40. All, if empty.")] = ""


def read(workspace: Workspace, asked: Read, on_event: Watch | None = None) -> str | list[Part]:
    """What is in a file, as a model can use it."""
    first, last = range_of(asked.lines)
    with workspace.open_file(asked.path) as (fd, place), os.fdopen(os.dup(fd), "rb") as file:
        begin = file.read(SNIFFED)
        kind = next((kind for kind, magic in _PICTURES.items() if magic.match(begin)), None)
        size = os.fstat(fd).st_size
        if kind is not None:
            return _picture(place.path, kind, begin, file)
        if b"\0" in begin:
            message = f"{place.path} is binary ({size:,} bytes); use the shell to look at it, for example with `file`."
            raise ToolError(message)
        if on_event is not None and size <= MAX_BYTES:
            file.seek(0)
            on_event(FileSeen(place.path, file.read(MAX_BYTES)))
        return _page(file, size, first, last)


def range_of(text: str) -> tuple[int, int | None]:
    """The first and the last line that are wanted, counted from 1."""
    found = _RANGE.fullmatch(text)
    if found is None or not (found[1] or not found[2]):
        raise ToolError(f"lines cannot be {text[:40]!a}; write 40-90, 40- or 40.")
    if not found[1]:
        return 1, None
    first = int(found[1])
    last = int(found[3]) if found[3] else None if found[2] else first
    if first < 1 or (last is not None and last < first):
        raise ToolError(f"lines cannot be {text[:40]!a}; the first is line 1, and the last is not before the first.")
    return first, last


def _picture(path: str, kind: str, begin: bytes, file: BinaryIO) -> list[Part]:
    data = begin + file.read(MAX_PICTURE_BYTES)
    if len(data) > MAX_PICTURE_BYTES:
        raise ToolError(f"{path} is a picture of more than {MAX_PICTURE_BYTES // 1_000_000} MB; make a smaller one.")
    shown = Part(type="image", media_type=kind, data=base64.b64encode(data).decode("ascii"))
    return [Part(type="text", text=f"{path}: {kind}, {len(data):,} bytes."), shown]


def _page(file: BinaryIO, size: int, first: int, last: int | None) -> str:
    shown: list[str] = []
    used = 0
    for number, line in enumerate(_lines(file), 1):
        if number < first:
            continue
        if (last is not None and number > last) or len(shown) >= PAGE_LINES or used > PAGE_BYTES:
            break
        shown.append(f"{number:>6}\t{line}")
        used += len(line.encode("utf-8", "replace"))
    total = _count(file, size)
    if not size:
        return "The file is empty."
    if not shown:
        return f"The file has {total or 'fewer'} lines; line {first} is behind its end."
    return "\n".join([*shown, *_notes(shown, first, last, total)])


def _lines(file: BinaryIO) -> Iterator[str]:
    """The lines of a file; of a very long one its begin."""
    file.seek(0)
    begin = True
    while line := file.readline(LINE_BYTES):
        more = 0
        while not line.endswith(b"\n") and (rest := file.readline(1_000_000)):
            more += len(rest)
            if rest.endswith(b"\n"):
                break
        text = line.decode("utf-8", "replace").rstrip("\r\n")
        yield (text.removeprefix("\ufeff") if begin else text) + (
            f"… ({more:,} more bytes in this line)" if more else ""
        )
        begin = False


def _count(file: BinaryIO, size: int) -> int | None:
    """How many lines there are, unless that would take long."""
    if size > COUNTED_BYTES:
        return None
    file.seek(0)
    lines, end = 0, b"\n"
    while chunk := file.read(1_000_000):
        lines += chunk.count(b"\n")
        end = chunk[-1:]
    return lines + (end != b"\n")


def _notes(shown: list[str], first: int, last: int | None, total: int | None) -> Iterator[str]:
    end = first + len(shown) - 1
    if any("\ufffd" in line for line in shown):
        yield "(The file is not UTF-8 everywhere: \ufffd stands for bytes that are not. edit leaves them as they are.)"
    if total is not None and end >= total:
        return
    of = f" of {total:,}" if total is not None else ""
    if last is None or end < last:
        yield f'(Lines {first}-{end}{of}; go on with lines="{end + 1}-".)'
    else:
        yield f"(Lines {first}-{end}{of}.)"
