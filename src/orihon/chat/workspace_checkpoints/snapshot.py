"""Taking, finding and comparing checkpoints in the git repository.

Each checkpoint is a commit without parents, so one can be deleted while the others stay. Its tree begins where the
ignore rules do (`WorkspaceRoot.top`), and its message says where in the tree the workspace is. The message also names
the skipped files, because a restore must not remove a file that existed and was only not saved. HEAD is the newest
checkpoint, with which the next one is compared.

Git compares file times and sizes with those in its index. This tells in milliseconds which of ten thousand files need
reading. The index is only a cache: a path that it may be wrong about is listed, and a listed path is read. An old or
lost index costs time, not correctness.

Files are read here, not by git: no link is followed, no attribute changes a byte, and an unreadable file affects no
other. Git's fast-import stores the bytes, the trees and the commit, and moves the references when everything is on
disk.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import PurePosixPath
from typing import IO, Literal, NamedTuple, TypeVar, cast

import msgspec

from orihon.chat.workspace_checkpoints.git import (
    ABSENT,
    EMPTY_TREE,
    RULES,
    Git,
    TreeChange,
    Version,
    parse_tree_changes,
    split_names,
)
from orihon.chat.workspace_checkpoints.worktree import LINK, Content, WorkTree
from orihon.errors import Corrupt, NotFound

T = TypeVar("T")

REFS = "refs/checkpoints/"
LAST, NOW = "refs/heads/last", "refs/heads/now"
MAX_LABEL_CHARS = 200
_ID = re.compile(r"[0-9a-f]{40}")
_BELOW, _SKIPPED = "below: ", "skipped: "
_COMPARE = ("diff-tree", "-r", "-z", "--raw", "--no-renames", "--ignore-submodules=all")
_COMMITTER = "Orihon <orihon@localhost>"
_QUOTED = [bytes([byte]) if 32 <= byte < 127 and byte not in b'"\\' else b"\\%03o" % byte for byte in range(256)]  # noqa: PLR2004
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


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint that was taken, and the changes since the previous one; the first has none."""

    commit: str
    changes: tuple[FileChange, ...] = ()
    skipped: tuple[SkippedFile, ...] = ()


class FileCheckpoint(NamedTuple):
    """A stored checkpoint. `files` is the tree of the workspace, which is `tree` or inside it."""

    commit: str
    tree: str
    files: str
    below: str
    skipped: frozenset[str]


class Delta(NamedTuple):
    """The result of reading the files that may differ."""

    present: dict[str, Version]
    gone: set[str]  # deleted, or not to be saved
    dropped: set[str]  # of these, the files that the last checkpoint has and that still exist
    changes: list[FileChange]
    skipped: list[SkippedFile]


