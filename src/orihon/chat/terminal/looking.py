"""Commands that show something and change nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from orihon.chat import book
from orihon.chat.conversation import Conversation
from orihon.chat.terminal.words import Words
from orihon.chat.transcript import numbered
from orihon.engine import Engine
from orihon.errors import UsageError

if TYPE_CHECKING:
    from orihon.chat.terminal.sitting import Chat

SHOWN = 20  # entries of the transcript


def usage(chat: Chat, _: str) -> None:
    """The token meter, whole."""
    chat.face.show("\n".join(chat.meter.table()))


def transcript(chat: Chat, argument: str) -> None:
    """The newest entries with their numbers."""
    count = number(chat, argument) if argument else SHOWN
    chat.face.show("\n".join(newest(chat.conversation, count)) or chat.words("empty"))


def tools(chat: Chat, _: str) -> None:
    """What the model may use, by where it comes from."""
    words = chat.words
    groups = {
        words("mcp", server=server) if server else words("builtin"): names
        for server, names in chat.setup.tools.origins().items()
    }
    groups[words("engine")] = sorted(chat.conversation.task.config.ours)
    chat.face.show("\n".join(f"{origin}: {', '.join(names)}" for origin, names in groups.items()))


def conversations(chat: Chat, _: str) -> None:
    """Those of this directory."""
    chat.face.show(
        listed(chat.engine, chat.directory, chat.words, here=chat.conversation.conversation_id, user=chat.user)
    )


def name(chat: Chat, _: str) -> None:
    """What this one is called."""
    one = chat.conversation
    chat.face.show(chat.words("named", name=one.name, uuid=one.conversation_id))


def listed(engine: Engine, directory: Path, words: Words, *, here: str = "", user: str | None = None) -> str:
    """The conversations of a directory, a line each; the one in which we are is marked."""
    lines = [
        words(
            "listed",
            mark="*" if one.uuid == here else "-",
            name=one.name,
            uuid=one.uuid[:8],
            updated=one.updated_at[:16].replace("T", " "),
            replies=one.replies,
            tokens=one.tokens,
            status=words("in use") if one.status == "running" and one.uuid != here else "",
        )
        for one in book.listing(engine, directory, user=user)
    ]
    return "\n".join(lines) or words("no conversations")


def newest(conversation: Conversation, count: int) -> Iterator[str]:
    """The newest entries of the transcript, each with its number."""
    history = conversation.task.history
    for seq, text in numbered(history, history.view.state.ranges, count):
        head = f"[{seq}] "
        yield head + text.replace("\n", "\n" + " " * len(head))


def number(chat: Chat, text: str) -> int:
    """A number that was typed."""
    if not re.fullmatch(r"[1-9][0-9]{0,8}", text):
        raise UsageError(chat.words("number", text=ascii(text[:40])), hint=chat.words("number hint"))
    return int(text)
