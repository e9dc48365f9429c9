"""Checkpoints: the files and the conversation at one moment, and restoring both.

`workspace_checkpoints` saves the files. The conversation is an event of the log that names their commit. Turn 3 ends
with checkpoint `3`; tool calls that changed files during the turn left `3.1`, `3.2` and so on. A number that was used
twice, because the user went back, means the newer checkpoint; `#41` names one by its event.
"""

from __future__ import annotations

from typing import Any

import msgspec

from orihon import codec
from orihon.chat.conversation import STEPS, Conversation
from orihon.chat.registry import find_checkpoint_directory, list_store_files
from orihon.chat.workspace_checkpoints import FileChange, RestoreResult, Snapshot, WorkspaceCheckpoints
from orihon.errors import NotFound, OrihonError
from orihon.ingest import mask_output
from orihon.records import Event
from orihon.task.task import Task
from orihon.task.tool_run import ToolRun
from orihon.terminal import shorten

RESTORING = "restoring"  # the event of a restore that was started
ENABLED = "checkpoints"  # the note with the user's decision
CLEANED = "cleaned"  # the event after which earlier checkpoints are deleted
READ_ONLY_TOOLS = frozenset({"read", "search", "list_files", "unfold", "recall"})
MAX_LABEL_CHARS = 60


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A moment that can be restored."""

    event: int
    after: int
    tag: str
    label: str
    commit: str
    files: int  # that changed since the previous one
    timestamp: str


class Checkpoints:
    """The checkpoints of one conversation. As a hook of its task it takes one after each tool call."""

    def __init__(self, conversation: Conversation, files: WorkspaceCheckpoints) -> None:
        self.conversation, self.task, self.files = conversation, conversation.task, files
        self._reported: set[str] = set()  # skipped paths that the user knows of
        self._commit = ""  # of the newest checkpoint
        self._turn_commit = ""  # of the last complete turn

    def begin(self) -> None:
        """Take the checkpoint before the first turn, or finish an interrupted restore."""
        known, interrupted = self._read()
        if known and not self.files.repository.exists():  # the conversation was copied without its checkpoints
            self.conversation.add_event(CLEANED)
            known, interrupted = [], None
        self._commit = known[-1].commit if known else ""
        self._turn_commit = next((point.commit for point in reversed(known) if "." not in point.tag), "")
        if interrupted is not None:
            self._finish_restore(interrupted)
        elif not known:
            self._add(str(self.conversation.turn), "at the beginning", self._save("at the beginning"))
            self._turn_commit = self._commit

    # taking

    def take(self, label: str = "") -> Checkpoint:
        """Take a checkpoint inside a turn, numbered like those of tool calls."""
        label = self.task.writer.sanitiser.text(label)
        return self._add_step(label or "by the user", self._save(label))

    def end_turn(self, prompt: str) -> Checkpoint:
        """Take the checkpoint of a complete turn, labelled with the user's message."""
        label = self._make_label(prompt)
        snapshot = self._save(label)
        if self._turn_commit:  # count what the whole turn changed, not only what changed since the last tool call
            snapshot = msgspec.structs.replace(snapshot, changes=self.files.changes(self._turn_commit, snapshot.commit))
        self._turn_commit = snapshot.commit
        return self._add(str(self.conversation.turn), label, snapshot)

    def after_tool(self, _: Task, run: ToolRun) -> None:
        """Take a checkpoint if the tool call changed files. This is a hook of the task."""
        if run.call.name in READ_ONLY_TOOLS:
            return
        label = self._make_label(f"{run.call.name} {self.task.writer.sanitiser.arguments(run.call.text)}")
        try:
            snapshot = self._save(label)
        except OrihonError as error:
            self.conversation.notify(mask_output(f"No checkpoint was taken after {run.call.name}: {error.message}"))
            return
        if snapshot.commit != self._commit:
            self._add_step(label, snapshot)

    def save_files(self) -> str:
        """Save the files before a tangent, and return the commit."""
        return self._save("before a tangent").commit

    def _make_label(self, text: str) -> str:
        """Return one line, masked before it is cut."""
        return shorten(self.task.writer.sanitiser.text(text), MAX_LABEL_CHARS)

    def _save(self, label: str) -> Snapshot:
        """Save the files, and report skipped ones once."""
        snapshot = self.files.take(label)
        for file in snapshot.skipped:
            if file.path not in self._reported:
                self._reported.add(file.path)
                self.conversation.notify(f"Not in the checkpoints: {file.path} {file.reason}")
        return snapshot

    def _add_step(self, label: str, snapshot: Snapshot) -> Checkpoint:
        step = int(self.conversation.notes.get(STEPS, 0)) + 1
        self.conversation.set_notes(**{STEPS: step})
        return self._add(f"{self.conversation.turn}.{step}", label, snapshot)

    def _add(self, tag: str, label: str, snapshot: Snapshot) -> Checkpoint:
        """Record that these files belong to the conversation as it is now."""
        self._commit = snapshot.commit
        data: dict[str, Any] = {"tag": tag, "commit": snapshot.commit, "files": len(snapshot.changes)}
        number = self.task.checkpoint(label, **data)
        return Checkpoint(event=number, after=self.conversation.last, label=label, timestamp=codec.now(), **data)

    # reading

    def list_checkpoints(self, turn: str = "") -> list[Checkpoint]:
        """Return the checkpoints of complete turns, or all of one turn."""
        points, _ = self._read()
        if turn:
            return [point for point in points if point.tag == turn or point.tag.startswith(f"{turn}.")]
        return [point for point in points if "." not in point.tag]

    def find(self, name: str) -> Checkpoint:
        """Return the newest checkpoint with this number, or the one of `#event`."""
        matches = [point for point in self._read()[0] if name in {point.tag, f"#{point.event}"}]
        if not matches:
            raise NotFound(kind="checkpoint", id=name, hint="`/checkpoint list` shows them.")
        return matches[-1]

    def diff(self, name: str, other: str = "") -> str:
        """Return the changes from a checkpoint to the current files, or to another checkpoint."""
        return self.files.diff(self.find(name).commit, self.find(other).commit if other else None)

    def read_file(self, path: str) -> bytes | None:
        """Return a file as the newest checkpoint has it."""
        return self.files.read_file(self._commit, path) if self._commit else None

    def _read(self) -> tuple[list[Checkpoint], dict[str, Any] | None]:
        """Return all checkpoints, and the data of a restore that was interrupted and is still wanted."""
        points: list[Checkpoint] = []
        interrupted: Event | None = None
        for event in self.conversation.read_events():
            match event.type:
                case "checkpoint" if isinstance(event.data.get("commit"), str):
                    points.append(_make_checkpoint(event))
                    interrupted = None
                case "restoring":
                    interrupted = event
                case "restore":
                    interrupted = None
                case "cleaned":
                    points, interrupted = [], None
        if interrupted is None or interrupted.after < self.conversation.last:  # the user has gone on since
            return points, None
        return points, interrupted.data

    # restoring

    def restore(self, name: str, *, hard: bool = False) -> RestoreResult:
        """Restore the files and the conversation; `hard` removes newer files. `undo` reverts it."""
        point = self.find(name)
        before = self._save(f"before going back to {point.tag}").commit
        data = {"event": point.event, "commit": point.commit, "hard": hard, "before": before}
        self.conversation.add_event(RESTORING, **data)  # from here on a crash does not prevent the restore
        return self._finish_restore(data)

    def _finish_restore(self, data: dict[str, Any]) -> RestoreResult:
        result = self.files.restore(data["commit"], hard=bool(data["hard"]))
        self.task.restore(data["event"], before=data["before"])
        self._commit = self._turn_commit = result.after
        return msgspec.structs.replace(result, before=data["before"])

    def undo(self, event: int) -> RestoreResult | None:
        """Undo a restore of files; return None if the event is none."""
        stored = next(self.conversation.read_events(event), None)
        before = stored.data.get("before") if stored is not None and stored.type == "restore" else None
        return self.restore_files(before) if isinstance(before, str) else None

    def restore_files(self, commit: str) -> RestoreResult:
        """Restore only the files, exactly."""
        result = self.files.restore(commit, hard=True)
        self._commit = self._turn_commit = result.after
        return result

    def clean(self) -> int:
        """Delete all checkpoints, free their disk space, and return their number."""
        count = len(self._read()[0])
        self.conversation.add_event(CLEANED)
        self.files.keep_only(())
        self._commit = self._turn_commit = ""
        return count

    def find_tangent_changes(self, event: int, after: int) -> tuple[str, tuple[FileChange, ...]]:
        """Return the commit before a tangent, and the changes of the files since."""
        stored = next(self.conversation.read_events(event), None)
        commit = stored.data.get("commit") if stored is not None else None
        if not isinstance(commit, str):  # a tangent that began in the past: take the last checkpoint before it
            earlier = [point.commit for point in self._read()[0] if point.after <= after]
            commit = earlier[-1] if earlier else ""
        return (commit, self.files.changes(commit)) if commit else ("", ())