class FileCheckpoints:
    """The checkpoints of one workspace. The paths in `exclude` are never read."""

    def __init__(self, git: Git, files: WorkTree, exclude: tuple[str, ...]) -> None:
        self.git, self.files, self.exclude = git, files, exclude

    def take(self, label: str, *, check_all_rules: bool = False) -> Snapshot:
        """Save the workspace; return the last checkpoint if nothing has changed since."""
        return self._retry(lambda: self._take(label, check_all_rules=check_all_rules))

    def _take(self, label: str, *, check_all_rules: bool) -> Snapshot:
        commit, last, delta = self._save(LAST, label, check_all_rules=check_all_rules)
        skipped = tuple(sorted(delta.skipped, key=lambda file: file.path))
        if last is None:
            return Snapshot(commit=commit, skipped=skipped)
        moved = last.below != self.git.root.prefix
        changes = self.list_changes(last.files, self.find(commit).files) if moved else tuple(delta.changes)
        return Snapshot(commit=commit, changes=changes, skipped=skipped)

    def write_current_tree(self) -> str:
        """Return the tree of the workspace as it is now, without taking a checkpoint."""
        commit, last, _ = self._retry(lambda: self._save(NOW, "now"))
        return last.files if last is not None and last.commit == commit else self.find(commit).files

    def _save(self, ref: str, label: str, *, check_all_rules: bool = False) -> tuple[str, FileCheckpoint | None, Delta]:
        """Return the commit of the workspace as it is now, the last checkpoint, and what differs between the two."""
        last, below = self._find_last(), self.git.root.prefix
        with _start_import(self.git) as importer:
            delta = self._read_delta(importer, last, check_all_rules=check_all_rules)
            if last is not None and self._is_same(last, delta):
                commit = last.commit
            else:
                base = last.tree if last is not None and last.below == below else ""
                message = _format_message(label, below, (file.path for file in delta.skipped))
                commit = importer.commit(ref, base, delta, message)
                if ref == LAST:
                    importer.set_reference(f"{REFS}{commit}")
        if ref == LAST:
            update_index(self.git, delta.gone, delta.present)
        return commit, last, delta

    def _read_delta(self, importer: _Importer, last: FileCheckpoint | None, *, check_all_rules: bool) -> Delta:
        """Read the files that may differ from the last checkpoint, and store their bytes.

        A saved file that is ignored by now is dropped if a `.gitignore` has visibly changed. With `check_all_rules`,
        the rules are applied to every file.
        """
        if last is None or last.below != self.git.root.prefix:
            self._delete_index()  # then git lists every file
        candidates = list_candidates(self.git)
        check_all_rules = check_all_rules or any(map(is_ignore_file, candidates.versions))
        ignored = list_ignored(self.git) if check_all_rules else set[str]()
        delta = Delta({}, {*ignored}, {*ignored}, [], [*candidates.closed])
        for path, old in candidates.versions.items():
            if path in ignored or is_below(path, self.exclude):
                continue
            content = self.files.read(path)
            if isinstance(content, Content) and path not in candidates.hidden:
                new = content.version
                delta.present[path] = new
                if new != old:
                    importer.add_blob(content.data)
                    delta.changes.append(FileChange(_get_status(old, new), path))
                continue
            delta.gone.add(path)
            if isinstance(content, str):
                delta.skipped.append(SkippedFile(path, content))
            if old != ABSENT and content is None:
                delta.changes.append(FileChange("D", path))
            elif old != ABSENT:
                delta.dropped.add(path)
        return delta

    def _retry(self, work: Callable[[], T]) -> T:
        """Do the work; if git fails, again without its index, and then without a last checkpoint to compare with."""
        for repair in (self._delete_index, self._delete_last):
            try:
                return work()
            except Corrupt:
                repair()
        return work()

    def _delete_index(self) -> None:
        self.git.index.unlink(missing_ok=True)

    def _delete_last(self) -> None:
        self.git.run("update-ref", "-d", LAST)

    def _is_same(self, last: FileCheckpoint, delta: Delta) -> bool:
        """Return whether a new checkpoint would equal the last one."""
        same_files = last.below == self.git.root.prefix and not delta.changes and not delta.dropped
        return same_files and last.skipped == {file.path for file in delta.skipped}

    def _find_last(self) -> FileCheckpoint | None:
        """Return the newest checkpoint; None if there is none, or if a crash destroyed it."""
        last = self._find(LAST)
        if last is None:
            self._delete_last()
        return last

    def find(self, commit: str) -> FileCheckpoint:
        """Return a checkpoint by its id; raise NotFound if there is none."""
        checkpoint = self._find(commit) if isinstance(commit, str) and _ID.fullmatch(commit) else None
        if checkpoint is None:
            raise NotFound(f"There is no checkpoint {commit!a} of these files.", kind="checkpoint", id=str(commit))
        return checkpoint

    def _find(self, name: str) -> FileCheckpoint | None:
        header, _, text = self.git.run("cat-file", "--batch", stdin=name.encode() + b"\n").stdout.partition(b"\n")
        commit, _, kind = header.decode().partition(" ")
        if not kind.startswith("commit "):
            return None
        fields, _, message = text.decode("utf-8", "replace").partition("\n\n")
        tree = fields.split()[1]
        below = "".join(_parse_values(message, _BELOW))
        skipped = frozenset(_parse_values(message, _SKIPPED))
        return FileCheckpoint(commit, tree, self._find_subtree(tree, below), below, skipped)

    def _find_subtree(self, tree: str, below: str) -> str:
        """Return the tree of a directory; git does not store one without files."""
        if not below:
            return tree
        done = self.git.run("rev-parse", "--quiet", "--verify", f"{tree}:{below[:-1]}", accept=(0, 1))
        return EMPTY_TREE if done.returncode else done.stdout.decode().strip()

    def read_file(self, commit: str, path: str) -> bytes | None:
        """Return the bytes of a file, or the target of a link; None if the checkpoint has neither."""
        files = self.find(commit).files
        with suppress(ValueError):  # the text cannot be a path
            done = self.git.run("cat-file", "blob", f"{files}:{path}", accept=(0, 128))
            return None if done.returncode else done.stdout
        return None

    def compare(self, old: str, new: str) -> list[TreeChange]:
        """Return what differs between two trees."""
        return parse_tree_changes(self.git.run(*_COMPARE, old, new).stdout)

    def list_changes(self, old: str, new: str) -> tuple[FileChange, ...]:
        """Return the changed files between two trees."""
        return tuple(FileChange(cast("Status", change.status), change.path) for change in self.compare(old, new))

    def keep_only(self, commits: Iterable[str]) -> None:
        """Delete all other checkpoints, and pack the rest."""
        kept = {self.find(commit).commit for commit in commits}
        listing = self.git.run("for-each-ref", "--format=%(refname) %(objectname)").stdout.decode()
        references = [line.split() for line in listing.splitlines()]
        deleted = [ref for ref, commit in references if commit not in kept or ref == NOW]
        if LAST in deleted:
            self._delete_index()  # it would keep the newest blobs alive
        lines = [f"update {REFS}{commit} {commit}\n" for commit in kept] + [f"delete {ref}\n" for ref in deleted]
        self.git.run("update-ref", "--stdin", stdin="".join(lines).encode())
        self.git.run("pack-refs", "--all", "--prune")
        self.git.run("repack", "-a", "-d", "-q")
        self.git.run("prune", "--expire=now")


