"""A task as a Markdown page: a heading for each message, and what was said in quotations and fences.

Words keep their own Markdown, but inside a quotation, so that no heading of theirs is one of the page, and no tag of
theirs is a tag. Calls and results stand in fences that are longer than any in them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from orihon.ops.formats.passage import EXPLAINED, Passage, passages
from orihon.ops.plain import plain
from orihon.records import Message, Summary
from orihon.task.reader import Reader

_TICKS = re.compile(r"`+")
_FENCE = re.compile(r"(`{3,})[^`]*|(~{3,}).*")


def markdown(reader: Reader) -> Iterator[str]:
    """The page, piece by piece."""
    row = reader.row
    yield f"# {inline(row.task_key)}\n\n"
    facts = {"task": row.uuid, "status": row.status, "user": row.user, "model": row.model, "created": row.created_at}
    yield from (f"- {name}: {inline(str(value))}\n" for name, value in facts.items() if value)
    for passage in passages(reader):
        yield from _passage(passage)


def _passage(passage: Passage) -> Iterator[str]:
    record, note = passage.record, EXPLAINED.get(passage.fate, "")
    mark = f" · _{note}_" if note else ""
    if isinstance(record, Summary):
        current = "the model sees it" if passage.fate == "shown" else "an earlier one"
        yield f"\n## Summary of {record.start_seq} to {record.end_seq} · _{current}_\n\n{quoted(record.summary)}\n"
        return
    yield f"\n## {record.seq} {_speaker(record)}{mark}\n\n"
    if record.role == "tool":
        yield fenced(record.text)
    elif record.text:
        yield f"{quoted(record.text)}\n"
    yield from _pictures(record)
    for call in record.tool_calls:
        yield f"\n**{inline(call.name)}**\n\n{fenced(call.arguments, 'json')}"


def _speaker(message: Message) -> str:
    if message.role != "tool":
        return message.role
    return f"tool {inline(message.tool_name or '')}{' (error)' if message.is_error else ''}".rstrip()


def _pictures(message: Message) -> Iterator[str]:
    parts = message.content if isinstance(message.content, list) else []
    for part in parts:
        if part.text is None:
            yield f"\n_[{inline(part.type)} {inline(part.media_type or part.url or '')}]_\n"


def inline(text: str) -> str:
    """A short text inside a line, where it is only text."""
    return re.sub(r"([\\`*_\[\]<>#|])", r"\\\1", plain(text).replace("\n", " "))


def fenced(text: str, language: str = "") -> str:
    """The text in a fence that is longer than any in it."""
    text = plain(text)
    fence = "`" * max(3, 1 + max((len(ticks) for ticks in _TICKS.findall(text)), default=0))
    return f"{fence}{language}\n{text}\n{fence}\n"


def quoted(text: str) -> str:
    """The text as a quotation; a tag in it is text, but in fenced code everything is that already."""
    lines = []
    fence = ""
    for line in plain(text).split("\n"):
        found = _FENCE.fullmatch(line)
        mark = (found[1] or found[2]) if found else ""
        lines.append(f"> {line}" if fence or mark else "> " + line.replace("&", "&amp;").replace("<", "&lt;"))
        if not fence:
            fence = mark
        elif mark.startswith(fence) and line.rstrip() == mark:
            fence = ""
    return "\n".join(lines)