def _make_checkpoint(event: Event) -> Checkpoint:
    data = event.data
    tag, label, files = str(data.get("tag", "")), str(data.get("label", "")), data.get("files")
    return Checkpoint(
        event=event.id, after=event.after, tag=tag, label=label, commit=data["commit"],
        files=files if isinstance(files, int) else 0, timestamp=event.timestamp,
    )  # fmt: skip


def open_checkpoints(conversation: Conversation) -> Checkpoints | None:
    """Return the checkpoints of a conversation, as a hook of its task; None if they are disabled.

    Without a decision of the user they are enabled in a git repository only, because other directories may be huge.
    """
    enabled = conversation.notes.get(ENABLED)
    if enabled is None:
        directories = (conversation.workspace, *conversation.workspace.parents)
        enabled = any((directory / ".git").exists() for directory in directories)
    if not enabled:
        return None
    store = conversation.store
    # the store may be inside the workspace, and a restore must not change the log
    files = WorkspaceCheckpoints(
        find_checkpoint_directory(store, conversation.conversation_id),
        conversation.workspace,
        exclude=list_store_files(store),
    )
    checkpoints = Checkpoints(conversation, files)
    checkpoints.begin()
    conversation.task._hooks = (*conversation.task._hooks, checkpoints)
    return checkpoints
