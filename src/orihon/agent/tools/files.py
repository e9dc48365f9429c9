"""Read, write and edit files: text in pages with line numbers, and pictures as pictures.

A file is written completely or not at all, and keeps its mode, line ends and byte order mark. A mask such as `[EMAIL]`
stands for a value that the model was not shown. It is never written into a file that does not contain that mask. `.git`
is not written, because git runs programs that are named there.
"""

from __future__ import annotations

import base64
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Annotated, BinaryIO, NamedTuple

import msgspec
from msgspec import Meta

from orihon.agent.tools.fuzzy_match import list_lines_with, number_lines, suggest_piece
from orihon.agent.tools.workspace import (
    MAX_BYTES,
    FileSeen,
    Location,
    OnEvent,
    Workspace,
    make_tool_error,
    open_regular_file,
)
from orihon.errors import ToolError
from orihon.records import Part
from orihon.redaction import masks_in
from orihon.stores.files import sync, write_all

PAGE_LINES = 2000
PAGE_BYTES = 60_000
LINE_BYTES = 4000  # a longer line is cut
MAX_PICTURE_BYTES = 5_000_000
COUNTED_BYTES = 256_000_000  # the lines of a larger file are not counted
SNIFFED_BYTES = 8192
CONTEXT = 3  # lines shown before and after a change
BOM = b"\xef\xbb\xbf"
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


