"""The contract of a model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from orihon.task.window import Window

OnText = Callable[[str], None]

RESTART_NOTICE = "\n[interrupted; starting again]\n"  # precedes the text of a repeated attempt

_CUT = frozenset({"length", "max_tokens", "model_context_window_exceeded"})


class Model(Protocol):
    """Answers windows and prompts."""

    @property
    def name(self) -> str:
        """The name that `open_model` takes, such as `openai:gpt-4o`."""

    def reply(self, window: Window, *, on_text: OnText | None = None) -> Any:
        """Return the complete reply, as `task.add_reply` takes it. `on_text` receives its text as it arrives."""

    def ask(self, prompt: str, *, schema: dict[str, Any] | None = None) -> str:
        """Return the answer to one prompt, without tools or history; JSON if a `schema` is given."""

    def close(self) -> None:
        """Close all connections."""


def was_cut(reply: dict[str, Any]) -> bool:
    """Return whether the model ran out of tokens.

    The text of such a reply is incomplete. A call that was cut has arguments that are not JSON:
    `task.pending_calls()` answers it with an error for the model, and it never runs.
    """
    if "choices" in reply:
        return any(choice.get("finish_reason") in _CUT for choice in reply["choices"])
    return reply.get("stop_reason") in _CUT
