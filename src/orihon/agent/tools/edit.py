"""Write a file, or change a piece of it: whole or not at all, with its mode, its line ends and its byte order mark.

A mask such as `[EMAIL]` stands for something that the model was not shown. It never lands in a file that does not
hold that very mask itself, and `.git` is not written to, because git runs what is written there.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from orihon.agent.tools.events import FileSeen, Watch
from orihon.agent.tools.fuzzy_match import lines_with, nearest, numbered
from orihon.agent.tools.workspace import Location, Workspace, make_tool_error, open_regular_file
from orihon.errors import ToolError
from orihon.redaction import masks_in
from orihon.stores.files import sync, write_all

MAX_BYTES = 20_000_000  # what is held in memory to be changed
AROUND = 3  # lines shown before and after a change
BOM = b"\xef\xbb\xbf"


class Write(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Write a whole file of the workspace; one that is there is replaced, directories on the way are made."""

    path: Annotated[str, Meta(description="The file.")]
    content: Annotated[str, Meta(description="All that is to be in it.")]


class Edit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Replace a piece of a file. `old` must be in the file exactly as given, white space included, and only once."""

    path: Annotated[str, Meta(description="The file.")]
    old: Annotated[str, Meta(description="What is there now, without the numbers that read puts before lines.")]
    new: Annotated[str, Meta(description="What is to be there instead.")]
    all: Annotated[bool, Meta(description="Replace every place where `old` is.")] = False


class Change(NamedTuple):
    """What is about to happen to a file; `old` is None for a new one."""

    path: str
    old: bytes | None
    new: bytes
    mark: tuple[int, ...] | None  # of the file as it was read


Allowed = Callable[[Change], None]


def write(workspace: Workspace, asked: Write, allowed: Allowed, on_event: Watch | None = None) -> str:
    """Put a file there."""
    old, mark, path = _present(workspace, asked.path)
    _refuse_masks(asked.content, old or b"", "content")
    content = _encoded(asked.content)
    change = Change(path, old, _like(content, old) if old is not None else content, mark)
    if change.old == change.new:
        return f"{path} is just so already."
    allowed(change)
    _replace(workspace, asked.path, change, on_event)
    lines = len(change.new.splitlines())
    before = "" if old is None else f", before {len(old.splitlines()):,}"
    return f"{'Made' if old is None else 'Wrote'} {path}: {lines:,} {'line' if lines == 1 else 'lines'}{before}."


def edit(workspace: Workspace, asked: Edit, allowed: Allowed, on_event: Watch | None = None) -> str:
    """Replace one piece by another."""
    if not asked.old:
        raise ToolError("old is empty; give the text to replace, or use write for a whole file.")
    old, mark, path = _present(workspace, asked.path)
    if old is None:
        with workspace.locate(asked.path) as place:
            open_regular_file(place)  # which says what is wrong
    there = old or b""
    _refuse_masks(asked.old, there, "old")
    _refuse_masks(asked.new, there, "new")
    if asked.old == asked.new:
        raise ToolError("old and new are the same; there is nothing to change.")
    before, after = _like(_encoded(asked.old), there, bom=False), _like(_encoded(asked.new), there, bom=False)
    count = there.count(before)
    if not count:
        raise ToolError(f"{path} does not hold old exactly so. {nearest(asked.old, there)}")
    if count > 1 and not asked.all:
        places = lines_with(before, there)
        message = f"old is {count} times in {path}, on lines {places}; give more lines around it, or set all to true."
        raise ToolError(message)
    change = Change(path, there, there.replace(before, after), mark)
    allowed(change)
    _replace(workspace, asked.path, change, on_event)
    at = there.find(before)
    first = there.count(b"\n", 0, at) + 1
    shown = numbered(change.new, first - AROUND, first + after.count(b"\n") + AROUND)
    return f"Changed {path}{f' in {count} places' if count > 1 else ''}:\n{shown}"


def _refuse_masks(given: str, there: bytes, argument: str) -> None:
    strange = sorted(masks_in(given) - masks_in(there.decode("utf-8", "replace")))
    if not strange:
        return
    masks = ", ".join(strange)
    if argument == "old":
        raise ToolError(
            f"old holds {masks}, which stands for a value that you were not shown and that the file has instead. "
            "Choose a piece without it, such as the lines before or after."
        )
    raise ToolError(
        f"{argument} holds {masks}, which stands for a value that you were not shown; it would land in the file as it "
        "is. Change the lines around it with edit, read the value from the environment, or ask for it."
    )


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ToolError("The text holds half a character (a lone surrogate), which no file can hold.") from error


def _like(data: bytes, old: bytes, *, bom: bool = True) -> bytes:
    """New text with the line ends, and the byte order mark, of the file."""
    if b"\r\n" in old and b"\n" not in old.replace(b"\r\n", b"") and b"\r" not in data:
        data = data.replace(b"\n", b"\r\n")
    return BOM + data if bom and old.startswith(BOM) and not data.startswith(BOM) else data


def _present(workspace: Workspace, path: str) -> tuple[bytes | None, tuple[int, ...] | None, str]:
    """What is in a file now, how to recognise it, and its path; None when there is none."""
    try:
        with workspace.locate(path, writing=True) as place:
            if not place.name or _exists(place):
                return *_content(place), place.path
            return None, None, place.path
    except ToolError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        return None, None, "/".join(workspace.split_path(path))


def _exists(place: Location) -> bool:
    try:
        os.stat(place.name, dir_fd=place.dir_fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise make_tool_error(error, place.path) from error
    return True


def _content(place: Location) -> tuple[bytes, tuple[int, ...]]:
    with os.fdopen(open_regular_file(place), "rb") as file:
        found = os.fstat(file.fileno())
        if not found.st_mode & 0o222:
            raise ToolError(f"{place.path} is read-only; somebody does not want it changed.")
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ToolError(f"{place.path} has more than {MAX_BYTES // 1_000_000} MB; use the shell for it.")
    return data, _mark(found)


def _mark(found: os.stat_result) -> tuple[int, ...]:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _replace(workspace: Workspace, path: str, change: Change, on_event: Watch | None) -> None:
    """Put the new bytes in place in one step, unless somebody was faster."""
    with workspace.locate(path, writing=True, create=True) as place:
        try:
            mode = _check_unchanged(place, change)
            _put(place, change.new, mode)
        except OSError as error:
            raise make_tool_error(error, place.path) from error
        if on_event is not None:
            on_event(FileSeen(place.path, change.new, wrote=True, before=change.old))


def _check_unchanged(place: Location, change: Change) -> os.stat_result | None:
    try:
        now = os.stat(place.name, dir_fd=place.dir_fd, follow_symlinks=False)
    except FileNotFoundError:
        now = None
    if (None if now is None else _mark(now)) != change.mark or (now is not None and not stat.S_ISREG(now.st_mode)):
        raise ToolError(f"{place.path} was changed by somebody else just now; read it again.")
    return now


def _put(place: Location, data: bytes, like: os.stat_result | None) -> None:
    temporary = f".orihon-{secrets.token_hex(8)}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(temporary, flags, 0o666, dir_fd=place.dir_fd)  # the umask has its say about a new file
    try:
        try:
            if like is not None:
                with suppress(OSError):  # only root can give files away
                    os.fchown(fd, like.st_uid, like.st_gid)
                os.fchmod(fd, stat.S_IMODE(like.st_mode))
            write_all(fd, data)
            sync(fd)
        finally:
            os.close(fd)
        os.replace(temporary, place.name, src_dir_fd=place.dir_fd, dst_dir_fd=place.dir_fd)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=place.dir_fd)
        raise
