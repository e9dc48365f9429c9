"""Checkpoints: the files and the conversation at one moment, and the way back to it.

The files are in a shadow repository, the conversation is an event of the log that names their commit. Turn 3 ends with
the checkpoint `3`; the tools that changed files in it left `3.1`, `3.2` and so on. When a number was given twice,
because the person went back and said something else, it means the newer one; `#41` names any by its event.
"""

from __future__ import annotations

from typing import Any

import msgspec

from orihon import codec
from orihon.chat.book import files_of, shadow_place
from orihon.chat.conversation import STEPS, Conversation
from orihon.chat.workspace_checkpoints import FileChange, RestoreResult, SkippedFile, Snapshot, WorkspaceCheckpoints
from orihon.context.events import sound
from orihon.errors import NotFound, OrihonError
from orihon.ingest import shown
from orihon.records import Event
from orihon.task.runs import Run
from orihon.task.task import Task

RESTORING = "restoring"  # the event of a restore that was begun
WISHED = "checkpoints"  # the note of what the person decided
CLEANED = "cleaned"  # the event after which earlier checkpoints are gone
READS = frozenset({"read", "search", "list_files", "unfold", "recall"})  # tools that change no file
LABEL_CHARS = 60


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One moment that can be gone back to."""

    event: int
    after: int
    tag: str
    label: str
    commit: str
    files: int  # that had changed since the one before
    timestamp: str


class Checkpoints:
    """Those of one conversation; as a hook of its task they are taken by themselves."""

    def __init__(self, conversation: Conversation, shadow: WorkspaceCheckpoints) -> None:
        self.conversation, self.task, self.shadow = conversation, conversation.task, shadow
        self._told: set[str] = set()
        self._commit = ""  # of the newest one
        self._turn = ""  # of the last whole turn

    # taking them

    def begin(self) -> None:
        """The files as they are before the first turn; a restore that was cut short is finished."""
        known, begun = self._stored()
        if known and not self.shadow.repository.exists():  # the conversation came here without its files
            self.task.event(CLEANED)
            known, begun = [], None
        self._commit = known[-1].commit if known else ""
        self._turn = next((one.commit for one in reversed(known) if "." not in one.tag), "")
        if begun is not None:
            self._finish(begun)
        elif not known:
            self._keep(str(self.conversation.turn), "at the beginning", self._taken("at the beginning"))
            self._turn = self._commit

    def take(self, label: str = "") -> Checkpoint:
        """One by hand, numbered like those of the tools."""
        label = self.task.sanitiser.text(label)
        return self._step(label or "by hand", self._taken(label))

    def end_of_turn(self, prompt: str) -> Checkpoint:
        """The one of a whole turn, called after what the person said."""
        label = self._label(prompt)
        taken = self._taken(label)
        if self._turn:  # its tools have checkpoints of their own; this one counts what the whole turn has changed
            taken = msgspec.structs.replace(taken, changes=self.shadow.changes(self._turn, taken.commit))
        self._turn = taken.commit
        return self._keep(str(self.conversation.turn), label, taken)

    def after_tool(self, _: Task, run: Run) -> None:
        """One for a tool that changed files."""
        if run.call.name in READS:
            return
        label = self._label(f"{run.call.name} {self.task.sanitiser.arguments(run.call.text)}")
        try:
            taken = self._taken(label)
        except OrihonError as error:  # the tool has done its work all the same
            self.conversation.tell(shown(f"There is no checkpoint of {run.call.name}: {error.message}"))
            return
        if taken.commit != self._commit:
            self._step(label, taken)

    def _label(self, text: str) -> str:
        """A line for people and for git, masked before it is cut."""
        line = " ".join(self.task.sanitiser.text(text).split())
        return line if len(line) <= LABEL_CHARS else f"{line[: LABEL_CHARS - 1]}…"

    def _step(self, label: str, taken: Snapshot) -> Checkpoint:
        step = int(self.conversation.notes.get(STEPS, 0)) + 1
        self.task.event("note", **{STEPS: step})
        return self._keep(f"{self.conversation.turn}.{step}", label, taken)

    def _taken(self, label: str) -> Snapshot:
        taken = self.shadow.take(label)
        self._tell(taken.skipped)
        return taken

    def _keep(self, tag: str, label: str, taken: Snapshot) -> Checkpoint:
        """Write down which files belong to the conversation as it is now."""
        self._commit = taken.commit
        beside = {"tag": tag, "commit": taken.commit, "files": len(taken.changes)}
        number = self.task.checkpoint(label, **beside)
        event = Event(id=number, after=self.task.history.last, type="checkpoint", data=beside, timestamp=codec.now())
        return msgspec.structs.replace(_checkpoint(event), label=label)

    def _tell(self, skipped: tuple[SkippedFile, ...]) -> None:
        for one in skipped:
            if one.path not in self._told:
                self._told.add(one.path)
                self.conversation.tell(f"Not in the checkpoints: {one.path} {one.reason}")

    # looking at them

    def listing(self, turn: str = "") -> list[Checkpoint]:
        """Those of whole turns, or those of one turn and its tools."""
        if turn:
            return [one for one in self._all() if one.tag == turn or one.tag.startswith(f"{turn}.")]
        return [one for one in self._all() if "." not in one.tag]

    def find(self, name: str) -> Checkpoint:
        """The newest of this number, or that of `#event`."""
        found = [one for one in self._all() if name in {one.tag, f"#{one.event}"}]
        if not found:
            raise NotFound(kind="checkpoint", id=name, hint="`/checkpoint list` shows them.")
        return found[-1]

    def diff(self, name: str, other: str = "") -> str:
        """What changed since, in the files as they are now, or up to another one."""
        return self.shadow.diff(self.find(name).commit, self.find(other).commit if other else None)

    def content(self, path: str) -> bytes | None:
        """A file as the newest one has it."""
        return self.shadow.read_file(self._commit, path) if self._commit else None

    def _all(self) -> list[Checkpoint]:
        """All of them, the oldest first."""
        return self._stored()[0]

    def _stored(self) -> tuple[list[Checkpoint], dict[str, Any] | None]:
        """All of them, and a restore that was begun, never finished, and not left behind by going on."""
        found: list[Checkpoint] = []
        begun: Event | None = None
        for event in sound(self.task.lease.store.read(self.task.uuid, Event)):
            match event.type:
                case "checkpoint" if isinstance(event.data.get("commit"), str):
                    found.append(_checkpoint(event))
                    begun = None
                case "restoring":
                    begun = event
                case "restore":
                    begun = None
                case "cleaned":
                    found, begun = [], None
        if begun is not None and begun.after < self.task.history.last:
            begun = None
        return found, begun.data if begun is not None else None

    # going back

    def restore(self, name: str, *, hard: bool = False) -> RestoreResult:
        """Files and conversation as they were then; files made since stay, unless it is `hard`. Can be undone."""
        checkpoint = self.find(name)
        before = self._taken(f"before going back to {checkpoint.tag}")
        begun = {"event": checkpoint.event, "commit": checkpoint.commit, "hard": hard, "before": before.commit}
        self.task.event(RESTORING, **begun)  # from here on it is finished, also after a crash
        return self._finish(begun)

    def _finish(self, begun: dict[str, Any]) -> RestoreResult:
        restored = self.shadow.restore(begun["commit"], hard=bool(begun["hard"]))
        self.task.restore(begun["event"], before=begun["before"])
        self._commit = self._turn = restored.after
        return msgspec.structs.replace(restored, before=begun["before"])

    def undo(self, event: int) -> RestoreResult | None:
        """Put the files back that a restore had changed; None when that step changed none."""
        stored = next(self.task.lease.store.read(self.task.uuid, Event, first=event, last=event), None)
        before = stored.data.get("before") if stored is not None and stored.type == "restore" else None
        return self.put_back(before) if isinstance(before, str) else None

    def clean(self) -> int:
        """Forget them all, and give their space back; how many there were."""
        count = len(self._all())
        self.task.event(CLEANED)
        self.shadow.keep_only(())
        self._commit = self._turn = ""
        return count

    # side conversations

    def opened(self) -> str:
        """The files as they are when a side conversation begins."""
        return self._taken("a side conversation").commit

    def changed_inside(self, event: int, after: int) -> tuple[str, tuple[FileChange, ...]]:
        """The commit before a side conversation, and what has changed in the files since."""
        stored = next(self.task.lease.store.read(self.task.uuid, Event, first=event, last=event), None)
        commit = stored.data.get("commit") if stored is not None else None
        if not isinstance(commit, str):  # it was decided afterwards: the last one before it is the nearest
            earlier = [one for one in self._all() if one.after <= after]
            commit = earlier[-1].commit if earlier else ""
        return (commit, self.shadow.changes(commit)) if commit else ("", ())

    def put_back(self, commit: str) -> RestoreResult:
        """The files as they were before a side conversation, or before a restore."""
        restored = self.shadow.restore(commit, hard=True)
        self._commit = self._turn = restored.after
        return restored


def _checkpoint(event: Event) -> Checkpoint:
    data = event.data
    files = data.get("files")
    return Checkpoint(
        event=event.id,
        after=event.after,
        tag=str(data.get("tag", "")),
        label=str(data.get("label", "")),
        commit=data["commit"],
        files=files if isinstance(files, int) else 0,
        timestamp=event.timestamp,
    )


def attached(conversation: Conversation) -> Checkpoints | None:
    """The checkpoints of a conversation, taken from now on; None where nobody asked for them.

    They are there by themselves in a git repository. Elsewhere a directory may hold anything, and the person decides.
    """
    wished = conversation.notes.get(WISHED)
    if wished is None:
        places = (conversation.workspace, *conversation.workspace.parents)
        wished = any((place / ".git").exists() for place in places)
    if not wished:
        return None
    store, uuid = conversation.task.lease.store, conversation.conversation_id
    # the store may be in the workspace, and going back must not change the log
    shadow = WorkspaceCheckpoints(shadow_place(store, uuid), conversation.workspace, exclude=files_of(store))
    found = Checkpoints(conversation, shadow)
    found.begin()
    conversation.task.hooks = (*conversation.task.hooks, found)
    return found


def wish(conversation: Conversation, *, wanted: bool) -> None:
    """Keep whether the person wants checkpoints."""
    conversation.task.event("note", **{WISHED: wanted})