@contextmanager
def _start_import(git: Git) -> Iterator[_Importer]:
    """Store objects and references when the block is left normally; store nothing otherwise."""
    with ExitStack() as stack:
        importer = _Importer(git, stack)
        yield importer
        importer.finish()


class _Importer:
    """One run of fast-import, started when the first object is stored."""

    def __init__(self, git: Git, stack: ExitStack) -> None:
        self._git, self._stack = git, stack
        self._pipes: tuple[IO[bytes], IO[bytes]] | None = None

    def add_blob(self, data: bytes) -> None:
        self._send(b"blob\ndata %d\n" % len(data), data, b"\n")

    def commit(self, ref: str, base: str, delta: Delta, message: bytes) -> str:
        """Store a commit of a base tree with changes, and return its id."""
        prefix = os.fsencode(self._git.root.prefix)
        header = f"commit {ref}\nmark :1\ncommitter {_COMMITTER} {int(time.time())} +0000\ndata {len(message)}\n"
        start = f'M 040000 {base} ""\n' if base else ""
        removed = [b"D %s\n" % _quote(prefix, path) for path in delta.gone]
        present = [
            b"M %s %s %s\n" % (mode.encode(), blob.encode(), _quote(prefix, path))
            for path, (mode, blob) in delta.present.items()
        ]
        stdin, stdout = self._send(
            header.encode(), message, b"\n", start.encode(), *removed, *present, b"\nget-mark :1\n"
        )
        stdin.flush()
        return stdout.readline().decode().strip()

    def set_reference(self, ref: str) -> None:
        """Make a reference point to the commit."""
        self._send(f"reset {ref}\nfrom :1\n\n".encode())

    def finish(self) -> None:
        if self._pipes is not None:
            self._send(b"done\n")

    def _send(self, *parts: bytes) -> tuple[IO[bytes], IO[bytes]]:
        if self._pipes is None:
            command = ("fast-import", "--quiet", "--done", "--force", "--depth=0")
            self._pipes = self._stack.enter_context(self._git.pipe(*command))
        self._pipes[0].writelines(parts)
        return self._pipes


def is_below(path: str, directories: Iterable[str]) -> bool:
    """Return whether a path is one of these paths, or inside one of them."""
    return any(path == directory or path.startswith(f"{directory}/") for directory in directories)


def _get_status(old: Version, new: Version) -> Status:
    if old == ABSENT:
        return "A"
    return "T" if (old[0] == LINK) != (new[0] == LINK) else "M"


def _quote(prefix: bytes, path: str) -> bytes:
    """Quote a path for fast-import."""
    return b'"%s"' % b"".join(_QUOTED[byte] for byte in prefix + os.fsencode(path))


def _format_message(label: str, below: str, skipped: Iterable[str]) -> bytes:
    """Return a commit message: a title, and in ASCII what a restore needs."""
    title = " ".join(label.replace("\0", " ").split())[:MAX_LABEL_CHARS] or "checkpoint"
    lines = [title, "", *(f"{_BELOW}{json.dumps(path)}" for path in [below] if path)]
    lines += [f"{_SKIPPED}{json.dumps(path)}" for path in sorted(skipped)]
    return "\n".join(lines).encode("utf-8", "backslashreplace")


def _parse_values(message: str, name: str) -> list[str]:
    """Return the values of one name in a commit message; lines that are not JSON are forged and left out."""
    _, _, body = message.partition("\n\n")  # the title may hold anything
    values = []
    for line in body.split("\n"):
        if line.startswith(name):
            with suppress(ValueError):
                values.append(str(json.loads(line.removeprefix(name))))
    return values


# what may differ, according to the index


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
