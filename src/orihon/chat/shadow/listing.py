"""What differs between the workspace and the last checkpoint, as git sees it.

Git compares times and sizes with those in its index, and so tells in milliseconds which of ten thousand files must be
looked at. The index is no truth of its own: a path that it may be wrong about is listed, and one that is listed is
read. So it can be old, or lost, and then only more is read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from typing import NamedTuple

from orihon.chat.shadow.git import Git, names
from orihon.chat.shadow.ground import RULES
from orihon.chat.shadow.values import Skipped

MAX_NESTED = 20  # repositories inside one another that are looked into
_PLACEHOLDER = ".orihon-looks-inside"
_NO_BYTES = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"  # of an empty file
_CLOSED = re.compile(rb"could not open directory '(.*)/': (.*)")
_LOOP = b"levels of symbolic links"
_STATUS = ("status", "--porcelain=v2", "-z", "--untracked-files=all", "--no-renames", "--ignore-submodules=all")
_IGNORED = ("ls-files", "-z", "--cached", "--ignored", "--exclude-standard")

Version = tuple[str, str]  # the mode and the id of a file in git
ABSENT: Version = ("000000", "0" * 40)
_OUT: Version = ("0", ABSENT[1])  # in the language of update-index


class Listing(NamedTuple):
    """Paths that may differ, each with what the last checkpoint has of it."""

    versions: dict[str, Version]
    unseen: set[str]  # of these, what the index does not have and the rules do not show
    closed: list[Skipped]  # directories that cannot be looked into


def look(git: Git) -> Listing:
    """List everything, also what is in repositories inside the workspace.

    Git looks only into those that it believes to have a file of; the placeholders for that are listed as removed.
    """
    for _ in range(MAX_NESTED):
        listing, nested = _look(git)
        if not nested:
            return listing
        change_index(git, (), {f"{path}{_PLACEHOLDER}": ("100644", _NO_BYTES) for path in nested})
    listing, nested = _look(git)
    listing.closed.extend(Skipped(path[:-1], "is a repository too deep inside others") for path in nested)
    return listing


def _look(git: Git) -> tuple[Listing, list[str]]:
    said, complained = git.run_aloud(*_STATUS, "--", ".")
    listing, nested = Listing({}, set(), []), []
    for line in names(said):
        if line[0] == "?":
            path = line[2:].removeprefix(git.ground.prefix)
            if path.endswith("/"):
                nested.append(path)
            else:
                listing.versions.setdefault(path, ABSENT)
                listing.unseen.discard(path)
        else:
            _, kind, _, mode, _, _, blob, _, path = line.split(" ", 8)
            path = path.removeprefix(git.ground.prefix)
            listing.versions[path] = mode, blob
            if kind[0] == "D":
                listing.unseen.add(path)
    if _LOOP in complained:
        listing.versions.update([*_behind_loops(git, listing.versions)])
    for found in filter(None, map(_CLOSED.search, complained.splitlines())):
        path = os.fsdecode(found[1]).removeprefix(git.ground.prefix)
        listing.closed.append(Skipped(path, f"cannot be looked into: {found[2].decode()}"))
    return listing, nested


def _behind_loops(git: Git, versions: dict[str, Version]) -> Iterator[tuple[str, Version]]:
    """What was below a directory that is now a link which leads to itself: git cannot tell that it is gone."""
    for line in names(git.run("ls-tree", "-r", "-z", "--full-tree", "HEAD")):
        about, _, path = line.partition("\t")
        mode, _, blob = about.split(" ")
        path = path.removeprefix(git.ground.prefix)
        above = (str(parent) for parent in PurePosixPath(path).parents)
        if path not in versions and any(versions.get(parent) == ABSENT for parent in above):
            yield path, (mode, blob)


def ignored(git: Git) -> set[str]:
    """The files in the index that the rules leave out by now."""
    return {*names(git.run(*_IGNORED))}


def is_rules(path: str) -> bool:
    """Whether a path is that of a file that says what is ignored."""
    return path.rpartition("/")[2] == RULES


def change_index(git: Git, gone: Iterable[str], present: dict[str, Version]) -> None:
    """Take paths out of the index, and put others in."""
    versions = dict.fromkeys(gone, _OUT) | present
    lines = [os.fsencode(f"{mode} {blob}\t{git.ground.prefix}{path}\0") for path, (mode, blob) in versions.items()]
    if lines:
        git.run("update-index", "-z", "--index-info", given=b"".join(lines))
