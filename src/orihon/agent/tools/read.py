"""Read a file: text in pages with line numbers, pictures as pictures."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterator
from typing import Annotated, BinaryIO

import msgspec
from msgspec import Meta

from orihon.agent.tools.workspace import MAX_BYTES, FileSeen, OnEvent, Workspace
from orihon.errors import ToolError
from orihon.records import Part

PAGE_LINES = 2000
PAGE_BYTES = 60_000
LINE_BYTES = 4000  # a longer line is cut
MAX_PICTURE_BYTES = 5_000_000
COUNTED_BYTES = 256_000_000  # the lines of a larger file are not counted
SNIFFED_BYTES = 8192
_RANGE = re.compile(r"\s*+(\d{1,12})?\s*+(-)?\s*+(\d{1,12})?\s*+")  # possessive, so that it never backtracks
_PICTURES = {
    "image/png": re.compile(rb"\x89PNG\r\n\x1a\n"),
    "image/jpeg": re.compile(rb"\xff\xd8\xff"),
    "image/gif": re.compile(rb"GIF8[79]a"),
    "image/webp": re.compile(rb"RIFF....WEBP", re.DOTALL),
}


class Read(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Read a file of the workspace: text with line numbers (the numbers and the tab are not part of the file).

    A long file comes in pages; the end of a page says how to continue. Pictures are shown.
    """

    path: Annotated[str, Meta(description="A file of the workspace.")]
    lines: Annotated[str, Meta(description="Which lines: 40-90, 40- or 40. All, if empty.")] = ""


def read(workspace: Workspace, args: Read, on_event: OnEvent | None = None) -> str | list[Part]:
    """Return the content of a file for the model."""
    first, last = parse_range(args.lines)
    with workspace.open_file(args.path) as (fd, location), os.fdopen(os.dup(fd), "rb") as file:
        start = file.read(SNIFFED_BYTES)
        media_type = next((name for name, magic in _PICTURES.items() if magic.match(start)), None)
        size = os.fstat(fd).st_size
        if media_type is not None:
            return _read_picture(location.path, media_type, start, file)
        if b"\0" in start:
            raise ToolError(
                f"{location.path} is binary ({size:,} bytes); inspect it in the shell, such as with `file`."
            )
        if on_event is not None and size <= MAX_BYTES:
            file.seek(0)
            on_event(FileSeen(location.path, file.read(MAX_BYTES)))
        return _render_page(file, size, first, last)


def parse_range(text: str) -> tuple[int, int | None]:
    """Return the first and the last line of a range, counted from 1; None for an open end."""
    match = _RANGE.fullmatch(text)
    if match is None or not (match[1] or not match[2]):
        raise ToolError(f"lines cannot be {text[:40]!a}; write 40-90, 40- or 40.")
    if not match[1]:
        return 1, None
    first = int(match[1])
    last = int(match[3]) if match[3] else None if match[2] else first
    if first < 1 or (last is not None and last < first):
        raise ToolError(f"lines cannot be {text[:40]!a}; lines count from 1, and the last is not before the first.")
    return first, last


def _read_picture(path: str, media_type: str, start: bytes, file: BinaryIO) -> list[Part]:
    data = start + file.read(MAX_PICTURE_BYTES)
    if len(data) > MAX_PICTURE_BYTES:
        raise ToolError(f"{path} is a picture of more than {MAX_PICTURE_BYTES // 1_000_000} MB; make a smaller one.")
    picture = Part(type="image", media_type=media_type, data=base64.b64encode(data).decode("ascii"))
    return [Part(type="text", text=f"{path}: {media_type}, {len(data):,} bytes."), picture]


def _render_page(file: BinaryIO, size: int, first: int, last: int | None) -> str:
    lines: list[str] = []
    used = 0
    for number, line in enumerate(_iter_lines(file), 1):
        if number < first:
            continue
        if (last is not None and number > last) or len(lines) >= PAGE_LINES or used > PAGE_BYTES:
            break
        lines.append(f"{number:>6}\t{line}")
        used += len(line.encode("utf-8", "replace"))
    total = _count_lines(file, size)
    if not size:
        return "The file is empty."
    if not lines:
        return f"The file has {total or 'fewer'} lines; line {first} is past its end."
    return "\n".join([*lines, *_make_notes(lines, first, last, total)])


def _iter_lines(file: BinaryIO) -> Iterator[str]:
    file.seek(0)
    prefix = "\ufeff"
    while line := file.readline(LINE_BYTES):
        omitted = 0
        while not line.endswith(b"\n") and (rest := file.readline(1_000_000)):
            omitted += len(rest)
            if rest.endswith(b"\n"):
                break
        text = line.decode("utf-8", "replace").rstrip("\r\n").removeprefix(prefix)
        yield text + (f"… ({omitted:,} more bytes in this line)" if omitted else "")
        prefix = ""


def _count_lines(file: BinaryIO, size: int) -> int | None:
    """Return the number of lines, or None if counting would take long."""
    if size > COUNTED_BYTES:
        return None
    file.seek(0)
    lines, end = 0, b"\n"
    while chunk := file.read(1_000_000):
        lines += chunk.count(b"\n")
        end = chunk[-1:]
    return lines + (end != b"\n")


def _make_notes(lines: list[str], first: int, last: int | None, total: int | None) -> Iterator[str]:
    end = first + len(lines) - 1
    if any("\ufffd" in line for line in lines):
        yield "(The file is not all UTF-8: \ufffd stands for other bytes. edit leaves them as they are.)"
    if total is not None and end >= total:
        return
    of_total = f" of {total:,}" if total is not None else ""
    advice = f'; continue with lines="{end + 1}-"' if last is None or end < last else ""
    yield f"(Lines {first}-{end}{of_total}{advice}.)"
