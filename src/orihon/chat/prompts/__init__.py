"""What the model is told at the beginning of a conversation, in Japanese and English."""

from __future__ import annotations

from orihon._prompts import read


def system(language: str, more: str = "") -> str:
    """The system prompt, and what the settings add to it."""
    texts = (read(__name__, "chat", language), more)
    return "\n\n".join(text.strip() for text in texts if text.strip())
