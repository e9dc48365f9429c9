"""The files of a conversation: those in every window, those that changed under the model, and the way back to earlier.

files = Files(conversation, toolbox, settings)
files.begin()
Loop(task, model, toolbox, checks=(files.before_reply,)).run_until_done()
files.after_turn("what the person said")
"""

from __future__ import annotations

import hashlib
from typing import Any

from orihon.agent.tools.toolbox import Toolbox
from orihon.chat.changes import told
from orihon.chat.checkpoints import Checkpoints, attached
from orihon.chat.conversation import Conversation
from orihon.chat.lines import FileLineTracker, load, save
from orihon.chat.origins import by_origin
from orihon.chat.sticky import StickyFiles
from orihon.errors import OrihonError, UsageError
from orihon.settings.schema import Settings
from orihon.task.task import Task


class Files:
    """What one conversation has to do with the files of its workspace."""

    def __init__(self, conversation: Conversation, tools: Toolbox, settings: Settings) -> None:
        self.conversation, self.task, self.tools, self.settings = conversation, conversation.task, tools, settings
        self.sticky = StickyFiles(self.task, tools.workspace, share=settings.sticky.share)
        self.lines = FileLineTracker(tools.workspace, before=self._before)
        self.checkpoints: Checkpoints | None = None

    def begin(self) -> None:
        """Watch the tools, and take up where the last sitting left off."""
        self.tools.on_event = self.lines.watch
        load(self.task, self.lines)
        self.open_checkpoints()
        if not self.conversation.turn and not self.sticky.declared:
            self._first_files()

    def open_checkpoints(self) -> None:
        """Take checkpoints from now on, where they are wanted; a conversation without them is still one."""
        self.task.hooks = tuple(hook for hook in self.task.hooks if hook is not self.checkpoints)
        self.checkpoints = None
        try:
            self.checkpoints = attached(self.conversation)
        except OrihonError as error:
            self._tell(error)

    def before_reply(self, task: Task) -> None:
        """The model sees sticky files as they are now, and hears of files that somebody else has changed."""
        if self.sticky.declared:
            self.sticky.refresh()
        if text := told(self.lines.changed(), task.history.language):
            task.add("user", text)

    def after_turn(self, prompt: str) -> None:
        """Keep what is known of the files, and take the checkpoint of the turn."""
        if self.task.row.status != "running":
            return
        try:
            save(self.task, self.lines)
            if self.checkpoints is not None:
                self.checkpoints.end_of_turn(prompt)
        except OrihonError as error:
            self._tell(error)

    def went_back(self) -> None:
        """After a restore, or out of a tangent: what the model knows of the files is what it knew then."""
        load(self.task, self.lines)

    def parts(self) -> dict[str, Any]:
        """What a document says of them."""
        listing = self.sticky.listing()
        known = self.checkpoints.listing() if self.checkpoints is not None else None
        return {
            "tools": by_origin(self.task.config.schemas, self.tools),
            "context_manager": {"paths": listing.declared, "max_context_files_size": listing.max_tokens},
            "context_message_length": self.sticky.length,
            "file_line_tracker": self.lines.data(),
            "checkpoint_manager": None if known is None else {"checkpoints": known},
        }

    def _first_files(self) -> None:
        """A new conversation begins with the sticky files of the settings."""
        for one in self.settings.sticky.files:
            try:
                self.sticky.add(one, force=True)
            except UsageError as error:
                self._tell(error)

    def _before(self, path: str, sha256: str) -> bytes | None:
        """A file as the model knew it, if the last checkpoint has it."""
        found = self.checkpoints.content(path) if self.checkpoints is not None else None
        return found if found is not None and hashlib.sha256(found).hexdigest() == sha256 else None

    def _tell(self, error: OrihonError) -> None:
        self.conversation.tell(f"{error.message} {error.hint}")
