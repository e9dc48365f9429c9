"""What Tab offers: commands, their arguments, and paths."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orihon.chat.terminal import commands
from orihon.chat.terminal.paths import paths

if TYPE_CHECKING:
    from orihon.chat.terminal.sitting import Chat


def offered(chat: Chat, text: str) -> list[tuple[str, int]]:
    """What could stand instead of the end of a text, and how many characters of it that replaces."""
    if text.startswith("/"):
        return [(whole, len(text)) for whole in commands.completed(chat, text)]
    word = text.rsplit(maxsplit=1)[-1] if text and not text[-1].isspace() else ""
    return [(path, len(word)) for path in paths(word, chat.directory)] if word else []
