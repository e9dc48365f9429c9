"""Checkpoints as git keeps them: each is a commit without parents, so that one can be forgotten and the others stay.

The tree of a commit begins where the rules do (`Ground.top`), and the message says where in it the workspace is. The
message also names what was skipped, because a restore must not remove a file that was there and only not saved. HEAD
is the newest one, which the next is compared with.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NamedTuple, TypeVar, cast

from orihon.chat.shadow.git import EMPTY_TREE, Difference, Git, differences
from orihon.chat.shadow.listing import change_index
from orihon.chat.shadow.saving import Delta, Import, importing, read
from orihon.chat.shadow.values import Change, Status, Taken
from orihon.chat.shadow.worktree import WorkTree
from orihon.errors import Corrupt, NotFound

T = TypeVar("T")

REFS = "refs/checkpoints/"
LAST, NOW = "refs/heads/last", "refs/heads/now"
MAX_LABEL_CHARS = 200
_ID = re.compile(r"[0-9a-f]{40}")
_BELOW, _SKIPPED = "below: ", "skipped: "
_COMPARED = ("diff-tree", "-r", "-z", "--raw", "--no-renames", "--ignore-submodules=all")


class Checkpoint(NamedTuple):
    """One that is stored; `files` is the tree of the workspace, which is `tree` or in it."""

    commit: str
    tree: str
    files: str
    below: str
    skipped: frozenset[str]


class Checkpoints:
    """The checkpoints of one workspace."""

    def __init__(self, git: Git, files: WorkTree, apart: tuple[str, ...]) -> None:
        self.git, self.files, self.apart = git, files, apart

    def take(self, label: str, *, thorough: bool = False) -> Taken:
        """The workspace as a checkpoint; the last one again when nothing has changed since."""
        return self._mended(lambda: self._take(label, thorough=thorough))

    def _take(self, label: str, *, thorough: bool) -> Taken:
        last = self._last()
        with importing(self.git) as into:
            delta = self._read(into, last, thorough=thorough)
            skipped = tuple(sorted(delta.skipped, key=lambda one: one.path))
            if last is not None and self._is(last, delta):
                commit = last.commit
            else:
                commit = self._commit(into, LAST, last, delta, label)
                into.refer(f"{REFS}{commit}")
        change_index(self.git, delta.gone, delta.present)
        if last is None:
            return Taken(commit=commit, skipped=skipped)
        moved = last.below != self.git.ground.prefix
        changes = self.changes(last.files, self.find(commit).files) if moved else tuple(delta.changes)
        return Taken(commit=commit, changes=changes, skipped=skipped)

    def now(self) -> str:
        """The tree of the workspace as it is; the next checkpoint is still compared with the last one."""
        return self._mended(self._now)

    def _now(self) -> str:
        last = self._last()
        with importing(self.git) as into:
            delta = self._read(into, last, thorough=False)
            if last is not None and self._is(last, delta):
                return last.files
            commit = self._commit(into, NOW, last, delta, "now")
        return self.find(commit).files

    def _read(self, into: Import, last: Checkpoint | None, *, thorough: bool) -> Delta:
        if last is None or last.below != self.git.ground.prefix:
            self._lose_index()  # so that everything is listed
        return read(self.git, self.files, self.apart, into, thorough=thorough)

    def _mended(self, work: Callable[[], T]) -> T:
        """Do it; if git cannot, then without its index; if it still cannot, without a checkpoint to compare with."""
        for lose in (self._lose_index, self._lose_last):
            try:
                return work()
            except Corrupt:
                lose()
        return work()

    def _lose_index(self) -> None:
        self.git.index.unlink(missing_ok=True)

    def _lose_last(self) -> None:
        self.git.run("update-ref", "-d", LAST)

    def _is(self, last: Checkpoint, delta: Delta) -> bool:
        """Whether a new checkpoint would say the same as the last."""
        same_files = last.below == self.git.ground.prefix and not delta.changes and not delta.dropped
        return same_files and last.skipped == {one.path for one in delta.skipped}

    def _commit(self, into: Import, ref: str, last: Checkpoint | None, delta: Delta, label: str) -> str:
        below = self.git.ground.prefix
        base = last.tree if last is not None and last.below == below else ""
        return into.commit(ref, base, delta, _message(label, below, (one.path for one in delta.skipped)))

    def _last(self) -> Checkpoint | None:
        """The newest one; None when there is none, or when a crash took it."""
        found = self._found(LAST)
        if found is None:
            self._lose_last()
        return found

    def find(self, commit: str) -> Checkpoint:
        """One by its id."""
        found = self._found(commit) if isinstance(commit, str) and _ID.fullmatch(commit) else None
        if found is None:
            raise NotFound(f"There is no checkpoint {commit!a} of these files.", kind="checkpoint", id=str(commit))
        return found

    def _found(self, name: str) -> Checkpoint | None:
        about, _, text = self.git.run("cat-file", "--batch", given=name.encode() + b"\n").partition(b"\n")
        commit, _, kind = about.decode().partition(" ")
        if not kind.startswith("commit "):
            return None
        header, _, message = text.decode("utf-8", "replace").partition("\n\n")
        tree = header.split()[1]
        below = "".join(_values(message, _BELOW))
        return Checkpoint(commit, tree, self._inside(tree, below), below, frozenset(_values(message, _SKIPPED)))

    def _inside(self, tree: str, below: str) -> str:
        """The tree of a directory; one without files is not stored, and so empty."""
        if not below:
            return tree
        found = self.git.ask("rev-parse", "--quiet", "--verify", f"{tree}:{below[:-1]}")
        return found.decode().strip() if found else EMPTY_TREE

    def content(self, commit: str, path: str) -> bytes | None:
        """The bytes of a file, or where a link leads."""
        files = self.find(commit).files
        with suppress(ValueError):  # what cannot be a path is not there
            return self.git.ask("cat-file", "blob", f"{files}:{path}", no=128)
        return None

    def differences(self, old: str, new: str) -> list[Difference]:
        """What differs between two trees."""
        return differences(self.git.run(*_COMPARED, old, new))

    def changes(self, old: str, new: str) -> tuple[Change, ...]:
        """The same, for people."""
        return tuple(Change(cast("Status", one.status), one.path) for one in self.differences(old, new))

    def keep_only(self, commits: Iterable[str]) -> None:
        """Forget the others, and pack what is left."""
        kept = {self.find(commit).commit for commit in commits}
        listed = self.git.run("for-each-ref", "--format=%(refname) %(objectname)").decode()
        known = [line.split() for line in listed.splitlines()]
        forgotten = [ref for ref, commit in known if commit not in kept or ref == NOW]
        if LAST in forgotten:
            self._lose_index()  # it would keep the newest files
        lines = [f"update {REFS}{commit} {commit}\n" for commit in kept] + [f"delete {ref}\n" for ref in forgotten]
        self.git.run("update-ref", "--stdin", given="".join(lines).encode())
        self.git.run("pack-refs", "--all", "--prune")
        self.git.run("repack", "-a", "-d", "-q")
        self.git.run("prune", "--expire=now")


def _message(label: str, below: str, skipped: Iterable[str]) -> bytes:
    """A title for people, and below it what a restore must know, in ASCII."""
    title = " ".join(label.replace("\0", " ").split())[:MAX_LABEL_CHARS] or "checkpoint"
    lines = [title, "", *(f"{_BELOW}{json.dumps(path)}" for path in [below] if path)]
    lines += [f"{_SKIPPED}{json.dumps(path)}" for path in sorted(skipped)]
    return "\n".join(lines).encode("utf-8", "backslashreplace")


def _values(message: str, name: str) -> list[str]:
    _, _, listed = message.partition("\n\n")  # after the title, which may hold anything
    found = []
    for line in listed.split("\n"):
        if line.startswith(name):
            with suppress(ValueError):  # only somebody else can have written what is no JSON
                found.append(str(json.loads(line.removeprefix(name))))
    return found
