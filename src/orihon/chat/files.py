"""The files of a conversation: sticky files, files that changed without the model, and checkpoints.

files = ConversationFiles(conversation, toolbox, settings)
files.begin()
Loop(task, model, toolbox, checks=(files.before_reply,)).run_until_done()
files.end_turn("the user's message")
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from orihon.agent.instructions import add_instructions
from orihon.agent.sticky_files import StickyFiles
from orihon.agent.tools.toolbox import BUILTIN_TOOLS, Toolbox
from orihon.chat import file_tracker
from orihon.chat.checkpoints import Checkpoints, open_checkpoints
from orihon.chat.conversation import Conversation
from orihon.chat.file_tracker import FileLineTracker, describe_changes
from orihon.chat.i18n import Texts
from orihon.context.recall import RECALL, UNFOLD
from orihon.errors import OrihonError, UsageError
from orihon.settings.schema import Settings
from orihon.task.config import tool_name
from orihon.task.task import Task

Schema = dict[str, Any]


class ConversationFiles:
    """Connects a conversation with the files of its workspace."""

    def __init__(self, conversation: Conversation, tools: Toolbox, settings: Settings) -> None:
        self.conversation, self.task, self.tools, self.settings = conversation, conversation.task, tools, settings
        self.sticky = StickyFiles(self.task, tools.workspace, share=settings.sticky.share)
        self.tracker = FileLineTracker(tools.workspace, find_content=self._find_content)
        self.checkpoints: Checkpoints | None = None

    def begin(self) -> None:
        """Watch the tools, and continue where the last session ended. A new conversation gets the sticky files."""
        self.tools.on_event = self.tracker.handle_event
        self.reload_tracker()
        self.open_checkpoints()
        if not self.conversation.turn and not self.sticky.declared:
            add_instructions(self.sticky, self.settings.sticky)
            for path in self.settings.sticky.files:
                try:
                    self.sticky.add(path, force=True)
                except UsageError as error:
                    self._report(error)

    def open_checkpoints(self) -> None:
        """Take checkpoints from now on if they are enabled. An error does not stop the conversation."""
        self.task._hooks = tuple(hook for hook in self.task._hooks if hook is not self.checkpoints)
        self.checkpoints = None
        try:
            self.checkpoints = open_checkpoints(self.conversation)
        except OrihonError as error:
            self._report(error)

    def before_reply(self, task: Task) -> None:
        """Update the sticky files, and tell the model which files changed. This is a check of the loop."""
        if self.sticky.declared:
            self.sticky.refresh()
        changes = self.tracker.collect_changes()
        if changes:
            task.add("user", describe_changes(changes, Texts(self.conversation.language)))

    def end_turn(self, prompt: str) -> None:
        """Store what the model knows of files, and take the checkpoint of the turn."""
        if self.task.row.status != "running":
            return
        try:
            file_tracker.save(self.conversation, self.tracker.export())
            if self.checkpoints is not None:
                self.checkpoints.end_turn(prompt)
        except OrihonError as error:
            self._report(error)

    def reload_tracker(self) -> None:
        """Restore what the model knows of files, after a restore or a tangent."""
        file_tracker.load(self.conversation, self.tracker)

    def export(self) -> dict[str, Any]:
        """Return the fields of a conversation document that concern tools and files."""
        listing = self.sticky.list_files()
        points = self.checkpoints.list_checkpoints() if self.checkpoints is not None else None
        return {
            "tools": group_by_origin(self.task.config.schemas, self.tools),
            "context_manager": {"paths": listing.declared, "max_context_files_size": listing.max_tokens},
            "context_message_length": self.sticky.length,
            "file_line_tracker": self.tracker.export(),
            "checkpoint_manager": None if points is None else {"checkpoints": points},
        }

    def _find_content(self, path: str) -> bytes | None:
        return self.checkpoints.read_file(path) if self.checkpoints is not None else None

    def _report(self, error: OrihonError) -> None:
        self.conversation.notify(f"{error.message} {error.hint}")


def group_by_origin(schemas: Iterable[Schema], tools: Toolbox | None = None) -> dict[str, list[Schema]]:
    """Group tool schemas by origin: `builtin`, `custom` and `mcp`. No server is started for it."""
    groups: dict[str, list[Schema]] = {"builtin": [], "custom": [], "mcp": []}
    servers = tools.servers if tools is not None else None
    for schema in schemas:
        name = tool_name(schema)
        if schema in (UNFOLD, RECALL) or (tools is not None and name in BUILTIN_TOOLS):
            groups["builtin"].append(schema)
        else:
            groups["mcp" if servers is not None and servers.owns(name) else "custom"].append(schema)
    return groups