class Write(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Write a whole file of the workspace. An existing file is replaced; missing directories are created."""

    path: Annotated[str, Meta(description="The file.")]
    content: Annotated[str, Meta(description="The complete new content.")]


class Edit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Replace a piece of a file. `old` must be in the file exactly as given, white space included, and only once."""

    path: Annotated[str, Meta(description="The file.")]
    old: Annotated[str, Meta(description="The present text, without the line numbers of read.")]
    new: Annotated[str, Meta(description="The text that replaces it.")]
    all: Annotated[bool, Meta(description="Replace every occurrence of `old`.")] = False


# reading


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


# writing


class Change(NamedTuple):
    """A planned change of a file; `old` is None for a new file."""

    path: str
    old: bytes | None
    new: bytes
    identity: tuple[int, ...] | None  # of the file when it was read


Approve = Callable[[Change], None]  # raises ToolError if the change is not allowed


def write(workspace: Workspace, args: Write, approve: Approve, on_event: OnEvent | None = None) -> str:
    """Write a whole file."""
    path, old, identity = _load(workspace, args.path)
    _refuse_masks(args.content, old or b"", "content")
    content = _encode(args.content)
    change = Change(path, old, _match_style(content, old) if old is not None else content, identity)
    if change.old == change.new:
        return f"{path} has this content already."
    _apply(workspace, args.path, change, approve, on_event)
    lines = len(change.new.splitlines())
    before = "" if old is None else f", before {len(old.splitlines()):,}"
    return f"{'Created' if old is None else 'Wrote'} {path}: {lines:,} {'line' if lines == 1 else 'lines'}{before}."


def edit(workspace: Workspace, args: Edit, approve: Approve, on_event: OnEvent | None = None) -> str:
    """Replace one piece of a file."""
    if not args.old:
        raise ToolError("old is empty; give the text to replace, or use write for a whole file.")
    path, content, identity = _load(workspace, args.path)
    if content is None:
        with workspace.locate(args.path) as location:
            os.close(open_regular_file(location))  # raises the error that says what is missing
        raise ToolError(f"There is no file {path}.")
    _refuse_masks(args.old, content, "old")
    _refuse_masks(args.new, content, "new")
    if args.old == args.new:
        raise ToolError("old and new are the same; there is nothing to change.")
    old, new = (_match_style(_encode(text), content, bom=False) for text in (args.old, args.new))
    count = content.count(old)
    if not count:
        raise ToolError(f"{path} does not contain old exactly. {suggest_piece(args.old, content)}")
    if count > 1 and not args.all:
        lines = list_lines_with(old, content)
        raise ToolError(f"old is {count} times in {path}, on lines {lines}; add lines around it, or set all to true.")
    change = Change(path, content, content.replace(old, new), identity)
    _apply(workspace, args.path, change, approve, on_event)
    first = content.count(b"\n", 0, content.find(old)) + 1
    shown = number_lines(change.new, first - CONTEXT, first + new.count(b"\n") + CONTEXT)
    return f"Changed {path}{f' in {count} places' if count > 1 else ''}:\n{shown}"


def _refuse_masks(text: str, content: bytes, argument: str) -> None:
    unknown = sorted(masks_in(text) - masks_in(content.decode("utf-8", "replace")))
    if not unknown:
        return
    masks = ", ".join(unknown)
    if argument == "old":
        raise ToolError(
            f"old contains {masks}, which stands for a value that you were not shown; the file has that value. "
            "Choose a piece without it, such as the lines before or after."
        )
    raise ToolError(
        f"{argument} contains {masks}, which stands for a value that you were not shown; it would be written as is. "
        "Change the lines around it with edit, read the value from the environment, or ask for it."
    )


def _encode(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ToolError("The text contains half a character (a lone surrogate), which a file cannot hold.") from error


def _match_style(data: bytes, content: bytes, *, bom: bool = True) -> bytes:
    """Return new text with the line ends and the byte order mark of the file."""
    if b"\r\n" in content and b"\n" not in content.replace(b"\r\n", b"") and b"\r" not in data:
        data = data.replace(b"\n", b"\r\n")
    return BOM + data if bom and content.startswith(BOM) and not data.startswith(BOM) else data


def _load(workspace: Workspace, path: str) -> tuple[str, bytes | None, tuple[int, ...] | None]:
    """Return the real path of a file, its content and its identity; None for a file that does not exist."""
    try:
        with workspace.locate(path, writing=True) as location:
            if location.name and _get_status(location) is None:
                return location.path, None, None
            return location.path, *_read_content(location)
    except ToolError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        return "/".join(workspace.split_path(path)), None, None


def _get_status(location: Location) -> os.stat_result | None:
    try:
        return os.stat(location.name, dir_fd=location.dir_fd, follow_symlinks=False)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise make_tool_error(error, location.path) from error


def _read_content(location: Location) -> tuple[bytes, tuple[int, ...]]:
    with os.fdopen(open_regular_file(location), "rb") as file:
        status = os.fstat(file.fileno())
        if not status.st_mode & 0o222:
            raise ToolError(f"{location.path} is read-only, so it is not changed.")
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ToolError(f"{location.path} has more than {MAX_BYTES // 1_000_000} MB; use the shell for it.")
    return data, _make_identity(status)


def _make_identity(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _apply(workspace: Workspace, path: str, change: Change, approve: Approve, on_event: OnEvent | None) -> None:
    """Replace the file in one step, after approval, unless another program has changed it."""
    approve(change)
    with workspace.locate(path, writing=True, create=True) as location:
        status = _get_status(location)
        identity = None if status is None else _make_identity(status)
        if identity != change.identity or (status is not None and not stat.S_ISREG(status.st_mode)):
            raise ToolError(f"{location.path} was changed by another program just now; read it again.")
        try:
            _replace(location, change.new, status)
        except OSError as error:
            raise make_tool_error(error, location.path) from error
        if on_event is not None:
            on_event(FileSeen(location.path, change.new, wrote=True, before=change.old))


def _replace(location: Location, data: bytes, status: os.stat_result | None) -> None:
    temporary = f".orihon-{secrets.token_hex(8)}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(temporary, flags, 0o666, dir_fd=location.dir_fd)  # the umask applies to a new file
    try:
        try:
            if status is not None:
                with suppress(OSError):  # only root can change the owner
                    os.fchown(fd, status.st_uid, status.st_gid)
                os.fchmod(fd, stat.S_IMODE(status.st_mode))
            write_all(fd, data)
            sync(fd)
        finally:
            os.close(fd)
        os.replace(temporary, location.name, src_dir_fd=location.dir_fd, dst_dir_fd=location.dir_fd)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=location.dir_fd)
        raise
