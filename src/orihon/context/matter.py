"""The matter of a log: what people and the agent said and did, without the words around it.

A summary, a ledger and a search are made of the matter. The prompts of a plan and the structured answers to them, the
block of an earlier run and our own requests for a reply are stored with a key that begins with one of `MARKS`. They
are in the log and in the window, but nothing that reads the matter sees them. A request that was rendered from the
fields of an issue is read from these fields.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from orihon.records import Message

INHERITED: Final = "orihon:handoff"  # the block of earlier runs
PLANNED: Final = "orihon:planning:"  # the prompts of a plan; the structured answers continue such a key
NOTICE: Final = "orihon:notice:"  # what the agent's loop asks for, such as the rest of a reply that was cut
MARKS: Final = (INHERITED, PLANNED, NOTICE)

_JSON_END = re.compile(r"(?:```(?:json)?\s*)?(\{[^`]*\})\s*(?:```)?\s*\Z")
MAX_REPORT_CHARS = 4000  # of the JSON at the end of a reply


def is_matter(message: Message) -> bool:
    """Return whether a message says something that users or the agent meant to say."""
    return not (message.key or "").startswith(MARKS)


def matter_of(messages: Iterable[Message]) -> Iterator[Message]:
    """Yield the messages that are matter, as they were meant: without wrappers, and without reports in JSON."""
    planned = False
    for message in messages:
        if not is_matter(message):
            planned = message.role == "user" and (message.key or "").startswith(PLANNED)
        elif message.issue is not None:
            yield _with_text(message, message.issue.text)
        elif planned and message.role == "assistant" and isinstance(message.content, str):
            yield _with_text(message, _cut_report(message.content))
        else:
            yield message


def _with_text(message: Message, text: str) -> Message:
    return message if text == message.content else msgspec.structs.replace(message, content=text, tokens=0)


def _cut_report(text: str) -> str:
    """Return a reply to a step of a plan without the JSON that it ends with."""
    found = _JSON_END.search(text, max(0, len(text) - MAX_REPORT_CHARS))
    while found is not None:
        try:
            json.loads(found[1])
        except ValueError:
            found = _JSON_END.search(text, found.start(1) + 1)
        else:
            return text[: found.start()].rstrip()
    return text
