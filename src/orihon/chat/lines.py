"""The file line tracker: which files the agent knows, who changed how many of their lines, and what changed under it.

The agent knows a file as it last read or wrote it, by a hash of its content. Whoever asks with `changed` hears, once,
which of these files are different now and how, so that the agent can be told before it relies on them. A file is
read only if it does not look the same any more, so an edit that leaves the length alone is found as well.

The contents themselves are kept in memory up to a bound. Beyond it, and after a resume, they are asked from `before`,
which checkpoints can answer. Where nobody knows, the agent is told that the file has changed, without the difference.

    tracker = FileLineTracker(workspace)
    with Toolbox(place, on_event=tracker.watch) as box: …
    text = told(tracker.changed(), "en")  # for the agent, before its next turn
    save(task, tracker)  # and after a resume: load(task, tracker)
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from orihon.agent.tools.diff import Difference, compute_diff, count_lines
from orihon.agent.tools.events import MAX_BYTES, FileSeen, ProgramRan
from orihon.agent.tools.workspace import Workspace
from orihon.chat.changes import By, Changed
from orihon.chat.finding import opened
from orihon.coerce import decode_json
from orihon.errors import Corrupt, NotFound, ToolError
from orihon.records import Blob
from orihon.task.task import Task

MAX_FILES = 1000  # that are tracked; the one that was left alone longest goes first
KEPT_BYTES = 8_000_000  # of contents, all together
KEPT_FILE_BYTES = 1_000_000
NOTE = "file_line_tracker"

GONE = ""  # the hash of a file that is not there

Before = Callable[[str, str], bytes | None]  # the content of a path that has this SHA-256, if somebody has it

_NAMES = {
    "lines_at_previous_write": "prev_fswrite_lines",
    "lines_before_write": "before_fswrite_lines",
    "lines_after_write": "after_fswrite_lines",
}


class FileLines(msgspec.Struct, frozen=True, kw_only=True, rename=_NAMES):
    """One file: its lines around the last write, whose lines came and went, and what the agent knows of it."""

    lines_at_previous_write: int = 0
    lines_before_write: int = 0
    lines_after_write: int = 0
    lines_added_by_agent: int = 0
    lines_removed_by_agent: int = 0
    lines_added_by_user: int = 0
    lines_removed_by_user: int = 0
    is_first_write: bool = True  # the agent has not written it yet
    sha256: str = GONE  # of what the agent last saw or wrote, or was told
    lines: int = 0  # when it was last looked at


class _Found(NamedTuple):
    """A version on disk that the agent does not know, and what to tell of it."""

    sha256: str
    changed: Changed


class FileLineTracker:
    """The files that the agent of one conversation knows; it may be told of them by several threads."""

    def __init__(self, workspace: Workspace, *, before: Before | None = None) -> None:
        self.workspace = workspace
        self._ask = before or (lambda _path, _sha256: None)
        self._files: OrderedDict[str, FileLines] = OrderedDict()
        self._marks: dict[str, tuple[int, ...]] = {}  # how a file looks that is what the agent knows
        self._found: dict[str, _Found] = {}  # versions on disk that the agent does not know
        self._untold: dict[str, Changed] = {}  # what the agent wrote over without knowing it
        self._contents = _Contents()
        self._lock = threading.RLock()

    @property
    def files(self) -> dict[str, FileLines]:
        """What is known of each file."""
        with self._lock:
            return dict(self._files)

    # what the agent does

    def watch(self, heard: FileSeen | ProgramRan) -> None:
        """What a `Toolbox` tells those who watch it."""
        if isinstance(heard, ProgramRan):
            self.look("agent" if heard.is_over else "user")
        elif heard.wrote:
            self.wrote(heard.path, heard.before, heard.content)
        else:
            self.saw(heard.path, heard.content)

    def saw(self, path: str, data: bytes) -> None:
        """The agent has read a file."""
        with self._lock:
            self._notice(path, data, "user")
            self._untold.pop(path, None)
            self._know(path, data)

    def wrote(self, path: str, before: bytes | None, after: bytes) -> None:
        """The agent has written a file; `before` is None for one that it has made."""
        with self._lock:
            known = self._files.get(path)
            previous = known.lines_after_write if known and not known.is_first_write else count_lines(before or b"")
            self._notice(path, before, "user")
            if path in self._found:
                self._untold[path] = self._found[path].changed
            made = compute_diff(before or b"", after)
            entry = self._files.get(path, FileLines())
            self._files[path] = msgspec.structs.replace(
                entry,
                lines_at_previous_write=previous,
                lines_before_write=count_lines(before or b""),
                lines_after_write=count_lines(after),
                lines_added_by_agent=entry.lines_added_by_agent + made.added,
                lines_removed_by_agent=entry.lines_removed_by_agent + made.removed,
                is_first_write=False,
            )
            self._know(path, after)

    # what else happens

    def changed(self) -> list[Changed]:
        """The files that are not what the agent knows, each once: whoever hears of them tells the agent."""
        with self._lock:
            self.look("user")
            changes = [*self._untold.values(), *(self._found[path].changed for path in sorted(self._found))]
            for path, found in self._found.items():
                self._files[path] = msgspec.structs.replace(self._files[path], sha256=found.sha256)
            self._untold, self._found = {}, {}
            return changes

    def look(self, by: By) -> None:
        """Notice what is different since the last look. What a command of the agent's may have done counts as its."""
        with self._lock:
            for path in reversed(list(self._files)):  # the contents of the newest are the last to be let go
                self._look(path, by)

    def _look(self, path: str, by: By) -> None:
        """Compare a file with what is known of it: by its looks, and if these differ by its content."""
        try:
            with opened(path, self.workspace) as file:
                if file.mark and file.mark == self._marks.get(path):
                    return
                data, mark = file.read(MAX_BYTES), file.mark
        except ToolError:
            data, mark = None, ()
        self._notice(path, data, by)
        if path not in self._found:
            self._marks[path] = mark

    def _notice(self, path: str, data: bytes | None, by: By) -> None:
        """A version that is on disk: whose lines it has, and whether the agent knows it."""
        entry, sha256 = self._files.get(path), _hash(data)
        if entry is None:
            return
        last = self._found[path].sha256 if path in self._found else entry.sha256
        if sha256 == last:
            return
        self._count(path, entry, self._difference(path, last, data), data or b"", by)
        self._marks.pop(path, None)
        self._found.pop(path, None)
        if sha256 != entry.sha256:
            made = self._difference(path, entry.sha256, data)
            self._found[path] = _Found(sha256, Changed(path=path, by=by, is_gone=data is None, difference=made))
        self._contents.keep(sha256, data)

    def _count(self, path: str, entry: FileLines, made: Difference | None, data: bytes, by: By) -> None:
        """Whose lines came and went; where one version is not known, as far as the lengths say."""
        lines = count_lines(data)
        added = made.added if made else max(0, lines - entry.lines)
        removed = made.removed if made else max(0, entry.lines - lines)
        counts = {f"lines_added_by_{by}": added, f"lines_removed_by_{by}": removed}
        counts = {name: getattr(entry, name) + count for name, count in counts.items()}
        self._files[path] = msgspec.structs.replace(entry, lines=lines, **counts)

    def _know(self, path: str, data: bytes) -> None:
        entry = self._files.get(path, FileLines())
        self._files[path] = msgspec.structs.replace(entry, sha256=_hash(data), lines=count_lines(data))
        self._files.move_to_end(path)
        self._forget(path)
        self._contents.keep(_hash(data), data)
        while len(self._files) > MAX_FILES:
            self._forget(self._files.popitem(last=False)[0])

    def _forget(self, path: str) -> None:
        """What was found on disk is known now, or nobody asks for it any more."""
        self._marks.pop(path, None)
        self._found.pop(path, None)

    def _difference(self, path: str, sha256: str, data: bytes | None) -> Difference | None:
        before = self._content(path, sha256)
        return None if before is None or data is None else compute_diff(before, data)

    def _content(self, path: str, sha256: str) -> bytes | None:
        if sha256 == GONE:
            return b""
        kept = self._contents.get(sha256)
        if kept is None:
            kept = self._ask(path, sha256)
        return kept if kept is not None and _hash(kept) == sha256 else None

    # as plain data

    def data(self) -> dict[str, dict[str, Any]]:
        """What a document or a note keeps: the files, oldest first."""
        with self._lock:
            return {path: msgspec.to_builtins(entry) for path, entry in self._files.items()}

    def restore(self, data: Any) -> None:
        """Go on from what was kept, instead of what is known now; what makes no sense there is left out."""
        with self._lock:
            self._files = OrderedDict(list(_entries(data))[-MAX_FILES:])
            self._marks, self._found, self._untold = {}, {}, {}


