"""A summary without a model: it needs nothing and never fails.

What people asked for, what was changed, what went wrong, what was said last: verbatim lines, in the order of how much
they matter, until the room is full. The previous summary is rolled in first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from orihon.context.transcript import quoted
from orihon.parts import shorten_name
from orihon.records import Message
from orihon.tokens import Counter

LINE_CHARS = 240
PREVIOUS_SHARE = 0.4  # of the room, for what was summarised before
WRITERS = re.compile(r"write|edit|create|patch|replace|insert|update|delete|move|commit|push|merge", re.IGNORECASE)
PATHS = re.compile(r'"(?:path|file_?path|filename|file|target|destination|branch)"\s*:\s*"([^"]{1,200})"')
ERROR_LINE = re.compile(r"\b\w*(?:Error|Exception|FAILED|fatal|panic)\b|エラー|失敗")

_HEADINGS = {
    "en": ("Earlier", "Requests", "Changes", "Problems", "Said last", "Steps"),
    "ja": ("以前の要約", "依頼", "変更", "問題", "最後の発言", "経過"),
}


def extract(
    messages: Sequence[Message], *, previous: str, max_tokens: int, counter: Counter, language: str = "en"
) -> str:
    """Lines of the messages under a few headings, in `max_tokens` at most."""
    earlier, *names = _HEADINGS[language]
    room = max_tokens
    parts: list[str] = []
    if previous:
        kept = _fitting([previous], int(room * PREVIOUS_SHARE), counter)
        parts += [f"{earlier}:", *kept]
        room -= counter.text("\n".join(parts))
    finders = (_requests, _changes, _problems, _said_last, _steps)
    for place, (name, find) in enumerate(zip(names, finders, strict=True)):
        share = room // (len(finders) - place)
        lines = _fitting(find(messages), share - counter.text(name) - 2, counter)
        if lines:
            parts += [f"{name}:", *lines]
            room -= counter.text("\n".join([name, *lines])) + 2
    return "\n".join(parts)


def _requests(messages: Sequence[Message]) -> Iterator[str]:
    """The first one and then the newest: the goal, and where it went."""
    asked = [message for message in messages if message.role == "user" and message.text.strip()]
    for message in [*asked[:1], *reversed(asked[1:])]:
        yield f"- (m{message.seq}) {_line(message.text)}"


def _changes(messages: Sequence[Message]) -> Iterator[str]:
    seen: set[str] = set()
    for message in reversed(messages):
        for call in message.tool_calls:
            if WRITERS.search(call.name) and (path := PATHS.search(call.arguments)) and path[1] not in seen:
                seen.add(path[1])
                yield f"- (m{message.seq}) {shorten_name(call.name)} {path[1]}"


def _problems(messages: Sequence[Message]) -> Iterator[str]:
    seen: set[str] = set()
    for message in reversed(messages):
        if message.role == "tool" and (message.is_error or ERROR_LINE.search(message.text)):
            line = next((line for line in message.text.split("\n") if ERROR_LINE.search(line)), message.text)
            if (short := _line(line)) not in seen:
                seen.add(short)
                yield f"- (m{message.seq}) {shorten_name(message.tool_name or 'tool')}: {short}"


def _said_last(messages: Sequence[Message]) -> Iterator[str]:
    said = [message for message in messages if message.role == "assistant" and message.text.strip()]
    for message in reversed(said[-3:]):
        yield f"- (m{message.seq}) {_line(message.text, 3 * LINE_CHARS)}"


def _steps(messages: Sequence[Message]) -> Iterator[str]:
    """What the agent said it would do, evenly over the whole stretch."""
    said = [message for message in messages if message.role == "assistant" and message.text.strip()][:-3]
    step = max(1, len(said) // 12)
    for message in said[::step]:
        yield f"- (m{message.seq}) {_line(message.text)}"


def _line(text: str, max_chars: int = LINE_CHARS) -> str:
    """The beginning of a text on one line."""
    flat = quoted(" ".join(text[: 4 * max_chars].split()))
    return flat if len(flat) <= max_chars else flat[: max_chars - 1] + "…"


def _fitting(lines: Iterable[str], max_tokens: int, counter: Counter) -> list[str]:
    """As many lines as fit; a first one that is too long is cut."""
    kept: list[str] = []
    room = max_tokens
    for line in lines:
        cost = counter.text(line) + 1
        if cost > room:
            if not kept:
                while line and counter.text(line) > room:
                    line = line[: len(line) * 3 // 4]  # noqa: PLW2901 - shortened until it fits
                kept = [line] if line else []
            break
        kept.append(line)
        room -= cost
    return kept
