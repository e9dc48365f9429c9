"""Document 004: the state of a conversation, with the methods that the document names.

The state is a `Conversation` on a task; the fields of the document are read from it. `agents` and `tool_manager` are
kept as they were given: they are rebuilt at run time and never stored.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import msgspec

from orihon.chat import document, registry
from orihon.chat.conversation import Conversation
from orihon.engine import Engine, open_engine
from orihon.errors import NotFound

MAX_CONVERSATION_STATE_HISTORY_LEN = 10_000


class ConversationState:
    """A conversation in one directory: its history, tools, tangents and summary."""

    def __init__(
        self, conversation: Conversation, *, agents: Any = None, tool_manager: Any = None, engine: Engine | None = None
    ) -> None:
        self.conversation, self.agents, self.tool_manager = conversation, agents, tool_manager
        self._engine = engine

    @classmethod
    def new(  # noqa: PLR0917 - the document's arguments
        cls,
        conversation_id: str,
        agents: Any = None,
        tool_config: Mapping[str, Any] | None = None,
        tool_manager: Any = None,
        current_model_id: str | None = None,
        os: Path | str | None = None,
        mcp_enabled: bool = True,  # noqa: FBT001, FBT002 - as above
        *,
        engine: Engine | None = None,
    ) -> Self:
        """Begin a conversation, or continue the one with this id. `os` is the directory it belongs to."""
        opened = engine or open_engine()
        directory = Path(os or Path.cwd())
        options: dict[str, Any] = {"model": current_model_id} if current_model_id else {}
        try:
            opened.row(conversation_id)
        except NotFound:
            tools = None if tool_config is None else list(tool_config.values())
            conversation = registry.start(
                opened, directory, uuid=conversation_id, tools=tools, mcp_enabled=mcp_enabled, **options
            )
        else:
            conversation = registry.resume(opened, conversation_id)
        return cls(conversation, agents=agents, tool_manager=tool_manager, engine=None if engine else opened)

    @classmethod
    def from_json(cls, text: str | bytes, *, engine: Engine, directory: Path | None = None) -> Self:
        """Return a new conversation that continues where the document ends."""
        with tempfile.TemporaryDirectory() as place:
            path = Path(place, "conversation.json")
            path.write_bytes(text.encode() if isinstance(text, str) else text)
            return cls(document.read(engine, path, directory or Path.cwd()))

    def to_json(self) -> bytes:
        """Return the conversation as one JSON document."""
        with tempfile.TemporaryDirectory() as place:
            path = Path(place, "conversation.json")
            document.write(self.conversation, path)
            return path.read_bytes()

    def __getattr__(self, name: str) -> Any:
        """Return a field of the document, such as `history` or `valid_history_range`; None if it is empty."""
        if name not in FIELDS:
            raise AttributeError(f"A conversation has no {name!a:.40}; its fields are {', '.join(FIELDS)}.")
        return msgspec.json.decode(self.to_json()).get(name)

    @property
    def conversation_id(self) -> str:
        """The id of the conversation."""
        return self.conversation.conversation_id

    @property
    def transcript(self) -> list[str]:
        """The conversation as users read it."""
        return self.conversation.transcript

    def enter_tangent_mode(self) -> None:
        """Keep the main conversation and begin another."""
        if not self.is_in_tangent_mode():
            self.conversation.enter_tangent()

    def is_in_tangent_mode(self) -> bool:
        """Return whether a tangent is open."""
        return self.conversation.is_in_tangent

    def get_tangent_duration_seconds(self) -> int | None:
        """Return how long the tangent has been open; None if there is none."""
        return self.conversation.tangent_seconds

    def exit_tangent_mode(self) -> None:
        """Return to the main conversation as it was."""
        if self.is_in_tangent_mode():
            self.conversation.leave_tangent()

    def exit_tangent_mode_with_tail(self) -> None:
        """Return to the main conversation and keep the last entry of the tangent."""
        if self.is_in_tangent_mode():
            self.conversation.leave_tangent("tail")

    def clear(self) -> None:
        """Empty the history."""
        self.conversation.clear()

    def close(self) -> None:
        """Store the conversation; it can be continued."""
        self.conversation.close()
        if self._engine is not None:
            self._engine.close()


FIELDS = (
    *("next_message", "history", "valid_history_range", "tools", "context_manager", "context_message_length"),
    *("latest_summary", "model", "model_info", "file_line_tracker", "checkpoint_manager", "mcp_enabled"),
    "tangent_state",
)
