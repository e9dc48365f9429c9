"""Write a file or replace a piece of it: completely or not at all, keeping its mode, line ends and byte order mark.

A mask such as `[EMAIL]` stands for a value that the model was not shown. It is never written into a file that does not
contain that mask. `.git` is not written, because git runs programs that are named there.
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

from orihon.agent.tools.fuzzy_match import list_lines_with, number_lines, suggest_piece
from orihon.agent.tools.workspace import FileSeen, Location, OnEvent, Workspace, make_tool_error, open_regular_file
from orihon.errors import ToolError
from orihon.redaction import masks_in
from orihon.stores.files import sync, write_all

MAX_BYTES = 20_000_000  # of a file that is changed in memory
CONTEXT = 3  # lines shown before and after a change
BOM = b"\xef\xbb\xbf"


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
