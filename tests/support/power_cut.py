"""Simulate a power cut: record the operations on a directory, and produce the states that a cut may leave.

    with Recorder(path) as recorder:                 # use a store below `path`; note promises with recorder.mark(...)
        ...
    disk = Disk(recorder.operations[:count])         # the power fails after this many operations
    disk.write_to(target, random.Random(seed))       # one of the possible states afterwards

Bytes that were not synced may be present, missing, torn at any byte, zeros, or present without the bytes before them;
where they overwrite other bytes, any sector may hold the old bytes. Names that were not synced (created, removed,
renamed) may be present or missing; a rename leaves the old name or the new one. Synced data does not change. Files of
SQLite are left out, because its calls cannot be recorded.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any, Literal, Self

import msgspec

from support.faults import Faults

BLOCK, SECTOR = 4096, 512
Kind = Literal["file", "directory"]


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """An operation on the bytes of `node`, or on a name in the directory `within`."""

    verb: Literal["make", "remove", "link", "rename", "write", "truncate", "sync", "mark"]
    node: int = 0
    within: int = 0
    name: str = ""
    to: int = 0  # for a rename or a link, the directory of the new name
    new_name: str = ""
    kind: Kind = "file"
    offset: int = 0
    data: bytes = b""


class Recorder:
    """Records what Python code does to the files below a directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.operations: list[Operation] = []
        self._nodes: dict[int, int] = {root.stat().st_ino: 0}
        self._count = 0
        self._was_there = False
        self._end = 0
        self._faults = Faults(watch=self._before, done=self._after)

    def __enter__(self) -> Self:
        self._faults.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._faults.__exit__()

    def mark(self, text: str) -> None:
        """Record a promise made at this moment."""
        self._add(verb="mark", data=text.encode())

    def _add(self, **fields: Any) -> None:
        self.operations.append(Operation(**fields))

    def _before(self, name: str, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Note what the call changes: whether the name exists, and where a write goes."""
        if name == "open":
            self._was_there = self._stat(args[0], named.get("dir_fd")) is not None
        elif name == "write":
            appends = _is_appending(args[0])
            self._end = os.fstat(args[0]).st_size if appends else os.lseek(args[0], 0, os.SEEK_CUR)
        elif name in {"link", "rename", "replace"}:
            self._end = os.stat(args[0], dir_fd=named.get("src_dir_fd"), follow_symlinks=False).st_ino

    def _after(self, name: str, args: tuple[Any, ...], named: dict[str, Any], result: Any) -> None:
        match name:
            case "write":
                self._add(verb="write", node=self._node(args[0]), offset=self._end, data=bytes(args[1])[:result])
            case "pwrite":
                self._add(verb="write", node=self._node(args[0]), offset=args[2], data=bytes(args[1])[:result])
            case "ftruncate":
                self._add(verb="truncate", node=self._node(args[0]), offset=args[1])
            case "fsync":
                self._add(verb="sync", node=self._node(args[0]))
            case "open":
                self._opened(args, named, result)
            case "mkdir":
                inode = os.stat(args[0], dir_fd=named.get("dir_fd")).st_ino
                self._made(inode, args[0], named.get("dir_fd"), "directory")
            case "unlink" | "rmdir":
                within, entry = self._place(args[0], named.get("dir_fd"))
                self._add(verb="remove", within=within, name=entry)
            case "link" | "rename" | "replace":
                within, entry = self._place(args[0], named.get("src_dir_fd"))
                to, new_name = self._place(args[1], named.get("dst_dir_fd"))
                node = self._nodes[self._end]
                verb = "link" if name == "link" else "rename"
                self._add(verb=verb, within=within, name=entry, to=to, new_name=new_name, node=node)

    def _opened(self, args: tuple[Any, ...], named: dict[str, Any], fd: int) -> None:
        if not self._was_there:
            self._made(os.fstat(fd).st_ino, args[0], named.get("dir_fd"), "file")
        elif args[1] & os.O_TRUNC:
            self._add(verb="truncate", node=self._node(fd), offset=0)

    def _made(self, inode: int, path: Any, dir_fd: int | None, kind: Kind) -> None:
        self._count += 1
        self._nodes[inode] = self._count
        within, name = self._place(path, dir_fd)
        self._add(verb="make", node=self._count, within=within, name=name, kind=kind)

    def _node(self, fd: int) -> int:
        return self._nodes.get(os.fstat(fd).st_ino, -1)

    def _place(self, path: Any, dir_fd: int | None) -> tuple[int, str]:
        parent, name = os.path.split(os.fspath(path))
        return self._nodes.get(os.stat(parent or ".", dir_fd=dir_fd).st_ino, -1), name

    def _stat(self, path: Any, dir_fd: int | None) -> os.stat_result | None:
        try:
            return os.stat(path, dir_fd=dir_fd, follow_symlinks=False)
        except FileNotFoundError:
            return None


def _is_appending(fd: int) -> bool:
    import fcntl  # noqa: PLC0415 - not on every system

    return bool(fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_APPEND)


class Disk:
    """The durable state after some operations, and the operations that are not durable yet."""

    def __init__(self, operations: list[Operation]) -> None:
        self.marks: list[str] = []
        self._bytes: dict[int, bytes] = {}
        self._writes: dict[int, list[Operation]] = {}
        self._names: dict[int, dict[str, int]] = {0: {}}
        self._changes: list[Operation] = []
        for operation in operations:
            self.apply(operation)

    def apply(self, operation: Operation) -> None:
        """Apply one more operation."""
        node = operation.node
        match operation.verb:
            case "mark":
                self.marks.append(operation.data.decode())
            case "write" | "truncate":
                self._writes.setdefault(node, []).append(operation)
            case "sync" if node in self._names:
                self._sync_names(node)
            case "sync":
                self._bytes[node] = _changed(self._bytes.get(node, b""), self._writes.pop(node, []))
            case _:
                self._changes.append(operation)
                if operation.verb == "make" and operation.kind == "directory":
                    self._names[node] = {}
                elif operation.verb == "make":
                    self._bytes[node] = b""

    def _sync_names(self, node: int) -> None:
        """Make the names of one directory durable. A rename is durable with its target directory."""
        safe = [change for change in self._changes if (change.to if change.new_name else change.within) == node]
        for change in safe:
            _rename(self._names, change)
            if change.verb == "rename":  # the old name is gone with it
                self._changes = [old for old in self._changes if old.verb != "make" or old.node != change.node]
        self._changes = [change for change in self._changes if change not in safe]

    def write_to(self, target: Path, luck: random.Random) -> None:
        """Write one of the possible states to an empty directory."""
        names = {node: dict(entries) for node, entries in self._names.items()}
        chance = luck.choice((0.0, 0.5, 1.0))
        for change in self._changes:
            if luck.random() < chance:
                _rename(names, change)
        self._write_directory(0, names, target, luck)

    def _write_directory(self, node: int, names: dict[int, dict[str, int]], target: Path, luck: random.Random) -> None:
        for name, child in names[node].items():
            path = target / name
            if child in names:
                path.mkdir(mode=0o700)
                self._write_directory(child, names, path, luck)
            elif not name.startswith("tasks.db"):
                path.touch(mode=0o600)
                path.write_bytes(self._after_the_cut(child, luck))

    def _after_the_cut(self, node: int, luck: random.Random) -> bytes:
        safe, pending = self._bytes[node], self._writes.get(node, [])
        whole = _changed(safe, pending)
        count = luck.randrange(len(pending) + 1)
        match luck.choice(("all", "nothing", "torn", "out of order", "zeros")):
            case "nothing":
                return safe
            case "torn":
                done = _changed(safe, pending[:count])
                rest = _changed(done, pending[count : count + 1])
                if len(rest) > len(done):
                    return rest[: luck.randint(len(done), len(rest))]
                sectors = range(0, len(done), SECTOR)  # a disk overwrites sector by sector
                return b"".join(luck.choice((done, rest))[start : start + SECTOR] for start in sectors)
            case "out of order":
                return _changed(safe, [write for write in pending if luck.random() < 0.5])
            case "zeros":
                start = len(_changed(safe, pending[:count]))
                start = max(len(safe), luck.choice((start, start // BLOCK * BLOCK)))
                return whole[:start].ljust(len(whole), b"\0")
        return whole


def _changed(data: bytes, writes: list[Operation]) -> bytes:
    for write in writes:
        data = data[: write.offset].ljust(write.offset, b"\0") + (
            write.data + data[write.offset + len(write.data) :] if write.verb == "write" else b""
        )
    return data


def _rename(names: dict[int, dict[str, int]], change: Operation) -> None:
    """Apply a change to the names. Removing a missing name does nothing."""
    entries = names[change.within]
    if change.verb == "make":
        entries[change.name] = change.node
        return
    if change.verb == "remove" or (change.verb == "rename" and entries.get(change.name) == change.node):
        entries.pop(change.name, None)
    if change.new_name:
        names[change.to][change.new_name] = change.node
