"""What may differ between the workspace and the last checkpoint, according to git's index.

Git compares file times and sizes with those in its index. This tells in milliseconds which of ten thousand files need
reading. The index is only a cache: a path that it may be wrong about is listed, and a listed path is read. An old or
lost index costs time, not correctness.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from typing import Literal, NamedTuple

import msgspec

from orihon.chat.workspace_checkpoints.git import ABSENT, Git, Version, split_names
from orihon.chat.workspace_checkpoints.root import RULES

MAX_NESTED = 20  # levels of repositories inside one another
_PLACEHOLDER = ".orihon-looks-inside"
_EMPTY_BLOB = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
_CLOSED = re.compile(rb"could not open directory '(.*)/': (.*)")
_LOOP = b"levels of symbolic links"
_STATUS = ("status", "--porcelain=v2", "-z", "--untracked-files=all", "--no-renames", "--ignore-submodules=all")
_IGNORED = ("ls-files", "-z", "--cached", "--ignored", "--exclude-standard")

_REMOVED: Version = ("0", ABSENT[1])  # what `update-index` expects for a removal
Status = Literal["A", "M", "D", "T"]


class FileChange(msgspec.Struct, frozen=True):
    """A changed file: added, modified (its bytes or its executable bit), deleted, or of another type.

    Paths are relative to the workspace. Bytes in them that are not UTF-8 are surrogates.
    """

    status: Status
    path: str


class SkippedFile(msgspec.Struct, frozen=True):
    """A file that was left alone. The reason completes a sentence that begins with the path."""

    path: str
    reason: str


class Candidates(NamedTuple):
    """Paths that may differ, each with its version in the last checkpoint."""

    versions: dict[str, Version]
    hidden: set[str]  # of these, the paths that are not in the index and that the rules ignore
    closed: list[SkippedFile]  # directories that cannot be opened


def list_candidates(git: Git) -> Candidates:
    """List all paths that may differ, including those in repositories inside the workspace.

    Git enters a nested repository only if the index has a file in it, so a placeholder is added for each of them. The
    placeholders are listed as deleted.
    """
    for _ in range(MAX_NESTED):
        candidates, nested = _read_status(git)
        if not nested:
            return candidates
        update_index(git, (), {f"{path}{_PLACEHOLDER}": ("100644", _EMPTY_BLOB) for path in nested})
    candidates, nested = _read_status(git)
    candidates.closed.extend(SkippedFile(path[:-1], "is a repository nested too deeply") for path in nested)
    return candidates


def _read_status(git: Git) -> tuple[Candidates, list[str]]:
    """Return the candidates and the nested repositories that git did not enter."""
    prefix, done = git.root.prefix, git.run(*_STATUS, "--", ".")
    versions, hidden, closed, nested = dict[str, Version](), set[str](), list[SkippedFile](), list[str]()
    for line in split_names(done.stdout):
        if line[0] == "?":
            path = line[2:].removeprefix(prefix)
            if path.endswith("/"):
                nested.append(path)
            else:
                versions.setdefault(path, ABSENT)
                hidden.discard(path)
        else:
            _, kind, _, mode, _, _, blob, _, path = line.split(" ", 8)
            path = path.removeprefix(prefix)
            versions[path] = mode, blob
            if kind[0] == "D":
                hidden.add(path)
    if _LOOP in done.stderr:
        versions.update([*_list_behind_loops(git, versions)])
    for match in filter(None, map(_CLOSED.search, done.stderr.splitlines())):
        path = os.fsdecode(match[1]).removeprefix(prefix)
        closed.append(SkippedFile(path, f"cannot be opened: {match[2].decode()}"))
    return Candidates(versions, hidden, closed), nested


def _list_behind_loops(git: Git, versions: dict[str, Version]) -> Iterator[tuple[str, Version]]:
    """List the files of a directory that became a link to itself; git does not report that they are gone."""
    for line in split_names(git.run("ls-tree", "-r", "-z", "--full-tree", "HEAD").stdout):
        columns, _, path = line.partition("\t")
        mode, _, blob = columns.split(" ")
        path = path.removeprefix(git.root.prefix)
        parents = (str(parent) for parent in PurePosixPath(path).parents)
        if path not in versions and any(versions.get(parent) == ABSENT for parent in parents):
            yield path, (mode, blob)


def list_ignored(git: Git) -> set[str]:
    """Return the files in the index that the ignore rules now exclude."""
    return {*split_names(git.run(*_IGNORED).stdout)}


def is_ignore_file(path: str) -> bool:
    """Return whether a path names a `.gitignore`."""
    return path.rpartition("/")[2] == RULES


def update_index(git: Git, removed: Iterable[str], versions: dict[str, Version]) -> None:
    """Remove paths from the index, and set the versions of others."""
    entries = dict.fromkeys(removed, _REMOVED) | versions
    lines = [os.fsencode(f"{mode} {blob}\t{git.root.prefix}{path}\0") for path, (mode, blob) in entries.items()]
    if lines:
        git.run("update-index", "-z", "--index-info", stdin=b"".join(lines))
