"""Messages as quoted lines for a summariser: `[USER]: …`, `[TOOL]: name -> …`.

The lines are material, never instructions. Text inside a message that looks like one of these marks is escaped, so that
no content can pose as another speaker or as the end of the quotation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from orihon.context.units import units_of
from orihon.parts import shorten_name
from orihon.records import Message
from orihon.tokens import Counter

MAX_CHARS = 4000  # of one message; its beginning and its end

_MARK = re.compile(r"^([^\S\n]*)(\[(?:SYSTEM|USER|ASSISTANT|TOOL|SUMMARY)\]|===)", re.MULTILINE | re.IGNORECASE)


def transcript(messages: Iterable[Message], *, max_chars: int = MAX_CHARS) -> str:
    """Return the messages as text, each with its speaker."""
    return "\n".join(_line(message, max_chars) for message in messages)


def quoted(text: str) -> str:
    """Return the text with our marks escaped."""
    return _MARK.sub(r"\1\\\2", text)


def pieces(messages: Sequence[Message], max_tokens: int, counter: Counter) -> list[list[Message]]:
    """Yield the messages in pieces that fit, cut between units. A unit that is too large is a piece of its own."""
    found: list[list[Message]] = []
    room = 0
    for unit in units_of(messages):
        cost = counter.text(transcript(unit))
        if not found or cost > room:
            found.append([])
            room = max_tokens
        found[-1].extend(unit)
        room -= cost
    return found


def _line(message: Message, max_chars: int) -> str:
    body = quoted(_shortened(message.text, max_chars))
    if message.role == "tool":
        failed = " (error)" if message.is_error else ""
        return f"[TOOL]: {quoted(shorten_name(message.tool_name or 'tool'))}{failed} -> {body}"
    given = ((shorten_name(call.name), _shortened(call.arguments, max_chars // 4)) for call in message.tool_calls)
    calls = [f"\n  -> {name}({quoted(arguments)})" for name, arguments in given]
    return f"[{message.role.upper()}]: {body}{''.join(calls)}"


def _shortened(text: str, max_chars: int) -> str:
    if len(text) <= max_chars:
        return text
    half = max_chars // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half:,} characters …]\n{text[len(text) - half :]}"