class _Contents:
    """Contents by their hashes, the newest ones up to a bound."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._size = 0

    def keep(self, sha256: str, data: bytes | None) -> None:
        if data is None or len(data) > KEPT_FILE_BYTES:
            return
        if sha256 not in self._kept:
            self._kept[sha256] = data
            self._size += len(data)
        self._kept.move_to_end(sha256)
        while self._size > KEPT_BYTES:
            self._size -= len(self._kept.popitem(last=False)[1])

    def get(self, sha256: str) -> bytes | None:
        return self._kept.get(sha256)


def _hash(data: bytes | None) -> str:
    return GONE if data is None else hashlib.sha256(data).hexdigest()


def _entries(data: Any) -> Iterator[tuple[str, FileLines]]:
    for path, value in data.items() if isinstance(data, Mapping) else ():
        try:
            yield str(path), msgspec.convert(value, FileLines)
        except msgspec.ValidationError:
            continue


def save(task: Task, tracker: FileLineTracker) -> None:
    """Store what is tracked, if it has changed; a tangent and a checkpoint bring it back as they bring back notes."""
    keep(task, tracker.data())


def keep(task: Task, tracked: Mapping[str, Any]) -> None:
    """Store such data, but for paths that hold a secret."""
    files = {path: entry for path, entry in tracked.items() if task.sanitiser.text(path) == path}
    data = msgspec.json.encode(files)
    blob = {"sha256": hashlib.sha256(data).hexdigest(), "size_bytes": len(data)}
    with task.lock:
        if task.history.view.state.notes.get(NOTE) != blob:
            task.lease.put(data)
            task.event("note", **{NOTE: blob})


def load(task: Task, tracker: FileLineTracker) -> None:
    """Go on with what was stored; with nothing, when there is nothing or it is lost."""
    found: Any = {}
    try:
        blob = msgspec.convert(task.history.view.state.notes.get(NOTE), Blob)
        found = decode_json(task.history.load(blob))
    except (ValueError, NotFound, Corrupt) as error:
        task.log.debug("No file line tracker is stored: %s", error)
    tracker.restore(found)
