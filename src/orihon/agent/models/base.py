"""What the agent expects of a model, and what a reply says about its own end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from orihon.task.window import Window

Tell = Callable[[str], None]

RESTART_NOTICE = "\n[broken off; once more]\n"  # told before a reply that begins anew

_CUT = frozenset({"length", "max_tokens", "model_context_window_exceeded"})


class Model(Protocol):
    """Something that answers."""

    @property
    def name(self) -> str:
        """What `open_model` knows it by, such as `openai:gpt-4o`."""

    def reply(self, window: Window, *, on_text: Tell | None = None) -> Any:
        """The whole reply, as `task.add_reply` takes it; `tell` gets pieces of its text while they come."""

    def ask(self, prompt: str, *, schema: dict[str, Any] | None = None) -> str:
        """The answer to one prompt, without tools and without a history; JSON by `schema` where that is offered."""

    def close(self) -> None:
        """Let go of connections."""


def was_cut(reply: dict[str, Any]) -> bool:
    """Whether the model ran out of tokens before it was done.

    Its text is half a text then. A call that was cut has arguments that are no JSON: `task.pending_calls()` answers
    it with an error that the model reads, and it is never run.
    """
    if "choices" in reply:
        return any(choice.get("finish_reason") in _CUT for choice in reply["choices"])
    return reply.get("stop_reason") in _CUT
