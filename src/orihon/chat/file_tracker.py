"""The file line tracker: which files the agent knows, who changed how many lines, and which files changed without it.

The agent knows a file as it last read or wrote it, by a hash of its content. `collect_changes` returns the known files
that differ now, each change once, to tell the agent. A file is read only if it looks changed; an edit of equal length
is found too.

Contents are kept in memory up to a limit. Beyond it, and after a resume, `find_content` is asked, which checkpoints can
answer. If an old content is unknown, the change is reported without a diff.

    tracker = FileLineTracker(workspace)
    with Toolbox(place, on_event=tracker.handle_event) as box: …
    text = describe_changes(tracker.collect_changes(), Texts("en"))  # for the agent, before its next turn
    save(conversation, tracker.export())  # and after a resume: load(conversation, tracker)
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, NamedTuple

import msgspec

from orihon.agent.tools.diff import Difference, compute_diff, count_lines
from orihon.agent.tools.workspace import MAX_BYTES, FileSeen, ProgramRan, Workspace
from orihon.agent.workspace_files import open_path
from orihon.chat.conversation import Conversation
from orihon.chat.i18n import Texts
from orihon.context.sticky import shown_path
from orihon.errors import ToolError

MAX_FILES = 1000  # the file that was not used for the longest time is dropped first
MAX_CONTENT_BYTES = 8_000_000  # of all contents in memory
MAX_FILE_BYTES = 1_000_000  # of one content in memory
MAX_TEXT_CHARS = 8000  # of the text for the agent
MAX_NAMES = 20  # in the text for the agent, of files whose diffs do not fit
NOTE = "file_line_tracker"
MISSING = ""  # the hash of a file that does not exist

Author = Literal["agent", "user"]
FindContent = Callable[[str], bytes | None]  # by path; a content with another hash is ignored

_SPECIFIED_NAMES = {
    "lines_at_previous_write": "prev_fswrite_lines",
    "lines_before_write": "before_fswrite_lines",
    "lines_after_write": "after_fswrite_lines",
}


class FileLines(msgspec.Struct, frozen=True, kw_only=True, rename=_SPECIFIED_NAMES):
    """One file: its lines around the last write, the lines added and removed by each side, and its known content."""

    lines_at_previous_write: int = 0
    lines_before_write: int = 0
    lines_after_write: int = 0
    lines_added_by_agent: int = 0
    lines_removed_by_agent: int = 0
    lines_added_by_user: int = 0
    lines_removed_by_user: int = 0
    is_first_write: bool = True  # the agent has not written it yet
    sha256: str = MISSING  # of the content that the agent knows
    lines: int = 0  # at the last check


class TrackedChange(msgspec.Struct, frozen=True, kw_only=True):
    """A file that differs from what the agent knows."""

    path: str
    by: Author  # "agent" for changes during one of its commands
    is_missing: bool = False
    difference: Difference | None = None  # None if one of the two contents is unknown


class _Unknown(NamedTuple):
    """A version on disk that the agent does not know."""

    sha256: str
    change: TrackedChange


class FileLineTracker:
    """The files that the agent of one conversation knows. Its methods are thread-safe."""

    def __init__(self, workspace: Workspace, *, find_content: FindContent | None = None) -> None:
        self.workspace = workspace
        self._find_content = find_content or (lambda _: None)
        self._files: OrderedDict[str, FileLines] = OrderedDict()
        self._marks: dict[str, tuple[int, ...]] = {}  # of files whose content the agent knows
        self._unknown: dict[str, _Unknown] = {}
        self._overwritten: dict[str, TrackedChange] = {}  # changes that the agent overwrote without knowing them
        self._contents: OrderedDict[str, bytes] = OrderedDict()  # by hash, the most recent last
        self._content_bytes = 0
        self._lock = threading.RLock()

    @property
    def files(self) -> dict[str, FileLines]:
        """What is known of each file."""
        with self._lock:
            return dict(self._files)

    def handle_event(self, event: FileSeen | ProgramRan) -> None:
        """Handle an event of a `Toolbox`."""
        if isinstance(event, ProgramRan):
            self.check_files("agent" if event.is_over else "user")
        elif event.wrote:
            self.record_write(event.path, event.before, event.content)
        else:
            self.record_read(event.path, event.content)

    def record_read(self, path: str, data: bytes) -> None:
        """Record that the agent has read a file."""
        with self._lock:
            self._compare(path, data, "user")
            self._overwritten.pop(path, None)
            self._set_known(path, data)

    def record_write(self, path: str, before: bytes | None, after: bytes) -> None:
        """Record that the agent has written a file; `before` is None for a new one."""
        with self._lock:
            known = self._files.get(path)
            lines_before = count_lines(before or b"")
            previous = known.lines_after_write if known and not known.is_first_write else lines_before
            self._compare(path, before, "user")
            if path in self._unknown:
                self._overwritten[path] = self._unknown[path].change
            difference = compute_diff(before or b"", after)
            file = self._files.get(path, FileLines())
            self._files[path] = msgspec.structs.replace(
                file,
                lines_at_previous_write=previous,
                lines_before_write=lines_before,
                lines_after_write=count_lines(after),
                lines_added_by_agent=file.lines_added_by_agent + difference.added,
                lines_removed_by_agent=file.lines_removed_by_agent + difference.removed,
                is_first_write=False,
            )
            self._set_known(path, after)

    def collect_changes(self) -> list[TrackedChange]:
        """Return the files that differ from what the agent knows; from then on they count as known."""
        with self._lock:
            self.check_files("user")
            changes = [*self._overwritten.values(), *(self._unknown[path].change for path in sorted(self._unknown))]
            for path, version in self._unknown.items():
                self._files[path] = msgspec.structs.replace(self._files[path], sha256=version.sha256)
            self._overwritten, self._unknown = {}, {}
            return changes

    def check_files(self, by: Author) -> None:
        """Look for changes since the last check, and attribute them."""
        with self._lock:
            for path in reversed(list(self._files)):  # so that the contents of recent files stay in memory
                try:
                    with open_path(path, self.workspace) as file:
                        if file.mark and file.mark == self._marks.get(path):
                            continue
                        data, mark = file.read(MAX_BYTES), file.mark
                except ToolError:
                    data, mark = None, ()
                self._compare(path, data, by)
                if path not in self._unknown:
                    self._marks[path] = mark

    def _compare(self, path: str, data: bytes | None, by: Author) -> None:
        """Compare a content with the last one, count its lines, and remember it if the agent does not know it."""
        file, sha256 = self._files.get(path), _hash(data)
        if file is None:
            return
        last = self._unknown[path].sha256 if path in self._unknown else file.sha256
        if sha256 == last:
            return
        difference, lines = self._diff(path, last, data), count_lines(data or b"")
        added = difference.added if difference else max(0, lines - file.lines)
        removed = difference.removed if difference else max(0, file.lines - lines)
        counts = {f"lines_added_by_{by}": added, f"lines_removed_by_{by}": removed}
        counts = {name: getattr(file, name) + count for name, count in counts.items()}
        self._files[path] = msgspec.structs.replace(file, lines=lines, **counts)
        self._forget(path)
        if sha256 != file.sha256:
            difference = self._diff(path, file.sha256, data)
            change = TrackedChange(path=path, by=by, is_missing=data is None, difference=difference)
            self._unknown[path] = _Unknown(sha256, change)
        self._keep_content(sha256, data)

    def _set_known(self, path: str, data: bytes) -> None:
        file, sha256 = self._files.get(path, FileLines()), _hash(data)
        self._files[path] = msgspec.structs.replace(file, sha256=sha256, lines=count_lines(data))
        self._files.move_to_end(path)
        self._forget(path)
        self._keep_content(sha256, data)
        while len(self._files) > MAX_FILES:
            self._forget(self._files.popitem(last=False)[0])

    def _forget(self, path: str) -> None:
        self._marks.pop(path, None)
        self._unknown.pop(path, None)

    def _diff(self, path: str, sha256: str, data: bytes | None) -> Difference | None:
        """Return the changes from a known content; None if either content is unknown."""
        old = b"" if sha256 == MISSING else self._contents.get(sha256)
        if old is None:
            old = self._find_content(path)
            old = old if old is not None and _hash(old) == sha256 else None
        return None if old is None or data is None else compute_diff(old, data)

    def _keep_content(self, sha256: str, data: bytes | None) -> None:
        if data is None or len(data) > MAX_FILE_BYTES:
            return
        if sha256 not in self._contents:
            self._contents[sha256] = data
            self._content_bytes += len(data)
        self._contents.move_to_end(sha256)
        while self._content_bytes > MAX_CONTENT_BYTES:
            self._content_bytes -= len(self._contents.popitem(last=False)[1])

    def export(self) -> dict[str, dict[str, Any]]:
        """Return the files as plain data, the least recently used first."""
        with self._lock:
            return {path: msgspec.to_builtins(file) for path, file in self._files.items()}

    def restore(self, data: Any) -> None:
        """Replace what is known by plain data; invalid entries are left out."""
        files: OrderedDict[str, FileLines] = OrderedDict()
        for path, value in data.items() if isinstance(data, Mapping) else ():
            with suppress(msgspec.ValidationError):
                files[str(path)] = msgspec.convert(value, FileLines)
        with self._lock:
            self._files = OrderedDict(list(files.items())[-MAX_FILES:])
            self._marks, self._unknown, self._overwritten = {}, {}, {}


def _hash(data: bytes | None) -> str:
    return MISSING if data is None else hashlib.sha256(data).hexdigest()


def save(conversation: Conversation, files: Mapping[str, Any]) -> None:
    """Store exported files, except those whose path contains a secret."""
    mask = conversation.task.writer.sanitiser.text
    conversation.save_value(NOTE, {path: file for path, file in files.items() if mask(path) == path})


def load(conversation: Conversation, tracker: FileLineTracker) -> None:
    """Replace what the tracker knows by the stored files, if there are any."""
    tracker.restore(conversation.load_value(NOTE))


def describe_changes(changes: Sequence[TrackedChange], texts: Texts) -> str:
    """Return a text of limited length for the agent; empty if there are no changes."""
    lines: list[str] = []
    room, left_out = MAX_TEXT_CHARS, []
    for author in ("user", "agent"):
        descriptions = [
            (shown_path(change.path), _describe(change, texts)) for change in changes if change.by == author
        ]
        if descriptions:
            lines.append(texts(f"changed by {author}"))
        for path, description in descriptions:
            if len(description) <= room:
                lines.append(description)
                room -= len(description)
            else:
                left_out.append(path)
    if left_out:
        names = left_out[:MAX_NAMES] + ([f"… ({len(left_out) - MAX_NAMES:,})"] if len(left_out) > MAX_NAMES else [])
        lines.append(texts("more files changed", paths=", ".join(names)))
    return "".join(f"{line}\n" for line in lines)


def _describe(change: TrackedChange, texts: Texts) -> str:
    path, difference = shown_path(change.path), change.difference
    if change.is_missing:
        return texts("file missing", path=path)
    if difference is None or not difference.text:
        return texts("file changed", path=path)
    counts = texts("lines changed", path=path, added=difference.added, removed=difference.removed)
    return f"{counts}\n{difference.text}"
