"""The transcript: the conversation as people read it. It is read from the log and never sent to the model.

Every line of the person's begins with `> `; the assistant's calls are named; errors that were shown are there too.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge
from itertools import islice

from orihon.chat.entries import tool_uses
from orihon.context.events import sound
from orihon.context.ranges import Ranges, contains
from orihon.records import Event, Message
from orihon.task.history import History

MAX_ENTRIES = 10_000
ERROR = "error"  # the event that keeps what went wrong


def transcript(history: History, ranges: Ranges, most: int = MAX_ENTRIES) -> list[str]:
    """The newest entries of what is visible, the oldest of them first."""
    return [text for _, text in numbered(history, ranges, most)]


def numbered(history: History, ranges: Ranges, most: int = MAX_ENTRIES) -> list[tuple[int, str]]:
    """The same, with the numbers of the messages; an error has that of the message before it."""
    newest = merge(_messages(history, ranges), _errors(history, ranges), key=lambda entry: entry[0], reverse=True)
    return [(place[0], text) for place, text in islice(newest, most)][::-1]


def said(message: Message) -> str:
    """What the transcript keeps of a message; nothing of the system's words and of what tools gave."""
    if message.role == "user":
        return "\n".join(f"> {line}" for line in message.text.splitlines() or [""])
    if message.role == "assistant":
        return "\n".join(part for part in (message.text, tool_uses(message.tool_calls)) if part)
    return ""


def _messages(history: History, ranges: Ranges) -> Iterator[tuple[tuple[int, int], str]]:
    for message in history.backwards(ranges):
        if text := said(message):
            yield (message.seq, 0), text


def _errors(history: History, ranges: Ranges) -> list[tuple[tuple[int, int], str]]:
    """Those that happened after a message that is still visible, the newest first."""
    events = sound(history.store.read(history.uuid, Event))
    found = [
        ((event.after, event.id), str(event.data.get("text", "")))
        for event in events
        if event.type == ERROR and (not event.after or contains(ranges, event.after))
    ]
    return sorted(found, reverse=True)[:MAX_ENTRIES]
